//go:build libtorch

package torch

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// randomPacking returns a packing of sequences that share rows with the one before. Of the places of a path, those that
// no sequence before has ask, or one in every so many; some sequences ask nothing.
func randomPacking(r *rand.Rand, every int32) (p *Packing, rows int32) {
	p = &Packing{Bounds: []int32{0}, QueryBounds: []int32{0}}
	for i := range 1 + r.IntN(5) {
		length, shared := int32(1+r.IntN(20)), int32(0)
		if i > 0 {
			before := p.Path[p.Bounds[i-1]:]
			shared = int32(r.IntN(min(len(before), int(length)) + 1))
			p.Path = append(p.Path, before[:shared]...)
		}
		for place := shared; place < length; place++ {
			p.Path = append(p.Path, rows)
			rows++
			if every == 1 || r.Int32N(every) == 0 {
				p.Places = append(p.Places, place)
			}
		}
		p.Bounds, p.QueryBounds = append(p.Bounds, int32(len(p.Path))), append(p.QueryBounds, int32(len(p.Places)))
	}
	return p, rows
}

func TestSequencesShowEachQueryThePathUpToItsPlace(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for trial := range 2000 {
		every := int32(1 + trial%3)
		p, _ := randomPacking(r, every)
		v := p.sequences()
		if every == 1 && v.rows != nil {
			t.Fatalf("%+v: all new rows ask, and the queries are rearranged by %v", p, v.rows)
		}
		for i := range len(p.Bounds) - 1 {
			for row := p.QueryBounds[i]; row < p.QueryBounds[i+1]; row++ {
				query := row
				if v.asks != nil {
					query = v.asks[row]
				}
				if v.rows != nil && v.rows[query] != row {
					t.Fatalf("%+v: query %d of row %d has the values of row %d", p, query, row, v.rows[query])
				}
				k, _ := slices.BinarySearch(v.queries, query+1)
				k-- // the sequence of the query
				visible := v.length(k) - (v.queries[k+1] - v.queries[k]) + query - v.queries[k] + 1
				got := v.path[v.keys[k]:][:visible]
				if want := p.Path[p.Bounds[i]:][:p.Places[row]+1]; !slices.Equal(got, want) {
					t.Fatalf("%+v: row %d sees %v, want %v", p, row, got, want)
				}
			}
		}
	}
}

// Attention and its gradients over the tables of flash attention are those over masks.
func TestAttentionOfVariableLengthsEqualsThatOfMasks(t *testing.T) {
	const heads, kvHeads, d = 4, 2, 8
	Compose(true)
	defer Compose(false)
	defer EmulateFlash(false)
	r := rand.New(rand.NewPCG(7, 8))
	for trial := range 60 {
		p, rows := randomPacking(r, int32(1+trial%3))
		queries := int64(len(p.Places))
		if queries == 0 {
			continue
		}
		work(t, func(s *Scope) {
			q, up := random(s, r, queries, heads*d), random(s, r, queries, heads*d)
			kv := random(s, r, int64(rows), 2*kvHeads*d) // keys and values are columns of a wider matrix
			k, v := s.Narrow(kv, 1, 0, kvHeads*d), s.Narrow(kv, 1, kvHeads*d, kvHeads*d)
			var results [2][]*Tensor
			for way, flash := range []bool{false, true} {
				EmulateFlash(flash)
				out, lse := s.PackedAttention(q, k, v, p, heads, kvHeads)
				dq, dkv := s.Zeros(Float32, queries, heads*d), s.Zeros(Float32, int64(rows), 2*kvHeads*d)
				s.PackedAttentionBackward(q, k, v, out, lse, up, p, heads, kvHeads, dq, s.Narrow(dkv, 1, 0, kvHeads*d),
					s.Narrow(dkv, 1, kvHeads*d, kvHeads*d))
				results[way] = []*Tensor{out, dq, dkv}
			}
			for i, name := range []string{"attention", "gradient of queries", "gradients of keys and values"} {
				compare(t, s, name, results[1][i], results[0][i], 1e-6)
			}
		})
	}
}

func TestFlashAttentionNeedsAGPUAndBFloat16(t *testing.T) {
	gpu := Device{cuda: 1}
	for name, tc := range map[string]struct {
		device Device
		kind   DType
		d      int64
		want   bool
	}{
		"a GPU":                  {gpu, BFloat16, 128, true},
		"a GPU in float32":       {gpu, Float32, 128, false},
		"the CPU":                {CPU, BFloat16, 128, false},
		"heads of another width": {gpu, BFloat16, 6, false},
	} {
		if got := Flashes(tc.device, tc.kind, tc.d); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

// Slots 2, 0 and 1 in a pool of 40 tokens, in another order than in the pass.
func TestSequencesOfAPoolAreInTheOrderOfTheirRanges(t *testing.T) {
	got := pooledSequencesOf([]int32{1, 1, 2, 0}, []int32{3, 4, 6, 0}, []int{20, 30, 5})
	for name, pair := range map[string][2][]int32{
		"queries": {got.queries, {0, 1, 2, 4}}, "keys": {got.keys, {5, 20, 30, 35}}, "used": {got.used, {7, 1, 5}},
		"rows": {got.rows, {2, 3, 0, 1}}, "asks": {got.asks, {2, 3, 0, 1}},
	} {
		if !slices.Equal(pair[0], pair[1]) {
			t.Errorf("%s: got %v, want %v", name, pair[0], pair[1])
		}
	}
	if want := []int64{33, 34, 11, 20}; !slices.Equal(got.at, want) {
		t.Errorf("tokens of the rows: got %v, want %v", got.at, want)
	}
}
