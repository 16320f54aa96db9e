package ranks_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/ranks"
)

// each runs f as every rank of a group, and returns the results and errors by rank.
func each[T any](n int, f func(r *ranks.Rank) (T, error)) (results []T, errs []error) {
	results, errs = make([]T, n), make([]error, n)
	wires, end := inMemory(n)
	var all sync.WaitGroup
	for i, wire := range wires {
		all.Go(func() {
			if results[i], errs[i] = f(ranks.New(i, n, wire)); errs[i] != nil {
				end()
			}
		})
	}
	all.Wait()
	return results, errs
}

// plan is a random update: items with lengths, parts, and weights of a length.
type plan struct {
	seed         uint64
	items, parts int
	weights      int64
}

type result struct {
	Items   []string
	Stats   []float64
	Norm    float64
	Weights []float32
}

// run makes one update of a plan as one rank: it samples the dealt items, sums the gradients of its parts, exchanges
// them for the sum of its shard, and shares norm and weights.
func (p plan) run(r *ranks.Rank) (out result, err error) {
	items := make([]string, p.items)
	for i := range items {
		items[i] = fmt.Sprint("item ", i, strings.Repeat(" long", i%7))
	}
	if _, err = r.Sync(ranks.Point{Update: 1, Phase: "merge"}); err != nil {
		return out, err
	}
	if out.Items, err = ranks.Merge(r, ranks.Dealt(r, items), p.items); err != nil {
		return out, err
	}
	rows := make([]int, p.items)
	for i, item := range out.Items {
		rows[i] = len(item)
	}
	parts := ranks.Parts(rows, p.parts)
	from, to := ranks.Shard(p.weights, r.Index(), r.Count())
	sum := make([]float32, to-from)
	for round := range r.Rounds(p.parts) {
		gradient, stats := make([]float32, p.weights), []float64(nil)
		if part, ok := r.Part(round, p.parts); ok {
			for _, i := range parts[part] {
				rng := rand.New(rand.NewPCG(p.seed, uint64(i)))
				for j := range gradient {
					gradient[j] += rng.Float32()
				}
				stats = append(stats, rng.Float64())
			}
		}
		pieces, err := ranks.ShareValues(r, gradient) // stands for the exchange of tensors
		if err != nil {
			return out, err
		}
		lists, err := ranks.ShareValues(r, stats)
		if err != nil {
			return out, err
		}
		for rank, piece := range pieces {
			if round*r.Count()+rank < p.parts {
				for j := range sum {
					sum[j] += piece[from+int64(j)]
				}
			}
			out.Stats = append(out.Stats, lists[rank]...)
		}
	}
	return p.finish(r, out, sum, from)
}

// finish computes the norm over blocks and the weights of all shards.
func (p plan) finish(r *ranks.Rank, out result, sum []float32, from int64) (result, error) {
	var squares []float64
	first, last := ranks.BlocksOf(r.Index(), r.Count())
	for b := first; b < last; b++ {
		lo, hi := ranks.Block(p.weights, b)
		square := 0.0
		for _, v := range sum[lo-from : hi-from] {
			square += float64(v) * float64(v)
		}
		squares = append(squares, square)
	}
	lists, err := ranks.ShareValues(r, squares)
	if err != nil {
		return out, err
	}
	for _, list := range lists {
		for _, square := range list {
			out.Norm += square
		}
	}
	for j := range sum {
		sum[j] *= float32(1 / math.Sqrt(out.Norm))
	}
	shards, err := ranks.ShareValues(r, sum)
	for _, shard := range shards {
		out.Weights = append(out.Weights, shard...)
	}
	return out, err
}

func TestRanksComputeTheUpdateOfOneRank(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for range must.Short(t, 1000, 10_000) {
		p := plan{seed: rng.Uint64(), items: 1 + rng.IntN(12), parts: 1 + rng.IntN(8), weights: 1 + rng.Int64N(40)}
		if rng.IntN(100) == 0 {
			p.weights = 1 + rng.Int64N(3000)
		}
		n := 1 + rng.IntN(p.parts)
		want := must.Get(p.run(nil))(t)
		got, errs := each(n, p.run)
		for i := range n {
			if errs[i] != nil || !reflect.DeepEqual(got[i], want) {
				t.Fatalf("%+v, rank %d of %d: got %v, %v, want %v", p, i, n, got[i], errs[i], want)
			}
		}
	}
}

