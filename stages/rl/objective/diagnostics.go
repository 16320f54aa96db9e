package objective

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// MetricInfo describes one value of a metrics row.
type MetricInfo struct {
	Name    string
	Formula string // R rewards, A advantages, g groups of size G
	Unit    string
}

// Metrics is the table of all values that training logs per update, in the order of a page. A name that ends in
// "_" is a family of names, described by the formula.
var Metrics = []MetricInfo{
	{"reward", "mean R", "reward"},
	{"reward_high", "mean R of episodes under the high token", "reward"},
	{"reward_low", "mean R of episodes under the low token", "reward"},
	{"reward_term_", "mean over episodes of that reward term times its weight, which advantages add to R", "reward"},
	{"token_gap", "reward_high - reward_low", "reward"},
	{"token_gap_se", "root of s²_high/n_high + s²_low/n_low (sample variances)", "reward"},
	{"official", "share of episodes with a reward that the official checker accepts", "share"},
	{"zero_variance", "share of groups whose rewards are all equal", "share"},
	{"all_right", "share of groups with R = 1 throughout", "share"},
	{"all_wrong", "share of groups with R = 0 throughout", "share"},
	{"single_token_groups", "share of groups with a single reward token", "share"},
	{"share_high", "share of episodes under the high token", "share"},
	{"sigma2", "mean over groups of the population variance of R", "reward²"},
	{"group_std", "mean over groups of the population deviation of R", "reward"},
	{"reward_range", "mean over groups of max R - min R", "reward"},
	{"prop2_bound", "(G-1)/G p(1-p) token_gap², with p the share of high tokens (Proposition 2)", "reward²"},
	{"prop2_slack", "sigma2 - prop2_bound", "reward²"},
	{"prop2_excess", "sigma2 - (G-1)/G p(1-p) (token_gap² - token_gap_se²): the slack without the gap's sampling " +
		"variance", "reward²"},
	{"prop2_excess_se", "standard error of prop2_excess; below -1.96 of it Proposition 2 would be contradicted",
		"reward²"},
	{"forecast_zero_variance",
		"zero_variance as forecast before the first update, from samples of the policy (Proposition 1)", "share"},
	{"forecast_low", "lower end of the 95 % band of the first update's zero_variance", "share"},
	{"forecast_high", "upper end of this band", "share"},
	{"forecast_all_right", "all_right as forecast", "share"},
	{"forecast_all_wrong", "all_wrong as forecast", "share"},
	{"forecast_reward_high", "mean R under high in the sampling run of the forecast", "reward"},
	{"forecast_reward_low", "mean R under low in the same", "reward"},
	{"forecast_zero_variance_grpo", "zero_variance as forecast for groups under high alone, as in GRPO", "share"},
	{"forecast_efficiency_", "gain per update relative to GRPO under high, with no or full transfer from low to high " +
		"(docs/training.md 6); with the ends _low and _high of a 95 % interval, as for the next two", ""},
	{"forecast_transfer", "transfer at which that efficiency is 1", ""},
	{"forecast_transfer_", "ends of its interval", ""},
	{"forecast_step", "length of the expected update relative to GRPO's, with full transfer", ""},
	{"forecast_step_", "ends of its interval", ""},
	{"spread_within", "mean over all groups of max A - min A, ddof 0, 0 without variance", "advantage"},
	{"spread_within_mixed", "the same over groups with variance", "advantage"},
	{"spread_within_ddof1", "spread_within with ddof 1", "advantage"},
	{"spread_within_mixed_ddof1", "spread_within_mixed with ddof 1", "advantage"},
	{"spread_batch", "max A - min A over the batch, ddof 0; grows with the batch", "advantage"},
	{"spread_batch_ddof1", "the same, ddof 1; at most 3.578 with G = 5 and 0/1 rewards", "advantage"},
	{"mean_abs_advantage", "mean |A|", "advantage"},
	{"effective_sample_size", "(sum |A|)² / sum A²", "episodes"},
	{"successes_", "share of groups with that many members at R = 1 (0 to G), among groups without missing rewards",
		"share"},
	{"entropy", "mean entropy of the policy over tokens of the mask, at the sampling temperature", "nats per token"},
	{"kl", "divergence to the reference policy as aggregated in the loss; with place = reward the mean penalty of a " +
		"trajectory, without beta", "nats"},
	{"kl_k1", "mean of d = log pi - log pi_ref over tokens of the mask", "nats per token"},
	{"kl_k2", "mean of d²/2", "nats per token"},
	{"kl_k3", "mean of exp(-d) - 1 + d", "nats per token"},
	{"kl_exact", "mean of D(pi || pi_ref) over the vocabulary", "nats per token"},
	{"kl_weight", "weight of the KL term relative to the policy term: beta times the ratio of their sums of weights " +
		"over tokens of the mask", ""},
	{"loss", "minimized objective, mean over the optimizer steps of the update", ""},
	{"grad_norm", "global L2 norm of the gradient before clipping, mean over the update's optimizer steps", ""},
	{"lr", "learning rate of the update; 0 if it was skipped", ""},
	{"skipped", "share of the update's optimizer steps that were skipped, because the gradient was not finite", "share"},
	{"clip_fraction", "share of the ratios of an update at which the clipped term is strictly smaller; not logged if " +
		"every ratio is 1", "share"},
	{"log_ratio_", "quantile of the log ratios of an update (p05, p50, p95, max of the absolute value); not logged if " +
		"every ratio is 1", "nats"},
	{"sampler_gap", "largest |log pi as sampled - log pi as recomputed| of a token of the mask", "nats"},
	{"sampler_gap_", "quantile of the same over tokens of the mask (p50, p95, p99)", "nats"},
	{"sampler_weight", "mean weight of sampler_correction over tokens of the mask; not logged if it is off", ""},
	{"sampler_capped", "share of tokens of the mask whose weight the cap of sampler_correction bounds or masks", "share"},
	{"groups_sampled", "groups sampled for the update (more than its batch with zero_variance = resample)", "groups"},
	{"calls", "tool calls per episode", "calls"},
	{"tool_errors", "share of calls whose result is an execution error", "share"},
	{"malformed", "share of replies without calls that contain the beginning of one", "share"},
	{"turns", "user turns reached per episode", "turns"},
	{"sampled_tokens", "tokens of the mask per episode", "tokens"},
	{"sampled_tokens_max", "tokens of the mask of the longest episode", "tokens"},
	{"episode_tokens", "tokens per episode, including those not sampled", "tokens"},
	{"tokens", "tokens of all episodes of the update, including those not sampled", "tokens"},
	{"mask_tokens", "tokens of the mask of a batch (fine-tuning)", "tokens"},
	{"truncated", "share of episodes cut off by a limit of length, reply or turn", "share"},
	{"stop_", "share of episodes with that stop reason (done, turn_limit, length, step, error); an episode with error " +
		"has no reward and enters no other value of rewards", "share"},
	{"eval_reward", "mean R on the fixed subset of held-out tasks after the update, under the condition of the " +
		"checkpoint", "reward"},
	{"eval_official", "share of the subset that the official checker accepts", "share"},
}

