package stats

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"

	"gonum.org/v1/gonum/mathext"

	"rcgrpo/bench/fixtures"
)

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
	fixtures.Records(t, "rl/stats.jsonl", func(v statsVector) {
		got := map[string][]float64{}
		in := v.Inputs
		switch v.Kind {
		case "proportion":
			w := Wilson(in.Successes, in.N, in.Level)
			got["wilson"] = []float64{w.Low, w.High}
		case "mcnemar_exact":
			got["p"] = []float64{McNemar(in.OnlyA, in.OnlyB)}
		case "fisher_exact":
			got["two_sided"] = []float64{Fisher(in.K1, in.N1, in.K2, in.N2)}
		case "paired_bootstrap", "cluster_bootstrap":
			differences, families := make([]float64, len(in.A)), make([]string, len(in.A))
			for i := range differences {
				differences[i] = in.A[i] - in.B[i]
				families[i] = strconv.Itoa(10_000 + i) // paired: each task is a family; in ascending order as text
				if v.Kind == "cluster_bootstrap" {
					families[i] = strconv.Itoa(10_000 + in.Family[i])
				}
			}
			b := ClusterBootstrap(ByFamily(differences, families), in.Seed, in.Replicates, in.Level)
			if v.Kind == "cluster_bootstrap" {
				got["families"] = []float64{float64(b.Families)}
			}
			got["mean"], got["low"], got["high"] = []float64{b.Mean}, []float64{b.Low}, []float64{b.High}
			got["bootstrap_se"], got["first_replicates"] = []float64{standardDeviation(b.Replicates)}, b.Replicates[:5]
		case "t_interval":
			i, sd := TInterval(in.Values, in.Level), standardDeviation(in.Values)
			got["mean"], got["sd"], got["low"], got["high"] = []float64{Mean(in.Values)}, []float64{sd}, []float64{i.Low},
				[]float64{i.High}
		case "correlation":
			c := Correlate(in.X, in.Y)
			got = map[string][]float64{"pearson": {c.Pearson}, "pearson_p": {c.P}, "lag1_x": {lagOne(in.X)},
				"lag1_y": {lagOne(in.Y)}, "n_eff_lag1": {c.NEff}, "pearson_p_n_eff_lag1": {c.PEff}}
		case "quantile":
			got["normal"] = []float64{mathext.NormalQuantile(in.P)}
			for _, df := range in.DF {
				if t := tQuantile(math.Max(in.P, 1-in.P), df); in.P < 0.5 {
					got["t"] = append(got["t"], -t)
				} else {
					got["t"] = append(got["t"], t)
				}
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
			}
		}
	})
}

func TestHolmMultipliesTheSmallestByTheNumberOfComparisons(t *testing.T) {
	for name, tc := range map[string]struct{ p, want []float64 }{
		"none":                             {nil, nil},
		"order is kept":                    {[]float64{0.04, 0.01, 0.03}, []float64{0.06, 0.03, 0.06}},
		"never above one":                  {[]float64{0.6, 0.7}, []float64{1, 1}},
		"NaN stays NaN and does not count": {[]float64{math.NaN(), 0.02}, []float64{math.NaN(), 0.02}},
		"a later one is never smaller":     {[]float64{0.01, 0.011}, []float64{0.02, 0.02}},
	} {
		got := Holm(tc.p)
		for i := range tc.want {
			if math.Abs(got[i]-tc.want[i]) > 1e-15 || math.IsNaN(got[i]) != math.IsNaN(tc.want[i]) {
				t.Errorf("%s: Holm(%v): got %v, want %v", name, tc.p, got, tc.want)
			}
		}
	}
}

// close12 compares with a value printed with 15 digits or more.
func close12(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= 1e-12*math.Max(1, math.Abs(want))) {
		t.Errorf("%s: got %.16g, want %.16g", what, got, want)
	}
}

