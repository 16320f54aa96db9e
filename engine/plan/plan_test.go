package plan_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/plan"
	"rcgrpo/internal/must"
)

func planOf(t *testing.T, text string, store *artifact.Store, o plan.Options) *plan.Plan {
	t.Helper()
	p := must.Get(plan.New(enginetest.MustLoadPaper(t, text), store, o))(t)
	return p
}

// makeAll makes all results of a text.
func makeAll(t *testing.T, text string, store *artifact.Store, content enginetest.Content) []string {
	t.Helper()
	return enginetest.Make(t, planOf(t, text, store, plan.Options{}), content)
}

const chain = `
experiment {}
stage "tasks" "t" {
  source = "drills"
}
stage "model" "m" {
  path = file("raw.csv")
}
stage "curate" "data" {
  tasks = stage.tasks.t.train
}
stage "sft" "warm" {
  policy = stage.model.m
  data   = stage.curate.data.expert
  lr     = 1e-5
}
stage "grpo" "arm" {
  policy = stage.sft.warm
  tasks  = stage.tasks.t.train
}
`

func TestPlanNamesTheSmallestCause(t *testing.T) {
	const waits = "run unless unchanged: input policy may change (stage.sft.warm)"
	for name, tc := range map[string]struct {
		from, to string
		want     map[string]string
	}{
		"nothing":   {"", "", map[string]string{}},
		"a comment": {"lr     = 1e-5", "lr = 0.00001 # as in the paper", map[string]string{}},
		"a setting": {"lr     = 1e-5", "lr = 2e-5",
			map[string]string{"sft.warm": "run: settings.lr 1e-5 → 2e-5", "grpo.arm": waits}},
		"two defaults": {"lr     = 1e-5", "lr = 1e-5\n  epochs = 3\n  tokens {\n    high = 0.5\n  }",
			map[string]string{"sft.warm": "run: settings.epochs 1 → 3 and 1 more", "grpo.arm": waits}},
		"a setting outside the key": {"lr     = 1e-5", "lr = 1e-5\n  echo = \"hello\"", map[string]string{}},
		"the value of a newer setting that reproduces older results": {"lr     = 1e-5", "lr = 1e-5\n  newer = 0",
			map[string]string{}},
		"another value of a newer setting": {"lr     = 1e-5", "lr = 1e-5\n  newer = 2",
			map[string]string{"sft.warm": "run: settings.newer (none) → 2", "grpo.arm": waits}},
		"a new stage": {"stage \"grpo\"",
			"stage \"eval\" \"e\" {\n  policy = stage.sft.warm\n  tasks = stage.tasks.t.test\n}\nstage \"grpo\"",
			map[string]string{"eval.e": "run: new"}},
		"another input": {"stage.curate.data.expert", "stage.curate.data.mixed",
			map[string]string{"sft.warm": "run: input data changed (stage.curate.data)", "grpo.arm": waits}},
	} {
		t.Run(name, func(t *testing.T) {
			store := enginetest.NewStore(t)
			makeAll(t, chain, store, enginetest.ByKey)
			got := enginetest.Causes(planOf(t, strings.Replace(chain, tc.from, tc.to, 1), store, plan.Options{}))
			if !maps.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestCauseNamesFileAndLine(t *testing.T) {
	store := enginetest.NewStore(t)
	makeAll(t, chain, store, enginetest.ByKey)
	p := planOf(t, strings.Replace(chain, "1e-5", "2e-5", 1), store, plan.Options{})
	i := slices.IndexFunc(p.Nodes, func(d *plan.Planned) bool { return d.Address == "stage.sft.warm" })
	cause := p.Nodes[i].Cause
	if !strings.HasSuffix(cause.String(), "x.hcl:15)") || cause.Reason != plan.ReasonSetting {
		t.Errorf("got %s, %s, want a setting at x.hcl:15", cause.Reason, cause)
	}
	if b, err := json.Marshal(cause); err != nil || !strings.Contains(string(b), `"line":15`) {
		t.Errorf("as JSON: got %s, %v, want line 15", b, err)
	}
}

// A setting returns to an older value while an input is rebuilt: the older result is reused if the input is
// unchanged.
func TestOlderResultIsReusedWhenARebuiltInputIsUnchanged(t *testing.T) {
	store := enginetest.NewStore(t)
	other := strings.Replace(chain, "1e-5", "2e-5", 1)
	for _, text := range []string{chain, other, chain} {
		makeAll(t, text, store, enginetest.ByAddress)
	}
	last := strings.Replace(other, "\"data\" {\n", "\"data\" {\n  ratio = 3\n", 1)
	p := planOf(t, last, store, plan.Options{})
	got := enginetest.Causes(p)
	if got["curate.data"] != "run: settings.ratio 1 → 3" ||
		got["sft.warm"] != "run unless unchanged: input data may change (stage.curate.data)" {
		t.Errorf("plan: got %v", got)
	}
	if got := enginetest.Make(t, p, enginetest.ByAddress); !slices.Equal(got, []string{"stage.curate.data"}) {
		t.Errorf("executed: got %v, want stage.curate.data alone", got)
	}
}

func TestTargetSelectsStagesAndReplaceForcesThem(t *testing.T) {
	store := enginetest.NewStore(t)
	p := planOf(t, chain, store, plan.Options{Targets: []string{"curate.data"}})
	if len(p.Nodes) != 2 {
		t.Errorf("target: got %v, want the stage and its input", enginetest.Causes(p))
	}
	makeAll(t, chain, store, enginetest.ByKey)
	p = planOf(t, chain, store, plan.Options{Replace: []string{"sft.warm"}})
	got := enginetest.Causes(p)
	waits := strings.HasPrefix(got["grpo.arm"], "run unless unchanged")
	if got["sft.warm"] != "run: requested with --replace" || !waits || len(got) != 2 {
		t.Errorf("replace: got %v, want that sft.warm runs and grpo.arm may run", got)
	}
	_, err := plan.New(p.Experiment, store, plan.Options{Targets: []string{"sft.worm"}})
	if err == nil || !strings.Contains(err.Error(), "did you mean sft.warm?") {
		t.Errorf("unknown target: got %v, want a hint", err)
	}
}
