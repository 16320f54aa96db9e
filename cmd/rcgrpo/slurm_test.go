//go:build libtorch

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/engine/lang"
)

// TestSlurmPage runs the commands of the first part of docs/cluster.md on a cluster on this machine. Its secret reaches
// neither Slurm nor any file of the store.
func TestSlurmPage(t *testing.T) {
	if _, err := exec.LookPath("slurmctld"); err != nil || os.Getuid() != 0 {
		t.Skip("no Slurm here: as root, run bench/slurm.sh install")
	}
	root := fixtures.Root(t)
	box, err := os.MkdirTemp("", "box") // a short path for the sockets
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(root, "bench", "slurm.sh")
	up := exec.Command(script, "up", box, "4")
	up.Env = append(os.Environ(), fmt.Sprintf("BASE_PORT=%d", 16000+os.Getpid()%2000*8),
		fmt.Sprintf("UNTIL=%d", os.Getpid()))
	if out, err := up.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { exec.Command(script, "down", box).Run() })
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
