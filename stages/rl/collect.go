package rl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"rcgrpo/bfcl"
	"rcgrpo/stages/rl/blocks"
)

// Env is an episode as a policy sees it: a *bfcl.Episode or an episode of a merged task.
type Env interface {
	Turn() int       // index of the current turn
	User() string    // its request
	Tools() []string // names offered now
	// Step executes the calls of one reply; no calls yield the turn. errs counts the calls whose result is an
	// execution error.
	Step(calls []string) (results []string, errs int, err error)
	Done() bool
	Stop() string // "done" or "turn_limit" once Done
	Verdict() bfcl.Verdict
}

// Rollout asks for one episode.
type Rollout struct {
	Task   *bfcl.Task
	Update int    // part of the name of its random stream
	Member int    // index in its group; part of the name too
	Token  string // reward token
}

// Collector samples many episodes concurrently, each in a slot of the policy. Live episodes share the policy's
// batches while the environments work on their own goroutines. An episode that reaches a limit or whose
// environment fails ends as data in its trajectory; the others continue. Start and the codec are called from
// several goroutines, the policy from one at a time.
type Collector struct {
	Policy      Policy
	Codec       Codec
	Limits      blocks.Limits
	Seed        uint64
	Temperature float64 // 0 is greedy
	TopP        float64 // 0 or 1 keeps the whole vocabulary

	// Start starts the environment of a task; see EpisodeStart.
	Start func(*bfcl.Task) (Env, error)

	// Free lets an episode join a batch as soon as its environment has answered, so a slow environment delays no
	// other episode. Otherwise an episode joins exactly the next batch, which waits for it: the rows of a batch
	// then depend only on sampled tokens, so equal seeds give identical results even if the policy's arithmetic
	// depends on the other rows.
	Free bool
}

// CollectStats reports where the time of a Collect went.
type CollectStats struct {
	Batches   int           // calls of Policy.Next
	Sampled   int           // tokens sampled by the policy
	Given     int           // tokens of the episodes that were not sampled
	InPolicy  time.Duration // inside Policy.Next
	InWaiting time.Duration // no batch could run because all episodes waited for environments
	Wall      time.Duration
}

// Add adds the statistics of another Collect.
func (s *CollectStats) Add(o CollectStats) {
	s.Batches += o.Batches
	s.Sampled += o.Sampled
	s.Given += o.Given
	s.InPolicy += o.InPolicy
	s.InWaiting += o.InWaiting
	s.Wall += o.Wall
}

// EpisodeStart returns a Start function for episodes of the benchmark with the step limit of l.
func EpisodeStart(s bfcl.Settings, l blocks.Limits) func(*bfcl.Task) (Env, error) {
	s.MaxSteps = l.Steps
	return func(t *bfcl.Task) (Env, error) {
		return newEnv(t, s)
	}
}

// live is an episode in progress. While it is away, its fields belong to the environment's goroutine, otherwise
// to the collector.
type live struct {
	index  int // in the list of rollouts
	ask    Rollout
	env    Env
	t      *Trajectory
	stream Stream
	slot   int
	feed   []int32 // ids that the policy has not read yet
	header int     // start of the current reply's header in t.IDs
	reply  int     // start of the reply itself
	due    int     // batch that it joins, unless Free
}

// Collect samples one trajectory per rollout and returns them in the order of the rollouts. It calls finished, if
// not nil, with each trajectory as it ends. An error of finished or of the policy, or a cancelled context, stops
// all episodes. The policy is released afterwards.
func (c *Collector) Collect(ctx context.Context, rollouts []Rollout,
	finished func(i int, t *Trajectory) error) ([]*Trajectory, CollectStats, error) {
	if c.Policy.Slots() < 1 {
		return nil, CollectStats{}, errors.New("collect: the policy has no slot for an episode")
	}
	run := &collection{
		Collector: c, out: make([]*Trajectory, len(rollouts)), finished: finished,
		back: make(chan *live, c.Policy.Slots()), away: map[*live]bool{}, started: time.Now(),
	}
	for slot := range c.Policy.Slots() {
		c.Policy.Reset(slot)
		run.free = append(run.free, slot)
	}
	err := run.loop(ctx, rollouts)
	for len(run.away) > 0 { // after an error, environments that still work
		delete(run.away, <-run.back)
	}
	err = errors.Join(err, c.Policy.Release())
	run.stats.Wall = time.Since(run.started)
	if err != nil {
		return nil, run.stats, err
	}
	return run.out, run.stats, nil
}

