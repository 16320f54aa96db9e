//go:build libtorch

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
)

// TestSlurmPage runs the commands of the first part of docs/cluster.md on a cluster on this machine. Its secret reaches
// neither Slurm nor any file of the store.
func TestSlurmPage(t *testing.T) {
	box := slurmBox(t)
	s := newSession(t, "docs/cluster.md")
	_, s.page, _ = strings.Cut(s.page, "## Run on Slurm")
	site := s.block("hcl", `partition = "h200"`, `partition = "main"`+"\n  poll = \"1s\"\n  memory = \"100MB\"",
		`"module load cuda/12.8"`, `"cd /"`)
	_, s.page, _ = strings.Cut(s.page, "default_executor")
	s.page, _, _ = strings.Cut(s.page, "\n## ") // the commands of this section
	s.file("study.hcl", "experiment {\n}\n"+s.block("hcl")+`
stage "exec" "token" {
  command = ["sh", "-c", "echo token $HF_TOKEN; echo $HF_TOKEN | wc -c >\"$out\""]
  secrets = ["HF_TOKEN"]
  outputs = { out = "token.txt" }
}
`)
	s.file(".secrets/hf", "moonlight\n")
	s.line("env SLURM_CONF=%s\nchmod 600 .secrets/hf", filepath.Join(box, "slurm.conf"))
	for _, command := range shellCommands(s.page) {
		s.line("exec %s", command)
	}
	s.line("cmp sum.txt want\ngrep 10 token.txt")
	s.line(`exec rcgrpo status study.hcl --all` + "\nstdout '5 done'")
	s.line("exec rcgrpo logs exec.token study.hcl\nstdout 'token \\*\\*\\*'")
	s.line("! exec grep -r --exclude-dir=bin moonlight results %s", box)
	s.file("want", "4\n9\n")
	s.run(site, func(string) error { return nil })
}

// A training with two processes on a node commits the files of the local executor. On the first node libtorch is
// missing.
func TestRanksOnSlurmCommitTheFilesOfTheLocalExecutor(t *testing.T) {
	box := slurmBox(t)
	maps := must.Get(os.ReadFile("/proc/self/maps"))(t)
	libtorch := regexp.MustCompile(`/\S*/libtorch_cpu\.so`).Find(maps)
	runRanks(t, fmt.Sprintf(ranksScript, box, filepath.Dir(string(libtorch))), "cpus = 2\n    processes = 2")
}

const ranksScript = `
env SLURM_CONF=%s/slurm.conf
exec rcgrpo run --site cluster/site.hcl x.hcl
stdout 'could not run on host n[1-4]: its program did not start .*: error while loading shared libraries: lib'
exec sh digests.sh --site cluster/site.hcl x.hcl
cp stdout digests
exec rcgrpo run --site local/site.hcl x.hcl
exec sh digests.sh --site local/site.hcl x.hcl
cmp stdout digests

-- cluster/site.hcl --
default_executor = "slurm"
store { path = "store" }
executor "slurm" {
  poll    = "1s"
  memory  = "1GB"
  visible = "2s"
  lost    = "4s"
  setup   = [
    "[ -e ../first ] || echo $SLURMD_NODENAME >../first",
    "export script=$0 libtorch=%s",
    "hide() { hidden=1 exec unshare -m sh -c 'mount -t tmpfs none $libtorch && exec sh $script'; }",
    "[ \"$hidden\" ] || [ $SLURMD_NODENAME != $(cat ../first) ] || hide",
  ]
}
`

// The page has each setting of an executor of type slurm.
func TestSlurmSettingsAreOnThePage(t *testing.T) {
	page := newSession(t, "docs/cluster.md").page
	found := 0
	for _, s := range lang.SiteSettings() {
		if name, ok := strings.CutPrefix(s.Name, "executor."); ok && strings.HasPrefix(s.Doc, "slurm:") {
			if found++; !strings.Contains(page, "`"+name+"`") {
				t.Errorf("docs/cluster.md does not have %s", name)
			}
		}
	}
	if found < 20 {
		t.Errorf("got %d settings, want more than 20", found)
	}
}

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
store { path = "store" }
executor "slurm" {
  poll    = "1s"
  lost    = "4s"
  visible = "2s"
  memory  = "1GB"
  exclude = "n3,n4"
}
-- killed/site.hcl --
default_executor = "slurm"
store { path = "../cluster/store" }
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
store { path = "../cluster/store" }
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
