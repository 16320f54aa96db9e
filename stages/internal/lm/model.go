//go:build libtorch

package lm

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"rcgrpo/stages/internal/ranks"
	"rcgrpo/stages/internal/torch"
)

// Model is a decoder with its weights on one device. Its buffers have the order of layout.
type Model struct {
	cfg     Config
	file    configFile // if the model was loaded
	device  torch.Device
	kind    torch.DType   // of products
	flat    *torch.Tensor // [parameters] of type kind: what passes read
	vectors *torch.Tensor // biases and norms in float32, because norms are never rounded; nil in float32
	master  *torch.Tensor // [parameters] float32, what updates change: flat in float32, nil if frozen in bfloat16
	adapter *Adapter      // if its product is merged into flat
	sharded *Trainer      // if its ranks share the master
	rank    *ranks.Rank   // of those that train it and call Save together; nil for one process
	w       *views        // of flat, with the norms of vectors
	// cos and sin of the rotary angles, [MaxPosition, HeadDim/2].
	cos, sin *torch.Tensor
}

// views are the matrices of the decoder in a flat buffer of weights or gradients.
type views struct {
	embed, head, norm *torch.Tensor // head is embed if they are tied
	layers            []layerViews
	all               []*torch.Tensor // for freeing

	// In gradients, unneeded matrices are nil: an adapter gets the gradients of products, and rows those of embed
	// and head.
	adapter             func(s *torch.Scope, layer int, dy, x *torch.Tensor, names []string)
	rows                []int32       // of the vocabulary
	embedRows, headRows *torch.Tensor // [len(rows), hidden]; equal if tied
}

// addEmbedding adds the gradient of the embedding, given dx [N, hidden], the gradient of the embeddings of ids.
func (g *views) addEmbedding(s *torch.Scope, ids []int64, dx *torch.Tensor) {
	if g.embed != nil {
		s.RowsAdd_(g.embed, ids, dx)
	}
	var at, row []int64 // index in ids and in rows of each occurrence
	for i, id := range ids {
		if k := slices.Index(g.rows, int32(id)); k >= 0 {
			at, row = append(at, int64(i)), append(row, int64(k))
		}
	}
	if len(at) > 0 {
		s.RowsAdd_(g.embedRows, row, s.IndexSelect(dx, 0, s.FromInt64(at, int64(len(at)))))
	}
}

// addProduct adds the gradient of a weight of layer l, given dy [n, out], the gradient of its product, and x [n,
// in], the input. sum [out, in] is the whole gradient or nil. names are the projections that form the weight.
func (g *views) addProduct(s *torch.Scope, l int, sum, dy, x *torch.Tensor, names ...string) {
	if sum != nil {
		addProduct(s, sum, dy, x)
		return
	}
	g.adapter(s, l, dy, x, names)
}

// addHead adds the gradient of the head, given dlogits [n, vocabulary], the gradient of the logits of hidden [n,
// hidden].
func (g *views) addHead(s *torch.Scope, dlogits, hidden *torch.Tensor) {
	if g.head != nil {
		addProduct(s, g.head, dlogits, hidden)
	}
	if len(g.rows) > 0 {
		columns := make([]int64, len(g.rows))
		for k, id := range g.rows {
			columns[k] = int64(id)
		}
		addProduct(s, g.headRows, s.IndexSelect(dlogits, 1, s.FromInt64(columns, int64(len(columns)))), hidden)
	}
}

type layerViews struct {
	qkv, o, gateUp, down *torch.Tensor // [out, in]
	q, kv                *torch.Tensor // the two parts of qkv
	qkvBias              *torch.Tensor // nil in decoders without biases, with its parts
	qBias, kvBias        *torch.Tensor
	qNorm, kNorm         *torch.Tensor // of heads, [HeadDim]; nil in decoders without them
	norm1, norm2         *torch.Tensor
}

// New returns a float32 model with random weights; see layout. Equal generators give equal weights.
func New(cfg Config, rng *rand.Rand) (*Model, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	weights, _ := layout(cfg)
	return place(cfg, torch.CPU, Buffers{}, func(s *torch.Scope, m *Model) error {
		s.Fill(m.flat, func(flat []float32) error {
			for _, w := range weights {
				for i := range w.len() {
					flat[w.offset+i] = w.start
					if w.std > 0 {
						flat[w.offset+i] = float32(w.std * rng.NormFloat64())
					}
				}
			}
			return nil
		})
		return nil
	})
}

