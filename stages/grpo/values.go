//go:build libtorch

package grpo

import (
	"math"

	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/rl"
)

// values is the metrics row of an update, under the names of rl.Metrics.
func (s *settings) values(b *batch, o *rl.Outcome, stats lm.TokenStats, norm, rate float64) map[string]float64 {
	v := rl.GroupsOf(b.trajectories, s.Group).Diagnose()
	rl.DescribeEpisodes(b.trajectories, v)
	rl.DescribeRatios(o.LogRatio, v)
	if stats.LogpRef != nil {
		rl.DescribeKL(stats.Logp, stats.LogpRef, stats.KL, v)
	}
	v["mean_abs_advantage"], v["effective_sample_size"] = rl.AdvantageSizes(b.advantages)
	v["loss"], v["kl"], v["grad_norm"], v["lr"], v["clip_fraction"] = o.Loss, o.KL, norm, rate, o.ClipFraction()
	for i, logp := range stats.Logp {
		v["entropy"] += stats.Entropy[i] / float64(len(stats.Logp))
		v["sampler_gap"] = max(v["sampler_gap"], math.Abs(logp-b.logpSampled[i]))
	}
	return v
}
