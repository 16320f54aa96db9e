package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcgrpo/engine/artifact"
)

// perform executes a plan with invented contents: content(n, port) for each node without a result of its key. It
// returns the addresses that were executed.
func perform(t *testing.T, p *Plan, content func(n *Node, key, port string) string) []string {
	t.Helper()
	made := map[*Node]*artifact.Manifest{}
	var executed []string
	for _, d := range p.Nodes {
		key, parts, ok := Key(d.Node, func(from *Node, port string) (string, bool) {
			o, ok := made[from].Outputs[port]
			return o.Digest, ok
		})
		if !ok {
			t.Fatalf("%s: an input is missing", d.Address)
		}
		m, err := p.Store.Lookup(key)
		if err != nil || d.Force {
			var damage *artifact.DamageError
			if err != nil && !errors.Is(err, artifact.ErrNotFound) && !errors.As(err, &damage) {
				t.Fatal(err)
			}
			m = commit(t, p, d.Node, key, parts, content)
			executed = append(executed, d.Address)
		}
		if err := p.Store.Remember(p.Experiment.Name, d.Address, key); err != nil {
			t.Fatal(err)
		}
		made[d.Node] = m
	}
	return executed
}

func commit(t *testing.T, p *Plan, n *Node, key string, parts artifact.Parts, content func(n *Node, key, port string) string) *artifact.Manifest {
	t.Helper()
	staging, err := p.Store.Begin(key)
	if err != nil {
		t.Fatal(err)
	}
	for port := range n.Outputs {
		dir, err := staging.Dir(port)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, "out.txt"), content(n, key, port))
	}
	m, err := staging.Commit(artifact.Manifest{
		Key: key, Kind: n.Kind.Name, Version: n.Kind.Version, Experiment: p.Experiment.Name, Address: n.Address, Parts: parts, Seconds: 2,
	}, n.Outputs)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// changing returns different content for every key; constant always the same.
func changing(_ *Node, key, port string) string { return key + port }
func constant(n *Node, _, port string) string   { return n.Address + port }

