package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rcgrpo/internal/must"
)

// Sixteen concurrent runs, six under -short, share one store, half of them from a second checkout, beside status, plan,
// logs and store gc.
func TestSixteenRunsExecuteEachStageOnce(t *testing.T) {
	stages, runs := must.Short(t, 40, 200), must.Short(t, 6, 16)
	base := t.TempDir()
	log := filepath.Join(base, "log")
	var text strings.Builder
	text.WriteString("experiment {\n}\n")
	for i := range stages {
		input := "{}"
		if i >= stages/2 { // a second layer
			input = fmt.Sprintf("{ src = stage.exec.s%d.out }", i-stages/2)
		}
		fmt.Fprintf(&text, "stage \"exec\" \"s%d\" {\n"+
			"  command = [\"sh\", \"-c\", \"echo s%d >> %s; echo %d > \\\"$out\\\"\"]\n"+
			"  inputs  = %s\n  outputs = { out = \"made/s%d.txt\" }\n}\n",
			i, i, log, i, input, i)
	}
	site := fmt.Sprintf("store {\n  path = %q\n}\nexecutor \"local\" {\n  cpus = 4\n}\n", filepath.Join(base, "store"))
	checkouts := []string{filepath.Join(base, "one"), filepath.Join(base, "two")}
	for _, dir := range checkouts {
		must.OK(t, os.Mkdir(dir, 0o755))
		for name, content := range map[string]string{"x.hcl": text.String(), "site.hcl": site} {
			must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
		}
	}
	command := func(ctx context.Context, dir string, args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, "rcgrpo", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HOME="+base, "RCGRPO_LEASES="+filepath.Join(base, "leases"))
		return cmd.CombinedOutput()
	}

	ctx, over := context.WithCancel(t.Context())
	var looking, running sync.WaitGroup
	for i, args := range [][]string{{"status"}, {"plan"}, {"store", "gc"}, {"logs", "exec.s0"}} {
		looking.Go(func() {
			for ctx.Err() == nil {
				out, err := command(t.Context(), checkouts[i%2], args...)
				if early := bytes.Contains(out, []byte("has no runs")) || bytes.Contains(out, []byte("has no log")) ||
					bytes.Contains(out, []byte("has not started")); err != nil && !early {
					t.Errorf("%s during the runs: %v\n%s", strings.Join(args, " "), err, out)
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	for i := range runs {
		running.Go(func() {
			if out, err := command(t.Context(), checkouts[i%2], "run"); err != nil {
				t.Errorf("run %d: %v\n%s", i, err, out)
			}
		})
	}
	running.Wait()
	over()
	looking.Wait()

	b := must.Get(os.ReadFile(log))(t)
	lines := strings.Fields(string(b))
	slices.Sort(lines)
	if distinct := slices.Compact(slices.Clone(lines)); len(lines) != stages || len(distinct) != stages {
		t.Errorf("%d executions of %d stages, want each of %d once", len(lines), len(distinct), stages)
	}
	for _, dir := range checkouts {
		if made, err := os.ReadDir(filepath.Join(dir, "made")); err != nil || len(made) != stages {
			t.Errorf("%s has %d published files, %v, want %d", dir, len(made), err, stages)
		}
	}
	if left, _ := os.ReadDir(filepath.Join(base, "leases")); len(left) != 1 {
		t.Errorf("leases: %v are left, want the mutex alone", left)
	}
}
