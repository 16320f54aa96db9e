package remote

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
)

// commit commits a result with files, one of them empty, in port out; times has its times.
func commit(t testing.TB, r *Remote, n int) *artifact.Manifest { return commitLarge(t, r, n, 5000) }

func commitLarge(t testing.TB, r *Remote, n, large int) *artifact.Manifest {
	t.Helper()
	g := must.Get(r.store.Begin(fmt.Sprintf("%064x", n)))(t)
	dir := must.Get(g.Dir("out"))(t)
	for name, size := range map[string]int{"a": 10, "empty": 0, "sub/b": 300, "z.large": large, "times.json": 40} {
		must.OK(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		text := bytes.Repeat([]byte{byte(n), byte(n >> 8), byte(size)}, size)[:size]
		must.OK(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	small := must.Get(g.Dir("small"))(t)
	must.OK(t, os.WriteFile(filepath.Join(small, "s"), fmt.Appendf(nil, "small %d", n), 0o600))
	m := artifact.Manifest{Kind: "toy", Address: fmt.Sprint("stage.toy.n", n), Seconds: 1, Started: time.Now().UTC()}
	c := must.Get(g.Commit(m, map[string]string{"out": "files", "small": "files"}))(t)
	must.OK(t, r.store.Flush(c))
	return c.Manifest
}

// pushed returns two machines, and a result that the first has pushed.
func pushed(t *testing.T, s *storage) (a, b *Remote, m *artifact.Manifest) {
	t.Helper()
	a, b = s.machine(t), s.machine(t)
	m = commit(t, a, 1)
	must.OK(t, a.PushResult(t.Context(), m))
	return a, b, m
}

func wantEqual[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// fetch fetches ports of a result and makes it durable.
func fetch(t *testing.T, r *Remote, key string, ports ...string) error {
	t.Helper()
	c, lock, err := r.Fetch(t.Context(), key, ports)
	if err != nil {
		return err
	}
	must.OK(t, r.store.Flush(c))
	return lock.Unlock()
}

func TestFetchedPortsAreThoseThatWerePushed(t *testing.T) {
	onEachStorage(t, func(t *testing.T, s *storage) {
		_, b, m := pushed(t, s)
		must.OK(t, fetch(t, b, m.Key, "small"))
		got := must.Get(b.store.Lookup(m.Key))(t)
		if !got.Has("small") || got.Has("out") {
			t.Errorf("got %v absent, want only out", got.Absent)
		}
		must.OK(t, fetch(t, b, m.Key, "out"))
		got = must.Get(b.store.Lookup(m.Key))(t)
		if !got.Has("small") || !got.Has("out") || !got.SameOutputs(m) {
			t.Errorf("got %+v, want all ports", got)
		}
		wantEqual(t, "check", fmt.Sprint(b.store.Check()), "[] <nil>")
	})
}

// Every changed byte of a remote store is a miss that is reported, and leaves no result. The other kinds of storage get
// a tenth of the changes.
func TestAThousandFlippedBytesAreAThousandMisses(t *testing.T) {
	onEachStorage(t, func(t *testing.T, s *storage) {
		a := s.machine(t)
		m := commit(t, a, 1)
		must.OK(t, a.PushResult(t.Context(), m))
		files := names(t, a, "v1/nodes/", "v1/files/")
		wantEqual(t, "record and five files that are not empty", len(files), 6)
		b := s.machine(t)
		random, changes := rand.New(rand.NewPCG(1, 2)), 100
		if s.fake != nil {
			changes = 1000
		}
		for i := range changes {
			file := files[i%len(files)]
			text := read(t, a, file)
			at := random.IntN(len(text))
			flip := byte(1) << random.IntN(8)
			text[at] ^= flip
			write(t, a, file, text)
			fresh := open(b.Remote, b.store, b.bucket) // the next process
			got := reports(fresh)
			if err := fetch(t, fresh, m.Key, "out", "small"); err == nil || len(got()) != 1 {
				t.Fatalf("byte %d of %s: got %v and reports %q, want one miss", at, file, err, got())
			}
			if _, err := b.store.Lookup(m.Key); err != artifact.ErrNotFound {
				t.Fatalf("byte %d of %s: got %v, want no result", at, file, err)
			}
			text[at] ^= flip
			write(t, a, file, text)
		}
	})
}

func TestForeignManifestsAreRefused(t *testing.T) {
	for what, change := range map[string]func(*artifact.Manifest){
		"a file outside": func(m *artifact.Manifest) { m.Outputs["small"].Files[0].Name = "../x" },
		"a port outside": func(m *artifact.Manifest) { m.Outputs["../x"] = m.Outputs["small"] },
		"a wrong sum": func(m *artifact.Manifest) {
			o := m.Outputs["small"]
			o.Bytes++
			m.Outputs["small"] = o
		},
		"another key": func(m *artifact.Manifest) { m.Key = strings.Repeat("d", 64) },
	} {
		s := inFolder(t)
		a, b, m := pushed(t, s)
		key := m.Key
		change(m)
		write(t, a, nodeName(key), must.Get(encodeRecord(m))(t))
		if err := fetch(t, b, key, m.Ports()...); err == nil {
			t.Errorf("%s: got a result, want a miss", what)
		}
		if _, err := b.store.Manifest(key); err != artifact.ErrNotFound {
			t.Errorf("%s: got %v, want no manifest", what, err)
		}
	}
}

func TestTheFirstResultOfAKeyStaysAndAnotherIsAnError(t *testing.T) {
	onEachStorage(t, func(t *testing.T, s *storage) {
		a, b, m := pushed(t, s)
		other := *commit(t, b, 2)
		other.Key = m.Key
		got := reports(b)
		wantEqual[error](t, "push", b.PushResult(t.Context(), &other), errConflict)
		wantReports(t, got(), "with other digests than this store")
		wantEqual(t, "the first result stays", must.Get(a.read(t.Context(), m.Key))(t).SameOutputs(m), true)
		must.OK(t, b.PushResult(t.Context(), m))
	})
}

func TestTheNetworkRestsAfterAnError(t *testing.T) {
	s := inFolder(t)
	s.Folder = filepath.Join(s.Folder, "away")
	r := s.machine(t)
	got := reports(r)
	for range 5 {
		wantEqual(t, "results", len(r.Find(t.Context(), []string{strings.Repeat("a", 64)})), 0)
	}
	if _, err := r.read(t.Context(), strings.Repeat("b", 64)); err != errResting || len(got()) != 1 {
		t.Errorf("got %v after reports %q, want no further call and one report", err, got())
	}
}
