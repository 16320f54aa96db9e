package objective

import (
	"fmt"
	"math"
	"slices"

	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// Rollouts are stored trajectories, divided into updates and groups of one size, for recomputation under other
// settings. Start with RolloutsOf.
type Rollouts struct {
	Size    int                // members of a group
	Updates [][]*rl.Trajectory // each a sequence of whole groups
}

// RolloutsOf divides the trajectories of a training, a rollout or an evaluation into updates and groups. A group
// consists of consecutive trajectories of one update and task; the shortest such sequence gives the size.
func RolloutsOf(trajectories []*rl.Trajectory) (*Rollouts, error) {
	if !slices.ContainsFunc(trajectories, func(t *rl.Trajectory) bool { return !t.Reward.Missing() }) {
		return nil, fmt.Errorf("there are no trajectories, or none has a reward, as in the log of a server")
	}
	r := &Rollouts{Size: len(trajectories)}
	run := 0
	for i, t := range trajectories {
		if i == 0 || t.Update != trajectories[i-1].Update {
			r.Updates = append(r.Updates, nil)
		}
		if i > 0 && (t.Update != trajectories[i-1].Update || t.Task != trajectories[i-1].Task) {
			r.Size, run = min(r.Size, run), 0
		}
		run++
		last := len(r.Updates) - 1
		r.Updates[last] = append(r.Updates[last], t)
	}
	r.Size = min(r.Size, run)
	for _, update := range r.Updates {
		for group := range slices.Chunk(update, r.Size) {
			if first, last := group[0], group[len(group)-1]; len(group) < r.Size || first.Task != last.Task {
				return nil, fmt.Errorf("update %d: the trajectories do not divide into groups of %d: one starts with task "+
					"%s and ends with %s", first.Update, r.Size, first.Task, last.Task)
			}
		}
	}
	return r, nil
}

// Regroup divides each group into as many smaller groups as possible and drops the remaining members.
func (r *Rollouts) Regroup(size int) (*Rollouts, error) {
	if size < 2 || size > r.Size {
		return nil, fmt.Errorf("the stored groups have %d members; groups of 2 to %d can be taken from them, not of %d",
			r.Size, r.Size, size)
	}
	out := &Rollouts{Size: size}
	for _, update := range r.Updates {
		var kept []*rl.Trajectory
		for group := range slices.Chunk(update, r.Size) {
			kept = append(kept, group[:r.Size/size*size]...)
		}
		out.Updates = append(out.Updates, kept)
	}
	return out, nil
}

// Replayed is the table of the values that Replay computes, in the order of a page.
var Replayed = []MetricInfo{
	{"groups", "groups per update", "groups"},
	{"reward", "mean R", "reward"},
	{"zero_variance", "share of groups whose rewards are all equal", "share"},
	{"sigma2", "mean over groups of the population variance of R", "reward²"},
	{"spread_within", "mean over groups of max A - min A", "advantage"},
	{"spread_within_mixed", "the same over groups with variance", "advantage"},
	{"spread_batch", "max A - min A over the update", "advantage"},
	{"mean_abs_advantage", "mean |A|", "advantage"},
	{"effective_sample_size", "(sum |A|)² / sum A²", "episodes"},
	{"loss", "the policy's loss at ratio 1, without divergence and entropy", ""},
	{"gradient_weight", "sum over tokens of the mask of |d loss / d log pi|", ""},
	{"effective_tokens", "(sum |w|)² / sum w² of these derivatives w", "tokens"},
	{"weight_of_long", "share of these derivatives on episodes with more tokens of the mask than the median", "share"},
}

// Replay computes the advantages of stored rollouts under an objective, and the loss with its derivative for each
// token of the mask's logprob, averaged over updates, under the names of Replayed. Rollouts contain only the logprobs
// of the sampling policy, so every ratio and every weight of sampler_correction is 1, and the terms of divergence and
// entropy are omitted.
// Groups that zero_variance = "resample" would replace are kept.
func (r *Rollouts) Replay(o Objective) (map[string]float64, error) {
	kl := *o.KL
	kl.Beta = 0
	o.KL, o.Entropy = &kl, 0
	o.Correction = &SamplerCorrection{Mode: "off"}
	means := map[string]float64{}
	for _, update := range r.Updates {
		v, err := r.replay(&o, update)
		if err != nil {
			return nil, err
		}
		for name, x := range v {
			means[name] += x / float64(len(r.Updates))
		}
	}
	return means, nil
}

func (r *Rollouts) replay(o *Objective, update []*rl.Trajectory) (map[string]float64, error) {
	groups := GroupsOf(update, r.Size)
	diagnosed := groups.Diagnose()
	v := map[string]float64{"groups": float64(len(groups.Rewards))}
	for _, name := range []string{"reward", "zero_variance", "sigma2"} {
		v[name] = diagnosed[name]
	}
	rows, owner := Rows(update)
	b, length := NewBatch(rows), make([]int, len(update))
	for i, k := range owner {
		length[k] += b.Length[i]
	}
	advantages, skip := o.Advantages(update, r.Size, nil)
	b.Advantage, b.Skip = rl.Select(advantages, owner), rl.Select(skip, owner)
	n := float64(len(groups.Rewards))
	for first := 0; first < len(update); first += r.Size {
		adv := advantages[first : first+r.Size]
		d := slices.Max(adv) - slices.Min(adv)
		v["spread_within"] += d / n
		if mixed := 1 - diagnosed["zero_variance"]; !EqualRewards(update[first : first+r.Size]) {
			v["spread_within_mixed"] += d / (mixed * n)
		}
	}
	v["spread_batch"] = slices.Max(advantages) - slices.Min(advantages)
	v["mean_abs_advantage"], v["effective_sample_size"] = AdvantageSizes(advantages)
	outcome, err := o.Evaluate(b, o.Totals(b))
	if err != nil {
		return nil, err
	}
	v["loss"] = outcome.Policy
	v["gradient_weight"], v["effective_tokens"] = AdvantageSizes(outcome.DLogp)
	v["gradient_weight"] *= float64(len(outcome.DLogp))
	v["weight_of_long"] = weightOfLong(length, outcome.DLogp)
	return v, nil
}

// weightOfLong returns the share of the absolute weights on trajectories longer than the median; 0 without
// weight.
func weightOfLong(length []int, weights []float64) float64 {
	lengths := make([]float64, len(length))
	for i, n := range length {
		lengths[i] = float64(n)
	}
	slices.Sort(lengths)
	typical := blocks.Quantile(lengths, 0.5)
	long, all := 0.0, 0.0
	for _, s := range spans(length) {
		for _, w := range weights[s.from:s.to] {
			all += math.Abs(w)
			if float64(s.len()) > typical {
				long += math.Abs(w)
			}
		}
	}
	if all == 0 {
		return 0
	}
	return long / all
}

// BatchEffect contains the statistics of updates with another number of groups.
type BatchEffect struct {
	Groups       int        `json:"groups"`        // per batch
	Batches      int        `json:"batches"`       // formed from the run's groups
	SpreadBatch  [2]float64 `json:"spread_batch"`  // max A - min A over a batch, mean over batches; by ddof
	ZeroVariance float64    `json:"zero_variance"` // depends on the number of groups only by noise
	Sigma2       float64    `json:"sigma2"`
	SpreadWithin float64    `json:"spread_within"` // ddof 0
}

// BatchSizes divides the groups of all updates into batches of other sizes: powers of four, the size of the run,
// and one batch of all groups. The spread over a batch grows with the number of groups, independent of learning
// (docs/training.md 2); the other statistics do not.
func (r *Rollouts) BatchSizes() []BatchEffect {
	var all Groups
	for _, update := range r.Updates {
		all.Rewards = append(all.Rewards, GroupsOf(update, r.Size).Rewards...)
	}
	n := len(all.Rewards)
	sizes := []int{len(r.Updates[0]) / r.Size, n}
	for s := 1; s < n; s *= 4 {
		sizes = append(sizes, s)
	}
	slices.Sort(sizes)
	var out []BatchEffect
	for _, size := range slices.Compact(sizes) {
		e := BatchEffect{Groups: size, Batches: n / size}
		for rewards := range slices.Chunk(all.Rewards[:n/size*size], size) {
			v := Groups{Rewards: rewards}.Diagnose()
			share := 1 / float64(e.Batches)
			e.SpreadBatch[0] += share * v["spread_batch"]
			e.SpreadBatch[1] += share * v["spread_batch_ddof1"]
			e.ZeroVariance += share * v["zero_variance"]
			e.Sigma2 += share * v["sigma2"]
			e.SpreadWithin += share * v["spread_within"]
		}
		out = append(out, e)
	}
	return out
}

// GroupEffect contains the statistics of groups of another size.
type GroupEffect struct {
	Size         int     `json:"size"`
	ZeroVariance float64 `json:"zero_variance"` // expected share of groups whose rewards are all equal
	AllRight     float64 `json:"all_right"`
	AllWrong     float64 `json:"all_wrong"`
	Sigma2       float64 `json:"sigma2"` // expected population variance of a group's rewards
}

// GroupSizes estimates without bias the statistics of groups of each size up to the stored one, under the
// policies that sampled them: the share of a stored group's subsets whose rewards are all equal
// (ForecastZeroVariance), averaged over groups. Members with independently drawn tokens are exchangeable; subsets
// of stratified groups are not stratified. Rewards are 0 or 1.
func (r *Rollouts) GroupSizes() []GroupEffect {
	var samples []TaskSample
	variance, n := 0.0, 0.0
	for _, update := range r.Updates {
		for _, rewards := range GroupsOf(update, r.Size).Rewards {
			right := 0
			for _, reward := range rewards {
				right += int(indicator(reward == 1))
			}
			samples = append(samples, TaskSample{High: len(rewards), HighRight: right})
			variance += sampleVariance(rewards)
			n++
		}
	}
	var out []GroupEffect
	for size := 2; size <= r.Size; size++ {
		f := ForecastZeroVariance(samples, rl.AllocationIID, size, 1)
		out = append(out, GroupEffect{Size: size, ZeroVariance: f.ZeroVariance, AllRight: f.AllRight, AllWrong: f.AllWrong,
			Sigma2: variance / n * float64(size-1) / float64(size)})
	}
	return out
}
