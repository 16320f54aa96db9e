package engine

import (
	"bufio"
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

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/artifact"
)

// toy is a stage for tests: it writes its text and the contents of its inputs. The file Count gets a line per
// run. At a Gate (a Unix socket) the stage waits for the test.
type toy struct {
	From  []artifact.Ref  `hcl:"from,optional" port:"files"`
	Data  []artifact.File `hcl:"data,optional"`
	Text  string          `hcl:"text,optional"`
	Note  string          `hcl:"note,optional"` // in the key, not in the output
	Draw  bool            `hcl:"draw,optional"`
	Count string          `hcl:"count,optional" key:"-"`
	Gate  string          `hcl:"gate,optional" key:"-"`
	Fail  string          `hcl:"fail,optional" key:"-"`  // error, after a line in the log
	Cause string          `hcl:"cause,optional" key:"-"` // of that error
	Until int             `hcl:"until,optional" key:"-"` // it fails below this attempt only
	Panic bool            `hcl:"panic,optional" key:"-"`
	Shell string          `hcl:"shell,optional" key:"-"` // script that runs first
	Takes bool            `hcl:"takes,optional"`         // its output is the folder made/ of that script
}

func (t *toy) Check() hcl.Diagnostics { return nil }

func (t *toy) Run(ctx context.Context, job *Job) error {
	if err := t.count(job); err != nil {
		return err
	}
	if t.Takes && !job.Adopted() {
		if err := os.RemoveAll(filepath.Join(job.Dir, "made")); err != nil { // of an earlier attempt
			return err
		}
	}
	if t.Shell != "" {
		if err := job.Execute(ctx, Program{Args: []string{"sh", "-c", t.Shell}, Dir: job.Dir,
			Env: []string{"PATH=" + os.Getenv("PATH"), "lab=" + os.Getenv("LAB")}}); err != nil {
			return err
		}
	}
	if t.Takes {
		return job.Take("out", filepath.Join(job.Dir, "made"))
	}
	dir, err := job.Create("out")
	if err != nil {
		return err
	}
	// Half of the output exists at the gate, so that a kill leaves a partial result.
	path := filepath.Join(dir, "out.txt")
	if err := os.WriteFile(path, []byte("half"), 0o644); err != nil {
		return err
	}
	job.Progress(1, 2, "halves", Value{"size", 4})
	resumed := ""
	if b, err := os.ReadFile(filepath.Join(job.Dir, "checkpoint")); err == nil {
		resumed = string(b)
		job.Logf("resumed from %s", resumed)
	}
	if t.Gate != "" {
		if err := t.wait(ctx, job); err != nil {
			return errors.Join(err, os.WriteFile(filepath.Join(job.Dir, "checkpoint"), []byte("1"), 0o644))
		}
	}
	if t.Panic {
		panic("a mistake in a kind")
	}
	if t.Fail != "" && (t.Until == 0 || job.Attempt < t.Until) {
		job.Logf("about to fail")
		return WithCause(t.Cause, errors.New(t.Fail))
	}
	lines := []string{t.Text}
	if t.Draw {
		lines = append(lines, fmt.Sprint(job.Rand("toy").Uint64()))
	}
	for _, ref := range t.From {
		a, err := job.Open(ref)
		var missing *MissingError
		if errors.As(err, &missing) {
			lines = append(lines, missing.Error())
			continue
		}
		if err != nil {
			return err
		}
		b, err := os.ReadFile(a.Path("out.txt"))
		if err != nil {
			return err
		}
		lines = append(lines, strings.TrimSpace(string(b)))
	}
	job.Progress(2, 2, "halves")
	if err := os.WriteFile(filepath.Join(dir, "times.txt"), []byte(time.Now().String()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}

func (t *toy) count(job *Job) error {
	if t.Count == "" || job.Adopted() { // counted at the start of its program
		return nil
	}
	f, err := os.OpenFile(t.Count, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s threads=%d gpus=%s\n", job.Address, job.Threads, os.Getenv("CUDA_VISIBLE_DEVICES"))
	return errors.Join(err, f.Close())
}

// wait reports its address and process to the gate and waits for an answer.
func (t *toy) wait(ctx context.Context, job *Job) error {
	conn, err := net.Dial("unix", t.Gate)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	fmt.Fprintln(conn, job.Address, os.Getpid())
	word, err := bufio.NewReader(conn).ReadString('\n')
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("at the gate: %w", err)
	}
	job.Logf("the gate says %s", word)
	return nil
}

// page is a toy that runs after failures and publishes its output.
type page struct{ toy }

func (p *page) Run(ctx context.Context, job *Job) error {
	if err := p.toy.Run(ctx, job); err != nil {
		return err
	}
	return job.Publish("out", "out.txt", "page.txt")
}

func toyOutputs(Stage) map[string]string { return map[string]string{"out": "files"} }

func drawsToy(s Stage) bool {
	t, ok := s.(*toy)
	return ok && t.Draw
}

// toys are a kind with its own process, one in the engine's process, and one that runs after failures.
func toys() Registry {
	return Registry{
		{Name: "toy", Summary: "runs in its own process", Version: 1, New: func() Stage { return &toy{} }, Outputs: toyOutputs, Stochastic: drawsToy, MultiGPU: true},
		{Name: "light", Summary: "runs in place", Version: 1, New: func() Stage { return &toy{} }, Outputs: toyOutputs, Stochastic: drawsToy, InProcess: true},
		{Name: "page", Summary: "runs always", Version: 1, New: func() Stage { return &page{} }, Outputs: toyOutputs, AfterFailures: true, AcrossSeeds: true, InProcess: true},
	}
}

// TestMain lets the test binary be the engine's binary: `node` runs a node, `engine` a whole experiment.
func TestMain(m *testing.M) {
	if len(os.Args) == 6 && os.Args[1] == "node" {
		os.Exit(NodeMain(os.Args[3], os.Args[5], toys(), os.Stderr, func(Event) {}))
	}
	if len(os.Args) == 4 && os.Args[1] == "engine" {
		os.Exit(engineMain(os.Args[2], os.Args[3]))
	}
	if len(os.Args) == 2 && os.Args[1] == "headless" {
		headlessMain()
	}
	// Other tests have other ledgers. Children inherit this.
	leases, err := os.MkdirTemp("", "leases")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv(leasesVariable, filepath.Join(leases, "new")) // an existing empty folder would count as emptied
	// Under the race detector a process otherwise stays for a second after its end.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	code := m.Run()
	os.RemoveAll(leases)
	os.Exit(code)
}

// engineMain plans and runs an experiment and prints its events.
func engineMain(path, store string) int {
	p, err := planToys(path, store)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	err = p.Run(context.Background(), RunOptions{}, func(e Event) { fmt.Println(e.Kind, e.Address, e.Text) })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func planToys(path, store string) (*Plan, error) {
	x, diags := Load(Source{Path: path, Site: filepath.Join(filepath.Dir(path), "site.hcl"),
		Env: []string{"HOME=" + filepath.Dir(path)}}, toys())
	if diags.HasErrors() {
		return nil, diags
	}
	s, err := artifact.Open(store)
	if err != nil {
		return nil, err
	}
	return NewPlan(x, s, PlanOptions{})
}

// lab is an experiment's folder with a store beside it.
type lab struct {
	*testing.T
	dir, file, storeDir string
}

const labSite = `
executor "local" {
  cpus = 4
  gpus = ["0", "1", "2"]
}
`

// newLab makes a folder for experiments of toys; at the end of the test its store must be sound.
func newLab(t *testing.T) *lab {
	t.Helper()
	dir := t.TempDir()
	l := &lab{T: t, dir: dir, file: filepath.Join(dir, "x.hcl"), storeDir: filepath.Join(dir, "store")}
	l.put("site.hcl", labSite)
	t.Cleanup(func() {
		problems, err := l.store().Check()
		if err != nil || len(problems) > 0 {
			t.Errorf("the store at the end: got %v, %v, want a sound one", problems, err)
		}
		l.tidy() // a run leaves this to the next
		for _, folder := range []string{"staging", "locks", "users"} {
			left, _ := os.ReadDir(filepath.Join(l.storeDir, folder))
			left = slices.DeleteFunc(left, func(e os.DirEntry) bool { return e.Name() == "store" })
			if len(left) > 0 {
				t.Errorf("left in %s: %v", folder, left)
			}
		}
	})
	return l
}

func (l *lab) put(name, text string) {
	l.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o644); err != nil {
		l.Fatal(err)
	}
}

// tidy removes stale files, as the next run does, and waits for processes that are about to end.
func (l *lab) tidy() {
	l.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		busy, err := l.store().RemoveStale()
		if err != nil {
			l.Error(err)
		}
		if len(busy) == 0 || time.Now().After(deadline) {
			return
		}
	}
}

// collecting runs gc with a limit again and again until end, which returns how often gc removed something.
// refused allows gc to be refused.
func (l *lab) collecting(limit int64, refused bool) (end func() int) {
	store, over, collected := l.store(), make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-over:
				collected <- n
				return
			case <-time.After(time.Millisecond):
			}
			plan, err := store.Collect(limit)
			if err != nil && !(refused && errors.Is(err, artifact.ErrBusy)) {
				l.Errorf("gc: %v", err)
			}
			if len(plan) > 0 {
				n++
			}
		}
	}()
	return func() int {
		close(over)
		return <-collected
	}
}

