package objective

import (
	"math"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// Advantage configures how rewards become advantages. The paper (eq. 6): reward minus the mean of the group,
// divided by its population standard deviation plus eps. Profiles lists the conventions of other trainers.
type Advantage struct {
	// divisor: standard deviation of the group (paper, eq. 6), or none (Dr. GRPO)
	Scale string `hcl:"scale,optional" choices:"group_std|none"`
	// the deviation divides by G - ddof: 0 is the population's (paper, eq. 6), 1 the sample's (verl, TRL)
	DDOF int `hcl:"ddof,optional"`
	// added to the standard deviation before it divides, so after the root (paper, eq. 6, without a value; verl 1e-6,
	// TRL 1e-4, OpenRLHF 1e-9)
	Eps float64 `hcl:"eps,optional"`
	// advantage in a group with one reward: by the formula (none if that is NaN), the reward as if mean 0 and
	// deviation 1 (verl; needed for group = 1), or 0 (NeMo-RL)
	Lone string `hcl:"lone,optional" choices:"formula|reward|zero"`

	// Baseline "token" subtracts from each reward the mean of the group's rollouts with the same reward token, in place
	// of the mean of the group. rc-grpo sets it (tokens.baseline); plain GRPO has no tokens.
	Baseline string

	At map[string]hcl.Range `hcl:",ranges"`
}

// Baselines of an advantage.
const (
	BaselineGroup = "group" // mean of the group (paper, eq. 6); also the meaning of ""
	BaselineToken = "token" // mean of the members with the same reward token
)

// Check reports values out of range.
func (a *Advantage) Check() (diags hcl.Diagnostics) {
	bad := blocks.Mistakes(&diags)
	bad(a.DDOF != 0 && a.DDOF != 1, "No such standard deviation", a.At["ddof"],
		"ddof is 0 (population) or 1 (sample); got %d.", a.DDOF)
	bad(a.Eps < 0, "Negative eps", a.At["eps"],
		"eps keeps the divisor above 0, so it cannot be negative; got %v.", a.Eps)
	return diags
}

// Of returns one advantage per trajectory [n], each with a reward. group [n] assigns trajectories to groups, whose
// members need not be adjacent, and token [n] contains their reward tokens; only the baseline "token" reads it. A group
// of equal rewards gets 0 up to rounding, exactly 0 for 0/1 rewards.
func (a *Advantage) Of(group []int, token []string, rewards []float64) []float64 {
	out := make([]float64, len(rewards))
	for _, members := range groupsOf(indices(0, len(rewards)), group) {
		a.center(members, token, rewards, out)
	}
	return out
}

// center subtracts the baseline of one group and divides by the deviation from it if the scale is per group. A member
// that is alone with its token gets 0 with the baseline "token".
func (a *Advantage) center(members []int, token []string, rewards, out []float64) {
	if len(members) == 1 && (a.Lone == "zero" || a.Lone == "reward") {
		out[members[0]] = a.lone(rewards[members[0]])
		return
	}
	same := [][]int{members}
	if a.Baseline == BaselineToken {
		same = groupsOf(members, ids(token))
	}
	for _, equal := range same {
		average := mean(equal, rewards)
		for _, i := range equal {
			out[i] = rewards[i] - average
		}
	}
	if a.Scale == "group_std" {
		divide(out, members, a.deviation(members, out)+a.Eps)
	}
}

// lone returns the advantage of the only member of a group, for the settings other than the formula.
func (a *Advantage) lone(reward float64) float64 {
	switch {
	case a.Lone == "zero":
		return 0
	case a.Scale == "group_std":
		return reward / (1 + a.Eps)
	}
	return reward
}

// ids numbers different texts in the order of their first occurrence.
func ids(texts []string) []int {
	numbers, out := map[string]int{}, make([]int, len(texts))
	for i, text := range texts {
		if _, known := numbers[text]; !known {
			numbers[text] = len(numbers)
		}
		out[i] = numbers[text]
	}
	return out
}

// mean averages the rewards of members; it is NaN without members.
func mean(members []int, rewards []float64) float64 {
	sum := 0.0
	for _, i := range members {
		sum += rewards[i]
	}
	return sum / float64(len(members))
}

// deviation returns the standard deviation of rewards minus their baseline with the ddof of the settings, 0 for one
// member.
func (a *Advantage) deviation(members []int, centered []float64) float64 {
	sum := 0.0
	for _, i := range members {
		sum += centered[i] * centered[i]
	}
	variance := sum / float64(len(members)-a.DDOF)
	if len(members) == 1 {
		variance = 0
	}
	return math.Sqrt(variance)
}

func divide(out []float64, members []int, by float64) {
	for _, i := range members {
		out[i] /= by
	}
}

// indices returns from, from+1, ..., to-1.
func indices(from, to int) []int {
	all := make([]int, to-from)
	for i := range all {
		all[i] = from + i
	}
	return all
}

// groupsOf divides indices by the groups that group assigns to them, in the order of first occurrence.
func groupsOf(all, group []int) (groups [][]int) {
	place := map[int]int{}
	for _, i := range all {
		at, ok := place[group[i]]
		if !ok {
			at = len(groups)
			place[group[i]] = at
			groups = append(groups, nil)
		}
		groups[at] = append(groups[at], i)
	}
	return groups
}

// OfEpisodes returns the advantages of trajectories [n] in groups of a size, from their shaped rewards [n], and the
// trajectories to skip (nil for none). An episode without a reward is skipped. The advantage of a skipped trajectory
// is 0 and enters no mean and no deviation.
func (a *Advantage) OfEpisodes(trajectories []*rl.Trajectory, size int, shaped []float64) (
	advantages []float64, skip []bool) {
	var kept, group []int
	var token []string
	var rewards []float64
	for i, t := range trajectories {
		if t.Reward.Missing() {
			continue
		}
		kept = append(kept, i)
		group = append(group, i/size)
		token = append(token, t.Token)
		rewards = append(rewards, shaped[i])
	}
	computed := a.Of(group, token, rewards)
	if len(kept) == len(trajectories) {
		return computed, nil
	}
	advantages, skip = make([]float64, len(trajectories)), slices.Repeat([]bool{true}, len(trajectories))
	for j, i := range kept {
		// The only member of a group with a reward may get NaN, depending on the settings.
		if !math.IsNaN(computed[j]) {
			advantages[i], skip[i] = computed[j], false
		}
	}
	return advantages, skip
}

// Advantages returns the advantages of an update and the trajectories to skip (nil for none): those of OfEpisodes
// and, with zero_variance = "skip", groups of equal rewards. Neither reward terms nor the KL penalty affect which
// groups are equal.
func (o *Objective) Advantages(trajectories []*rl.Trajectory, size int, klPenalty []float64) (
	advantages []float64, skip []bool) {
	advantages, skip = o.Advantage.OfEpisodes(trajectories, size, o.ShapedRewards(trajectories, klPenalty))
	if o.ZeroVariance != "skip" {
		return advantages, skip
	}
	if skip == nil {
		skip = make([]bool, len(trajectories))
	}
	for i := range skip {
		first := i / size * size
		skip[i] = skip[i] || EqualRewards(trajectories[first:min(first+size, len(trajectories))])
	}
	return advantages, skip
}

func groupRewards(members []*rl.Trajectory) []float64 {
	var rewards []float64
	for _, t := range members {
		if !t.Reward.Missing() {
			rewards = append(rewards, float64(t.Reward))
		}
	}
	return rewards
}

// EqualRewards reports whether all rewards of a group are equal, ignoring missing ones.
func EqualRewards(members []*rl.Trajectory) bool {
	rewards := groupRewards(members)
	return len(rewards) == 0 || slices.Min(rewards) == slices.Max(rewards)
}
