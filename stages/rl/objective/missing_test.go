package objective

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/rl"
)

// earned returns episodes with the given rewards, in groups of a size; "x" is an episode whose environment
// failed.
func earned(size int, rewards string) []*rl.Trajectory {
	var out []*rl.Trajectory
	for i, r := range strings.Fields(rewards) {
		t := &rl.Trajectory{Task: fmt.Sprint("t", i/size), Member: i % size, Stop: rl.StopDone, Official: r == "1"}
		switch r {
		case "1":
			t.Reward = 1
		case "x":
			t.Stop, t.Reward = rl.StopError, rl.MissingReward()
		}
		out = append(out, t)
	}
	return out
}

// Two groups of four: the mean of the first is 1/3 without its missing member and its deviation sqrt(2)/3.
func TestMissingRewardLeavesItsGroup(t *testing.T) {
	r2 := math.Sqrt2
	want, wantSkip := []float64{r2, -r2 / 2, 0, -r2 / 2, 1, 1, -1, -1}, []bool{2: true, 7: false}
	o := PaperObjective()
	got, skip := o.Advantages(earned(4, "1 0 x 0  1 1 0 0"), 4, nil)
	if !slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-5 }) ||
		!slices.Equal(skip, wantSkip) {
		t.Errorf("got %v without %v, want %v without %v", got, skip, want, wantSkip)
	}
	if _, skip := o.Advantages(earned(4, "1 0 0 0"), 4, nil); skip != nil {
		t.Errorf("no reward is missing: got %v, want nil", skip)
	}
}

func TestMissingRewardAffectsNoOtherGroup(t *testing.T) {
	for _, scale := range []string{"group_std", "none"} {
		for _, lone := range []string{"formula", "reward", "zero"} {
			for _, list := range [][]*rl.Trajectory{earned(2, "1 x  1 0"), earned(2, "x x  1 0"), earned(2, "x 0  x 1")} {
				o := PaperObjective()
				o.Advantage = &Advantage{Scale: scale, DDOF: 1, Eps: 1e-6, Lone: lone}
				got, skip := o.Advantages(list, 2, nil)
				for i, x := range got {
					if math.IsNaN(x) || list[i].Reward.Missing() && (!skip[i] || x != 0) {
						t.Errorf("%s %s: advantages %v without %v", scale, lone, got, skip)
						break
					}
				}
			}
		}
	}
}

func TestLoneSurvivorOfAGroupFollowsItsSetting(t *testing.T) {
	for lone, want := range map[string]float64{"formula": 0, "reward": 1 / (1 + 1e-6), "zero": 0} {
		o := PaperObjective()
		o.Advantage.Lone = lone
		if got, _ := o.Advantages(earned(2, "1 x"), 2, nil); math.Abs(got[0]-want) > 1e-9 {
			t.Errorf("lone = %q: got %v, want %v", lone, got[0], want)
		}
	}
}

func TestMissingRewardsDoNotEnterDiagnostics(t *testing.T) {
	with, episodes := GroupsOf(earned(4, "1 0 x 0  1 1 1 x  x x x x"), 4).Diagnose(), map[string]float64{}
	wantValues(t, "missing rewards", with, map[string]float64{"reward": 4.0 / 6, "zero_variance": 0.5,
		"all_right": 0.5, "all_wrong": 0, "sigma2": 1.0 / 9})
	full := GroupsOf(earned(2, "1 0  1 1  x 0"), 2)
	if got := full.Successes(); !reflect.DeepEqual(got, []int{0, 1, 1}) {
		t.Errorf("successes: got %v, want the two whole groups", got)
	}
	DescribeEpisodes(earned(4, "1 0 x 0"), episodes)
	wantValues(t, "episodes", episodes, map[string]float64{"official": 1.0 / 3, "stop_error": 0.25})
	if !EqualRewards(earned(3, "1 x 1")) || EqualRewards(earned(3, "1 x 0")) || !EqualRewards(earned(2, "x x")) {
		t.Error("a missing reward counts when rewards are compared")
	}
}

func TestReplaySkipsMissingRewards(t *testing.T) {
	list := earned(4, "x x x x  1 0 x 0")
	for _, e := range list {
		e.IDs, e.Mask, e.Logp = []int32{1, 2}, []bool{false, true}, []float32{0, -1}
		e.Messages = []rl.Message{{Role: rl.RoleAssistant, To: 2}}
	}
	r := must.Get(RolloutsOf(list))(t)
	v, err := r.Replay(PaperObjective())
	if err != nil || v["groups"] != 1 || math.Abs(v["reward"]-1.0/3) > 1e-12 ||
		math.Abs(v["spread_within"]-1.5*math.Sqrt2) > 1e-4 {
		t.Errorf("got %v, %v", v, err)
	}
}
