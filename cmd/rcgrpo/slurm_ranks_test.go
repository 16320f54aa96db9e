//go:build libtorch

package main

import (
	"fmt"
	"testing"
)

// A rank of a job that is killed is named in the failure of the stage. At the time limit all ranks stop after a
// checkpoint, and a new job commits the files of one process on this machine.
func TestRanksOfAJobAreKilledAndStopped(t *testing.T) {
	box := slurmBox(t)
	runRanks(t, fmt.Sprintf(jobRanksScript, box), "processes = 4")
}

const jobRanksScript = `
env SLURM_CONF=%s/slurm.conf
exec sh -c 'sed s/epochs.*/epochs=50/ x.hcl >killed.hcl'
! exec rcgrpo run --site killed/site.hcl killed.hcl
stdout 'rank [23] of 4: .*killed'
exec rcgrpo plan --queue --site cluster/site.hcl killed.hcl
stdout '^Queue of executor "slurm", sft.arm: a job submitted now starts .* at the latest'

exec sh -c 'sed s/epochs.*/epochs=20/ x.hcl >stopped.hcl'
exec rcgrpo run --site stopped/site.hcl stopped.hcl
stdout 'reached its time limit; a new job resumes from its checkpoint'
exec sh digests.sh --site stopped/site.hcl stopped.hcl
cp stdout digests
exec sh -c 'grep -v processes stopped.hcl >one.hcl'
exec rcgrpo run --site local/site.hcl one.hcl
exec sh digests.sh --site local/site.hcl one.hcl
cmp stdout digests

-- cluster/site.hcl --
default_executor = "slurm"
store {
  path = "store"
}
executor "slurm" {
  poll    = "1s"
  lost    = "4s"
  visible = "2s"
  memory  = "1GB"
  exclude = "n3,n4"
}
-- killed/site.hcl --
default_executor = "slurm"
store {
  path = "../cluster/store"
}
executor "slurm" {
  poll    = "1s"
  lost    = "4s"
  visible = "2s"
  memory  = "1GB"
  exclude = "n3,n4"
  setup   = ["sh ../../kill.sh &"]
}
-- stopped/site.hcl --
default_executor = "slurm"
store {
  path = "../cluster/store"
}
executor "slurm" {
  poll    = "1s"
  memory  = "1GB"
  exclude = "n3,n4"
  setup   = ["sh ../../stop.sh $$ &"]
}
-- stop.sh --
# Sends the signal of the time limit to the job, once, when the ranks train.
[ ! -e ../stopped ] || exit
until grep -q 'memory on cpu' runs/stopped/*/logs/sft.arm.log; do sleep 0.1; done 2>/dev/null
touch ../stopped
kill -USR1 $1
-- kill.sh --
# Kills a rank other than the first. Each job starts one of these, and they share the folder.
for try in $(seq 600); do
	for p in /proc/[0-9]*; do
		if tr '\0' '\n' <$p/environ | grep -q '^RCGRPO_RANK=[23]'; then
			kill -9 ${p#/proc/} && exit
		fi
	done 2>/dev/null
	sleep 0.1
done
`
