//go:build libtorch

package lm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"rcgrpo/stages/internal/torch"
)

// Trainer trains the weights of a model: Accumulate adds gradients, Update applies them with AdamW.
type Trainer struct {
	m *Model
	n int64 // trained weights
	// p are the trained weights in float32, of the model or an adapter. If passes read bfloat16 and there are several
	// ranks, it is this rank's shard.
	p       *torch.Tensor
	adapter *Adapter // nil without one
	o       OptimizerConfig
	m1, m2  *torch.Tensor // [shard] first and second moment
	// grad [n] and the sum of the partial gradients [shard] are nil between an update and the next gradient, so that
	// sampling has their memory. After the first round of an update the sum is in the shard of grad, and ended is true;
	// sum is nil until a second round begins.
	grad, sum  *torch.Tensor
	ended      bool
	g          *views // of grad
	peers      Peers
	step       int // updates made
	skippedRow int // updates skipped in a row
	recompute  bool
}

// maxSkipped is the number of consecutive updates without a finite gradient that ends a training.
const maxSkipped = 3

// NewTrainer returns a trainer with zero moments: with peers, whose models are equal, that of one rank. The model must
// outlive it.
func NewTrainer(m *Model, o OptimizerConfig, peers Peers) (*Trainer, error) {
	if m.master == nil {
		return nil, errors.New("optimizer: the model is frozen, it has no float32 weights to train")
	}
	t := &Trainer{m: m, p: m.master, o: o, peers: peers}
	return t, t.start()
}

// start allocates the moments, and moves the float32 weights beside bfloat16 to their place.
func (t *Trainer) start() error {
	t.n, t.o.Host, t.m.rank = t.p.Size(0), cmp.Or(t.o.Host, HostNone), t.peers.Rank
	apart := t.adapter == nil && t.m.kind != torch.Float32 // passes do not read p
	switch {
	case t.o.Host != HostNone && t.o.Host != HostMoments && t.o.Host != HostAll:
		return fmt.Errorf("optimizer: host = %q is none of %q, %q and %q", t.o.Host, HostNone, HostMoments, HostAll)
	case t.o.Host == HostAll && !apart:
		return fmt.Errorf("optimizer: host = %q, but the passes read the float32 weights; use %q", t.o.Host, HostMoments)
	}
	from, to := t.shard()
	err := t.m.do(func(s *torch.Scope) {
		buffer := func(host bool) *torch.Tensor {
			if host {
				return s.HostZeros(to - from)
			}
			return s.Zeros(torch.Float32, to-from)
		}
		t.m1, t.m2 = buffer(t.o.Host != HostNone), buffer(t.o.Host != HostNone)
		if apart && (t.o.Host == HostAll || t.peers.Group != nil) {
			t.p = buffer(t.o.Host == HostAll)
			s.Copy_(t.p, s.Narrow(t.m.master, 0, from, to-from))
		}
		if s.Err() != nil {
			return
		}
		s.Keep(t.m1, t.m2)
		if t.p != t.m.master && apart {
			s.Keep(t.p)
			s.Free(t.m.master)
			if t.m.master = t.p; t.peers.Group != nil {
				t.m.master, t.m.sharded = nil, t
			}
		}
	})
	if err != nil {
		return fmt.Errorf("optimizer: %w", err)
	}
	return nil
}

// startGradient allocates a gradient of zeros unless there is one.
func (t *Trainer) startGradient(s *torch.Scope) {
	if t.grad != nil {
		return
	}
	grad := s.Zeros(torch.Float32, t.n)
	var g *views
	if t.adapter == nil {
		g = viewsOf(s, t.m.cfg, grad, nil)
	} else {
		g = t.adapter.gradientViews(s, grad)
	}
	if s.Err() == nil {
		s.Keep(grad)
		s.Keep(g.all...)
		t.grad, t.g = grad, g
	}
}

// endGradient frees the gradient, and what the passes before have used.
func (t *Trainer) endGradient(s *torch.Scope) {
	if t.g != nil {
		s.Free(t.g.all...)
	}
	s.Free(t.grad, t.sum)
	t.grad, t.sum, t.g, t.ended = nil, nil, nil, false
	s.Trim()
}

// SetRecompute makes later forward passes store only each layer's input and the backward pass recompute the rest:
// a third more work for a fraction of the memory, with identical results.
func (t *Trainer) SetRecompute(on bool) { t.recompute = on }

// Close frees gradient and moments. It may be called twice.
func (t *Trainer) Close() error {
	return t.m.do(func(s *torch.Scope) {
		t.endGradient(s)
		s.Free(t.m1, t.m2)
		if t.m.sharded == t {
			s.Free(t.p)
		}
	})
}

