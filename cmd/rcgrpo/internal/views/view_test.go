package views

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
	"rcgrpo/stages"
	"rcgrpo/stages/rl"
)

// shown commits an artifact that fill writes and returns the output of show.
func shown(t *testing.T, typ string, set func(*View), fill func(dir string) error) (string, error) {
	t.Helper()
	store := must.Get(artifact.Open(t.TempDir()))(t)
	staging := must.Get(store.Begin(strings.Repeat("a", 64)))(t)
	dir := must.Get(staging.Dir("out"))(t)
	must.OK(t, fill(dir))
	manifest := artifact.Manifest{Experiment: "x", Address: "stage.toy.a"}
	c := must.Get(staging.Commit(manifest, map[string]string{"out": typ}))(t)
	a := must.Get(store.Open(c, "out"))(t)
	var b bytes.Buffer
	v := &View{Artifact: a, Out: &b, Width: 100, Pick: -1}
	if set != nil {
		set(v)
	}
	err := v.Print()
	text := strings.NewReplacer("\u00a0", " ", "\u202f", " ").Replace(b.String())
	if problems, checkErr := store.Check(); checkErr != nil || len(problems) > 0 {
		t.Errorf("check: %v, %v", problems, checkErr)
	}
	return text, err
}

func TestShowMetricsAsTable(t *testing.T) {
	var rows []rl.Metric
	for i := range 8 {
		rows = append(rows, rl.Metric{Update: i + 1, Values: map[string]float64{"loss": float64(7 - i), "flat": 1}})
	}
	got, err := shown(t, "metrics", nil, func(dir string) error {
		if err := artifact.WriteRows(dir, rl.TimesFile, rows[:1]); err != nil {
			return err
		}
		return artifact.WriteRows(dir, rl.MetricsFile, rows)
	})
	must.OK(t, err)
	must.Contain(t, got, "8 updates", "loss", "flat", "── times")
}

func TestShowScoresWithWilsonIntervals(t *testing.T) {
	var rows []rl.Score
	for i := range 10 {
		s := rl.Score{Task: "t", Category: "base", Set: "test", Token: "high", Official: true}
		if i < 8 {
			s.Reward = 1
		}
		rows = append(rows, s)
	}
	got := must.Get(shown(t, "scores", nil, func(dir string) error {
		return artifact.WriteRows(dir, rl.ScoresFile, rows)
	}))(t)
	// Wilson interval of 8 of 10 at 95 %: 0.490 to 0.943.
	must.Contain(t, got, "10 episodes", "80.0 %", "8/10", "49.0 to 94.3", "10/10", "all", "base", "high")

	got = must.Get(shown(t, "scores", nil, func(dir string) error {
		return errors.Join(artifact.WriteRows(dir, rl.ScoresFile, rows),
			artifact.WriteRows(dir, rl.PassesFile, rl.Passes(rows, []int{1, 5})))
	}))(t)
	must.Contain(t, got, "pass@k", "0.8", "1") // 8 of 10 succeed, so 5 always hold one that did
}

func TestShowTrajectoryAsConversation(t *testing.T) {
	trajectory := rl.Trajectory{Task: "drill_1", Category: "base", Origin: rl.OriginPolicy, Token: "low",
		Stop: rl.StopDone, Reward: 1,
		IDs: []int32{1, 2, 3, 4}, Mask: []bool{false, false, true, true}, Logp: []float32{0, 0, -0.5, -1.5},
		Messages: []rl.Message{
			{Role: "user", Turn: 0, Text: "List the files.", From: 0, To: 2},
			{Role: "assistant", Turn: 0, Text: "[ls()]", Calls: []string{"ls()"}, From: 2, To: 4},
			{Role: "tool", Turn: 0, Text: `{"files": []}`},
		}}
	other := rl.Trajectory{Task: "drill_2", Origin: rl.OriginExpert}
	show := func(set func(*View)) (string, error) {
		return shown(t, "trajectories", set, func(dir string) error {
			return artifact.WriteRows(dir, rl.TrajectoriesFile, []rl.Trajectory{other, trajectory})
		})
	}
	second := func(v *View) { v.Pick = 1 }
	got := must.Get(show(second))(t)
	must.Contain(t, got, "drill_1  base, member 0, origin policy, token low", "reward 1", "turn 1",
		"user       List the files.", "assistant  [[[ls()]", "(2 of 2 tokens sampled, mean logprob -1.000)\n           ▂▄\n",
		`tool       {"files": []}`)
	trajectory.Mask[2] = false // the second step began with a token that was given
	must.Contain(t, must.Get(show(second))(t), "\n           ·▄\n")
	trajectory.Segments = []rl.Segment{{IDs: []int32{5, 6}, Mask: []bool{false, true}, Logp: []float32{0, -3},
		Messages: []rl.Message{{Role: "user", Text: "Help me.", To: 1},
			{Role: "assistant", Text: "[help()]", From: 1, To: 2}}}}
	must.Contain(t, must.Get(show(func(v *View) { v.Task = "drill_1" }))(t), "1 trajectory", "List the files.",
		"sequence 2 of 2: its first request continues no earlier reply", "user       Help me.",
		"assistant  [[[help()]]]", "(1 of 1 tokens sampled, mean logprob -3.000)\n           ▇\n")
	pieces := func(t *rl.Trajectory) []stages.Piece {
		return []stages.Piece{{Text: "<user>" + t.Messages[0].Text, Tokens: 7}, {Text: "ls()", Tokens: 3, Mask: true}}
	}
	must.Contain(t, must.Get(show(func(v *View) { v.Pick, v.Pieces = 1, pieces }))(t),
		"10 tokens, 3 of them of the mask, in [[ ]]", "<user>List the files.[[ls()]]")
	if _, err := show(func(v *View) { v.Task = "drill_9" }); err == nil {
		t.Error("a task that is not there: got no error, want one")
	}
}

func TestShowCheckpointsSettingsAndFiles(t *testing.T) {
	got, err := shown(t, "checkpoint", nil, func(dir string) error {
		b, _ := json.Marshal(map[string]any{"hidden_size": 128})
		return errors.Join(os.WriteFile(filepath.Join(dir, "config.json"), b, 0o644),
			os.Mkdir(filepath.Join(dir, "adapter"), 0o755),
			os.WriteFile(filepath.Join(dir, "adapter", "adapter_config.json"), []byte(`{"r": 16}`), 0o644))
	})
	must.OK(t, err)
	must.Contain(t, got, "hidden_size", "128", "config.json", "19 B",
		"adapter/adapter_config.json\n  r                            16")
}

func TestLongLinesWrapAtSpaces(t *testing.T) {
	var b bytes.Buffer
	v := &View{Out: &b, Width: 31}
	v.paragraph("user", "one two three four five six")
	if got, want := b.String(), "user       one two three four\n           five six\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
