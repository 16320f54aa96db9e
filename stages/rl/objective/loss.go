package objective

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"rcgrpo/stages/rl"
)

// Batch is the input of an objective: R rows with N tokens of their masks, ordered by row. A row is one sequence of
// tokens. An episode is one row, and each Segment of an agent a further one, which has the advantage of its episode;
// what the settings call a trajectory in loss, ratio and kl is a row.
type Batch struct {
	Length    []int     // [R] tokens of the mask per row; their sum is N
	Advantage []float64 // [R]
	Skip      []bool    // [R] excluded from every sum and count (groups without variance); nil for none
	Turn      []int     // [N] turn of each token; read by level "turn" only

	Logp        []float64 // [N] policy
	LogpOld     []float64 // [N] old policy, a constant
	LogpRef     []float64 // [N] reference policy, a constant; see NeedsReference
	LogpSampled []float64 // [N] sampler, a constant; read with a SamplerCorrection
	KL          []float64 // [N] exact divergence at each token; read by estimator "exact"
	Entropy     []float64 // [N] entropy at each token; read with an entropy coefficient
}

// Rows returns the sequences of trajectories in their order, and for each the index of its trajectory.
func Rows(trajectories []*rl.Trajectory) (rows []*rl.Trajectory, owner []int) {
	for i, t := range trajectories {
		for _, row := range t.Sequences() {
			rows, owner = append(rows, row), append(owner, i)
		}
	}
	return rows, owner
}

// NewBatch returns the lengths, turns and sampled logprobs of rows. Logp and LogpOld are the same list, as
// on-policy.
func NewBatch(rows []*rl.Trajectory) *Batch {
	b := &Batch{}
	for _, t := range rows {
		before := len(b.Turn)
		for _, m := range t.Messages {
			for k := m.From; k < m.To; k++ {
				if t.Mask[k] {
					b.Turn = append(b.Turn, m.Turn)
					b.Logp = append(b.Logp, float64(t.Logp[k]))
				}
			}
		}
		b.Length = append(b.Length, len(b.Turn)-before)
	}
	b.LogpOld = b.Logp
	return b
}

// Totals are the counts by which a whole batch is divided. Losses and gradients of parts of a batch, evaluated
// under the totals of the whole, add up to those of the batch.
//
// The divisor of a sum over rows counts rows, not episodes: an episode with two segments has weight 3 in a mean over
// rows. loss.rows chooses Rows, NonEmpty or 1; loss.aggregate = "token_mean" divides by Units instead.
type Totals struct {
	Rows     int // rows not skipped
	NonEmpty int // those of Rows with tokens of the mask
	Tokens   int // tokens of the mask in the rows not skipped
	Units    int // terms of the loss in them: tokens, turns or rows, by ratio.level
}

// Outcome is the value and gradient of an objective over a batch or a part of one. Slices have N entries.
type Outcome struct {
	Loss    float64 // Policy + beta KL - coefficient Entropy
	Policy  float64
	KL      float64 // as aggregated, without beta
	Entropy float64 // mean over tokens of the mask

	DLogp    []float64 // d Loss / d logp
	DKL      []float64 // d Loss / d exact divergence; nil without that term
	DEntropy []float64 // d Loss / d entropy; nil without that term

	LogRatio []float64 // log ratio of each unit before clamping, in order
	Ratios   int       // ratios formed; a sequence_mean ratio counts once per token
	Clipped  int       // ratios at which the clipped term is strictly smaller
}

// ClipFraction returns the share of ratios at which the clip binds; 0 without ratios.
func (o *Outcome) ClipFraction() float64 { return float64(o.Clipped) / float64(max(1, o.Ratios)) }

// Add appends the outcome of the next part of the same batch.
func (o *Outcome) Add(p *Outcome) {
	o.Loss += p.Loss
	o.Policy += p.Policy
	o.KL += p.KL
	o.Entropy += p.Entropy
	o.DLogp = append(o.DLogp, p.DLogp...)
	o.DKL = append(o.DKL, p.DKL...)
	o.DEntropy = append(o.DEntropy, p.DEntropy...)
	o.LogRatio = append(o.LogRatio, p.LogRatio...)
	o.Ratios += p.Ratios
	o.Clipped += p.Clipped
}

// span is the range [from, to) of a row's tokens of the mask in the lists of N.
type span struct{ from, to int }

