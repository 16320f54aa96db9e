package objective

import (
	"math"

	"rcgrpo/stages/rl"
)

// Chance returns the probability that the next rollout of a task under a token has reward 1, after n others of which
// k had.
type Chance func(n, k int) float64

// Known is the chance of a policy whose probability of success is known.
func Known(success float64) Chance { return func(int, int) float64 { return success } }

// Sampled draws without replacement from a number of sampled episodes. An expectation over such draws is an unbiased
// estimate of the expectation under the policy, if there are as many episodes as it draws.
func Sampled(episodes, right int) Chance {
	return func(n, k int) float64 { return float64(right-k) / float64(episodes-n) }
}

// successes returns the distribution of the number of successes of n rollouts [n+1].
func (c Chance) successes(n int) []float64 {
	d := make([]float64, n+1)
	d[0] = 1
	for drawn := range n {
		for k := drawn; k >= 0; k-- {
			if d[k] == 0 {
				continue
			}
			next := c(drawn, k)
			d[k+1] += d[k] * next
			d[k] *= 1 - next
		}
	}
	return d
}

// Update is the expected policy gradient of a task's groups, with rewards 0 and 1, in the first step of an update. Per
// rollout it is High ∇logit μ_h + Low ∇logit μ_l, where μ is the probability of success under a token
// (docs/training.md 6).
type Update struct {
	High, Low          float64
	Square             float64 // mean square of an advantage
	AllRight, AllWrong float64 // shares of groups
}

// Expect computes the expected update exactly, by enumerating the number of high tokens in a group and the successes
// under each token: O(G³) groups. With p = 1 there is no low token, and low is not called.
func (a *Advantage) Expect(allocation string, group int, p float64, high, low Chance) Update {
	var u Update
	size := float64(group)
	tokens, members, rewards := make([]string, group), make([]int, group), make([]float64, group)
	for n, weight := range tokenCounts(allocation, group, p) {
		if weight == 0 {
			continue
		}
		byHigh, byLow := high.successes(n), []float64{1}
		if n < group {
			byLow = low.successes(group - n)
		}
		for i := range tokens {
			tokens[i] = rl.TokenHigh
			if i >= n {
				tokens[i] = rl.TokenLow
			}
		}
		for right, chance := range byHigh {
			for rightLow, chanceLow := range byLow {
				w := weight * chance * chanceLow
				if w == 0 {
					continue
				}
				if right+rightLow == group {
					u.AllRight += w
				}
				if right+rightLow == 0 {
					u.AllWrong += w
				}
				for i := range rewards {
					rewards[i] = indicator(i < right || i >= n && i < n+rightLow)
				}
				for i, advantage := range a.Of(members, tokens, rewards) {
					// E[∇log π | reward] = (reward - μ) ∇logit μ
					if i < n {
						u.High += w * advantage * (rewards[i] - high(n, right)) / size
					} else {
						u.Low += w * advantage * (rewards[i] - low(group-n, rightLow)) / size
					}
					u.Square += w * advantage * advantage / size
				}
			}
		}
	}
	return u
}

// Add adds the update of another task.
func (u *Update) Add(o Update) {
	u.High += o.High
	u.Low += o.Low
	u.Square += o.Square
	u.AllRight += o.AllRight
	u.AllWrong += o.AllWrong
}

// Efficiency compares RC-GRPO with GRPO under high at equal numbers of rollouts. Transfer is
// ρ = ⟨∇logit μ_l, ∇logit μ_h⟩ / |∇logit μ_h|², the part of what low learns that reaches high.
type Efficiency struct {
	None, Full         float64 // gain of μ_h per update relative to GRPO's, by signal over noise, for ρ = 0 and 1
	Transfer           float64 // ρ at which it is 1; +Inf if no transfer suffices
	StepNone, StepFull float64 // ratio of the raw lengths of the expected updates along ∇logit μ_h, for ρ = 0 and 1
}

// EfficiencyOf compares the summed updates of the same tasks: of RC-GRPO, and of GRPO under high. The values are NaN if
// GRPO's expected update is 0.
func EfficiencyOf(conditioned, plain Update) Efficiency {
	e := Efficiency{StepNone: conditioned.High / plain.High, StepFull: (conditioned.High + conditioned.Low) / plain.High}
	noise := math.Sqrt(conditioned.Square / plain.Square)
	e.None, e.Full = e.StepNone/noise, e.StepFull/noise
	switch e.Transfer = (1 - e.None) / (e.Full - e.None); {
	case math.IsNaN(e.Full):
		e.Transfer = math.NaN()
	case e.Full <= e.None:
		e.Transfer = math.Inf(1)
	}
	return e
}

// ForecastEfficiency estimates the efficiency on tasks from a sampling run, under the names of Metrics, with 95 %
// intervals from the jackknife over tasks. It sums the tasks' expected updates, so it weighs tasks by their signal. It
// omits tasks with fewer than group + 1 episodes under a token, and returns no values for fewer than two tasks.
// Values that are not finite are left out.
func ForecastEfficiency(samples []TaskSample, a *Advantage, allocation string, group int,
	p float64) map[string]float64 {
	var conditioned, plain []Update
	allConditioned, allPlain := Update{}, Update{}
	v := map[string]float64{}
	grpo := *a
	grpo.Baseline = BaselineGroup
	for _, s := range samples {
		if s.High <= group || s.Low <= group {
			continue
		}
		high, low := Sampled(s.High, s.HighRight), Sampled(s.Low, s.LowRight)
		conditioned = append(conditioned, a.Expect(allocation, group, p, high, low))
		plain = append(plain, grpo.Expect(allocation, group, 1, high, nil))
		allConditioned.Add(conditioned[len(conditioned)-1])
		allPlain.Add(plain[len(plain)-1])
		v["forecast_reward_high"] += float64(s.HighRight) / float64(s.High)
		v["forecast_reward_low"] += float64(s.LowRight) / float64(s.Low)
	}
	n := float64(len(plain))
	if n < 2 {
		return map[string]float64{}
	}
	v["forecast_reward_high"] /= n
	v["forecast_reward_low"] /= n
	v["forecast_zero_variance_grpo"] = (allPlain.AllRight + allPlain.AllWrong) / n
	values := func(c, g Update) map[string]float64 {
		e := EfficiencyOf(c, g)
		return map[string]float64{"forecast_efficiency_none": e.None, "forecast_efficiency_full": e.Full,
			"forecast_transfer": e.Transfer, "forecast_step": e.StepFull}
	}
	without := map[string][]float64{}
	for i := range plain {
		c, g := allConditioned, allPlain
		c.Add(conditioned[i].times(-1))
		g.Add(plain[i].times(-1))
		for name, x := range values(c, g) {
			without[name] = append(without[name], x)
		}
	}
	for name, x := range values(allConditioned, allPlain) {
		half := 1.959963984540054 * math.Sqrt((n-1)*populationVariance(without[name]))
		if !math.IsNaN(half) && !math.IsInf(half, 0) && !math.IsNaN(x) && !math.IsInf(x, 0) {
			v[name], v[name+"_low"], v[name+"_high"] = x, x-half, x+half
		}
	}
	return v
}

func (u Update) times(x float64) Update {
	return Update{x * u.High, x * u.Low, x * u.Square, x * u.AllRight, x * u.AllWrong}
}
