//go:build libtorch

package lm

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl"
)

// Model is a decoder with its weights on one device.
type Model struct {
	cfg    Config
	file   configFile // if the model was loaded
	device torch.Device
	flat   *torch.Tensor // [parameters], in the order of layout
	w      views         // views of flat, or of low with the norms of flat
	kind   torch.DType   // of products
	low    *torch.Tensor // [parameters] bfloat16, a copy of flat; nil in float32
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
	adapter             func(s *torch.Scope, layer int, dy, x *torch.Tensor, keys []rl.Stream, names []string)
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
// in], the input. sum [out, in] is the whole gradient or nil. names are the projections that form the weight,
// keys the streams of the rows under dropout.
func (g *views) addProduct(s *torch.Scope, l int, sum, dy, x *torch.Tensor, keys []rl.Stream, names ...string) {
	if sum != nil {
		addProduct(s, sum, dy, x)
		return
	}
	g.adapter(s, l, dy, x, keys, names)
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
	qkvBias              *torch.Tensor // nil in families without biases, with its parts
	qBias, kvBias        *torch.Tensor
	norm1, norm2         *torch.Tensor
}

// New returns a model with random weights; see layout. Equal generators give equal weights.
func New(cfg Config, rng *rand.Rand) (*Model, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	weights, _ := layout(cfg)
	return place(cfg, torch.CPU, func(s *torch.Scope, flat *torch.Tensor) {
		s.Fill(flat, func(flat []float32) error {
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
	})
}

// place makes a model on a device; fill sets its weights in the order of layout.
func place(cfg Config, device torch.Device, fill func(s *torch.Scope, flat *torch.Tensor)) (*Model, error) {
	m := &Model{cfg: cfg, device: device, kind: torch.Float32}
	err := m.do(func(s *torch.Scope) {
		m.flat = s.Empty(torch.Float32, int64(cfg.Parameters()))
		fill(s, m.flat)
		m.w = viewsOf(s, cfg, m.flat)
		half := cfg.HeadDim / 2
		cos, sin := make([]float32, cfg.MaxPosition*half), make([]float32, cfg.MaxPosition*half)
		frequencies := cfg.frequencies()
		for p := range cfg.MaxPosition {
			for i, f := range frequencies {
				angle := float64(float32(p) * f)
				cos[p*half+i], sin[p*half+i] = float32(math.Cos(angle)), float32(math.Sin(angle))
			}
		}
		m.cos = s.FromFloat32(cos, int64(cfg.MaxPosition), int64(half))
		m.sin = s.FromFloat32(sin, int64(cfg.MaxPosition), int64(half))
		if s.Err() == nil {
			s.Keep(m.flat, m.cos, m.sin)
			s.Keep(m.w.all...)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("place a model on %s: %w", device, err)
	}
	return m, nil
}

func viewsOf(s *torch.Scope, cfg Config, flat *torch.Tensor) views {
	weights, _ := layout(cfg)
	offset := map[string]int{}
	for _, w := range weights {
		offset[w.name] = w.offset
	}
	var v views
	cut := func(name string, shape ...int) *torch.Tensor {
		t := cut(s, flat, offset[name], shape...)
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
			norm1:  cut(at("input_layernorm.weight"), cfg.Hidden),
			norm2:  cut(at("post_attention_layernorm.weight"), cfg.Hidden),
		}
		if cfg.bias() {
			layer.qkvBias = cut(at("self_attn.q_proj.bias"), q+2*kv)
			layer.qBias = cut(at("self_attn.q_proj.bias"), q)
			layer.kvBias = cut(at("self_attn.k_proj.bias"), 2*kv)
		}
		v.layers = append(v.layers, layer)
	}
	v.norm = cut(normName, cfg.Hidden)
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

// Weights returns a copy of all weights in the order of their flat buffer.
func (m *Model) Weights() ([]float32, error) { return m.read(m.flat) }

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

// Clone returns an independent copy, for example the frozen reference of a policy before its training.
func (m *Model) Clone() (*Model, error) {
	c, err := place(m.cfg, m.device, func(s *torch.Scope, flat *torch.Tensor) { s.Copy_(flat, m.flat) })
	if err != nil {
		return nil, err
	}
	c.file = m.file
	return c, c.Use(m.Precision())
}

// Close frees the weights. It may be called twice.
func (m *Model) Close() error {
	return m.do(func(s *torch.Scope) {
		s.Free(m.w.all...)
		s.Free(m.flat, m.low, m.cos, m.sin)
	})
}

// Precision returns the precision of products.
func (m *Model) Precision() Precision {
	if m.kind == torch.BFloat16 {
		return BF16
	}
	return Float32
}

// Use changes the precision. Earlier decoders must not be used any more.
func (m *Model) Use(p Precision) error {
	if err := p.Check(); err != nil || p == m.Precision() {
		return err
	}
	err := m.do(func(s *torch.Scope) {
		w, kind, low := viewsOf(s, m.cfg, m.flat), torch.Float32, (*torch.Tensor)(nil)
		if p == BF16 {
			kind, low = torch.BFloat16, s.As(m.flat, torch.BFloat16)
			wide := w
			w = viewsOf(s, m.cfg, low)
			w.setNorms(&wide, func(norm *torch.Tensor) *torch.Tensor { return norm })
			w.all = append(w.all, wide.all...)
		}
		m.replaceViews(s, w)
		if s.Err() == nil {
			s.Keep(low)
			s.Free(m.low)
			m.kind, m.low = kind, low
		}
	})
	if err != nil {
		return fmt.Errorf("compute in %s: %w", p, err)
	}
	return nil
}

// setNorms takes the norms of another copy of the weights, each through convert.
func (v *views) setNorms(from *views, convert func(norm *torch.Tensor) *torch.Tensor) {
	v.norm = convert(from.norm)
	for l, layer := range from.layers {
		v.layers[l].norm1, v.layers[l].norm2 = convert(layer.norm1), convert(layer.norm2)
	}
}

// replaceViews exchanges the views of the weights, unless there was an error.
func (m *Model) replaceViews(s *torch.Scope, w views) {
	if s.Err() != nil {
		return
	}
	s.Keep(w.all...)
	s.Free(m.w.all...)
	m.w = w
}

// renew updates the bfloat16 copy after a change of the weights.
func (m *Model) renew(s *torch.Scope) {
	if m.low != nil {
		s.Copy_(m.low, m.flat)
	}
}

// Freeze frees the float32 weights of a bfloat16 model, which only training and saving need. Passes and decoders
// remain valid.
func (m *Model) Freeze() error {
	if m.low == nil {
		return nil
	}
	return m.do(func(s *torch.Scope) {
		w := viewsOf(s, m.cfg, m.low)
		w.setNorms(&m.w, func(norm *torch.Tensor) *torch.Tensor {
			copied := s.Empty(torch.Float32, norm.Size(0))
			s.Copy_(copied, norm)
			w.all = append(w.all, copied)
			return copied
		})
		m.replaceViews(s, w)
		if s.Err() == nil {
			s.Free(m.flat)
		}
	})
}
