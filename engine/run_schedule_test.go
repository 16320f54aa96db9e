package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
)

// scripted is an executor in which every node waits until the test ends it.
type scripted struct {
	mu      sync.Mutex
	running []*engine.Work
	started chan *engine.Work
	leave   map[string]chan struct{}
}

func newScripted() *scripted {
	return &scripted{started: make(chan *engine.Work), leave: map[string]chan struct{}{}}
}

func (s *scripted) Execute(ctx context.Context, w *engine.Work, observe func(runs.Event)) error {
	leave := make(chan struct{})
	s.mu.Lock()
	s.running = append(s.running, w)
	s.leave[lang.ShortAddress(w.Node.Address)] = leave
	s.mu.Unlock()
	s.started <- w
	<-leave
	s.mu.Lock()
	s.running = slices.DeleteFunc(s.running, func(o *engine.Work) bool { return o.Node == w.Node })
	s.mu.Unlock()
	return w.ExecuteHere(ctx, observe)
}

// run runs a plan in the background.
func (s *scripted) run(l *enginetest.Lab, p *plan.Plan, o engine.Options) <-chan enginetest.Outcome {
	done := make(chan enginetest.Outcome)
	go func() { done <- l.RunPlan(l.Context(), p, o) }()
	return done
}

// next waits until n more nodes have started and returns their names, sorted.
func (s *scripted) next(n int) (names []string) {
	for range n {
		names = append(names, lang.ShortAddress((<-s.started).Node.Address))
	}
	slices.Sort(names)
	return names
}

func (s *scripted) end(names ...string) {
	for _, name := range names {
		s.mu.Lock()
		leave := s.leave[name]
		s.mu.Unlock()
		close(leave)
	}
}

// inUse returns the reserved GPUs and CPUs. A GPU that is reserved twice is an error.
func (s *scripted) inUse(t *testing.T) (gpus []string, cpus int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.running {
		for _, id := range w.GPUs {
			if slices.Contains(gpus, id) {
				t.Errorf("GPU %s is reserved twice", id)
			}
			gpus = append(gpus, id)
		}
		cpus += w.CPUs
	}
	return gpus, cpus
}

func TestLongestExpectedPathStartsFirstWithinTheCPUs(t *testing.T) {
	l := newLab(t, toyStage("short", `text = "1"`)+toyStage("medium", `text = "2"`)+
		toyStage("head", `text = "3"`)+toyStage("tail", "from = [stage.toy.head.out]"))
	l.Put("site.hcl", "executor \"local\" {\n cpus = 2\n gpus = []\n}\n")
	p := l.Plan()
	for _, n := range p.Nodes {
		n.Estimate = map[string]time.Duration{"toy.short": 5 * time.Second, "toy.medium": 20 * time.Second,
			"toy.head": 10 * time.Second, "toy.tail": 60 * time.Second}[lang.ShortAddress(n.Address)]
	}
	s := newScripted()
	done := s.run(l, p, engine.Options{Executor: s})
	wantList(t, "first", s.next(2), "toy.head", "toy.medium")
	s.end("toy.head")
	wantList(t, "then", s.next(1), "toy.tail")
	_, cpus := s.inUse(t)
	wantEqual(t, "CPUs in use", cpus, 2)
	s.end("toy.medium")
	s.next(1)
	s.end("toy.short", "toy.tail")
	wantSuccess(t, <-done)
}

func TestGPUsAreExclusive(t *testing.T) {
	stages := ""
	for i := range 12 {
		stages += toyStage(fmt.Sprint("s", i), fmt.Sprintf("text = \"%d\"\n resources {\n gpus = %d\n }", i, 1+i%3))
	}
	l := newLab(t, stages)
	l.Put("site.hcl", "executor \"local\" {\n cpus = 64\n gpus = [\"0\", \"1\", \"2\", \"3\"]\n}\n")
	s := newScripted()
	done := s.run(l, l.Plan(), engine.Options{Executor: s})
	for range 12 {
		w := <-s.started
		if gpus, _ := s.inUse(t); len(gpus) > 4 {
			t.Errorf("GPUs in use: got %v, want at most 4", gpus)
		}
		wantEqual(t, "GPUs of "+w.Node.Address, len(w.GPUs), w.Node.Resources.GPUs)
		go s.end(lang.ShortAddress(w.Node.Address))
	}
	wantSuccess(t, <-done)
}

// pool is a scripted executor with machines of its own.
type pool struct {
	*scripted
	room int
}

func (p *pool) Room() int                 { return p.room }
func (p *pool) Unfit(n *lang.Node) string { return "" }

func TestAFullPoolDoesNotBlockAnother(t *testing.T) {
	stages := ""
	for i, executor := range []string{"a", "a", "b", "b"} {
		stages += toyStage(fmt.Sprint("s", i), fmt.Sprintf("text = \"%d\"\n executor = \"%s\"", i, executor))
	}
	l := newLab(t, stages)
	l.Put("site.hcl", "executor \"a\" {\n type = \"slurm\"\n}\nexecutor \"b\" {\n type = \"slurm\"\n}\n")
	s := newScripted()
	done := s.run(l, l.Plan(), engine.Options{Executors: map[string]engine.Executor{"a": &pool{s, 1}, "b": &pool{s, 2}}})
	wantList(t, "first", s.next(3), "toy.s0", "toy.s2", "toy.s3")
	s.end("toy.s2", "toy.s3", "toy.s0")
	wantList(t, "then", s.next(1), "toy.s1")
	s.end("toy.s1")
	wantSuccess(t, <-done)
}
