package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

// lacking makes the file system below a folder lack operations.
func lacking(t *testing.T, fault error, below string, ops ...string) {
	disk.Lack(func(op, path string) error {
		if slices.Contains(ops, op) && strings.HasPrefix(path, below) {
			return fault
		}
		return nil
	})
	t.Cleanup(func() { disk.Lack(nil) })
}

// Some file systems, such as exFAT, lack operations. Runs, logs, published files, gc and adoption work
// without them.
func TestRunsWithoutOptionalOperationsOfTheFileSystem(t *testing.T) {
	want := digestsOf(t, faultyRun)
	optional := slices.DeleteFunc(slices.Clone(disk.Optional), func(op string) bool { return op == "flock" })
	for _, op := range append(slices.Clone(optional), "all of these") {
		t.Run(op, func(t *testing.T) {
			ops := []string{op}
			if op == "all of these" {
				ops = optional
			}
			l := newLab(t, faultyRun+`
stage "light" "long" {
  text  = "long"
  shell = "echo said; sleep 0.2"
}
stage "light" "silent" {
  text  = "silent"
  shell = "sleep 0.2"
}
`)
			lacking(t, syscall.EPERM, l.Dir, ops...)
			r := l.MustRun()
			digests := l.Digests()
			for port, digest := range want {
				wantEqual(t, port, digests[port], digest)
			}
			for address, want := range map[string]string{"light.long": "said\n", "light.silent": "", "light.a": ""} {
				wantEqual(t, "log of "+address, logOf(t, r, address), want)
			}
			if p := l.Plan(); p.Changes() {
				t.Errorf("next plan: got %v, want no work", enginetest.Causes(p))
			}
			must.Get(l.Store().Collect(0, runs.Pins))(t)
			must.OK(t, os.Remove(filepath.Join(l.Dir, "page.txt")))
			l.MustRun()
			if l.Read("page.txt") == "" {
				t.Error("published file: got none, want it restored")
			}

			l, _, inside := orphaned(t, outliving)
			lacking(t, syscall.EPERM, l.Dir, ops...)
			done := adopt(t.Context(), l)
			inside.Pass()
			r = <-done
			wantSuccess(t, r)
			if logOf(t, r, "toy.b") == "" {
				t.Error("log of the adopted stage: got nothing, want the log or its location")
			}
		})
	}
}

// Without locks, two runs could write one result at once.
func TestStoreWithoutLocksIsRefusedWithTheWayOut(t *testing.T) {
	for _, fault := range []error{syscall.ENOLCK, syscall.ENOSYS, syscall.EOPNOTSUPP} {
		l := newLab(t, faultyRun)
		p := l.Plan()
		lacking(t, fault, l.Dir, "flock")
		r := l.RunPlan(t.Context(), p, engine.Options{})
		disk.Lack(nil)
		must.Contain(t, fmt.Sprint(r.Err), "locks", l.StoreDir, "another file system", "store { path }")
		l.Want(r, runs.EventStarted)
		l.MustRun()
	}
}
