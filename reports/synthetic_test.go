package reports

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"rcgrpo/bfcl"
	"rcgrpo/engine/artifact"
	"rcgrpo/reports/page"
	"rcgrpo/stages/rl"
)

// synthetic is a study of invented numbers: a base and an SFT policy without training curve, four arms with one, some
// seeds, two sets of tasks in families. It depends on its arguments only.
func synthetic(seeds, tasks, updates int) *Study {
	s := &Study{
		Name: "drills", Question: "Do reward tokens keep groups informative once the policy is peaked?",
		Expect: "RCTP-FT + RC-GRPO above the other arms; fewest groups without variance in both RC arms",
		Compare: []Comparison{
			{Label: "the paper's method", Pairs: [][]string{{"SFT + GRPO", "RCTP-FT + RC-GRPO"}}, Expect: "higher"},
			{Label: "the paper's method", Pairs: [][]string{{"SFT + GRPO", "RCTP-FT + RC-GRPO"}}, Outcome: "zero_variance",
				Expect: "lower"},
			{Label: "reward conditioning", Pairs: [][]string{{"RCTP-FT + GRPO", "RCTP-FT + RC-GRPO"},
				{"SFT + GRPO", "SFT + RC-GRPO"}}},
			{Label: "initialisation", Pairs: [][]string{{"SFT + RC-GRPO", "RCTP-FT + RC-GRPO"},
				{"SFT + GRPO", "RCTP-FT + GRPO"}}},
			{Label: "RL", Pairs: [][]string{{"RCTP-FT", "RCTP-FT + RC-GRPO"}}, Outcome: OutcomeSampled},
		},
		Windows: Windows{Early: max(1, updates/5), Late: max(1, updates/5)},
	}
	arms := []struct {
		label          string
		skill, gap     float64
		trained, token bool
	}{
		{"SFT + GRPO", .70, 0, true, false},
		{"SFT + RC-GRPO", .64, .01, true, true},
		{"RCTP-FT + GRPO", .67, .02, true, true},
		{"RCTP-FT + RC-GRPO", .74, .04, true, true},
		{"RCTP-FT", .61, .18, false, true},
		{"Base", .45, 0, false, false},
	}
	for i, a := range arms {
		arm := Arm{Label: a.label, Design: designNamed(a.label)}
		for n := range seeds {
			seed := int64(n + 1)
			run := SeedRun{Seed: &seed}
			for _, set := range []string{"test", "test_new"} {
				drop := map[string]float64{"test": 0, "test_new": .25}[set]
				luck := rand.New(rand.NewPCG(uint64(seed), 1)) // the same tasks for every arm
				own := rand.New(rand.NewPCG(uint64(seed), uint64(10+i)))
				for k := range tasks {
					difficulty := luck.Float64()
					row := rl.Score{Task: fmt.Sprintf("drill_%d_%05d", seed, k), Family: fmt.Sprintf("family %02d", k%40),
						Category: []string{"base", "long_context", "miss_func", "miss_param"}[k%4], Set: set, Greedy: true,
						Stop: rl.StopDone}
					score := func(p float64) {
						row.Reward = 0
						if p+.15*own.NormFloat64() > difficulty {
							row.Reward = 1
						}
						row.Official = row.Reward == 1 || own.Float64() < .03
						run.Rows = append(run.Rows,
							Row{row, fmt.Sprintf("stage.eval.arm[%q]@%d.scores", a.label, seed)})
					}
					if a.token {
						row.Token = rl.TokenLow
						score(a.skill - a.gap - drop)
						row.Token = rl.TokenHigh
					}
					score(a.skill - drop)
					row.Greedy = false
					for row.Sample = range 4 {
						score(a.skill - .05 - drop)
					}
					row.Greedy, row.Sample = true, 0
				}
			}
			if a.trained {
				run.CurveFrom = fmt.Sprintf("stage.rc-grpo.arm[%d]@%d.metrics", i, seed)
				run.Curve = syntheticCurve(rand.New(rand.NewPCG(uint64(seed), uint64(100+i))), a.skill, i, a.token, updates)
			}
			arm.Runs = append(arm.Runs, run)
			s.Stages = append(s.Stages, Stage{Address: fmt.Sprintf("stage.rc-grpo.arm[%q]@%d", a.label, seed),
				Kind: "rc-grpo",
				Settings: map[string]string{"lr": "0.0003", "group": "5", "kl.beta": "0.1", "clip.low": "0.2",
					"clip.high": "0.2", "tokens.high": "0.5"},
				Phases: map[string]float64{"rollout": 40, "update": 20},
				Manifest: &artifact.Manifest{Started: time.Date(2026, 1, 1, 0, i*3+20*n, 0, 0, time.UTC),
					Seconds: 61.5 + float64(n), Device: "cpu", CPUSeconds: 58, PeakBytes: 412_000_000, Revision: "b0976090000000",
					Key: fmt.Sprintf("%064d", i*10+n), Outputs: map[string]artifact.Output{
						"checkpoint": {Digest: fmt.Sprintf("%064d", 7*i+n)}, "metrics": {Digest: fmt.Sprintf("%064d", 11*i+n)}}}})
		}
		s.Arms = append(s.Arms, arm)
		talks := &page.Transcripts{Label: a.label}
		for n := range 60 {
			talks.Add(transcript(syntheticEpisode(n, a.token), "seed 1"))
		}
		s.Transcripts = append(s.Transcripts, talks)
	}
	for _, name := range []string{"train", "test", "test_new"} {
		d := TaskSet{Label: "tasks.drills " + name, Stage: "tasks.drills"}
		for k := range tasks {
			family := k % 40
			if name == "train" {
				family += 40
			}
			d.Tasks = append(d.Tasks, &bfcl.Task{ID: fmt.Sprintf("%s_%d", name, k), Category: bfcl.Categories[k%4],
				Family: fmt.Sprint(family)})
		}
		s.TaskSets = append(s.TaskSets, d)
	}
	return s
}

