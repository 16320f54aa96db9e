//go:build libtorch

package torch

// #include "kernels.h"
// #include "pool.h"
import "C"

import (
	"fmt"
	"slices"
)

// DecoderLayer contains a layer's weights and caches.
//
//	Norm1, Norm2 [hidden]; QKV [(heads+2·kvHeads)·D, hidden]; QKVBias of its rows or nil;
//	QNorm and KNorm of each query and key head [D], or nil;
//	O [hidden, heads·D]; GateUp [2·MLP, hidden]; Down [hidden, MLP];
//	Keys and Values as in CachedAttention
type DecoderLayer struct {
	Norm1, QKV, QKVBias, QNorm, KNorm, O, Norm2, GateUp, Down, Keys, Values *Tensor

	Unrotated bool // has no rotary embedding
}

// Decoder is the operand of Decode.
//
//	Embed and Head [vocabulary, hidden]; Norm [hidden]; Cos, Sin [positions, D/2]
type Decoder struct {
	Heads, KVHeads, D           int64
	NormEps                     float64
	Embed, Cos, Sin, Norm, Head *Tensor
	Layers                      []DecoderLayer
}

// DecoderRows are the tokens of a pass: row i is token IDs[i] at position Positions[i] of slot Slots[i]. The rows
// of a slot are consecutive, in the order of their positions. Logits are computed after the rows Ends, ascending.
type DecoderRows struct {
	IDs              []int64
	Slots, Positions []int32
	Ends             []int64
}

// Decode computes all layers of a decoder for rows in one call and returns the logits after rows.Ends, [ends,
// vocabulary], or nil without ends; it also fills the caches. The bits equal those of the separate operations.
// With enough rows each thread computes some slots through all layers, without synchronization between layers.
//
// The second result is false if the operation is unsupported: on a GPU, in bfloat16 and while Compose is on.
func (s *Scope) Decode(d *Decoder, rows *DecoderRows) (logits *Tensor, ok bool) {
	const name = "decode"
	if len(d.Layers) == 0 || !s.ready(name, operands{d.Embed}) || s.composesOf(d.Embed) {
		return nil, false
	}
	m, layers := s.decoder(name, d)
	if s.Err() != nil || !s.decodable(name, d, rows, int64(m.vocab), int64(m.ld)) || len(rows.IDs) == 0 {
		return nil, true
	}
	bounds := rows.parts(int(C.pool_size()))
	var out *C.float
	if len(rows.Ends) > 0 {
		logits = s.Empty(Float32, int64(len(rows.Ends)), int64(m.vocab))
		out = s.floats(name, logits, int64(len(rows.Ends)), int64(m.vocab))
	}
	scratch, buffer := s.scratch(int64(C.k_decode_room(&m)))
	if s.Err() == nil {
		C.k_decode(&m, &layers[0], C.int64_t(len(bounds)-1), longs(bounds), longs(rows.IDs), ints(rows.Slots),
			ints(rows.Positions), C.int64_t(len(rows.Ends)), longs(rows.Ends), out, buffer)
	}
	s.Free(scratch)
	return logits, true
}

// partRows is the number of rows above which a thread is faster alone than together with others; blockRows is the
// number of rows per pass through the layers. Equal values give more parts than threads, which balances the load.
const partRows, blockRows = 16, C.BLOCK_ROWS

// parts divides rows between slots into at least as many parts as threads if the parts have similar work,
// otherwise into one.
func (r *DecoderRows) parts(threads int) (bounds []int64) {
	n := len(r.IDs)
	whole := []int64{0, int64(n)}
	if threads < 2 || n < threads*partRows {
		return whole
	}
	var starts []int64 // of slots, and the end
	for i := range n {
		if i == 0 || r.Slots[i] != r.Slots[i-1] {
			starts = append(starts, int64(i))
		}
	}
	starts = append(starts, int64(n))
	parts := int64(min(max(n/blockRows, threads), 4*threads))
	for k, at := int64(0), 0; k <= parts; k++ { // the start that is nearest to where equal parts would end
		for at+1 < len(starts) && abs(starts[at+1]*parts-k*int64(n)) <= abs(starts[at]*parts-k*int64(n)) {
			at++
		}
		if len(bounds) == 0 || bounds[len(bounds)-1] < starts[at] {
			bounds = append(bounds, starts[at])
		}
	}
	for i := range bounds[1:] {
		if most := int64(n+n/4) / int64(threads); bounds[i+1]-bounds[i] > most {
			return whole
		}
	}
	return bounds
}

