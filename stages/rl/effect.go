package rl

import "slices"

// effects collects settings without effect: the reason by the setting's name.
type effects map[string]string

func (e effects) add(when bool, why string, names ...string) {
	if !when {
		return
	}
	for _, name := range names {
		if e[name] == "" { // the first reason is the more general one
			e[name] = why
		}
	}
}

// WithoutEffect lists the settings of an objective that change nothing while the others are as they are, by name, each
// with the reason. An update has the given number of groups of the given size.
func (o *Objective) WithoutEffect(groups, size int) map[string]string {
	e := effects{}
	e.add(o.Minibatches >= groups, "a step of at least as many tasks as batch is one step for the whole batch", "minibatches")
	o.ratioEffects(e, groups)
	o.lossEffects(e)
	o.klEffects(e, groups)
	o.advantageEffects(e, size)
	return e
}

func (o *Objective) ratioEffects(e effects, groups int) {
	e.add(!o.RatiosVary(groups), "an update of one optimizer step has no ratio but 1; set minibatches below batch, or passes above 1",
		"ratio.log_clamp", "ratio.only_above", "clip.low", "clip.high", "clip.dual", "clip.cap")
	e.add(o.Ratio.LogClamp == 0, "it is about ratio.log_clamp, which is 0", "ratio.only_above")
	level := o.preset().Ratio.Level
	perToken := []string{"token", "sequence_mean"}
	e.add(!o.RatiosVary(groups) && slices.Contains(perToken, o.Ratio.Level) && slices.Contains(perToken, level),
		"token and sequence_mean differ by their ratios, and an update of one optimizer step has no ratio but 1; set minibatches below batch, or passes above 1", "ratio.level")
}

func (o *Objective) lossEffects(e effects) {
	// Where a trajectory is one term, its sum and its mean are the term.
	same := func(l *Loss) bool { return l.Aggregate != "constant" && l.Rows == "all" && l.CountEps == 0 }
	e.add(o.Ratio.Level == "trajectory" && same(o.Loss) && same(o.preset().Loss),
		"with ratio.level = trajectory each trajectory is one term, so their sums and means are equal; set ratio.level", "loss.aggregate")
	e.add(o.Loss.Aggregate == "token_mean", "token_mean divides by the number of terms, whatever trajectories they are of", "loss.rows")
	e.add(o.Loss.Aggregate != "constant", "it is the divisor of loss.aggregate = constant", "loss.scale")
	e.add(o.Loss.Aggregate != "trajectory_mean", "it is added to the divisor of loss.aggregate = trajectory_mean", "loss.count_eps")
}

func (o *Objective) klEffects(e effects, groups int) {
	k := o.KL
	e.add(k.Beta == 0, "kl.beta is 0, so there is no KL term", "kl.estimator", "kl.gradient", "kl.place", "kl.aggregate", "kl.weighted", "kl.log_clamp", "kl.value_clamp")
	e.add(k.Place == "reward", "what is subtracted from the reward is a sum over the trajectory and has no gradient", "kl.gradient", "kl.aggregate", "kl.weighted")
	e.add(k.Estimator != "k3", "it bounds the log ratio of estimator k3", "kl.log_clamp")
	e.add(k.Estimator == "exact", "the exact divergence is not clamped", "kl.value_clamp")
	e.add(k.Estimator == "k2" && k.ValueClamp == 0 && !k.Weighted && (k.Gradient != "importance" || o.Steps(groups) == 1),
		"k2 has this gradient by itself", "kl.gradient")
}

func (o *Objective) advantageEffects(e effects, size int) {
	a := o.Advantage
	e.add(a.Scale == "none", "advantage.scale is none, so nothing is divided by a deviation", "advantage.ddof", "advantage.eps", "advantage.floor")
	e.add(a.Scale == "token_whiten", "token_whiten divides by the population deviation over tokens, at least floor", "advantage.ddof", "advantage.eps")
	e.add(size > 1 && a.Missing == "spread", "groups have more than one member, and missing = spread leaves none out", "advantage.lone")
}

// preset is the objective whose values are the defaults of this one.
func (o *Objective) preset() Objective {
	if p, err := ProfileNamed(o.Profile); err == nil {
		return p
	}
	return PaperObjective()
}

// WithoutEffect names the settings of a schedule without effect.
func (s *Schedule) WithoutEffect() map[string]string {
	e := effects{}
	e.add(s.Shape == "constant", "a constant rate does not fall", "final")
	return e
}
