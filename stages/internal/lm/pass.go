//go:build libtorch

package lm

import (
	"errors"
	"fmt"

	"rcgrpo/stages/internal/torch"
)

// microBatch is a packed part of the sequences: N rows, of which P predictions have loss. Sequences share the rows of
// common prefixes (a prompt, or equal first steps of several members of a group), which are computed once,
// forward and backward.
type microBatch struct {
	ids       []int64       // [N]
	positions []int32       // [N] position in the sequence
	full      torch.Packing // every row is a query
	last      torch.Packing // only predictions with loss are queries: the last layer
	learn     []int64       // [P] the rows that predict
	learnAt   []int32       // [P] their positions
	targets   []int64       // [P] predicted tokens
	owner     []int32       // prediction of each token of the mask, in order; equal predictions are one
}

// prediction is a token at the end of a path of rows.
type prediction struct {
	row    int32
	target int32
}

// pack packs sequences into one pass of PackedRows rows. Here the mask is applied: only its tokens become predictions,
// for which the pass computes statistics and gradients.
func (m *Model) pack(sequences []Sequence, first int) (*microBatch, error) {
	b := &microBatch{}
	b.full.Bounds, b.full.QueryBounds, b.last.QueryBounds = []int32{0}, []int32{0}, []int32{0}
	known := map[prediction]int32{}
	used := make([][]int32, len(sequences)) // tokens with a row
	for i, q := range sequences {
		if err := m.check(q); err != nil {
			return nil, fmt.Errorf("sequence %d %w", first+i, err)
		}
		used[i] = q.used()
		end := len(used[i])
		like, shared := longestPrefix(used[:i], used[i])
		if shared > 0 {
			b.full.Path = append(b.full.Path, b.full.Path[b.full.Bounds[like]:][:shared]...)
		}
		for t := shared; t < end; t++ {
			b.full.Path = append(b.full.Path, int32(len(b.ids)))
			b.full.Places = append(b.full.Places, int32(t))
			b.ids = append(b.ids, int64(q.IDs[t]))
			b.positions = append(b.positions, int32(t))
		}
		path := b.full.Path[b.full.Bounds[i]:]
		for t := range end {
			if !q.Mask[t+1] {
				continue
			}
			p := prediction{path[t], q.IDs[t+1]}
			at, ok := known[p]
			if !ok {
				at = int32(len(b.learn))
				known[p] = at
				b.learn = append(b.learn, int64(p.row))
				b.learnAt = append(b.learnAt, int32(t))
				b.last.Places = append(b.last.Places, int32(t))
				b.targets = append(b.targets, int64(p.target))
			}
			b.owner = append(b.owner, at)
		}
		b.full.Bounds = append(b.full.Bounds, int32(len(b.full.Path)))
		b.full.QueryBounds = append(b.full.QueryBounds, int32(len(b.ids)))
		b.last.QueryBounds = append(b.last.QueryBounds, int32(len(b.learn)))
	}
	b.last.Bounds, b.last.Path = b.full.Bounds, b.full.Path
	return b, nil
}

// check refuses a sequence that the model cannot learn.
func (m *Model) check(q Sequence) error {
	if len(q.Mask) != len(q.IDs) {
		return fmt.Errorf("has %d tokens and a mask of %d", len(q.IDs), len(q.Mask))
	}
	if len(q.IDs) > m.cfg.MaxPosition {
		return fmt.Errorf("has %d tokens; the model has %d positions", len(q.IDs), m.cfg.MaxPosition)
	}
	for t, id := range q.IDs {
		if id < 0 || int(id) >= m.cfg.Vocab {
			return fmt.Errorf("has the token %d at position %d; the vocabulary has %d", id, t, m.cfg.Vocab)
		}
	}
	if len(q.Mask) > 0 && q.Mask[0] {
		return errors.New("has its first token in the mask, which nothing predicts")
	}
	return nil
}

// tape contains the intermediates of a forward pass for the gradient, layer by layer.
type tape struct {
	layers      []layerTape
	x           *torch.Tensor // before the final norm [P, hidden]
	rstd        *torch.Tensor
	hidden      *torch.Tensor // input of the head [P, hidden]
	learnedRows *torch.Tensor // learn as a tensor
}

type layerTape struct {
	x, h, rstd1    *torch.Tensor // input, its norm
	hq             *torch.Tensor // query rows of h in the last layer
	q, k, v        *torch.Tensor // views of projections, normed and rotated
	norms          headNorms
	out, lse       *torch.Tensor // attention
	mid, h2, rstd2 *torch.Tensor // after attention, its norm
	gateUp, act    *torch.Tensor
}

