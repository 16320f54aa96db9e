package artifact

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"rcgrpo/engine/internal/disk"
	"rcgrpo/internal/must"
)

// openStore opens a store in a new folder and checks at the end of the test that it is sound.
func openStore(t *testing.T) *Store {
	t.Helper()
	s := must.Get(Open(filepath.Join(t.TempDir(), "store")))(t)
	t.Cleanup(func() {
		wantEqual(t, "check at the end", fmt.Sprint(s.Check()), "[] <nil>")
		wantEmpty(t, s.path("staging"))
	})
	return s
}

// wantEmpty checks that a folder contains nothing or does not exist.
func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%s: got %v, want nothing", dir, left)
	}
}

func wantEqual[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

// wantError checks that the chain of an error contains another one.
func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got the error %v, want %v", what, err, want)
	}
}

func key(name string) string { return fmt.Sprintf("%064x", name) }

type files map[string]string // path below the port -> content

// commit makes a result with one port named out.
func commit(t *testing.T, s *Store, name string, content files) *Manifest {
	t.Helper()
	return must.Get(tryCommit(s, name, content))(t)
}

func tryCommit(s *Store, name string, content files) (*Manifest, error) {
	g, err := stage(s, name, content)
	if err != nil {
		return nil, err
	}
	m, err := g.Commit(Manifest{Experiment: "x", Address: "stage.toy." + name, Seconds: 1, Parts: Parts{"kind": `"toy"`}},
		map[string]string{"out": "files"})
	if err != nil {
		return nil, errors.Join(err, g.Abort())
	}
	return m, nil
}

// stage fills the port of a result.
func stage(s *Store, name string, content files) (*Staging, error) {
	g, err := s.Begin(key(name))
	if err != nil {
		return nil, err
	}
	dir, err := g.Dir("out")
	if err != nil {
		return nil, err
	}
	return g, content.write(dir)
}