type collection struct {
	*Collector
	out      []*Trajectory
	finished func(int, *Trajectory) error
	stats    CollectStats
	started  time.Time

	free     []int // empty slots, ascending
	ready    []*live
	away     map[*live]bool // episodes whose environment works
	back     chan *live
	answered []*live // received from back, not ready yet
}

func (r *collection) loop(ctx context.Context, rollouts []Rollout) error {
	for next := 0; ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		for next < len(rollouts) && len(r.free) > 0 {
			r.send(r.begin(next, rollouts[next]))
			next++
		}
		if err := r.collectReady(ctx); err != nil {
			return err
		}
		if len(r.ready) > 0 {
			if err := r.batch(ctx); err != nil {
				return err
			}
		} else if len(r.away) == 0 && next == len(rollouts) {
			return nil
		}
	}
}

func (r *collection) begin(index int, ask Rollout) *live {
	e := &live{
		index: index, ask: ask, slot: r.free[0],
		stream: Sampling(r.Seed, ask.Update, ask.Task.ID, ask.Member),
		t: &Trajectory{
			Task: ask.Task.ID, Family: ask.Task.Family, Category: ask.Task.Category,
			Prompt: ask.Task.Prompt, Member: ask.Member, Update: ask.Update, Token: ask.Token, Origin: OriginPolicy,
		},
	}
	r.free = r.free[1:]
	return e
}

// send starts the environment's work on an episode.
func (r *collection) send(e *live) {
	e.due = r.stats.Batches + 1
	r.away[e] = true
	go func() {
		r.advance(e)
		r.back <- e
	}()
}

// collectReady makes episodes ready whose environment has answered. It waits if no episode is ready and, unless
// Free, for each episode that is due.
func (r *collection) collectReady(ctx context.Context) error {
	idle := len(r.ready) == 0
	due := func(e *live) bool { return idle || e.due <= r.stats.Batches }
	for len(r.away) > 0 {
		wait := idle && len(r.answered) == 0
		if !r.Free {
			wait = false
			for e := range r.away {
				wait = wait || due(e)
			}
		}
		if !wait {
			break
		}
		begin := time.Now()
		select {
		case e := <-r.back:
			r.receive(e)
		case <-ctx.Done():
			return ctx.Err()
		}
		r.stats.InWaiting += time.Since(begin)
	}
	for r.Free && len(r.back) > 0 {
		r.receive(<-r.back)
	}
	slices.SortFunc(r.answered, func(a, b *live) int { return a.index - b.index })
	var early []*live
	for _, e := range r.answered {
		switch {
		case !r.Free && !due(e):
			early = append(early, e)
		case e.t.Stop != "":
			if err := r.finish(e); err != nil {
				return err
			}
		default:
			r.ready = append(r.ready, e)
		}
	}
	r.answered = early
	return nil
}

func (r *collection) receive(e *live) {
	delete(r.away, e)
	r.answered = append(r.answered, e)
}

func (r *collection) finish(e *live) error {
	for _, sampled := range e.t.Mask {
		if !sampled {
			r.stats.Given++
		}
	}
	r.Policy.Reset(e.slot)
	r.free = append(r.free, e.slot)
	slices.Sort(r.free)
	r.out[e.index] = e.t
	if r.finished == nil {
		return nil
	}
	return r.finished(e.index, e.t)
}

// batch samples one token for every ready episode. Episodes that continue a reply come first, then those with new
// text to read.
func (r *collection) batch(ctx context.Context) error {
	slices.SortFunc(r.ready, func(a, b *live) int {
		return cmp.Or(min(len(a.feed), 2)-min(len(b.feed), 2), a.slot-b.slot)
	})
	requests := make([]Request, len(r.ready))
	for i, e := range r.ready {
		requests[i] = Request{Slot: e.slot, Feed: e.feed, Temperature: r.Temperature, TopP: r.TopP,
			U: e.stream.At(len(e.t.IDs))}
	}
	begin := time.Now()
	draws, err := r.Policy.Next(ctx, requests)
	r.stats.InPolicy += time.Since(begin)
	if err != nil {
		return fmt.Errorf("sample a batch of %d: %w", len(requests), err)
	}
	if len(draws) != len(requests) {
		return fmt.Errorf("sample a batch of %d: the policy returned %d tokens", len(requests), len(draws))
	}
	r.stats.Batches++
	r.stats.Sampled += len(draws)

	ready := r.ready
	r.ready = nil
	for i, e := range ready {
		d := draws[i]
		e.t.IDs = append(e.t.IDs, d.Token)
		e.t.Mask = append(e.t.Mask, true)
		e.t.Logp = append(e.t.Logp, d.Logp)
		e.feed = append(e.feed[:0], d.Token)
		switch {
		case r.Codec.Stop(d.Token):
		case len(e.t.IDs)-e.reply >= r.Limits.Reply:
			e.t.Stop = StopStep
		case len(e.t.IDs) >= r.longest():
			e.t.Stop = StopLength
		default:
			r.ready = append(r.ready, e)
			continue
		}
		r.send(e)
	}
	return nil
}

