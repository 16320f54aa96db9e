package environment

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"rcgrpo/bfcl"
	"rcgrpo/stages/rl"
)

// PoolOptions describe the processes of a program.
type PoolOptions struct {
	Dir       string // in which they start; removed by Close
	Processes int    // at most so many share the episodes, and so many more play second tries
	Steps     int    // executed steps per turn; the next one ends the episode; 0: unlimited
	Scratch   string // of the stage: in the variable by which the engine finds processes that are left
	Mark      string // NAME=VALUE in the environment of all processes
	Log       func(format string, args ...any)
}

// Pool plays the episodes of a program in its processes. A process with a fault is ended, and its episodes fail with
// it; each of them may start again alone in a process of its own. Pool implements rl.Environment.
type Pool struct {
	PoolOptions
	*launcher
	patience
	tools []rl.Tool

	places chan struct{} // episodes of shared processes
	alone  chan struct{} // processes of one episode
	count  atomic.Int64  // episodes started so far

	mu     sync.Mutex
	shared []*seats
}

// seats is a process that episodes share.
type seats struct {
	mu      sync.Mutex
	process *process // nil before its first episode
	taken   int      // guarded by the pool
}

// mostEpisodes bounds the episodes of one process.
const mostEpisodes = 1024

// NewPool starts the first process of a program.
func NewPool(ctx context.Context, program *Program, o PoolOptions) (*Pool, error) {
	p := &Pool{PoolOptions: o, launcher: newLauncher(program, o.Scratch, o.Mark, o.Log),
		alone: make(chan struct{}, o.Processes)}
	first, hello, err := p.open(ctx)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(o.Dir))
	}
	for _, raw := range hello.Tools {
		tool, err := readTool(raw)
		if err != nil {
			first.stop()
			return nil, errors.Join(err, os.RemoveAll(o.Dir))
		}
		p.tools = append(p.tools, tool)
	}
	p.places = make(chan struct{}, o.Processes*hello.Episodes)
	p.shared = make([]*seats, o.Processes)
	for i := range p.shared {
		p.shared[i] = new(seats)
	}
	p.shared[0].process = first
	return p, nil
}

// readTool reads a function in OpenAI's form, with or without its wrapper {"type": "function", "function": …}.
func readTool(raw json.RawMessage) (rl.Tool, error) {
	var f struct {
		Name     string          `json:"name"`
		Function json.RawMessage `json:"function"`
	}
	if err := decode(raw, &f); err != nil {
		return rl.Tool{}, err
	}
	if f.Function != nil {
		inner, err := readTool(f.Function)
		inner.JSON = raw
		return inner, err
	}
	if f.Name == "" {
		return rl.Tool{}, fmt.Errorf("the program's hello has a tool without a name: %s", quote(raw))
	}
	whole, err := json.Marshal(map[string]json.RawMessage{"type": json.RawMessage(`"function"`), "function": raw})
	return rl.Tool{Name: f.Name, JSON: whole}, err
}

// open starts a process and reads its hello.
func (p *Pool) open(ctx context.Context) (*process, helloAnswer, error) {
	var hello helloAnswer
	c, err := p.start(p.Dir, nil, (*process).readAnswers)
	if err != nil {
		return nil, hello, err
	}
	err = c.call(ctx, "hello", "", map[string]int{"protocol": 1}, p.described.Start, &hello)
	if err == nil && (hello.Episodes < 1 || hello.Episodes > mostEpisodes) {
		err = &Fault{"hello", "", fmt.Sprintf("episodes is the number of episodes at once, from 1 to %d; got %d",
			mostEpisodes, hello.Episodes)}
	}
	if err != nil {
		c.fail("its start failed")
		<-c.ended
		return nil, hello, fmt.Errorf("%w%s", err, c.stderr())
	}
	return c, hello, nil
}

// Tasks asks the program for at most n tasks of a set.
func (p *Pool) Tasks(ctx context.Context, set string, n int, seed int64) ([]*bfcl.Task, error) {
	c, err := p.shared[0].get(ctx, p)
	if err != nil {
		return nil, err
	}
	var got tasksAnswer
	err = c.call(ctx, "tasks", "", map[string]any{"set": set, "n": n, "seed": seed}, p.described.Start, &got)
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, c.stderr())
	}
	if len(got.Tasks) == 0 || len(got.Tasks) > n {
		return nil, fmt.Errorf("the program has %d tasks for the set %s; want 1 to %d", len(got.Tasks), set, n)
	}
	var tasks []*bfcl.Task
	for i, raw := range got.Tasks {
		t, err := newTask(raw)
		if err != nil {
			return nil, fmt.Errorf("task %d of the set %s: %w", i+1, set, err)
		}
		tasks = append(tasks, t)
	}
	return tasks, nil
}

// newTask reads a task of a program.
func newTask(raw json.RawMessage) (*bfcl.Task, error) {
	var spec taskSpec
	if err := decode(raw, &spec); err != nil {
		return nil, err
	}
	if spec.ID == "" {
		return nil, fmt.Errorf("it has no id: %s", quote(raw))
	}
	t := &bfcl.Task{ID: spec.ID, Family: cmp.Or(spec.Family, spec.ID), Category: cmp.Or(spec.Category, "own"), Spec: raw}
	_, err := expertCalls(t)
	return t, err
}

// get returns the process, started if it does not work.
func (s *seats) get(ctx context.Context, p *Pool) (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil && s.process.works() {
		return s.process, nil
	}
	if s.process != nil {
		<-s.process.ended
	}
	c, _, err := p.open(ctx)
	s.process = c
	return c, err
}

