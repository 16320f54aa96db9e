//go:build libtorch

package sampling

import (
	"context"
	"fmt"
	"strconv"

	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/stages/internal/agent"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/ranks"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// Episodes configures the episodes of a stage that only samples.
type Episodes struct {
	Token             string // setting token
	Official          bool   // prompts of the official handlers; see chat.Official
	Samples           int    // per task
	Temperature, TopP float64
	Limits            *blocks.Limits
	Arithmetic        blocks.Arithmetic
	Agent             *agent.Settings // plays the episodes; nil: none
}

// Run samples the tasks with the policy of stage. It writes the port trajectories and returns them in the order of the
// tasks.
func (e Episodes) Run(ctx context.Context, job *engine.Job, stage checkpoint.MemoryUser, tasks []*bfcl.Task) (
	[]*rl.Trajectory, error) {
	use, err := checkpoint.PlanMemory(job, stage)
	if err != nil {
		return nil, err
	}
	ref, _ := stage.MemoryUse()
	policy, err := checkpoint.Open(job, ref, use)
	if err != nil {
		return nil, err
	}
	defer policy.Close()
	token, err := policy.Resolve(e.Token)
	if err != nil {
		return nil, err
	}
	collector, err := Open(ctx, job, policy, tasks, *e.Limits, e.Temperature, e.TopP)
	if err != nil {
		return nil, err
	}
	defer collector.Close(job)
	if err := collector.UseAgent(e.Agent, policy, job, tasks); err != nil {
		return nil, err
	}
	if e.Official {
		settings, err := bfcl.SettingsFor(tasks, job.Site.BFCL)
		if err != nil {
			return nil, err
		}
		if collector.Policy, err = chat.NewOfficial(collector.Local, settings.Data); err != nil {
			return nil, err
		}
	}
	var rollouts []rl.Rollout
	for _, task := range tasks {
		for i := range e.Samples {
			rollouts = append(rollouts, rl.Rollout{Task: task, Member: i, Token: token})
		}
	}
	peers, err := checkpoint.Join(job, ranks.Fact{Name: "episodes", Value: strconv.Itoa(len(rollouts))},
		ranks.Fact{Name: "shape", Value: fmt.Sprintf("%+v", policy.Model.Config())})
	if err != nil {
		return nil, err
	}
	defer peers.Group.Close()
	dealt, err := collector.Sample(ctx, job, ranks.Dealt(peers.Rank, rollouts))
	if err = checkpoint.Sync(ctx, peers.Rank, "rollout", err); err != nil {
		return nil, err
	}
	trajectories, err := ranks.Merge(peers.Rank, dealt, len(rollouts))
	if err != nil || job.Rank > 0 {
		return trajectories, err
	}
	return trajectories, WriteTrajectories(job, trajectories)
}