// kept selects the intermediates that a forward pass stores.
type kept int

const (
	nothing kept = iota // none
	inputs              // each layer's input, from which the backward pass recomputes the rest
	all
)

// forward runs the decoder over a micro-batch up to the input of the head, as one pass. s owns the result.
func (m *Model) forward(s *torch.Scope, b *microBatch, keep kept) *tape {
	t := &tape{layers: make([]layerTape, m.cfg.Layers)}
	ids := s.FromInt64(b.ids, int64(len(b.ids)))
	t.learnedRows = s.FromInt64(b.learn, int64(len(b.learn)))
	x := s.As(s.IndexSelect(m.w.embed, 0, ids), torch.Float32) // [N, hidden]
	for l := range t.layers {
		var next *torch.Tensor
		layer := func(s *torch.Scope) {
			m.layer(s, l, x, b, t)
			next = m.plus(s, t.layers[l].mid, t.layers[l].act, m.w.layers[l].down)
		}
		if keep == all {
			layer(s)
		} else {
			s.Nest(func(inner *torch.Scope) {
				layer(inner)
				inner.Keep(next)
			})
			t.layers[l] = layerTape{x: x}
		}
		if keep == nothing {
			s.Free(x)
		}
		x = next
	}
	t.x = x
	t.hidden, t.rstd = m.norm(s, x, m.w.norm)
	s.EndPass()
	return t
}

// norm is RMSNorm with a result in the type of products. The stream x is always float32.
func (m *Model) norm(s *torch.Scope, x, w *torch.Tensor) (y, rstd *torch.Tensor) {
	return s.RMSNorm(m.kind, x, w, m.cfg.NormEps)
}

// plus is x + a·wᵀ, the residual stream after a projection.
func (m *Model) plus(s *torch.Scope, x, a, w *torch.Tensor) *torch.Tensor {
	if m.kind == torch.Float32 {
		return s.Linear(a, w, x)
	}
	return s.Add(x, s.Linear(a, w, nil))
}

// addProduct adds aᵀ·b to sum, the gradient of a weight in float32.
func addProduct(s *torch.Scope, sum, a, b *torch.Tensor) {
	if b.DType() == torch.Float32 {
		s.Addmm_(sum, s.T(a), b)
		return
	}
	s.Nest(func(s *torch.Scope) { s.Add_(sum, s.Mm(s.T(a), b)) })
}

// layer is one decoder layer up to its last product. In the last layer only positions that predict a token of the mask
// are queries.
func (m *Model) layer(s *torch.Scope, l int, x *torch.Tensor, b *microBatch, t *tape) {
	w, c, last := &m.w.layers[l], m.cfg, l == m.cfg.Layers-1
	heads, kvHeads, d := int64(c.Heads), int64(c.KVHeads), int64(c.HeadDim)
	r := layerTape{x: x}
	r.h, r.rstd1 = m.norm(s, x, w.norm1)
	packing := &b.full
	if last {
		packing = &b.last
		r.hq = s.IndexSelect(r.h, 0, t.learnedRows)
		r.q = s.Linear(r.hq, w.q, w.qBias) // [P, heads*d]
		kv := s.Linear(r.h, w.kv, w.kvBias)
		r.k, r.v = s.Narrow(kv, 1, 0, kvHeads*d), s.Narrow(kv, 1, kvHeads*d, kvHeads*d)
		r.norms = m.normHeads(s, w, r.q, r.k)
		m.rope(s, l, r.q, heads, b.learnAt, false)
		m.rope(s, l, kv, kvHeads, b.positions, false)
		x = s.IndexSelect(x, 0, t.learnedRows)
	} else {
		qkv := s.Linear(r.h, w.qkv, w.qkvBias) // [N, (heads+2 kvHeads)*d]
		r.q = s.Narrow(qkv, 1, 0, heads*d)
		r.k, r.v = s.Narrow(qkv, 1, heads*d, kvHeads*d), s.Narrow(qkv, 1, (heads+kvHeads)*d, kvHeads*d)
		r.norms = m.normHeads(s, w, r.q, r.k)
		m.rope(s, l, qkv, heads+kvHeads, b.positions, false)
	}
	r.out, r.lse = s.PackedAttention(r.q, r.k, r.v, packing, heads, kvHeads)
	r.mid = m.plus(s, x, r.out, w.o)
	r.h2, r.rstd2 = m.norm(s, r.mid, w.norm2)
	r.gateUp = s.Linear(r.h2, w.gateUp, nil) // [.., 2*MLP]
	r.act = s.SwiGLU(r.gateUp)
	t.layers[l] = r
}

