package objective

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/stages/rl"
)

func TestDiagnosticsOfAnUpdate(t *testing.T) {
	type spread struct {
		Within  number `json:"spread_within_mean"`
		Mixed   number `json:"spread_within_mean_mixed_groups"`
		Max     number `json:"advantage_max"`
		Min     number `json:"advantage_min"`
		Batch   number `json:"spread_batch"`
		MeanAbs number `json:"mean_abs_advantage"`
		ESS     number `json:"effective_sample_size"`
	}
	type prop2 struct{ Kappa, Bound, Slack number }
	type record struct {
		ID     string
		Inputs struct {
			Rewards   [][]number
			TokenHigh [][]int `json:"token_high"`
		}
		Out struct {
			G         int
			Reward    number `json:"reward_mean"`
			Var       number `json:"group_var_mean"`
			Std       number `json:"group_std_mean"`
			Zero      number `json:"zero_variance_fraction"`
			AllZero   number `json:"all_zero_fraction"`
			AllOne    number `json:"all_one_fraction"`
			Histogram []int  `json:"success_histogram"`
			Single    number `json:"single_token_group_fraction"`
			Range     number `json:"range_of_rewards_mean"`
			DDOF0     spread `json:"ddof0"`
			DDOF1     spread `json:"ddof1"`
			Share     number `json:"share_high"`
			High      number `json:"reward_mean_high"`
			Low       number `json:"reward_mean_low"`
			Gap       number `json:"token_gap"`
			Prop2     prop2  `json:"prop2_observed_p"`
			Half      prop2  `json:"prop2_configured_p_0.5"`
		}
	}
	n := 0
	fixtures.Records(t, "rl/diagnostics.jsonl", func(raw map[string]any) {
		if raw["kind"] != "step" {
			return
		}
		n++
		r := fixtures.Decode[record](t, raw)
		g := Groups{Rewards: matrix(r.Inputs.Rewards)}
		for _, row := range r.Inputs.TokenHigh {
			high := make([]bool, len(row))
			for i, h := range row {
				high[i] = h == 1
			}
			g.High = append(g.High, high)
		}
		check := func(what string, got float64, want number) {
			if !near(got, float64(want), 1e-12) {
				t.Errorf("%s: %s: got %v, want %v", r.ID, what, got, want)
			}
		}
		v := g.Diagnose()
		for name, want := range map[string]number{
			"reward": r.Out.Reward, "sigma2": r.Out.Var, "group_std": r.Out.Std, "zero_variance": r.Out.Zero,
			"all_wrong": r.Out.AllZero,
			"all_right": r.Out.AllOne, "single_token_groups": r.Out.Single, "reward_range": r.Out.Range,
			"share_high":  r.Out.Share,
			"reward_high": r.Out.High, "reward_low": r.Out.Low, "token_gap": r.Out.Gap, "prop2_bound": r.Out.Prop2.Bound,
			"prop2_slack":   r.Out.Prop2.Slack,
			"spread_within": r.Out.DDOF0.Within, "spread_within_mixed": r.Out.DDOF0.Mixed,
			"spread_batch": r.Out.DDOF0.Batch, "spread_batch_ddof1": r.Out.DDOF1.Batch,
		} {
			got, ok := v[name]
			if !ok {
				t.Errorf("%s: no value %s", r.ID, name)
			}
			check(name, got, want)
		}
		check("kappa at p 0.5", Kappa(r.Out.G, 0.5), r.Out.Half.Kappa)
		check("bound at p 0.5", Kappa(r.Out.G, 0.5)*v["token_gap"]*v["token_gap"], r.Out.Half.Bound)
		if got := g.Successes(); fmt.Sprint(got) != fmt.Sprint(r.Out.Histogram) {
			t.Errorf("%s: successes: got %v, want %v", r.ID, got, r.Out.Histogram)
		}
		for ddof, want := range []spread{r.Out.DDOF0, r.Out.DDOF1} {
			a := Advantage{Scale: "group_std", DDOF: ddof, Eps: 1e-6}
			var all []float64
			for _, rewards := range g.Rewards {
				all = append(all, a.Of(make([]int, len(rewards)), nil, rewards)...)
			}
			suffix := []string{"", "_ddof1"}[ddof]
			check("spread within", v["spread_within"+suffix], want.Within)
			check("spread of mixed groups", v["spread_within_mixed"+suffix], want.Mixed)
			check("largest advantage", slices.Max(all), want.Max)
			check("smallest advantage", slices.Min(all), want.Min)
			check("spread of the batch", v["spread_batch"+suffix], want.Batch)
			meanAbs, ess := AdvantageSizes(all)
			check("mean |A|", meanAbs, want.MeanAbs)
			check("effective sample size", ess, want.ESS)
		}
	})
	t.Logf("%d updates", n)
}

