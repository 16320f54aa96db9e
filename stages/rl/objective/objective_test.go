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

func TestContradictorySettingsAreReported(t *testing.T) {
	for want, change := range map[string]func(o *Objective){
		"Clip out of range":          func(o *Objective) { o.Clip.Low = 1.5 },
		"Scale missing":              func(o *Objective) { o.Loss.Aggregate = "constant" },
		"Beta out of range":          func(o *Objective) { o.KL.Beta = -1 },
		"Exact KL elsewhere":         func(o *Objective) { o.KL.Estimator, o.KL.Place = "exact", "reward" },
		"No such standard deviation": func(o *Objective) { o.Advantage.DDOF = 2 },
		"Negative eps":               func(o *Objective) { o.Advantage.Eps = -1 },
	} {
		o := PaperObjective()
		change(&o)
		if diags := o.Check(); len(diags) != 1 || diags[0].Summary != want {
			t.Errorf("got %v, want %q", diags, want)
		}
	}
}

func TestPenaltyInTheRewardIsTheSumOverATrajectory(t *testing.T) {
	o := PaperObjective()
	o.KL = &KL{Beta: 0.5, Estimator: "k1", Gradient: "own", Place: "reward"}
	got := o.Penalty([]int{2, 0, 1}, []float64{-1, -2, -3}, []float64{-1.5, -2.5, -2})
	if want := []float64{0.5, 0, -0.5}; got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("got %v, want %v", got, want)
	}
	o.KL.Place = "loss"
	if got := o.Penalty([]int{1}, []float64{0}, []float64{0}); got != nil {
		t.Errorf("with the term in the loss: got %v", got)
	}
}
