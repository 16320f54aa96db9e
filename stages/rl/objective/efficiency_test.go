package objective

import (
	"math"
	"math/rand/v2"
	"testing"

	"rcgrpo/stages/rl"
)

// bruteForce computes the expected update over every draw of tokens and rewards of a group, [2^G][2^G], with its own
// advantages: population deviation, no eps.
func bruteForce(baseline string, group int, p, high, low float64) (u Update) {
	for tokens := range 1 << group {
		for rewards := range 1 << group {
			w, n := 1.0, [2]float64{}
			var sum [2]float64
			of := func(i int) (token int, reward, success float64) {
				token, success = tokens>>i&1, low
				if token == 1 {
					success = high
				}
				return token, float64(rewards >> i & 1), success
			}
			for i := range group {
				token, reward, success := of(i)
				w *= []float64{1 - p, p}[token] * (reward*success + (1-reward)*(1-success))
				n[token]++
				sum[token] += reward
			}
			g := float64(group)
			centre := [2]float64{(sum[0] + sum[1]) / g, (sum[0] + sum[1]) / g}
			if baseline == BaselineToken {
				centre = [2]float64{sum[0] / n[0], sum[1] / n[1]}
			}
			variance := 0.0
			for i := range group {
				token, reward, _ := of(i)
				variance += (reward - centre[token]) * (reward - centre[token]) / g
			}
			if rewards == 0 {
				u.AllWrong += w
			}
			if rewards == 1<<group-1 {
				u.AllRight += w
			}
			if variance < 1e-12 {
				continue
			}
			for i := range group {
				token, reward, success := of(i)
				a := (reward - centre[token]) / math.Sqrt(variance)
				u.Square += w * a * a / g
				if token == 1 {
					u.High += w * a * (reward - success) / g
				} else {
					u.Low += w * a * (reward - success) / g
				}
			}
		}
	}
	return u
}

func TestExpectedUpdateEqualsThatOfEveryGroup(t *testing.T) {
	for _, baseline := range []string{BaselineGroup, BaselineToken} {
		for _, group := range []int{2, 3, 5, 6} {
			for _, p := range []float64{0.2, 0.5, 1} {
				for _, mu := range [][2]float64{{0.474, 0.224}, {0.9, 0.5}, {0.9, 0.1}, {0.3, 0.6}} {
					a := Advantage{Scale: "group_std", Lone: "formula", Eps: 1e-12, Baseline: baseline}
					got := a.Expect(rl.AllocationIID, group, p, Known(mu[0]), Known(mu[1]))
					want := bruteForce(baseline, group, p, mu[0], mu[1])
					for _, pair := range [][2]float64{{got.High, want.High}, {got.Low, want.Low}, {got.Square, want.Square},
						{got.AllRight, want.AllRight}, {got.AllWrong, want.AllWrong}} {
						if !(math.Abs(pair[0]-pair[1]) < 1e-10) { // eps and rounding of 64 terms
							t.Fatalf("%s, G = %d, p = %v, %v: got %+v, want %+v", baseline, group, p, mu, got, want)
						}
					}
				}
			}
		}
	}
}

// The numbers are those of the table in docs/training.md 6, from a separate program (G = 5, p = 0.5).
func TestEfficiencyOfTheTable(t *testing.T) {
	for _, tc := range []struct{ high, low, plain, conditioned, none, full, transfer, step, byToken float64 }{
		{0.474, 0.224, 0.064, 0.122, 0.524, 0.889, 1.305, 0.861, 0.801},
		{0.75, 0.5, 0.238, 0.103, 0.447, 1.044, 0.926, 1.133, 0.941},
		{0.9, 0.5, 0.591, 0.171, 0.327, 1.235, 0.741, 1.758, 1.195},
		{0.95, 0.5, 0.774, 0.202, 0.243, 1.524, 0.591, 2.863, 1.538},
		{0.99, 0.5, 0.951, 0.231, 0.114, 2.983, 0.309, 11.818, 3.147},
		{0.9, 0.1, 0.591, 0.062, 0.300, 0.600, 2.335, 0.907, 0.872},
		{0.95, 0.1, 0.774, 0.064, 0.218, 0.630, 1.896, 1.282, 1.048},
	} {
		a := Advantage{Scale: "group_std", Lone: "formula"}
		plain := (&Advantage{Scale: "group_std", Eps: 1e-12}).Expect(rl.AllocationIID, 5, 1, Known(tc.high), nil)
		a.Eps = 1e-12
		conditioned := a.Expect(rl.AllocationIID, 5, 0.5, Known(tc.high), Known(tc.low))
		a.Baseline = BaselineToken
		token := EfficiencyOf(a.Expect(rl.AllocationIID, 5, 0.5, Known(tc.high), Known(tc.low)), plain)
		e := EfficiencyOf(conditioned, plain)
		got := []float64{plain.AllRight + plain.AllWrong, conditioned.AllRight + conditioned.AllWrong, e.None, e.Full,
			e.Transfer, e.StepFull, token.Full}
		for i, want := range []float64{tc.plain, tc.conditioned, tc.none, tc.full, tc.transfer, tc.step, tc.byToken} {
			if math.Abs(got[i]-want) > 0.0006 { // the table is rounded
				t.Errorf("μ = %v, %v: value %d is %.4f, want %.3f", tc.high, tc.low, i, got[i], want)
			}
		}
	}
}