func (s span) len() int { return s.to - s.from }

// spans yields the index and the span of each row, given their numbers of tokens of the mask.
func spans(length []int) iter.Seq2[int, span] {
	return func(yield func(int, span) bool) {
		from := 0
		for i, n := range length {
			if !yield(i, span{from, from + n}) {
				return
			}
			from += n
		}
	}
}

// counted yields the rows that are not skipped.
func (b *Batch) counted() iter.Seq2[int, span] {
	return func(yield func(int, span) bool) {
		for i, s := range spans(b.Length) {
			if (b.Skip == nil || !b.Skip[i]) && !yield(i, s) {
				return
			}
		}
	}
}

// Totals counts a batch. It reads Length and Skip, and Turn for level "turn".
func (o *Objective) Totals(b *Batch) Totals {
	var t Totals
	for _, s := range b.counted() {
		t.Rows++
		t.Tokens += s.len()
		if s.len() > 0 {
			t.NonEmpty++
		}
		t.Units += o.countUnits(b, s)
	}
	return t
}

// Evaluate computes the loss and its gradient over a batch, under the totals of the batch that it is a part of. A
// batch without tokens of the mask has gradient 0. An error names a slice of the wrong length.
//
// The surrogate of one ratio r with advantage A is -min(r A, clip(r, 1-low, 1+high) A) (paper, section 3.2). Its
// gradient reaches every token of the ratio. With a SamplerCorrection the gradient at each token has the token's
// weight, and the value of a term has the mean weight of its tokens.
func (o *Objective) Evaluate(b *Batch, t Totals) (*Outcome, error) {
	if err := o.checkBatch(b); err != nil {
		return nil, err
	}
	out := &Outcome{DLogp: make([]float64, len(b.Logp))}
	weights, _ := o.Correction.Weights(b.Length, b.LogpOld, b.LogpSampled)
	if weights == nil {
		weights = slices.Repeat([]float64{1}, len(b.Logp))
	}
	for i, s := range b.counted() {
		o.addPolicy(b, t, weights, i, s, out)
	}
	if o.KL.Beta != 0 && o.KL.Place == "loss" {
		o.addKL(b, t, out)
	}
	if o.Entropy != 0 {
		o.addEntropy(b, t, out)
	}
	out.Loss = out.Policy - o.Entropy*out.Entropy
	if o.KL.Place == "loss" {
		out.Loss += o.KL.Beta * out.KL
	}
	return out, nil
}

func (o *Objective) checkBatch(b *Batch) error {
	n := 0
	for _, l := range b.Length {
		n += l
	}
	correction := !o.Correction.Off()
	exact := o.KL.Beta != 0 && o.KL.Estimator == "exact"
	estimated := o.KL.Beta != 0 && o.KL.Estimator != "exact" && o.KL.Place == "loss"
	for _, p := range []struct {
		name   string
		got    int
		needed bool
	}{
		{"logp", len(b.Logp), true},
		{"logp_old", len(b.LogpOld), true},
		{"logp_sampled", len(b.LogpSampled), correction},
		{"logp_ref", len(b.LogpRef), estimated},
		{"kl", len(b.KL), exact},
		{"entropy", len(b.Entropy), o.Entropy != 0},
		{"turn", len(b.Turn), o.Ratio.Level == "turn"},
	} {
		if p.needed && p.got != n {
			return fmt.Errorf("objective: %s has %d values, want one for each of %d tokens of the mask", p.name, p.got, n)
		}
	}
	if len(b.Advantage) != len(b.Length) {
		return fmt.Errorf("objective: %d advantages for %d rows", len(b.Advantage), len(b.Length))
	}
	return nil
}

// addPolicy adds the policy term of a row: the surrogate of each of its ratios. The weights of tokens are 1
// without a SamplerCorrection.
func (o *Objective) addPolicy(b *Batch, t Totals, weights []float64, row int, s span, out *Outcome) {
	share := o.Loss.weight(t, o.countUnits(b, s))
	for _, tokens := range o.ratios(b, s) {
		logRatio, weight, meanWeight := 0.0, 0.0, 1.0
		for _, k := range tokens {
			logRatio += b.Logp[k] - b.LogpOld[k]
			weight += weights[k]
		}
		n, terms := float64(len(tokens)), 1
		if o.Ratio.Level == "sequence_mean" {
			logRatio /= n
			terms = len(tokens)
		}
		if n > 0 {
			meanWeight = weight / n
		}
		loss, slope, clipped := o.surrogate(b.Advantage[row], logRatio)
		out.Policy += share * float64(terms) * loss * meanWeight
		out.LogRatio = append(out.LogRatio, logRatio)
		out.Ratios += terms
		if clipped {
			out.Clipped += terms
		}
		slope *= share * float64(terms) // d loss / d log ratio
		if o.Ratio.Level == "sequence_mean" {
			slope /= n
		}
		for _, k := range tokens {
			out.DLogp[k] += slope * weights[k]
		}
	}
}

