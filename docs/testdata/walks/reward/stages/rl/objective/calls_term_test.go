package objective

import (
	"testing"

	"rcgrpo/stages/rl"
)

// Two tool calls at 0.1 each leave 0.8 of a success.
func TestCallsTerm(t *testing.T) {
	o := PaperObjective()
	o.RewardTerms = []RewardTerm{{Name: "calls", Weight: -0.1}}
	episode := &rl.Trajectory{Reward: 1, Calls: 2}
	wantAll(t, "shaped", o.ShapedRewards([]*rl.Trajectory{episode}, nil), 0.8)
}