func (c files) write(dir string) (err error) {
	for name, text := range c {
		path := filepath.Join(dir, name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
	}
	return err
}

// leaveUnfinished creates the output of a killed stage.
func leaveUnfinished(t *testing.T, s *Store, name string) {
	t.Helper()
	must.OK(t, (files{key(name) + "/half": "ha"}).write(s.path("staging")))
}

// fileOf returns the path of a file of a result.
func fileOf(t *testing.T, s *Store, m *Manifest, name string) string {
	t.Helper()
	return must.Get(s.Open(m, "out"))(t).Path(name)
}

// wantContent checks the content of a file of a result.
func wantContent(t *testing.T, s *Store, m *Manifest, name, want string) {
	t.Helper()
	if b, err := os.ReadFile(fileOf(t, s, m, name)); string(b) != want {
		t.Errorf("%s of %s: got %q, %v, want %q", name, m.Address, b, err, want)
	}
}

// sealed reports whether a file has the time that seals it.
func sealed(t *testing.T, path string) bool {
	t.Helper()
	return must.Get(os.Stat(path))(t).ModTime().Equal(Sealed)
}

// wantIntact checks that the store has the result.
func wantIntact(t *testing.T, s *Store, name, when string) {
	t.Helper()
	if _, err := s.Lookup(key(name)); err != nil {
		t.Errorf("lookup of %s %s: got %v, want it intact", name, when, err)
	}
}

// A copied store may have a pipe or an endless device in the place of a manifest: reading it would never end.
func TestRecordsThatAreNoPlainFilesAreErrors(t *testing.T) {
	for name, put := range must.NoPlainFiles {
		t.Run(name, func(t *testing.T) {
			s := must.Get(Open(filepath.Join(t.TempDir(), "store")))(t)
			m := commit(t, s, "a", files{"x.txt": "1"})
			for _, path := range []string{s.pointerPath("x", "stage.toy.a"), s.manifestPath(m.Key)} {
				must.OK(t, os.Remove(path))
				must.OK(t, put(path))
			}
			if got, err := s.Lookup(m.Key); err == nil {
				t.Errorf("got %v, want an error", got)
			}
			_, err := s.Last("x", "stage.toy.a")
			wantError(t, "the last result", err, ErrNotFound)
			path := s.ObjectPath(m.Outputs["out"], m.Outputs["out"].Files[0])
			must.OK(t, os.Remove(path))
			must.OK(t, put(path))
			_, err = s.Open(m, "out")
			must.Match(t, err, "x.txt: edited")
			must.OK(t, s.inFolder(s.holderPath(m.Key), func() error { return put(s.holderPath(m.Key)) }))
			var holder struct{}
			if err := s.Holder(m.Key, &holder); err == nil {
				t.Error("the lock has a holder, want an error")
			}
			if s.held(m.Key) {
				t.Error("the lock is held")
			}
			if text, err := (&Artifact{Dir: filepath.Dir(path)}).Read("x.txt"); err == nil { // its manifest records it so
				t.Errorf("read %d bytes, want an error", len(text))
			}
		})
	}
}

func TestLookupReturnsACommittedResult(t *testing.T) {
	s := openStore(t)
	_, err := s.Lookup(key("a"))
	wantError(t, "lookup in an empty store", err, ErrNotFound)
	if _, err := os.Stat(s.Dir()); err == nil {
		t.Fatal("the store's folder exists before the first write")
	}
	made := commit(t, s, "a", files{"x.txt": "1", "sub/y.txt": "22"})
	got := must.Get(s.Lookup(key("a")))(t)
	wantEqual(t, "lookup", got, made)
	wantEqual(t, "last key", must.Get(s.Last("x", "stage.toy.a"))(t).Key, key("a"))
	wantContent(t, s, got, "sub/y.txt", "22")
	wantEqual(t, "mode of the store", must.Get(os.Stat(s.Dir()))(t).Mode().Perm(), 0o700)
}

func TestTimesFilesAreCheckedButNotPartOfTheDigest(t *testing.T) {
	s := openStore(t)
	a := commit(t, s, "a", files{"rows.jsonl": "1\n", "times.jsonl": "0.5\n"})
	b := commit(t, s, "b", files{"rows.jsonl": "1\n", "times.jsonl": "0.7\n"})
	wantEqual(t, "digest with other times", b.Outputs["out"].Digest, a.Outputs["out"].Digest)
	wantContent(t, s, a, "times.jsonl", "0.5\n")
	wantContent(t, s, b, "times.jsonl", "0.7\n")
	overwrite(t, fileOf(t, s, b, "times.jsonl"), "0.9\n")
	var damage Problem
	if _, err := s.Lookup(key("b")); !errors.As(err, &damage) {
		t.Errorf("lookup after an edit of times.jsonl: got %v, want damage", err)
	}
	wantIntact(t, s, "a", "after an edit of b")
	commit(t, s, "b", files{"rows.jsonl": "1\n", "times.jsonl": "0.9\n"})
}

// A copy of a store (cp -r) has other times. Lookup hashes its files: right ones get the fixed time, wrong ones are
// damage.
func TestACopyOfAStoreHealsAndItsWrongFilesAreDamaged(t *testing.T) {
	s := openStore(t)
	right := fileOf(t, s, commit(t, s, "right", files{"x.txt": "right"}), "x.txt")
	wrong := fileOf(t, s, commit(t, s, "wrong", files{"x.txt": "wrong"}), "x.txt")
	for _, path := range []string{right, wrong} {
		wantEqual(t, "sealed after the commit", sealed(t, path), true)
		overwrite(t, path, "right")
		wantEqual(t, "sealed after it was written", sealed(t, path), false)
	}
	for _, fault := range []error{syscall.EIO, nil} { // without a flush it does not get the time
		failing(t, fault, "sync")
		wantIntact(t, s, "right", "after the copy")
		wantEqual(t, "sealed after the lookup", sealed(t, right), fault == nil)
	}
	var damage Problem
	if _, err := s.Lookup(key("wrong")); !errors.As(err, &damage) || damage.Path != wrong {
		t.Errorf("lookup: got %v, want damage of %s", err, wrong)
	}
	commit(t, s, "wrong", files{"x.txt": "wrong"})
	wantIntact(t, s, "wrong", "after it was made again")
}

// failing makes operations on files fail; a nil fault ends that.
func failing(t *testing.T, fault error, ops ...string) {
	disk.Fail(func(op, _ string) error {
		if slices.Contains(ops, op) {
			return fault
		}
		return nil
	})
	t.Cleanup(func() { disk.Fail(nil) })
}

// Whether the files of a result are durable is not known after a failed flush.
func TestAFailedFlushLeavesNoManifest(t *testing.T) {
	s := openStore(t)
	failing(t, syscall.EIO, "syncfs")
	_, err := tryCommit(s, "a", files{"x": "1"})
	wantError(t, "commit", err, syscall.EIO)
	must.Match(t, err, "flush the store "+s.Dir())
	_, err = s.Lookup(key("a"))
	wantError(t, "lookup", err, ErrNotFound)
	wantEmpty(t, s.path("objects"))
	disk.Fail(nil)
	commit(t, s, "a", files{"x": "1"})
}

// Nothing has its final name before the flush, and the files have their mode and time before it.
func TestFilesGetModeAndTimeBeforeTheFlushAndNamesAfterIt(t *testing.T) {
	s := openStore(t)
	var named []string
	flushed := false
	disk.Fail(func(op, path string) error {
		switch {
		case op == "syncfs":
			flushed = true
			path := must.Get(filepath.Glob(s.path("staging", key("a"), "*", "x")))(t)[0]
			wantEqual(t, "mode before the flush", must.Get(os.Stat(path))(t).Mode(), 0o444)
			wantEqual(t, "sealed before the flush", sealed(t, path), true)
		case op == "rename" && !strings.HasPrefix(path, s.path("staging")) && path != s.path("folder"):
			named = append(named, filepath.Base(filepath.Dir(path)))
			wantEqual(t, "flushed before "+path+" has its name", flushed, true)
		}
		return nil
	})
	defer disk.Fail(nil)
	commit(t, s, "a", files{"x": "1"})
	wantEqual(t, "names", fmt.Sprint(slices.Compact(named)), "[objects results last]") // again after a folder was made
}

// Callers that wait for a flush share the next one.
func TestOneFlushServesAllWaitingResults(t *testing.T) {
	const callers = 20
	var f flushes
	var calls, arrived atomic.Int64
	begun, end := make(chan struct{}, callers), make(chan struct{})
	slow := func() error {
		calls.Add(1)
		begun <- struct{}{}
		<-end
		return nil
	}
	var all sync.WaitGroup
	all.Go(func() { f.flush(slow) })
	<-begun
	for range callers {
		all.Go(func() {
			arrived.Add(1)
			f.flush(slow)
		})
	}
	for waits := false; !waits || arrived.Load() < callers; time.Sleep(time.Millisecond) { // behind the one that runs
		f.mu.Lock()
		waits = f.next != nil
		f.mu.Unlock()
	}
	close(end)
	all.Wait()
	if n := calls.Load(); n < 2 || n > callers/2 {
		t.Errorf("got %d flushes for %d callers, want few", n, callers+1)
	}
}

func overwrite(t *testing.T, path, text string) {
	t.Helper()
	os.Chmod(path, 0o644)
	must.OK(t, os.WriteFile(path, []byte(text), 0o644))
}

func TestDamageIsNoticedNamedAndHealed(t *testing.T) {
	for name, tc := range map[string]struct {
		damage func(t *testing.T, path string)
		what   string
	}{
		"a byte flipped":   {func(t *testing.T, path string) { overwrite(t, path, "helLo") }, "edited"},
		"a file shortened": {func(t *testing.T, path string) { overwrite(t, path, "hel") }, "edited"},
		"a file removed":   {func(t *testing.T, path string) { os.Remove(path) }, "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t)
			path := fileOf(t, s, commit(t, s, "a", files{"x.txt": "hello"}), "x.txt")
			tc.damage(t, path)
			var damage Problem
			if _, err := s.Lookup(key("a")); !errors.As(err, &damage) || damage.What != tc.what || damage.Path != path {
				t.Errorf("lookup: got %v, want %s %s", err, path, tc.what)
			}
			problems, err := s.Check()
			if err != nil || len(problems) != 1 || problems[0].Path != path || !strings.HasPrefix(problems[0].What, tc.what) {
				t.Errorf("check: got %v, %v, want one problem with %s", problems, err, path)
			}
			commit(t, s, "a", files{"x.txt": "hello"})
			wantIntact(t, s, "a", "after it was made again")
			wantNothingGone(t, s)
		})
	}
}

