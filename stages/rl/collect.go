package rl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"rcgrpo/bfcl"
	"rcgrpo/stages/rl/blocks"
)

// Rollout is the request of one episode.
type Rollout struct {
	Task   *bfcl.Task
	Update int    // part of the name of its random stream
	Member int    // from 0; a second group of the task in an update continues the numbers; part of that name too
	Token  string // reward token
}

// Rollouts returns a number of rollouts of each task, in the order of the tasks. More than blocks.MostCount together
// are an error.
func Rollouts(tasks []*bfcl.Task, samples int, token string) ([]Rollout, error) {
	if samples < 0 || samples > blocks.MostCount/max(1, len(tasks)) {
		return nil, fmt.Errorf("%d samples of each of %d tasks are not 0 to %d episodes: change samples", samples, len(tasks),
			blocks.MostCount)
	}
	all := make([]Rollout, 0, len(tasks)*samples)
	for _, task := range tasks {
		for i := range samples {
			all = append(all, Rollout{Task: task, Member: i, Token: token})
		}
	}
	return all, nil
}

// Collector samples many episodes concurrently, one per conversation of the policy. An episode that reaches a
// limit or whose environment fails ends as data in its trajectory; the others continue.
type Collector struct {
	Policy      Policy
	Environment Environment
	Seed        uint64 // seed of the environments
	Agent       Agent  // plays the episodes in place of a conversation with the policy; nil: none
}

// Agent plays episodes with a program of the user's, which calls the policy and the tools itself.
type Agent interface {
	Width() int              // episodes at once
	InPolicy() time.Duration // time so far in which at least one request waited for a reply
	// Play plays an episode that has started, and adds what the policy read and sampled to its trajectory. An error that
	// matches ErrAgain ends it without a reward; others are those of the policy.
	Play(ctx context.Context, ask Rollout, env Env, t *Trajectory) (bfcl.Verdict, error)
}

// CollectStats reports where the time of a Collect went.
type CollectStats struct {
	Sampled   int           // tokens sampled by the policy
	Given     int           // tokens of the episodes that were not sampled
	InPolicy  time.Duration // at least one episode waited for a reply
	InWaiting time.Duration // all episodes waited for environments
	Wall      time.Duration
}

// Add adds the statistics of another Collect.
func (s *CollectStats) Add(o CollectStats) {
	s.Sampled += o.Sampled
	s.Given += o.Given
	s.InPolicy += o.InPolicy
	s.InWaiting += o.InWaiting
	s.Wall += o.Wall
}

// Collect samples one trajectory per rollout and returns them in the order of the rollouts. It calls finished, if
// not nil, with each trajectory as it ends. An error of finished or of the policy, or a cancelled context, stops
// all episodes. The policy is released afterwards.
func (c *Collector) Collect(ctx context.Context, rollouts []Rollout,
	finished func(i int, t *Trajectory) error) ([]*Trajectory, CollectStats, error) {
	width := c.Policy.Width()
	if c.Agent != nil {
		width = min(width, c.Agent.Width())
	}
	if width < 1 {
		return nil, CollectStats{}, errors.New("collect: the policy has no slot for an episode")
	}
	r := &collection{Collector: c, finished: finished, out: make([]*Trajectory, len(rollouts))}
	if c.Agent != nil {
		r.stats.InPolicy = -c.Agent.InPolicy()
	}
	started := time.Now()
	players, playing := errgroup.WithContext(ctx)
	players.SetLimit(width)
	for i, ask := range rollouts {
		players.Go(func() error {
			if playing.Err() != nil {
				return playing.Err()
			}
			t, err := r.play(playing, ask)
			if err != nil {
				return err
			}
			return r.finish(i, t)
		})
	}
	err := errors.Join(cmp.Or(players.Wait(), ctx.Err()), c.Policy.Release())
	r.stats.Wall = time.Since(started)
	if c.Agent != nil {
		r.stats.InPolicy += c.Agent.InPolicy()
	} else {
		r.stats.InPolicy = r.waiting.Total()
	}
	r.stats.InWaiting = r.stats.Wall - r.stats.InPolicy
	if err != nil {
		return nil, r.stats, err
	}
	return r.out, r.stats, nil
}

