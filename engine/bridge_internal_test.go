package engine

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
)

// The internal tests cannot import enginetest, which imports the engine. The external tests fill in Bridge
// instead. This file goes when the last internal test that uses a lab has become external.
var Bridge struct {
	ToyKinds, PaperKinds func() lang.Registry
	NewLab               func(t *testing.T) (lab BridgeLab, dir, store string)
	Make                 func(t testing.TB, p *plan.Plan) []string
	NewStore             func(t testing.TB) *artifact.Store
}

// BridgeLab is the part of enginetest.Lab that internal tests use.
type BridgeLab interface {
	Put(name, text string)
	Write(stages string)
	Store() *artifact.Store
	Plan() *plan.Plan
	Tidy()
	Engine() *exec.Cmd
	Digests() map[string]string
	Text(address string) string
	Starts() []string
}

type lab struct {
	*testing.T
	b                   BridgeLab
	dir, file, storeDir string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	b, dir, store := Bridge.NewLab(t)
	return &lab{t, b, dir, filepath.Join(dir, "x.hcl"), store}
}

func (l *lab) put(name, text string)        { l.Helper(); l.b.Put(name, text) }
func (l *lab) write(stages string)          { l.Helper(); l.b.Write(stages) }
func (l *lab) store() *artifact.Store       { l.Helper(); return l.b.Store() }
func (l *lab) plan() *plan.Plan             { l.Helper(); return l.b.Plan() }
func (l *lab) tidy()                        { l.Helper(); l.b.Tidy() }
func (l *lab) engine() *exec.Cmd            { l.Helper(); return l.b.Engine() }
func (l *lab) digests() map[string]string   { l.Helper(); return l.b.Digests() }
func (l *lab) text(address string) string   { l.Helper(); return l.b.Text(address) }
func (l *lab) counted() []string            { l.Helper(); return l.b.Starts() }
func (l *lab) run(o Options) record         { l.Helper(); return l.runPlan(l.Context(), l.plan(), o) }
func toys() lang.Registry                   { return Bridge.ToyKinds() }
func newStore(t testing.TB) *artifact.Store { return Bridge.NewStore(t) }

func (l *lab) runPlan(ctx context.Context, p *plan.Plan, o Options) record {
	l.Helper()
	var r record
	var mu sync.Mutex
	r.err = Run(p, ctx, o, func(e runs.Event) {
		mu.Lock()
		defer mu.Unlock()
		r.events = append(r.events, e)
	})
	return r
}

func (l *lab) mustRun() record {
	l.Helper()
	r := l.run(Options{})
	if r.err != nil {
		l.Fatalf("run: %v\n%s", r.err, r.text())
	}
	return r
}

type record struct {
	events []runs.Event
	err    error
}

func (r record) find(kind runs.EventKind, address string) (runs.Event, bool) {
	for _, e := range r.events {
		if e.Kind == kind && (address == "" || lang.ShortAddress(e.Address) == address) {
			return e, true
		}
	}
	return runs.Event{}, false
}

func (r record) text() string {
	var b strings.Builder
	for _, e := range r.events {
		fmt.Fprintln(&b, e.Kind, e.Address, e.Text, e.Failure)
	}
	return b.String()
}

// want compares the short addresses of a kind of event.
func (l *lab) want(r record, kind runs.EventKind, names ...string) {
	l.Helper()
	var got []string
	for _, e := range r.events {
		if e.Kind == kind {
			got = append(got, lang.ShortAddress(e.Address))
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, names) {
		l.Errorf("%s: got %v, want %v\n%s", kind, got, names, r.text())
	}
}

type gate struct {
	t *testing.T
	l *net.UnixListener
}

type visitor struct {
	net.Conn
	address string
	pid     int
}

func (l *lab) gate() *gate {
	l.Helper()
	listener, err := net.Listen("unix", filepath.Join(l.dir, "gate"))
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { listener.Close() })
	return &gate{l.T, listener.(*net.UnixListener)}
}

func (g *gate) next() visitor {
	g.t.Helper()
	g.l.SetDeadline(time.Now().Add(30 * time.Second))
	conn, err := g.l.Accept()
	if err != nil {
		g.t.Fatalf("no stage came to the gate: %v", err)
	}
	v := visitor{Conn: conn}
	if _, err := fmt.Fscan(conn, &v.address, &v.pid); err != nil {
		g.t.Fatal(err)
	}
	return v
}

func (v visitor) pass() {
	fmt.Fprintln(v.Conn, "pass")
	v.Conn.Close()
}

// perform commits content for every node of the plan that has no result.
func perform(t *testing.T, p *plan.Plan, _ func()) []string { return Bridge.Make(t, p) }

func changing() {}

func planOf(t *testing.T, text string, store *artifact.Store, o plan.Options) *plan.Plan {
	t.Helper()
	p, err := plan.New(mustLoad(t, text), store, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustLoad(t *testing.T, text string) *lang.Experiment {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.hcl")
	writeFile(t, path, text)
	writeFile(t, filepath.Join(filepath.Dir(path), "raw.csv"), "1\n2\n")
	x, diags := lang.Load(lang.Source{Path: path}, Bridge.PaperKinds())
	if diags.HasErrors() {
		t.Fatalf("load: %s\n%s", diags, text)
	}
	return x
}

func sourceOf(path string) lang.Source { return lang.Source{Path: path, Vars: map[string]string{}} }

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

const labSite = "executor \"local\" {\n  cpus = 4\n  gpus = [\"0\", \"1\", \"2\"]\n}\n"

const faultyRun = `
stage "light" "a" {
  text  = "a"
  shell = "true"
}
stage "light" "b" {
  from = [stage.light.a.out]
  text = "b"
}
stage "page" "c" {
  from = [stage.light.b.out]
}
`