// In large groups the enumeration tends to the closed form; the error falls with 1/G.
func TestEfficiencyOfLargeGroupsIsTheClosedForm(t *testing.T) {
	const p = 0.5
	for _, mu := range [][2]float64{{0.75, 0.5}, {0.9, 0.5}, {0.9, 0.1}} {
		vh, vl, gap := mu[0]*(1-mu[0]), mu[1]*(1-mu[1]), mu[0]-mu[1]
		within := p*vh + (1-p)*vl
		for baseline, variance := range map[string]float64{BaselineGroup: within + p*(1-p)*gap*gap, BaselineToken: within} {
			a := Advantage{Scale: "group_std", Eps: 1e-12, Baseline: baseline}
			e := EfficiencyOf(a.Expect(rl.AllocationIID, 60, p, Known(mu[0]), Known(mu[1])),
				a.Expect(rl.AllocationIID, 60, 1, Known(mu[0]), nil))
			want := (p + (1-p)*vl/vh) * math.Sqrt(vh/variance)
			if math.Abs(e.Full/want-1) > 0.03 {
				t.Errorf("%s, μ = %v: got %.4f, want %.4f", baseline, mu, e.Full, want)
			}
		}
	}
}

// Without replacement, an expected update of samples is on average that of the policy.
func TestExpectedUpdateOfSamplesIsUnbiased(t *testing.T) {
	a := Advantage{Scale: "group_std", Eps: 1e-12}
	const n, high, low = 7, 0.8, 0.4
	var got Update
	for i, x := range Known(high).successes(n) {
		for j, y := range Known(low).successes(n) {
			u := a.Expect(rl.AllocationIID, 4, 0.5, Sampled(n, i), Sampled(n, j))
			w := x * y
			got.Add(Update{w * u.High, w * u.Low, w * u.Square, w * u.AllRight, w * u.AllWrong})
		}
	}
	want := a.Expect(rl.AllocationIID, 4, 0.5, Known(high), Known(low))
	for _, pair := range [][2]float64{{got.High, want.High}, {got.Low, want.Low}, {got.Square, want.Square},
		{got.AllRight, want.AllRight}, {got.AllWrong, want.AllWrong}} {
		if !(math.Abs(pair[0]-pair[1]) < 1e-10) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	}
}

// Tasks of equal success give the efficiency of the table within the interval of the forecast.
func TestForecastEfficiencyCoversTheTruth(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	a := &Advantage{Scale: "group_std", Eps: 1e-6}
	covered := 0
	for range 40 {
		samples := make([]TaskSample, 60)
		for i := range samples {
			samples[i] = TaskSample{High: 10, Low: 10}
			for range 10 {
				samples[i].HighRight += int(indicator(r.Float64() < 0.75))
				samples[i].LowRight += int(indicator(r.Float64() < 0.5))
			}
		}
		v := ForecastEfficiency(samples, a, rl.AllocationIID, 5, 0.5)
		covered += int(indicator(v["forecast_efficiency_full_low"] < 1.044 && v["forecast_efficiency_full_high"] > 1.044))
	}
	if covered < 33 { // 38 expected; fewer than 33 has probability 0.003
		t.Errorf("%d of 40 intervals contain 1.044, want about 38", covered)
	}
}
