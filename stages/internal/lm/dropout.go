//go:build libtorch

package lm

import (
	"math"
	"slices"

	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl"
)

// dropout zeroes random adapter inputs during training (Srivastava et al. 2014, placed like peft's lora_dropout):
// with a mask m of zeros and ones, drawn for every projection,
//
//	y = W·x + scale/(1-p)·B·A·(m ∘ x)
//
// so the pass reads base weights and adapter separately. The mask is a function of seed, update, the tokens up to
// the position, projection and column. It is independent of how a batch is split or packed and of earlier masks,
// so sequences with a common prefix share its mask and it is computed once. peft draws one mask per sequence from
// another generator, so its trainings with dropout are equal only in expectation.
type dropout struct {
	a             *Adapter
	rows, learned []rl.Stream // of each row of a batch, and of the rows with loss
}

// dropoutSteps is the resolution of the probability: a mask uses 16 bits per entry.
const dropoutSteps = 1 << 16

// threshold returns how many of dropoutSteps zero an input.
func (c LoRA) threshold() uint64 {
	return min(uint64(math.Round(c.Dropout*dropoutSteps)), dropoutSteps-1)
}

// passScale returns the factor of the adapter's product in a training pass.
func (c LoRA) passScale() float64 {
	return c.scale() * dropoutSteps / float64(dropoutSteps-c.threshold())
}

// applyDropout prepares a batch for the dropout of an update; key is the stream of seed and update.
func (a *Adapter) applyDropout(b *batch, key rl.Stream) {
	b.drop = &dropout{a: a}
	for _, prefix := range b.prefixes {
		b.drop.rows = append(b.drop.rows, key.With(uint64(prefix)))
	}
	for _, row := range b.learn {
		b.drop.learned = append(b.drop.learned, b.drop.rows[row])
	}
}

func (m *Model) weights(b *batch, l int) *layerViews {
	if b.drop != nil {
		return &b.drop.a.base.w.layers[l]
	}
	return &m.w.layers[l]
}

// keys returns the streams of a matrix's rows, nil without dropout.
func (b *batch) keys(learned bool) []rl.Stream {
	switch {
	case b.drop == nil:
		return nil
	case learned:
		return b.drop.learned
	}
	return b.drop.rows
}

// mask returns the mask of the inputs [n, in] of a projection of layer l.
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

// each calls f with the adapted parts among the named projections of layer l, and the first column of each in a
// matrix of all their outputs.
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

// addAdapter adds the adapter's product to y, the outputs of the named projections of layer l for x. Without
// dropout it does nothing, because the weights contain the adapter. learned reports whether the rows are those
// with loss.
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

// addAdapterBack adds the gradient through the adapter to dx, the gradient of the input of the named projections.
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