// Times is the table of the values of times.jsonl, which no digest covers.
var Times = []MetricInfo{
	{"rollout_s", "seconds to sample the groups", "s"},
	{"model_s", "seconds of rollout_s in the policy", "s"},
	{"waiting_s", "seconds of rollout_s in which all episodes waited for environments", "s"},
	{"waiting_share", "waiting_s / rollout_s", "share"},
	{"update_s", "seconds to compute the gradient and apply it", "s"},
	{"eval_s", "seconds of the evaluation after the update", "s"},
	{"forecast_s", "seconds of the sampling run of the forecast", "s"},
	{"tokens_per_s", "tokens of the update / (rollout_s + update_s)", "tokens/s"},
	{"sampled_tokens_per_s", "tokens of the mask of the update / rollout_s", "tokens/s"},
	{"peak_memory", "largest resident memory of the process so far", "bytes"},
}

// MetricNamed returns the row of a value in Metrics or Times, by its name or that of its family.
func MetricNamed(name string) (MetricInfo, bool) {
	for _, m := range slices.Concat(Metrics, Times) {
		if m.Name == name || strings.HasSuffix(m.Name, "_") && strings.HasPrefix(name, m.Name) {
			return m, true
		}
	}
	return MetricInfo{}, false
}

// Groups are the rewards of an update [groups][G], and which episodes ran under the high token; High is nil
// without tokens.
type Groups struct {
	Rewards [][]float64
	High    [][]bool
}

