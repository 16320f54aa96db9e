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
	"a completion": func(s *Store) error { // see TestABegunCommitIsCompletedAfterAKillAtAnyStep
		_, err := s.Complete(key("new"))
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

// beginCommit leaves a result whose commit has begun: no object gets its name.
func beginCommit(t *testing.T, s *Store, content files) {
	t.Helper()
	disk.Fail(func(op, path string) error {
		if op == "rename" && filepath.Dir(path) == s.path("objects") {
			return syscall.ENOSPC
		}
		return nil
	})
	_, err := tryCommit(s, "new", content)
	disk.Fail(nil)
	wantError(t, "commit", err, syscall.ENOSPC)
}

// Once the output of a stage is written, the next process commits it, after an error or a kill at any step of that
// process too, and a commit can be completed twice.
func TestABegunCommitIsCompletedAfterAKillAtAnyStep(t *testing.T) {
	content := files{"x": "new", "sub/y": "y", "times.json": "1"}
	for step, ended := 1, false; !ended; step++ {
		s := openStore(t)
		beginCommit(t, s, content)
		staged := must.Get(os.ReadFile(s.path("staging", key("new"), stagedManifest)))(t)
		c := exec.Command(os.Args[0], "-test.run=^TestAStoreIsSoundAfterAKillAtAnyStep$")
		c.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s a completion", killVariable, step, s.Dir()))
		out, err := c.CombinedOutput()
		if ended = err == nil; !ended && c.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("step %d: %v\n%s", step, err, out)
		}
		must.OK(t, lock(t, s, "new").Unlock())
		m := must.Get(s.Lookup(key("new")))(t)
		must.OK(t, s.Verify(m))
		wantContent(t, s, m, "sub/y", "y")
		// Another process that has read the staged manifest continues.
		must.OK(t, files{stagedManifest: string(staged)}.write(s.path("staging", key("new"))))
		if again := must.Get(s.Complete(key("new")))(t); again == nil || !again.SameOutputs(m) {
			t.Errorf("step %d: completed again: got %+v, want %+v", step, again, m)
		}
		if none := must.Get(s.Complete(key("new")))(t); none != nil {
			t.Errorf("step %d: got %+v, want nothing left to complete", step, none)
		}
		wantEqual(t, "last result", must.Get(s.Last("x", "stage.toy.new"))(t).Key, key("new"))
		if step > 100 {
			t.Fatal("a completion has more than 100 steps")
		}
	}
}

// After a power cut a written output may lack bytes.
func TestATornOutputIsNotCommitted(t *testing.T) {
	one := func(dir, pattern string) string { return must.Get(filepath.Glob(filepath.Join(dir, pattern)))(t)[0] }
	for name, tear := range map[string]func(dir string) error{
		"a file":           func(dir string) error { return os.WriteFile(one(dir, "*/x"), []byte("ne"), 0) },
		"no file":          func(dir string) error { return os.Remove(one(dir, "*/x")) },
		"no port":          func(dir string) error { return os.RemoveAll(filepath.Dir(one(dir, "*/x"))) },
		"times":            func(dir string) error { return os.Truncate(one(dir, "*/times.json"), 0) },
		"the manifest":     func(dir string) error { return files{stagedManifest: `{"key": "`}.write(dir) },
		"another manifest": func(dir string) error { return files{stagedManifest: "{}"}.write(dir) },
	} {
		s := openStore(t)
		beginCommit(t, s, files{"x": "new", "times.json": "1"})
		dir := s.path("staging", key("new"))
		must.OK(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Chmod(path, 0o700))
		}))
		must.OK(t, tear(dir))
		must.OK(t, lock(t, s, "new").Unlock())
		if _, err := s.Lookup(key("new")); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: got %v, want no result", name, err)
		}
		wantEmpty(t, s.path("staging"))
	}
}
