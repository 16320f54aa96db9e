package enginetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
)

var actKind = &lang.Kind{Name: "act", Summary: "Ends as its script demands.", Version: 1,
	New: func() lang.Stage { return &act{} }, Outputs: FilesOut}

// act ends as the file Script demands: "well", "fail", "die" (by SIGKILL), or "wait" for the end of its
// context. It counts its starts in its scratch folder, where a training would save checkpoints.
type act struct {
	Script string `hcl:"script" key:"-"`
}

func (a *act) Check() hcl.Diagnostics { return nil }

func (a *act) Run(ctx context.Context, job *engine.Job) error {
	starts := filepath.Join(job.Dir, "starts")
	before, err := os.ReadFile(starts)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	now := append(before, "start\n"...)
	dir, err := job.Create("out")
	if err != nil {
		return err
	}
	err = errors.Join(os.WriteFile(starts, now, 0o600), os.WriteFile(filepath.Join(dir, "out.txt"), now, 0o600))
	if err != nil {
		return err
	}
	script, err := os.ReadFile(a.Script)
	if err != nil {
		return err
	}
	job.Logf("the script demands %s", script)
	job.Progress(1, 1, "starts")
	switch string(script) {
	case "fail":
		return engine.WithCause(lang.CauseNaN, errors.New("the loss is not a number"))
	case "die":
		if os.Getenv("RCGRPO_CHILD") != "" {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return engine.WithCause(lang.CauseKilled, errors.New("its process was killed"))
	case "wait":
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return nil
}

// Executor is the suite that every executor must pass: success, failure text, cancel, kill, restart. x is
// nil for the local executor. The package's TestMain must call Main.
func Executor(t *testing.T, x engine.Executor) {
	t.Setenv("RCGRPO_LEASES", filepath.Join(t.TempDir(), "leases")) // runs of other tests must not interfere
	for name, test := range map[string]func(*suite){
		"success is committed, with its progress and its log": func(s *suite) {
			r := s.run("well")
			s.wantResult("start\n")
			progress := func(e runs.Event) bool { return e.Kind == runs.EventProgress && e.Done == 1 }
			if !slices.ContainsFunc(r.Events, progress) {
				s.Errorf("got events %v, want the progress", r)
			}
			started, _ := r.Find(runs.EventStarted, "act.a")
			log, err := os.ReadFile(started.Path)
			if err != nil || !strings.Contains(string(log), "the script demands well") {
				s.Errorf("log: got %q, %v, want the stage's output", log, err)
			}
		},
		"a failure carries the stage's error and cause": func(s *suite) {
			s.wantFailure(s.run("fail"), lang.CauseNaN, "the loss is not a number")
		},
		"a killed process is distinguished from a failure of the stage": func(s *suite) {
			s.wantFailure(s.run("die"), lang.CauseKilled, "killed")
		},
		"a cancelled stage stops soon and leaves no partial result": func(s *suite) {
			ctx, cancel := context.WithCancel(s.Context())
			defer cancel()
			r := s.start(ctx, "wait", func(e runs.Event) {
				if e.Kind == runs.EventProgress {
					cancel()
				}
			})
			if !errors.Is(r.Err, engine.ErrInterrupted) {
				s.Errorf("got %v, want ErrInterrupted", r.Err)
			}
			s.wantNoResult()
		},
		"a restarted stage finds its scratch folder": func(s *suite) {
			s.run("fail")
			s.run("die")
			s.run("well")
			s.wantResult("start\nstart\nstart\n")
			s.run("well") // up to date, so the stage does not start again
			s.wantResult("start\nstart\nstart\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &suite{NewLab(t), x}
			s.Write("stage \"act\" \"a\" {\n  script = \"$dir/script\"\n}\n")
			test(s)
		})
	}
}

// suite is an experiment with one act.
type suite struct {
	*Lab
	executor engine.Executor
}

func (s *suite) start(ctx context.Context, script string, watch ...func(runs.Event)) Record {
	s.Helper()
	s.Put("script", script)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return s.RunPlan(ctx, s.Plan(), engine.Options{Executor: s.executor}, watch...)
}

// run is start without an interruption.
func (s *suite) run(script string) Record {
	s.Helper()
	r := s.start(s.Context(), script)
	if errors.Is(r.Err, engine.ErrInterrupted) {
		s.Fatal("the stage did not end within a minute")
	}
	return r
}

// wantResult checks the committed output and that the commit removed the scratch folder.
func (s *suite) wantResult(want string) {
	s.Helper()
	if got := s.Text("act.a"); got != want {
		s.Errorf("output: got %q, want %q", got, want)
	}
	if _, err := os.Stat(s.Store().Work(s.Planned("act.a").Key)); !errors.Is(err, os.ErrNotExist) {
		s.Errorf("scratch folder: got %v, want none after the commit", err)
	}
}

func (s *suite) wantFailure(r Record, cause, text string) {
	s.Helper()
	failed, ok := r.Find(runs.EventFailed, "act.a")
	if !ok || failed.Failure.Cause != cause || !strings.Contains(failed.Failure.Text, text) {
		s.Errorf("got %v\n%s, want a failure %q with cause %q", r.Err, r, text, cause)
	}
	s.wantNoResult()
}

// wantNoResult checks that no result is committed and that the scratch folder remains for the next start.
func (s *suite) wantNoResult() {
	s.Helper()
	n := s.Planned("act.a")
	if n.Verb != plan.MustRun {
		s.Errorf("got %s, want no result", n.Verb)
	}
	if left, _ := os.ReadDir(filepath.Join(s.StoreDir, "staging")); len(left) > 0 {
		s.Errorf("left in staging: %v", left)
	}
	if _, err := os.Stat(s.Store().Work(n.Key)); err != nil {
		s.Errorf("scratch folder: got %v, want it for the next start", err)
	}
}