// Accumulate adds the gradient of Σ weight·statistic over the tokens of the mask of a batch. Micro-batches consist of
// whole sequences with at most MicroTokens rows (PackedRows), or of one longer sequence. After the forward pass of a
// micro-batch, weigh gets the index of its first sequence, their number and the statistics of their mask's
// tokens, and returns the derivatives of the loss with respect to them; three nil slices skip the backward pass.
// weigh runs on the device's thread and must not use a model. ref, for LogpRef and KL, may be nil. Accumulate
// returns the statistics of the whole batch.
func (t *Trainer) Accumulate(ctx context.Context, sequences []Sequence, ref *Model, temperature float64,
	weigh func(first, n int, s TokenStats) (Weights, error)) (TokenStats, error) {
	keep := all
	if t.recompute {
		keep = inputs
	}
	if err := t.m.do(t.startRound); err != nil {
		return TokenStats{}, fmt.Errorf("gradient: %w", err)
	}
	return t.m.run(ctx, sequences, ref, temperature, t.o.MicroTokens, keep,
		func(s *torch.Scope, first, n int, b *microBatch, tp *tape, h *head, stats TokenStats) error {
			w, err := weigh(first, n, stats)
			if err != nil {
				return err
			}
			weights, any, err := headWeights(w, b, ref != nil)
			if err != nil || !any || len(b.owner) == 0 {
				return err
			}
			t.m.backward(s, b, tp, h.backward(s, weights, t.g), t.g)
			return s.Err()
		})
}

// headWeights sums the weights of the mask's tokens by prediction.
func headWeights(w Weights, b *microBatch, hasRef bool) (rows []torch.HeadWeight, any bool, err error) {
	n := len(b.owner)
	rows = make([]torch.HeadWeight, len(b.targets))
	add := func(name string, values []float64, field func(r *torch.HeadWeight) *float64) {
		if values == nil || err != nil {
			return
		}
		if len(values) != n {
			err = fmt.Errorf("weights: %d for %s, want one for each of %d tokens of the mask", len(values), name, n)
			return
		}
		for i, v := range values {
			*field(&rows[b.owner[i]]) += v
		}
		any = true
	}
	add("logp", w.Logp, func(r *torch.HeadWeight) *float64 { return &r.Logp })
	add("entropy", w.Entropy, func(r *torch.HeadWeight) *float64 { return &r.Entropy })
	add("KL", w.KL, func(r *torch.HeadWeight) *float64 { return &r.KL })
	if w.KL != nil && !hasRef {
		err = errors.New("weights: the KL has a weight but there is no reference model")
	}
	return rows, any, err
}

// Stats computes the statistics of a batch without a gradient. ref may be nil.
func (m *Model) Stats(ctx context.Context, sequences []Sequence, ref *Model, temperature float64) (TokenStats, error) {
	return m.run(ctx, sequences, ref, temperature, DefaultMicroTokens, nothing, nil)
}

// Stats is Model.Stats with the trainer's micro-batches.
func (t *Trainer) Stats(ctx context.Context, sequences []Sequence, ref *Model, temperature float64) (TokenStats,
	error) {
	return t.m.run(ctx, sequences, ref, temperature, t.o.MicroTokens, nothing, nil)
}

// run runs forward passes over the micro-batches of a batch. It calls then, if not nil, after each,
// before the activations are freed.
func (m *Model) run(ctx context.Context, sequences []Sequence, ref *Model, temperature float64, microTokens int,
	keep kept, then func(s *torch.Scope, first, n int, b *microBatch, t *tape, h *head, stats TokenStats) error,
) (TokenStats, error) {
	var all TokenStats
	if !(temperature > 0) {
		return all, fmt.Errorf("logprobs at temperature %v: it must be above 0", temperature)
	}
	if ref != nil && (ref.cfg.Vocab != m.cfg.Vocab || ref.device != m.device) {
		return all, fmt.Errorf("reference model: %d tokens on %s, want %d on %s like the policy", ref.cfg.Vocab,
			ref.device, m.cfg.Vocab, m.device)
	}
	for first := 0; first < len(sequences); {
		n, _ := fitting(sequences[first:], microTokens)
		b, err := m.pack(sequences[first:first+n], first)
		if err != nil {
			return all, err
		}
		err = torch.Do(ctx, m.device, func(s *torch.Scope) error {
			var t *tape
			var h *head
			var stats TokenStats
			if len(b.targets) > 0 {
				t = m.forward(s, b, keep)
				h = newHead(s, m, ref, b, temperature, t.hidden, m.cfg.headRows(Use{GPU: s.Composes(torch.Float32),
					Precision: m.Precision(), Reference: ref != nil, MicroBatch: microTokens}), then != nil)
				stats = tokenStats(h.stats, b.owner, ref != nil)
			}
			if s.Err() != nil {
				return s.Err()
			}
			all.Append(stats)
			if then == nil {
				return nil
			}
			return then(s, first, n, b, t, h, stats)
		})
		if err != nil {
			return all, fmt.Errorf("sequences %d..%d: %w", first, first+n-1, err)
		}
		first += n
	}
	return all, nil
}

