package reports

import (
	"encoding/json"
	"math"
	"strconv"
	"testing"

	"rcgrpo/bench/fixtures"
)

// fixtureLines returns the records of a fixture.
func fixtureLines[T any](t *testing.T, name string) []T {
	t.Helper()
	var rows []T
	fixtures.Records(t, name, func(row T) { rows = append(rows, row) })
	return rows
}

// number is a float64 whose non-finite values are written as strings.
type number float64

func (n *number) UnmarshalJSON(text []byte) error {
	if text[0] == '"' {
		s, err := strconv.Unquote(string(text))
		if err != nil {
			return err
		}
		v, err := strconv.ParseFloat(s, 64)
		*n = number(v)
		return err
	}
	return json.Unmarshal(text, (*float64)(n))
}

type statsVector struct {
	ID, Kind string
	Inputs   struct {
		Successes, N, Replicates int
		OnlyA                    int `json:"only_a"`
		OnlyB                    int `json:"only_b"`
		K1, N1, K2, N2           int
		Level, P                 float64
		A, B, Values, X, Y, DF   []float64
		Family                   []int
		Seed                     uint64
	}
	Out map[string]json.RawMessage
}

func (v statsVector) want(t *testing.T, name string) []float64 {
	t.Helper()
	raw, ok := v.Out[name]
	if !ok || string(raw) == "null" {
		t.Fatalf("%s: no value %s", v.ID, name)
	}
	var one number
	if json.Unmarshal(raw, &one) == nil {
		return []float64{float64(one)}
	}
	var many []number
	if err := json.Unmarshal(raw, &many); err != nil {
		t.Fatalf("%s: %s: %v", v.ID, name, err)
	}
	values := make([]float64, len(many))
	for i, n := range many {
		values[i] = float64(n)
	}
	return values
}

// TestStatisticsEqualPublishedLibraries compares every record of the vectors with tolerance 1e-12 of max(1, |want|),
// the rule of its readme (another float64 route agreed within 6.4e-15).
func TestStatisticsEqualPublishedLibraries(t *testing.T) {
	worst, kinds := 0.0, map[string]int{}
	for _, v := range fixtureLines[statsVector](t, "rl/stats.jsonl") {
		kinds[v.Kind]++
		got := map[string][]float64{}
		in := v.Inputs
		switch v.Kind {
		case "proportion":
			w, cp := Wilson(in.Successes, in.N, in.Level), ClopperPearson(in.Successes, in.N, in.Level)
			got["wilson"], got["clopper_pearson"] = []float64{w.Low, w.High}, []float64{cp.Low, cp.High}
		case "mcnemar_exact":
			p, mid := McNemar(in.OnlyA, in.OnlyB)
			got["p"], got["mid_p"] = []float64{p}, []float64{mid}
		case "fisher_exact":
			two, less, greater := Fisher(in.K1, in.N1, in.K2, in.N2)
			got["two_sided"], got["less"], got["greater"] = []float64{two}, []float64{less}, []float64{greater}
		case "paired_bootstrap", "cluster_bootstrap":
			differences := make([]float64, len(in.A))
			families := make([]string, len(in.A))
			for i := range differences {
				differences[i] = in.A[i] - in.B[i]
			}
			for i, f := range in.Family {
				families[i] = strconv.Itoa(10_000 + f) // ascending as text, too
			}
			b := PairedBootstrap(differences, in.Seed, in.Replicates, in.Level)
			if v.Kind == "cluster_bootstrap" {
				b = ClusterBootstrap(differences, families, in.Seed, in.Replicates, in.Level)
				got["families"] = []float64{float64(b.Units)}
			}
			got["mean"], got["low"], got["high"] = []float64{b.Mean}, []float64{b.Low}, []float64{b.High}
			got["bootstrap_se"], got["first_replicates"] = []float64{b.Error}, b.Replicates[:5]
		case "t_interval":
			i, sd := TInterval(in.Values, in.Level), StandardDeviation(in.Values)
			got["mean"], got["sd"], got["low"], got["high"] = []float64{Mean(in.Values)}, []float64{sd}, []float64{i.Low}, []float64{i.High}
		case "correlation":
			c := Correlate(in.X, in.Y)
			got = map[string][]float64{"pearson": {c.Pearson}, "pearson_p": {c.P}, "spearman": {c.Spearman},
				"spearman_p": {c.SpearmanP}, "lag1_x": {c.Lag1X}, "lag1_y": {c.Lag1Y}, "n_eff_lag1": {c.NEff},
				"n_eff_sum": {c.NEffSum}, "n_eff_sum_lags": {float64(c.Lags)}, "pearson_p_n_eff_lag1": {c.PEff},
				"pearson_p_n_eff_sum": {c.PEffSum}}
		case "quantile":
			got["normal"] = []float64{NormalQuantile(in.P)}
			for _, df := range in.DF {
				got["t"] = append(got["t"], TQuantile(in.P, df))
			}
		default:
			t.Errorf("%s: no function for kind %q", v.ID, v.Kind)
		}
		for name, values := range got {
			want := v.want(t, name)
			if len(want) != len(values) {
				t.Fatalf("%s %s: got %d values, want %d", v.ID, name, len(values), len(want))
			}
			for i := range want {
				off := math.Abs(values[i]-want[i]) / math.Max(1, math.Abs(want[i]))
				if math.IsNaN(values[i]) != math.IsNaN(want[i]) || off > 1e-12 {
					t.Errorf("%s %s[%d]: got %v, want %v", v.ID, name, i, values[i], want[i])
				}
				if off > worst {
					worst = off
				}
			}
		}
	}
	t.Logf("%v records; largest deviation %.1e", kinds, worst)
}