// rope rotates the heads in the first columns of x by their positions, or back, where the layer has rotary embedding.
func (m *Model) rope(s *torch.Scope, l int, x *torch.Tensor, heads int64, positions []int32, back bool) {
	if m.cfg.rotates(l) {
		s.Rope_(x, heads, int64(m.cfg.HeadDim), positions, m.cos, m.sin, back)
	}
}

// headNorms are the intermediates of the norms of queries and keys, a row per head; nil in decoders without them.
type headNorms struct {
	q, k         *torch.Tensor // before the norm [N·heads, D]
	qRstd, kRstd *torch.Tensor // [N·heads]
}

// normHeads replaces each head of q [N, heads·D] and k [N, kvHeads·D] by its RMSNorm, in decoders that have it.
func (m *Model) normHeads(s *torch.Scope, w *layerViews, q, k *torch.Tensor) (t headNorms) {
	if w.qNorm != nil {
		t.q, t.qRstd = m.normEach(s, q, w.qNorm)
		t.k, t.kRstd = m.normEach(s, k, w.kNorm)
	}
	return t
}

func (m *Model) normEach(s *torch.Scope, x, w *torch.Tensor) (before, rstd *torch.Tensor) {
	before = m.headRows(s, x, x.DType())
	s.Nest(func(s *torch.Scope) {
		var y *torch.Tensor
		y, rstd = m.norm(s, before, w)
		s.Copy_(x, s.View(y, x.Size(0), x.Size(1)))
		s.Keep(rstd)
	})
	return before, rstd
}

// headRows copies heads x [N, heads·D] into rows [N·heads, D].
func (m *Model) headRows(s *torch.Scope, x *torch.Tensor, kind torch.DType) (rows *torch.Tensor) {
	rows = s.Empty(kind, x.Size(0)*x.Size(1)/int64(m.cfg.HeadDim), int64(m.cfg.HeadDim))
	s.Nest(func(s *torch.Scope) { s.Copy_(s.View(rows, x.Size(0), x.Size(1)), x) })
	return rows
}

// normHeadsBackward replaces the gradients dq and dk of normed heads by those before the norm, and adds those of its
// weights.
func (m *Model) normHeadsBackward(s *torch.Scope, w *layerViews, t headNorms, dq, dk *torch.Tensor, g layerViews) {
	if w.qNorm != nil {
		m.normEachBackward(s, t.q, w.qNorm, t.qRstd, dq, g.qNorm)
		m.normEachBackward(s, t.k, w.kNorm, t.kRstd, dk, g.kNorm)
	}
}

func (m *Model) normEachBackward(s *torch.Scope, before, w, rstd, dx, dw *torch.Tensor) {
	s.Nest(func(s *torch.Scope) {
		dy, sum := m.headRows(s, dx, torch.Float32), s.Zeros(torch.Float32, before.Size(0), before.Size(1))
		s.RMSNormBackward(before, w, rstd, dy, sum, dw)
		s.Copy_(dx, s.View(sum, dx.Size(0), dx.Size(1)))
	})
}

// backward adds the gradients of all weights to g, given that of the head's input, as one pass. It frees the tape.
func (m *Model) backward(s *torch.Scope, b *microBatch, t *tape, dhidden *torch.Tensor, g *views) {
	dx := s.Zeros(torch.Float32, int64(len(b.learn)), int64(m.cfg.Hidden)) // [P, hidden]
	s.RMSNormBackward(t.x, m.w.norm, t.rstd, dhidden, dx, g.norm)
	s.Free(t.x, t.rstd, t.hidden)
	for l := m.cfg.Layers - 1; l >= 0; l-- {
		before := dx
		s.Nest(func(inner *torch.Scope) {
			if t.layers[l].mid == nil {
				m.layer(inner, l, t.layers[l].x, b, t)
			}
			dx = m.layerBackward(inner, l, b, t, dx, g)
			inner.Keep(dx)
		})
		if before != dx {
			s.Free(before)
		}
		r := t.layers[l]
		s.Free(r.x, r.h, r.rstd1, r.hq, r.q, r.k, r.v, r.out, r.lse, r.mid, r.h2, r.rstd2, r.gateUp, r.act,
			r.norms.q, r.norms.qRstd, r.norms.k, r.norms.kRstd)
	}
	g.addEmbedding(s, b.ids, dx)
	s.EndPass()
}