func abs(n int64) int64 { return max(n, -n) }

func (s *Scope) decoder(name string, d *Decoder) (m C.k_decoder, layers []C.k_layer) {
	table, angles := s.sizes(name, d.Embed, -1, -1), s.sizes(name, d.Cos, -1, d.D/2)
	hidden, heads, width := table.d, d.Heads*d.D, (d.Heads+2*d.KVHeads)*d.D
	if s.Err() != nil {
		return m, nil
	}
	if d.D < 2 || d.KVHeads < 1 || d.Heads%d.KVHeads != 0 {
		s.Fail(fmt.Errorf("torch %s: %d query heads and %d key heads of %d", name, d.Heads, d.KVHeads, d.D))
		return m, nil
	}
	m = C.k_decoder{
		layers: C.int64_t(len(d.Layers)), hidden: C.int64_t(hidden), vocab: C.int64_t(table.n),
		heads: C.int64_t(d.Heads), kv_heads: C.int64_t(d.KVHeads), d: C.int64_t(d.D), eps: C.float(d.NormEps),
		embed: s.floats(name, d.Embed, table.n, hidden), head: s.floats(name, d.Head, table.n, hidden),
		norm: s.floats(name, d.Norm, hidden),
		cos:  s.floats(name, d.Cos, angles.n, d.D/2), sin: s.floats(name, d.Sin, angles.n, d.D/2),
	}
	for i, w := range d.Layers {
		mlp := s.sizes(name, w.Down, hidden, -1).d
		slots, length := s.caches(name, w.Keys, w.Values, d.KVHeads, d.D)
		layer := C.k_layer{
			norm1: s.floats(name, w.Norm1, hidden), norm2: s.floats(name, w.Norm2, hidden),
			qkv: s.floats(name, w.QKV, width, hidden), o: s.floats(name, w.O, hidden, heads),
			gate_up: s.floats(name, w.GateUp, 2*mlp, hidden), down: s.floats(name, w.Down, hidden, mlp),
			keys:   s.floats(name, w.Keys, slots, d.KVHeads, d.D, length),
			values: s.floats(name, w.Values, slots, d.KVHeads, length, d.D),
		}
		if w.QKVBias != nil {
			layer.qkv_bias = s.floats(name, w.QKVBias, width)
		}
		if w.QNorm != nil {
			layer.q_norm, layer.k_norm = s.floats(name, w.QNorm, d.D), s.floats(name, w.KNorm, d.D)
		}
		if w.Unrotated {
			layer.unrotated = 1
		}
		if i > 0 && (m.mlp != C.int64_t(mlp) || m.ld != C.int64_t(length)) {
			s.Fail(fmt.Errorf("torch %s: layer %d has %d inner columns and caches of %d positions, the one before %d and %d",
				name, i, mlp, length, m.mlp, m.ld))
		}
		m.mlp, m.ld = C.int64_t(mlp), C.int64_t(length)
		layers = append(layers, layer)
	}
	return m, layers
}

// decodable checks that the kernel stays within its operands.
func (s *Scope) decodable(name string, d *Decoder, rows *DecoderRows, vocabulary, length int64) bool {
	n := len(rows.IDs)
	if len(rows.Slots) != n {
		s.Fail(fmt.Errorf("torch %s: %d tokens for %d slots", name, n, len(rows.Slots)))
		return false
	}
	if !slices.IsSorted(rows.Ends) {
		s.Fail(fmt.Errorf("torch %s: the ends %v are not in order", name, rows.Ends))
		return false
	}
	return within(s, name, rows.IDs, vocabulary) && within(s, name, rows.Ends, int64(n)) &&
		s.placed(name, rows.Slots, rows.Positions, d.Layers[0].Keys.Size(0), min(length, d.Cos.Size(0)))
}