// place makes a model on a device; fill sets its weights.
func place(cfg Config, device torch.Device, b Buffers, fill func(s *torch.Scope, m *Model) error) (*Model, error) {
	m := &Model{cfg: cfg, device: device, kind: torch.Float32}
	n := int64(cfg.Parameters())
	err := torch.Do(context.Background(), device, func(s *torch.Scope) error {
		if b.Precision == BF16 {
			m.kind = torch.BFloat16
			m.flat, m.vectors = s.Empty(m.kind, n), s.Empty(torch.Float32, n-int64(vectorsAt(cfg)))
			if !b.Frozen {
				m.master = s.Empty(torch.Float32, n)
			}
		} else {
			m.flat = s.Empty(torch.Float32, n)
			m.master = m.flat
		}
		if err := fill(s, m); err != nil {
			return err
		}
		m.w = viewsOf(s, m.cfg, m.flat, m.vectors)
		m.angles(s)
		if s.Err() == nil {
			s.Keep(m.flat, m.vectors, m.master, m.cos, m.sin)
			s.Keep(m.w.all...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("place a model on %s: %w", device, err)
	}
	return m, nil
}

// angles sets the tables of rotary angles. It computes them where they stay, because they may be longer than all
// weights.
func (m *Model) angles(s *torch.Scope) {
	half, frequencies := m.cfg.HeadDim/2, m.cfg.frequencies()
	table := func(of func(float64) float64) *torch.Tensor {
		t := s.Empty(torch.Float32, int64(m.cfg.MaxPosition), int64(half))
		s.Fill(t, func(into []float32) error {
			for i := range into {
				into[i] = float32(of(float64(float32(i/half) * frequencies[i%half])))
			}
			return nil
		})
		return t
	}
	m.cos, m.sin = table(math.Cos), table(math.Sin)
}

// viewsOf returns the matrices in a flat buffer. Norms are in vectors, the float32 end of the buffer, unless it is nil.
func viewsOf(s *torch.Scope, cfg Config, flat, vectors *torch.Tensor) *views {
	weights, _ := layout(cfg)
	offset := map[string]int{}
	for _, w := range weights {
		offset[w.name] = w.offset
	}
	v := &views{}
	cut := func(name string, shape ...int) *torch.Tensor {
		t := cut(s, flat, offset[name], shape...)
		v.all = append(v.all, t)
		return t
	}
	first := vectorsAt(cfg)
	norm := func(name string, width int) *torch.Tensor {
		if vectors == nil {
			return cut(name, width)
		}
		t := s.Narrow(vectors, 0, int64(offset[name]-first), int64(width))
		v.all = append(v.all, t)
		return t
	}
	q, kv := cfg.Heads*cfg.HeadDim, cfg.KVHeads*cfg.HeadDim
	v.embed = cut(embedName, cfg.Vocab, cfg.Hidden)
	v.head = v.embed
	if !cfg.TiedEmbeddings {
		v.head = cut(headName, cfg.Vocab, cfg.Hidden)
	}
	for l := range cfg.Layers {
		at := func(part string) string { return layerName(l, part) }
		layer := layerViews{
			qkv:    cut(at("self_attn.q_proj.weight"), q+2*kv, cfg.Hidden),
			q:      cut(at("self_attn.q_proj.weight"), q, cfg.Hidden),
			kv:     cut(at("self_attn.k_proj.weight"), 2*kv, cfg.Hidden),
			o:      cut(at("self_attn.o_proj.weight"), cfg.Hidden, q),
			gateUp: cut(at("mlp.gate_proj.weight"), 2*cfg.MLP, cfg.Hidden),
			down:   cut(at("mlp.down_proj.weight"), cfg.Hidden, cfg.MLP),
			norm1:  norm(at("input_layernorm.weight"), cfg.Hidden),
			norm2:  norm(at("post_attention_layernorm.weight"), cfg.Hidden),
		}
		if cfg.bias() {
			layer.qkvBias = cut(at("self_attn.q_proj.bias"), q+2*kv)
			layer.qBias = cut(at("self_attn.q_proj.bias"), q)
			layer.kvBias = cut(at("self_attn.k_proj.bias"), 2*kv)
		}
		if cfg.headNorms() {
			layer.qNorm = norm(at("self_attn.q_norm.weight"), cfg.HeadDim)
			layer.kNorm = norm(at("self_attn.k_norm.weight"), cfg.HeadDim)
		}
		v.layers = append(v.layers, layer)
	}
	v.norm = norm(normName, cfg.Hidden)
	return v
}

// cut returns a view of a part of a flat buffer.
func cut(s *torch.Scope, flat *torch.Tensor, offset int, shape ...int) *torch.Tensor {
	n, sizes := 1, make([]int64, len(shape))
	for i, d := range shape {
		n, sizes[i] = n*d, int64(d)
	}
	return s.View(s.Narrow(flat, 0, int64(offset), int64(n)), sizes...)
}

// Config returns the model's shape.
func (m *Model) Config() Config { return m.cfg }

// Weights returns a float32 copy of all weights in the order of their buffer, as passes read them if ranks share the
// float32 weights.
func (m *Model) Weights() (flat []float32, err error) {
	weights, total := layout(m.cfg)
	flat = make([]float32, 0, total)
	err = m.do(func(s *torch.Scope) {
		for _, w := range weights {
			flat = append(flat, s.Float32s(m.exact(s, w, 0, w.len()))...)
		}
	})
	return flat, err
}

// exact returns n elements of a weight in float32, from an index on: the values that a checkpoint contains. An index in
// a matrix is the start of a row.
func (m *Model) exact(s *torch.Scope, w weight, from, n int) *torch.Tensor {
	at := w.offset + from
	switch first := vectorsAt(m.cfg); {
	case m.master != nil:
		return s.Narrow(m.master, 0, int64(at), int64(n))
	case at >= first:
		return s.Narrow(m.vectors, 0, int64(at-first), int64(n))
	case m.adapter != nil:
		return m.adapter.exact(s, w, from, n)
	}
	return s.As(s.Narrow(m.flat, 0, int64(at), int64(n)), torch.Float32)
}

// set overwrites n weights from offset at on; fill sets them in float32.
func (m *Model) set(s *torch.Scope, at, n int, fill func([]float32) error) {
	s.Nest(func(s *torch.Scope) {
		var x *torch.Tensor
		if m.master != nil {
			x = s.Narrow(m.master, 0, int64(at), int64(n))
		} else {
			x = s.Empty(torch.Float32, int64(n))
		}
		s.Fill(x, fill)
		if m.sharded != nil {
			m.sharded.setShard(s, int64(at), x)
		}
		m.round(s, int64(at), x)
	})
}

// round copies float32 weights x [n] from offset at on into the buffers that bfloat16 passes read.
func (m *Model) round(s *torch.Scope, at int64, x *torch.Tensor) {
	if m.kind == torch.Float32 {
		return
	}
	s.Nest(func(s *torch.Scope) {
		end := at + x.Size(0)
		s.Copy_(s.Narrow(m.flat, 0, at, end-at), x)
		first := int64(vectorsAt(m.cfg))
		if from := max(at, first); from < end {
			s.Copy_(s.Narrow(m.vectors, 0, from-first, end-from), s.Narrow(x, 0, from-at, end-from))
		}
	})
}

// read returns a copy of a float32 tensor.
func (m *Model) read(t *torch.Tensor) (flat []float32, err error) {
	err = m.do(func(s *torch.Scope) { flat = slices.Clone(s.Float32s(t)) })
	return flat, err
}

// do runs f on the device of the weights.
func (m *Model) do(f func(s *torch.Scope)) error {
	return torch.Do(context.Background(), m.device, func(s *torch.Scope) error {
		f(s)
		return nil
	})
}

// Clone returns an independent frozen copy, for example the reference of a policy before its training.
func (m *Model) Clone() (*Model, error) {
	c, err := place(m.cfg, m.device, Buffers{m.Precision(), true}, func(s *torch.Scope, c *Model) error {
		s.Copy_(c.flat, m.flat)
		if m.vectors != nil {
			s.Copy_(c.vectors, m.vectors)
		}
		return nil
	})
	if err == nil {
		c.file = m.file
	}
	return c, err
}

// Close frees the weights. It may be called twice.
func (m *Model) Close() error {
	return m.do(func(s *torch.Scope) {
		s.Free(m.w.all...)
		s.Free(m.flat, m.vectors, m.master, m.cos, m.sin)
	})
}

// Precision returns the precision of products.
func (m *Model) Precision() Precision {
	if m.kind == torch.BFloat16 {
		return BF16
	}
	return Float32
}

// Use changes the precision of a model that is not frozen. Earlier decoders must not be used any more.
func (m *Model) Use(p Precision) error {
	if err := p.Check(); err != nil || p == m.Precision() {
		return err
	}
	if m.master == nil {
		return fmt.Errorf("compute in %s: a frozen model has no float32 weights", p)
	}
	err := m.do(func(s *torch.Scope) {
		next := *m
		next.kind, next.flat, next.vectors = torch.Float32, m.master, nil
		if p == BF16 {
			next.kind, next.flat = torch.BFloat16, s.As(m.master, torch.BFloat16)
			first := int64(vectorsAt(m.cfg))
			next.vectors = s.Empty(torch.Float32, m.master.Size(0)-first)
			s.Copy_(next.vectors, s.Narrow(m.master, 0, first, next.vectors.Size(0)))
		}
		next.w = viewsOf(s, next.cfg, next.flat, next.vectors)
		if s.Err() != nil {
			return
		}
		s.Free(m.w.all...)
		s.Free(m.vectors)
		if m.flat != m.master {
			s.Free(m.flat)
		}
		s.Keep(next.flat, next.vectors)
		s.Keep(next.w.all...)
		*m = next
	})
	if err != nil {
		return fmt.Errorf("compute in %s: %w", p, err)
	}
	return nil
}