// Start implements rl.Environment. It waits while all processes are full.
func (p *Pool) Start(ctx context.Context, t *bfcl.Task, o rl.StartOptions) (rl.Env, error) {
	if err := p.working(); err != nil {
		return nil, err
	}
	id := fmt.Sprintf("e%d", p.count.Add(1))
	c, leave, err := p.enter(ctx, o.Alone)
	if err != nil {
		return nil, err
	}
	e := &episode{turns: turns{tools: p.tools, most: p.Steps}, pool: p, process: c, task: t, id: id, alone: o.Alone,
		leave: leave}
	var reset resetAnswer
	err = e.call(ctx, "reset", map[string]any{"episode": id, "task": t.Spec, "seed": o.Seed}, &reset)
	if err == nil && reset.User == nil {
		err = e.fail("reset", "its answer has no user, the first request")
	}
	if err != nil {
		e.Close()
		return nil, err
	}
	e.user, e.system = *reset.User, reset.System
	return e, nil
}

// enter waits for a place in a process. leave frees it.
func (p *Pool) enter(ctx context.Context, alone bool) (c *process, leave func(), err error) {
	queue := p.places
	if alone {
		queue = p.alone
	}
	select {
	case queue <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	if alone {
		c, _, err = p.open(ctx)
		leave = func() { c.stop(); <-queue }
	} else {
		s := p.sit()
		c, err = s.get(ctx, p)
		leave = func() { p.rise(s); <-queue }
	}
	if err != nil {
		if alone {
			<-queue
			p.judge(false, err, p.Log)
		} else {
			leave()
		}
		return nil, nil, err
	}
	return c, leave, nil
}

// sit takes a place in the process with the fewest episodes.
func (p *Pool) sit() *seats {
	p.mu.Lock()
	defer p.mu.Unlock()
	best := p.shared[0]
	for _, s := range p.shared {
		if s.taken < best.taken {
			best = s
		}
	}
	best.taken++
	return best
}

func (p *Pool) rise(s *seats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.taken--
}

// Close ends all processes and removes their folder.
func (p *Pool) Close() error {
	var all sync.WaitGroup
	for _, s := range p.shared {
		if s.process != nil {
			all.Go(s.process.stop)
		}
	}
	all.Wait()
	return os.RemoveAll(p.Dir)
}

// episode is an episode in a process.
type episode struct {
	turns
	pool    *Pool
	process *process
	task    *bfcl.Task
	id      string
	alone   bool
	leave   func()

	failed    bool // a fault was logged
	cancelled bool // the stage stops
}

// call sends a request of the episode. A fault is logged once for each process, with its standard error.
func (e *episode) call(ctx context.Context, method string, params, out any) error {
	limit := e.pool.described.Step
	if method == "score" {
		limit = e.pool.described.Score
	}
	err := e.process.call(ctx, method, e.task.ID, params, limit, out)
	if fault, ok := errors.AsType[*Fault](err); ok {
		return e.fail(fault.Method, fault.Text)
	}
	e.cancelled = e.cancelled || ctx.Err() != nil
	return err
}

// fail returns a fault of the episode and logs it.
func (e *episode) fail(method, text string) error {
	err := &Fault{method, e.task.ID, text}
	if !e.failed {
		e.failed = true
		again := "; the episode is played again, alone"
		if e.alone {
			again = "; the episode has no reward"
			e.pool.judge(false, err, e.pool.Log)
		}
		e.pool.Log("%v%s%s", err, again, e.process.stderr())
	}
	return err
}

// Step implements rl.Env. A call that cannot be read has an error as its result; the program does not see it.
func (e *episode) Step(ctx context.Context, r rl.Reply) ([]string, int, error) {
	results, calls, sent := readCalls(r)
	errs := len(results) - len(calls)
	if len(r.Calls) > 0 {
		e.steps++
	}
	if len(calls) == 0 && len(r.Calls) > 0 {
		e.limit()
		return results, errs, nil
	}
	var a stepAnswer
	err := e.call(ctx, "step", map[string]any{"episode": e.id, "text": r.Text, "calls": calls}, &a)
	if err != nil {
		return nil, 0, err
	}
	if len(a.Results) != len(calls) {
		return nil, 0, e.fail("step", fmt.Sprintf("%d calls have %d results", len(calls), len(a.Results)))
	}
	for i, raw := range a.Results {
		text, failed := result(raw)
		results[sent[i]] = text
		if failed {
			errs++
		}
	}
	switch yields := len(r.Calls) == 0; {
	case a.Done && a.User != nil || !yields && a.User != nil:
		return nil, 0, e.fail("step", "user is the answer to a reply without calls, and not beside done")
	case a.Done:
		e.stop = rl.StopDone
	case yields && a.User == nil:
		return nil, 0, e.fail("step", "a reply without calls has the answer user, the next request, or done")
	case yields:
		e.next(*a.User)
	default:
		e.limit()
	}
	return results, errs, nil
}

// Verdict returns the score of the episode.
func (e *episode) Verdict(ctx context.Context) (bfcl.Verdict, error) {
	var a scoreAnswer
	if err := e.call(ctx, "score", map[string]string{"episode": e.id}, &a); err != nil {
		return bfcl.Verdict{}, err
	}
	reward, err := a.finite()
	if err != nil {
		return bfcl.Verdict{}, e.fail("score", err.Error())
	}
	e.pool.judge(true, nil, e.pool.Log)
	return rewarded(reward), nil
}

// Close implements rl.Env. The program forgets the episode.
func (e *episode) Close() {
	if e.process.works() && !e.cancelled {
		var ignored json.RawMessage
		e.call(context.Background(), "close", map[string]string{"episode": e.id}, &ignored)
	}
	e.leave()
}
