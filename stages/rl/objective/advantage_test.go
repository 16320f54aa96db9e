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

// conventions are the settings under which the published code of each framework computes; nil for a convention of
// which we have no settings, because no profile uses it.
var conventions = map[string]*Advantage{
	"paper group_std":          {Scale: "group_std", Eps: 1e-6},
	"paper mean_only":          {Scale: "none"},
	"verl grpo":                {Scale: "group_std", DDOF: 1, Eps: 1e-6, Lone: "reward"},
	"trl scale_rewards=group":  {Scale: "group_std", DDOF: 1, Eps: 1e-4},
	"trl scale_rewards=none":   {Scale: "none"},
	"openrlhf group_norm":      {Scale: "group_std", DDOF: 1, Eps: 1e-9},
	"openrlhf dr_grpo":         {Scale: "none"},
	"open_instruct standard":   {Scale: "group_std", Eps: 1e-8},
	"open_instruct centered":   {Scale: "none"},
	"nemo leave_one_out=false": {Scale: "group_std", DDOF: 1, Eps: 1e-6, Lone: "zero"},

	"dr_grpo verl grpo, norm_adv_by_std_in_grpo=false": {Scale: "none", Lone: "reward"},

	"verl grpo_vectorized": nil, "rloo verl rloo": nil, "trl scale_rewards=batch": nil, "openrlhf rloo": nil,
	"nemo leave_one_out": nil, "openrlhf reinforce_baseline": nil, "nemo leave_one_out, normalize_rewards=false": nil,
}

func TestAdvantagesOfEveryConvention(t *testing.T) {
	type record struct {
		ID      string
		Kind    string
		Group   []int
		Rewards []number
		Results []struct {
			Convention, Variant, Source string
			Advantages                  []number
			Atol                        float64
			Compare                     *bool
		}
	}
	compared, bad := 0, map[string]int{}
	fixtures.Records(t, "rl/advantages.jsonl", func(r record) {
		for _, x := range r.Results {
			if x.Compare != nil && !*x.Compare {
				continue
			}
			a, ok := conventions[x.Convention+" "+x.Variant]
			if !ok {
				t.Fatalf("%s: unknown convention %s %q", r.ID, x.Convention, x.Variant)
			}
			if a == nil {
				continue
			}
			compared++
			got := of(a, x.Convention == "trl", r.Group, floats(r.Rewards))
			for i, want := range floats(x.Advantages) {
				if x.Convention == "openrlhf" && math.IsNaN(want) && got[i] == 0 {
					continue // torch's deviation of one member is NaN, ours 0
				}
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

// of returns Of. With present only the rewards that are numbers are passed, and the others get 0 (TRL).
func of(a *Advantage, present bool, group []int, rewards []float64) []float64 {
	if !present {
		return a.Of(group, nil, rewards)
	}
	var at, groups []int
	var numbers []float64
	for i, r := range rewards {
		if !math.IsNaN(r) {
			at, groups, numbers = append(at, i), append(groups, group[i]), append(numbers, r)
		}
	}
	out := make([]float64, len(rewards))
	for j, x := range a.Of(groups, nil, numbers) {
		out[at[j]] = x
	}
	return out
}