// ratios returns the tokens of the mask of each importance ratio of a row. Without tokens of the mask, the ratio
// of a row is 1 and the other levels have none.
func (o *Objective) ratios(b *Batch, s span) [][]int {
	tokens := indices(s.from, s.to)
	switch o.Ratio.Level {
	case "token":
		return slices.Collect(slices.Chunk(tokens, 1))
	case "turn":
		return groupsOf(tokens, b.Turn)
	case "sequence_mean":
		if len(tokens) == 0 {
			return nil
		}
	}
	return [][]int{tokens}
}

// countUnits returns the number of terms of a row.
func (o *Objective) countUnits(b *Batch, s span) int {
	if o.Ratio.Level == "sequence_mean" {
		return s.len()
	}
	return len(o.ratios(b, s))
}

// weight returns the weight of one term of a row with n terms.
func (l *Loss) weight(t Totals, n int) float64 {
	rows := float64(t.Rows)
	switch l.Rows {
	case "non_empty":
		rows = float64(t.NonEmpty)
	case "one":
		rows = 1
	}
	w := 0.0
	switch l.Aggregate {
	case "token_mean":
		w = 1 / float64(t.Units)
	case "trajectory_mean":
		w = 1 / (float64(n) + l.CountEps) / rows
	case "constant":
		w = 1 / l.Scale / rows
	default: // trajectory_sum
		w = 1 / rows
	}
	if math.IsInf(w, 0) {
		return 0 // the sum has no terms
	}
	return w
}

// surrogate returns the loss of one ratio, its slope d loss / d log ratio, and whether the clipped term is
// strictly smaller.
func (o *Objective) surrogate(advantage, logRatio float64) (loss, slope float64, clipped bool) {
	clamped := logRatio
	if limit := o.Ratio.LogClamp; limit > 0 {
		clamped = min(clamped, limit)
		if !o.Ratio.OnlyAbove {
			clamped = max(clamped, -limit)
		}
	}
	ratio := math.Exp(clamped)
	moves := ratio // d ratio / d log ratio
	if clamped < logRatio || clamped > logRatio {
		moves = 0
	}
	loss, slope = -advantage*ratio, -advantage*moves
	bound, boundMoves := min(max(ratio, 1-o.Clip.Low), 1+o.Clip.High), moves
	if bound != ratio {
		boundMoves = 0
	}
	if -advantage*bound > loss {
		loss, slope, clipped = -advantage*bound, -advantage*boundMoves, true
	}
	if d := o.Clip.Dual; d > 0 && advantage < 0 && loss > -advantage*d {
		loss, slope = -advantage*d, 0
	}
	return loss, slope, clipped
}

func (o *Objective) addKL(b *Batch, t Totals, out *Outcome) {
	exact := o.KL.Estimator == "exact"
	if exact {
		out.DKL = make([]float64, len(b.KL))
	}
	for _, s := range b.counted() {
		w := o.klWeight(b, t, s)
		for k := s.from; k < s.to; k++ {
			if exact {
				out.KL += w * b.KL[k]
				out.DKL[k] = o.KL.Beta * w
				continue
			}
			value, slope := o.KL.token(b.Logp[k] - b.LogpRef[k])
			out.KL += w * value
			out.DLogp[k] += o.KL.Beta * w * slope
		}
	}
}

// klWeight returns the weight of the divergence at each token of a row.
func (o *Objective) klWeight(b *Batch, t Totals, s span) float64 {
	w := 0.0
	switch o.KL.Aggregate {
	case "trajectory_sum":
		w = 1 / float64(t.Rows)
	case "trajectory_mean":
		w = 1 / float64(s.len()) / float64(t.Rows)
	case "token_mean":
		w = 1 / float64(t.Tokens)
	default: // loss: the weight of the slope of a ratio at each token
		return o.Loss.weight(t, o.countUnits(b, s))
	}
	if math.IsInf(w, 0) {
		return 0
	}
	return w
}

