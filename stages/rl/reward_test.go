package rl

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"rcgrpo/internal/must"
)

// earned are episodes with these rewards, in groups of a size; "x" is one whose environment failed.
func earned(size int, rewards string) []*Trajectory {
	var out []*Trajectory
	for i, r := range strings.Fields(rewards) {
		t := &Trajectory{Task: fmt.Sprint("t", i/size), Member: i % size, Stop: StopDone, Official: r == "1"}
		switch r {
		case "1":
			t.Reward = 1
		case "x":
			t.fail(errors.New("no connection"))
		}
		out = append(out, t)
	}
	return out
}

func TestMissingRewardIsNullAndReadBackAsMissing(t *testing.T) {
	for text, want := range map[string]Reward{`{"reward":null}`: MissingReward(), `{"reward":0}`: 0,
		`{"reward":0.5}`: 0.5, `{"reward":1}`: 1} {
		type row struct {
			Reward Reward `json:"reward"`
		}
		var got row
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.Reward.Missing() != want.Missing() ||
			!want.Missing() && got.Reward != want {
			t.Errorf("%s: got %v, %v, want %v", text, got.Reward, err, want)
		}
		if back, err := json.Marshal(got); err != nil || string(back) != text {
			t.Errorf("written again: got %s, %v, want %s", back, err, text)
		}
	}
	if got := fmt.Sprint(MissingReward()); got != "missing" {
		t.Errorf("got %q, want a word", got)
	}
	raw := must.Get(json.Marshal(earned(1, "x")[0]))(t)
	must.Contain(t, string(raw), `"reward":null,"r_state":null,"r_action":null`)
}

func TestMoreThanFivePercentMissingRewardsAreAnError(t *testing.T) {
	ones := func(n int) string { return strings.Repeat("1 ", n) }
	if got, err := Rewarded(earned(1, ones(19)+"x")); err != nil || len(got) != 19 {
		t.Errorf("1 of 20: got %d, %v; want the other 19", len(got), err)
	}
	_, err := Rewarded(earned(1, ones(18)+"x"))
	must.Match(t, err, "the environment failed in 1 of 19 episodes; more than 5 % without a reward end the stage")
	must.Match(t, err, "task t18: no connection")
	if got, err := Rewarded(nil); err != nil || len(got) != 0 {
		t.Errorf("no episode: got %v, %v", got, err)
	}
}
