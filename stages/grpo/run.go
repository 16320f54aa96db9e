//go:build libtorch

package grpo

import (
	"context"
	"fmt"
	"time"

	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/metrics"
	"rcgrpo/stages/rl"
)

// Run trains under the condition of the checkpoint, or the one that tokens { high } asks for.
func (s *grpo) Run(ctx context.Context, job *engine.Job) error {
	return s.run(ctx, job, func(p *checkpoint.Policy) (allocate, error) {
		switch s.Tokens.High {
		case 0:
			p.Condition = rl.TokenNone
		case 1:
			if p.Position == "" {
				return nil, fmt.Errorf("tokens { high = 1 }: this policy has never used reward tokens; start from rctp-ft, or leave high out")
			}
			p.Condition = rl.TokenHigh
		}
		return func(int, string) []string {
			tokens := make([]string, s.Group)
			for i := range tokens {
				tokens[i] = p.Condition
			}
			return tokens
		}, nil
	})
}

// Run trains with a reward token drawn per rollout; the checkpoint conditions on high at inference.
func (s *conditioned) Run(ctx context.Context, job *engine.Job) error {
	return s.run(ctx, job, func(p *checkpoint.Policy) (allocate, error) {
		position := s.Tokens.Position
		if position == "checkpoint" {
			if position = p.Position; position == "" {
				position = rl.FirstUser
			}
		}
		if err := p.UseTokens(position, s.Tokens.Init); err != nil {
			return nil, err
		}
		p.Trained, p.Condition = true, rl.TokenHigh
		return func(update int, task string) []string {
			return rl.AllocateTokens(s.Tokens.Allocation, s.Tokens.High, s.Group, uint64(job.Seed), update, task)
		}, nil
	})
}

// allocate gives the reward tokens of a group [G].
type allocate func(update int, task string) []string

// run trains the policy that prepare sets up.
func (s *settings) run(ctx context.Context, job *engine.Job, prepare func(*checkpoint.Policy) (allocate, error)) error {
	policy, err := checkpoint.Open(job, s.Policy)
	if err != nil {
		return err
	}
	defer policy.Close()
	tokens, err := prepare(policy)
	if err != nil {
		return err
	}
	tasks, err := checkpoint.ReadTasks(job, s.Tasks)
	if err != nil {
		return err
	}
	if len(tasks) == 0 {
		return fmt.Errorf("the set of tasks is empty")
	}
	t := &training{settings: s, job: job, policy: policy, tasks: tasks, tokens: tokens}
	if err := t.open(); err != nil {
		return err
	}
	defer t.close()
	for u := 1; u <= s.Updates; u++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.update(ctx, u); err != nil {
			return fmt.Errorf("update %d: %w", u, err)
		}
	}
	if err := t.finish(); err != nil {
		return err
	}
	dir, err := job.Create("checkpoint")
	if err != nil {
		return err
	}
	return policy.Save(dir)
}

// training is the state of a run.
type training struct {
	*settings
	job       *engine.Job
	policy    *checkpoint.Policy
	tasks     []*bfcl.Task
	tokens    allocate
	reference *lm.Model // nil when the objective needs none
	trainer   *lm.Trainer
	sampler   *checkpoint.Sampler
	log       *metrics.Log
	kept      *artifact.RowWriter[*rl.Trajectory]

	order []int // of the tasks in the current pass
	pass  int
	taken int // tasks taken in all passes
}

// open loads what training needs beside the policy.
func (t *training) open() error {
	var err error
	if t.NeedsReference() {
		if t.reference, err = t.policy.Model.Clone(); err != nil {
			return err
		}
	}
	if t.trainer, err = t.policy.Trainer(*t.Optimizer); err != nil {
		return err
	}
	if t.sampler, err = t.policy.Sampler(t.job, t.tasks, *t.Limits, t.Temperature); err != nil {
		return err
	}
	if t.log, err = metrics.Create(t.job); err != nil {
		return err
	}
	dir, err := t.job.Create("trajectories")
	if err != nil {
		return err
	}
	t.kept, err = artifact.CreateRows[*rl.Trajectory](dir, rl.TrajectoriesFile)
	return err
}