func TestForecastIsUnbiasedByHand(t *testing.T) {
	// 4 of 6 succeed; of the 15 pairs, C(4,2) = 6 are all right and C(2,2) = 1 is all wrong.
	f := ForecastZeroVariance([]TaskSample{{High: 6, HighRight: 4}, {High: 1, HighRight: 1}}, rl.AllocationIID, 2, 1)
	if math.Abs(f.AllRight-6.0/15) > 1e-12 || math.Abs(f.AllWrong-1.0/15) > 1e-12 || len(f.PerTask) != 1 {
		t.Errorf("got %+v, want 6/15, 1/15, one task left out", f)
	}
	// Stratified, p 0.5, G 2: one of each token. 1 of 2 high ones right, 1 of 4 low ones right.
	f = ForecastZeroVariance([]TaskSample{{High: 2, HighRight: 1, Low: 4, LowRight: 1}}, rl.AllocationStratified, 2, 0.5)
	if math.Abs(f.AllRight-0.125) > 1e-12 || math.Abs(f.AllWrong-0.375) > 1e-12 {
		t.Errorf("got %+v, want 1/8 and 3/8", f)
	}
}

func TestBandContainsTheMeasuredShareForNineteenOfTwentyPolicies(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	const policies, tasks, each, group, groups, p = 2000, 150, 8, 5, 64, 0.5
	inside := 0
	for range policies {
		a := 0.3 + 2*r.Float64() // how peaked this policy's success probabilities are
		task := func() (high, low float64) {
			low = 1 / (1 + math.Exp(-a*2*r.NormFloat64()))
			return low + (1-low)*0.4, low
		}
		samples := make([]TaskSample, tasks)
		for i := range samples {
			high, low := task()
			s := TaskSample{High: each, Low: each}
			for range each {
				s.HighRight += int(indicator(r.Float64() < high))
				s.LowRight += int(indicator(r.Float64() < low))
			}
			samples[i] = s
		}
		low, high := ForecastZeroVariance(samples, rl.AllocationIID, group, p).Band(groups)
		equal := 0
		for range groups {
			ph, pl := task()
			right := 0
			for range group {
				q := pl
				if r.Float64() < p {
					q = ph
				}
				right += int(indicator(r.Float64() < q))
			}
			equal += int(indicator(right == 0 || right == group))
		}
		if share := float64(equal) / groups; share >= low && share <= high {
			inside++
		}
	}
	share := float64(inside) / policies
	t.Logf("%.1f %% of %d policies inside", 100*share, policies)
	if share < 0.93 || share > 0.97 {
		t.Errorf("got %.3f, want 0.93 to 0.97", share)
	}
}