// collection is one Collect in progress.
type collection struct {
	*Collector

	mu       sync.Mutex
	out      []*Trajectory
	finished func(int, *Trajectory) error
	stats    CollectStats
	waiting  Stopwatch // for replies
}

func (r *collection) finish(i int, t *Trajectory) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	sampled, given := t.Tokens()
	r.stats.Sampled += sampled
	r.stats.Given += given
	r.out[i] = t
	if r.finished == nil {
		return nil
	}
	return r.finished(i, t)
}

// play plays one episode, a second time alone if its environment failed with ErrAgain.
func (r *collection) play(ctx context.Context, ask Rollout) (*Trajectory, error) {
	o := StartOptions{Seed: EnvironmentSeed(r.Seed, ask.Update, ask.Task.ID)}
	t, err := r.playOnce(ctx, ask, o)
	if t != nil && t.again && err == nil {
		o.Alone = true
		return r.playOnce(ctx, ask, o)
	}
	return t, err
}

// playOnce plays one episode. Its errors are those of the policy and of the context.
func (r *collection) playOnce(ctx context.Context, ask Rollout, o StartOptions) (*Trajectory, error) {
	t := newTrajectory(ask.Task, OriginPolicy)
	t.Member, t.Update, t.Token = ask.Member, ask.Update, ask.Token
	env, err := r.Environment.Start(ctx, ask.Task, o)
	if err != nil {
		t.fail(err)
		return t, ctx.Err()
	}
	defer env.Close()
	t.open(env)
	var v bfcl.Verdict
	if r.Agent != nil {
		v, err = r.Agent.Play(ctx, ask, env, t)
		if err != nil && !errors.Is(err, ErrAgain) {
			return nil, err
		}
	} else {
		if err := r.converse(ctx, ask, env, t); err != nil || t.Stop == StopError {
			return t, err
		}
		v, err = env.Verdict(ctx)
	}
	if err != nil {
		t.fail(err)
	} else {
		t.judge(v)
	}
	return t, ctx.Err()
}

// converse plays an episode until it stops. Its errors are those of the policy and of the context.
func (r *collection) converse(ctx context.Context, ask Rollout, env Env, t *Trajectory) error {
	d, err := r.Policy.Open(ctx, ask)
	if err != nil {
		return err
	}
	defer d.Close()
	news := Message{Role: RoleUser, Turn: env.Turn(), Text: env.User()}
	for t.Stop == "" {
		r.waiting.Add(1)
		reply, err := d.Reply(ctx, t.first(news), env.Tools())
		r.waiting.Add(-1)
		if err != nil {
			return err
		}
		t.add(news, reply)
		t.Refusal = reply.Refusal
		if t.Stop = reply.Stop; t.Stop != "" { // a limit cut the reply short; an incomplete call is not executed
			break
		}
		turn := env.Turn()
		results, errs, err := env.Step(ctx, reply)
		t.Calls += len(results)
		t.Errors += errs
		switch {
		case err != nil:
			t.fail(err)
			return ctx.Err()
		case env.Done(): // the policy does not read results after the last turn
			t.Stop = env.Stop()
		case len(results) > 0:
			news = ToolMessage(turn, results)
		default:
			news = Message{Role: RoleUser, Turn: env.Turn(), Text: env.User()}
		}
	}
	return nil
}

// Stopwatch measures the time in which at least one of several activities is in progress.
type Stopwatch struct {
	mu    sync.Mutex
	n     int
	since time.Time
	total time.Duration
}

// Add counts activities that begin, or end with a negative n.
func (s *Stopwatch) Add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch before := s.n; {
	case before == 0:
		s.since = time.Now()
	case before+n == 0:
		s.total += time.Since(s.since)
	}
	s.n += n
}

// Total returns the time so far.
func (s *Stopwatch) Total() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n > 0 {
		return s.total + time.Since(s.since)
	}
	return s.total
}