// The records of a foreign bundle may name any path.
func TestCheckReadsNothingOutsideTheObjects(t *testing.T) {
	s := openStore(t)
	dir := t.TempDir()
	must.OK(t, (files{"secret": "secret"}).write(dir))
	outside := strings.Repeat("../", 20) + strings.TrimPrefix(dir, "/")
	for want, change := range map[string]func(*Output){
		"is not a file name of an object": func(o *Output) { o.Files[0].Name = outside + "/secret" },
		"its entry does not add up":       func(o *Output) { o.Digest = outside },
	} {
		m := *commit(t, s, "a", files{"f": "text"})
		o := m.Outputs["out"]
		o.Files = slices.Clone(o.Files)
		change(&o)
		m.Outputs = map[string]Output{"out": o}
		if got := s.CheckPort(&m, "out"); len(got) != 1 || !strings.Contains(got[0].What, want) {
			t.Errorf("got %v, want %q", got, want)
		}
	}
}

// An edit that restores size and time is not found by the one stat per file of Lookup.
func TestCheckFindsAnEditThatTheTimeHides(t *testing.T) {
	s := openStore(t)
	m := commit(t, s, "a", files{"x.txt": "hello"})
	path := fileOf(t, s, m, "x.txt")
	must.OK(t, os.Chtimes(path, time.Now(), time.Now()))
	wantIntact(t, s, "a", "after a touch")
	wantEqual(t, "sealed after the lookup", sealed(t, path), true)
	overwrite(t, path, "jello")
	must.OK(t, seal(path))
	wantIntact(t, s, "a", "after the edit")
	wantEqual(t, "problems", len(must.Get(s.Check())(t)), 1)
	overwrite(t, path, "hello")
}

