package runs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

// The pins of a run count while its engine lives, and after that while one of its stages or jobs is open.
func TestPinsOfARunCountWhileItOrItsStagesLive(t *testing.T) {
	store := must.Get(artifact.Open(filepath.Join(t.TempDir(), "store")))(t)
	key := func(n int) string { return fmt.Sprintf("%064x", n) }
	record := runs.Record{Experiment: "x", Nodes: []runs.NodeRecord{{Key: key(1)}, {Key: ""}}}
	folder, engine, err := runs.Create(store, lang.Source{}, nil, record)
	must.OK(t, err)
	must.OK(t, folder.Pin(store, key(2)))
	want := func(when string, keys ...int) {
		t.Helper()
		pinned := must.Get(runs.Pins(store))(t)
		for _, n := range keys {
			if !pinned[key(n)] {
				t.Errorf("%s: key %d is not pinned", when, n)
			}
		}
		if len(pinned) != len(keys) {
			t.Errorf("%s: got %v, want %d keys", when, pinned, len(keys))
		}
	}
	want("while its engine lives", 1, 2)

	lock := must.Get(store.TryLock(key(3)))(t)
	must.OK(t, runs.Holder{Run: folder, Address: "stage.toy.a"}.Write(lock.File()))
	must.OK(t, engine.Close()) // killed
	want("while a stage runs whose engine was killed", 1, 2, 3)
	must.OK(t, lock.File().Close()) // killed: the file of the lock stays
	want("after all were killed")

	job := filepath.Join(store.Jobs(key(4)), "1")
	must.OK(t, os.MkdirAll(filepath.Dir(job), 0o700))
	must.OK(t, runs.WriteJSON(job, map[string]any{"Run": folder}))
	want("while a job is in the queue", 1, 2, 4)
	must.OK(t, os.WriteFile(job+".exit", nil, 0o600))
	want("after the end of the job")
}

// A stranger's store may name any process of the user as the holder of a lock. It is no stage, so nothing kills it.
func TestAProcessOfTheUserIsNoStage(t *testing.T) {
	store := must.Get(artifact.Open(filepath.Join(t.TempDir(), "store")))(t)
	key := fmt.Sprintf("%064x", 1)
	lock := must.Get(store.TryLock(key))(t)
	for name, mark := range map[string]string{"of the user": "", "of the stage": proc.ScratchMark(store.Work(key))} {
		p := must.Get(proc.Start(proc.Command{Args: []string{"/bin/sleep", "600"}, Mark: mark}))(t)
		h, _ := runs.Assignment{}.Holder(runs.Folder(t.TempDir())).WithProcess(p.PID)
		must.OK(t, os.Mkdir(h.Run.Path("nodes"), 0o700))
		must.OK(t, h.Write(lock.File()))
		guard := h.Adopt(store, key)
		guard.Close() // of a nil file too
		if all := must.Get(runs.Orphans(store))(t); (len(all) == 1) != (mark != "") || (guard != nil) != (mark != "") {
			t.Errorf("a process %s: got the orphans %v, adopted: %v", name, all, guard != nil)
		}
		syscall.Kill(p.PID, syscall.SIGKILL)
		p.Wait(t.Context(), nil, nil)
	}
	must.OK(t, lock.Unlock())
}
