//go:build libtorch

package lm

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl"
)

// Decoder samples from a model with a key-value cache per slot. It reads the current weights at each call. After
// an update the slots must be reset, because their caches come from older weights.
//
// In float32 on the CPU the samples of a slot depend, bit for bit, only on its own tokens and requests, not on
// other slots, because the rows of package torch's products and attention are independent.
type Decoder struct {
	m        *Model
	slots    int
	maxLen   int
	tokens   int       // of all slots together, where they share a cache
	held     [][]int32 // tokens in each slot
	cache    slotCache // keys and values of these tokens
	computed int       // tokens that the model has processed
	scratch  []float32 // [vocabulary]
}

// slotCache holds the keys and values of slots: *cache or *sharedCache.
type slotCache interface {
	// reserve makes room for want[slot] tokens in each slot, which holds live[slot]. An error that is not one of s has
	// no effect.
	reserve(s *torch.Scope, live, want []int) error
	// prefix returns views of the first n tokens of a slot in layer l, for which it has room.
	prefix(s *torch.Scope, l, slot, n int) (keys, values *torch.Tensor)
	// attend stores the keys and values of rows in layer l, and returns their attention.
	attend(s *torch.Scope, l int, qkv *torch.Tensor, rows *stepRows) *torch.Tensor
	buffers() []*torch.Tensor
}

var _ rl.Sampler = (*Decoder)(nil)

// NewDecoder returns a decoder of so many slots, each for sequences of at most maxLen tokens. Its memory grows
// with requests until Release. The model must outlive it.
func NewDecoder(m *Model, slots, maxLen int) (*Decoder, error) {
	if slots < 1 || maxLen < 1 || maxLen > m.cfg.MaxPosition {
		return nil, fmt.Errorf("decoder: %d slots of %d tokens; want at least one slot and 1 to %d tokens", slots, maxLen,
			m.cfg.MaxPosition)
	}
	d := &Decoder{m: m, slots: slots, maxLen: maxLen, tokens: slots * cacheLength(maxLen), held: make([][]int32, slots),
		scratch: make([]float32, m.cfg.Vocab)}
	d.cache = d.emptyCache()
	return d, nil
}

func (d *Decoder) emptyCache() slotCache {
	if torch.Flashes(d.m.device, d.m.kind, int64(d.m.cfg.HeadDim)) {
		return &sharedCache{m: d.m, ranges: ranges{d.tokens, make([]int, d.slots)}}
	}
	return &cache{m: d.m, mostSlots: d.slots, mostTokens: d.maxLen}
}

// LimitTokens bounds the tokens of all slots together, on devices where slots share them; 0 changes nothing. Call it
// before the first request.
func (d *Decoder) LimitTokens(n int) {
	if n > 0 {
		d.tokens = n
		d.cache = d.emptyCache()
	}
}

// Room returns how many tokens all slots together can still take.
func (d *Decoder) Room() int {
	if p, ok := d.cache.(*sharedCache); ok {
		return p.room(d.lengths())
	}
	return math.MaxInt
}

// lengths returns the numbers of tokens of the slots.
func (d *Decoder) lengths() []int {
	live := make([]int, d.slots)
	for slot, ids := range d.held {
		live[slot] = len(ids)
	}
	return live
}

// Slots returns the number of sequences held at once.
func (d *Decoder) Slots() int { return d.slots }

// MaxLen returns the maximal length of a sequence.
func (d *Decoder) MaxLen() int { return d.maxLen }

// Cut keeps the first n tokens of a slot.
func (d *Decoder) Cut(slot, n int) { d.held[slot] = d.held[slot][:n] }

// Computed returns how many tokens the model has processed so far, without those that were cached in the slot or
// copied from another slot.
func (d *Decoder) Computed() int { return d.computed }

// Release empties all slots and frees their memory. The decoder remains usable.
func (d *Decoder) Release() error {
	for slot := range d.held {
		d.Cut(slot, 0)
	}
	buffers := d.cache.buffers()
	d.cache = d.emptyCache()
	return d.m.do(func(s *torch.Scope) {
		s.Free(buffers...)
		s.Trim()
	})
}

