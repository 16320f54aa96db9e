//go:build libtorch

package grpo

import (
	"context"
	"fmt"
	"maps"

	"rcgrpo/bfcl"
	"rcgrpo/engine/artifact"
	"rcgrpo/stages/internal/sampling"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/objective"
)

// readSets reads sets of tasks, none empty, as one list.
func (t *training) readSets(refs []artifact.Ref) (tasks []*bfcl.Task, err error) {
	for _, ref := range refs {
		set, err := sampling.ReadTasks(t.run.Job, ref)
		if err != nil {
			return nil, err
		}
		if len(set) == 0 {
			return nil, fmt.Errorf("the set of tasks stage.%s.%s.%s is empty", ref.Kind, ref.Name, ref.Port)
		}
		tasks = append(tasks, set...)
	}
	return tasks, nil
}

// evaluate samples the held-out tasks under the condition of the checkpoint. It returns their mean reward, which
// decides which policy is the best, and adds it to v.
func (t *training) evaluate(ctx context.Context, u int, v map[string]float64) (reward float64, err error) {
	policy, collector := *t.episodes.Local, *t.episodes.Collector
	policy.Temperature, policy.TopP = t.settings.Evaluate.Temperature, 1
	collector.Policy = &policy
	if t.settings.Agent != nil {
		collector.Agent = t.episodes.Gateway.With(&policy)
	}
	rollouts := make([]rl.Rollout, len(t.heldOut))
	for i, task := range t.heldOut {
		rollouts[i] = rl.Rollout{Task: task, Update: u, Token: t.run.Policy.Condition}
	}
	got, err := t.spread(ctx, rollouts, 1, func(dealt []rl.Rollout) ([]*rl.Trajectory, error) {
		got, _, err := collector.Collect(ctx, dealt, nil)
		return got, err
	})
	if err != nil {
		return 0, err
	}
	if got, err = rl.Rewarded(got); err != nil {
		return 0, err
	}
	official := 0.0
	for _, e := range got {
		reward += float64(e.Reward) / float64(len(got))
		if e.Official {
			official += 1 / float64(len(got))
		}
	}
	v["eval_reward"], v["eval_official"] = reward, official
	return reward, nil
}

// forecast samples training tasks under each token and forecasts the share of the first update's groups without
// variance. Its episodes belong to update 0, so no training episode is sampled twice.
func (t *training) forecast(ctx context.Context, v map[string]float64) error {
	tasks := subset(t.groups.course.tasks, t.settings.Forecast.Tasks, t.run.Job.Rand("tasks of the forecast").Perm)
	samples, err := t.tokens.successes(ctx, tasks, t.settings.Forecast.Samples,
		func(ctx context.Context, list []rl.Rollout) ([]*rl.Trajectory, error) {
			return t.spread(ctx, list, 1, func(dealt []rl.Rollout) ([]*rl.Trajectory, error) {
				got, _, err := t.episodes.Collect(ctx, dealt, nil)
				return got, err
			})
		})
	if err != nil {
		return err
	}
	f := objective.ForecastZeroVariance(samples, t.tokens.allocation, t.settings.Group, t.tokens.p)
	v["forecast_zero_variance"], v["forecast_all_right"], v["forecast_all_wrong"] = f.ZeroVariance, f.AllRight, f.AllWrong
	v["forecast_low"], v["forecast_high"] = f.Band(t.settings.Batch)
	t.run.Job.Logf("forecast of the first update: %.3f of its groups without variance, 95 %% band %.3f to %.3f, from "+
		"%d tasks", f.ZeroVariance, v["forecast_low"], v["forecast_high"], len(tasks))
	if t.tokens.p == 1 || t.tokens.p == 0 {
		return nil
	}
	maps.Copy(v, objective.ForecastEfficiency(samples, t.settings.Advantage, t.tokens.allocation, t.settings.Group,
		t.tokens.p))
	if needed, ok := v["forecast_transfer"]; ok {
		t.run.Job.Logf("reward conditioning is expected to help on these tasks only if low's learning transfers to high "+
			"by more than %.2f (95 %% interval %.2f to %.2f; 1 is full transfer): success is %.2f under high and %.2f under "+
			"low, and the gain per update is %.2f times GRPO's without transfer, %.2f with full transfer",
			needed, v["forecast_transfer_low"], v["forecast_transfer_high"], v["forecast_reward_high"],
			v["forecast_reward_low"], v["forecast_efficiency_none"], v["forecast_efficiency_full"])
	}
	return nil
}

func describeSampling(s rl.CollectStats, times map[string]float64) {
	times["model_s"], times["waiting_s"] = s.InPolicy.Seconds(), s.InWaiting.Seconds()
	if wall := s.Wall.Seconds(); wall > 0 {
		times["waiting_share"] = s.InWaiting.Seconds() / wall
		times["sampled_tokens_per_s"] = float64(s.Sampled) / wall
	}
}
