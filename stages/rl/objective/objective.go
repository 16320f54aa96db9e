// Package objective computes what an update minimizes and what it can learn, in float64 and closed form.
//
//	Objective, Advantage   settings: rewards to advantages, logprobs to loss and gradient; Evaluate
//	Batch, Outcome         input and result of Evaluate
//	RewardTerm             settings: a second reward, added to that of the verdict before advantages
//	SamplerCorrection      settings: weights for the difference between sampler and training forward
//	Profiles               the conventions of other trainers as settings
//	Groups, Metrics        diagnostics of an update, and the table of all logged values
//	Forecast, Kappa        the paper's propositions
//	Rollouts               stored trajectories under other settings
//
// Start with Objective. The model supplies logprobs, exact divergences and entropies of tokens of the mask and
// receives the derivative of the loss with respect to each. Neighbours: rl (trajectories), stages/grpo (updates).
package objective

import (
	"github.com/hashicorp/hcl/v2"

	"rcgrpo/stages/rl/blocks"
)

// Objective configures what a policy-gradient update minimizes: a clipped surrogate of the ratio times the
// advantage, a KL term towards the reference policy, and an entropy bonus (paper, eq. 8).
type Objective struct {
	// trainer whose values are the defaults of advantage, ratio, clip, loss, kl, minibatches, passes, entropy and
	// zero_variance; settings in the file take precedence, and only the resulting values enter the key (rcgrpo kinds
	// grpo --profile all)
	Profile string `hcl:"profile,optional" preset:"true" choices:"paper|verl|trl|openrlhf|dr_grpo|dapo|gspo" key:"-"`

	// how rewards become advantages (paper, eq. 6)
	Advantage *Advantage `hcl:"advantage,block"`
	// importance ratio of policy to old policy (paper, eq. 7)
	Ratio *Ratio `hcl:"ratio,block"`
	// bounds of the ratio (paper, eq. 9; PPO, eq. 7)
	Clip *Clip `hcl:"clip,block"`
	// aggregation of the terms of a batch (paper, eq. 8)
	Loss *Loss `hcl:"loss,block"`
	// divergence from the policy to the reference policy (paper, eq. 8)
	KL *KL `hcl:"kl,block"`
	// tasks per optimizer step, in the order of the batch (verl: 256 prompts); the last step of a pass may have
	// fewer. With 0 an update makes one step with the whole batch, and every ratio to the old policy is 1
	Minibatches int `hcl:"minibatches,optional" unit:"tasks"`
	// passes over the batch of an update (verl: ppo_epochs, 1). Ratio and clip take effect from the second optimizer
	// step on; the old policy's logprobs are those of the training forward before the first step
	Passes int `hcl:"passes,optional" unit:"passes"`
	// coefficient of the bonus for the mean entropy of tokens of the mask; 0 is none (paper, eq. 8; verl entropy_coeff,
	// PPO eq. 9)
	Entropy float64 `hcl:"entropy,optional"`
	// groups of equal rewards: keep includes them (paper, eq. 8: their KL term still counts), skip excludes them from
	// every sum and count, resample replaces them by other tasks (DAPO)
	ZeroVariance string `hcl:"zero_variance,optional" choices:"keep|skip|resample"`
	// second rewards, each added to the reward of an episode before advantages; success stays the verdict
	RewardTerms []RewardTerm `hcl:"reward_term,block"`

	// weights for the difference between the sampler's logprobs and those of the training forward; off by default
	Correction *SamplerCorrection `hcl:"sampler_correction,block"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// Ratio is the importance ratio pi / pi_old.
type Ratio struct {
	// scope of one ratio: product over a trajectory (paper) or a turn, each token (GRPO), or exp of the mean log
	// ratio (GSPO, eq. 7)
	Level string `hcl:"level,optional" choices:"trajectory|turn|token|sequence_mean"`
	// bound of the absolute log ratio before exp, without gradient beyond it (verl, OpenRLHF: 20); 0 is no bound
	LogClamp float64 `hcl:"log_clamp,optional"`
	// log_clamp bounds only from above (verl's GSPO)
	OnlyAbove bool `hcl:"only_above,optional"`
}

// Clip bounds the ratio in the surrogate (Schulman et al. 2017, eq. 7), with separate sides (DAPO).
type Clip struct {
	// the ratio is kept above 1 - low (paper, eq. 9: 0.2)
	Low float64 `hcl:"low,optional"`
	// the ratio is kept below 1 + high (paper, eq. 9: 0.2; DAPO: 0.28)
	High float64 `hcl:"high,optional"`
	// for negative advantages the loss is at most -dual times the advantage (Ye et al. 2020; verl: 3); 0 switches it
	// off
	Dual float64 `hcl:"dual,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// Loss configures how the terms of a batch become one number. A term belongs to a token, turn or trajectory by
// Ratio.Level; sequence_mean spreads its term over the tokens.
type Loss struct {
	// sum of a trajectory's terms (paper, eq. 8) or their mean (GRPO), then the mean over trajectories; mean over all
	// terms (DAPO); or their sum over scale (Dr. GRPO)
	Aggregate string `hcl:"aggregate,optional" choices:"trajectory_sum|trajectory_mean|token_mean|constant"`
	// divisor of the mean: all trajectories (paper, TRL), those with tokens of the mask (verl, OpenRLHF), or one (verl's
	// constant)
	Rows string `hcl:"rows,optional" choices:"all|non_empty|one"`
	// the divisor of aggregate = constant; Dr. GRPO takes the length of the longest reply
	Scale float64 `hcl:"scale,optional"`
	// added to a trajectory's number of terms before trajectory_mean divides by it (verl, OpenRLHF: 1e-8)
	CountEps float64 `hcl:"count_eps,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// KL configures the divergence term. d is logp - logp_ref of a sampled token.
type KL struct {
	// coefficient of the divergence (paper, eq. 8: 0.1); with 0 there is no KL term and no reference policy
	Beta float64 `hcl:"beta,optional"`
	// per token with d = log pi - log pi_ref: d, |d|, d^2/2, exp(-d) - 1 + d (Schulman 2020), or exact over the
	// vocabulary; not given in the paper. As a loss over samples of the policy, k3 has the expected gradient of
	// D(pi_ref || pi), k1 that of 0; k2 and exact have that of D(pi || pi_ref)
	Estimator string `hcl:"estimator,optional" choices:"k1|abs|k2|k3|exact"`
	// in the loss (paper, eq. 8), or subtracted from the reward before advantages, as a sum over the trajectory
	// (OpenRLHF)
	Place string `hcl:"place,optional" choices:"loss|reward"`
	// loss weights the divergence of a token like its logprob in the policy term (verl, TRL), so beta is the relative
	// weight of the KL term. token_mean averages over tokens of the mask; trajectory_sum and trajectory_mean sum or
	// average per trajectory, then average. With loss.aggregate = trajectory_sum, both means have the relative weight
	// beta / (mask tokens of an episode). Not given in the paper
	Aggregate string `hcl:"aggregate,optional" choices:"token_mean|trajectory_sum|trajectory_mean|loss"`
	// bound of |d| in the estimator k3, without gradient beyond it (verl: 20); 0 is no bound
	LogClamp float64 `hcl:"log_clamp,optional"`
	// bound of the absolute estimate of a token, without gradient beyond it (verl: 10); 0 is no bound
	ValueClamp float64 `hcl:"value_clamp,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// PaperObjective returns the objective of the paper. Values that the paper does not give: population standard
// deviation, product ratio over the trajectory against the old policy, clip 0.2, mean over trajectories, and 0.1
// times k3, weighted like the policy term.
func PaperObjective() Objective {
	return Objective{
		Profile:      "paper",
		Advantage:    &Advantage{Scale: "group_std", DDOF: 0, Eps: 1e-6, Lone: "formula"},
		Ratio:        &Ratio{Level: "trajectory", LogClamp: 20},
		Clip:         &Clip{Low: 0.2, High: 0.2},
		Loss:         &Loss{Aggregate: "trajectory_sum", Rows: "all"},
		KL:           &KL{Beta: 0.1, Estimator: "k3", Place: "loss", Aggregate: "loss"},
		Correction:   &SamplerCorrection{Mode: "off", Cap: 2},
		Passes:       1,
		ZeroVariance: "keep",
	}
}

// Check reports values out of range and settings that contradict each other.
func (o *Objective) Check() hcl.Diagnostics {
	diags := o.Advantage.Check()
	bad := blocks.Mistakes(&diags)
	bad(o.Clip.Low < 0 || o.Clip.Low > 1, "Clip out of range", o.Clip.At["low"],
		"The ratio is kept above 1 - low, so low lies between 0 and 1; got %v.", o.Clip.Low)
	bad(o.Clip.High < 0, "Clip out of range", o.Clip.At["high"],
		"The ratio is kept below 1 + high, so high is at least 0; got %v.", o.Clip.High)
	bad(o.Clip.Dual != 0 && o.Clip.Dual <= 1, "Clip out of range", o.Clip.At["dual"],
		"dual bounds the loss of large ratios, so it is above 1, or 0 for none; got %v.", o.Clip.Dual)
	bad(o.Correction.Cap < 1, "Cap out of range", o.Correction.At["cap"],
		"Equal policies have weight 1, so cap is at least 1; got %v.", o.Correction.Cap)
	bad(o.Minibatches < 0, "Negative number of tasks", o.At["minibatches"],
		"minibatches is the number of tasks of an optimizer step, or 0 for the whole batch; got %d.", o.Minibatches)
	bad(o.Passes < 1, "Too few passes", o.At["passes"],
		"An update passes over its batch at least once; got passes = %d.", o.Passes)
	bad(o.Loss.Aggregate == "constant" && o.Loss.Scale <= 0, "Scale missing", o.Loss.At["scale"],
		"aggregate = \"constant\" divides by scale, which must be above 0; got %v.", o.Loss.Scale)
	bad(o.KL.Beta < 0, "Beta out of range", o.KL.At["beta"],
		"A negative beta would reward leaving the reference policy; got %v.", o.KL.Beta)
	bad(o.KL.Estimator == "exact" && o.KL.Place == "reward", "Exact KL elsewhere", o.KL.At["estimator"],
		"The exact divergence is a term of the loss: place = \"loss\".")
	return append(diags, o.checkTerms()...)
}

// Steps returns the number of optimizer steps of an update with this number of groups.
func (o *Objective) Steps(groups int) int {
	if o.Minibatches == 0 || o.Minibatches >= groups {
		return o.Passes
	}
	return o.Passes * ((groups + o.Minibatches - 1) / o.Minibatches)
}

// RatiosVary reports whether a ratio can differ from 1. In the only step of an update the policy is the old
// policy.
func (o *Objective) RatiosVary(groups int) bool {
	return o.Steps(groups) > 1
}

// NeedsReference reports whether the objective reads logprobs of the reference policy.
func (o *Objective) NeedsReference() bool {
	return o.KL.Beta != 0
}
