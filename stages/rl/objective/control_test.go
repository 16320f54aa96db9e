package objective

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/rl"
)

// TestEfficiencyOfRewardConditioning plays a bandit with a policy per reward token, and compares the mean gradient of
// our draw of tokens, advantages and loss with the enumerated update. An episode is one sampled token; the parameter
// of a policy is the logit of its success, and transfer is the derivative of low's logit in the parameter of high (1:
// shared parameters, 0: separate ones). Four standard errors pass by chance in 99.99 % of the values.
func TestEfficiencyOfRewardConditioning(t *testing.T) {
	const groups = 6000
	wins := 0
	for _, baseline := range []string{BaselineGroup, BaselineToken} {
		for _, size := range []int{5, 6} {
			for _, p := range []float64{0.5, 0.8} {
				for _, mu := range [][2]float64{{0.474, 0.224}, {0.9, 0.5}, {0.95, 0.5}, {0.9, 0.1}} {
					o := PaperObjective()
					o.KL.Beta, o.Advantage.Baseline = 0, baseline
					want := bruteForce(baseline, size, p, mu[0], mu[1]) // shares no code with Advantage
					plain := bruteForce(BaselineGroup, size, 1, mu[0], 0)
					if EfficiencyOf(want, plain).Full > 1 {
						wins++
					}
					r := rand.New(rand.NewPCG(7, uint64(size)))
					transfers := [3]float64{1, 0.5, 0}
					var sum, square [3]float64
					for g := range groups {
						var episodes []*rl.Trajectory
						for _, token := range rl.DrawTokens(rl.AllocationIID, p, size, 3, 1, strconv.Itoa(g)) {
							e := &rl.Trajectory{Token: token, IDs: []int32{0, 0}, Mask: []bool{false, true}, Logp: []float32{0, 0},
								Stop: rl.StopDone, Messages: []rl.Message{{Role: rl.RoleAssistant, From: 1, To: 2}}}
							if r.Float64() < mu[int(indicator(token == rl.TokenLow))] {
								e.Reward = 1
							}
							episodes = append(episodes, e)
						}
						b := NewBatch(episodes)
						b.Advantage, b.Skip = o.Advantages(episodes, size, nil)
						outcome := must.Get(o.Evaluate(b, o.Totals(b)))(t)
						var gradient [3]float64
						for i, e := range episodes {
							low := int(indicator(e.Token == rl.TokenLow))
							score := -outcome.DLogp[i] * (float64(e.Reward) - mu[low])
							for k, transfer := range transfers {
								gradient[k] += score * []float64{1, transfer}[low]
							}
						}
						for k, x := range gradient {
							sum[k] += x
							square[k] += x * x
						}
					}
					for k, transfer := range transfers {
						mean := sum[k] / groups
						se := math.Sqrt((square[k]/groups - mean*mean) / groups)
						if expected := want.High + transfer*want.Low; math.Abs(mean-expected) > 4*se {
							t.Errorf("baseline %s, G = %d, p = %v, μ = %v, ρ = %v: mean gradient %.5f, want %.5f, standard error %.5f",
								baseline, size, p, mu, transfer, mean, expected, se)
						}
					}
				}
			}
		}
	}
	if wins < 6 {
		t.Errorf("RC-GRPO wins in %d cells with full transfer, want some", wins)
	}
}
