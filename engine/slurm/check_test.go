package slurm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcgrpo/engine/lang"
	"rcgrpo/engine/slurm"
	"rcgrpo/internal/must"
)

// wantFindings checks the findings of a check. A text with the prefix "problem: " is a problem.
func wantFindings(t *testing.T, got []slurm.Finding, want ...string) {
	t.Helper()
	var all strings.Builder
	for _, f := range got {
		if f.Problem {
			all.WriteString("problem: ")
		}
		fmt.Fprintln(&all, f.Text)
	}
	for _, text := range want {
		if !strings.Contains("\n"+all.String(), "\n"+text) {
			t.Errorf("got\n%s\nwant a line that begins with %q", &all, text)
		}
	}
	if problems := strings.Count(all.String(), "problem: "); problems != len(slices.DeleteFunc(slices.Clone(want),
		func(w string) bool { return !strings.HasPrefix(w, "problem: ") })) {
		t.Errorf("got %d problems\n%s", problems, &all)
	}
}

func TestTheCheckOfASite(t *testing.T) {
	box.start(t)
	self := must.Get(os.Executable())(t)
	l := newLab(t, "")
	x := func(change func(s *lang.Slurm)) *slurm.Executor {
		s := l.settings
		change(&s)
		return slurm.NewExecutor(l.executor(s))
	}
	wantFindings(t, x(func(*lang.Slurm) {}).Check(t.Context()), "Slurm 2", "partition low: up",
		"partition main (used): up", "limits: at most 50 jobs", "accounting: none")
	wantFindings(t, x(func(s *lang.Slurm) { s.Options = []string{"--partition=nosuch"} }).Check(t.Context()),
		"problem: partition nosuch is missing")
	wantFindings(t, x(func(s *lang.Slurm) { s.Path = t.TempDir() }).Check(t.Context()),
		"problem: the command scontrol of Slurm is missing")

	secret := filepath.Join(l.Dir, "secret")
	l.Put("secret", "moonlight\n")
	must.OK(t, os.Chmod(secret, 0o600))
	probe := slurm.Probe{Folders: []string{l.StoreDir, l.Dir}, Programs: []string{self}, GPUs: 1}
	wantFindings(t, x(func(s *lang.Slurm) {
		s.Setup, s.Secrets = []string{"cd /", "true"}, map[string]string{"TOKEN": secret}
	}).CheckJob(t.Context(), l.Store(), probe), "the job ran on node n", "folder "+l.Dir, "the store is writable",
		"slurm.test starts; its digest is that of the copy", "secrets: 1", "GPU ",
		`setup line "true" ended with exit code 0`,
		"a file is seen on the node and its answer here after", "the node's clock differs by")

	must.OK(t, os.Chmod(secret, 0o644))
	l.Put("broken", "#!/bin/sh\necho no libtorch; exit 1\n")
	must.OK(t, os.Chmod(filepath.Join(l.Dir, "broken"), 0o700))
	probe.Folders = append(probe.Folders, filepath.Join(l.Dir, "nosuch"))
	probe.Programs = append(probe.Programs, filepath.Join(l.Dir, "broken"))
	wantFindings(t, x(func(s *lang.Slurm) {
		s.Setup, s.Secrets = []string{"nosuch load cuda"}, map[string]string{"TOKEN": secret}
	}).CheckJob(t.Context(), l.Store(), probe), "problem: folder: ", "problem: broken does not start: no libtorch",
		"problem: secret TOKEN: others may read", `problem: setup line "nosuch load cuda" ended with exit code 127`)

	small := slurm.Probe{Programs: []string{self}}
	exits := x(func(s *lang.Slurm) { s.Setup = []string{"echo no module; exit 3"} })
	wantFindings(t, exits.CheckJob(t.Context(), l.Store(), small), "problem: the job ended on node")
	refused := x(func(s *lang.Slurm) { s.Options = []string{"--partition=nosuch"} })
	wantFindings(t, refused.CheckJob(t.Context(), l.Store(), small), "problem: the job is not submitted: ")
	l.wantNoJob()
}
