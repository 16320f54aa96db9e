package enginetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

// Executor is the suite that every executor must pass: success, failure text, cancel, kill, restart. x is
// nil for the local executor. The package's TestMain must call Main.
func Executor(t *testing.T, x engine.Executor) {
	t.Setenv("RCGRPO_LEASES", filepath.Join(t.TempDir(), "leases")) // runs of other tests must not interfere
	for name, test := range map[string]func(*suite){
		"success is committed, with its progress and its log": func(s *suite) {
			r := s.run(`shell = "echo output of the stage"`)
			s.wantResult(r)
			if e, ok := r.Find(runs.EventProgress, "toy.a"); !ok || e.Done != 1 {
				s.Errorf("got events %v, want the progress", r)
			}
			s.wantLog(r, "output of the stage")
		},
		"a failure carries the stage's error and cause": func(s *suite) {
			r := s.run(`fail = "the loss is not a number"`, `cause = "nan"`)
			s.wantFailure(r, lang.CauseNaN, "the loss is not a number")
		},
		"a killed process is distinguished from a failure of the stage": func(s *suite) {
			s.wantFailure(s.run(`die = true`), lang.CauseKilled, "killed")
		},
		"a cancelled stage stops soon and leaves no partial result": (*suite).cancel,
		"a restarted stage finds its scratch folder": func(s *suite) {
			s.cancel()
			s.run(`die = true`)
			r := s.run()
			s.wantResult(r)
			s.wantLog(r, "resumed from 1")
			if e, started := s.run().Find(runs.EventStarted, ""); started {
				s.Errorf("got %v, want no start, since the result is up to date", e)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { test(&suite{NewLab(t), x}) })
	}
}

// suite is an experiment with one toy.
type suite struct {
	*Lab
	executor engine.Executor
}

// start runs the toy with settings that its key ignores.
func (s *suite) start(ctx context.Context, watch func(runs.Event), settings ...string) Outcome {
	s.Helper()
	s.Write("stage \"toy\" \"a\" {\n  text = \"made\"\n  " + strings.Join(settings, "\n  ") + "\n}\n")
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return s.RunPlan(ctx, s.Plan(), engine.Options{Executor: s.executor}, watch)
}

// run is start without an interruption.
func (s *suite) run(settings ...string) Outcome {
	s.Helper()
	r := s.start(s.Context(), func(runs.Event) {}, settings...)
	if errors.Is(r.Err, engine.ErrInterrupted) {
		s.Fatal("the stage did not end within a minute")
	}
	return r
}

// cancel interrupts the toy at its gate.
func (s *suite) cancel() {
	s.Helper()
	s.Gate()
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	r := s.start(ctx, func(e runs.Event) {
		if e.Kind == runs.EventProgress {
			cancel()
		}
	}, `gate = "$dir/gate"`)
	if !errors.Is(r.Err, engine.ErrInterrupted) {
		s.Errorf("got %v, want ErrInterrupted", r.Err)
	}
	s.wantNoResult()
}

// wantResult checks the committed output and that the commit removed the scratch folder.
func (s *suite) wantResult(r Outcome) {
	s.Helper()
	if r.Err != nil {
		s.Fatalf("run: %v\n%s", r.Err, r)
	}
	if got := s.Text("toy.a"); got != "made\n" {
		s.Errorf("output: got %q, want the text", got)
	}
	if _, err := os.Stat(s.Store().Work(s.Planned("toy.a").Key)); !errors.Is(err, os.ErrNotExist) {
		s.Errorf("scratch folder: got %v, want none after the commit", err)
	}
}

func (s *suite) wantLog(r Outcome, want string) {
	s.Helper()
	started, _ := r.Find(runs.EventStarted, "toy.a")
	must.Contain(s, string(must.Get(os.ReadFile(started.Path))(s)), want)
}

func (s *suite) wantFailure(r Outcome, cause, text string) {
	s.Helper()
	failed, ok := r.Find(runs.EventFailed, "toy.a")
	if !ok || failed.Failure.Cause != cause || !strings.Contains(failed.Failure.Text, text) {
		s.Errorf("got %v\n%s, want a failure %q with cause %q", r.Err, r, text, cause)
	}
	s.wantNoResult()
}

// wantNoResult checks that no result is committed and that the scratch folder remains for the next start.
func (s *suite) wantNoResult() {
	s.Helper()
	n := s.Planned("toy.a")
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
