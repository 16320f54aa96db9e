package rl

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Reward is the reward of an episode, or NaN where it is missing because the environment failed: such an episode shows
// nothing about the policy, so it is neither a success nor a failure. In JSON a missing reward is null.
type Reward float64

// MissingReward returns the reward of an episode whose environment failed.
func MissingReward() Reward { return Reward(math.NaN()) }

// Missing reports whether there is no reward.
func (r Reward) Missing() bool { return math.IsNaN(float64(r)) }

func (r Reward) String() string {
	if r.Missing() {
		return "missing"
	}
	return strconv.FormatFloat(float64(r), 'g', -1, 64)
}

// MarshalJSON writes null for a missing reward.
func (r Reward) MarshalJSON() ([]byte, error) {
	if r.Missing() {
		return []byte("null"), nil
	}
	return json.Marshal(float64(r))
}

// UnmarshalJSON reads null as a missing reward.
func (r *Reward) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*r = MissingReward()
		return nil
	}
	return json.Unmarshal(text, (*float64)(r))
}

// mostMissing is the largest share of episodes that may lack a reward: what is left of a batch would no longer be the
// batch that the settings ask for.
const mostMissing = 0.05

// Rewarded returns the trajectories that have a reward, in their order. It is an error if the environment failed in more
// than 5 % of the episodes; the error quotes the first failure.
func Rewarded(trajectories []*Trajectory) ([]*Trajectory, error) {
	var kept []*Trajectory
	var first *Trajectory
	for _, t := range trajectories {
		if !t.Reward.Missing() {
			kept = append(kept, t)
		} else if first == nil {
			first = t
		}
	}
	n := len(trajectories)
	missing := n - len(kept)
	if float64(missing) > mostMissing*float64(n) {
		return nil, fmt.Errorf("the environment failed in %d of %d episodes; more than %.0f %% without a reward end the stage, because the rest is no fair sample. "+
			"The first is task %s: %s", missing, n, 100*mostMissing, first.Task, first.Failure)
	}
	return kept, nil
}

// OfEpisodes returns the advantages of trajectories [n] in groups of a size, from their rewards less a penalty each [n]
// (nil for none), and which of them the update goes on without (nil for none of them). An episode without a reward is
// left out; with missing = "spread" its whole group is. Advantages left out are 0 and enter no mean and no deviation.
func (a *Advantage) OfEpisodes(trajectories []*Trajectory, size int, penalty []float64, length []int) (advantages []float64, skip []bool) {
	var kept, group, tokens []int
	var rewards []float64
	for i, t := range trajectories {
		first := i / size * size
		members := trajectories[first:min(first+size, len(trajectories))]
		if t.Reward.Missing() || a.Missing == "spread" && slices.ContainsFunc(members, (*Trajectory).missing) {
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

func (t *Trajectory) missing() bool { return t.Reward.Missing() }

// groupRewards returns the rewards of a group's members that have one.
func groupRewards(members []*Trajectory) []float64 {
	var rewards []float64
	for _, t := range members {
		if !t.Reward.Missing() {
			rewards = append(rewards, float64(t.Reward))
		}
	}
	return rewards
}

// EqualRewards reports whether all rewards of a group are equal, as far as its members have one.
func EqualRewards(members []*Trajectory) bool {
	rewards := groupRewards(members)
	return len(rewards) == 0 || slices.Min(rewards) == slices.Max(rewards)
}
