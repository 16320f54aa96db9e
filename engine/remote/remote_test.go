package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/lang"
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
	return must.Get(g.Commit(m, map[string]string{"out": "files", "small": "files"}))(t)
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

// fetch fetches ports of a result.
func fetch(t *testing.T, r *Remote, key string, ports ...string) error {
	_, err := r.Fetch(t.Context(), key, ports)
	return err
}

func TestFetchedPortsAreThoseThatWerePushed(t *testing.T) {
	onEachStorage(t, func(t *testing.T, s *storage) {
		_, b, m := pushed(t, s)
		must.OK(t, fetch(t, b, m.Key, "small"))
		got := must.Get(b.store.Lookup(m.Key))(t)
		wantEqual(t, "absent ports", fmt.Sprint(b.store.Absent(got)), "[out]")
		before := must.Get(os.ReadFile(filepath.Join(b.store.Dir(), manifestName(m.Key))))(t)
		must.OK(t, fetch(t, b, m.Key, "out"))
		got = must.Get(b.store.Lookup(m.Key))(t)
		wantEqual(t, "absent ports after another fetch", len(b.store.Absent(got)), 0)
		wantEqual(t, "digests", got.SameOutputs(m), true)
		after := must.Get(os.ReadFile(filepath.Join(b.store.Dir(), manifestName(m.Key))))(t)
		wantEqual(t, "the manifest", string(after), string(before))
		wantEqual(t, "check", fmt.Sprint(b.store.Check()), "[] <nil>")
	})
}

// A shared folder is a store: its files have the names, mode and time, so that nothing is hashed.
func TestAFolderOfResultsIsAStore(t *testing.T) {
	s := inFolder(t)
	_, _, m := pushed(t, s)
	there := must.Get(artifact.Open(s.Folder))(t)
	got := must.Get(there.Lookup(m.Key))(t)
	wantEqual(t, "digests", got.SameOutputs(m), true)
	wantEqual(t, "sum", got.Sum, "")
	for _, port := range m.Ports() {
		for _, o := range m.Outputs[port].Objects() {
			for _, f := range o.Files {
				info := must.Get(os.Stat(there.ObjectPath(o, f)))(t)
				wantEqual(t, f.Name, fmt.Sprint(info.Mode(), info.ModTime().Equal(artifact.Sealed)), "-r--r--r-- true")
			}
		}
	}
	wantEqual(t, "check", fmt.Sprint(there.Check()), "[] <nil>")
}

// Another user of the folder may have made a link to the files of this one.
func TestAPushWritesBehindNoLink(t *testing.T) {
	for _, link := range []string{"objects", "results", "objects/%s"} {
		s, home := inFolder(t), t.TempDir()
		a := s.machine(t)
		m := commit(t, a, 1)
		link = filepath.Join(s.Folder, strings.Replace(link, "%s", m.Outputs["out"].Digest, 1))
		must.OK(t, os.MkdirAll(filepath.Dir(link), 0o700))
		must.OK(t, os.Symlink(home, link))
		must.Match(t, a.PushResult(t.Context(), m), "is behind a link")
		if made := must.Get(os.ReadDir(home))(t); len(made) > 0 {
			t.Errorf("%s: got %v behind the link", link, made)
		}
	}
}

// Another user of the folder replaces the folder of an object by a link while the file is copied.
func TestALinkThatComesDuringAPushIsNotFollowed(t *testing.T) {
	s, home := inFolder(t), t.TempDir()
	a := s.machine(t)
	m := commit(t, a, 1)
	object := filepath.Join(s.Folder, "objects", m.Outputs["out"].Digest)
	disk.Fail(func(op, path string) error {
		if op == "sync" && filepath.Dir(path) == filepath.Join(s.Folder, "results") {
			os.RemoveAll(object)
			os.Symlink(home, object)
		}
		return nil
	})
	defer disk.Fail(nil)
	if err := a.PushResult(t.Context(), m); err == nil {
		t.Error("pushed behind a link")
	}
	if made := must.Get(os.ReadDir(home))(t); len(made) > 0 {
		t.Errorf("got %v behind the link", made)
	}
}

// A push that was cut continues: files that are there are not sent again.
func TestACutPushContinues(t *testing.T) {
	onEachS3(t, func(t *testing.T, s *storage) {
		a, b := s.machine(t), s.machine(t)
		m := commit(t, a, 1)
		o := m.Outputs["out"]
		var sent atomic.Int64
		var cut atomic.Bool
		cut.Store(true)
		s.relay.setFault(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, o.Digest) {
				return false
			}
			sent.Add(1)
			return cut.Load() && strings.HasSuffix(r.URL.Path, "/sub/b") && answer(w, r, http.StatusForbidden, "AccessDenied")
		})
		must.Match(t, a.PushResult(t.Context(), m), "access denied")
		wantEqual(t, "results after the cut", len(names(t, a, manifests)), 0)
		cut.Store(false)
		sent.Store(0)
		must.OK(t, a.PushResult(t.Context(), m))
		wantEqual(t, "files that are sent again", sent.Load(), 1)
		must.OK(t, fetch(t, b, m.Key, m.Ports()...))
	})
}

