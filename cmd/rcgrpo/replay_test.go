package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/objective"
)

// rolloutsIn writes two updates of two groups of four into a folder.
func rolloutsIn(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	var rows []*rl.Trajectory
	for u := range 2 {
		for g, rewards := range [][]float64{{1, 0, 0, 1}, {1, 1, 1, 0}} {
			for i, reward := range rewards {
				rows = append(rows, &rl.Trajectory{Task: string(rune('a' + g)), Update: u + 1, Member: i, Reward: rl.Reward(reward),
					IDs: []int32{0, 1}, Mask: []bool{false, true}, Logp: []float32{0, -1}, Messages: []rl.Message{{To: 2}}})
			}
		}
	}
	must.OK(t, artifact.WriteRows(dir, rl.TrajectoriesFile, rows))
	return dir
}

// replayed returns the output of replay and its exit code.
func replayed(args ...string) (text string, code int) {
	code, stdout, stderr := callLine("", append([]string{"replay"}, args...)...)
	return strings.Join(strings.Fields(stdout+stderr), " "), code
}

func TestReplayShowsStoredRolloutsUnderOtherSettings(t *testing.T) {
	dir := rolloutsIn(t)
	// Pairs: (1,0), (0,1), (1,1), (1,0). With eps small, ddof 0 gives advantages of 1 and a spread of 2, ddof 1 √2.
	for _, tc := range []struct{ args, want []string }{
		{[]string{dir, "--profile", "trl", "--group", "2"}, []string{"16 trajectories in 2 updates, groups of 4",
			"paper trl", "groups 2 4 *", "zero_variance 0 0.25 *", "spread_within_mixed 2.155 1.414 *",
			"2 0.417 0.333 0.083", "1 4 2.155 1.866 0.000 0.2188 2.155", "4 1 2.732 2.366"}},
		{[]string{dir, "--set", "advantage.scale=none"}, []string{"paper advantage.scale=none",
			"spread_within_mixed 2.155 1 *", "zero_variance 0 0"}},
		{[]string{filepath.Join(dir, rl.TrajectoriesFile), "--profile", "all"},
			[]string{"paper verl trl openrlhf dr_grpo dapo gspo"}},
		{[]string{dir, "--json"}, []string{`"columns": [ { "name": "paper", "values": {`, `"zero_variance": 0`,
			`"batch_sizes": [ { "groups": 1, "batches": 4, "spread_batch": [ 2.15`}},
	} {
		got, code := replayed(tc.args...)
		if must.Contain(t, got, tc.want...); code != exitDone {
			t.Errorf("%q: got exit code %d", tc.args, code)
		}
	}
}

func TestReplayRejectsWrongArguments(t *testing.T) {
	dir := rolloutsIn(t)
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"a larger group":    {[]string{dir, "--group", "5"}, "2 to 4"},
		"no such profile":   {[]string{dir, "--profile", "ppo"}, `no profile "ppo"`},
		"no such setting":   {[]string{dir, "--set", "lr=1"}, "no setting lr"},
		"no value":          {[]string{dir, "--set", "lr"}, "want SETTING=VALUE"},
		"an empty folder":   {[]string{t.TempDir()}, "trajectories"},
		"nothing":           {nil, "want a file or folder"},
		"no such file":      {[]string{filepath.Join(dir, "none")}, "there is no file or folder"},
		"no such stage":     {[]string{"rc-grpo.arm.trajectories", filepath.Join(dir, "none.hcl")}, "none.hcl"},
		"a file of no rows": {[]string{emptyFile(t)}, "no trajectories"},
	} {
		if got, code := replayed(tc.args...); code == exitDone || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got code %d, %q, want %q", name, code, got, tc.want)
		}
	}
}

func emptyFile(t *testing.T) string {
	dir := t.TempDir()
	must.OK(t, artifact.WriteRows(dir, rl.TrajectoriesFile, []*rl.Trajectory{}))
	return filepath.Join(dir, rl.TrajectoriesFile)
}

func TestReplayStartsFromTheSettingsOfTheTraining(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.hcl")
	text := `
experiment {}
stage "tasks" "t" {
  source = "drills"
}
stage "model" "m" {
  path = dir("` + fixtures.Dir(t, "hf/models/qwen2-tiny") + `")
}
stage "rc-grpo" "arm" {
  policy  = stage.model.m.checkpoint
  tasks   = stage.tasks.t.train
  profile = "dr_grpo"
  loss {
    scale = 64
  }
  reward_term "length" {
    weight = -0.01
  }
  tokens {
    baseline = "token"
  }
}
`
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
	x, diags := lang.Load(lang.Source{Path: path}, kinds())
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	for _, n := range x.Nodes {
		r := &replaying{trained: objective.PaperObjective()}
		r.readSettings(x, n.Address)
		trains := n.Kind.Name == "rc-grpo"
		if r.known != trains || trains && (r.trained.Loss.Scale != 64 || r.trained.Advantage.Scale != "none" ||
			r.trained.KL.Beta != 0 || r.trained.Advantage.Baseline != objective.BaselineToken ||
			len(r.trained.RewardTerms) != 1 || r.trained.RewardTerms[0].Weight != -0.01) {
			t.Errorf("%s: known %v, %+v, terms %v", n.Address, r.known, r.trained.Loss, r.trained.RewardTerms)
		}
	}
}