// layerBackward returns the gradient of the layer's input, given dx, that of its output, which it may overwrite.
func (m *Model) layerBackward(s *torch.Scope, l int, b *microBatch, t *tape, dx *torch.Tensor,
	grads *views) *torch.Tensor {
	w, g, r, last := &m.w.layers[l], grads.layers[l], t.layers[l], l == m.cfg.Layers-1

	// Feed-forward. The residual path is dx itself.
	dlow := s.As(dx, m.kind)
	dact := s.Mm(dlow, w.down)
	grads.addProduct(s, l, g.down, dlow, r.act, "mlp.down_proj")
	dgateUp := s.SwiGLUBackward(r.gateUp, dact)
	s.Free(dact)
	grads.addProduct(s, l, g.gateUp, dgateUp, r.h2, "mlp.gate_proj", "mlp.up_proj")
	dh2 := s.Mm(dgateUp, w.gateUp)
	s.Free(dgateUp)
	s.RMSNormBackward(r.mid, w.norm2, r.rstd2, dh2, dx, g.norm2)

	// Attention.
	dlow = s.As(dx, m.kind)
	dout := s.Mm(dlow, w.o)
	grads.addProduct(s, l, g.o, dlow, r.out, "self_attn.o_proj")
	if last {
		return m.lastInputBackward(s, l, b, t, dx, dout, grads)
	}
	dh := m.projectionsBackward(s, l, b, t, dout, grads)
	s.RMSNormBackward(r.x, w.norm1, r.rstd1, dh, dx, g.norm1)
	return dx
}

// projectionsBackward returns the gradient of the input of the query, key and value projections, given dout, that
// of the attention. Gradients of queries, keys and values add up in float32.
func (m *Model) projectionsBackward(s *torch.Scope, l int, b *microBatch, t *tape, dout *torch.Tensor,
	grads *views) *torch.Tensor {
	w, g, r := &m.w.layers[l], grads.layers[l], t.layers[l]
	heads, kvHeads, d := int64(m.cfg.Heads), int64(m.cfg.KVHeads), int64(m.cfg.HeadDim)
	dqkv := s.Zeros(torch.Float32, int64(len(b.ids)), (heads+2*kvHeads)*d)
	dq := s.Narrow(dqkv, 1, 0, heads*d)
	dk, dv := s.Narrow(dqkv, 1, heads*d, kvHeads*d), s.Narrow(dqkv, 1, (heads+kvHeads)*d, kvHeads*d)
	s.PackedAttentionBackward(r.q, r.k, r.v, r.out, r.lse, dout, &b.full, heads, kvHeads, dq, dk, dv)
	m.rope(s, l, dqkv, heads+kvHeads, b.positions, true)
	m.normHeadsBackward(s, w, r.norms, dq, dk, g)
	if m.cfg.bias() {
		s.ColumnSum_(g.qkvBias, dqkv)
	}
	dqkv = s.As(dqkv, m.kind)
	names := []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}
	grads.addProduct(s, l, g.qkv, dqkv, r.h, names...)
	return s.Mm(dqkv, w.qkv)
}

// lastInputBackward returns the gradient of the last layer's input. There, dx and dout have only the rows with
// loss, and queries are projected separately from keys and values.
func (m *Model) lastInputBackward(s *torch.Scope, l int, b *microBatch, t *tape, dx, dout *torch.Tensor,
	grads *views) *torch.Tensor {
	w, g, r := &m.w.layers[l], grads.layers[l], t.layers[l]
	heads, kvHeads, d := int64(m.cfg.Heads), int64(m.cfg.KVHeads), int64(m.cfg.HeadDim)
	n := int64(len(b.ids))
	dq := s.Empty(torch.Float32, int64(len(b.learn)), heads*d)
	dkv := s.Zeros(torch.Float32, n, 2*kvHeads*d)
	dk, dv := s.Narrow(dkv, 1, 0, kvHeads*d), s.Narrow(dkv, 1, kvHeads*d, kvHeads*d)
	s.PackedAttentionBackward(r.q, r.k, r.v, r.out, r.lse, dout, &b.last, heads, kvHeads, dq, dk, dv)
	m.rope(s, l, dq, heads, b.learnAt, true)
	m.rope(s, l, dkv, kvHeads, b.positions, true)
	m.normHeadsBackward(s, w, r.norms, dq, dk, g)
	if m.cfg.bias() {
		s.ColumnSum_(g.qBias, dq)
		s.ColumnSum_(g.kvBias, dkv)
	}
	dq, dkv = s.As(dq, m.kind), s.As(dkv, m.kind)
	grads.addProduct(s, l, g.q, dq, r.hq, "self_attn.q_proj")
	grads.addProduct(s, l, g.kv, dkv, r.h, "self_attn.k_proj", "self_attn.v_proj")
	dh := s.Mm(dkv, w.kv) // [N, hidden]
	dhq := s.Mm(dq, w.q)  // [P, hidden]
	s.RowsAdd_(dh, b.learn, dhq)
	all := s.Zeros(torch.Float32, n, int64(m.cfg.Hidden))
	s.RowsAdd_(all, b.learn, dx)
	s.RMSNormBackward(r.x, w.norm1, r.rstd1, dh, all, g.norm1)
	return all
}

