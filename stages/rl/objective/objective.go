package objective

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
)

// Objective holds what a policy-gradient update minimises: a clipped surrogate of the advantage-weighted ratio, a KL
// term towards the reference policy, and an entropy bonus (paper, eq. 8). PaperObjective gives the paper's values; Profiles the
// conventions of other trainers. Evaluate computes it in closed form.
type Objective struct {
	Profile      string     `hcl:"profile,optional" preset:"true" choices:"paper|verl|trl|openrlhf|dr_grpo|dapo|gspo" key:"-" doc:"convention whose values are the defaults of advantage, ratio, clip, loss, kl, minibatches, passes, entropy and zero_variance; what the file says itself wins, and only the values that come out are in the key (rcgrpo kinds grpo -profile all)"`
	Advantage    *Advantage `hcl:"advantage,block" doc:"how rewards become advantages (paper, eq. 6)"`
	Ratio        *Ratio     `hcl:"ratio,block" doc:"importance ratio of policy to old policy (paper, eq. 7)"`
	Clip         *Clip      `hcl:"clip,block" doc:"bounds of the ratio (paper, eq. 9; PPO, eq. 7)"`
	Loss         *Loss      `hcl:"loss,block" doc:"how the terms of a batch are summed up (paper, eq. 8: mean over the trajectories of a group)"`
	KL           *KL        `hcl:"kl,block" doc:"divergence from the policy to the reference policy (paper, eq. 8)"`
	Minibatches  int        `hcl:"minibatches,optional" unit:"tasks" doc:"tasks per optimizer step within the batch of an update, in their order (verl: 256 prompts); the last step of a pass may have fewer. 0 takes the whole batch, so that an update makes one step and every ratio to the old policy is 1"`
	Passes       int        `hcl:"passes,optional" unit:"passes" doc:"passes over the batch of an update (verl: ppo_epochs, 1). From the second optimizer step on the policy has moved away from the old one, whose log-probabilities are those of the training forward before the first step, so ratio and clip act"`
	Entropy      float64    `hcl:"entropy,optional" doc:"coefficient of the mean entropy of action tokens, which is rewarded; 0 is none (paper, eq. 8; verl entropy_coeff, PPO eq. 9)"`
	ZeroVariance string     `hcl:"zero_variance,optional" choices:"keep|mask|resample" doc:"groups whose rewards are all equal: keep them (paper, eq. 8: their KL term still counts), mask leaves them out of every sum and count, resample draws other tasks (DAPO)"`

	MinibatchesRange hcl.Range `hcl:"minibatches,attr_range"`
	PassesRange      hcl.Range `hcl:"passes,attr_range"`
}

// Ratio is the importance ratio pi / pi_old.
type Ratio struct {
	Level       string  `hcl:"level,optional" choices:"trajectory|turn|token|sequence_mean" doc:"what one ratio covers: the product over a trajectory (paper), over a turn, each token (GRPO), or exp of the mean log ratio (GSPO, eq. 7)"`
	Denominator string  `hcl:"denominator,optional" choices:"old|reference" doc:"old policy (paper, eq. 7), or reference policy (paper, algorithm)"`
	LogClamp    float64 `hcl:"log_clamp,optional" doc:"the log ratio is kept within plus and minus this before exp (no gradient outside; verl and OpenRLHF: 20); 0 is no clamp"`
	OnlyAbove   bool    `hcl:"only_above,optional" doc:"log_clamp bounds the log ratio from above only (verl's GSPO)"`
}

// Clip bounds the ratio in the surrogate (Schulman et al. 2017, eq. 7), with separate sides (DAPO).
type Clip struct {
	Low  float64 `hcl:"low,optional" doc:"lower bound is 1 - low (paper, eq. 9: 0.2)"`
	High float64 `hcl:"high,optional" doc:"upper bound is 1 + high (paper, eq. 9: 0.2; DAPO: 0.28)"`
	Dual float64 `hcl:"dual,optional" doc:"for negative advantages the loss is at most -dual times the advantage (Ye et al. 2020; verl: 3); 0 switches it off"`
	Cap  float64 `hcl:"cap,optional" doc:"upper bound of the unclipped ratio (TRL's delta); 0 is none"`

	LowRange  hcl.Range `hcl:"low,attr_range"`
	HighRange hcl.Range `hcl:"high,attr_range"`
	DualRange hcl.Range `hcl:"dual,attr_range"`
	CapRange  hcl.Range `hcl:"cap,attr_range"`
}

