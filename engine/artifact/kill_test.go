package artifact

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"rcgrpo/engine/internal/disk"
	"rcgrpo/internal/must"
)

// killed are the changes of a store that a process makes until it is killed.
var killed = map[string]func(s *Store) error{
	"a commit": func(s *Store) error {
		_, err := tryCommit(s, "new", files{"x": "new", "sub/y": "y", "times.json": "1"})
		return err
	},
	"a commit over a damaged result": func(s *Store) error {
		_, err := tryCommit(s, "damaged", files{"x": "right"})
		return err
	},
	"a fetch": func(s *Store) error {
		m, err := s.Manifest(key("old"))
		if err != nil {
			return err
		}
		fetched := *m
		fetched.Key = key("new")
		fetched.Outputs = map[string]Output{"out": newOutput("files", []FileInfo{{Name: "x", Bytes: 3, SHA256: sumOfNew}})}
		_, err = s.Import(fetched, []string{"out"}, func(_ Output, dir string) error { return files{"x": "new"}.write(dir) })
		return err
	},
	"gc": func(s *Store) error {
		_, err := s.Collect(1, nil)
		return err
	},
}

const sumOfNew = "11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437"

const killVariable = "RCGRPO_TEST_KILL" // "STEP DIR CHANGE": kill this process at a step of a change of the store

// A process that is killed at any step of a change leaves a sound store: a result is whole, absent, or its damage is
// named, and the next process completes the change.
func TestAStoreIsSoundAfterAKillAtAnyStep(t *testing.T) {
	if text := os.Getenv(killVariable); text != "" {
		changeUntilKilled(t, text)
		return
	}
	for what, change := range killed {
		t.Run(what, func(t *testing.T) {
			for step, ended := 1, false; !ended; step++ {
				s := must.Get(Open(filepath.Join(t.TempDir(), "store")))(t)
				old := commit(t, s, "old", files{"x": "old"})
				damaged := commit(t, s, "damaged", files{"x": "right"})
				overwrite(t, fileOf(t, s, damaged, "x"), "wrong")
				c := exec.Command(os.Args[0], "-test.run=^"+t.Name()[:len("TestAStoreIsSoundAfterAKillAtAnyStep")]+"$")
				c.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s %s", killVariable, step, s.Dir(), what))
				out, err := c.CombinedOutput()
				if ended = err == nil; !ended && c.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
					t.Fatalf("step %d: %v\n%s", step, err, out)
				}
				for name, before := range map[string]*Manifest{"old": old, "damaged": damaged, "new": nil} {
					m, err := s.Lookup(key(name))
					switch {
					case err == nil:
						must.OK(t, s.Verify(m))
					case errors.As(err, new(Problem)) && name == "damaged":
					case errors.Is(err, ErrNotHere) && what != "gc" && what != "a commit over a damaged result":
						t.Errorf("step %d: %s is not here", step, name)
					case errors.Is(err, ErrNotFound) && before != nil:
						t.Errorf("step %d: %s is lost", step, name)
					}
				}
				must.Get(s.RemoveStale())(t)
				must.OK(t, change(s))
				must.Get(s.Collect(0, nil))(t)
				wantNothingGone(t, s)
				wantEmpty(t, s.path("staging"))
				commit(t, s, "damaged", files{"x": "right"})
				wantEqual(t, fmt.Sprint("problems after step ", step), fmt.Sprint(s.Check()), "[] <nil>")
				if step > 200 {
					t.Fatal("a change has more than 200 steps")
				}
			}
		})
	}
}

// changeUntilKilled makes a change of a store and kills this process at a step.
func changeUntilKilled(t *testing.T, text string) {
	var step, dir string
	must.Get(fmt.Sscan(text, &step, &dir))(t)
	at, n := must.Get(strconv.Atoi(step))(t), 0
	disk.Fail(func(string, string) error {
		if n++; n == at {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until it arrives
		}
		return nil
	})
	must.OK(t, killed[text[len(step)+len(dir)+2:]](must.Get(Open(dir))(t)))
}