func TestShardsAreWholeBlocksThatCoverABuffer(t *testing.T) {
	for _, n := range []int64{0, 1, 16, 17, 1023, 1024, 1025, 40_000_003} {
		for count := 1; count <= 9; count++ {
			end := int64(0)
			for rank := range count {
				from, to := ranks.Shard(n, rank, count)
				if from != end || to < from || from%16 != 0 && from != n {
					t.Errorf("%d numbers, rank %d of %d: got %d to %d after %d", n, rank, count, from, to, end)
				}
				end = to
			}
			if end != n {
				t.Errorf("%d numbers, %d ranks: the shards end at %d", n, count, end)
			}
		}
	}
}

func TestMessagesOfAnyLengthAreShared(t *testing.T) {
	for _, lengths := range [][]int{{0, 0}, {3, 248}, {249, 0, 5}, {10_000, 1}} {
		got, errs := each(len(lengths), func(r *ranks.Rank) ([][]byte, error) {
			return r.Share([]byte(strings.Repeat("x", lengths[r.Index()])))
		})
		for i := range lengths {
			if errs[i] != nil {
				t.Fatal(errs[i])
			}
			for from, message := range got[i] {
				if len(message) != lengths[from] {
					t.Errorf("%v: rank %d got %d bytes of rank %d", lengths, i, len(message), from)
				}
			}
		}
	}
}

func TestSyncPointsCompareAllRanks(t *testing.T) {
	seed := func(value string) []ranks.Fact {
		return []ranks.Fact{{Name: "build", Value: "x"}, {Name: "seed", Value: value}}
	}
	base := ranks.Point{Update: 3, Phase: "rollout", Facts: seed("1")}
	for name, tc := range map[string]struct {
		change func(p *ranks.Point)
		want   []string // error of ranks 0, 1 and 2; "" for none
	}{
		"equal points": {func(*ranks.Point) {}, []string{"", "", ""}},
		"an error": {func(p *ranks.Point) { p.Err = errors.New("no space left") },
			[]string{"rank 1: no space left", "no space left", "rank 1: no space left"}},
		"another phase": {func(p *ranks.Point) { p.Phase = "gradient" }, []string{
			"rank 1 is at update 3, gradient, and rank 0 at update 3, rollout", "rank 1 is at", "rank 1 is at"}},
		"another fact": {func(p *ranks.Point) { p.Facts = seed("2") }, []string{
			"the ranks differ: rank 1 has seed 2, and rank 0 has seed 1", "rank 1 has seed 2", "rank 1 has seed 2"}},
		"one fact more": {func(p *ranks.Point) { p.Facts = append(seed("1"), ranks.Fact{Name: "shape", Value: "tall"}) },
			[]string{"rank 1 has shape tall, and rank 0 has none", "rank 1 has shape tall", "rank 1 has shape tall"}},
	} {
		points, errs := each(3, func(r *ranks.Rank) (ranks.Point, error) {
			p := base
			if r.Index() == 1 {
				tc.change(&p)
			}
			return r.Sync(p)
		})
		for i, err := range errs {
			if tc.want[i] == "" && (err != nil || points[i].Stop || points[i].OutOfMemory) {
				t.Errorf("%s, rank %d: got %+v, %v", name, i, points[i], err)
			}
			if tc.want[i] != "" && (err == nil || !strings.Contains(err.Error(), tc.want[i])) {
				t.Errorf("%s, rank %d: got %v, want it to say %q", name, i, err, tc.want[i])
			}
		}
	}
}

func TestStopAndLackOfMemoryOfOneRankReachAll(t *testing.T) {
	points, errs := each(3, func(r *ranks.Rank) (ranks.Point, error) {
		return r.Sync(ranks.Point{Stop: r.Index() == 2, OutOfMemory: r.Index() == 1})
	})
	for i, p := range points {
		if errs[i] != nil || !p.Stop || !p.OutOfMemory {
			t.Errorf("rank %d: got %+v, %v", i, p, errs[i])
		}
	}
}

func TestPartsTakeTheLongestItemsFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		rows  []int
		parts int
		want  [][]int
	}{
		"one part has all items in order": {[]int{3, 9, 1}, 1, [][]int{{0, 1, 2}}},
		"each item to the smallest part":  {[]int{2, 7, 3, 5, 4}, 2, [][]int{{1, 2}, {0, 3, 4}}},
		"equal items in turn":             {[]int{1, 1, 1, 1}, 3, [][]int{{0, 3}, {1}, {2}}},
		"a part without items":            {[]int{5}, 2, [][]int{{0}, nil}},
		"no items":                        {nil, 2, [][]int{nil, nil}},
	} {
		if got := ranks.Parts(tc.rows, tc.parts); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
