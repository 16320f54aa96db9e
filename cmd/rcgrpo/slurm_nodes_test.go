//go:build libtorch

package main

import (
	"fmt"
	"testing"
)

// A training whose four ranks are on two nodes commits the files of one process on this machine. A rank that fails on
// the second node is named in the failure of the stage. At the time limit all ranks stop after a checkpoint.
func TestRanksOnTwoNodesCommitTheFilesOfOneProcess(t *testing.T) {
	box := slurmBox(t)
	runRanks(t, fmt.Sprintf(nodesScript, box), "processes = 4\n    nodes = 2")
}

const nodesScript = `
env SLURM_CONF=%s/slurm.conf
exec rcgrpo run --site cluster/site.hcl x.hcl
exec sh digests.sh --site cluster/site.hcl x.hcl
cp stdout digests
grep n1 cluster/nodes
grep n2 cluster/nodes
exec sh -c 'grep -v -e nodes -e processes x.hcl >one.hcl'
exec rcgrpo run --site local/site.hcl one.hcl
exec sh digests.sh --site local/site.hcl one.hcl
cmp stdout digests

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
exec sh -c 'grep -v -e nodes -e processes stopped.hcl >one.hcl'
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
  setup   = ["scontrol show hostnames >>../nodes"]
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
# Sends the signal of the time limit to srun, once, when the ranks train.
[ ! -e ../stopped ] || exit
until grep -q 'memory on cpu' runs/stopped/*/logs/sft.arm.log; do sleep 0.1; done 2>/dev/null
touch ../stopped
kill -USR1 $1
-- kill.sh --
# Kills a rank of the second node: the environment of its process has the place of the node.
for try in $(seq 600); do
	for p in /proc/[0-9]*; do
		tr '\0' '\n' <$p/environ >environ
		if grep -q '^RCGRPO_GANG_NODE=1 2 ' environ && grep -q '^RCGRPO_RANK=[23]' environ; then
			kill -9 ${p#/proc/} && exit
		fi
	done 2>/dev/null
	sleep 0.1
done
`
