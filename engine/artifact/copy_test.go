package artifact

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"rcgrpo/internal/must"
)

// Behind a link in a stranger's store a run would write, and gc delete, the user's own files.
func TestACopyWithAnythingButFilesAndFoldersIsRefused(t *testing.T) {
	home := t.TempDir()
	precious := filepath.Join(home, "precious")
	must.OK(t, os.WriteFile(precious, []byte("x"), 0o600))
	link := func(to string) func(string) error {
		return func(path string) error { return os.Symlink(to, path) }
	}
	pipe := func(path string) error { return syscall.Mkfifo(path, 0o600) }
	for name, plant := range map[string]func(path string) error{
		"results": link(home), "objects": link(home), "runs": link(home), "locks": link(home), "bin": link(home),
		"use": link(precious), "folder": link(precious), ".new-A": link(precious),
		"locks/" + key("d"):                    link("../folder"), // a run waited for this lock for ever
		"runs/x/1/ranks":                       link("logs"),
		"runs/x/1/logs/f.log":                  link("../../../../folder"),
		"runs/x/1/logs/e.log":                  link("."), // and other links lead through it
		"results/" + key("b") + ".json":        link(precious),
		"objects/" + key("b"):                  link(home),
		"objects/" + key("b") + "/sub/x":       link(precious),
		"staging/" + key("b"):                  link(home),
		"series/" + key("b") + "/1." + key(""): link(home),
		"work/" + key("b"):                     link(home),
		"work/" + key("b") + "/states":         link(home),
		"work/" + key("b") + "/calls.jsonl":    link(precious),
		"work/" + key("b") + "/device":         link("/dev/zero"),
		"claims/" + key("b"):                   link(precious),
		"claims/" + key("c"):                   pipe,
		"runs/x":                               link(home),
		"runs/x/1/journal":                     link(precious),
		"runs/x/1/logs":                        link(home),
		"runs/x/1/logs/a.log":                  link(precious),
		"runs/x/1/logs/b.log":                  link("../../../../../precious"),
		"runs/x/1/logs/d.log":                  pipe,
	} {
		own := openStore(t)
		commit(t, own, "a", files{"x": "1"})
		copied := filepath.Join(t.TempDir(), "copy")
		must.OK(t, os.CopyFS(copied, os.DirFS(own.Dir()))) // with the file that identifies the folder of the original
		planted := filepath.Join(copied, name)
		must.OK(t, os.MkdirAll(filepath.Dir(planted), 0o700))
		must.OK(t, os.RemoveAll(planted))
		must.OK(t, plant(planted))
		_, err := Open(copied)
		must.Match(t, err, planted+" is no plain file, and the store has come here")
		must.OK(t, os.Remove(planted))
		must.Get(Open(copied))(t)
	}
	wantEqual(t, "the user's file", string(must.Get(os.ReadFile(precious))(t)), "x")
}

// On sshfs, a copy that named the inodes 1 to 65 was taken for the user's own, and so was a store in an image.
func TestTheIdentityOfAFolderIsSecret(t *testing.T) {
	mine, other := t.TempDir(), t.TempDir()
	t.Setenv("XDG_STATE_HOME", "")
	at := func(home, numbers string) string {
		t.Setenv("HOME", home)
		return folderID(numbers)
	}
	id := at(mine, "4 0 0")
	if len(id) != 65 || id != at(mine, "4 0 0") || id == at(mine, "5 0 0") || id == at(other, "4 0 0") {
		t.Errorf("the identity %q is missing, changes, or is that of others", id)
	}
	wantEqual(t, "without a home folder", at("", "4 0 0"), "")
	ids := make([]string, 8) // of the first commands at once
	t.Setenv("HOME", t.TempDir())
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() { ids[i] = folderID("4 0 0") })
	}
	if all.Wait(); len(slices.Compact(ids)) != 1 || ids[0] == "" {
		t.Errorf("got %q, want one identity", ids)
	}
}

// A program may make links in its scratch folder, and a run that adopts a stage has a link to its log.
func TestTheLinksOfTheUsersOwnStoreStay(t *testing.T) {
	s := openStore(t)
	commit(t, s, "a", files{"x": "1"})
	must.Get(s.MakeWork(key("b")))(t)
	link := filepath.Join(s.Work(key("b")), "python")
	must.OK(t, os.Symlink("/usr/bin/python3", link))
	for _, id := range []string{"1", "2"} {
		must.OK(t, os.MkdirAll(filepath.Join(s.Runs("x"), id, "logs"), 0o700))
	}
	must.OK(t, os.WriteFile(filepath.Join(s.Runs("x"), "1", "logs", "a.log"), nil, 0o600))
	must.OK(t, os.Symlink("../../1/logs/a.log", filepath.Join(s.Runs("x"), "2", "logs", "a.log")))
	must.Get(Open(s.Dir()))(t)
	moved := filepath.Join(t.TempDir(), "moved")
	must.OK(t, os.Rename(s.Dir(), moved))
	must.Get(Open(moved))(t) // the same folder with another name
	must.OK(t, os.Remove(filepath.Join(moved, "work", key("b"), "python")))
	must.OK(t, os.Remove(filepath.Join(moved, "folder")))
	must.Get(Open(moved))(t) // the link of a log leads to another log
	own := must.Get(os.ReadFile(filepath.Join(moved, "folder")))(t)
	must.OK(t, os.Symlink("/usr/bin/python3", filepath.Join(moved, "work", key("b"), "python")))
	must.OK(t, os.WriteFile(filepath.Join(moved, "folder"), append([]byte("1 0.0\n"), own...), 0o600)) // two hosts
	must.Get(Open(moved))(t)
}
