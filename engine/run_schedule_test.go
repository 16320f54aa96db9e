package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rcgrpo/engine/artifact"
)

// script is an executor that executes nothing: each node waits until the test ends it.
type script struct {
	mu      sync.Mutex
	inside  []Work
	arrived chan Work
	leave   map[string]chan error
}

func newScript() *script {
	return &script{arrived: make(chan Work), leave: map[string]chan error{}}
}

func (s *script) Execute(ctx context.Context, w Work, observe func(Event)) error {
	name := ShortAddress(w.Node.Address)
	leave := make(chan error)
	s.mu.Lock()
	s.inside = append(s.inside, w)
	s.leave[name] = leave
	s.mu.Unlock()
	s.arrived <- w
	err := <-leave
	s.mu.Lock()
	s.inside = slices.DeleteFunc(s.inside, func(o Work) bool { return o.Node == w.Node })
	s.mu.Unlock()
	if err != nil {
		return err
	}
	g, err := w.start.store.Begin(w.Key)
	if err != nil {
		return err
	}
	dir, err := g.Dir("out")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "out.txt"), []byte(name), 0o644); err != nil {
		return err
	}
	c, err := g.Commit(artifact.Manifest{Experiment: "x", Address: w.Node.Address}, w.Node.Outputs)
	if err != nil {
		return err
	}
	return w.start.store.Flush(c)
}

// next waits for n more nodes to start and returns their names, sorted.
func (s *script) next(n int) []string {
	var names []string
	for range n {
		w := <-s.arrived
		names = append(names, ShortAddress(w.Node.Address))
	}
	slices.Sort(names)
	return names
}

func (s *script) end(name string, err error) {
	s.mu.Lock()
	leave := s.leave[name]
	s.mu.Unlock()
	leave <- err
}

// occupied returns the reserved GPU ids and CPUs, and reports an id that is reserved twice.
func (s *script) occupied(t *testing.T) (gpus []string, cpus int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.inside {
		for _, id := range w.GPUs {
			if slices.Contains(gpus, id) {
				t.Errorf("GPU %s is in use twice", id)
			}
			gpus = append(gpus, id)
		}
		cpus += w.CPUs
	}
	return gpus, cpus
}

func TestLongestExpectedPathStartsFirstWithinTheSlots(t *testing.T) {
	l := newLab(t)
	l.put("site.hcl", "executor \"local\" {\n cpus = 2\n gpus = []\n}\n")
	l.write(`
stage "toy" "short" {
  text = "1"
}
stage "toy" "medium" {
  text = "2"
}
stage "toy" "head" {
  text = "3"
}
stage "toy" "tail" {
  from = [stage.toy.head.out]
}
`)
	p := l.plan()
	for _, n := range p.Nodes {
		n.Estimate = map[string]time.Duration{"toy.short": 5 * time.Second, "toy.medium": 20 * time.Second,
			"toy.head": 10 * time.Second, "toy.tail": 60 * time.Second}[ShortAddress(n.Address)]
	}
	s := newScript()
	done := make(chan record)
	go func() { done <- l.runPlan(t.Context(), p, RunOptions{Executor: s}) }()
	if got, want := s.next(2), []string{"toy.head", "toy.medium"}; !slices.Equal(got, want) {
		t.Errorf("first: got %v, want %v", got, want)
	}
	s.end("toy.head", nil)
	if got, want := s.next(1), []string{"toy.tail"}; !slices.Equal(got, want) {
		t.Errorf("then: got %v, want %v", got, want)
	}
	if _, cpus := s.occupied(t); cpus != 2 {
		t.Errorf("CPUs in use: got %d, want 2", cpus)
	}
	s.end("toy.medium", nil)
	s.next(1)
	s.end("toy.short", nil)
	s.end("toy.tail", nil)
	if r := <-done; r.err != nil {
		t.Error(r.err)
	}
}

func TestGPUsAreExclusive(t *testing.T) {
	l := newLab(t)
	l.put("site.hcl", "executor \"local\" {\n cpus = 64\n gpus = [\"0\", \"1\", \"2\", \"3\"]\n}\n")
	var stages strings.Builder
	for i := range 12 {
		fmt.Fprintf(&stages, "stage \"toy\" \"s%d\" {\n text = \"%d\"\n resources {\n gpus = %d\n }\n}\n", i, i, 1+i%3)
	}
	l.write(stages.String())
	s := newScript()
	done := make(chan record, 1)
	go func() { done <- l.run(RunOptions{Executor: s}) }()
	for range 12 {
		// The started stages have reserved distinct GPUs; the end of the first frees them for the next.
		w := <-s.arrived
		if gpus, _ := s.occupied(t); len(gpus) > 4 {
			t.Errorf("GPUs in use: got %v, want at most 4", gpus)
		}
		if len(w.GPUs) != w.Node.Resources.GPUs {
			t.Errorf("%s got %v, want %d", w.Node.Address, w.GPUs, w.Node.Resources.GPUs)
		}
		go s.end(ShortAddress(w.Node.Address), nil)
	}
	if r := <-done; r.err != nil {
		t.Error(r.err)
	}
}

func TestExecutorErrorIsTheFailure(t *testing.T) {
	l := newLab(t)
	l.write("stage \"toy\" \"a\" {\n}\n")
	s := newScript()
	done := make(chan record)
	go func() { done <- l.run(RunOptions{Executor: s}) }()
	s.next(1)
	s.end("toy.a", errors.New("no such queue"))
	r := <-done
	if failed, ok := r.find(EventFailed, "toy.a"); !ok || failed.Text != "no such queue" {
		t.Errorf("got %s, want the executor's error", r.text())
	}
}