// KLWeight returns the effective weight of the KL term relative to the policy term: beta times the sum over
// tokens of the mask of their weights in the KL term, divided by that sum for the policy term at ratio 1 and advantage
// 1. It is beta with kl.aggregate = "loss". It falls with the length of episodes if the policy term sums over a
// trajectory and the KL term averages. It is 0 without tokens of the mask or without a KL term in the loss.
func (o *Objective) KLWeight(b *Batch, t Totals) float64 {
	if o.KL.Place != "loss" {
		return 0
	}
	kl, policy := 0.0, 0.0
	for _, s := range b.counted() {
		kl += float64(s.len()) * o.klWeight(b, t, s)
		policy += float64(s.len()) * o.Loss.weight(t, o.countUnits(b, s))
	}
	if policy == 0 {
		return 0
	}
	return o.KL.Beta * kl / policy
}

// KLWeightText is KLWeight as a formula, for batches that are not known yet.
func (o *Objective) KLWeightText() string {
	text := fmt.Sprint(o.KL.Beta)
	switch {
	case o.KL.Beta == 0:
		return "0"
	case o.KL.Place == "reward":
		return text + " of the reward per nat of an episode"
	case o.KL.Aggregate == "loss":
		return text
	}
	const tokens = "mask tokens of an episode"
	over, under := "", "" // the weight of a token in the policy's term is over / under, as a share of a trajectory's
	switch {
	case o.Loss.Aggregate == "constant":
		over = fmt.Sprint(o.Loss.Scale)
	case o.Loss.Aggregate == "trajectory_sum" || o.Ratio.Level == "trajectory":
	case o.Ratio.Level == "turn":
		over = "turns of an episode"
	default:
		over = tokens
	}
	if o.KL.Aggregate != "trajectory_sum" {
		under = tokens
	}
	if over == under {
		over, under = "", ""
	}
	if o.Loss.Rows == "one" && o.Loss.Aggregate != "token_mean" {
		under = strings.TrimPrefix(under+" / episodes", " / ")
	}
	if over != "" {
		text += " × " + over
	}
	if under != "" {
		text += " / " + under
	}
	return text
}

// addEntropy adds the entropy bonus: the mean over tokens of the mask.
func (o *Objective) addEntropy(b *Batch, t Totals, out *Outcome) {
	out.DEntropy = make([]float64, len(b.Entropy))
	for _, s := range b.counted() {
		for k := s.from; k < s.to; k++ {
			out.Entropy += b.Entropy[k] / float64(t.Tokens)
			out.DEntropy[k] = -o.Entropy / float64(t.Tokens)
		}
	}
}

// token is the estimate at one sampled token and its slope d estimate / d logp, given d = logp - logp_ref.
func (k *KL) token(d float64) (value, slope float64) {
	switch k.Estimator {
	case "k1":
		value, slope = d, 1
	case "abs":
		value, slope = math.Abs(d), float64(cmp.Compare(d, 0))
	case "k2":
		value, slope = d*d/2, d
	default: // k3 (Schulman 2020): unbiased, never negative
		clamped := d
		if k.LogClamp > 0 {
			clamped = min(max(d, -k.LogClamp), k.LogClamp)
		}
		value = math.Exp(-clamped) - 1 + clamped
		if k.LogClamp <= 0 || clamped == d {
			slope = 1 - math.Exp(-clamped)
		}
	}
	if k.ValueClamp > 0 && math.Abs(value) > k.ValueClamp {
		value, slope = math.Copysign(k.ValueClamp, value), 0
	}
	return value, slope
}

// KLPenalty is what KL.Place "reward" subtracts from the reward before advantages, for each row [R]: beta times the
// sum of the estimates at its tokens of the mask, under the policy that sampled them. It is nil with the KL term in the
// loss.
func (o *Objective) KLPenalty(length []int, logpOld, logpRef []float64) []float64 {
	if o.KL.Place != "reward" || o.KL.Beta == 0 {
		return nil
	}
	out := make([]float64, len(length))
	for i, s := range spans(length) {
		for k := s.from; k < s.to; k++ {
			value, _ := o.KL.token(logpOld[k] - logpRef[k])
			out[i] += o.KL.Beta * value
		}
	}
	return out
}
