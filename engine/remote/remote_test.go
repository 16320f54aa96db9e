package remote

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
)

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// site is a machine with an empty store and the remote store in dir.
func site(t *testing.T, dir string) *Remote {
	t.Helper()
	store := must(artifact.Open(filepath.Join(t.TempDir(), "store")))(t)
	settings := lang.Remote{Name: "lab", URL: dir, Push: "yes", Pull: true, Grace: time.Hour, Parallel: 8, Pack: 1000,
		Deadline: time.Minute, Trust: map[string][]byte{}}
	return Open(&lang.Site{Remote: &settings}, store)
}

// commit commits a result with small files, an empty one, and one larger than a pack, in port out; times has its times.
func commit(t *testing.T, r *Remote, n int) *artifact.Manifest {
	t.Helper()
	g := must(r.store.Begin(fmt.Sprintf("%064x", n)))(t)
	dir := must(g.Dir("out"))(t)
	for name, size := range map[string]int{"a": 10, "empty": 0, "sub/b": 300, "z.large": 5000, "times.json": 40} {
		must(0, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))(t)
		text := bytes.Repeat([]byte{byte(n), byte(n >> 8), byte(size)}, size)[:size]
		must(0, os.WriteFile(filepath.Join(dir, name), text, 0o600))(t)
	}
	small := must(g.Dir("small"))(t)
	must(0, os.WriteFile(filepath.Join(small, "s"), fmt.Appendf(nil, "small %d", n), 0o600))(t)
	m := artifact.Manifest{Kind: "toy", Address: fmt.Sprint("stage.toy.n", n), Seconds: 1, Started: time.Now().UTC()}
	c := must(g.Commit(m, map[string]string{"out": "files", "small": "files"}))(t)
	must(0, r.store.Flush(c))(t)
	return c.Manifest
}

// fetch fetches ports of a result and makes it durable.
func fetch(t *testing.T, r *Remote, key string, ports ...string) error {
	t.Helper()
	c, lock, err := r.Fetch(t.Context(), key, ports)
	if err != nil {
		return err
	}
	must(0, r.store.Flush(c))(t)
	return lock.Unlock()
}

func TestFetchedPortsAreThoseThatWerePushed(t *testing.T) {
	dir := t.TempDir()
	a, b := site(t, dir), site(t, dir)
	m := commit(t, a, 1)
	must(0, a.PushResult(t.Context(), m))(t)
	must(0, fetch(t, b, m.Key, "small"))(t)
	got := must(b.store.Lookup(m.Key))(t)
	if !got.Has("small") || got.Has("out") {
		t.Errorf("got %v absent, want only out", got.Absent)
	}
	must(0, fetch(t, b, m.Key, "out"))(t)
	got = must(b.store.Lookup(m.Key))(t)
	if !got.Has("small") || !got.Has("out") || !got.SameOutputs(m) {
		t.Errorf("got %+v, want all ports", got)
	}
	if problems := must(b.store.Check())(t); len(problems) > 0 {
		t.Errorf("got %v", problems)
	}
}

// Every changed byte of a remote store is a miss that is reported, and leaves no result.
func TestAThousandFlippedBytesAreAThousandMisses(t *testing.T) {
	dir := t.TempDir()
	a := site(t, dir)
	m := commit(t, a, 1)
	must(0, a.PushResult(t.Context(), m))(t)
	files := must(filepath.Glob(filepath.Join(dir, "v1/*/*")))(t)
	if len(files) != 5 { // record, packs of out, its times and small, large file
		t.Fatalf("got %v, want 5 objects", files)
	}
	b := site(t, dir)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 1000 {
		file := files[i%len(files)]
		text := must(os.ReadFile(file))(t)
		at := random.IntN(len(text))
		flip := byte(1) << random.IntN(8)
		text[at] ^= flip
		must(0, os.WriteFile(file, text, 0o600))(t)
		fresh := New(b.Remote, b.store, folder{dir})
		var reports []string
		fresh.Report(func(_, text string) { reports = append(reports, text) })
		if err := fetch(t, fresh, m.Key, "out", "small"); err == nil || len(reports) != 1 {
			t.Fatalf("byte %d of %s: got %v and reports %q, want one miss", at, file, err, reports)
		}
		if _, err := b.store.Lookup(m.Key); err != artifact.ErrNotFound {
			t.Fatalf("byte %d of %s: got %v, want no result", at, file, err)
		}
		text[at] ^= flip
		must(0, os.WriteFile(file, text, 0o600))(t)
	}
}