// head is the state of the loss head between statistics and gradient. Its logits are float32 in every precision,
// so softmax sees the unrounded sums of the product.
type head struct {
	m, ref            *Model
	b                 *microBatch
	temperature       float64
	hidden, refHidden *torch.Tensor
	stats             []torch.HeadStat
	// of all rows if keep, otherwise of one chunk at a time
	logits, refLogits *torch.Tensor
	keep              bool
	rows              int // of a chunk
}

// newHead computes the statistics of all tokens of the mask of a micro-batch, in chunks of chunk rows. With keep,
// few logits are stored for the gradient.
func newHead(s *torch.Scope, m, ref *Model, b *microBatch, temperature float64, hidden *torch.Tensor, chunk int,
	keep bool) *head {
	h := &head{m: m, ref: ref, b: b, temperature: temperature, hidden: hidden, rows: chunk}
	if ref != nil {
		s.Nest(func(inner *torch.Scope) {
			h.refHidden = ref.forward(inner, b, nothing).hidden
			inner.Keep(h.refHidden)
		})
	}
	h.keep = keep && len(b.learn)*m.cfg.Vocab <= keptLogits
	rows := len(b.learn)
	if !h.keep {
		rows = min(rows, h.rows)
	}
	h.logits = s.Empty(torch.Float32, int64(rows), int64(m.cfg.Vocab))
	if ref != nil {
		h.refLogits = s.Empty(torch.Float32, int64(rows), int64(m.cfg.Vocab))
	}
	for lo := 0; lo < len(b.learn); lo += h.rows {
		n := min(h.rows, len(b.learn)-lo)
		s.Nest(func(s *torch.Scope) {
			h.compute(s, lo, n)
			logits, ref := h.chunk(s, lo, n)
			h.stats = append(h.stats, s.HeadStats(logits, ref, temperature, b.targets[lo:lo+n])...)
		})
	}
	return h
}

// chunk returns views of n rows of the logits of policy and reference; ref is nil without a reference.
func (h *head) chunk(s *torch.Scope, lo, n int) (logits, ref *torch.Tensor) {
	if !h.keep {
		lo = 0
	}
	logits = s.Narrow(h.logits, 0, int64(lo), int64(n))
	if h.ref != nil {
		ref = s.Narrow(h.refLogits, 0, int64(lo), int64(n))
	}
	return logits, ref
}

func (h *head) compute(s *torch.Scope, lo, n int) {
	logits, ref := h.chunk(s, lo, n)
	s.WideMmInto(logits, s.Narrow(h.hidden, 0, int64(lo), int64(n)), s.T(h.m.w.head))
	if ref != nil {
		s.WideMmInto(ref, s.Narrow(h.refHidden, 0, int64(lo), int64(n)), s.T(h.ref.w.head))
	}
}

// backward adds the head's weight gradient to g and returns the gradient of its input. It frees the logits.
func (h *head) backward(s *torch.Scope, weights []torch.HeadWeight, g *views) *torch.Tensor {
	dhidden := s.Empty(h.m.kind, int64(len(h.b.learn)), int64(h.m.cfg.Hidden))
	for lo := 0; lo < len(h.b.learn); lo += h.rows {
		n := min(h.rows, len(h.b.learn)-lo)
		s.Nest(func(s *torch.Scope) {
			if !h.keep {
				h.compute(s, lo, n)
			}
			logits, ref := h.chunk(s, lo, n)
			s.HeadBackward(logits, ref, h.temperature, h.b.targets[lo:lo+n], h.stats[lo:lo+n], weights[lo:lo+n])
			dlogits := s.As(logits, h.m.kind)
			s.MmInto(s.Narrow(dhidden, 0, int64(lo), int64(n)), dlogits, h.m.w.head)
			g.addHead(s, dlogits, s.Narrow(h.hidden, 0, int64(lo), int64(n)))
		})
	}
	s.Free(h.logits, h.refLogits)
	return dhidden
}
