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

// conventions are the settings under which the published code of each framework computes.
func conventions(convention, variant string, floor float64) (a Advantage, ok bool) {
	trl := Advantage{Baseline: "group_mean", Scale: "none", DDOF: 1, Eps: 1e-4, Missing: "leave_out"}
	verl := Advantage{Baseline: "group_mean", Scale: "none", DDOF: 1, Eps: 1e-6, Lone: "reward"}
	nemo := Advantage{Baseline: "group_mean", Scale: "none", DDOF: 1, Eps: 1e-6, Lone: "zero"}
	rlhf := Advantage{Baseline: "group_mean", Scale: "none", DDOF: 1, Eps: 1e-9}
	with := func(a Advantage, baseline, scale string) (Advantage, bool) {
		a.Baseline, a.Scale = baseline, scale
		return a, true
	}
	switch convention + " " + variant {
	case "paper group_std":
		return Advantage{Baseline: "group_mean", Scale: "group_std", Eps: 1e-6}, true
	case "paper mean_only":
		return Advantage{Baseline: "group_mean", Scale: "none"}, true
	case "verl grpo":
		return with(verl, "group_mean", "group_std")
	case "verl grpo_vectorized":
		verl.Floor = floor
		return with(verl, "group_mean", "group_std")
	case "dr_grpo verl grpo, norm_adv_by_std_in_grpo=false":
		return with(verl, "group_mean", "none")
	case "rloo verl rloo":
		return with(verl, "leave_one_out", "none")
	case "trl scale_rewards=group":
		return with(trl, "group_mean", "group_std")
	case "trl scale_rewards=batch":
		return with(trl, "group_mean", "batch_std")
	case "trl scale_rewards=none":
		return with(trl, "group_mean", "none")
	case "openrlhf group_norm":
		return with(rlhf, "group_mean", "group_std")
	case "openrlhf dr_grpo":
		return with(rlhf, "group_mean", "none")
	case "openrlhf rloo":
		return with(rlhf, "leave_one_out", "none")
	case "openrlhf reinforce_baseline":
		rlhf.Floor = floor
		return with(rlhf, "group_mean", "token_whiten")
	case "open_instruct standard":
		return Advantage{Baseline: "group_mean", Scale: "group_std", Eps: 1e-8}, true
	case "open_instruct centered":
		return with(rlhf, "group_mean", "none")
	case "nemo leave_one_out":
		return with(nemo, "leave_one_out", "others_std")
	case "nemo leave_one_out, normalize_rewards=false":
		return with(nemo, "leave_one_out", "none")
	case "nemo leave_one_out=false":
		return with(nemo, "group_mean", "group_std")
	}
	return Advantage{}, false
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