// Loss says how the terms of a batch become one number. A term is what Ratio.Level makes one of: a token, a turn, a
// trajectory; sequence_mean spreads its term over the tokens.
type Loss struct {
	Aggregate string  `hcl:"aggregate,optional" choices:"trajectory_sum|trajectory_mean|token_mean|constant" doc:"sum of a trajectory's terms (paper, eq. 8) or their mean (GRPO), then the mean over trajectories; mean over all terms (DAPO); or their sum over scale (Dr. GRPO)"`
	Rows      string  `hcl:"rows,optional" choices:"all|non_empty|one" doc:"trajectories counted in the mean: all (paper, TRL), those with action tokens (verl, OpenRLHF), or no division (verl's constant)"`
	Scale     float64 `hcl:"scale,optional" doc:"divisor of aggregate = constant (Dr. GRPO: the longest reply)"`
	CountEps  float64 `hcl:"count_eps,optional" doc:"added to a trajectory's number of terms in trajectory_mean (verl, OpenRLHF: 1e-8)"`

	ScaleRange hcl.Range `hcl:"scale,attr_range"`
}

// KL is the divergence term. d is logp - logp_ref of a sampled token.
type KL struct {
	Beta       float64 `hcl:"beta,optional" doc:"coefficient (paper, eq. 8: 0.1); 0 needs no reference policy"`
	Estimator  string  `hcl:"estimator,optional" choices:"k1|abs|k2|k3|exact" doc:"per token with d = log pi - log pi_ref: d, |d|, d^2/2, exp(-d) - 1 + d (Schulman 2020), or exact over the whole vocabulary; the paper leaves it open. In the loss, over samples of the policy, k3's gradient is on average that of the other direction, D(pi_ref || pi), and k1's is 0; k2 and exact have the gradient of D(pi || pi_ref), as has gradient = k2 under any estimator's value"`
	Gradient   string  `hcl:"gradient,optional" choices:"own|k2|importance" doc:"of the estimator itself; of k2 under the estimator's value (straight-through; verl's + variants); or k2's times the ratio to the old policy, at most 10 (OpenRLHF 0.11)"`
	Place      string  `hcl:"place,optional" choices:"loss|reward" doc:"in the loss (paper, eq. 8), or subtracted from the reward before advantages, as a sum over the trajectory at sampling (OpenRLHF)"`
	Aggregate  string  `hcl:"aggregate,optional" choices:"token_mean|trajectory_sum|trajectory_mean|loss" doc:"loss gives a token's divergence the weight that the policy's term gives its log-probability (verl, TRL), so beta is the weight of KL beside the policy, whatever the length of an episode. token_mean is the mean over all action tokens, trajectory_sum and trajectory_mean are a sum or mean per trajectory, then the mean over trajectories: beside loss.aggregate = trajectory_sum, token_mean and trajectory_mean weigh beta / (action tokens of an episode). The paper leaves it open"`
	Weighted   bool    `hcl:"weighted,optional" doc:"each token's value times its ratio (TRL's bias correction)"`
	LogClamp   float64 `hcl:"log_clamp,optional" doc:"k3 keeps d within plus and minus this (verl: 20); 0 is no clamp"`
	ValueClamp float64 `hcl:"value_clamp,optional" doc:"the estimate is kept within plus and minus this (verl's k3, OpenRLHF: 10); 0 is no clamp"`

	BetaRange      hcl.Range `hcl:"beta,attr_range"`
	EstimatorRange hcl.Range `hcl:"estimator,attr_range"`
	PlaceRange     hcl.Range `hcl:"place,attr_range"`
}