func TestEveryLoggedValueHasARowInTheMetricsTable(t *testing.T) {
	known := map[string]bool{}
	for _, m := range slices.Concat(Metrics, Times) {
		if known[m.Name] || m.Formula == "" {
			t.Errorf("%s stands twice or has no formula", m.Name)
		}
		known[m.Name] = true
	}
	v := Groups{Rewards: [][]float64{{1, 0}, {1, 1}}, High: [][]bool{{true, false}, {true, true}}}.Diagnose()
	DescribeEpisodes([]*rl.Trajectory{{Stop: rl.StopDone, IDs: []int32{1}, Mask: []bool{true}}}, v)
	DescribeRatios([]float64{0.1}, v)
	correction := &SamplerCorrection{Mode: "token", Cap: 2}
	correction.Describe([]int{2}, []float64{0, 0}, []float64{0, -1}, v)
	wantValues(t, "correction", v, map[string]float64{"sampler_weight": 1.5, "sampler_capped": 0.5})
	DescribeKL([]float64{-1}, []float64{-2}, []float64{0.1}, v)
	for name := range v {
		if _, found := MetricNamed(name); !found {
			t.Errorf("%s is logged but not in the table", name)
		}
	}
}

// The segments of an agent count among the tokens of its episode.
func TestEpisodesAreCountedByTheirEndTokensAndReplies(t *testing.T) {
	v := map[string]float64{}
	segment := rl.Segment{IDs: make([]int32, 1), Mask: []bool{true}}
	DescribeEpisodes([]*rl.Trajectory{
		{Stop: rl.StopDone, IDs: make([]int32, 3), Mask: []bool{true, false, false}, Segments: []rl.Segment{segment}},
		{Stop: rl.StopLength, IDs: make([]int32, 6), Mask: make([]bool, 6)},
		{Stop: rl.StopStep, Messages: []rl.Message{{Role: rl.RoleUser}, {Role: rl.RoleAssistant, Calls: []string{"ls()"}},
			{Role: rl.RoleTool}, {Role: rl.RoleAssistant, Text: "[ls(", Malformed: true}}},
		{Stop: rl.StopError, Segments: []rl.Segment{{Messages: []rl.Message{{Role: rl.RoleAssistant, Malformed: true},
			{Role: rl.RoleAssistant}}}}},
	}, v)
	wantValues(t, "four episodes", v, map[string]float64{"truncated": 0.5, "malformed": 0.5, "stop_done": 0.25,
		"stop_error": 0.25, "sampled_tokens": 0.5, "sampled_tokens_max": 2, "episode_tokens": 2.5})
}

// TestPropositionTwoHoldsInNineteenOfTwentyUpdates simulates updates of policies of all sorts, those included at
// which the bound is tight: all succeed under one token and fail under the other.
func TestPropositionTwoHoldsInNineteenOfTwentyUpdates(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	for name, tc := range map[string]struct {
		groups int
		policy func() (high, low float64)
	}{
		"12 groups, any policy": {12, func() (float64, float64) { return r.Float64(), r.Float64() }},
		"64 groups, any policy": {64, func() (float64, float64) { return r.Float64(), r.Float64() }},
		"64 groups, the bound nearly met": {64, func() (float64, float64) {
			return 0.97 + 0.03*r.Float64(),
				0.03 * r.Float64()
		}},
		"64 groups, a dead token": {64, func() (float64, float64) { p := 0.02 + 0.96*r.Float64(); return p, p }},
	} {
		outside := 0
		const updates = 2000
		for range updates {
			high, low := tc.policy()
			v := simulated(r, tc.groups, 5, 0.5, high, low).Diagnose()
			if v["prop2_excess"] < -1.959963984540054*v["prop2_excess_se"] {
				outside++
			}
		}
		t.Logf("%s: %.2f %% outside", name, 100*float64(outside)/updates)
		if outside > updates/20 {
			t.Errorf("%s: the bound lies outside its interval in %d of %d updates, want at most 5 %%", name, outside, updates)
		}
	}
}

// simulated are groups of 0/1 rewards whose members draw their token with probability p.
func simulated(r *rand.Rand, groups, size int, p, high, low float64) Groups {
	var g Groups
	for range groups {
		rewards, tokens := make([]float64, size), make([]bool, size)
		for i := range rewards {
			q := low
			if tokens[i] = r.Float64() < p; tokens[i] {
				q = high
			}
			rewards[i] = indicator(r.Float64() < q)
		}
		g.Rewards, g.High = append(g.Rewards, rewards), append(g.High, tokens)
	}
	return g
}
