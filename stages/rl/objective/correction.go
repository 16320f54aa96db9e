package objective

import (
	"math"

	"github.com/hashicorp/hcl/v2"
)

// SamplerCorrection configures the weights that correct for the sampler: its logprobs differ from those of the training
// forward, because the two round differently. With d_t = log pi_old(t) - log pi_sampler(t) at each token of the mask, a
// constant, the slope of the clipped policy term at a token is multiplied by
//
//	token          min(cap, exp(d_t)), d_t within ±20          verl rollout_is = "token"; TRL token_truncate
//	sequence       min(cap, exp(sum d)), the sum within ±20    verl rollout_is = "sequence"; TRL sequence_truncate
//	sequence_mask  exp(sum d), and 0 above cap                 TRL sequence_mask
//
// where the sum is over the trajectory. KL term and entropy bonus have no weight, and the divisors of the loss stay.
// TRL does not bound the logarithms of its truncated modes, which changes weights by at most 2e-9.
type SamplerCorrection struct {
	// weight of the policy gradient at a token of the mask for the difference between sampler and training forward:
	// exp(d) of that token with d = log pi_old - log pi_sampler (verl, TRL token_truncate), exp of the trajectory's
	// sum of d (verl), or the same with 0 above cap (TRL's default with vLLM; it shrinks with the length of a
	// trajectory). plan advises token in bf16 on a GPU
	Mode string `hcl:"mode,optional" choices:"off|token|sequence|sequence_mask"`
	// upper bound of a weight (verl: 2, TRL: 3)
	Cap float64 `hcl:"cap,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// maxLogWeight bounds logarithms of weights before exp (verl's SAFETY_BOUND).
const maxLogWeight = 20

// Off reports whether there are no weights.
func (c *SamplerCorrection) Off() bool { return c.Mode == "off" }

// Weights returns the weight of each token of the mask [N] and the number of tokens whose weight cap bounds or masks.
// length [R] has the tokens of the mask per row; logpOld and logpSampled are [N]. It returns nil and 0 if the
// correction is off.
func (c *SamplerCorrection) Weights(length []int, logpOld, logpSampled []float64) (weights []float64, capped int) {
	if c.Off() {
		return nil, 0
	}
	weights = make([]float64, len(logpOld))
	for _, s := range spans(length) {
		sum := 0.0
		for k := s.from; k < s.to; k++ {
			sum += logpOld[k] - logpSampled[k]
		}
		for k := s.from; k < s.to; k++ {
			d := sum
			if c.Mode == "token" {
				d = logpOld[k] - logpSampled[k]
			}
			if c.Mode != "sequence_mask" {
				d = max(-maxLogWeight, min(d, maxLogWeight))
			}
			weights[k] = math.Exp(d)
			if weights[k] > c.Cap {
				capped++
				weights[k] = c.Cap
				if c.Mode == "sequence_mask" {
					weights[k] = 0
				}
			}
		}
	}
	return weights, capped
}

// Describe adds the mean weight and the share of capped weights over tokens of the mask to v, unless the correction is
// off.
func (c *SamplerCorrection) Describe(length []int, logpOld, logpSampled []float64, v map[string]float64) {
	weights, capped := c.Weights(length, logpOld, logpSampled)
	if weights == nil {
		return
	}
	n := float64(max(1, len(weights)))
	for _, w := range weights {
		v["sampler_weight"] += w / n
	}
	v["sampler_capped"] = float64(capped) / n
}
