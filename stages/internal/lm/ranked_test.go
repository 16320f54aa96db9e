//go:build libtorch

package lm

import (
	"math"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/rl"
)

// The logprobs of given tokens and of the most probable ones are those of the training forward, up to the rounding
// of float32 sums over the vocabulary.
func TestGivenAndTopTokensHaveTheLogprobsOfTheModel(t *testing.T) {
	m := shake(t, newModel(t, tiny(true), 5), 6, 0.5)
	d := newDecoder(t, m, 1, 32)
	ids := []int32{3, 1, 4, 1, 5, 9, 2, 6}
	for _, temperature := range []float64{1, 0.6} {
		want := allStats(t, m, []Sequence{learnAll(ids)}, nil, temperature)
		d.Cut(0, 0)
		for i := range ids[:len(ids)-1] {
			request := rl.Request{Feed: ids[i : i+1], Temperature: temperature, U: 0.3, Top: 4}
			drawn := must.Get(d.Next(t.Context(), []rl.Request{request}))(t)[0]
			d.Cut(0, i)
			request.Given = &ids[i+1]
			got := must.Get(d.Next(t.Context(), []rl.Request{request}))(t)[0]
			if got.Token != ids[i+1] || math.Abs(float64(got.Logp)-want.Logp[i]) > 1e-5 {
				t.Errorf("temperature %v, position %d: %d at %v, want %d at %v", temperature, i+1, got.Token, got.Logp,
					ids[i+1], want.Logp[i])
			}
			for k, r := range got.Top {
				if len(got.Top) != 4 || k > 0 && r.Logp > got.Top[k-1].Logp || r != drawn.Top[k] ||
					r.Token == drawn.Token && math.Abs(float64(r.Logp-drawn.Logp)) > 1e-5 {
					t.Errorf("position %d: alternatives %v beside a draw of %d at %v", i+1, got.Top, drawn.Token, drawn.Logp)
				}
			}
		}
		d.Cut(0, 0)
		best := must.Get(d.Next(t.Context(), []rl.Request{{Feed: ids, Top: 1}}))(t)[0]
		if best.Top[0].Token != best.Token {
			t.Errorf("the most probable token is %d, and greedy sampling took %d", best.Top[0].Token, best.Token)
		}
		d.Cut(0, 0)
	}
	bad := int32(m.Config().Vocab)
	if _, err := d.Next(t.Context(), []rl.Request{{Feed: ids[:1], Given: &bad}}); err == nil {
		t.Error("a given token outside the vocabulary was accepted")
	}
}
