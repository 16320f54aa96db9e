package objective

import (
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// RewardTerm is a second reward: a weight times a function of a trajectory. The shaped reward of an episode is its
// reward plus its terms, and only advantages read it. Everything else stays about the verdict: Trajectory.Reward,
// the metric reward, groups without variance, the best policy, scores and the comparisons of pages. The mean of each
// term is the metric reward_term_NAME.
//
// The KL penalty of kl.place = "reward" is no term, because it depends on two models and not on the trajectory alone.
type RewardTerm struct {
	// what the term measures in an episode: length is the number of tokens that the policy sampled
	Name string `hcl:"name,label"`
	// what one unit of the term adds to the reward of its episode before advantages; a negative weight is a penalty.
	// Groups without variance, metrics of the reward and pages stay those of the verdict
	Weight float64 `hcl:"weight"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// rewardFunctions are the functions that a RewardTerm can name. The comment of RewardTerm.Name lists them for users.
var rewardFunctions = map[string]func(t *rl.Trajectory) float64{
	"length": func(t *rl.Trajectory) float64 {
		sampled, _ := t.Tokens()
		return float64(sampled)
	},
}

// RewardTermNames returns the names that a RewardTerm can have.
func RewardTermNames() []string { return slices.Sorted(maps.Keys(rewardFunctions)) }

// amount returns what the term adds to the reward of a trajectory.
func (r RewardTerm) amount(t *rl.Trajectory) float64 { return r.Weight * rewardFunctions[r.Name](t) }

// checkTerms reports unknown and repeated terms, and those without weight.
func (o *Objective) checkTerms() (diags hcl.Diagnostics) {
	bad := blocks.Mistakes(&diags)
	for i, term := range o.RewardTerms {
		bad(!slices.Contains(RewardTermNames(), term.Name), "Unknown reward term", term.At[""],
			"There is no reward term %q; known are %s.", term.Name, strings.Join(RewardTermNames(), ", "))
		bad(term.Weight == 0, "Reward term without weight", term.At["weight"],
			"A term of weight 0 adds nothing to the reward; remove the block or set a weight.")
		same := func(other RewardTerm) bool { return other.Name == term.Name }
		bad(slices.ContainsFunc(o.RewardTerms[:i], same), "Reward term repeated", term.At[""],
			"The term %q is there already; add up the weights in one block.", term.Name)
	}
	return diags
}

// ShapedRewards returns what advantages compare, for each trajectory [B]: its reward plus its terms, minus the KL
// penalty [B] of kl.place = "reward" (nil for none). It is NaN for a missing reward.
func (o *Objective) ShapedRewards(trajectories []*rl.Trajectory, klPenalty []float64) []float64 {
	shaped := make([]float64, len(trajectories))
	for i, t := range trajectories {
		shaped[i] = float64(t.Reward)
		for _, term := range o.RewardTerms {
			shaped[i] += term.amount(t)
		}
		if klPenalty != nil {
			shaped[i] -= klPenalty[i]
		}
	}
	return shaped
}

// DescribeTerms adds the mean of each reward term over the episodes with a reward.
func (o *Objective) DescribeTerms(trajectories []*rl.Trajectory, v map[string]float64) {
	for _, term := range o.RewardTerms {
		var values []float64
		for _, t := range trajectories {
			if !t.Reward.Missing() {
				values = append(values, term.amount(t))
			}
		}
		v["reward_term_"+term.Name] = blocks.Mean(values)
	}
}
