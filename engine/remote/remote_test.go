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

// commit commits a result with small files, an empty one, and one larger than a pack, in port out; times has its times.
func commit(t *testing.T, r *Remote, n int) *artifact.Manifest { return commitLarge(t, r, n, 5000) }

func commitLarge(t *testing.T, r *Remote, n, large int) *artifact.Manifest {
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
		files := names(t, a, "v1/nodes/", "v1/packs/", "v1/files/")
		wantEqual(t, "record, packs of out, its times and small, large file", len(files), 5)
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
		"a published outside": func(m *artifact.Manifest) {
			m.Published = []artifact.Published{{Port: "small", File: "s", Name: "../x"}}
		},
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
		write(t, a, nodeName(key), must.Get(newRecord(m, a.Pack))(t).encode())
		if err := fetch(t, b, key, m.Ports()...); err == nil {
			t.Errorf("%s: got a result, want a miss", what)
		}
		if _, err := b.store.Manifest(key); err != artifact.ErrNotFound {
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
	wantEqual(t, "mode", must.Get(os.Stat(path))(t).Mode().Perm(), 0o600)
	s := inFolder(t)
	a, b := s.machine(t), s.machine(t)
	private := must.Get(readKey("me-1"))(t)
	b.Trust = map[string][]byte{"me-1": private[32:]}
	unsigned := commit(t, a, 1)
	must.OK(t, a.PushResult(t.Context(), unsigned))
	a.Sign = "me-1"
	signed := commit(t, a, 2)
	must.OK(t, a.PushResult(t.Context(), signed))
	if err := fetch(t, b, unsigned.Key, "small"); err != artifact.ErrNotFound {
		t.Errorf("unsigned: got %v, want a miss", err)
	}
	must.OK(t, fetch(t, b, signed.Key, "small"))
	c := s.machine(t) // has the unsigned result too, and signs it
	c.Trust, c.Sign = b.Trust, "me-1"
	must.OK(t, c.PushResult(t.Context(), commit(t, c, 1)))
	b.records = map[string]*record{}
	must.OK(t, fetch(t, b, unsigned.Key, "small"))
	must.OK(t, os.Chmod(path, 0o644))
	must.Match(t, a.PushResult(t.Context(), commit(t, a, 3)), "chmod 600", "a key that others can read")
}

func TestTheFirstResultOfAKeyWinsAndAnotherIsAnAlarm(t *testing.T) {
	onEachStorage(t, func(t *testing.T, s *storage) {
		a, b, m := pushed(t, s)
		other := *commit(t, b, 2)
		other.Key = m.Key
		must.OK(t, b.PushResult(t.Context(), &other))
		wantEqual(t, "alarms", b.Alarms(), []string{m.Key})
		rec := must.Get(a.read(t.Context(), m.Key))(t)
		wantEqual(t, "the first result stays", rec.manifest.SameOutputs(m), true)
		must.OK(t, b.PushResult(t.Context(), m))
		wantEqual(t, "alarms with the same outputs", len(b.Alarms()), 0)
	})
}

// A large file that was cut continues with the bytes of the first attempt.
func TestALargeFileIsResumed(t *testing.T) {
	onEachStorage(t, func(t *testing.T, s *storage) {
		a, b, m := pushed(t, s)
		f := m.Outputs["out"].Files[3]
		whole := must.Get(os.ReadFile(a.store.ObjectPath(m.Outputs["out"], f)))(t)
		part := filepath.Join(b.store.Remote("lab"), "parts", f.SHA256)
		must.OK(t, os.MkdirAll(filepath.Dir(part), 0o700))
		must.OK(t, os.WriteFile(part, whole[:4000], 0o600))
		must.OK(t, fetch(t, b, m.Key, "out"))
		wantEqual(t, "bytes transferred", b.traffic.bytes, m.Outputs["out"].Bytes+m.Outputs["out"].Times.Bytes-4000)
	})
}

// The objects of a removed result stay until the next collection, and younger ones than the grace stay in any case.
func TestACollectionDeletesOldObjectsThatNoRecordNames(t *testing.T) {
	onEachStorage(t, func(t *testing.T, s *storage) {
		a := s.machine(t)
		old, kept := commit(t, a, 1), commit(t, a, 2)
		old.Started = old.Started.Add(-100 * 24 * time.Hour)
		s.past(t, 2*time.Hour, func() {
			for _, m := range []*artifact.Manifest{old, kept} {
				must.OK(t, a.PushResult(t.Context(), m))
			}
		})
		write(t, a, "v1/files/young", []byte("of a push that has no record yet"))
		collect := func(want string) {
			t.Helper()
			g := must.Get(a.Garbage(t.Context(), time.Now().Add(-90*24*time.Hour), 0))(t)
			must.OK(t, a.Collect(t.Context(), g))
			got := fmt.Sprintf("%d results, %d objects, %d stay", len(g.Results), len(g.Unnamed), len(names(t, a, objects...)))
			wantEqual(t, "collected", got, want)
		}
		collect("1 results, 0 objects, 9 stay")
		collect("0 results, 4 objects, 5 stay")
		must.OK(t, fetch(t, s.machine(t), kept.Key, "out", "small"))
	})
}

// A collection was planned before a push of a result that shares its objects.
func TestACollectionBesideAPushLeavesTheObjectsOfThePush(t *testing.T) {
	onEachStorage(t, func(t *testing.T, s *storage) {
		a := s.machine(t)
		m := commitLarge(t, a, 1, 2*askAbove) // the others are written in any case
		s.past(t, 40*time.Minute, func() { must.OK(t, a.PushResult(t.Context(), m)) })
		must.OK(t, a.bucket.Delete(t.Context(), nodeName(m.Key)))
		a.Grace = 30 * time.Minute
		g := must.Get(a.Garbage(t.Context(), time.Time{}, 0))(t)
		wantEqual(t, "objects to delete", len(g.Unnamed), 4)
		must.OK(t, a.PushResult(t.Context(), m))
		must.OK(t, a.Collect(t.Context(), g))
		must.OK(t, fetch(t, s.machine(t), m.Key, "out", "small"))
	})
}

func TestACollectionUnderALimitKeepsWhatIsWorthMost(t *testing.T) {
	s := inFolder(t)
	a := s.machine(t)
	cheap, dear := commit(t, a, 1), commit(t, a, 2)
	dear.Seconds = 1000
	for _, m := range []*artifact.Manifest{cheap, dear} {
		must.OK(t, a.PushResult(t.Context(), m))
	}
	g := must.Get(a.Garbage(t.Context(), time.Time{}, cheap.Bytes()+dear.Bytes()-1))(t)
	if len(g.Results) != 1 || g.Results[0].Manifest.Key != cheap.Key || g.Kept != dear.Bytes() {
		t.Errorf("got %+v, want the cheap result", g)
	}
}

func TestTheNetworkRestsAfterThreeErrors(t *testing.T) {
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