// The expected values are statsmodels 0.15.0's: the variance is OLS(y, 1).fit(cov_type="cluster",
// use_correction=True), the interval proportion_confint(p*n_eff, n_eff, method="wilson"), with quantiles of scipy
// 1.17.1.
func TestClusteredWilsonEqualsStatsmodels(t *testing.T) {
	for name, tc := range map[string]struct {
		families            []Family
		variance, low, high float64
	}{
		"families alike within": {[]Family{{3, 3}, {0, 2}, {4, 5}, {1, 4}, {2, 2}, {0, 3}}, 0.03195187268360437,
			0.19514729350460902, 0.835844122990109},
		"six episodes each": {[]Family{{5, 6}, {6, 6}, {2, 6}, {1, 6}, {6, 6}, {0, 6}, {3, 6}, {6, 6}},
			0.02077132936507941, 0.2971383452580641, 0.8464046414163979},
		"never more than n episodes": {[]Family{{1, 2}, {1, 2}, {1, 2}, {1, 2}, {1, 2}, {1, 2}}, 0, 0.253781597633706,
			0.746218402366294},
	} {
		got := ClusteredWilson(tc.families, Level)
		close12(t, name+", variance", Variance(tc.families), tc.variance)
		close12(t, name+", low", got.Low, tc.low)
		close12(t, name+", high", got.High, tc.high)
	}
}

func TestClusteredWilsonOfSingleEpisodesIsWilsons(t *testing.T) {
	families := make([]Family, 80)
	for i := range families {
		families[i] = Family{0, 1}
		if i < 68 {
			families[i].Sum = 1
		}
	}
	got, want := ClusteredWilson(families, Level), Wilson(68, 80, Level)
	close12(t, "low", got.Low, want.Low)
	close12(t, "high", got.High, want.High)
	// Where all episodes fail nothing is known about how alike families are: ten families count as ten episodes.
	if got, want := ClusteredWilson(slices.Repeat([]Family{{0, 30}}, 10), Level), Wilson(0, 10, Level); got != want {
		t.Errorf("all fail: got %v, want %v", got, want)
	}
	if got := ClusteredWilson([]Family{{1, 2}}, Level); got.Known() {
		t.Errorf("one family with both outcomes: got %v, want an unknown interval", got)
	}
}

// statsmodels 0.15.0: confint_proportions_2indep(k2, n2, k1, n1, method="newcomb", compare="diff"). The first is
// Newcombe's own example (1998, table II, a): 56/70 against 48/80 gives 0.0524 … 0.3339.
func TestNewcombeEqualsStatsmodels(t *testing.T) {
	for _, tc := range []struct {
		k1, n1, k2, n2 int
		low, high      float64
	}{
		{48, 80, 56, 70, 0.05243147240236498, 0.33387265403690614},
		{10, 10, 0, 10, -1, -0.6075093504305241},
		{68, 80, 59, 80, -0.2350629803927142, 0.01361287869317268},
	} {
		got := Newcombe(float64(tc.k1)/float64(tc.n1), Wilson(tc.k1, tc.n1, Level), float64(tc.k2)/float64(tc.n2),
			Wilson(tc.k2, tc.n2, Level))
		close12(t, fmt.Sprint(tc, ", low"), got.Low, tc.low)
		close12(t, fmt.Sprint(tc, ", high"), got.High, tc.high)
	}
}

// scipy 1.17.1: ttest_ind(y, x, equal_var=False) with its confidence_interval(); statsmodels 0.15.0 for the clusters:
// OLS(d, 1).fit(cov_type="cluster", use_t=True).
func TestWelchAndClusteredTEqualScipy(t *testing.T) {
	x, y := []float64{.61, .64, .58}, []float64{.70, .72, .69, .75}
	vx, dx := MeanError(x)
	vy, dy := MeanError(y)
	i, p := Welch(Mean(y)-Mean(x), vx, dx, vy, dy, Level)
	close12(t, "Welch, p", p, 0.00808931623218704)
	close12(t, "Welch, low", i.Low, 0.04499224384242018)
	close12(t, "Welch, high", i.High, 0.1650077561575798)

	variance := Variance(ByFamily([]float64{.5, -.25, .25, 1, 0, .75, -.5, .25},
		[]string{"a", "a", "b", "b", "b", "c", "d", "d"}))
	close12(t, "clusters, variance", variance, 0.0234375)
	close12(t, "clusters, p", TTest(0.25, variance, 3), 0.200976226198922)
}

