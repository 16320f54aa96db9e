package objective

import (
	"slices"

	"rcgrpo/stages/rl/blocks"
)

// WithoutEffect adds the settings of an objective that have no effect in combination with the others. An update
// has the given number of groups of the given size.
func (o *Objective) WithoutEffect(e blocks.Effects, groups, size int) {
	e.Add(o.Minibatches >= groups, "a step of at least as many tasks as batch is one step for the whole batch",
		"minibatches")
	o.ratioEffects(e, groups)
	o.lossEffects(e)
	o.klEffects(e)
	o.advantageEffects(e, size)
	e.Add(o.Correction.Off(), "sampler_correction.mode is off, so there are no weights", "sampler_correction.cap")
}

func (o *Objective) ratioEffects(e blocks.Effects, groups int) {
	e.Add(!o.RatiosVary(groups),
		"an update of one optimizer step has no ratio but 1; set minibatches below batch, or passes above 1",
		"ratio.log_clamp", "ratio.only_above", "clip.low", "clip.high", "clip.dual")
	e.Add(o.Ratio.LogClamp == 0, "it is about ratio.log_clamp, which is 0", "ratio.only_above")
	level := o.preset().Ratio.Level
	perToken := []string{"token", "sequence_mean"}
	e.Add(!o.RatiosVary(groups) && slices.Contains(perToken, o.Ratio.Level) && slices.Contains(perToken, level),
		"token and sequence_mean differ by their ratios, and an update of one optimizer step has no ratio but 1; set "+
			"minibatches below batch, or passes above 1", "ratio.level")
}

func (o *Objective) lossEffects(e blocks.Effects) {
	// If a trajectory is one term, its sum and mean are equal.
	same := func(l *Loss) bool { return l.Aggregate != "constant" && l.Rows == "all" && l.CountEps == 0 }
	e.Add(o.Ratio.Level == "trajectory" && same(o.Loss) && same(o.preset().Loss),
		"with ratio.level = trajectory each trajectory is one term, so their sums and means are equal; set ratio.level",
		"loss.aggregate")
	e.Add(o.Loss.Aggregate == "token_mean",
		"token_mean divides by the number of terms, whatever trajectories they are of", "loss.rows")
	e.Add(o.Loss.Aggregate != "constant", "it is the divisor of loss.aggregate = constant", "loss.scale")
	e.Add(o.Loss.Aggregate != "trajectory_mean", "it is added to the divisor of loss.aggregate = trajectory_mean",
		"loss.count_eps")
}

func (o *Objective) klEffects(e blocks.Effects) {
	k := o.KL
	e.Add(k.Beta == 0, "kl.beta is 0, so there is no KL term", "kl.estimator", "kl.place",
		"kl.aggregate", "kl.log_clamp", "kl.value_clamp")
	e.Add(k.Place == "reward", "what is subtracted from the reward is a sum over the trajectory and has no gradient",
		"kl.aggregate")
	e.Add(k.Estimator != "k3", "it bounds the log ratio of estimator k3", "kl.log_clamp")
	e.Add(k.Estimator == "exact", "the exact divergence is not clamped", "kl.value_clamp")
}

func (o *Objective) advantageEffects(e blocks.Effects, size int) {
	a := o.Advantage
	e.Add(a.Scale == "none", "advantage.scale is none, so nothing is divided by a deviation", "advantage.ddof",
		"advantage.eps")
	e.Add(size == 1 && a.Scale == "group_std", "a group of one has no deviation", "advantage.ddof")
}

// preset returns the objective whose values are the defaults of this one.
func (o *Objective) preset() Objective {
	if p, err := ProfileNamed(o.Profile); err == nil {
		return p
	}
	return PaperObjective()
}