// Every changed byte of a remote store is a miss that is reported, and leaves no result. The other kinds of storage get
// a tenth of the changes.
func TestAThousandFlippedBytesAreAThousandMisses(t *testing.T) {
	onEachStorage(t, func(t *testing.T, s *storage) {
		a := s.machine(t)
		m := commit(t, a, 1)
		must.OK(t, a.PushResult(t.Context(), m))
		files := names(t, a, manifests, "objects/")
		wantEqual(t, "manifest and five files that are not empty", len(files), 6)
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

// resum returns the text of a JSON object with a right sum, as any writer of the remote store can make it.
func resum(text []byte) []byte {
	none := strings.Repeat("0", 64)
	with := strings.Replace(string(text), "{", `{"sum":"`+none+`",`, 1)
	with = strings.Replace(with, ",}", "}", 1) // of an empty object
	return []byte(strings.Replace(with, none, fmt.Sprintf("%x", sha256.Sum256([]byte(with))), 1))
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
		write(t, a, manifestName(key), resum(must.Get(json.Marshal(m))(t)))
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

// slow is a bucket without manifests, whose other objects do not come before the end of a context.
type slow struct{ bucket }

func (slow) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if strings.HasPrefix(name, manifests) {
		return nil, errMissing
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (slow) List(ctx context.Context, _ string) iter.Seq2[blob, error] {
	return func(yield func(blob, error) bool) {
		<-ctx.Done()
		yield(blob{}, ctx.Err())
	}
}

// A server that sends a byte in each deadline held up all stages of a run, also those without a result there.
func TestASlowTransferHoldsUpNoOtherStage(t *testing.T) {
	for what, transfer := range map[string]func(r *Remote, ctx context.Context) error{
		"file": func(r *Remote, ctx context.Context) error {
			return r.getFile(ctx, "objects/a", artifact.FileInfo{Bytes: 1}, filepath.Join(t.TempDir(), "a"))
		},
		"list": func(r *Remote, ctx context.Context) error { return r.pushObject(ctx, artifact.Output{}, false) },
	} {
		r := open(lang.Remote{Parallel: 1, Deadline: time.Hour}, nil, slow{})
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		ended := make(chan error)
		go func() { ended <- transfer(r, ctx) }()
		for len(r.transfers)+len(r.answers) == 0 {
			time.Sleep(time.Millisecond)
		}
		if _, err := r.read(ctx, strings.Repeat("a", 64)); err != errMissing {
			t.Errorf("%s: got %v during a transfer, want %v", what, err, errMissing)
		}
		stop()
		<-ended
	}
}

// late is a bucket that answers at the end of the context only.
type late struct{ slow }

func (late) Get(ctx context.Context, _ string) (io.ReadCloser, error) { return slow{}.Get(ctx, "") }

// A server that answered each request just in time held up a run before its first stage.
func TestASlowServerIsNotAskedForLong(t *testing.T) {
	defer func(limit time.Duration) { findLimit = limit }(findLimit)
	findLimit = time.Millisecond
	r := open(lang.Remote{Parallel: 1, Deadline: time.Hour, Pull: true}, nil, late{})
	got := reports(r)
	ctx, stop := context.WithTimeout(t.Context(), smallLimit/2)
	defer stop()
	for _, n := range []int{3, listAbove + 1} {
		var keys []string
		for i := range n {
			keys = append(keys, fmt.Sprintf("%064x", i))
		}
		r.rests = time.Time{}
		wantEqual(t, "results", len(r.Find(ctx, keys)), 0)
		must.OK(t, ctx.Err())
		wantEqual(t, "cached answers", len(r.manifests), 0)
		wantEqual(t, "rests", time.Now().Before(r.rests), false) // the results that it named are fetched
	}
	wantReports(t, got(), "no answer about all results")
}

// probe is a bucket with a manifest that is too large. It calls check for each read behind smallManifest bytes.
type probe struct {
	bucket
	check func()
}

func (p probe) Get(context.Context, string) (io.ReadCloser, error) {
	return io.NopCloser(io.MultiReader(strings.NewReader(strings.Repeat("{", smallManifest)), p)), nil
}

func (p probe) Read(b []byte) (int, error) { p.check(); return len(b), nil }

// Decoding takes much more memory than a manifest has bytes.
func TestLargeManifestsAreReadOneAtATime(t *testing.T) {
	var r *Remote
	r = open(lang.Remote{Parallel: 1, Deadline: time.Minute}, nil, probe{check: func() {
		if r.large.TryLock() {
			r.large.Unlock()
			t.Error("another manifest could be read meanwhile")
		}
	}})
	_, err := r.read(t.Context(), strings.Repeat("0", 64))
	must.Match(t, err, "more than")
}
