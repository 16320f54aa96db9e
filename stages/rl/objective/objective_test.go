package objective

import (
	"math"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
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

type objectiveRecord struct {
	ID     string
	G, V   int
	Beta   float64
	Inputs struct {
		LogitsRef  [][]number `json:"logits_ref"`
		LogitsOld  [][]number `json:"logits_old"`
		Group      []int
		Rewards    []number
		State      [][]int
		Token      [][]int
		Mask, Turn [][]int
	}
	Advantages []number
	Updates    []struct {
		Name   string
		Logits [][]number
		Out    struct {
			LogRatio     []number `json:"log_ratio"`
			ClipFraction number   `json:"clip_fraction"`
			PolicyLoss   number   `json:"policy_loss"`
			KL           map[string]struct {
				Value, Loss number
				Grad        [][]number
				GradNorm    number `json:"grad_norm"`
			}
			Entropy number `json:"entropy_token_mean"`
		}
		DenominatorRef *struct {
			PolicyLoss number     `json:"policy_loss"`
			GradPolicy [][]number `json:"grad_policy"`
		} `json:"denominator_ref"`
		Profiles []struct {
			Profile, Source string
			Advantages      []number
			Loss            number
			ClipFraction    number `json:"clip_fraction"`
			Grad            [][]number
		}
	}
}

// update evaluates an objective on the record's trajectories under a table, and gives the gradient in its logits.
func (r *objectiveRecord) update(t *testing.T, o Objective, now table, advantages []float64) (*Outcome, [][]float64) {
	t.Helper()
	in := r.Inputs
	old, ref := table(matrix(in.LogitsOld)), table(matrix(in.LogitsRef))
	b := &Batch{Length: lengths(in.Mask), Advantage: advantages, Turn: flatten(in.Turn, in.Mask)}
	states, tokens := flatten(in.State, in.Mask), flatten(in.Token, in.Mask)
	var klGrad [][]float64
	for k, s := range states {
		p := now.logp(s)
		d, g := now.divergence(ref, s)
		entropy := 0.0
		for _, l := range p {
			entropy -= math.Exp(l) * l
		}
		klGrad = append(klGrad, g)
		b.Logp = append(b.Logp, p[tokens[k]])
		b.LogpOld = append(b.LogpOld, old.logp(s)[tokens[k]])
		b.LogpRef = append(b.LogpRef, ref.logp(s)[tokens[k]])
		b.KL = append(b.KL, d)
		b.Entropy = append(b.Entropy, entropy)
	}
	out := must.Get(o.Evaluate(b, o.Totals(b)))(t)
	grad := make([][]float64, len(now))
	for i := range grad {
		grad[i] = make([]float64, r.V)
	}
	for k, s := range states {
		for v, l := range now.logp(s) { // d logp(token) / d logit v = [v = token] - p(v)
			own := -math.Exp(l)
			if v == tokens[k] {
				own++
			}
			grad[s][v] += out.DLogp[k] * own
			if out.DKL != nil {
				grad[s][v] += out.DKL[k] * klGrad[k][v]
			}
		}
	}
	return out, grad
}

func (r *objectiveRecord) compare(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !near(got, want, 1e-12) {
		t.Errorf("%s: %s: got %v, want %v", r.ID, what, got, want)
	}
}

func (r *objectiveRecord) compareTable(t *testing.T, what string, got [][]float64, want [][]number) (norm float64) {
	t.Helper()
	for i := range got {
		for j := range got[i] {
			r.compare(t, what, got[i][j], float64(want[i][j]))
			norm += got[i][j] * got[i][j]
		}
	}
	return math.Sqrt(norm)
}

func TestWholeObjectiveOnASoftmaxTable(t *testing.T) {
	n := fixtures.Records(t, "rl/objective.jsonl", func(r objectiveRecord) {
		paper := PaperObjective()
		paper.KL.Beta = r.Beta
		paper.Ratio.LogClamp = 0
		advantages := paper.Advantage.Of(r.Inputs.Group, floats(r.Inputs.Rewards), nil)
		for i, want := range floats(r.Advantages) {
			r.compare(t, "advantage", advantages[i], want)
		}
		for u, update := range r.Updates {
			now := table(matrix(update.Logits))
			for name, want := range update.Out.KL {
				o, kl := paper, *paper.KL
				kl.Estimator, kl.Aggregate, _ = strings.Cut(name, "_")
				o.KL = &kl
				out, grad := r.update(t, o, now, advantages)
				r.compare(t, update.Name+" policy loss", out.Policy, float64(update.Out.PolicyLoss))
				r.compare(t, update.Name+" clip fraction", out.ClipFraction(), float64(update.Out.ClipFraction))
				r.compare(t, update.Name+" "+name+" value", out.KL, float64(want.Value))
				r.compare(t, update.Name+" "+name+" loss", out.Loss, float64(want.Loss))
				norm := r.compareTable(t, update.Name+" "+name+" gradient", grad, want.Grad)
				r.compare(t, update.Name+" "+name+" norm", norm, float64(want.GradNorm))
				for i, l := range out.LogRatio {
					r.compare(t, "log ratio", l, float64(update.Out.LogRatio[i]))
					if u == 0 && l != 0 {
						t.Errorf("%s: the first log ratio is %v, want exactly 0", r.ID, l)
					}
				}
			}
			if want := update.DenominatorRef; want != nil {
				o := paper
				o.KL = &KL{Estimator: "k3", Place: "loss"}
				o.Ratio = &Ratio{Level: "trajectory", Denominator: "reference"}
				out, grad := r.update(t, o, now, advantages)
				r.compare(t, "loss against the reference", out.Loss, float64(want.PolicyLoss))
				r.compareTable(t, "gradient against the reference", grad, want.GradPolicy)
			}
			for _, p := range update.Profiles {
				o := must.Get(ProfileNamed(p.Profile))(t)
				kl := *o.KL
				kl.Beta = 0
				o.KL = &kl
				if p.Profile == "dr_grpo" { // verl divides by the width, its snapshot by nothing else
					l := *o.Loss
					l.Scale = float64(len(r.Inputs.Mask[0]))
					if p.Source == "verl@b178a3c" {
						l.Rows = "one"
					}
					o.Loss = &l
				}
				adv := o.Advantage.Of(r.Inputs.Group, floats(r.Inputs.Rewards), nil)
				for i, want := range floats(p.Advantages) {
					r.compare(t, p.Profile+" advantage", adv[i], want)
				}
				out, grad := r.update(t, o, now, adv)
				r.compare(t, update.Name+" "+p.Profile+" loss", out.Loss, float64(p.Loss))
				r.compareTable(t, update.Name+" "+p.Profile+" gradient", grad, p.Grad)
			}
		}
	})
	t.Logf("%d objectives", n)
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