func TestCommitRefusesUndeclaredOutputs(t *testing.T) {
	for name, tc := range map[string]struct {
		fill  func(g *Staging) error
		types map[string]string
		want  string
	}{
		"a port never created": {func(g *Staging) error { return nil }, map[string]string{"out": "files"}, "never created"},
		"an undeclared port": {func(g *Staging) error { _, err := g.Dir("other"); return err },
			map[string]string{}, "not declared"},
		"an empty port": {func(g *Staging) error { _, err := g.Dir("out"); return err },
			map[string]string{"out": "files"}, "nothing was written"},
		"a symbolic link": {func(g *Staging) error {
			dir, err := g.Dir("out")
			return errors.Join(err, os.Symlink("/etc/hostname", filepath.Join(dir, "x")))
		}, map[string]string{"out": "files"}, "no plain file but a symbolic link"},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t)
			g := must.Get(s.Begin(key("a")))(t)
			must.OK(t, tc.fill(g))
			_, err := g.Commit(Manifest{Address: "stage.toy.a"}, tc.types)
			must.Match(t, err, tc.want, "commit")
			must.OK(t, g.Abort())
			_, err = s.Lookup(key("a"))
			wantError(t, "lookup", err, ErrNotFound)
		})
	}
	s := openStore(t)
	other := must.Get(stage(s, "b", files{"x": "1"}))(t)
	for _, bad := range []string{"", "../../etc/passwd", "short", strings.Repeat("G", 64)} {
		if _, err := s.Begin(bad); err == nil {
			t.Errorf("begin %q: got no error, want one", bad)
		}
	}
	wantEqual(t, "other output exists", disk.Exists(other.dir), true)
	must.OK(t, other.Abort())
	g, _ := s.Begin(key("a"))
	if _, err := g.Dir("../x"); err == nil {
		t.Error(`port "../x": got no error, want one`)
	}
	g.Abort()
}

