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
	Baseline string   `hcl:"baseline,optional" choices:"group_mean|leave_one_out" doc:"subtracted from the reward:"`
	_        struct{} `doc:"the mean of its group (paper, eq. 6), or of its other members (RLOO, NeMo-RL)"`
	Scale    string   `hcl:"scale,optional" choices:"group_std|batch_std|others_std|token_whiten|none" doc:"divisor:"`
	_        struct{} `doc:"standard deviation of the group (paper, eq. 6), of the batch's rewards (TRL batch), of"`
	_        struct{} `doc:"the group's other members unless it is 0 (NeMo-RL); token_whiten centers and scales over"`
	_        struct{} `doc:"the batch's action tokens (OpenRLHF reinforce_baseline); none divides by nothing (Dr."`
	_        struct{} `doc:"GRPO)"`
	DDOF     int      `hcl:"ddof,optional" doc:"0: population deviation (paper, eq. 6), 1: sample (verl, TRL)"`
	Eps      float64  `hcl:"eps,optional" doc:"added to the standard deviation, after the root (paper, eq. 6,"`
	_        struct{} `doc:"without a value; verl 1e-6, TRL 1e-4, OpenRLHF 1e-9)"`
	Floor    float64  `hcl:"floor,optional" doc:"minimal variance before the root (verl's vectorized variant 1e-6,"`
	_        struct{} `doc:"OpenRLHF's whitening 1e-8)"`
	Missing  string   `hcl:"missing,optional" choices:"leave_out|spread" doc:"an episode without a reward,"`
	_        struct{} `doc:"because its environment failed: leave_out drops it (TRL), spread drops its whole"`
	_        struct{} `doc:"group (NaN in verl). If more than 5 % of an update have none, the stage fails"`
	Lone     string   `hcl:"lone,optional" choices:"formula|reward|zero" doc:"advantage in a group with one reward:"`
	_        struct{} `doc:"by the formula (none if that is NaN), the reward as if mean 0 and deviation 1 (verl;"`
	_        struct{} `doc:"needed for group = 1), or 0 (NeMo-RL)"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// Check reports values out of range.
func (a *Advantage) Check() (diags hcl.Diagnostics) {
	bad := blocks.Mistakes(&diags)
	bad(a.DDOF != 0 && a.DDOF != 1, "No such standard deviation", a.At["ddof"],
		"ddof is 0 (population) or 1 (sample); got %d.", a.DDOF)
	bad(a.Scale == "others_std" && a.Baseline != "leave_one_out", "Scale needs its baseline", a.At["scale"],
		"scale = \"others_std\" divides by the deviation of the members in baseline = \"leave_one_out\"; got "+
			"baseline = %q.", a.Baseline)
	bad(a.Eps < 0, "Negative eps", a.At["eps"],
		"eps keeps the divisor above 0, so it cannot be negative; got %v.", a.Eps)
	return diags
}

// Of returns one advantage per trajectory [n], each with a reward. group [n] assigns trajectories to groups, whose
// members need not be adjacent. length [n] counts action tokens and is read by token_whiten only. A group of equal
// rewards gets 0 up to rounding, exactly 0 for 0/1 rewards.
func (a *Advantage) Of(group []int, rewards []float64, length []int) []float64 {
	out, everyone := make([]float64, len(rewards)), indices(0, len(rewards))
	for _, members := range groupsOf(everyone, group) {
		a.center(members, rewards, out)
	}
	switch a.Scale {
	case "batch_std":
		divide(out, everyone, a.deviation(everyone, rewards)+a.Eps)
	case "token_whiten":
		a.whiten(out, length)
	}
	return out
}

// center subtracts the baseline of one group and divides by its deviation if the scale is per group.
func (a *Advantage) center(members []int, rewards, out []float64) {
	switch i := members[0]; {
	case len(members) == 1 && a.Lone == "zero":
		out[i] = 0
		return
	case len(members) == 1 && a.Lone == "reward":
		out[i] = rewards[i]
		if a.Scale == "group_std" {
			out[i] /= 1 + a.Eps
		}
		return
	}
	average := mean(members, rewards)
	for _, i := range members {
		out[i] = rewards[i] - average
	}
	if a.Baseline == "leave_one_out" {
		for j, i := range members {
			others := slices.Concat(members[:j], members[j+1:])
			out[i] = rewards[i] - mean(others, rewards)
			if a.Scale == "others_std" {
				if s := a.deviation(others, rewards); s > 0 {
					out[i] /= s + a.Eps
				}
			}
		}
	}
	if a.Scale == "group_std" {
		divide(out, members, a.deviation(members, rewards)+a.Eps)
	}
}

// mean averages the rewards of members; it is NaN without members.
func mean(members []int, rewards []float64) float64 {
	sum := 0.0
	for _, i := range members {
		sum += rewards[i]
	}
	return sum / float64(len(members))
}

// deviation returns the standard deviation with the ddof and floor of the settings.
func (a *Advantage) deviation(members []int, rewards []float64) float64 {
	average, sum := mean(members, rewards), 0.0
	for _, i := range members {
		sum += (rewards[i] - average) * (rewards[i] - average)
	}
	variance := sum / float64(len(members)-a.DDOF)
	if len(members) == 1 && a.DDOF == 1 && a.Missing == "leave_out" {
		variance = 0
	}
	return math.Sqrt(max(variance, a.Floor))
}

// whiten centers and scales over all action tokens of the batch with the population deviation.
func (a *Advantage) whiten(out []float64, length []int) {
	n, sum := 0.0, 0.0
	for i, v := range out {
		n += float64(length[i])
		sum += v * float64(length[i])
	}
	mean, square := sum/n, 0.0
	for i, v := range out {
		square += (v - mean) * (v - mean) * float64(length[i])
	}
	scale := 1 / math.Sqrt(max(square/n, a.Floor))
	for i := range out {
		out[i] = (out[i] - mean) * scale
	}
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

// OfEpisodes returns the advantages of trajectories [n] in groups of a size, from their rewards minus a penalty
// each [n] (nil for none), and the trajectories to skip (nil for none). An episode without a reward is skipped;
// with missing = "spread" its whole group is. The advantage of a skipped trajectory is 0 and enters no mean and
// no deviation.
func (a *Advantage) OfEpisodes(
	trajectories []*rl.Trajectory, size int, penalty []float64, length []int,
) (advantages []float64, skip []bool) {
	var kept, group, tokens []int
	var rewards []float64
	for i, t := range trajectories {
		first := i / size * size
		members := trajectories[first:min(first+size, len(trajectories))]
		if t.Reward.Missing() || a.Missing == "spread" && slices.ContainsFunc(members, missing) {
			continue
		}
		reward := float64(t.Reward)
		if penalty != nil {
			reward -= penalty[i]
		}
		kept, group = append(kept, i), append(group, i/size)
		tokens, rewards = append(tokens, length[i]), append(rewards, reward)
	}
	computed := a.Of(group, rewards, tokens)
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
// and, with zero_variance = "mask", groups of equal rewards. The penalty does not affect which groups are equal.
func (o *Objective) Advantages(
	trajectories []*rl.Trajectory, size int, penalty []float64, length []int,
) (advantages []float64, skip []bool) {
	advantages, skip = o.Advantage.OfEpisodes(trajectories, size, penalty, length)
	if o.ZeroVariance != "mask" {
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

func missing(t *rl.Trajectory) bool { return t.Reward.Missing() }

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
