package objective

import (
	"math"
	"slices"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/rl"
)

// sampled returns an episode with that reward in which the policy sampled n tokens after two that it was given.
func sampled(reward rl.Reward, n int) *rl.Trajectory {
	return &rl.Trajectory{Reward: reward, Mask: append(make([]bool, 2), slices.Repeat([]bool{true}, n)...)}
}

// Of two successes with 10 and 30 tokens and a failure with 20, a penalty of 0.01 per token leaves 0.9, 0.7 and -0.2.
func TestALengthPenaltyEntersAdvantagesAndNothingElse(t *testing.T) {
	group := []*rl.Trajectory{sampled(1, 10), sampled(1, 30), sampled(0, 20)}
	o := PaperObjective()
	o.Advantage.Scale = "none"
	o.RewardTerms = []RewardTerm{{Name: "length", Weight: -0.01}}
	wantAll(t, "shaped", o.ShapedRewards(group, nil), 0.9, 0.7, -0.2)
	advantages, _ := o.Advantages(group, 3, nil)
	mean := (0.9 + 0.7 - 0.2) / 3
	wantAll(t, "advantages", advantages, 0.9-mean, 0.7-mean, -0.2-mean)
	v := GroupsOf(group, 3).Diagnose()
	o.DescribeTerms(group, v)
	wantValues(t, "metrics", v, map[string]float64{"reward": 2.0 / 3, "reward_term_length": -0.2})
	if _, known := MetricNamed("reward_term_length"); !known {
		t.Error("the table of metrics has no reward_term_length")
	}
}

func TestRewardTermsAndTheKLPenaltyAddUp(t *testing.T) {
	o := PaperObjective()
	o.RewardTerms = []RewardTerm{{Name: "length", Weight: 0.5}}
	wantAll(t, "shaped", o.ShapedRewards([]*rl.Trajectory{sampled(1, 2), sampled(0, 4)}, []float64{0.25, 3}), 1.75, -1)
}

// A group of equal verdicts stays one without variance, whatever its lengths.
func TestGroupsOfEqualVerdictsAreMaskedWhateverTheirTerms(t *testing.T) {
	o := PaperObjective()
	o.ZeroVariance = "skip"
	o.RewardTerms = []RewardTerm{{Name: "length", Weight: -1}}
	_, skip := o.Advantages([]*rl.Trajectory{sampled(1, 1), sampled(1, 2), sampled(0, 1), sampled(1, 1)}, 2, nil)
	if want := []bool{true, true, false, false}; !slices.Equal(skip, want) {
		t.Errorf("skips %v, want %v", skip, want)
	}
}

func TestAnEpisodeWithoutRewardHasNoTerm(t *testing.T) {
	o := PaperObjective()
	o.RewardTerms = []RewardTerm{{Name: "length", Weight: 1}}
	list := []*rl.Trajectory{sampled(1, 3), sampled(rl.MissingReward(), 50), sampled(0, 5), sampled(1, 1)}
	v := map[string]float64{}
	o.DescribeTerms(list, v)
	wantValues(t, "terms", v, map[string]float64{"reward_term_length": 3})
	if _, skip := o.Advantages(list, 2, nil); !slices.Equal(skip, []bool{false, true, false, false}) {
		t.Errorf("skips %v, want the second", skip)
	}
}

func TestTermsCannotBeSetLikeAPlainSetting(t *testing.T) {
	o := PaperObjective()
	must.Match(t, o.Set("reward_term", `[{"Name": "length", "Weight": 1}]`), "no setting reward_term")
}

func wantAll(t *testing.T, what string, got []float64, want ...float64) {
	t.Helper()
	if !slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