func TestManyCommitsOfEqualBytesAtOnceAllSucceed(t *testing.T) {
	s := openStore(t)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			if _, err := tryCommit(s, fmt.Sprint("n", i), files{"x": "same", "times.json": fmt.Sprint(i % 3)}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i := range 16 {
		wantIntact(t, s, fmt.Sprint("n", i), "")
	}
}

func TestGarbageIsPlannedByCostAndManifestsStay(t *testing.T) {
	s := openStore(t)
	big := commit(t, s, "cheap", files{"x": strings.Repeat("a", 1000)})
	commit(t, s, "dear", files{"x": strings.Repeat("b", 10)})
	leaveUnfinished(t, s, "killed")
	plan, err := s.Garbage(0, nil)
	if err != nil || len(plan) != 1 || plan[0].What != "unfinished output" || plan[0].Bytes != 2 {
		t.Fatalf("plan without a limit: got %+v, %v, want the unfinished output", plan, err)
	}
	plan, err = s.Collect(100, nil)
	if err != nil || len(plan) != 1 || plan[0].Name != "stage.toy.cheap" || plan[0].Bytes != 1000 {
		t.Fatalf("collect: got %+v, %v, want stage.toy.cheap", plan, err)
	}
	m, err := s.Lookup(key("cheap"))
	wantError(t, "lookup of a collected result", err, ErrNotHere)
	wantEqual(t, "its manifest", m, big)
	wantEqual(t, "its absent ports", fmt.Sprint(s.Absent(m)), "[out]")
	if problems := s.CheckPort(m, "out"); len(problems) != 1 || problems[0].What != ErrNotHere.Error() {
		t.Errorf("check of its port: got %v, want that it is not here", problems)
	}
	wantIntact(t, s, "dear", "after the collection")
	wantEqual(t, "collected again", len(must.Get(s.Collect(100, nil))(t)), 0)
	commit(t, s, "cheap", files{"x": strings.Repeat("a", 1000)})
	wantIntact(t, s, "cheap", "after it was made again")
}

func TestDigestsAreThoseOfSha256sumAndCountNamesAndContents(t *testing.T) {
	digest := func(content files) string {
		dir := t.TempDir()
		must.OK(t, content.write(dir))
		return must.Get(Digest(dir))(t)
	}
	// printf 'abc' > a; : > b; sha256sum a b | sha256sum
	const want = "09c7e0b8a02d027d95ec0375a600ed4ad4d6b26a1c93f16d9150cab5fec761a6"
	wantEqual(t, "digest", digest(files{"b": "", "a": "abc"}), want)
	base := digest(files{"a": "1", "b/c": "2"})
	for name, tc := range map[string]struct {
		content files
		equal   bool
	}{
		"the same":        {files{"b/c": "2", "a": "1"}, true},
		"another content": {files{"a": "1", "b/c": "3"}, false},
		"another name":    {files{"a": "1", "b/d": "2"}, false},
		"swapped":         {files{"a": "2", "b/c": "1"}, false},
		"one more":        {files{"a": "1", "b/c": "2", "d": ""}, false},
	} {
		wantEqual(t, name+" is equal", digest(tc.content) == base, tc.equal)
	}
}

func TestOnlyFileOrFolderOfAnArtifact(t *testing.T) {
	for want, made := range map[string]files{
		"score.txt": {"score.txt": "1"},
		"deep":      {"deep/a": "1", "deep/b/c": "2"},
		"a":         {"a": "1", "times.jsonl": "2"},
		"":          {"a": "1", "b": "2"},
		" ":         {"a/x": "1", "ab": "2"},
	} {
		s := openStore(t)
		m := commit(t, s, "k", made)
		recorded := must.Get(s.Open(m, "out"))(t)
		for _, a := range []*Artifact{recorded, {Dir: recorded.Dir}} {
			path, ok := a.Only()
			if ok != (strings.TrimSpace(want) != "") || ok && path != filepath.Join(recorded.Dir, want) {
				t.Errorf("%v: got %q, %v, want %q", made, path, ok, want)
			}
		}
	}
}

func TestUnwritableStoreNamesTheCauseAndAWayOut(t *testing.T) {
	defer disk.Fail(nil)
	for cause, want := range map[error]string{
		syscall.EROFS:  "its file system is read-only: mount it for writing, or name another folder in the site file",
		syscall.EACCES: "its permissions forbid it: change them, or name another folder in the site file",
	} {
		for name, made := range map[string]bool{"a store with results": true, "an empty folder": false} {
			disk.Fail(nil)
			s := openStore(t)
			if made {
				commit(t, s, "a", files{"x": "1"})
			}
			disk.Fail(func(op, path string) error { return cause })
			_, use := s.Use()
			_, gc := s.Collect(1, nil)
			_, lock := s.TryLock(key("b"))
			for op, err := range map[string]error{"use": use, "gc": gc, "lock": lock} {
				if op == "gc" && !made && err == nil {
					continue // it has nothing to do
				}
				must.Match(t, err, "the store "+s.Dir()+" cannot be written, since "+want, name, op)
				wantError(t, name+", "+op, err, cause)
			}
		}
	}
}

func TestHardLinksInOutputsAreRefused(t *testing.T) {
	s := openStore(t)
	victim := filepath.Join(t.TempDir(), "victim")
	must.OK(t, os.WriteFile(victim, []byte("precious"), 0o640))
	before := must.Get(os.Stat(victim))(t)
	g := must.Get(stage(s, "a", nil))(t)
	if err := os.Link(victim, filepath.Join(g.ports["out"], "linked")); err != nil {
		t.Skip("this file system has no hard links: ", err)
	}
	_, err := g.Commit(Manifest{Address: "stage.toy.a"}, map[string]string{"out": "files"})
	must.Match(t, err, "copy it instead")
	after := must.Get(os.Stat(victim))(t)
	if after.Mode() != before.Mode() || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("the user's file: got %v of %v, want %v of %v",
			after.Mode(), after.ModTime(), before.Mode(), before.ModTime())
	}
	must.OK(t, g.Abort())
}