func (r *collection) longest() int { return min(r.Limits.Context, r.Policy.MaxLen()) }

// advance does the work between two replies of an episode, on its own goroutine: it starts the environment, or
// parses the reply and executes its calls, and appends the ids that the policy reads next. An episode that ends
// gets its verdict, or no reward if its environment failed.
func (r *collection) advance(e *live) {
	work := r.step
	if e.env == nil {
		work = r.open
	}
	switch err := work(e); {
	case err != nil:
		e.t.fail(err)
	case e.t.Stop != "":
		e.t.judge(e.env.Verdict())
	}
}

// fail ends an episode without a reward.
func (t *Trajectory) fail(err error) {
	t.Stop, t.Failure = StopError, err.Error()
	t.Reward, t.RState, t.RAction = MissingReward(), MissingReward(), MissingReward()
}

func (r *collection) open(e *live) (err error) {
	if e.env, err = r.Start(e.ask.Task); err != nil {
		return err
	}
	e.t.Tools = e.env.Tools()
	text := e.env.User()
	ids := append(slices.Clone(r.Codec.Begin(e.t.Tools)), r.Codec.User(text, true, e.ask.Token)...)
	r.show(e, Message{Role: RoleUser, Turn: e.env.Turn(), Text: text}, nil, ids)
	return nil
}

func (r *collection) step(e *live) error {
	turn := e.env.Turn()
	text, calls := r.Codec.Parse(e.t.IDs[e.reply:])
	e.t.Messages = append(e.t.Messages, Message{Role: RoleAssistant, Turn: turn, Text: text, Calls: calls,
		From: e.header, To: len(e.t.IDs)})
	if e.t.Stop != "" { // a limit cut the reply short; an incomplete call is not executed
		return nil
	}
	results, errs, err := e.env.Step(calls)
	e.t.Calls += len(results)
	e.t.Errors += errs
	switch {
	case err != nil:
		return err
	case e.env.Done(): // the policy does not read results after the last turn
		e.t.Stop = e.env.Stop()
	case len(results) > 0:
		r.show(e, toolMessage(turn, results), r.Codec.Between(), r.Codec.Tool(results))
	default:
		text := e.env.User()
		r.show(e, Message{Role: RoleUser, Turn: e.env.Turn(), Text: text}, r.Codec.Between(),
			r.Codec.User(text, false, e.ask.Token))
	}
	return nil
}

// show appends a message that the policy reads and opens its next reply. If the context has no room for the
// message and one token of a reply, the message is dropped and the episode ends.
func (r *collection) show(e *live, m Message, between, ids []int32) {
	header := r.Codec.Header(e.ask.Token)
	if len(e.t.IDs)+len(between)+len(ids)+len(header) >= r.longest() {
		e.t.Stop = StopLength
		return
	}
	e.appendGiven(between)
	m.From = len(e.t.IDs)
	e.appendGiven(ids)
	m.To = len(e.t.IDs)
	e.t.Messages = append(e.t.Messages, m)
	e.header = m.To
	e.appendGiven(header)
	e.reply = len(e.t.IDs)
}

// appendGiven appends ids that the policy did not sample.
func (e *live) appendGiven(ids []int32) {
	e.feed = append(e.feed, ids...)
	e.t.IDs = append(e.t.IDs, ids...)
	e.t.Mask = append(e.t.Mask, make([]bool, len(ids))...)
	e.t.Logp = append(e.t.Logp, make([]float32, len(ids))...)
}

// judge stores the verdict of an ended episode. The official verdict also counts if the episode exceeded the turn
// limit. A reward is earned only if the policy ended the episode itself; bfcl/SPEC.md 11 would also compare the
// states of a truncated one.
func (t *Trajectory) judge(v bfcl.Verdict) {
	t.RState, t.RAction = Reward(v.RState), Reward(v.RAction)
	t.Failure = v.ErrorType
	switch t.Stop {
	case StopDone:
		t.Reward, t.Official = Reward(v.Reward), v.Official
	case StopTurnLimit:
		t.Official = v.Official
	default:
		t.Failure = t.Stop
	}
}
