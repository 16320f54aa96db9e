//go:build libtorch

package lm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"rcgrpo/stages/internal/torch"
)

func (c LoRA) scale() float64 { return c.Alpha / float64(c.Rank) }

// Adapter is a low-rank change of a model. Model returns the model with the change merged into its weights, for
// forward passes, sampling and export. The base is unchanged and must outlive the adapter.
type Adapter struct {
	c      LoRA
	base   *Model
	model  *Model
	layout map[string]weight // of the base, by name
	flat   *torch.Tensor     // all A and B, in the order of parts; then the rows of the tables
	parts  []adapterPart
	tables []adapterTable // none without rows
}

// adapterPart is the change of one projection of one layer.
type adapterPart struct {
	name         string // of the projection's weight
	out, in      int
	offset       int           // of A in the flat buffer; B follows
	base, merged *torch.Tensor // [out, in] views
	a, b         *torch.Tensor // [rank, in], [out, rank] views
}

// adapterTable is a matrix with a row per token, some of which the adapter trains.
type adapterTable struct {
	name   string
	offset int             // of the first of the rows in the flat buffer
	merged []*torch.Tensor // [1, hidden] views of the model's rows
	own    []*torch.Tensor // [1, hidden] views of the adapter's
}

// NewAdapter returns an adapter without effect: A uniform in ±1/√in as in peft, B zero, rows unchanged.
func NewAdapter(base *Model, c LoRA, rng *rand.Rand) (*Adapter, error) {
	a, total, err := adapterOf(base, c)
	if err != nil {
		return nil, err
	}
	flat := make([]float32, total)
	for _, p := range a.parts {
		bound := 1 / sqrt(p.in)
		for i := range c.Rank * p.in {
			flat[p.offset+i] = float32(bound * (2*rng.Float64() - 1))
		}
	}
	width := base.cfg.Hidden
	err = base.do(func(s *torch.Scope) {
		for _, table := range a.tables {
			for i, id := range c.Rows {
				row := base.exact(s, a.layout[table.name], int(id)*width, width)
				copy(flat[table.offset+i*width:], s.Float32s(row))
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return a, a.place(flat)
}

// adapterOf computes the layout of an adapter without weights.
func adapterOf(base *Model, c LoRA) (a *Adapter, total int, err error) {
	if err := c.Check(); err != nil {
		return nil, 0, err
	}
	a = &Adapter{c: c, base: base, layout: map[string]weight{}}
	weights, _ := layout(base.cfg)
	for _, w := range weights {
		a.layout[w.name] = w
		if len(w.shape) == 2 && slices.Contains(c.Targets, moduleOf(w.name)) {
			a.parts = append(a.parts, adapterPart{name: w.name, out: w.shape[0], in: w.shape[1], offset: total})
			total += c.Rank * (w.shape[0] + w.shape[1])
		}
	}
	for i, id := range c.Rows {
		if id < 0 || int(id) >= base.cfg.Vocab || slices.Contains(c.Rows[:i], id) {
			return nil, 0, fmt.Errorf("lora: vocabulary row %d is given twice, or is none of the model's 0..%d", id,
				base.cfg.Vocab-1)
		}
	}
	for _, w := range weights {
		if len(c.Rows) > 0 && (w.name == embedName || w.name == headName) {
			a.tables = append(a.tables, adapterTable{name: w.name, offset: total})
			total += len(c.Rows) * base.cfg.Hidden
		}
	}
	return a, total, nil
}

// place puts the adapter's weights on the device and merges them into a copy of the model.
func (a *Adapter) place(flat []float32) error {
	var err error
	if a.model, err = a.base.Clone(); err != nil {
		return err
	}
	a.model.adapter = a
	err = a.base.do(func(s *torch.Scope) {
		a.flat = s.FromFloat32(flat, int64(len(flat)))
		kept := []*torch.Tensor{a.flat}
		for i := range a.parts {
			p := &a.parts[i]
			at := a.layout[p.name].offset
			p.base = cut(s, a.base.flat, at, p.out, p.in)
			p.merged = cut(s, a.model.flat, at, p.out, p.in)
			p.a, p.b = p.factors(s, a.flat, a.c.Rank)
			kept = append(kept, p.base, p.merged, p.a, p.b)
		}
		width := a.base.cfg.Hidden
		for i := range a.tables {
			table := &a.tables[i]
			at := a.layout[table.name].offset
			for k, id := range a.c.Rows {
				table.merged = append(table.merged, cut(s, a.model.flat, at+int(id)*width, 1, width))
				table.own = append(table.own, cut(s, a.flat, table.offset+k*width, 1, width))
			}
			kept = append(append(kept, table.merged...), table.own...)
		}
		a.merge(s)
		if s.Err() == nil {
			s.Keep(kept...)
		}
	})
	if err != nil {
		return errors.Join(fmt.Errorf("place an adapter: %w", err), a.model.Close())
	}
	return nil
}

// factors returns A and B of a part in a buffer with the adapter's layout: its weights or their gradient.
func (p *adapterPart) factors(s *torch.Scope, flat *torch.Tensor, rank int) (a, b *torch.Tensor) {
	return cut(s, flat, p.offset, rank, p.in), cut(s, flat, p.offset+rank*p.in, p.out, rank)
}

// merge writes W + scale·B·A, and the rows, into the model. It starts from the base each time, so rounding does
// not accumulate; in bfloat16 the sum is rounded once.
func (a *Adapter) merge(s *torch.Scope) {
	for _, p := range a.parts {
		s.Nest(func(s *torch.Scope) {
			sum := p.merged
			if sum.DType() != torch.Float32 {
				sum = s.Empty(torch.Float32, int64(p.out), int64(p.in))
			}
			s.Copy_(sum, p.base)
			s.Addmm_(sum, s.MulScalar(p.b, a.c.scale()), p.a)
			if sum != p.merged {
				s.Copy_(p.merged, sum)
			}
		})
	}
	for _, table := range a.tables {
		for k := range table.own {
			s.Copy_(table.merged[k], table.own[k])
		}
	}
}

// exact returns n elements of a merged matrix in float32, from the start of a row on.
func (a *Adapter) exact(s *torch.Scope, w weight, from, n int) *torch.Tensor {
	row := w.row()
	first, rows := int64(from/row), int64(n/row)
	sum := s.View(s.As(s.Narrow(a.base.flat, 0, int64(w.offset+from), int64(n)), torch.Float32), rows, int64(row))
	for _, p := range a.parts {
		if p.name == w.name {
			s.Addmm_(sum, s.MulScalar(s.Narrow(p.b, 0, first, rows), a.c.scale()), p.a)
		}
	}
	for _, table := range a.tables {
		for k, id := range a.c.Rows {
			if at := int64(id) - first; table.name == w.name && at >= 0 && at < rows {
				s.Copy_(s.Narrow(sum, 0, at, 1), table.own[k])
			}
		}
	}
	return sum
}

// Model returns the base with the adapter merged into it. The adapter owns it.
func (a *Adapter) Model() *Model { return a.model }

// Close frees the adapter and its model, not the base. It may be called twice.
func (a *Adapter) Close() error {
	err := a.base.do(func(s *torch.Scope) {
		for _, p := range a.parts {
			s.Free(p.base, p.merged, p.a, p.b)
		}
		for _, table := range a.tables {
			s.Free(table.merged...)
			s.Free(table.own...)
		}
		s.Free(a.flat)
	})
	return errors.Join(err, a.model.Close())
}

// Trainer returns a trainer of the adapter; the base is frozen. With peers, adapters and bases are equal in all ranks.
func (a *Adapter) Trainer(o OptimizerConfig, peers Peers) (*Trainer, error) {
	t := &Trainer{m: a.model, p: a.flat, adapter: a, o: o, peers: peers}
	return t, t.start()
}

// gradientViews returns the targets of a backward pass: grad, the adapter's gradient, and for norms and biases, which
// are not trained, unused buffers.
func (a *Adapter) gradientViews(s *torch.Scope, grad *torch.Tensor) *views {
	c := a.base.cfg
	v := &views{adapter: func(s *torch.Scope, l int, dy, x *torch.Tensor, names []string) {
		a.addProduct(s, grad, l, dy, x, names)
	}}
	vector := func(n int) *torch.Tensor {
		x := s.Zeros(torch.Float32, int64(n))
		v.all = append(v.all, x)
		return x
	}
	v.norm = vector(c.Hidden)
	layer := layerViews{norm1: v.norm, norm2: v.norm}
	if c.bias() {
		q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
		layer.qkvBias, layer.qBias, layer.kvBias = vector(q+2*kv), vector(q), vector(2*kv)
	}
	if c.headNorms() {
		layer.qNorm, layer.kNorm = vector(c.HeadDim), vector(c.HeadDim)
	}
	v.layers = slices.Repeat([]layerViews{layer}, c.Layers)
	for _, table := range a.tables {
		rows := cut(s, grad, table.offset, len(a.c.Rows), c.Hidden)
		v.all = append(v.all, rows)
		if table.name == embedName {
			v.rows, v.embedRows = a.c.Rows, rows
		}
		v.headRows = rows // of the last table: a tied embedding is the head
	}
	return v
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

// addProduct adds the gradient of A and B of the named projections of layer l, whose outputs are adjacent columns
// of dy: scale·(dy·B)ᵀ·x and scale·dyᵀ·(x·Aᵀ). The gradient of the whole weight is never formed.
func (a *Adapter) addProduct(s *torch.Scope, grad *torch.Tensor, l int, dy, x *torch.Tensor, names []string) {
	a.each(l, names, func(p *adapterPart, from int64) {
		s.Nest(func(s *torch.Scope) {
			scale := a.c.scale()
			own := s.Narrow(dy, 1, from, int64(p.out))
			da, db := p.factors(s, grad, a.c.Rank)
			addProduct(s, da, s.MulScalar(s.Mm(own, s.As(p.b, x.DType())), scale), x)
			addProduct(s, db, own, s.MulScalar(s.Mm(x, s.T(s.As(p.a, x.DType()))), scale))
		})
	})
}
