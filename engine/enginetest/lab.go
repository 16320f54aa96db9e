package enginetest

import (
	"context"
	"errors"
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

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/remote"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

// Main is the TestMain of a package that uses Lab or Executor: its test binary also serves as the engine's
// binary. `node` runs a node, `engine` a whole experiment of toys. The tests share a ledger with no other run of the
// user.
func Main(m *testing.M) {
	switch {
	case len(os.Args) == 6 && os.Args[1] == "node":
		os.Exit(engine.NodeMain(os.Args[3], os.Args[5], ToyKinds(), os.Stderr, nil))
	case len(os.Args) == 4 && os.Args[1] == "engine":
		os.Exit(engineMain(os.Args[2], os.Args[3]))
	}
	dir, err := os.MkdirTemp("", "leases")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv("RCGRPO_LEASES", filepath.Join(dir, "new")) // an existing empty folder looks recently cleaned
	os.Setenv("GORACE", "atexit_sleep_ms=0")              // otherwise each process lingers for a second
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// engineMain plans and runs an experiment and prints the kind, address and text of each event.
func engineMain(path, store string) int {
	p, err := planToys(path, store)
	if err == nil {
		err = engine.Run(context.Background(), p, engine.Options{}, func(e runs.Event) {
			fmt.Println(e.Kind, e.Address, e.Text)
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// planToys loads an experiment of toys with the site file beside it and plans it.
func planToys(path, store string) (*plan.Plan, error) {
	dir := filepath.Dir(path)
	src := lang.Source{Path: path, Site: filepath.Join(dir, "site.hcl"), Env: []string{"HOME=" + dir}}
	x, diags := lang.Load(src, ToyKinds())
	if diags.HasErrors() {
		return nil, diags
	}
	s, err := artifact.Open(store)
	if err != nil {
		return nil, err
	}
	return plan.New(x, s, plan.Options{Remote: remote.Open(x.Site, s)})
}

// Lab is the folder of an experiment of toys, with its own store.
type Lab struct {
	*testing.T
	Dir, File, StoreDir string
}

// Site is the site file of a lab: 4 CPUs and 3 GPUs.
const Site = `
executor "local" {
  cpus = 4
  gpus = ["0", "1", "2"]
}
`

// NewLab creates a lab. When the test ends, the store must be sound and without leftovers.
func NewLab(t *testing.T) *Lab {
	t.Helper()
	dir := t.TempDir()
	l := &Lab{T: t, Dir: dir, File: filepath.Join(dir, "x.hcl"), StoreDir: filepath.Join(dir, "store")}
	l.Put("site.hcl", Site)
	t.Cleanup(func() {
		problems, err := l.Store().Check()
		if err != nil || len(problems) > 0 {
			t.Errorf("store at the end: got %v, %v, want no problems", problems, err)
		}
		l.Tidy()
		for _, folder := range []string{"staging", "locks", "claims"} {
			if left, _ := os.ReadDir(filepath.Join(l.StoreDir, folder)); len(left) > 0 {
				t.Errorf("left in %s: %v", folder, left)
			}
		}
	})
	return l
}

// Put writes a file of the lab.
func (l *Lab) Put(name, text string) {
	l.Helper()
	must.OK(l, os.WriteFile(filepath.Join(l.Dir, name), []byte(text), 0o644))
}

// Write replaces the experiment's stages; $dir in the text is the lab's folder.
func (l *Lab) Write(stages string) {
	l.Helper()
	l.Put("x.hcl", "experiment {\n}\n"+strings.ReplaceAll(stages, "$dir", l.Dir))
}

// Read returns a file of the lab, or "" if it does not exist.
func (l *Lab) Read(name string) string {
	l.Helper()
	b, err := os.ReadFile(filepath.Join(l.Dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		l.Error(err)
	}
	return string(b)
}

func (l *Lab) Store() *artifact.Store {
	l.Helper()
	return must.Get(artifact.Open(l.StoreDir))(l)
}

func (l *Lab) Plan() *plan.Plan {
	l.Helper()
	return must.Get(planToys(l.File, l.StoreDir))(l)
}

// Planned returns the node of a short address in the current plan.
func (l *Lab) Planned(address string) *plan.Planned {
	l.Helper()
	for _, n := range l.Plan().Nodes {
		if lang.ShortAddress(n.Address) == address {
			return n
		}
	}
	l.Fatalf("no stage %s", address)
	return nil
}

// Tidy removes the leftovers of killed runs, as the next run would. It waits for processes that are about
// to end.
func (l *Lab) Tidy() {
	l.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		busy, err := l.Store().RemoveStale()
		if err != nil {
			l.Error(err)
		}
		if len(busy) == 0 || time.Now().After(deadline) {
			return
		}
	}
}

// Run plans and runs the experiment.
func (l *Lab) Run(o engine.Options) Outcome {
	l.Helper()
	return l.RunPlan(l.Context(), l.Plan(), o)
}

// RunPlan runs a plan; each of watch receives every event.
func (l *Lab) RunPlan(ctx context.Context, p *plan.Plan, o engine.Options, watch ...func(runs.Event)) Outcome {
	l.Helper()
	var r Outcome
	var mu sync.Mutex
	r.Err = engine.Run(ctx, p, o, func(e runs.Event) {
		mu.Lock()
		r.Events = append(r.Events, e)
		mu.Unlock()
		for _, w := range watch {
			w(e)
		}
	})
	return r
}

// MustRun is Run for an experiment without failures.
func (l *Lab) MustRun() Outcome {
	l.Helper()
	r := l.Run(engine.Options{})
	if r.Err != nil {
		l.Fatalf("run: %v\n%s", r.Err, r)
	}
	return r
}

// Start runs a plan in the background. The channel receives the outcome.
func (l *Lab) Start(ctx context.Context, p *plan.Plan, watch ...func(runs.Event)) <-chan Outcome {
	l.Helper()
	done := make(chan Outcome, 1)
	go func() { done <- l.RunPlan(ctx, p, engine.Options{}, watch...) }()
	return done
}

// Engine returns the command that runs the experiment in another process.
func (l *Lab) Engine() *exec.Cmd {
	l.Helper()
	cmd := exec.Command(must.Get(os.Executable())(l), "engine", l.File, l.StoreDir)
	cmd.Stderr = os.Stderr
	return cmd
}

// Digests maps "address.port" to the digest of every output; all nodes must have a result.
func (l *Lab) Digests() map[string]string {
	l.Helper()
	all := map[string]string{}
	for _, n := range l.Plan().Nodes {
		if n.Manifest == nil {
			l.Fatalf("%s has no result", n.Address)
		}
		for port, o := range n.Manifest.Outputs {
			all[n.Address+"."+port] = o.Digest
		}
	}
	return all
}

// Text returns the out.txt of a stage, by its short address.
func (l *Lab) Text(address string) string {
	l.Helper()
	m := l.Planned(address).Manifest
	if m == nil {
		l.Fatalf("%s has no result", address)
	}
	a := must.Get(l.Store().Open(m, "out"))(l)
	return string(must.Get(os.ReadFile(a.Path("out.txt")))(l))
}

// StageLog returns the newest log of a stage, and whether the stage may still write to it.
func (l *Lab) StageLog(address string) (path string, live bool, err error) {
	w, err := runs.NewWatch(l.Store(), "x", address, "")
	if err != nil {
		return "", false, err
	}
	standing, err := w.Poll()
	return w.Log, standing == runs.StageOpen, err
}

// Runs returns the statuses of the experiment's runs, newest first.
func (l *Lab) Runs() (all []*runs.Status) {
	l.Helper()
	for _, folder := range must.Get(runs.Folders(l.Store(), "x"))(l) {
		all = append(all, must.Get(runs.ReadStatus(l.Store(), folder))(l))
	}
	return all
}

// Starts returns the addresses of all starts of toys whose count is "$dir/count", sorted.
func (l *Lab) Starts() []string {
	var all []string
	for line := range strings.Lines(l.Read("count")) {
		all = append(all, strings.Fields(line)[0])
	}
	slices.Sort(all)
	return all
}

// Outcome contains the events of a run and its error.
type Outcome struct {
	Events []runs.Event
	Err    error
}

// Of returns the short addresses of the events of a kind, sorted.
func (r Outcome) Of(kind runs.EventKind) []string {
	var names []string
	for _, e := range r.Events {
		if e.Kind == kind {
			names = append(names, lang.ShortAddress(e.Address))
		}
	}
	slices.Sort(names)
	return names
}

// Find returns the first event of a kind and a short address; any address if that is "".
func (r Outcome) Find(kind runs.EventKind, address string) (runs.Event, bool) {
	for _, e := range r.Events {
		if e.Kind == kind && (address == "" || lang.ShortAddress(e.Address) == address) {
			return e, true
		}
	}
	return runs.Event{}, false
}

func (r Outcome) String() string {
	var b strings.Builder
	for _, e := range r.Events {
		fmt.Fprintln(&b, e.Kind, e.Address, e.Text, e.Failure)
	}
	return b.String()
}

// Want compares the short addresses of a kind of event.
func (l *Lab) Want(r Outcome, kind runs.EventKind, addresses ...string) {
	l.Helper()
	if got := r.Of(kind); !slices.Equal(got, addresses) {
		l.Errorf("%s: got %v, want %v\n%s", kind, got, addresses, r)
	}
}

// Gate stops toys until the test lets them pass.
type Gate struct {
	*Lab
	listener *net.UnixListener
}

// Visitor is a toy that waits at the gate.
type Visitor struct {
	net.Conn
	Address string
	PID     int
}

// Gate opens the gate of the toys whose setting is gate = "$dir/gate".
func (l *Lab) Gate() *Gate {
	l.Helper()
	listener := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(l.Dir, "gate"), Net: "unix"}))(l)
	l.Cleanup(func() { listener.Close() })
	return &Gate{l, listener}
}

// Next waits up to 90 seconds for a toy to arrive.
func (g *Gate) Next() Visitor {
	g.Helper()
	g.listener.SetDeadline(time.Now().Add(90 * time.Second))
	v := Visitor{Conn: must.Get(g.listener.Accept())(g)}
	must.Get(fmt.Fscan(v.Conn, &v.Address, &v.PID))(g)
	return v
}

// Pass lets the toy continue.
func (v Visitor) Pass() {
	fmt.Fprintln(v.Conn, "pass")
	v.Conn.Close()
}
