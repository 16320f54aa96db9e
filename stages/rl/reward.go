package rl

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// Reward is the reward of an episode, or NaN if the environment failed. Such an episode is neither a success nor
// a failure. Its JSON form is null.
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

// mostMissing is the largest share of episodes without a reward. The rest of a batch would no longer be a fair
// sample.
const mostMissing = 0.05

// Rewarded returns the trajectories with a reward in their order. It fails if more than 5 % have none, and quotes
// the first failure.
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
		return nil, fmt.Errorf("the environment failed in %d of %d episodes; more than %.0f %% without a reward end the "+
			"stage, because the rest is not a fair sample. The first is task %s: %s",
			missing, n, 100*mostMissing, first.Task, first.Failure)
	}
	return kept, nil
}