// A store of an older layout is refused before anything is read or written.
func TestAnOldStoreIsRefusedWithTheWayOut(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, os.Mkdir(filepath.Join(dir, "nodes"), 0o700))
	_, err := Open(dir)
	must.Match(t, err, "made by an older rcgrpo; name another folder")
}

// A manifest of a stranger may have any size, and take much more memory than that.
func TestLargeManifestsAreNeitherReadNorWritten(t *testing.T) {
	s := openStore(t)
	m := commit(t, s, "a", files{"x": "1"})
	path := s.manifestPath(m.Key)
	must.OK(t, os.Truncate(path, MaxManifest+1))
	_, err := s.Manifest(m.Key)
	must.Match(t, err, "at most")
	must.OK(t, os.Remove(path))
	m.Parts = Parts{"a": strings.Repeat("a", MaxManifest)}
	must.Match(t, s.writeJSON(s.Dir(), path, m), "at most")
	m.Ranks = &Ranks{PeakBytes: make([]int64, mostEntries+1)}
	must.Match(t, m.check(), "more than")
}

// A record of a stranger with 20,000 ports for one file of 60 MB held each run for minutes.
func TestAnObjectOfManyPortsIsReadOnce(t *testing.T) {
	s := openStore(t)
	m := commit(t, s, "a", files{"x": strings.Repeat("x", 1<<20)})
	m.Key = key("b")
	for i := range 20_000 {
		m.Outputs[fmt.Sprint("out", i)] = m.Outputs["out"]
	}
	dir := s.path("staging", m.Key)
	must.OK(t, os.MkdirAll(dir, 0o700))
	must.OK(t, s.writeJSON(dir, filepath.Join(dir, stagedManifest), m))
	begin := time.Now()
	got := must.Get(s.Complete(m.Key))(t)
	if took := time.Since(begin); got == nil || took > 5*time.Second {
		t.Errorf("got a result: %v, after %v", got != nil, took)
	}
}
