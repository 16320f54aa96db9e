package engine_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/enginetest"
)

func planOf(t *testing.T, text string, store *artifact.Store, o engine.PlanOptions) *engine.Plan {
	t.Helper()
	p, err := engine.NewPlan(enginetest.MustLoadPaper(t, text), store, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// makeAll makes all results of a text.
func makeAll(t *testing.T, text string, store *artifact.Store, content enginetest.Content) []string {
	t.Helper()
	return enginetest.Make(t, planOf(t, text, store, engine.PlanOptions{}), content)
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
		"a setting": {"lr     = 1e-5", "lr = 2e-5", map[string]string{"sft.warm": "run: settings.lr 1e-5 → 2e-5", "grpo.arm": waits}},
		"two defaults": {"lr     = 1e-5", "lr = 1e-5\n  epochs = 3\n  tokens {\n    high = 0.5\n  }",
			map[string]string{"sft.warm": "run: settings.epochs 1 → 3 and 1 more", "grpo.arm": waits}},
		"a setting outside the key": {"lr     = 1e-5", "lr = 1e-5\n  echo = \"hello\"", map[string]string{}},
		"a new stage": {"stage \"grpo\"", "stage \"eval\" \"e\" {\n  policy = stage.sft.warm\n  tasks = stage.tasks.t.test\n}\nstage \"grpo\"",
			map[string]string{"eval.e": "run: new"}},
		"another input": {"stage.curate.data.expert", "stage.curate.data.mixed",
			map[string]string{"sft.warm": "run: input data changed (stage.curate.data)", "grpo.arm": waits}},
	} {
		t.Run(name, func(t *testing.T) {
			store := enginetest.NewStore(t)
			makeAll(t, chain, store, enginetest.ByKey)
			got := enginetest.Causes(planOf(t, strings.Replace(chain, tc.from, tc.to, 1), store, engine.PlanOptions{}))
			if !maps.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestCauseNamesFileAndLine(t *testing.T) {
	store := enginetest.NewStore(t)
	makeAll(t, chain, store, enginetest.ByKey)
	p := planOf(t, strings.Replace(chain, "1e-5", "2e-5", 1), store, engine.PlanOptions{})
	cause := p.Nodes[slices.IndexFunc(p.Nodes, func(d *engine.Planned) bool { return d.Address == "stage.sft.warm" })].Cause
	if !strings.HasSuffix(cause.String(), "x.hcl:15)") || cause.Reason != engine.ReasonSetting {
		t.Errorf("got %s, %s, want a setting at x.hcl:15", cause.Reason, cause)
	}
	if b, err := json.Marshal(cause); err != nil || !strings.Contains(string(b), `"line":15`) {
		t.Errorf("as JSON: got %s, %v, want line 15", b, err)
	}
}

func TestVersionAndContentOfFilesAreCauses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.hcl")
	enginetest.WriteFile(t, path, chain)
	enginetest.WriteFile(t, filepath.Join(dir, "raw.csv"), "1")
	store, kinds := enginetest.NewStore(t), enginetest.PaperKinds()
	plan := func() *engine.Plan {
		x, diags := engine.Load(engine.Source{Path: path}, kinds)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		p, err := engine.NewPlan(x, store, engine.PlanOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	enginetest.Make(t, plan(), enginetest.ByAddress)
	enginetest.WriteFile(t, filepath.Join(dir, "raw.csv"), "2")
	if got, want := enginetest.Causes(plan())["model.m"], "run: settings.path: content of raw.csv changed"; got != want {
		t.Errorf("content: got %q, want %q", got, want)
	}
	// The output of the model is unchanged, so no other stage runs.
	if got, want := enginetest.Make(t, plan(), enginetest.ByAddress), []string{"stage.model.m"}; !slices.Equal(got, want) {
		t.Errorf("executed: got %v, want %v", got, want)
	}
	if got := enginetest.Causes(plan()); len(got) > 0 {
		t.Errorf("afterwards: got %v, want no work", got)
	}
	kinds.Lookup("grpo").Version = 2
	if got, want := enginetest.Causes(plan()), (map[string]string{"grpo.arm": "run: version 1 → 2"}); !maps.Equal(got, want) {
		t.Errorf("version: got %v, want %v", got, want)
	}
}

func TestChangedAndChangedBackIsUpToDate(t *testing.T) {
	store := enginetest.NewStore(t)
	makeAll(t, chain, store, enginetest.ByKey)
	makeAll(t, strings.Replace(chain, "1e-5", "2e-5", 1), store, enginetest.ByKey)
	if p := planOf(t, chain, store, engine.PlanOptions{}); p.Changes() {
		t.Errorf("got %v, want no work", enginetest.Causes(p))
	}
}

// A setting returns to an older value while an input is rebuilt: the older result is reused if the input is unchanged.
func TestOlderResultIsReusedWhenARebuiltInputIsUnchanged(t *testing.T) {
	store := enginetest.NewStore(t)
	other := strings.Replace(chain, "1e-5", "2e-5", 1)
	for _, text := range []string{chain, other, chain} {
		makeAll(t, text, store, enginetest.ByAddress)
	}
	p := planOf(t, strings.Replace(other, "tasks = stage.tasks.t.train\n}", "tasks = stage.tasks.t.train\n  ratio = 3\n}", 1), store, engine.PlanOptions{})
	got := enginetest.Causes(p)
	if got["curate.data"] != "run: settings.ratio 1 → 3" || got["sft.warm"] != "run unless unchanged: input data may change (stage.curate.data)" {
		t.Errorf("plan: got %v", got)
	}
	if got, want := enginetest.Make(t, p, enginetest.ByAddress), []string{"stage.curate.data"}; !slices.Equal(got, want) {
		t.Errorf("executed: got %v, want %v", got, want)
	}
}

func TestDamagedResultRunsAndItsReadersOnlyWhenItChanges(t *testing.T) {
	store := enginetest.NewStore(t)
	makeAll(t, chain, store, enginetest.ByKey)
	m, err := store.Last("x", "stage.sft.warm")
	if err != nil {
		t.Fatal(err)
	}
	a, err := store.Open(m, "checkpoint")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(a.Dir, 0o700), os.Remove(a.Path("out.txt"))); err != nil {
		t.Fatal(err)
	}
	got := enginetest.Causes(planOf(t, chain, store, engine.PlanOptions{}))
	if !strings.HasPrefix(got["sft.warm"], "run: its file out.txt is missing") || !strings.HasPrefix(got["grpo.arm"], "run unless unchanged") || len(got) != 2 {
		t.Errorf("got %v, want that sft.warm runs and grpo.arm may run", got)
	}
}

func TestTargetAndReplace(t *testing.T) {
	store := enginetest.NewStore(t)
	p := planOf(t, chain, store, engine.PlanOptions{Targets: []string{"curate.data"}})
	if len(p.Nodes) != 2 {
		t.Errorf("target: got %v, want the stage and its input", enginetest.Causes(p))
	}
	makeAll(t, chain, store, enginetest.ByKey)
	got := enginetest.Causes(planOf(t, chain, store, engine.PlanOptions{Replace: []string{"sft.warm"}}))
	if got["sft.warm"] != "run: asked for with -replace" || !strings.HasPrefix(got["grpo.arm"], "run unless unchanged") || len(got) != 2 {
		t.Errorf("replace: got %v, want that sft.warm runs and grpo.arm may run", got)
	}
	_, err := engine.NewPlan(enginetest.MustLoadPaper(t, chain), store, engine.PlanOptions{Targets: []string{"sft.worm"}})
	if err == nil || !strings.Contains(err.Error(), "did you mean sft.warm?") {
		t.Errorf("unknown target: got %v, want a hint", err)
	}
}

// run ⊆ executed ⊆ run ∪ run unless unchanged, with equality on the right if every output is a function of its inputs.
func TestExecutedStagesAreThoseOfThePlan(t *testing.T) {
	text := strings.Replace(paperText(t), "[1, 2, 3]", "[1]", 1)
	for how, content := range map[string]enginetest.Content{"by key": enginetest.ByKey, "by address": enginetest.ByAddress} {
		store := enginetest.NewStore(t)
		for _, m := range semantic {
			makeAll(t, text, store, content)
			p := planOf(t, strings.Replace(text, m.from, m.to, 1), store, engine.PlanOptions{})
			executed := enginetest.Make(t, p, content)
			for i, a := range executed {
				executed[i] = engine.ShortAddress(a)
			}
			wantWithin(t, m.name+", "+how, p, executed)
			if _, may := enginetest.Work(p); how == "by key" && len(executed) != len(may) {
				t.Errorf("%s: got %d executed, want %d", m.name, len(executed), len(may))
			}
		}
	}
}

// wantWithin checks that every node with verb run was executed, and no node that the plan calls up to date.
func wantWithin(t *testing.T, name string, p *engine.Plan, executed []string) {
	t.Helper()
	run, may := enginetest.Work(p)
	for _, a := range run {
		if !slices.Contains(executed, a) {
			t.Errorf("%s: %s is planned to run and did not", name, a)
		}
	}
	for _, a := range executed {
		if !slices.Contains(may, a) {
			t.Errorf("%s: %s ran and is not planned to run", name, a)
		}
	}
}

func BenchmarkPlanUpToDate(b *testing.B) {
	path := filepath.Join(b.TempDir(), "x.hcl")
	enginetest.WriteFile(b, path, enginetest.PaperText(b, paperFile))
	enginetest.WriteFile(b, filepath.Join(filepath.Dir(path), "raw.csv"), "1")
	store := enginetest.NewStore(b)
	plan := func() *engine.Plan {
		x, diags := engine.Load(engine.Source{Path: path}, enginetest.PaperKinds())
		if diags.HasErrors() {
			b.Fatal(diags)
		}
		p, err := engine.NewPlan(x, store, engine.PlanOptions{})
		if err != nil {
			b.Fatal(err)
		}
		return p
	}
	first := plan()
	enginetest.Make(b, first, enginetest.ByKey)
	for b.Loop() {
		if p := plan(); p.Changes() {
			b.Fatal("not up to date")
		}
	}
	b.ReportMetric(float64(len(first.Nodes)), "nodes")
}