// write sets the experiment's stages; $dir in them is the lab's folder.
func (l *lab) write(stages string) {
	l.Helper()
	l.put("x.hcl", "experiment {\n}\n"+strings.ReplaceAll(stages, "$dir", l.dir))
}

func (l *lab) store() *artifact.Store {
	l.Helper()
	s, err := artifact.Open(l.storeDir)
	if err != nil {
		l.Fatal(err)
	}
	return s
}

func (l *lab) plan() *Plan {
	l.Helper()
	p, err := planToys(l.file, l.storeDir)
	if err != nil {
		l.Fatal(err)
	}
	return p
}

// record of a run: its events and its error.
type record struct {
	events []Event
	err    error
}

// run plans and runs the experiment.
func (l *lab) run(o RunOptions) record {
	l.Helper()
	return l.runPlan(l.Context(), l.plan(), o)
}

func (l *lab) runPlan(ctx context.Context, p *Plan, o RunOptions) record {
	l.Helper()
	var r record
	var mu sync.Mutex
	r.err = p.Run(ctx, o, func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		r.events = append(r.events, e)
	})
	return r
}

// mustRun is run without failures.
func (l *lab) mustRun() record {
	l.Helper()
	r := l.run(RunOptions{})
	if r.err != nil {
		l.Fatalf("run: %v\n%s", r.err, r.text())
	}
	return r
}

