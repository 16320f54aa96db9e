package objective

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"testing"

	"rcgrpo/bench/fixtures"
)

// number is a float64 of the vectors, where non-finite values are strings.
type number float64

func (n *number) UnmarshalJSON(raw []byte) error {
	s := string(raw)
	if len(s) > 1 && s[0] == '"' {
		s = s[1 : len(s)-1]
	}
	f, err := strconv.ParseFloat(s, 64)
	*n = number(f)
	return err
}

var _ json.Unmarshaler = (*number)(nil)

func floats(ns []number) []float64 {
	out := make([]float64, len(ns))
	for i, n := range ns {
		out[i] = float64(n)
	}
	return out
}

// near follows the rule of the vectors: |got - want| <= tol max(1, |want|), non-finite values equal in kind.
func near(got, want, tol float64) bool {
	if math.IsNaN(want) || math.IsInf(want, 0) {
		return math.IsNaN(want) && math.IsNaN(got) || got == want
	}
	return math.Abs(got-want) <= tol*max(1, math.Abs(want))
}

// conventions are the settings under which the published code of each framework computes: those of the framework,
// with a baseline and a scale.
func conventions(convention, variant string, floor float64) (a Advantage, ok bool) {
	trl := Advantage{DDOF: 1, Eps: 1e-4, Missing: "leave_out"}
	verl := Advantage{DDOF: 1, Eps: 1e-6, Lone: "reward"}
	nemo := Advantage{DDOF: 1, Eps: 1e-6, Lone: "zero"}
	rlhf := Advantage{DDOF: 1, Eps: 1e-9}
	vectorized, whitened := verl, rlhf
	vectorized.Floor, whitened.Floor = floor, floor
	c, ok := map[string]struct {
		a               Advantage
		baseline, scale string
	}{
		"paper group_std":          {Advantage{Eps: 1e-6}, "group_mean", "group_std"},
		"paper mean_only":          {Advantage{}, "group_mean", "none"},
		"verl grpo":                {verl, "group_mean", "group_std"},
		"verl grpo_vectorized":     {vectorized, "group_mean", "group_std"},
		"rloo verl rloo":           {verl, "leave_one_out", "none"},
		"trl scale_rewards=group":  {trl, "group_mean", "group_std"},
		"trl scale_rewards=batch":  {trl, "group_mean", "batch_std"},
		"trl scale_rewards=none":   {trl, "group_mean", "none"},
		"openrlhf group_norm":      {rlhf, "group_mean", "group_std"},
		"openrlhf dr_grpo":         {rlhf, "group_mean", "none"},
		"openrlhf rloo":            {rlhf, "leave_one_out", "none"},
		"open_instruct standard":   {Advantage{Eps: 1e-8}, "group_mean", "group_std"},
		"open_instruct centered":   {rlhf, "group_mean", "none"},
		"nemo leave_one_out":       {nemo, "leave_one_out", "others_std"},
		"nemo leave_one_out=false": {nemo, "group_mean", "group_std"},

		"dr_grpo verl grpo, norm_adv_by_std_in_grpo=false": {verl, "group_mean", "none"},
		"openrlhf reinforce_baseline":                      {whitened, "group_mean", "token_whiten"},
		"nemo leave_one_out, normalize_rewards=false":      {nemo, "leave_one_out", "none"},
	}[convention+" "+variant]
	c.a.Baseline, c.a.Scale = c.baseline, c.scale
	return c.a, ok
}

func TestAdvantagesOfEveryConvention(t *testing.T) {
	type record struct {
		ID      string
		Kind    string
		Group   []int
		Rewards []number
		Length  []int
		Results []struct {
			Convention, Variant, Source string
			Advantages                  []number
			Atol                        float64
			Compare                     *bool
			Floor                       float64 `json:"variance_floor"`
		}
	}
	compared, bad := 0, map[string]int{}
	fixtures.Records(t, "rl/advantages.jsonl", func(r record) {
		for _, x := range r.Results {
			if x.Compare != nil && !*x.Compare {
				continue
			}
			a, ok := conventions(x.Convention, x.Variant, x.Floor)
			if !ok {
				t.Fatalf("%s: unknown convention %s %q", r.ID, x.Convention, x.Variant)
			}
			compared++
			got := ofPresent(a, r.Group, floats(r.Rewards), r.Length)
			for i, want := range floats(x.Advantages) {
				if !near(got[i], want, 1e-12) && !(math.Abs(got[i]-want) <= x.Atol) {
					name := fmt.Sprintf("%s %s %s", x.Convention, x.Variant, r.Kind)
					if bad[name]++; bad[name] == 1 {
						t.Errorf("%s %s (%s) %s: rewards %v: got %v, want %v", r.ID, name, x.Source, r.Kind, floats(r.Rewards),
							got, floats(x.Advantages))
					}
					break
				}
			}
		}
	})
	t.Logf("%d lists compared; differences: %v", compared, bad)
}

// ofPresent returns Of. If missing rewards are left out, only the others are passed, and missing ones get 0.
func ofPresent(a Advantage, group []int, rewards []float64, length []int) []float64 {
	if a.Missing != "leave_out" {
		return a.Of(group, rewards, length)
	}
	var at, groups, lengths []int
	var present []float64
	for i, r := range rewards {
		if !math.IsNaN(r) {
			at, groups, present = append(at, i), append(groups, group[i]), append(present, r)
			lengths = append(lengths, length[i])
		}
	}
	out := make([]float64, len(rewards))
	for j, x := range a.Of(groups, present, lengths) {
		out[at[j]] = x
	}
	return out
}
