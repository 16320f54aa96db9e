package objective

import (
	"fmt"
	"math"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/stages/rl"
)

// Advantage says how a reward becomes an advantage. The paper (eq. for A_i): reward less the group's mean, over the
// group's population standard deviation plus eps. Other conventions are settings of the same struct; see Profiles.
type Advantage struct {
	Baseline string  `hcl:"baseline,optional" choices:"group_mean|leave_one_out" doc:"what a reward is compared with: the mean of its group (paper, eq. 6), or of the other members (RLOO, NeMo-RL)"`
	Scale    string  `hcl:"scale,optional" choices:"group_std|batch_std|others_std|token_whiten|none" doc:"divisor: standard deviation of the group (paper, eq. 6), of the batch's rewards (TRL batch), of the group's other members unless it is 0 (NeMo-RL); token_whiten also centres over the batch's action tokens (OpenRLHF reinforce_baseline); none is Dr. GRPO"`
	DDOF     int     `hcl:"ddof,optional" doc:"0: population standard deviation (paper, eq. 6), 1: sample (verl, TRL, OpenRLHF)"`
	Eps      float64 `hcl:"eps,optional" doc:"added to the standard deviation, after the root (paper, eq. 6, without a value; verl 1e-6, TRL 1e-4, OpenRLHF 1e-9)"`
	Floor    float64 `hcl:"floor,optional" doc:"least variance before the root (verl's vectorised variant 1e-6, OpenRLHF's whitening 1e-8)"`
	Missing  string  `hcl:"missing,optional" choices:"leave_out|spread" doc:"the environment failed in an episode, so that its reward is missing: leave_out computes mean and deviation from the other members and the update goes on without the episode (TRL), spread leaves its whole group out (its advantages are NaN in verl); above 5 % of an update's episodes the stage stops either way"`
	Lone     string  `hcl:"lone,optional" choices:"formula|reward|zero" doc:"a group of one, or with one reward left: what the formula gives (no advantage where that is NaN), its reward as if mean 0 and deviation 1 (verl; group = 1 needs it), or 0 (NeMo-RL)"`

	ScaleRange hcl.Range `hcl:"scale,attr_range"`
	DDOFRange  hcl.Range `hcl:"ddof,attr_range"`
	EpsRange   hcl.Range `hcl:"eps,attr_range"`
}

// Check reports values out of range.
func (a *Advantage) Check() hcl.Diagnostics {
	var diags hcl.Diagnostics
	if a.DDOF != 0 && a.DDOF != 1 {
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "No such standard deviation",
			Detail: fmt.Sprintf("ddof is 0 (population) or 1 (sample); got %d.", a.DDOF), Subject: a.DDOFRange.Ptr()})
	}
	if a.Scale == "others_std" && a.Baseline != "leave_one_out" {
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Scale needs its baseline",
			Detail: fmt.Sprintf("scale = \"others_std\" divides by the deviation of the members that baseline = \"leave_one_out\" compares with; got baseline = %q.", a.Baseline), Subject: a.ScaleRange.Ptr()})
	}
	if a.Eps < 0 {
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Negative eps",
			Detail: fmt.Sprintf("eps keeps the divisor above 0, so it cannot be negative; got %v.", a.Eps), Subject: a.EpsRange.Ptr()})
	}
	return diags
}

// Of returns one advantage per trajectory [n]: group [n] names each one's group (members need not be adjacent), length
// [n] counts its action tokens and is needed by token_whiten alone. A group whose rewards are all equal gets 0 up to
// rounding, exactly 0 for 0/1 rewards.
func (a *Advantage) Of(group []int, rewards []float64, length []int) []float64 {
	out := make([]float64, len(rewards))
	for _, members := range groupsOf(group) {
		a.centre(members, rewards, out)
	}
	switch a.Scale {
	case "batch_std":
		everyone := make([]int, len(rewards))
		for i := range everyone {
			everyone[i] = i
		}
		divide(out, everyone, a.deviation(everyone, rewards)+a.Eps)
	case "token_whiten":
		a.whiten(out, length)
	}
	if a.Missing == "leave_out" {
		for i, r := range rewards {
			if math.IsNaN(r) {
				out[i] = 0
			}
		}
	}
	return out
}