func (t *training) finish() error {
	if err := t.kept.Close(); err != nil {
		return err
	}
	return t.log.Close()
}

// close frees everything; after finish the files are closed already.
func (t *training) close() {
	if t.kept != nil {
		t.kept.Close()
	}
	if t.log != nil {
		t.log.Close()
	}
	if t.sampler != nil {
		t.sampler.Close()
	}
	if t.trainer != nil {
		t.trainer.Close()
	}
	if t.reference != nil {
		t.reference.Close()
	}
}

// next takes n tasks. Passes over the tasks are shuffled anew; the order is a function of seed and number of tasks taken.
func (t *training) next(n int) []*bfcl.Task {
	out := make([]*bfcl.Task, 0, n)
	for range n {
		at := t.taken % len(t.tasks)
		if at == 0 {
			t.order = t.job.Rand(fmt.Sprintf("order of tasks, pass %d", t.pass)).Perm(len(t.tasks))
			t.pass++
		}
		out = append(out, t.tasks[t.order[at]])
		t.taken++
	}
	return out
}

// update samples groups, learns from them once, and logs.
func (t *training) update(ctx context.Context, u int) error {
	start := time.Now()
	trajectories, sampled, err := t.sample(ctx, u)
	if err != nil {
		return err
	}
	rollout := time.Since(start)
	start = time.Now()
	b := newBatch(&t.Objective, trajectories, t.Group)
	rate := t.Schedule.Rate(u-1, t.Updates, t.LR)
	outcome, stats, norm, err := t.learn(ctx, t.trainer, t.reference, b, rate)
	if err != nil {
		return err
	}
	learned := time.Since(start)
	row := rl.Metric{Update: u, Values: t.values(b, outcome, stats, norm, rate)}
	row.Values["groups_sampled"] = float64(sampled)
	if err := t.log.Write(row, map[string]float64{"rollout_s": rollout.Seconds(), "update_s": learned.Seconds(),
		"tokens_per_s": row.Values["tokens"] / (rollout + learned).Seconds()}); err != nil {
		return err
	}
	if t.Keep > 0 && u%t.Keep == 0 {
		for _, tr := range trajectories {
			if err := t.kept.Write(tr); err != nil {
				return err
			}
		}
	}
	t.job.Progress(u, t.Updates, "updates", engine.Value{Name: "reward", Value: row.Values["reward"]},
		engine.Value{Name: "zero-variance", Value: row.Values["zero_variance"]})
	return nil
}

// rounds bounds how often zero_variance = "resample" draws tasks anew for one update; after that what there is counts.
const rounds = 4

// sample collects the groups of an update and says how many it took. With zero_variance = "resample", groups of equal
// rewards make room for groups of further tasks.
func (t *training) sample(ctx context.Context, u int) ([]*rl.Trajectory, int, error) {
	var kept, equal []*rl.Trajectory
	sampled := 0
	for range rounds {
		tasks := t.next(t.Batch - len(kept)/t.Group)
		trajectories, _, err := t.sampler.Collect(ctx, t.rollouts(u, tasks), nil)
		if err != nil {
			return nil, 0, err
		}
		sampled += len(tasks)
		if t.ZeroVariance != "resample" {
			return trajectories, sampled, nil
		}
		for g := 0; g < len(trajectories); g += t.Group {
			members := trajectories[g : g+t.Group]
			if equalRewards(members) {
				equal = append(equal, members...)
			} else {
				kept = append(kept, members...)
			}
		}
		if len(kept) == t.Batch*t.Group {
			break
		}
	}
	return append(kept, equal[:t.Batch*t.Group-len(kept)]...), sampled, nil
}

// rollouts asks for a group of episodes of each task.
func (t *training) rollouts(u int, tasks []*bfcl.Task) []rl.Rollout {
	var list []rl.Rollout
	for _, task := range tasks {
		for i, token := range t.tokens(u, task.ID) {
			list = append(list, rl.Rollout{Task: task, Update: u, Member: i, Token: token})
		}
	}
	return list
}
