package remote

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
)

// A port of many small files, or of one file that is larger than the memory, is committed, pushed and fetched with as
// much memory as a small one, apart from the list of its files.
func TestLargePortsNeedLittleMemory(t *testing.T) {
	for what, port := range map[string]struct {
		files int
		bytes int64
	}{
		"many files":   {must.Short(t, 500, 20_000), 200},
		"a large file": {1, int64(must.Short(t, 64<<20, 1<<30))},
	} {
		for storage, open := range map[string]func(*testing.T) *storage{
			"folder": func(t *testing.T) *storage { return inFolder(t) }, "versitygw": versity,
		} {
			t.Run(what+" in "+storage, func(t *testing.T) {
				s := open(t)
				peak := memoryOf(func() { moveThrough(t, s, port.files, port.bytes) })
				t.Logf("%.1f MB of memory", float64(peak)/1e6)
				if limit := uint64(64<<20 + 2000*port.files); peak > limit {
					t.Errorf("got %d bytes of memory, want at most %d", peak, limit)
				}
			})
		}
	}
}

// The sizes of the product: 20,000 small files, and a sparse file of 15 GB.
func BenchmarkLargePorts(b *testing.B) {
	for what, port := range map[string]struct {
		files int
		bytes int64
	}{"files=20000": {20_000, 200}, "file=15GB": {1, 15e9}} {
		b.Run(what, func(b *testing.B) {
			for b.Loop() {
				for step, took := range moveThrough(b, inFolder(b), port.files, port.bytes) {
					b.ReportMetric(took.Seconds(), step+"-s")
				}
			}
		})
	}
}

// memoryOf returns the largest heap while f runs, above that before.
func memoryOf(f func()) uint64 {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	runtime.GC()
	before, done, most := heap(), make(chan struct{}), uint64(0)
	go func() {
		defer close(done)
		f()
	}()
	for {
		select {
		case <-done:
			return max(most, before) - before
		case <-time.After(5 * time.Millisecond):
			most = max(most, heap())
		}
	}
}

// moveThrough commits a port of sparse files on one machine, pushes it, and fetches it on another one. It returns the
// times.
func moveThrough(t testing.TB, s *storage, files int, bytes int64) map[string]time.Duration {
	took := map[string]time.Duration{}
	timed := func(step string, f func()) {
		started := time.Now()
		f()
		took[step] = time.Since(started)
	}
	a, b := s.machine(t), s.machine(t)
	g := must.Get(a.store.Begin(fmt.Sprintf("%064x", files)))(t)
	dir := must.Get(g.Dir("out"))(t)
	for i := range files {
		path := filepath.Join(dir, fmt.Sprintf("%d/%d", i/1000, i))
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.OK(t, os.WriteFile(path, fmt.Append(nil, i), 0o600))
		must.OK(t, os.Truncate(path, bytes))
	}
	var m *artifact.Manifest
	timed("commit", func() {
		large := artifact.Manifest{Kind: "toy", Address: "stage.toy.large"}
		m = must.Get(g.Commit(large, map[string]string{"out": "files"}))(t)
	})
	timed("lookup", func() { must.Get(a.store.Lookup(m.Key))(t) })
	timed("push", func() { must.OK(t, a.PushResult(t.Context(), m)) })
	timed("fetch", func() { must.Get(b.Fetch(t.Context(), m.Key, m.Ports()))(t) })
	return took
}