func tokenStats(rows []torch.HeadStat, owner []int32, hasRef bool) (s TokenStats) {
	for _, at := range owner {
		r := rows[at]
		s.Logp = append(s.Logp, r.Logp)
		s.Entropy = append(s.Entropy, r.Entropy)
		if hasRef {
			s.LogpRef = append(s.LogpRef, r.LogpRef)
			s.KL = append(s.KL, r.KL)
		}
	}
	return s
}

// Update clips the gradient by its global norm, makes one AdamW step at learning rate lr, and frees the
// gradient. It returns the norm before clipping, in float64. With a gradient that is not finite no weight changes,
// and skipped is true; the third in a row is an error.
func (t *Trainer) Update(lr float64) (gradNorm float64, skipped bool, err error) {
	if gradNorm, err = t.Norm(); err != nil {
		return gradNorm, false, err
	}
	skipped = math.IsNaN(gradNorm) || math.IsInf(gradNorm, 0)
	err = t.m.do(func(s *torch.Scope) {
		if !skipped {
			t.step++
			t.apply(s, t.adamW(lr, gradNorm))
		}
		t.endGradient(s)
	})
	if err != nil {
		return gradNorm, false, fmt.Errorf("update: %w", err)
	}
	if !skipped {
		t.skippedRow = 0
		return gradNorm, false, nil
	}
	if t.skippedRow++; t.skippedRow >= maxSkipped {
		return gradNorm, true, fmt.Errorf("update: the gradient norm was %v, the third time in a row that it is not "+
			"finite; lower the learning rate", gradNorm)
	}
	return gradNorm, true, nil
}

// adamW returns the settings of a step with a gradient of this norm.
func (t *Trainer) adamW(lr, gradNorm float64) torch.AdamW {
	step := torch.AdamW{LR: lr, Beta1: t.o.Beta1, Beta2: t.o.Beta2, Eps: t.o.Eps, Decay: t.o.Decay, Scale: 1,
		Step: t.step}
	if t.o.Clip > 0 && gradNorm > t.o.Clip {
		step.Scale = t.o.Clip / (gradNorm + 1e-6) // as torch.nn.utils.clip_grad_norm_ does
	}
	return step
}

// apply makes one step and updates what passes read.
func (t *Trainer) apply(s *torch.Scope, step torch.AdamW) {
	from, to := t.shard()
	if t.o.Host == HostNone {
		p := t.own(s, t.p)
		s.AdamW_(p, t.total(s), t.m1, t.m2, step)
		t.round(s, from, p)
	} else {
		for at := int64(0); at < to-from && s.Err() == nil; at += hostPiece {
			s.Nest(func(s *torch.Scope) { t.applyPiece(s, at, min(hostPiece, to-from-at), step) })
		}
	}
	t.spreadWeights(s)
	if t.adapter != nil {
		t.adapter.merge(s)
	}
}

// round updates what passes read of the weights p from offset at on.
func (t *Trainer) round(s *torch.Scope, at int64, p *torch.Tensor) {
	if t.adapter == nil {
		t.m.round(s, at, p)
	}
}

// applyPiece makes the step of n weights of the shard, with copies on the device of what the host stores.
func (t *Trainer) applyPiece(s *torch.Scope, at, n int64, step torch.AdamW) {
	onHost := []*torch.Tensor{t.m1, t.m2}
	if t.o.Host == HostAll {
		onHost = append(onHost, t.p)
	}
	part := func(x *torch.Tensor) *torch.Tensor { return s.Narrow(t.own(s, x), 0, at, n) }
	piece := map[*torch.Tensor]*torch.Tensor{t.p: part(t.p)}
	for _, x := range onHost {
		piece[x] = s.Empty(torch.Float32, n)
		s.Copy_(piece[x], part(x))
	}
	s.AdamW_(piece[t.p], part(t.total(s)), piece[t.m1], piece[t.m2], step)
	from, _ := t.shard()
	t.round(s, from+at, piece[t.p])
	for _, x := range onHost {
		s.Copy_(part(x), piece[x])
	}
}

// Drop discards the accumulated gradient.
func (t *Trainer) Drop() error { return t.m.do(t.endGradient) }

// Gradient returns a copy of the gradient that one process has accumulated, in the order of Model.Weights.
func (t *Trainer) Gradient() (flat []float32, err error) {
	err = t.m.do(func(s *torch.Scope) {
		t.startGradient(s)
		flat = slices.Clone(s.Float32s(t.total(s)))
	})
	return flat, err
}
