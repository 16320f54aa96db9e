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
store {
  path = "store"
}
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