func TestHolmMultipliesTheSmallestByTheNumberOfComparisons(t *testing.T) {
	for name, tc := range map[string]struct{ p, want []float64 }{
		"none":                         {nil, nil},
		"order is kept":                {[]float64{0.04, 0.01, 0.03}, []float64{0.06, 0.03, 0.06}},
		"never above one":              {[]float64{0.6, 0.7}, []float64{1, 1}},
		"what was not tested is no p":  {[]float64{math.NaN(), 0.02}, []float64{math.NaN(), 0.02}},
		"a later one is never smaller": {[]float64{0.01, 0.011}, []float64{0.02, 0.02}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Holm(tc.p)
			for i := range tc.want {
				if math.Abs(got[i]-tc.want[i]) > 1e-15 || math.IsNaN(got[i]) != math.IsNaN(tc.want[i]) {
					t.Errorf("Holm(%v): got %v, want %v", tc.p, got, tc.want)
				}
			}
		})
	}
}

// By hand: at n = 400 and discordant share 0.2, Connor's formula needs (1.95996·0.44721 + 0.84162·sqrt(0.2-d²))²/d²
// = 400 tasks, which d = 0.06246 solves.
func TestDetectablePairedSolvesConnorsFormula(t *testing.T) {
	if got := DetectablePaired(400, 0.2); math.Abs(got-0.06246) > 1e-5 {
		t.Errorf("got %.5f, want 0.06246", got)
	}
	for name, got := range map[string]float64{
		"no tasks":                DetectablePaired(0, 0.2),
		"no discordant task":      DetectablePaired(80, 0),
		"too few can ever differ": DetectablePaired(80, 0.02),
	} {
		if !math.IsInf(got, 1) {
			t.Errorf("%s: got %v, want +Inf", name, got)
		}
	}
}

func TestStatisticsOfNothingAreUnknown(t *testing.T) {
	for name, i := range map[string]Interval{
		"Wilson":          Wilson(0, 0, Level),
		"Clopper-Pearson": ClopperPearson(0, 0, Level),
		"t, one seed":     TInterval([]float64{0.5}, Level),
		"bootstrap":       PairedBootstrap(nil, 1, 10, Level).Interval,
	} {
		if i.Known() || i.Excludes(0) {
			t.Errorf("%s: got %v, want an unknown interval that excludes nothing", name, i)
		}
	}
	if c := Correlate([]float64{1, 1, 1, 1}, []float64{1, 2, 3, 4}); !math.IsNaN(c.Pearson) || !math.IsNaN(c.PEff) {
		t.Errorf("constant series: got %+v, want no correlation", c)
	}
}