// PaperObjective is the paper's objective. What the paper leaves open is filled in: population
// standard deviation, product ratio over the trajectory against the old policy, clip 0.2, mean over trajectories, and
// 0.1 times k3, summed over a trajectory like the policy's term.
func PaperObjective() Objective {
	return Objective{
		Profile:      "paper",
		Advantage:    &Advantage{Baseline: "group_mean", Scale: "group_std", DDOF: 0, Eps: 1e-6, Missing: "leave_out", Lone: "formula"},
		Ratio:        &Ratio{Level: "trajectory", Denominator: "old", LogClamp: 20},
		Clip:         &Clip{Low: 0.2, High: 0.2},
		Loss:         &Loss{Aggregate: "trajectory_sum", Rows: "all"},
		KL:           &KL{Beta: 0.1, Estimator: "k3", Gradient: "own", Place: "loss", Aggregate: "loss"},
		Passes:       1,
		ZeroVariance: "keep",
	}
}

// Check reports values out of range and settings that contradict each other.
func (o *Objective) Check() hcl.Diagnostics {
	var diags hcl.Diagnostics
	bad := func(summary, detail string, at hcl.Range) {
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: detail, Subject: at.Ptr()})
	}
	diags = append(diags, o.Advantage.Check()...)
	if o.Clip.Low < 0 || o.Clip.Low > 1 {
		bad("Clip out of range", fmt.Sprintf("The ratio is kept above 1 - low, so low lies between 0 and 1; got %v.", o.Clip.Low), o.Clip.LowRange)
	}
	if o.Clip.High < 0 {
		bad("Clip out of range", fmt.Sprintf("The ratio is kept below 1 + high, so high is at least 0; got %v.", o.Clip.High), o.Clip.HighRange)
	}
	if o.Clip.Dual != 0 && o.Clip.Dual <= 1 {
		bad("Clip out of range", fmt.Sprintf("dual bounds the loss of large ratios, so it is above 1, or 0 for none; got %v.", o.Clip.Dual), o.Clip.DualRange)
	}
	if o.Clip.Cap != 0 && o.Clip.Cap < 1 {
		bad("Clip out of range", fmt.Sprintf("cap bounds ratios that have grown, so it is at least 1, or 0 for none; got %v.", o.Clip.Cap), o.Clip.CapRange)
	}
	if o.Minibatches < 0 {
		bad("Negative number of tasks", fmt.Sprintf("minibatches is the number of tasks of an optimizer step, or 0 for the whole batch; got %d.", o.Minibatches), o.MinibatchesRange)
	}
	if o.Passes < 1 {
		bad("Too few passes", fmt.Sprintf("An update passes over its batch at least once; got passes = %d.", o.Passes), o.PassesRange)
	}
	if o.Loss.Aggregate == "constant" && o.Loss.Scale <= 0 {
		bad("Scale missing", fmt.Sprintf("aggregate = \"constant\" divides by scale, which must be above 0; got %v.", o.Loss.Scale), o.Loss.ScaleRange)
	}
	if o.KL.Beta < 0 {
		bad("Beta out of range", fmt.Sprintf("A negative beta would reward leaving the reference policy; got %v.", o.KL.Beta), o.KL.BetaRange)
	}
	if o.KL.Estimator == "exact" && (o.KL.Place == "reward" || o.KL.Weighted || o.KL.Gradient != "own") {
		bad("Exact KL elsewhere", "The exact divergence is a term of the loss with its own gradient: place = \"loss\", gradient = \"own\" and no weighting.", o.KL.EstimatorRange)
	}
	return diags
}

// Steps is the number of optimizer steps that an update of so many groups makes.
func (o *Objective) Steps(groups int) int {
	if o.Minibatches == 0 || o.Minibatches >= groups {
		return o.Passes
	}
	return o.Passes * ((groups + o.Minibatches - 1) / o.Minibatches)
}

// RatiosVary says whether some ratio can differ from 1. In the only step of an update, policy and old policy are one.
func (o *Objective) RatiosVary(groups int) bool {
	return o.Steps(groups) > 1 || o.Ratio.Denominator == "reference"
}

// NeedsReference says whether the objective reads log-probabilities of the reference policy.
func (o *Objective) NeedsReference() bool {
	return o.KL.Beta != 0 || o.Ratio.Denominator == "reference"
}
