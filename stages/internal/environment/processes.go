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

// Processes plays the episodes of a program in its processes. A process with a fault is ended, and its episodes fail
// with it; each of them may start again alone in a process of its own. Processes implements rl.Environment.
type Processes struct {
	*launcher
	dir   string // in which the processes start; removed by Close
	steps int    // steps per turn; one more is executed and ends the episode; 0: unlimited
	tools []rl.Tool
	count atomic.Int64 // episodes started so far

	shared []*shared
	places chan *shared  // one for each episode that a shared process has room for
	alone  chan struct{} // processes of one episode
}

// shared is a process that episodes share.
type shared struct {
	mu      sync.Mutex
	process *process // nil before its first episode
}

// mostEpisodes bounds the episodes of one process.
const mostEpisodes = 1024

// newProcesses starts the first process of a program in a copy of its folder.
func newProcesses(ctx context.Context, program *Description, at bfcl.ProgramRef, o Options) (*Processes, error) {
	dir, err := program.Copy(at.Dir, o.folder())
	if err != nil {
		return nil, err
	}
	n := max(1, at.Processes)
	p := &Processes{launcher: newLauncher(program, o), dir: dir, steps: o.Steps, alone: make(chan struct{}, n)}
	first, hello, err := p.open(ctx)
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.shared = append(p.shared, &shared{process: first})
	for len(p.shared) < n {
		p.shared = append(p.shared, new(shared))
	}
	p.places = make(chan *shared, n*hello.Episodes)
	for i := range cap(p.places) {
		p.places <- p.shared[i%n]
	}
	var tools toolList
	for _, raw := range hello.Tools {
		tool, err := readTool(raw)
		if err == nil {
			err = tools.add(tool)
		}
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	p.tools = tools.all
	return p, nil
}

// readTool reads a function in OpenAI's form, with or without its wrapper {"type": "function", "function": …}.
func readTool(raw json.RawMessage) (rl.Tool, error) {
	var f struct {
		Name     string `json:"name"`
		Function *struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if err := decode(raw, &f); err != nil {
		return rl.Tool{}, err
	}
	if f.Function != nil && f.Function.Name != "" {
		return rl.Tool{Name: f.Function.Name, JSON: raw}, nil
	}
	if f.Name == "" {
		return rl.Tool{}, fmt.Errorf("the program's hello has a tool without a name: %s", quote(raw))
	}
	whole, err := json.Marshal(map[string]json.RawMessage{"type": json.RawMessage(`"function"`), "function": raw})
	return rl.Tool{Name: f.Name, JSON: whole}, err
}

// open starts a process and reads its hello.
func (p *Processes) open(ctx context.Context) (*process, helloAnswer, error) {
	var hello helloAnswer
	c, err := p.start(p.described.Command, p.dir, nil, (*process).readAnswers)
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

// Tasks requests at most n tasks of a set from the program.
func (p *Processes) Tasks(ctx context.Context, set string, n int, seed int64) ([]*bfcl.Task, error) {
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
func (s *shared) get(ctx context.Context, p *Processes) (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil && s.process.Works() {
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
func (p *Processes) Start(ctx context.Context, t *bfcl.Task, o rl.StartOptions) (rl.Env, error) {
	if err := p.Broken(); err != nil {
		return nil, err
	}
	id := fmt.Sprintf("e%d", p.count.Add(1))
	c, leave, err := p.enter(ctx, o.Alone)
	if err != nil {
		return nil, err
	}
	e := &episode{turns: turns{launcher: p.launcher, task: t, alone: o.Alone, tools: p.tools, most: p.steps},
		process: c, id: id, leave: leave}
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
func (p *Processes) enter(ctx context.Context, alone bool) (c *process, leave func(), err error) {
	if alone {
		return p.enterAlone(ctx)
	}
	select {
	case s := <-p.places:
		leave = func() { p.places <- s }
		if c, err = s.get(ctx, p); err != nil {
			leave()
		}
		return c, leave, err
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// enterAlone starts a process for one episode, which leave ends.
func (p *Processes) enterAlone(ctx context.Context) (c *process, leave func(), err error) {
	select {
	case p.alone <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	if c, _, err = p.open(ctx); err != nil {
		<-p.alone
		p.Count(err)
	}
	leave = func() {
		c.Stop()
		<-p.alone
	}
	return c, leave, err
}

// Close ends all processes and removes their folder.
func (p *Processes) Close() error {
	var all sync.WaitGroup
	for _, s := range p.shared {
		if s.process != nil {
			all.Go(s.process.Stop)
		}
	}
	all.Wait()
	return os.RemoveAll(p.dir)
}

// episode is an episode in a process.
type episode struct {
	turns
	process   *process
	id        string
	leave     func()
	cancelled bool // the stage stops
}

// call sends a request of the episode. A fault is logged once for each process, with its standard error.
func (e *episode) call(ctx context.Context, method string, params, out any) error {
	limit := e.described.Step
	if method == "score" {
		limit = e.described.Score
	}
	err := e.process.call(ctx, method, e.task.ID, params, limit, out)
	e.cancelled = e.cancelled || ctx.Err() != nil
	return e.report(err, e.process.stderr())
}

// fail returns a fault of the episode and logs it.
func (e *episode) fail(method, text string) error {
	return e.report(&Fault{method, e.task.ID, text}, e.process.stderr())
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
	left := maxResults
	for i, raw := range a.Results {
		text, failed := result(raw)
		results[sent[i]], failed = fit(&left, text, failed)
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
	var a json.RawMessage
	if err := e.call(ctx, "score", map[string]string{"episode": e.id}, &a); err != nil {
		return bfcl.Verdict{}, err
	}
	reward, err := Reward(a)
	if err != nil {
		return bfcl.Verdict{}, e.fail("score", err.Error())
	}
	return e.rewarded(reward), nil
}

// Close implements rl.Env. The program forgets the episode.
func (e *episode) Close() {
	if e.process.Works() && !e.cancelled {
		var ignored json.RawMessage
		e.call(context.Background(), "close", map[string]string{"episode": e.id}, &ignored)
	}
	e.leave()
}