func syntheticEpisode(n int, token bool) *rl.Trajectory {
	t := &rl.Trajectory{Task: fmt.Sprintf("drill_1_%05d", n), Category: "base", Origin: rl.OriginPolicy,
		Stop: rl.StopDone, Reward: rl.Reward(n % 2), RState: 1, Official: n%2 == 1, Calls: 2,
		Messages: []rl.Message{
			{Role: rl.RoleUser, Text: fmt.Sprintf("Open the folder temp_%d, and list what is in it, hidden files included.",
				n), From: 0, To: 4},
			{Role: rl.RoleAssistant, Text: fmt.Sprintf("[cd(folder='temp_%d'), ls(a=True)]", n),
				Calls: []string{fmt.Sprintf("cd(folder='temp_%d')", n), "ls(a=True)"}, From: 4, To: 8},
			{Role: rl.RoleTool, Text: "x", Several: []string{fmt.Sprintf(`{"current_working_directory": "temp_%d"}`, n),
				`{"error": "ls: no such folder"}`}, From: 8, To: 10},
			{Role: rl.RoleUser, Turn: 1, Text: "Thank you. What is the time in Berlin?", From: 10, To: 12},
			{Role: rl.RoleAssistant, Turn: 1, Text: "I have no clock.", From: 12, To: 14},
		},
		Mask: []bool{false, false, false, false, false, true, true, true, false, false, false, false, false, true},
		Logp: []float32{0, 0, 0, 0, 0, -0.1, -0.02, -float32(n) / 20, 0, 0, 0, 0, 0, -2}}
	if token {
		t.Token = rl.TokenHigh
	}
	return t
}

func syntheticCurve(r *rand.Rand, skill float64, arm int, token bool, updates int) []rl.Metric {
	var curve []rl.Metric
	for u := 1; u <= updates; u++ {
		t := float64(u) / float64(updates)
		noise := func(size float64) float64 { return size * r.NormFloat64() }
		right := math.Max(0, .15+.1*float64(arm%2)+.1*t+noise(.05))
		wrong := math.Max(0, .35-.05*float64(arm)-.1*t+noise(.05))
		v := map[string]float64{
			"reward": math.Min(1, skill-.2+.2*t+noise(.06)), "all_right": right, "all_wrong": wrong, "zero_variance": right +
				wrong,
			"spread_within": 1.2 - .3*t*float64(arm%2) + noise(.1), "spread_batch": 3.6 + noise(.2),
			"spread_batch_ddof1": 3.2 + noise(.2),
			"sigma2":             .09 + noise(.01), "mean_abs_advantage": .5 + noise(.04),
			"effective_sample_size": 31 + noise(3),
			"entropy":               .16 - .1*t*float64(arm)/3 + noise(.01), "kl": .03 * t * (1 + noise(.2)),
			"kl_k1": .03 * t * (1 + noise(.5)),
			"kl_k3": .03 * t * (1 + noise(.2)), "kl_exact": .03 * t, "grad_norm": math.Exp(-1 + noise(.3)),
			"clip_fraction": math.Abs(noise(.02)),
			"calls":         5 + noise(.5), "tool_errors": math.Abs(noise(.1)), "sampled_tokens": 140 + noise(8), "turns": 2,
			"log_ratio_p05": -.1 + noise(.01), "log_ratio_p50": noise(.01), "log_ratio_p95": .1 + noise(.01),
			"stop_turn_limit": math.Abs(noise(.01)), "stop_length": math.Abs(noise(.01)), "stop_step": math.Abs(noise(.01)),
		}
		for k := range 6 {
			v[fmt.Sprintf("successes_%d", k)] = [...]float64{wrong, 0.1, 0.15, 0.2, 0.55 - wrong - right, right}[k]
		}
		if token {
			v["reward_high"], v["reward_low"] = v["reward"]+.05*(1-t), v["reward"]-.05*(1-t)
			v["token_gap"] = v["reward_high"] - v["reward_low"] + noise(.03)
			v["prop2_bound"] = .2 * v["token_gap"] * v["token_gap"]
			v["prop2_excess"] = v["sigma2"] - .2*(v["token_gap"]*v["token_gap"]-.03*.03)
		}
		if u == 1 {
			v["forecast_zero_variance"] = v["zero_variance"] + noise(.06)
			v["forecast_low"], v["forecast_high"] = math.Max(0, v["forecast_zero_variance"]-.13), v["forecast_zero_variance"]+.13
		}
		curve = append(curve, rl.Metric{Update: u, Values: v})
	}
	return curve
}