// GroupsOf divides trajectories into groups of a size. Members without a reward are dropped, and so is an empty
// group. High is set if both tokens occur.
func GroupsOf(trajectories []*rl.Trajectory, size int) Groups {
	var g Groups
	tokens := map[string]bool{}
	for members := range slices.Chunk(trajectories, size) {
		rewards := groupRewards(members)
		if len(rewards) == 0 {
			continue
		}
		var high []bool
		for _, t := range members {
			if !t.Reward.Missing() {
				high = append(high, t.Token == rl.TokenHigh)
				tokens[t.Token] = true
			}
		}
		g.Rewards = append(g.Rewards, rewards)
		g.High = append(g.High, high)
	}
	if !tokens[rl.TokenHigh] || !tokens[rl.TokenLow] {
		g.High = nil
	}
	return g
}

// Diagnose computes the values of the groups under the names of Metrics. Values by token require both tokens.
func (g Groups) Diagnose() map[string]float64 {
	if len(g.Rewards) == 0 {
		return map[string]float64{}
	}
	v := map[string]float64{}
	n := float64(len(g.Rewards))
	for _, rewards := range g.Rewards {
		low, high := slices.Min(rewards), slices.Max(rewards)
		variance := populationVariance(rewards)
		v["sigma2"] += variance / n
		v["group_std"] += math.Sqrt(variance) / n
		v["reward_range"] += (high - low) / n
		v["zero_variance"] += indicator(low == high) / n
		v["all_right"] += indicator(low == 1 && high == 1) / n
		v["all_wrong"] += indicator(low == 0 && high == 0) / n
	}
	v["reward"] = blocks.Mean(slices.Concat(g.Rewards...))
	if counts := g.Successes(); counts != nil {
		full := 0
		for _, c := range counts {
			full += c
		}
		for k, c := range counts {
			v["successes_"+strconv.Itoa(k)] = float64(c) / float64(full)
		}
	}
	g.addSpreads(v)
	if g.High != nil {
		g.byToken(v)
	}
	return v
}

// size is the largest number of members with a reward.
func (g Groups) size() int {
	size := 0
	for _, rewards := range g.Rewards {
		size = max(size, len(rewards))
	}
	return size
}

// Successes counts the groups by their number of members with reward 1 [G+1]. Groups with missing rewards do not
// count. It returns nil if a reward is neither 0 nor 1.
func (g Groups) Successes() []int {
	if len(g.Rewards) == 0 {
		return nil
	}
	size := g.size()
	counts := make([]int, size+1)
	for _, rewards := range g.Rewards {
		k := 0
		for _, r := range rewards {
			if r != 0 && r != 1 {
				return nil
			}
			k += int(r)
		}
		if len(rewards) == size {
			counts[k]++
		}
	}
	return counts
}

