package plan_test

import (
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/internal/must"
)

// sizes is a stage of known size.
type sizes struct {
	lang.Stage
	f func(inputs map[string]lang.Size) (map[string]lang.Size, float64)
}

func (s sizes) Size(inputs map[string]lang.Size) (map[string]lang.Size, float64) { return s.f(inputs) }

// tuned is a run of 100 tasks of 10 tokens, that a fine-tuning passes over twice, three trainings of RL at 4,000 passes
// each behind it, and an evaluation that reads the first of them.
func tuned(t *testing.T, cpus int) *plan.Plan {
	t.Helper()
	x := enginetest.MustLoadPaper(t, `
experiment {}
stage "model" "m" {
  path = file("raw.csv")
}
stage "tasks" "t" {
  source = "bfcl"
}
stage "curate" "d" {
  tasks = stage.tasks.t.train
}
stage "sft" "warm" {
  policy = stage.model.m
  data   = stage.curate.d.expert
}
stage "grpo" "arm" {
  for_each = toset(["a", "b", "c"])
  policy   = stage.sft.warm
  tasks    = stage.tasks.t.train
}
stage "eval" "e" {
  policy = stage.grpo.arm["a"]
  tasks  = stage.tasks.t.test
}
`)
	x.Site = &lang.Site{CPUs: cpus, Executor: "local"}
	tasks := lang.Size{Rows: 100, Tokens: 1000}
	byKind := map[string]func(map[string]lang.Size) (map[string]lang.Size, float64){
		"tasks": func(map[string]lang.Size) (map[string]lang.Size, float64) {
			return map[string]lang.Size{"train": tasks, "test": tasks}, 0
		},
		"curate": func(in map[string]lang.Size) (map[string]lang.Size, float64) {
			return map[string]lang.Size{"expert": in["tasks"]}, 0
		},
		"sft":  func(in map[string]lang.Size) (map[string]lang.Size, float64) { return nil, 2 * in["data"].Tokens },
		"grpo": func(in map[string]lang.Size) (map[string]lang.Size, float64) { return nil, 400 * in["tasks"].PerRow() },
		"eval": func(in map[string]lang.Size) (map[string]lang.Size, float64) { return nil, in["tasks"].Tokens },
	}
	for _, n := range x.Nodes {
		if f := byKind[n.Kind.Name]; f != nil {
			n.Stage = sizes{n.Stage, f}
		}
	}
	return must.Get(plan.New(x, enginetest.NewStore(t), plan.Options{}))(t)
}

func TestTheEndOfARunIsEstimatedFromItsFirstUpdates(t *testing.T) {
	tenth := map[string]plan.Spent{"stage.sft.warm": {Share: 0.1, Time: 2 * time.Second}}
	const warm, a, b, c = "stage.sft.warm", `stage.grpo.arm["a"]`, `stage.grpo.arm["b"]`, `stage.grpo.arm["c"]`
	ended := plan.Spent{Ended: true}
	for name, tc := range map[string]struct {
		cpus  int
		spent map[string]plan.Spent
		want  float64 // seconds
	}{
		"nothing has progressed": {1, map[string]plan.Spent{"stage.tasks.t": ended}, 0},
		// 2,000 passes take 20 s. The arms have 4,000 each, the evaluation 1,000.
		"a tenth of the first training":    {1, tenth, 18 + 120 + 10},
		"two at once: a and b, c beside e": {2, tenth, 18 + 40 + 40},
		// The arms are slower than the fine-tuning. The evaluation counts by all: 30 + 20 s for 1,000 + 2,000 passes.
		"a kind counts by its own pace": {1, map[string]plan.Spent{
			warm: {Share: 1, Time: 20 * time.Second, Ended: true},
			a:    {Share: 0.25, Time: 30 * time.Second}}, 90 + 240 + 50.0/3},
		"the rest is an evaluation": {1, map[string]plan.Spent{warm: {Share: 1, Time: 20 * time.Second, Ended: true},
			a: ended, b: ended, c: ended}, 10},
	} {
		p := tuned(t, tc.cpus)
		r := plan.NewRest(t.Context(), p)
		for _, n := range p.Nodes {
			if slices.Contains([]string{"model", "tasks", "curate"}, n.Kind.Name) && len(tc.spent) > 0 {
				tc.spent = maps.Clone(tc.spent)
				tc.spent[n.Address] = ended
			}
		}
		if got := r.Left(tc.spent).Seconds(); math.Abs(got-tc.want) > 0.1 {
			t.Errorf("%s: got %.1f s, want %.1f s", name, got, tc.want)
		}
	}
}

func TestARunOfStagesWithoutASizeHasNoEstimate(t *testing.T) {
	p := planOf(t, chain, enginetest.NewStore(t), plan.Options{})
	spent := map[string]plan.Spent{"stage.sft.warm": {Share: 0.5, Time: time.Minute}}
	if left := plan.NewRest(t.Context(), p).Left(spent); left != 0 {
		t.Errorf("got %v, want 0", left)
	}
}