// centre subtracts the baseline of one group, and divides by its own deviation where the scale is one of a group.
func (a *Advantage) centre(members []int, rewards, out []float64) {
	if i, alone := a.loneMember(members, rewards); alone && a.Lone == "zero" {
		out[i] = 0
		return
	} else if alone && a.Lone == "reward" {
		out[i] = rewards[i]
		if a.Scale == "group_std" {
			out[i] /= 1 + a.Eps
		}
		return
	}
	mean := a.mean(members, rewards)
	for _, i := range members {
		out[i] = rewards[i] - mean
	}
	if a.Baseline == "leave_one_out" {
		for j, i := range members {
			others := append(append([]int(nil), members[:j]...), members[j+1:]...)
			out[i] = rewards[i] - a.mean(others, rewards)
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

// loneMember returns the only member of a group that the convention counts; ok is false where there are several or none.
func (a *Advantage) loneMember(members []int, rewards []float64) (i int, ok bool) {
	n := 0
	for _, m := range members {
		if a.Missing != "leave_out" || !math.IsNaN(rewards[m]) {
			i, n = m, n+1
		}
	}
	return i, n == 1
}

// mean over members, without those that have no reward if the convention leaves them out.
func (a *Advantage) mean(members []int, rewards []float64) float64 {
	sum, n := 0.0, 0
	for _, i := range members {
		if a.Missing == "leave_out" && math.IsNaN(rewards[i]) {
			continue
		}
		sum += rewards[i]
		n++
	}
	return sum / float64(n)
}

// deviation is the standard deviation with the convention's ddof and floor.
func (a *Advantage) deviation(members []int, rewards []float64) float64 {
	mean := a.mean(members, rewards)
	sum, n := 0.0, 0
	for _, i := range members {
		if a.Missing == "leave_out" && math.IsNaN(rewards[i]) {
			continue
		}
		sum += (rewards[i] - mean) * (rewards[i] - mean)
		n++
	}
	variance := sum / float64(n-a.DDOF)
	if n == 1 && a.DDOF == 1 && a.Missing == "leave_out" {
		variance = 0
	}
	return math.Sqrt(max(variance, a.Floor))
}

// whiten centres and scales over all action tokens of the batch: weights are lengths, the deviation is the population's.
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

// groupsOf lists the members of each group, groups in the order of their first member.
func groupsOf(group []int) [][]int {
	place := map[int]int{}
	var groups [][]int
	for i, g := range group {
		at, ok := place[g]
		if !ok {
			at = len(groups)
			place[g] = at
			groups = append(groups, nil)
		}
		groups[at] = append(groups[at], i)
	}
	return groups
}

// OfEpisodes returns the advantages of trajectories [n] in groups of a size, from their rewards less a penalty each [n]
// (nil for none), and which of them the update goes on without (nil for none of them). An episode without a reward is
// left out; with missing = "spread" its whole group is. Advantages left out are 0 and enter no mean and no deviation.
func (a *Advantage) OfEpisodes(trajectories []*rl.Trajectory, size int, penalty []float64, length []int) (advantages []float64, skip []bool) {
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
		kept, group, tokens, rewards = append(kept, i), append(group, i/size), append(tokens, length[i]), append(rewards, reward)
	}
	of := a.Of(group, rewards, tokens)
	if len(kept) == len(trajectories) {
		return of, nil
	}
	advantages, skip = make([]float64, len(trajectories)), slices.Repeat([]bool{true}, len(trajectories))
	for j, i := range kept {
		// A lone survivor has no others to be compared with: some conventions give NaN.
		if !math.IsNaN(of[j]) {
			advantages[i], skip[i] = of[j], false
		}
	}
	return advantages, skip
}

func missing(t *rl.Trajectory) bool { return t.Reward.Missing() }

// groupRewards returns the rewards of a group's members that have one.
func groupRewards(members []*rl.Trajectory) []float64 {
	var rewards []float64
	for _, t := range members {
		if !t.Reward.Missing() {
			rewards = append(rewards, float64(t.Reward))
		}
	}
	return rewards
}

// EqualRewards reports whether all rewards of a group are equal, as far as its members have one.
func EqualRewards(members []*rl.Trajectory) bool {
	rewards := groupRewards(members)
	return len(rewards) == 0 || slices.Min(rewards) == slices.Max(rewards)
}
