//go:build libtorch

package lm

import (
	"math"
	"slices"

	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl"
)

// dropout has a training pass of an adapter leave out parts of the adapter's inputs (Srivastava et
// al. 2014, placed as in peft's lora_dropout): with m of zeros and ones, drawn anew for every
// projection,
//
//	y = W·x + scale/(1-p)·B·A·(m ∘ x)
//
// so the pass reads the base's weights and the adapter beside them, not merged ones. What m leaves
// out is a function of the seed, the update, the tokens up to the place, the projection and the
// column, and of nothing else: neither of how a batch is split or packed, nor of what was left out
// before. So what sequences of a batch have in common is computed once also here, under one mask
// for all of them; peft draws one for each, from a generator whose numbers nobody else can have,
// which is why its trainings with dropout are met in expectation only.
type dropout struct {
	a             *Adapter
	rows, learned []rl.Stream // of each row of a batch, and of those that carry loss
}

// dropoutSteps is how finely the probability is divided: a mask takes 16 bits for each of its entries.
const dropoutSteps = 1 << 16

// threshold is how many of dropoutSteps leave an input out.
func (c LoRA) threshold() uint64 {
	return min(uint64(math.Round(c.Dropout*dropoutSteps)), dropoutSteps-1)
}

// passScale multiplies the adapter's product in a training pass.
func (c LoRA) passScale() float64 {
	return c.scale() * dropoutSteps / float64(dropoutSteps-c.threshold())
}

// leaveOut prepares a batch for the dropout of an update; key is that of seed and update.
func (a *Adapter) leaveOut(b *batch, key rl.Stream) {
	b.drop = &dropout{a: a}
	for _, prefix := range b.prefixes {
		b.drop.rows = append(b.drop.rows, key.With(uint64(prefix)))
	}
	for _, row := range b.learn {
		b.drop.learned = append(b.drop.learned, b.drop.rows[row])
	}
}

// weights are those that layer l of a pass multiplies with.
func (m *Model) weights(b *batch, l int) *layerViews {
	if b.drop != nil {
		return &b.drop.a.base.w.layers[l]
	}
	return &m.w.layers[l]
}

// keys are those of the rows that a matrix of a pass has: nil without dropout.
func (b *batch) keys(learned bool) []rl.Stream {
	switch {
	case b.drop == nil:
		return nil
	case learned:
		return b.drop.learned
	}
	return b.drop.rows
}

// mask is 1 where an input [n, in] of a projection of layer l stays and 0 where it is left out.
func (a *Adapter) mask(s *torch.Scope, kind torch.DType, keys []rl.Stream, p *adapterPart) *torch.Tensor {
	mask, threshold := s.Empty(torch.Float32, int64(len(keys)), int64(p.in)), a.c.threshold()
	s.Fill(mask, func(to []float32) error {
		for _, key := range keys {
			key = key.With(uint64(p.layer)).With(p.projection)
			row := to[:p.in]
			to = to[p.in:]
			bits := uint64(0)
			for c := range row {
				if c%4 == 0 {
					bits = key.Bits(c / 4)
				}
				row[c] = 1
				if bits%dropoutSteps < threshold {
					row[c] = 0
				}
				bits /= dropoutSteps
			}
		}
		return nil
	})
	return s.As(mask, kind)
}

// each calls f with the parts of the named projections of layer l that the adapter changes, and
// where their outputs begin in a matrix that holds all of them side by side.
func (a *Adapter) each(l int, names []string, f func(p *adapterPart, from int64)) {
	from := int64(0)
	for _, name := range names {
		full := layerName(l, name+".weight")
		if i := slices.IndexFunc(a.parts, func(p adapterPart) bool { return p.name == full }); i >= 0 {
			f(&a.parts[i], from)
		}
		from += int64(a.layout[full].shape[0])
	}
}

// addAdapter adds to y, the outputs of the named projections of layer l for x, what the adapter
// says beside the base; nothing without dropout, where the weights say it. learned says that the
// rows are those that carry loss.
func (b *batch) addAdapter(s *torch.Scope, l int, y, x *torch.Tensor, learned bool, names ...string) {
	if b.drop == nil {
		return
	}
	a, kind := b.drop.a, x.DType()
	a.each(l, names, func(p *adapterPart, from int64) {
		s.Nest(func(s *torch.Scope) {
			kept := s.Mul(x, a.mask(s, kind, b.keys(learned), p))
			low := s.MulScalar(s.Mm(kept, s.T(s.As(p.a, kind))), a.c.passScale()) // [n, rank]
			s.Add_(s.Narrow(y, 1, from, int64(p.out)), s.Mm(low, s.T(s.As(p.b, kind))))
		})
	})
}

// addAdapterBack adds to dx, the gradient of the input of the named projections, what goes back
// through the adapter.
func (b *batch) addAdapterBack(s *torch.Scope, l int, dx, dy *torch.Tensor, learned bool, names ...string) {
	if b.drop == nil {
		return
	}
	a, kind := b.drop.a, dy.DType()
	a.each(l, names, func(p *adapterPart, from int64) {
		s.Nest(func(s *torch.Scope) {
			low := s.MulScalar(s.Mm(s.Narrow(dy, 1, from, int64(p.out)), s.As(p.b, kind)), a.c.passScale()) // [n, rank]
			s.Add_(dx, s.Mul(s.Mm(low, s.As(p.a, kind)), a.mask(s, kind, b.keys(learned), p)))
		})
	})
}
