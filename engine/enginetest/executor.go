// Package enginetest is for the tests of packages around the engine: Executor is the suite that every executor must
// pass, Load reads a few stages as a file would give them.
package enginetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
)

// Main is TestMain of a package that runs the suite: the test binary can then run a node in a process of its own.
func Main(m *testing.M) {
	if len(os.Args) == 6 && os.Args[1] == "node" {
		os.Exit(engine.NodeMain(os.Args[3], os.Args[5], kinds, os.Stderr, func(engine.Event) {}))
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // a process otherwise lingers for a second under the race detector
	os.Exit(m.Run())
}

var kinds = engine.Registry{{Name: "act", Summary: "Ends as its settings say.", Version: 1,
	New: func() engine.Stage { return &act{} }, Outputs: func(engine.Stage) map[string]string { return map[string]string{"out": "files"} }}}

// act is a stage that ends as the file Script says when it comes to its end: "well", "fail", "die", or "wait" for its
// context. It counts its starts in its scratch folder, as a training keeps its checkpoints there.
type act struct {
	Script string `hcl:"script" key:"-"`
}

func (a *act) Check() hcl.Diagnostics { return nil }

func (a *act) Run(ctx context.Context, job *engine.Job) error {
	starts, err := os.OpenFile(filepath.Join(job.Dir, "starts"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer starts.Close()
	if _, err := starts.WriteString("start\n"); err != nil {
		return err
	}
	before, err := os.ReadFile(starts.Name())
	if err != nil {
		return err
	}
	dir, err := job.Create("out")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "out.txt"), before, 0o600); err != nil {
		return err
	}
	script, err := os.ReadFile(a.Script)
	if err != nil {
		return err
	}
	job.Logf("the script says %s", script)
	job.Progress(1, 1, "starts")
	switch string(script) {
	case "fail":
		return engine.WithCause(engine.CauseNaN, errors.New("the loss is not a number"))
	case "die":
		if os.Getenv("RCGRPO_CHILD") != "" {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return engine.WithCause(engine.CauseKilled, errors.New("its process was killed"))
	case "wait":
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return nil
}

// Executor runs the suite: success, failure text, cancel, kill, restart. x is nil for the executor of this machine; one
// that has no processes of its own performs nodes in this one. The package's TestMain must be Main.
func Executor(t *testing.T, x engine.Executor) {
	t.Setenv("RCGRPO_LEASES", filepath.Join(t.TempDir(), "leases")) // runs of other tests are none of ours
	t.Run("success is committed, with its progress and its log", func(t *testing.T) {
		s := newStage(t, x)
		s.run(t, "well")
		s.wantResult(t, "start\n")
		if !slices.ContainsFunc(s.events, func(e engine.Event) bool { return e.Kind == engine.EventProgress && e.Done == 1 }) {
			t.Errorf("events: got %v, want the progress", s.events)
		}
		if log := s.log(t); !strings.Contains(log, "the script says well") {
			t.Errorf("log: got %q, want what the stage wrote", log)
		}
	})
	t.Run("a failure comes with the stage's words and cause", func(t *testing.T) {
		s := newStage(t, x)
		s.run(t, "fail")
		s.wantFailure(t, engine.CauseNaN, "the loss is not a number")
		s.wantNothing(t)
	})
	t.Run("a killed process is told from a failure of the stage", func(t *testing.T) {
		s := newStage(t, x)
		s.run(t, "die")
		s.wantFailure(t, engine.CauseKilled, "killed")
		s.wantNothing(t)
	})
	t.Run("cancelled, it stops soon and leaves nothing half-made", func(t *testing.T) {
		s := newStage(t, x)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s.on(engine.EventProgress, cancel)
		if err := s.start(ctx, t, "wait"); !errors.Is(err, engine.ErrInterrupted) {
			t.Errorf("got %v, want ErrInterrupted", err)
		}
		s.wantNothing(t)
	})
	t.Run("started again, it finds its scratch folder", func(t *testing.T) {
		s := newStage(t, x)
		for _, script := range []string{"fail", "die", "well"} {
			s.run(t, script)
		}
		s.wantResult(t, "start\nstart\nstart\n")
		s.run(t, "well")
		s.wantResult(t, "start\nstart\nstart\n") // up to date: not started any more
	})
}

// stage is one experiment of one act.
type stage struct {
	executor engine.Executor
	dir      string
	mu       sync.Mutex
	events   []engine.Event // of the last run
	hooks    map[engine.EventKind]func()
	err      error
}

func newStage(t *testing.T, x engine.Executor) *stage {
	t.Helper()
	s := &stage{executor: x, dir: t.TempDir(), hooks: map[engine.EventKind]func(){}}
	text := "experiment {}\nstage \"act\" \"a\" {\n  script = \"" + filepath.Join(s.dir, "script") + "\"\n}\n"
	if err := os.WriteFile(filepath.Join(s.dir, "x.hcl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// on calls f at the first event of a kind.
func (s *stage) on(kind engine.EventKind, f func()) { s.hooks[kind] = sync.OnceFunc(f) }

func (s *stage) plan(t *testing.T) *engine.Plan {
	t.Helper()
	x, diags := engine.Load(engine.Source{Path: filepath.Join(s.dir, "x.hcl"), Env: []string{"HOME=" + s.dir}}, kinds)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	store, err := artifact.Open(filepath.Join(s.dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := engine.NewPlan(x, store, engine.PlanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// start runs the experiment once and returns the run's error.
func (s *stage) start(ctx context.Context, t *testing.T, script string) error {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "script"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the stage has not ended for a minute"))
	defer cancel()
	s.events = nil
	s.err = s.plan(t).Run(ctx, engine.RunOptions{Executor: s.executor}, func(e engine.Event) {
		s.mu.Lock()
		s.events = append(s.events, e)
		s.mu.Unlock()
		if hook := s.hooks[e.Kind]; hook != nil {
			hook()
		}
	})
	return s.err
}

// run is start where nothing interrupts it.
func (s *stage) run(t *testing.T, script string) {
	t.Helper()
	if err := s.start(t.Context(), t, script); errors.Is(err, engine.ErrInterrupted) {
		t.Fatal("the stage has not ended for a minute")
	}
}

func (s *stage) log(t *testing.T) string {
	t.Helper()
	for _, e := range s.events {
		if e.Kind == engine.EventStarted {
			b, err := os.ReadFile(e.Path)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
	}
	t.Fatal("it was not started")
	return ""
}

// wantResult compares the committed output.
func (s *stage) wantResult(t *testing.T, want string) {
	t.Helper()
	if s.err != nil {
		t.Fatalf("run: %v", s.err)
	}
	p := s.plan(t)
	m := p.Nodes[0].Manifest
	if m == nil || p.Nodes[0].Verb != engine.UpToDate {
		t.Fatalf("got %s, want a committed result", p.Nodes[0].Verb)
	}
	out, err := p.Store.Open(m, "out")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(out.Path("out.txt")); err != nil || string(b) != want {
		t.Errorf("output: got %q, %v, want %q", b, err, want)
	}
	if _, err := os.Stat(p.Store.Work(m.Key)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("scratch folder: got %v, want that it went with the commit", err)
	}
}

func (s *stage) wantFailure(t *testing.T, cause, text string) {
	t.Helper()
	for _, e := range s.events {
		if e.Kind == engine.EventFailed {
			if e.Failure.Cause != cause || !strings.Contains(e.Failure.Text, text) {
				t.Errorf("got %+v, want %q with cause %q", e.Failure, text, cause)
			}
			return
		}
	}
	t.Errorf("got %v after %v, want a failure", s.err, s.events)
}

// wantNothing says that no result stands under the key and that the scratch folder is still there.
func (s *stage) wantNothing(t *testing.T) {
	t.Helper()
	p := s.plan(t)
	if p.Nodes[0].Verb != engine.MustRun {
		t.Errorf("got %s, want no result", p.Nodes[0].Verb)
	}
	if left, _ := os.ReadDir(filepath.Join(p.Store.Dir(), "staging")); len(left) > 0 {
		t.Errorf("left in staging: %v", left)
	}
	if _, err := os.Stat(p.Store.Work(p.Nodes[0].Key)); err != nil {
		t.Errorf("scratch folder: %v, want it for the next start", err)
	}
}