// of returns the short addresses of the events of a kind, sorted.
func (r record) of(kind EventKind) []string {
	var names []string
	for _, e := range r.events {
		if e.Kind == kind {
			names = append(names, ShortAddress(e.Address))
		}
	}
	slices.Sort(names)
	return names
}

func (r record) find(kind EventKind, address string) (Event, bool) {
	for _, e := range r.events {
		if e.Kind == kind && (ShortAddress(e.Address) == address || address == "") {
			return e, true
		}
	}
	return Event{}, false
}

func (r record) text() string {
	var b strings.Builder
	for _, e := range r.events {
		fmt.Fprintln(&b, e.Kind, e.Address, e.Text, e.Failure)
	}
	return b.String()
}

// want compares the addresses of a kind of event.
func (l *lab) want(r record, kind EventKind, names ...string) {
	l.Helper()
	if got := r.of(kind); !slices.Equal(got, names) {
		l.Errorf("%s: got %v, want %v\n%s", kind, got, names, r.text())
	}
}

// digests of every node's ports, by address.
func (l *lab) digests() map[string]string {
	l.Helper()
	all := map[string]string{}
	for _, n := range l.plan().Nodes {
		if n.Manifest == nil {
			l.Fatalf("%s has no result", n.Address)
		}
		for port, o := range n.Manifest.Outputs {
			all[n.Address+"."+port] = o.Digest
		}
	}
	return all
}

// text is the output of a node.
func (l *lab) text(address string) string {
	l.Helper()
	for _, n := range l.plan().Nodes {
		if ShortAddress(n.Address) == address && n.Manifest != nil {
			a, err := l.store().Open(n.Manifest, "out")
			if err != nil {
				l.Fatal(err)
			}
			b, err := os.ReadFile(a.Path("out.txt"))
			if err != nil {
				l.Fatal(err)
			}
			return string(b)
		}
	}
	l.Fatalf("%s has no result", address)
	return ""
}

// counted returns the lines of the file that toys count in, sorted.
func (l *lab) counted() []string {
	b, _ := os.ReadFile(filepath.Join(l.dir, "count"))
	lines := strings.Fields(strings.ReplaceAll(string(b), " threads", "\nthreads"))
	lines = slices.DeleteFunc(lines, func(s string) bool { return !strings.HasPrefix(s, "stage.") })
	slices.Sort(lines)
	return lines
}

// gate is the socket where toys wait for the test.
type gate struct {
	t    *testing.T
	l    net.Listener
	wait time.Duration
}

// visitor is a toy at the gate.
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
	return &gate{l.T, listener, 30 * time.Second}
}

// next waits for a toy to arrive.
func (g *gate) next() visitor {
	g.t.Helper()
	g.l.(*net.UnixListener).SetDeadline(time.Now().Add(g.wait))
	conn, err := g.l.Accept()
	if err != nil {
		g.t.Fatalf("nobody came to the gate: %v", err)
	}
	v := visitor{Conn: conn}
	if _, err := fmt.Fscan(conn, &v.address, &v.pid); err != nil {
		g.t.Fatal(err)
	}
	return v
}

// pass ends the wait of the toy.
func (v visitor) pass() {
	fmt.Fprintln(v.Conn, "go")
	v.Conn.Close()
}

// engine returns the command of an engine in its own process.
func (l *lab) engine() *exec.Cmd {
	l.Helper()
	self, err := os.Executable()
	if err != nil {
		l.Fatal(err)
	}
	cmd := exec.Command(self, "engine", l.file, l.storeDir)
	cmd.Stderr = os.Stderr
	return cmd
}
