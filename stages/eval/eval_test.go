package eval

import (
	"strings"
	"testing"

	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/stages/rl"
)

// mistakes are those of an eval stage with this body.
func mistakes(t *testing.T, body string) string {
	t.Helper()
	_, diags := enginetest.Load(t, lang.Registry{Kind(),
		enginetest.Given(map[string]string{"checkpoint": "checkpoint", "tasks": "tasks"})},
		"stage \"given\" \"g\" {}\nstage \"eval\" \"s\" {\npolicy = stage.given.g.checkpoint\ntasks = "+
			"stage.given.g.tasks\n"+body+"\n}\n")
	return enginetest.Mistakes(diags)
}

func TestValuesOutOfRangeAreRefused(t *testing.T) {
	for body, want := range map[string]string{
		"":                 "",
		"temperature = -1": "got -1",
		"samples = 2":      "2 samples at temperature 0",
		"top_p = 1.5":      "at most 1; got 1.5",
		"samples = 0":      "0 samples",
		"samples = 4\ntemperature = 1\nk = [1, 4]": "",
		"samples = 4\ntemperature = 1\nk = [1, 5]": "from 4 episodes of a task, so each k lies between 1 and that; got 5",
		"k = [0]":         "got 0",
		"token = \"top\"": "\"checkpoint\", \"none\", \"high\", \"low\"",
	} {
		got := mistakes(t, body)
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want it to say %q", body, got, want)
		}
	}
}

func TestEpisodesWithoutARewardHaveNoScore(t *testing.T) {
	got := (&settings{}).scores([]*rl.Trajectory{{Task: "a", Reward: 1},
		{Task: "b", Reward: rl.MissingReward(), Stop: rl.StopError}, {Task: "c"}}, []string{"x", "y", "z"})
	if len(got) != 2 || got[0].Task != "a" || got[0].Reward != 1 || got[0].Set != "x" || got[1].Task != "c" ||
		got[1].Reward != 0 || got[1].Set != "z" {
		t.Errorf("got %+v, want the rows of a and c", got)
	}
}