func planOf(t *testing.T, text string, store *artifact.Store, o PlanOptions) *Plan {
	t.Helper()
	p, err := NewPlan(mustLoad(t, text), store, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newStore(t *testing.T) *artifact.Store {
	t.Helper()
	store, err := artifact.Open(filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// verdicts maps addresses to "verb: cause", without nodes that are up to date.
func verdicts(p *Plan) map[string]string {
	out := map[string]string{}
	for _, d := range p.Nodes {
		if d.Verb != UpToDate {
			out[ShortAddress(d.Address)] = string(d.Verb) + ": " + d.Cause.Text
		}
	}
	return out
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
	for name, tc := range map[string]struct {
		from, to string
		want     map[string]string
	}{
		"nothing":   {"", "", map[string]string{}},
		"a comment": {"lr     = 1e-5", "lr = 0.00001 # as in the paper", map[string]string{}},
		"a setting": {"lr     = 1e-5", "lr = 2e-5", map[string]string{
			"sft.warm": "run: settings.lr 1e-5 → 2e-5",
			"grpo.arm": "run unless unchanged: input policy may change (stage.sft.warm)",
		}},
		"a default replaced": {"lr     = 1e-5", "lr = 1e-5\n  epochs = 3\n  tokens {\n    high = 0.5\n  }",
			map[string]string{
				"sft.warm": "run: settings.epochs 1 → 3 and 1 more",
				"grpo.arm": "run unless unchanged: input policy may change (stage.sft.warm)",
			}},
		"a setting outside the key": {"lr     = 1e-5", "lr = 1e-5\n  echo = \"hello\"", map[string]string{}},
		"a new stage": {"stage \"grpo\"", "stage \"eval\" \"e\" {\n  policy = stage.sft.warm\n  tasks = " +
			"stage.tasks.t.test\n}\nstage \"grpo\"", map[string]string{
			"eval.e": "run: new",
		}},
		"another input": {"stage.curate.data.expert", "stage.curate.data.mixed", map[string]string{
			"sft.warm": "run: input data changed (stage.curate.data)",
			"grpo.arm": "run unless unchanged: input policy may change (stage.sft.warm)",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t)
			perform(t, planOf(t, chain, store, PlanOptions{}), changing)
			p := planOf(t, strings.Replace(chain, tc.from, tc.to, 1), store, PlanOptions{})
			got := verdicts(p)
			if fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestCauseNamesFileAndLine(t *testing.T) {
	store := newStore(t)
	perform(t, planOf(t, chain, store, PlanOptions{}), changing)
	p := planOf(t, strings.Replace(chain, "1e-5", "2e-5", 1), store, PlanOptions{})
	i := slices.IndexFunc(p.Nodes, func(d *Planned) bool { return d.Address == "stage.sft.warm" })
	cause := p.Nodes[i].Cause
	if !strings.HasSuffix(cause.String(), "x.hcl:15)") || cause.Reason != ReasonSetting {
		t.Errorf("got %s, %s", cause.Reason, cause)
	}
	b, err := json.Marshal(cause)
	if err != nil || !strings.Contains(string(b), `"line":15`) {
		t.Errorf("as JSON: got %s, %v", b, err)
	}
}

func TestVersionAndContentOfFilesAreCauses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.hcl")
	writeFile(t, path, chain)
	writeFile(t, filepath.Join(dir, "raw.csv"), "1")
	store := newStore(t)
	reg := paperKinds()
	plan := func() *Plan {
		x, diags := Load(Source{Path: path}, reg)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		p, err := NewPlan(x, store, PlanOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	perform(t, plan(), constant)
	writeFile(t, filepath.Join(dir, "raw.csv"), "2")
	if got := verdicts(plan())["model.m"]; got != "run: settings.path: content of raw.csv changed" {
		t.Errorf("content: got %s", got)
	}
	// The model is rebuilt without a change, so its readers do not run.
	if got, want := perform(t, plan(), constant), []string{"stage.model.m"}; !slices.Equal(got, want) {
		t.Errorf("executed: got %v, want %v", got, want)
	}
	if got := verdicts(plan()); len(got) > 0 {
		t.Errorf("afterwards: got %v, want nothing", got)
	}
	reg.Lookup("grpo").Version = 2
	if got := verdicts(plan()); len(got) != 1 || got["grpo.arm"] != "run: version 1 → 2" {
		t.Errorf("version: got %v", got)
	}
}

func TestChangedAndChangedBackIsUpToDate(t *testing.T) {
	store := newStore(t)
	perform(t, planOf(t, chain, store, PlanOptions{}), changing)
	perform(t, planOf(t, strings.Replace(chain, "1e-5", "2e-5", 1), store, PlanOptions{}), changing)
	if p := planOf(t, chain, store, PlanOptions{}); p.Changes() {
		t.Errorf("got %v, want nothing to run", verdicts(p))
	}
}

// A setting that returns to an older value runs nothing if the rebuilt input is unchanged.
func TestOlderResultIsReusedIfARebuiltInputIsUnchanged(t *testing.T) {
	store := newStore(t)
	lr, ratio := strings.NewReplacer("1e-5", "2e-5"), strings.NewReplacer("tasks = stage.tasks.t.train\n}",
		"tasks = stage.tasks.t.train\n  ratio = 3\n}")
	for _, text := range []string{chain, lr.Replace(chain), chain} {
		perform(t, planOf(t, text, store, PlanOptions{}), constant)
	}
	p := planOf(t, ratio.Replace(lr.Replace(chain)), store, PlanOptions{})
	got := verdicts(p)
	if got["curate.data"] != "run: settings.ratio 1 → 3" || got["sft.warm"] != "run unless unchanged: input "+
		"data may change (stage.curate.data)" {
		t.Errorf("planned: %v", got)
	}
	if got, want := perform(t, p, constant), []string{"stage.curate.data"}; !slices.Equal(got, want) {
		t.Errorf("executed: got %v, want %v", got, want)
	}
}

func TestDamagedResultRunsAndItsReadersOnlyWhenItChanges(t *testing.T) {
	store := newStore(t)
	p := planOf(t, chain, store, PlanOptions{})
	perform(t, p, changing)
	p = planOf(t, chain, store, PlanOptions{})
	i := slices.IndexFunc(p.Nodes, func(d *Planned) bool { return d.Address == "stage.sft.warm" })
	a, err := store.Open(p.Nodes[i].Manifest, "checkpoint")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(a.Dir, 0o700), os.Remove(a.Path("out.txt"))); err != nil {
		t.Fatal(err)
	}
	got := verdicts(planOf(t, chain, store, PlanOptions{}))
	if !strings.HasPrefix(got["sft.warm"],
		"run: its file out.txt is missing") || !strings.HasPrefix(got["grpo.arm"],
		"run unless unchanged") || len(got) != 2 {
		t.Errorf("got %v", got)
	}
}

func TestTargetAndReplace(t *testing.T) {
	store := newStore(t)
	p := planOf(t, chain, store, PlanOptions{Targets: []string{"curate.data"}})
	if len(p.Nodes) != 2 {
		t.Errorf("target: got %v, want the stage and the one it reads", verdicts(p))
	}
	perform(t, planOf(t, chain, store, PlanOptions{}), changing)
	p = planOf(t, chain, store, PlanOptions{Replace: []string{"sft.warm"}})
	got := verdicts(p)
	if got["sft.warm"] != "run: requested with -replace" || !strings.HasPrefix(got["grpo.arm"],
		"run unless unchanged") || len(got) != 2 {
		t.Errorf("replace: got %v", got)
	}
	if _, err := NewPlan(mustLoad(t, chain), store,
		PlanOptions{Targets: []string{"sft.worm"}}); err == nil || !strings.Contains(err.Error(),
		"did you mean sft.warm?") {
		t.Errorf("unknown target: got %v", err)
	}
}

// After any change: run ⊆ executed ⊆ run ∪ run unless unchanged, with equality if every output follows its inputs.
func TestPlannedNodesAreExecuted(t *testing.T) {
	text := strings.Replace(paperText(t), "[1, 2, 3]", "[1]", 1)
	for how, content := range map[string]func(*Node, string, string) string{"changing": changing,
		"constant": constant} {
		store := newStore(t)
		for _, m := range semantic {
			perform(t, planOf(t, text, store, PlanOptions{}), content)
			p := planOf(t, strings.Replace(text, m.from, m.to, 1), store, PlanOptions{})
			var run, may []string
			for _, d := range p.Nodes {
				switch d.Verb {
				case MustRun:
					run = append(run, d.Address)
					may = append(may, d.Address)
				case MayRun:
					may = append(may, d.Address)
				}
			}
			executed := perform(t, p, content)
			for _, a := range run {
				if !slices.Contains(executed, a) {
					t.Errorf("%s, %s: %s was to run and did not", m.name, how, a)
				}
			}
			for _, a := range executed {
				if !slices.Contains(may, a) {
					t.Errorf("%s, %s: %s ran and was not planned to", m.name, how, a)
				}
			}
			if how == "changing" && len(executed) != len(may) {
				t.Errorf("%s: %d executed, %d planned", m.name, len(executed), len(may))
			}
		}
	}
}

func BenchmarkPlanUpToDate(b *testing.B) {
	text, err := os.ReadFile("testdata/valid/paper.hcl")
	if err != nil {
		b.Fatal(err)
	}
	t := &testing.T{}
	store := newStoreIn(b.TempDir())
	dir := b.TempDir()
	path := filepath.Join(dir, "x.hcl")
	if err := errors.Join(os.WriteFile(path, []byte(strings.NewReplacer(`dir("folder")`, `file("raw.csv")`,
		"folder/", "").Replace(string(text))), 0o644),
		os.WriteFile(filepath.Join(dir, "raw.csv"), []byte("1"), 0o644)); err != nil {
		b.Fatal(err)
	}
	load := func() *Plan {
		x, diags := Load(Source{Path: path}, paperKinds())
		if diags.HasErrors() {
			b.Fatal(diags)
		}
		p, err := NewPlan(x, store, PlanOptions{})
		if err != nil {
			b.Fatal(err)
		}
		return p
	}
	first := load()
	perform(t, first, changing)
	for b.Loop() {
		if p := load(); p.Changes() {
			b.Fatal("not up to date")
		}
	}
	b.ReportMetric(float64(len(first.Nodes)), "nodes")
}

func newStoreIn(dir string) *artifact.Store {
	store, _ := artifact.Open(dir)
	return store
}
