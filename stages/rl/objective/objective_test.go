package objective

import (
	"math"
	"testing"

	"rcgrpo/internal/must"
)

// table is a policy that is a softmax over each row of logits.
type table [][]float64

func (s table) logp(row int) []float64 {
	top := math.Inf(-1)
	for _, x := range s[row] {
		top = max(top, x)
	}
	sum := 0.0
	for _, x := range s[row] {
		sum += math.Exp(x - top)
	}
	out := make([]float64, len(s[row]))
	for i, x := range s[row] {
		out[i] = x - top - math.Log(sum)
	}
	return out
}

// divergence is D(s || ref) of a row and its gradient with respect to the row's logits: p (log p - log q - D).
func (s table) divergence(ref table, row int) (d float64, grad []float64) {
	p, q := s.logp(row), ref.logp(row)
	for i := range p {
		d += math.Exp(p[i]) * (p[i] - q[i])
	}
	for i := range p {
		grad = append(grad, math.Exp(p[i])*(p[i]-q[i]-d))
	}
	return d, grad
}

// wantValues compares some of the values of a map.
func wantValues(t *testing.T, name string, got, want map[string]float64) {
	t.Helper()
	for value, w := range want {
		if math.Abs(got[value]-w) > 1e-12 {
			t.Errorf("%s: %s is %v, want %v", name, value, got[value], w)
		}
	}
}

func TestProfilesAreValidAndDistinct(t *testing.T) {
	for _, p := range Profiles() {
		o := p.Objective
		if diags := o.Check(); diags.HasErrors() {
			t.Errorf("%s: %v", p.Name, diags)
		}
	}
	_, err := ProfileNamed("ppo")
	must.Match(t, err, "dr_grpo")
}
