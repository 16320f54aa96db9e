package stages

import (
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
)

const drilled = `
stage "model" "base" {
  seed = 0
  corpus = [stage.curate.experts.expert]
  architecture {
    family = "qwen2"
    hidden = 8
    layers = 1
    heads = 1
    kv_heads = 1
    mlp = 8
    rope_base = 1000
    context = 512
  }
}
stage "tasks" "drills" {
  source = "drills"
}
stage "curate" "experts" {
  tasks = stage.tasks.drills.train
}
`

// said loads stages after a base and its tasks, and returns the diagnostic of Load and whether it is an error.
func said(t *testing.T, text string) (what string, fails bool) {
	t.Helper()
	_, diags := enginetest.Load(t, lang.Registry(Kinds()), drilled+text)
	for _, d := range diags {
		fails = fails || d.Severity == hcl.DiagError
	}
	return enginetest.Mistakes(diags), fails
}

// 720 failures from 720 single rollouts: one success would fail the stage after hours of sampling.
func TestPlanReportsRolloutsWithTooFewFailures(t *testing.T) {
	rollouts := func(names map[string]string) string {
		text := ""
		for name, samples := range names {
			text += "stage \"rollout\" \"" + name + "\" {\npolicy = stage.model.base.checkpoint\ntasks = " +
				"stage.tasks.drills.train\n" + samples + "\n}\n"
		}
		return text
	}
	curation := func(body string) string {
		return "stage \"curate\" \"data\" {\ntasks = stage.tasks.drills.train\n" + body + "\n}\n"
	}
	one := "failures = [stage.rollout.a.trajectories]\n"
	for name, tc := range map[string]struct {
		rollouts map[string]string
		curation string
		want     string // "" nothing
		fails    bool
	}{
		"as many as are wanted": {map[string]string{"a": ""}, one,
			"Too few rollouts: ratio = 1 requires that many real failures per task, and the stages in failures sample 1 " +
				"rollout per task: this stage fails if one of them succeeds", true},
		"fewer than are wanted": {map[string]string{"a": "samples = 2"}, one + "ratio = 3",
			"ratio = 3 requires that many real failures per task, and the stages in failures sample 2 rollouts per task", true},
		"hardly more": {map[string]string{"a": "samples = 4"}, one + "ratio = 3",
			"Barely enough rollouts: ratio = 3 requires that many real failures per task, and the stages in failures sample " +
				"4 rollouts per task: this stage fails if more than 25 % of them succeed", false},
		"twice as many": {map[string]string{"a": "samples = 2"}, one, "", false},
		"of several stages": {map[string]string{"a": "", "b": ""},
			"failures = [stage.rollout.a.trajectories, stage.rollout.b.trajectories]\n", "", false},
		"spoilt experts fill the gap": {map[string]string{"a": ""}, one + "spoilt = 0.5", "", false},
		"a small ratio":               {map[string]string{"a": ""}, one + "ratio = 0.5", "", false},
		"no failures":                 {nil, "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			got, fails := said(t, rollouts(tc.rollouts)+curation(tc.curation))
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) || fails != tc.fails {
				t.Errorf("got %q (error: %v), want %q (error: %v)", got, fails, tc.want, tc.fails)
			}
		})
	}
}

func TestEvaluatingBestOnItsSelectionTasksIsAWarning(t *testing.T) {
	const arm = `
stage "grpo" "arm" {
  policy = stage.model.base.checkpoint
  tasks  = [stage.tasks.drills.train]
  evaluate {
    tasks = [stage.tasks.drills.test]
    every = 10
  }
}
stage "sft" "after" {
  policy = stage.grpo.arm.best
  data   = [stage.curate.experts.expert]
}
stage "eval" "arm" {
  policy = POLICY
  tasks  = [TASKS]
}
`
	for name, tc := range map[string]struct{ policy, tasks, want string }{
		"best on its own tasks": {"stage.grpo.arm.best", "stage.tasks.drills.test",
			"The port best of stage.grpo.arm holds the policy with the highest reward on stage.tasks.drills.test"},
		"among others": {"stage.grpo.arm.best", "stage.tasks.drills.test_new, stage.tasks.drills.test",
			"Evaluated on the tasks that chose the policy"},
		"a descendant": {"stage.sft.after.checkpoint", "stage.tasks.drills.test",
			"Evaluated on the tasks that chose the policy"},
		"best on other tasks":          {"stage.grpo.arm.best", "stage.tasks.drills.test_new", ""},
		"the last one on these tasks":  {"stage.grpo.arm.checkpoint", "stage.tasks.drills.test", ""},
		"what the training began with": {"stage.model.base.checkpoint", "stage.tasks.drills.test", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, fails := said(t, strings.NewReplacer("POLICY", tc.policy, "TASKS", tc.tasks).Replace(arm))
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) || fails || strings.Count(got, "\n") > 0 {
				t.Errorf("got %q (error: %v), want a warning that says %q", got, fails, tc.want)
			}
		})
	}
}
