package rl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"rcgrpo/bfcl"
	"rcgrpo/stages/rl/blocks"
)

// Env is an episode as a policy meets it: *bfcl.Episode, or one of a merged task; tests script others that loop,
// fail or dawdle.
type Env interface {
	Turn() int       // index of the current turn
	User() string    // its request
	Tools() []string // names offered now
	// Step executes the calls of one reply; none yields the turn. errs counts calls whose result is an execution error.
	Step(calls []string) (results []string, errs int, err error)
	Done() bool
	Stop() string // "done" or "turn_limit" once Done
	Verdict() bfcl.Verdict
}

// Rollout asks for one episode.
type Rollout struct {
	Task   *bfcl.Task
	Update int    // part of the key of its random numbers
	Member int    // place in its group; likewise
	Token  string // reward token it is conditioned on
}

// Collector samples episodes: many at once, each in a slot of the policy and at its own pace. All live ones share the
// policy's batches; the environments work on goroutines of their own meanwhile. Whatever ends an episode (a limit, an
// environment that fails) is data in its trajectory, and its siblings go on. Start and the codec are called from several
// goroutines at once, the policy from one at a time.
type Collector struct {
	Policy      Policy
	Codec       Codec
	Limits      blocks.Limits
	Seed        uint64
	Temperature float64 // 0 is greedy
	TopP        float64 // 0 or 1 keeps the whole vocabulary

	// Start begins the environment of a task. See EpisodeStart.
	Start func(*bfcl.Task) (Env, error)

	// Free lets an episode rejoin the batch as soon as its environment has answered, so that a slow one holds up nobody.
	// Otherwise it rejoins exactly one batch later, and the batch waits for it if it must: then which rows a batch holds
	// is a function of what was sampled, and equal seeds give equal bytes even where the policy's arithmetic depends on
	// the rows beside.
	Free bool
}

// CollectStats says where the time of a Collect went.
type CollectStats struct {
	Batches   int           // calls of Policy.Next
	Sampled   int           // tokens drawn
	Given     int           // tokens of the episodes that were not drawn
	InPolicy  time.Duration // inside Policy.Next
	InWaiting time.Duration // no batch could run because of environments
	Wall      time.Duration
}

// Add adds what another Collect took.
func (s *CollectStats) Add(o CollectStats) {
	s.Batches += o.Batches
	s.Sampled += o.Sampled
	s.Given += o.Given
	s.InPolicy += o.InPolicy
	s.InWaiting += o.InWaiting
	s.Wall += o.Wall
}

// EpisodeStart starts episodes of the benchmark with the steps per turn that the limits allow.
func EpisodeStart(s bfcl.Settings, l blocks.Limits) func(*bfcl.Task) (Env, error) {
	s.MaxSteps = l.Steps
	return func(t *bfcl.Task) (Env, error) {
		return start(t, s)
	}
}

// live is an episode in progress. Its fields belong to the environment's goroutine while away, else to the collector.
type live struct {
	index  int // in the list of rollouts
	ask    Rollout
	env    Env
	t      *Trajectory
	stream Stream
	slot   int
	feed   []int32 // ids the policy has not seen yet
	header int     // where the header of the current reply begins in t.IDs
	reply  int     // where the reply itself begins
	due    int     // batch it rejoins, unless Free
	begun  bool
}

// Collect samples one trajectory for each rollout and returns them in that order. finished, if not nil, is called with
// each as it ends, in the order of their ends; an error of it stops everything, as do an error of the policy and a
// cancelled context. The policy is released afterwards.
func (c *Collector) Collect(ctx context.Context, rollouts []Rollout, finished func(i int, t *Trajectory) error) ([]*Trajectory, CollectStats, error) {
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
	for len(run.away) > 0 { // an error left environments at work; they end by themselves
		delete(run.away, <-run.back)
	}
	err = errors.Join(err, c.Policy.Release())
	run.stats.Wall = time.Since(run.started)
	if err != nil {
		return nil, run.stats, err
	}
	return run.out, run.stats, nil
}