// addSpreads adds the differences between the largest and the smallest advantage: per group, per group with
// variance and over the batch (docs/training.md 2). The standard deviation has ddof 0 (paper) or 1 (verl); eps is
// 1e-6.
func (g Groups) addSpreads(v map[string]float64) {
	for ddof, suffix := range []string{"", "_ddof1"} {
		a := Advantage{Scale: "group_std", DDOF: ddof, Eps: 1e-6}
		var all []float64
		within, withinMixed, mixed := 0.0, 0.0, 0
		for _, rewards := range g.Rewards {
			adv := a.Of(make([]int, len(rewards)), nil, rewards)
			d := slices.Max(adv) - slices.Min(adv)
			within += d / float64(len(g.Rewards))
			if slices.Min(rewards) != slices.Max(rewards) {
				withinMixed += d
				mixed++
			}
			all = append(all, adv...)
		}
		v["spread_within"+suffix] = within
		v["spread_within_mixed"+suffix] = withinMixed / float64(max(1, mixed))
		v["spread_batch"+suffix] = slices.Max(all) - slices.Min(all)
	}
}

// AdvantageSizes returns the mean of |A| and the effective sample size (sum |A|)² / sum A², 0 if all advantages
// are 0.
func AdvantageSizes(advantages []float64) (meanAbs, effective float64) {
	sum, square := 0.0, 0.0
	for _, a := range advantages {
		sum += math.Abs(a)
		square += a * a
	}
	if len(advantages) > 0 {
		meanAbs = sum / float64(len(advantages))
	}
	if square > 0 {
		effective = sum * sum / square
	}
	return meanAbs, effective
}

func (g Groups) byToken(v map[string]float64) {
	var high, low []float64
	single := 0
	for i, rewards := range g.Rewards {
		of := 0
		for j, r := range rewards {
			if g.High[i][j] {
				high = append(high, r)
				of++
			} else {
				low = append(low, r)
			}
		}
		if of == 0 || of == len(rewards) {
			single++
		}
	}
	v["single_token_groups"] = float64(single) / float64(len(g.Rewards))
	p := float64(len(high)) / float64(len(high)+len(low))
	v["share_high"] = p
	if len(high) == 0 || len(low) == 0 {
		return
	}
	gap := blocks.Mean(high) - blocks.Mean(low)
	v["reward_high"], v["reward_low"], v["token_gap"] = blocks.Mean(high), blocks.Mean(low), gap
	v["token_gap_se"] = math.Sqrt(sampleVariance(high)/float64(len(high)) + sampleVariance(low)/float64(len(low)))
	kappa := Kappa(g.size(), p)
	v["prop2_bound"] = kappa * gap * gap
	v["prop2_slack"] = v["sigma2"] - v["prop2_bound"]
	g.proposition2(v, kappa)
}

// proposition2 adds the slack of Proposition 2's bound without the upward bias of a squared estimate, and its
// standard error: the variance of the mean of σ_g² over groups, plus that of gap², which is 4 gap² se² + 2 se⁴
// for a normal gap.
func (g Groups) proposition2(v map[string]float64, kappa float64) {
	variances := make([]float64, len(g.Rewards))
	for i, rewards := range g.Rewards {
		variances[i] = populationVariance(rewards)
	}
	gap, se2 := v["token_gap"], v["token_gap_se"]*v["token_gap_se"]
	v["prop2_excess"] = v["sigma2"] - kappa*(gap*gap-se2)
	v["prop2_excess_se"] = math.Sqrt(sampleVariance(variances)/float64(len(variances)) +
		kappa*kappa*(4*gap*gap*se2+2*se2*se2))
}