func TestForeignManifestsWithOutsideNamesAreRefused(t *testing.T) {
	for what, change := range map[string]func(*artifact.Manifest){
		"a file outside": func(m *artifact.Manifest) { m.Outputs["small"].Files[0].Name = "../x" },
		"a published outside": func(m *artifact.Manifest) {
			m.Published = []artifact.Published{{Port: "small", File: "s", Name: "../x"}}
		},
		"a port outside": func(m *artifact.Manifest) {
			m.Outputs["../x"] = m.Outputs["small"]
		},
		"a wrong sum": func(m *artifact.Manifest) {
			o := m.Outputs["small"]
			o.Bytes++
			m.Outputs["small"] = o
		},
	} {
		dir := t.TempDir()
		a, b := site(t, dir), site(t, dir)
		m := commit(t, a, 1)
		must(0, a.PushResult(t.Context(), m))(t)
		change(m)
		rec := must(newRecord(m, a.Pack))(t)
		must(0, os.WriteFile(filepath.Join(dir, nodeName(m.Key)), rec.encode(), 0o600))(t)
		if err := fetch(t, b, m.Key, m.Ports()...); err == nil {
			t.Errorf("%s: got a result, want a miss", what)
		}
		if _, err := b.store.Manifest(m.Key); err != artifact.ErrNotFound {
			t.Errorf("%s: got %v, want no manifest", what, err)
		}
	}
}

func TestTrustedSignaturesAreAccepted(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	line, path, err := MakeKey("me-1")
	if again, _, _ := MakeKey("me-1"); err != nil || again != line {
		t.Fatalf("got %q, %v, want %q again", again, err, line)
	}
	if info := must(os.Stat(path))(t); info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, want 0600", info.Mode())
	}
	dir := t.TempDir()
	a, b := site(t, dir), site(t, dir)
	private := must(readKey("me-1"))(t)
	b.Trust = map[string][]byte{"me-1": private[32:]}
	unsigned := commit(t, a, 1)
	must(0, a.PushResult(t.Context(), unsigned))(t)
	a.Sign = "me-1"
	signed := commit(t, a, 2)
	must(0, a.PushResult(t.Context(), signed))(t)
	if err := fetch(t, b, unsigned.Key, "small"); err != artifact.ErrNotFound {
		t.Errorf("unsigned: got %v, want a miss", err)
	}
	must(0, fetch(t, b, signed.Key, "small"))(t)
	must(0, os.Chmod(path, 0o644))(t)
	if err := a.PushResult(t.Context(), commit(t, a, 3)); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that others can read: got %v, want an error", err)
	}
}

func TestTheFirstResultOfAKeyWinsAndAnotherIsAnAlarm(t *testing.T) {
	dir := t.TempDir()
	a, b := site(t, dir), site(t, dir)
	m := commit(t, a, 1)
	must(0, a.PushResult(t.Context(), m))(t)
	other := *commit(t, b, 2)
	other.Key = m.Key
	must(0, b.PushResult(t.Context(), &other))(t)
	if got := b.Alarms(); !slices.Equal(got, []string{m.Key}) {
		t.Errorf("got alarms %v, want the key", got)
	}
	if rec := must(a.read(t.Context(), m.Key))(t); !rec.manifest.SameOutputs(m) {
		t.Error("the second result replaced the first")
	}
}

// A large file that was cut continues with the bytes of the first attempt.
func TestALargeFileIsResumed(t *testing.T) {
	dir := t.TempDir()
	a, b := site(t, dir), site(t, dir)
	m := commit(t, a, 1)
	must(0, a.PushResult(t.Context(), m))(t)
	f := m.Outputs["out"].Files[3]
	whole := must(os.ReadFile(a.store.ObjectPath(m.Outputs["out"], f)))(t)
	part := filepath.Join(b.store.Remote("lab"), "parts", f.SHA256)
	must(0, os.MkdirAll(filepath.Dir(part), 0o700))(t)
	must(0, os.WriteFile(part, whole[:4000], 0o600))(t)
	must(0, fetch(t, b, m.Key, "out"))(t)
	if all := m.Outputs["out"].Bytes + m.Outputs["out"].Times.Bytes; b.traffic.bytes != all-4000 {
		t.Errorf("got %d bytes transferred, want %d", b.traffic.bytes, all-4000)
	}
}