// Next appends each request's tokens to its slot and samples the next token. All tokens of all requests are rows
// of one pass without padding. Prefixes that new sequences share with each other or with a slot are computed
// once. After an error all slots are unchanged. The error is rl.ErrNoRoom if the slots share too few tokens.
func (d *Decoder) Next(ctx context.Context, requests []rl.Request) ([]rl.Draw, error) {
	if len(requests) == 0 {
		return nil, nil
	}
	if err := d.check(requests); err != nil {
		return nil, err
	}
	p := d.plan(requests)
	early, last := passes(p.rest)
	draws := make([]rl.Draw, len(requests))
	live := d.lengths()
	want := slices.Clone(live)
	for _, r := range requests {
		want[r.Slot] += len(r.Feed)
	}
	err := torch.Do(ctx, d.m.device, func(s *torch.Scope) error {
		if err := d.cache.reserve(s, live, want); err != nil {
			return err
		}
		d.lend(s, p.held)
		before, rest := passes(p.shared)
		for _, parts := range append(before, rest) {
			d.fill(s, parts)
		}
		d.lend(s, p.lent)
		for _, parts := range early {
			d.fill(s, parts)
		}
		d.drawAll(s, d.forward(s, d.rows(last, true)), requests, draws)
		return s.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("decode for %d requests: %w", len(requests), err)
	}
	for _, r := range requests {
		d.held[r.Slot] = append(d.held[r.Slot], r.Feed...)
	}
	for _, parts := range [][]part{p.shared, p.rest} {
		for _, q := range parts {
			d.computed += len(q.ids)
		}
	}
	return draws, nil
}

// stepRows are the tokens of one pass, request by request.
type stepRows struct {
	ids              []int64
	slots, positions []int32
	ends             []int64 // row of each request's last token; none if nothing is sampled
	single           bool    // every request has one token: row i is the end of request i
}

func (d *Decoder) check(requests []rl.Request) error {
	seen := make([]bool, d.slots)
	for i, r := range requests {
		switch {
		case r.Slot < 0 || r.Slot >= d.slots || seen[r.Slot] || len(r.Feed) == 0:
			return fmt.Errorf("decode request %d: %d tokens for slot %d, want at least one for each slot of 0..%d, once", i,
				len(r.Feed), r.Slot, d.slots-1)
		case len(d.held[r.Slot])+len(r.Feed) > d.maxLen:
			return fmt.Errorf("decode request %d: slot %d holds %d tokens and is fed %d more; it has room for %d", i,
				r.Slot, len(d.held[r.Slot]), len(r.Feed), d.maxLen)
		case r.Temperature < 0 || r.TopP < 0 || r.TopP > 1 || r.U < 0 || r.U >= 1:
			return fmt.Errorf("decode request %d: temperature %v, top-p %v and the uniform number %v must lie in [0, ∞), "+
				"[0, 1] and [0, 1)", i, r.Temperature, r.TopP, r.U)
		}
		seen[r.Slot] = true
		ids := r.Feed
		if r.Given != nil {
			ids = append(slices.Clip(ids), *r.Given)
		}
		for _, id := range ids {
			if id < 0 || int(id) >= d.m.cfg.Vocab {
				return fmt.Errorf("decode request %d: token %d lies outside the vocabulary of %d", i, id, d.m.cfg.Vocab)
			}
		}
	}
	return nil
}

// rows prepares parts for one pass. drawn reports whether tokens are sampled from their ends.
func (d *Decoder) rows(parts []part, drawn bool) *stepRows {
	rows := &stepRows{}
	for _, p := range parts {
		for j, id := range p.ids {
			rows.ids = append(rows.ids, int64(id))
			rows.slots = append(rows.slots, int32(p.slot))
			rows.positions = append(rows.positions, int32(p.at+j))
		}
		if drawn {
			rows.ends = append(rows.ends, int64(len(rows.ids)-1))
		}
	}
	rows.single = drawn && len(rows.ids) == len(parts)
	return rows
}

func (d *Decoder) fill(s *torch.Scope, parts []part) {
	if len(parts) > 0 && s.Err() == nil {
		s.Nest(func(s *torch.Scope) { d.forward(s, d.rows(parts, false)) })
		s.EndPass()
	}
}

// forward returns the logits after each request's last token, [requests, vocabulary] float32, or only fills the
// caches if nothing is sampled. It holds the intermediates of one layer at a time.
func (d *Decoder) forward(s *torch.Scope, rows *stepRows) *torch.Tensor {
	m, c := d.m, d.m.cfg
	heads, kvHeads, width := int64(c.Heads), int64(c.KVHeads), int64(c.HeadDim)
	if cache, ok := d.cache.(*cache); ok {
		if logits, ok := s.Decode(d.whole(cache), &torch.DecoderRows{IDs: rows.ids, Slots: rows.slots,
			Positions: rows.positions, Ends: rows.ends}); ok {
			return logits
		}
	}
	x := s.As(s.IndexSelect(m.w.embed, 0, s.FromInt64(rows.ids, int64(len(rows.ids)))), torch.Float32) // [rows, hidden]
	for l, w := range m.w.layers {
		before := x
		s.Nest(func(s *torch.Scope) {
			h, _ := m.norm(s, x, w.norm1)
			qkv := s.Linear(h, w.qkv, w.qkvBias)
			m.normHeads(s, &w, s.Narrow(qkv, 1, 0, heads*width), s.Narrow(qkv, 1, heads*width, kvHeads*width))
			m.rope(s, l, qkv, heads+kvHeads, rows.positions, false)
			a := d.cache.attend(s, l, qkv, rows)
			s.Free(h, qkv)
			if l == c.Layers-1 && len(rows.ends) == 0 {
				return
			}
			if l == c.Layers-1 && !rows.single { // only the last tokens are needed from here on
				ends := s.FromInt64(rows.ends, int64(len(rows.ends)))
				a, x = s.IndexSelect(a, 0, ends), s.IndexSelect(x, 0, ends)
			}
			mid := m.plus(s, x, a, w.o)
			s.Free(a)
			h2, _ := m.norm(s, mid, w.norm2)
			gateUp := s.Linear(h2, w.gateUp, nil)
			s.Free(h2)
			x = m.plus(s, mid, s.SwiGLU(gateUp), w.down)
			s.Keep(x)
		})
		s.Free(before)
	}
	if len(rows.ends) == 0 {
		return nil
	}
	h, _ := m.norm(s, x, m.w.norm)
	logits := s.Empty(torch.Float32, h.Size(0), int64(c.Vocab))
	s.WideMmInto(logits, h, s.T(m.w.head))
	return logits
}

func (d *Decoder) whole(cache *cache) *torch.Decoder {
	m, c := d.m, d.m.cfg
	all := &torch.Decoder{Heads: int64(c.Heads), KVHeads: int64(c.KVHeads), D: int64(c.HeadDim), NormEps: c.NormEps,
		Embed: m.w.embed, Cos: m.cos, Sin: m.sin, Norm: m.w.norm, Head: m.w.head}
	for l, w := range m.w.layers {
		all.Layers = append(all.Layers, torch.DecoderLayer{Norm1: w.norm1, QKV: w.qkv, QKVBias: w.qkvBias, O: w.o,
			QNorm: w.qNorm, KNorm: w.kNorm, Unrotated: !c.rotates(l), Norm2: w.norm2, GateUp: w.gateUp, Down: w.down,
			Keys: cache.keys[l], Values: cache.values[l]})
	}
	return all
}

// drawAll samples the tokens of all requests on the device. Only rows with a nucleus are copied to the host.
func (d *Decoder) drawAll(s *torch.Scope, logits *torch.Tensor, requests []rl.Request, draws []rl.Draw) {
	temperatures, u := make([]float64, len(requests)), make([]float64, len(requests))
	for i, r := range requests {
		temperatures[i], u[i] = r.Temperature, r.U
	}
	tokens, logps := s.SampleRows(logits, temperatures, u)
	for i := 0; s.Err() == nil && i < len(requests); i++ {
		r := requests[i]
		draws[i] = rl.Draw{Token: tokens[i], Logp: logps[i]}
		narrows := r.Temperature > 0 && r.TopP > 0 && r.TopP < 1
		if !narrows && r.Top == 0 && r.Given == nil {
			continue
		}
		row := s.Float32s(s.Narrow(logits, 0, int64(i), 1))
		if s.Err() != nil {
			return
		}
		if r.Top > 0 || r.Given != nil {
			rank(row, r, &draws[i])
		}
		if narrows && r.Given == nil {
			draws[i].Token, draws[i].Logp = torch.Sample(nucleus(row, r.Temperature, r.TopP), r.Temperature, r.U, d.scratch)
		}
	}
}

// rank sets the most probable tokens of a draw, and the logprob of a given token, from the logits.
func rank(logits []float32, r rl.Request, d *rl.Draw) {
	temperature := cmp.Or(r.Temperature, 1)
	most, total := slices.Max(logits), 0.0
	for _, l := range logits {
		total += math.Exp(float64(l-most) / temperature)
	}
	logp := func(id int32) float32 {
		return float32(float64(logits[id]-most)/temperature - math.Log(total))
	}
	if r.Given != nil {
		d.Token, d.Logp = *r.Given, logp(*r.Given)
	}
	var top []int32 // ordered
	for i := range logits {
		at := len(top)
		for at > 0 && logits[i] > logits[top[at-1]] {
			at--
		}
		if at < r.Top {
			top = slices.Insert(top, at, int32(i))
			top = top[:min(len(top), r.Top)]
		}
	}
	for _, id := range top {
		d.Top = append(d.Top, rl.Ranked{Token: id, Logp: logp(id)})
	}
}

// excluded is a logit whose probability is 0 in float32.
const excluded = -1e30

// nucleus returns the logits with all tokens outside the nucleus excluded: the fewest most probable tokens whose
// probabilities reach topP, lower ids first among equals (Holtzman et al. 2020).
func nucleus(logits []float32, temperature, topP float64) []float32 {
	order := make([]int, len(logits))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(logits[b], logits[a]) })
	total := 0.0
	p := make([]float64, len(order))
	for i, id := range order {
		p[i] = math.Exp(float64(logits[id]-logits[order[0]]) / temperature)
		total += p[i]
	}
	kept := slices.Clone(logits)
	reached := 0.0
	for i, id := range order {
		if reached >= topP*total {
			kept[id] = excluded
		}
		reached += p[i]
	}
	return kept
}