// DescribeEpisodes adds verdicts, lengths, calls and stop reasons of an update's episodes.
func DescribeEpisodes(trajectories []*rl.Trajectory, v map[string]float64) {
	n := float64(len(trajectories))
	if n == 0 {
		return
	}
	for _, reason := range []string{rl.StopDone, rl.StopTurnLimit, rl.StopLength, rl.StopStep, rl.StopError} {
		v["stop_"+reason] = 0
	}
	calls, errs, replies, malformed, rewarded := 0, 0, 0, 0, 0.0
	for _, t := range trajectories {
		rewarded += indicator(!t.Reward.Missing())
	}
	for _, name := range []string{"official", "turns", "sampled_tokens", "sampled_tokens_max", "tokens", "truncated"} {
		v[name] = 0
	}
	for _, t := range trajectories {
		if t.Official {
			v["official"] += 1 / rewarded
		}
		v["stop_"+t.Stop] += 1 / n
		calls += t.Calls
		errs += t.Errors
		all, bad := t.Replies()
		replies, malformed = replies+all, malformed+bad
		sampled, given := t.Tokens()
		v["tokens"] += float64(sampled + given)
		v["sampled_tokens"] += float64(sampled) / n
		v["sampled_tokens_max"] = max(v["sampled_tokens_max"], float64(sampled))
		v["truncated"] += indicator(t.Stop == rl.StopLength || t.Stop == rl.StopStep || t.Stop == rl.StopTurnLimit) / n
		if k := len(t.Messages); k > 0 {
			v["turns"] += float64(t.Messages[k-1].Turn+1) / n
		}
	}
	v["episode_tokens"] = v["tokens"] / n
	v["calls"] = float64(calls) / n
	v["tool_errors"] = float64(errs) / float64(max(1, calls))
	v["malformed"] = float64(malformed) / float64(max(1, replies))
}

// DescribeRatios adds the quantiles of an update's log ratios.
func DescribeRatios(logRatio []float64, v map[string]float64) {
	sorted := slices.Clone(logRatio)
	slices.Sort(sorted)
	v["log_ratio_p05"] = blocks.Quantile(sorted, 0.05)
	v["log_ratio_p50"] = blocks.Quantile(sorted, 0.5)
	v["log_ratio_p95"] = blocks.Quantile(sorted, 0.95)
	v["log_ratio_max"] = max(math.Abs(blocks.Quantile(sorted, 0)), math.Abs(blocks.Quantile(sorted, 1)))
}

// DescribeSampler adds quantiles and maximum of the differences between recomputed and sampled logprobs.
func DescribeSampler(logp, sampled []float64, v map[string]float64) {
	sorted := make([]float64, len(logp))
	for i := range logp {
		sorted[i] = math.Abs(logp[i] - sampled[i])
	}
	slices.Sort(sorted)
	v["sampler_gap_p50"] = blocks.Quantile(sorted, 0.5)
	v["sampler_gap_p95"] = blocks.Quantile(sorted, 0.95)
	v["sampler_gap_p99"] = blocks.Quantile(sorted, 0.99)
	v["sampler_gap"] = blocks.Quantile(sorted, 1)
}

// DescribeKL adds the divergence to the reference policy by estimator, as means over tokens of the mask; exact may be
// nil.
func DescribeKL(logp, logpRef, exact []float64, v map[string]float64) {
	k1, k2, k3 := 0.0, 0.0, 0.0
	for i := range logp {
		d := logp[i] - logpRef[i]
		k1 += d
		k2 += d * d / 2
		k3 += math.Exp(-d) - 1 + d
	}
	n := float64(max(1, len(logp)))
	v["kl_k1"], v["kl_k2"], v["kl_k3"] = k1/n, k2/n, k3/n
	if exact != nil {
		v["kl_exact"] = blocks.Mean(exact)
	}
}

func indicator(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func squares(values []float64) float64 {
	m, sum := blocks.Mean(values), 0.0
	for _, x := range values {
		sum += (x - m) * (x - m)
	}
	return sum
}

func populationVariance(values []float64) float64 { return squares(values) / float64(len(values)) }

// sampleVariance is 0 with fewer than two values.
func sampleVariance(values []float64) float64 {
	if len(values) < 2 {
		return 0
	}
	return squares(values) / float64(len(values)-1)
}