// 0 of 12 families: Clopper and Pearson's upper bound is 1 - 0.025^(1/12) = 0.26465.
func TestFamiliesWithoutSpreadGiveNoPoint(t *testing.T) {
	bound := 1 - math.Pow(0.025, 1.0/12)
	for value, want := range map[float64]Interval{0: {-bound, bound}, 1: {1 - 2*bound, 1},
		-0.5: {-0.5 - bound*0.5, -0.5 + bound*1.5}} {
		got := UniformInterval(value, 12, Level)
		close12(t, fmt.Sprint(value, ", low"), got.Low, want.Low)
		close12(t, fmt.Sprint(value, ", high"), got.High, want.High)
	}
	if i := TInterval([]float64{0, 0, 0}, Level); i.Known() {
		t.Errorf("three equal values: got the t-interval %v, want an unknown one", i)
	}
}

// Enumerated by hand: side A has two families with sums 0 and 2 of size 2, side B one with 1 of 2. A resample of A
// has mean 0, 1/2 or 1, one of B always 1/2, so that differences are 1/2, 0 or -1/2, and the quantiles of many are
// the ends.
func TestUnpairedBootstrapResamplesEachSide(t *testing.T) {
	b := UnpairedBootstrap([]Family{{0, 2}, {2, 2}}, []Family{{1, 2}}, 5, 4000, Level)
	if b.Mean != 0 || b.Low != -0.5 || b.High != 0.5 || b.Families != 3 {
		t.Errorf("got %v in %v of %d families, want 0 in -0.5 to 0.5 of 3", b.Mean, b.Interval, b.Families)
	}
	counts := map[float64]int{}
	for _, v := range b.Replicates {
		counts[v]++
	}
	// 1000, 2000 and 1000 are expected; four standard deviations are 110 and 127.
	if len(counts) != 3 || math.Abs(float64(counts[-0.5]-1000)) > 110 || math.Abs(float64(counts[0]-2000)) > 127 {
		t.Errorf("got %v", counts)
	}
}

func TestStatisticsOfNothingAreUnknown(t *testing.T) {
	for name, i := range map[string]Interval{
		"Wilson":      Wilson(0, 0, Level),
		"t, one seed": TInterval([]float64{0.5}, Level),
		"clustered":   ClusteredWilson(nil, Level),
		"bootstrap":   ClusterBootstrap(nil, 1, 10, Level).Interval,
	} {
		if i.Known() || i.Excludes(0) {
			t.Errorf("%s: got %v, want an unknown interval that excludes nothing", name, i)
		}
	}
	if c := Correlate([]float64{1, 1, 1, 1}, []float64{1, 2, 3, 4}); !math.IsNaN(c.Pearson) || !math.IsNaN(c.PEff) {
		t.Errorf("constant series: got %+v, want no correlation", c)
	}
}

// A standard error of 1: the normal quantiles are 1.959964 and 0.841621, those of two degrees of freedom 4.302653 and
// 1.060660.
func TestDetectableEffectIsTheSumOfBothQuantiles(t *testing.T) {
	for df, want := range map[float64]float64{math.Inf(1): 2.801585, 2: 5.363313} {
		half := map[float64]float64{math.Inf(1): 1.959963984540054, 2: 4.302652729911275}[df]
		if got := Detectable(Interval{-half, half}, df, 0.95, 0.8); math.Abs(got-want) > 2e-6 {
			t.Errorf("%v degrees of freedom: got %v, want %v", df, got, want)
		}
	}
	if got := Detectable(Unknown, 2, 0.95, 0.8); !math.IsNaN(got) {
		t.Errorf("an unknown interval: got %v, want NaN", got)
	}
}