func TestACollectionDeletesObjectsAfterTheGrace(t *testing.T) {
	dir := t.TempDir()
	a := site(t, dir)
	old, kept := commit(t, a, 1), commit(t, a, 2)
	for _, m := range []*artifact.Manifest{old, kept} {
		must(0, a.PushResult(t.Context(), m))(t)
	}
	old.Started = old.Started.Add(-100 * 24 * time.Hour)
	must(0, os.WriteFile(filepath.Join(dir, nodeName(old.Key)), must(newRecord(old, a.Pack))(t).encode(), 0o600))(t)
	objects := func() int { return len(must(filepath.Glob(filepath.Join(dir, "v1/[pf]*/*")))(t)) }
	collect := func() *Garbage {
		g := must(New(a.Remote, a.store, folder{dir}).Garbage(t.Context(), time.Now().Add(-90*24*time.Hour), 0))(t)
		must(0, a.Collect(t.Context(), g))(t)
		return g
	}
	if g := collect(); len(g.Results) != 1 || len(g.Unnamed) != 4 || objects() != 8 {
		t.Errorf("first: got %+v and %d objects, want one result, 4 marks, 8 objects", g, objects())
	}
	if g := collect(); len(g.Results)+len(g.Unnamed)+len(g.Deleted) != 0 || objects() != 8 {
		t.Errorf("within the grace: got %+v and %d objects, want nothing", g, objects())
	}
	past := time.Now().Add(-2 * time.Hour)
	for _, file := range must(filepath.Glob(filepath.Join(dir, "v1/*/*")))(t) {
		must(0, os.Chtimes(file, past, past))(t)
	}
	if g := collect(); len(g.Deleted) != 4 || objects() != 4 {
		t.Errorf("after the grace: got %+v and %d objects, want 4 deleted", g, objects())
	}
	b := site(t, dir)
	must(0, fetch(t, b, kept.Key, "out", "small"))(t)
}

func TestAPushWritesMarkedObjectsAgain(t *testing.T) {
	dir := t.TempDir()
	a := site(t, dir)
	m := commit(t, a, 1)
	must(0, a.PushResult(t.Context(), m))(t)
	must(0, os.Remove(filepath.Join(dir, nodeName(m.Key))))(t)
	g := must(a.Garbage(t.Context(), time.Time{}, 0))(t)
	must(0, a.Collect(t.Context(), g))(t)
	past := time.Now().Add(-2 * time.Hour)
	for _, file := range must(filepath.Glob(filepath.Join(dir, "v1/*/*")))(t) {
		must(0, os.Chtimes(file, past, past))(t)
	}
	again := New(a.Remote, a.store, folder{dir})
	must(0, again.PushResult(t.Context(), m))(t)
	g = must(again.Garbage(t.Context(), time.Time{}, 0))(t)
	if len(g.Deleted) != 0 || len(g.Unnamed) != 0 {
		t.Errorf("got %+v, want nothing to delete", g)
	}
	must(0, os.Remove(filepath.Join(dir, nodeName(m.Key))))(t)
	if g = must(again.Garbage(t.Context(), time.Time{}, 0))(t); len(g.Deleted) != 0 {
		t.Errorf("unnamed again: got %+v, want them marked first", g.Deleted)
	}
}

func TestTheNetworkRestsAfterThreeErrors(t *testing.T) {
	r := site(t, filepath.Join(t.TempDir(), "away"))
	reports := 0
	r.Report(func(string, string) { reports++ })
	for range 5 {
		if got := r.Find(t.Context(), []string{strings.Repeat("a", 64)}); len(got) > 0 {
			t.Errorf("got %v", got)
		}
	}
	if _, err := r.read(t.Context(), strings.Repeat("b", 64)); err != errResting || reports != 1 {
		t.Errorf("got %v after %d reports, want no further call and one report", err, reports)
	}
}

func TestRecordsRoundTrip(t *testing.T) {
	m := &artifact.Manifest{Key: strings.Repeat("c", 64), Address: "stage.toy.x\n\n"}
	rec := must(newRecord(m, 7))(t)
	rec.signatures["me-1"] = []byte{1, 2}
	got := must(parseRecord(rec.encode(), m.Key))(t)
	text := must(json.Marshal(got.manifest))(t)
	if want := must(json.Marshal(m))(t); !bytes.Equal(text, want) || got.pack != 7 || len(got.signatures) != 1 {
		t.Errorf("got %s, want %s", text, want)
	}
	if _, err := parseRecord(rec.encode(), strings.Repeat("d", 64)); err == nil {
		t.Error("another key: got no error")
	}
}