// collection is one call of Collect.
type collection struct {
	*Collector
	out      []*Trajectory
	finished func(int, *Trajectory) error
	stats    CollectStats
	started  time.Time

	free     []int // empty slots, ascending
	ready    []*live
	away     map[*live]bool // whose environment is at work
	back     chan *live
	answered []*live // taken from back, not admitted yet
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
		if err := r.rejoin(ctx); err != nil {
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

// begin reserves a slot for a rollout.
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

// send lets the environment of an episode work.
func (r *collection) send(e *live) {
	e.due = r.stats.Batches + 1
	r.away[e] = true
	go func() {
		r.advance(e)
		r.back <- e
	}()
}

// rejoin admits episodes whose environment has answered, and waits where nothing else can go on or, unless Free, where
// one is due.
func (r *collection) rejoin(ctx context.Context) error {
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
			r.take(e)
		case <-ctx.Done():
			return ctx.Err()
		}
		r.stats.InWaiting += time.Since(begin)
	}
	for r.Free && len(r.back) > 0 {
		r.take(<-r.back)
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

func (r *collection) take(e *live) {
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

// batch draws one token for every episode that is ready: those that continue a reply first, then those that read
// something new.
func (r *collection) batch(ctx context.Context) error {
	slices.SortFunc(r.ready, func(a, b *live) int {
		if single := len(a.feed) == 1; single != (len(b.feed) == 1) {
			if single {
				return -1
			}
			return 1
		}
		return a.slot - b.slot
	})
	requests := make([]Request, len(r.ready))
	for i, e := range r.ready {
		requests[i] = Request{Slot: e.slot, Feed: e.feed, Temperature: r.Temperature, TopP: r.TopP, U: e.stream.At(len(e.t.IDs))}
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

// longest is the number of ids an episode may have.
func (r *collection) longest() int { return min(r.Limits.Context, r.Policy.MaxLen()) }

// advance does an episode's work between two replies, on a goroutine of its own: it starts the environment, or parses
// the reply and executes its calls, and lays out what the policy reads next. An episode that ends gets its verdict.
func (r *collection) advance(e *live) {
	if !e.begun {
		e.begun = true
		env, err := r.Start(e.ask.Task)
		if err != nil {
			r.fail(e, err)
			return
		}
		e.env = env
		e.t.Tools = env.Tools()
		text := env.User()
		ids := append(slices.Clone(r.Codec.Begin(e.t.Tools)), r.Codec.User(text, true, e.ask.Token)...)
		r.show(e, Message{Role: RoleUser, Turn: env.Turn(), Text: text}, nil, ids)
		if e.t.Stop != "" {
			e.t.judge(env.Verdict())
		}
		return
	}
	turn := e.env.Turn()
	text, calls := r.Codec.Parse(e.t.IDs[e.reply:])
	e.t.Messages = append(e.t.Messages, Message{Role: RoleAssistant, Turn: turn, Text: text, Calls: calls, From: e.header, To: len(e.t.IDs)})
	if e.t.Stop != "" { // a limit cut the reply short; what it began is not executed
		e.t.judge(e.env.Verdict())
		return
	}
	results, errs, err := e.env.Step(calls)
	e.t.Calls += len(results)
	e.t.Errors += errs
	if err != nil {
		r.fail(e, err)
		return
	}
	if e.env.Done() { // results of a turn that ran over its limit are not read by anyone
		e.t.Stop = StopDone
		if e.env.Stop() != StopDone {
			e.t.Stop = StopTurnLimit
		}
		e.t.judge(e.env.Verdict())
		return
	}
	if len(results) > 0 {
		r.show(e, toolMessage(turn, results), r.Codec.Between(), r.Codec.Tool(results))
	} else {
		text := e.env.User()
		r.show(e, Message{Role: RoleUser, Turn: e.env.Turn(), Text: text}, r.Codec.Between(), r.Codec.User(text, false, e.ask.Token))
	}
	if e.t.Stop != "" {
		e.t.judge(e.env.Verdict())
	}
}

// show appends a message that the policy reads, and opens its next reply. A message for which the context has no room,
// with one token of a reply after it, is left out: the policy never saw it.
func (r *collection) show(e *live, m Message, between, ids []int32) {
	header := r.Codec.Header(e.ask.Token)
	if len(e.t.IDs)+len(between)+len(ids)+len(header) >= r.longest() {
		e.t.Stop = StopLength
		return
	}
	e.give(between)
	m.From = len(e.t.IDs)
	e.give(ids)
	m.To = len(e.t.IDs)
	e.t.Messages = append(e.t.Messages, m)
	e.header = m.To
	e.give(header)
	e.reply = len(e.t.IDs)
}

// give appends ids that the policy did not sample.
func (e *live) give(ids []int32) {
	e.feed = append(e.feed, ids...)
	e.t.IDs = append(e.t.IDs, ids...)
	e.t.Mask = append(e.t.Mask, make([]bool, len(ids))...)
	e.t.Logp = append(e.t.Logp, make([]float32, len(ids))...)
}

// fail ends an episode whose environment failed. Its reward is missing.
func (r *collection) fail(e *live, err error) {
	e.t.Stop = StopError
	e.t.Failure = err.Error()
	e.t.Reward, e.t.RState, e.t.RAction = MissingReward(), MissingReward(), MissingReward()
}

// judge records the verdict of an episode that has ended. The official one is the checker's, also where the episode was
// abandoned. A reward is earned only where the policy ended the episode itself; bfcl/SPEC.md 11 would compare the states
// of a truncated one too.
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
