package artifact

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"rcgrpo/engine/internal/disk"
	"rcgrpo/internal/must"
)

func TestGarbageLeavesPinnedResults(t *testing.T) {
	s := openStore(t)
	commit(t, s, "mine", files{"x": "mine"})
	commit(t, s, "same", files{"x": "mine"}) // the same object
	commit(t, s, "other", files{"x": "other"})
	session := must.Get(s.NewSession())(t)
	must.OK(t, session.Pin(key("mine"), "", key("unmade")))
	leaveUnfinished(t, s, "unmade")
	leaveUnfinished(t, s, "killed")
	planned := must.Get(s.Garbage(1))(t)
	running := lock(t, s, "unmade")     // otherwise its output is stale
	other := must.Get(Open(s.Dir()))(t) // as another process has it
	done := must.Get(other.Collect(1))(t)
	names := func(plan []Garbage) string {
		var all []string
		for _, g := range plan {
			all = append(all, g.Name)
		}
		return strings.Join(all, " ")
	}
	wantEqual(t, "plan", names(planned), key("killed")+" stage.toy.other")
	wantEqual(t, "collected", names(done), "stage.toy.other") // stale output goes before
	wantIntact(t, s, "mine", "while it is pinned")
	wantEqual(t, "the output being written exists", disk.Exists(s.path("staging", key("unmade"), "half")), true)
	wantEmpty(t, s.path("removed"))
	must.OK(t, errors.Join(os.RemoveAll(s.path("staging", key("unmade"))), running.Unlock(), session.Close()))
	wantEqual(t, "collected after the session", names(must.Get(other.Collect(1))(t)), "stage.toy.mine stage.toy.same")
}

func TestKilledSessionsPinNothing(t *testing.T) {
	s := openStore(t)
	commit(t, s, "a", files{"x": "12"})
	must.OK(t, (files{"users/KILLED": key("a") + "\n"}).write(s.Dir()))
	wantEqual(t, "collected results", len(must.Get(s.Collect(1))(t)), 1)
	wantEmpty(t, s.path("users"))
}

// An object exists before the manifest that names it.
func TestCollectionWaitsForACommit(t *testing.T) {
	s := openStore(t)
	other := must.Get(Open(s.Dir()))(t) // as another process has it
	defer func(was time.Duration) { exclusiveWithin = was }(exclusiveWithin)
	exclusiveWithin = 20 * time.Millisecond
	defer disk.Fail(nil)
	manifest, tried := s.path("results", key("a")+".json"), false
	disk.Fail(func(op, path string) error {
		if op == "rename" && path == manifest && !tried {
			tried = true
			if _, err := other.Collect(0); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "without a pause") {
				t.Errorf("collect before the manifest exists: got %v, want ErrBusy", err)
			}
		}
		return nil
	})
	commit(t, s, "a", files{"x": "1"})
	disk.Fail(nil)
	if _, err := other.Collect(0); err != nil || !tried {
		t.Errorf("collect after the commit: %v (tried before: %v)", err, tried)
	}
	wantIntact(t, s, "a", "afterwards")
}
