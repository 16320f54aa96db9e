package reports

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
	"rcgrpo/stages/rl"
)

// Scripted stages replace the kinds that need tensors: a policy is a file with its skill, training raises it by a
// setting and writes a curve, evaluation passes as many of 40 tasks as its skill.

type scripted struct {
	ArmLabel string `hcl:"label,optional" key:"-"`
	Method   string `hcl:"method,optional" key:"-"`
	run      func(*scripted, *engine.Job) error

	Policy artifact.Ref   `hcl:"policy,optional" port:"checkpoint|endpoint"`
	Tasks  []artifact.Ref `hcl:"tasks,optional" port:"tasks"`
	Data   []artifact.Ref `hcl:"data,optional" port:"dataset"`
	Gain   float64        `hcl:"gain,optional"`
	LR     float64        `hcl:"lr,optional"`
	Token  string         `hcl:"token,optional"`
	Fail   bool           `hcl:"fail,optional"`

	Updates int `hcl:"updates,optional"`
}

func (s *scripted) Check() hcl.Diagnostics                       { return nil }
func (s *scripted) Run(_ context.Context, job *engine.Job) error { return s.run(s, job) }
func outputs(ports map[string]string) func(lang.Stage) map[string]string {
	return func(lang.Stage) map[string]string { return ports }
}

func scriptedKind(name string, ports map[string]string, run func(*scripted, *engine.Job) error) *lang.Kind {
	return &lang.Kind{Name: name, Summary: "scripted", Version: 1, InProcess: true, Outputs: outputs(ports),
		New:        func() lang.Stage { return &scripted{run: run, LR: 1e-6, Updates: 20} },
		Stochastic: func(lang.Stage) bool { return name == "grpo" || name == "draw" }}
}

func (s *scripted) skill(job *engine.Job) (float64, error) {
	if s.Policy.Kind == "" {
		return 0, nil
	}
	a, err := job.Open(s.Policy)
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(a.Path("skill"))
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(string(text), 64)
}

func (s *scripted) Labels() lang.Labels { return lang.Labels{Arm: s.ArmLabel, Method: s.Method} }

func train(s *scripted, job *engine.Job) error {
	if s.Fail {
		job.Logf("loss is NaN")
		return errors.New("update 3: the gradient is not a number")
	}
	skill, err := s.skill(job)
	if err != nil {
		return err
	}
	gain := s.Gain
	if s.Policy.Kind != "" { // the seeds of RL differ
		gain *= 1 + float64(job.Seed-2)/10
	}
	var rows, times []rl.Metric
	for u := 1; u <= s.Updates; u++ {
		rows = append(rows, rl.Metric{Update: u, Values: map[string]float64{"reward": skill + gain*float64(u)/20,
			"entropy":       1 / float64(u),
			"zero_variance": 0.5, "successes_0": 0.25, "successes_1": 0.5, "successes_2": 0.25}})
		times = append(times, rl.Metric{Update: u, Values: map[string]float64{"rollout_s": 0.5, "update_s": 0.25,
			"tokens_per_s": 1000}})
	}
	maps.Copy(rows[0].Values, map[string]float64{"forecast_zero_variance": 0.4 + skill/10, "forecast_low": 0.3,
		"forecast_high": 0.45})
	return errors.Join(writeFile(job, "checkpoint", "skill", fmt.Sprint(skill+gain+float64(job.Seed)/1000)),
		writeRows(job, "metrics", rl.MetricsFile, rows), writeRows(job, "metrics", rl.TimesFile, times))
}

func evaluate(s *scripted, job *engine.Job) error {
	skill, err := s.skill(job)
	if err != nil {
		return err
	}
	if s.Token == rl.TokenLow {
		skill -= 0.25
	}
	var rows []rl.Score
	for _, ref := range s.Tasks {
		a, err := job.Open(ref)
		if err != nil {
			return err
		}
		for task, err := range artifact.Rows[*bfcl.Task](a, bfcl.TasksFile) {
			if err != nil {
				return err
			}
			row := rl.Score{Task: task.ID, Family: task.Family, Category: task.Category, Set: ref.Port, Token: s.Token,
				Greedy: true, Stop: rl.StopDone}
			if float64(task.Number) < math.Round(40*skill) {
				row.Reward, row.Official = 1, true
			}
			rows = append(rows, row)
			for row.Sample = range 2 { // the first sample of a task does as greedy decoding, the second fails
				row.Greedy, row.Reward = false, row.Reward*float64(1-row.Sample)
				rows = append(rows, row)
			}
		}
	}
	var played []rl.Trajectory
	for _, row := range rows {
		if row.Greedy {
			played = append(played, rl.Trajectory{Task: row.Task, Reward: rl.Reward(row.Reward), Stop: row.Stop,
				Messages: []rl.Message{{Role: rl.RoleUser, Text: "Begin."}}})
		}
	}
	return errors.Join(writeRows(job, "scores", rl.ScoresFile, rows), s.writeCost(job),
		writeRows(job, "trajectories", rl.TrajectoriesFile, played))
}

// writeCost writes the record of an API model.
func (s *scripted) writeCost(job *engine.Job) error {
	if s.Policy.Type != "endpoint" {
		return nil
	}
	return writeFile(job, "calls", costFile, `{"dollars": 1.25, "attempts": 90, "replies": 80,
		"input": 1000, "output": 200, "models": ["api-1"], "first": "2026-01-02T03:04:05Z", "last": "2026-01-03T01:00:00Z"}`)
}

// evaluationPorts are those of an evaluation, with the record of an API model.
func evaluationPorts(s lang.Stage) map[string]string {
	ports := map[string]string{"scores": "scores", "trajectories": "trajectories"}
	if s.(*scripted).Policy.Type == "endpoint" {
		ports["calls"] = "calls"
	}
	return ports
}

// writeTasks returns a stage that makes 40 tasks for each port, with families from the given number on.
func writeTasks(ports map[string]int) func(*scripted, *engine.Job) error {
	return func(_ *scripted, job *engine.Job) error {
		for port, from := range ports {
			var rows []bfcl.Task
			for i := range 40 {
				rows = append(rows, bfcl.Task{ID: fmt.Sprintf("%s_%d_%d", port, job.Seed, i), Number: i,
					Family: fmt.Sprint(from + i/2), Category: bfcl.Categories[i%4]})
			}
			if err := writeRows(job, port, bfcl.TasksFile, rows); err != nil {
				return err
			}
		}
		return nil
	}
}

// describe returns a stage that makes a model: its description, and its skill of one half.
func describe(port, file, text string) func(*scripted, *engine.Job) error {
	return func(_ *scripted, job *engine.Job) error {
		return errors.Join(writeFile(job, port, file, text), writeFile(job, port, "skill", "0.5"))
	}
}

// mix makes a data set of an expert and a failure for each task.
func mix(s *scripted, job *engine.Job) error {
	a, err := job.Open(s.Tasks[0])
	if err != nil {
		return err
	}
	var rows []rl.Trajectory
	for task, err := range artifact.Rows[*bfcl.Task](a, bfcl.TasksFile) {
		if err != nil {
			return err
		}
		for i, token := range []string{rl.TokenLow, rl.TokenHigh} {
			rows = append(rows, rl.Trajectory{Task: task.ID, Category: task.Category, Token: token, Reward: rl.Reward(i),
				Origin:   []string{rl.OriginPolicy, rl.OriginExpert}[i],
				Messages: []rl.Message{{Role: rl.RoleUser, Text: "Begin."}, {Role: rl.RoleAssistant, Calls: []string{"ls()"}}}})
		}
	}
	return writeRows(job, "mixed", rl.DatasetFile, rows)
}

func scriptedKinds() lang.Registry {
	trained := map[string]string{"checkpoint": "checkpoint", "metrics": "metrics"}
	eval, report := scriptedKind("eval", nil, evaluate), Kind()
	eval.Outputs = evaluationPorts
	report.InProcess = true
	return lang.Registry{
		scriptedKind("tasks", map[string]string{"train": "tasks", "test": "tasks"},
			writeTasks(map[string]int{"train": 100, "test": 0})),
		scriptedKind("draw", map[string]string{"test": "tasks"}, writeTasks(map[string]int{"test": 0})),
		scriptedKind("sft", trained, train), scriptedKind("grpo", trained, train),
		scriptedKind("curate", map[string]string{"mixed": "dataset"}, mix),
		scriptedKind("model", map[string]string{"checkpoint": "checkpoint"}, describe("checkpoint", "config.json",
			`{"model_type": "qwen2", "max_position_embeddings": 512}`)),
		scriptedKind("endpoint", map[string]string{"policy": "endpoint"}, describe("policy", "endpoint.json",
			`{"api": "made up", "model": "api-1", "date": "2026-01-02"}`)),
		eval,
		report,
	}
}

const scriptedExperiment = `
experiment {
  question = "Does training help?"
  seeds    = [1, 2, 3]
}
stage "tasks" "t" {}
stage "sft" "warm" {
  gain = 0.5
  lr   = 1e-5
}
stage "grpo" "arm" {
  for_each = { little = 0.05, much = 0.25 }
  policy   = stage.sft.warm.checkpoint
  gain     = each.value
  lr       = 3e-4
  tasks    = [stage.tasks.t.train]
  fail     = each.key == FAIL
  updates  = each.key == "little" ? 20 : 24
}
stage "eval" "arm" {
  for_each = {
    "Much training"   = stage.grpo.arm["much"].checkpoint
    "Little training" = stage.grpo.arm["little"].checkpoint
    "None"            = stage.sft.warm.checkpoint
  }
  policy = each.value
  tasks  = [stage.tasks.t.test]
  token  = "high"
}
stage "draw" "own" {}
stage "grpo" "once" {
  seed   = 1
  policy = stage.sft.warm.checkpoint
  gain   = 0.1
}
stage "eval" "once" { # trained once, evaluated on three draws of tasks
  for_each = { "Trained once" = stage.grpo.once.checkpoint }
  policy   = each.value
  tasks    = [stage.draw.own.test]
}
stage "eval" "low" {
  for_each = { "Much training" = stage.grpo.arm["much"].checkpoint }
  policy   = each.value
  tasks    = [stage.tasks.t.test]
  token    = "low"
}
stage "report" "page" {
  scores = [stage.eval.arm, stage.eval.low, stage.eval.once]
  curves = [stage.grpo.arm, stage.sft.warm]
  transcripts = [stage.eval.arm]
  data   = [stage.tasks.t.train, stage.tasks.t.test]
  notes  = ["Scripted stages, no model."]
  windows = { early = 10, late = 10 }
  compare "more training" {
    without = stage.eval.arm["Little training"]
    with    = stage.eval.arm["Much training"]
    expect  = "higher"
  }
  compare "more training" {
    outcome = "reward"
    without = stage.eval.arm["Little training"]
    with    = stage.eval.arm["Much training"]
    expect  = "higher"
  }
  compare "any training" {
    without = stage.eval.arm["None"]
    with    = [stage.eval.arm["Little training"], stage.eval.arm["Much training"]]
  }
  compare "any training, sampled" {
    outcome = "sampled"
    without = [stage.eval.arm["None"].scores]
    with    = [stage.eval.arm["Much training"].scores]
  }
  compare "the other amount" {
    without = [stage.eval.arm["Little training"], stage.eval.arm["Much training"]]
    with    = [stage.eval.arm["Much training"], stage.eval.arm["Little training"]]
  }
  map "Where more training helps" {
    compare = "the other amount"
    x       = "entropy"
    y       = "reward"
  }
  compare "other tasks" {
    unpaired = true
    without  = stage.eval.arm["None"]
    with     = stage.eval.arm["Much training"]
  }
}
`

// paperExperiment is the scripted experiment with the tables that only the paper's page has.
var paperExperiment = strings.NewReplacer(`stage "report" "page" {`, `
stage "model" "base" {}
stage "endpoint" "api" {}
stage "eval" "base" {
  for_each = { "Base" = stage.model.base.checkpoint, "API" = stage.endpoint.api.policy }
  policy   = each.value
  tasks    = [stage.tasks.t.test]
  token    = "high"
}
stage "curate" "data" {
  tasks = [stage.tasks.t.train]
}
stage "report" "page" {
  reference "The paper" {
    of     = { overall = 80, base = 20 }
    counts = {
      "Much training"   = { overall = 68, base = 16 }
      "Little training" = { overall = 59 }
      "API models/API"  = { overall = 49, base = 10 }
    }
    others = { "API models" = { Other = { overall = 40 } } }
  }`, "stage.eval.once]", "stage.eval.once, stage.eval.base]", "stage.tasks.t.test]\n  notes",
	"stage.tasks.t.test, stage.curate.data]\n  notes").Replace(scriptedExperiment)

// runText runs a scripted experiment in a folder: scripted.hcl, site.hcl, store. It returns the published page, its
// text with the place of that, and the error of the run.
func runText(t *testing.T, dir, experiment, failing string) (html, text, textFile string, runError error) {
	t.Helper()
	t.Setenv("RCGRPO_LEASES", filepath.Join(t.TempDir(), "leases"))
	file, site := filepath.Join(dir, "scripted.hcl"), filepath.Join(dir, "site.hcl")
	must.OK(t, os.WriteFile(file, []byte(strings.ReplaceAll(experiment, "FAIL", fmt.Sprintf("%q", failing))), 0o644))
	must.OK(t, os.WriteFile(site, fmt.Appendf(nil, "store {\n  path = %q\n}\n", filepath.Join(dir, "store")), 0o644))
	x, diags := lang.Load(lang.Source{Path: file, Site: site}, scriptedKinds())
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	store := must.Get(artifact.Open(filepath.Join(dir, "store")))(t)
	plan := must.Get(plan.New(x, store, plan.Options{}))(t)
	runError = engine.Run(t.Context(), plan, engine.Options{KeepGoing: true}, func(e runs.Event) {
		if e.Kind == runs.EventFailed && !strings.Contains(e.Address, "grpo") {
			t.Errorf("%s failed: %s", e.Address, e.Text)
		}
	})
	published := must.Get(os.ReadFile(filepath.Join(dir, "scripted.html")))(t)
	must.OK(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == TextFile {
			textFile = path
		}
		return err
	}))
	return string(published), string(must.Get(os.ReadFile(textFile))(t)), textFile, runError
}

// loaded loads the text of an experiment, in which FAIL names no stage.
func loaded(t *testing.T, text string) (*lang.Experiment, hcl.Diagnostics) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.hcl")
	must.OK(t, os.WriteFile(file, []byte(strings.ReplaceAll(text, "FAIL", `"none"`)), 0o644))
	return lang.Load(lang.Source{Path: file}, scriptedKinds())
}

// scriptedStages are the stages of the scripted experiment without its report.
var scriptedStages, _, _ = strings.Cut(scriptedExperiment, `stage "report" "page"`)

// writeRows writes the rows of a port.
func writeRows[T any](job *engine.Job, port, file string, rows []T) error {
	dir, err := job.Create(port)
	if err != nil {
		return err
	}
	return artifact.WriteRows(dir, file, rows)
}

// writeFile writes a file of a port.
func writeFile(job *engine.Job, port, name, text string) error {
	dir, err := job.Create(port)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)
}

func wantAll(t *testing.T, text string, wanted ...string) {
	t.Helper()
	flat := strings.Join(strings.Fields(text), " ")
	for _, w := range wanted {
		if !strings.Contains(flat, w) {
			t.Errorf("the page lacks %q", w)
		}
	}
}

func TestReportOfAWholeExperiment(t *testing.T) {
	html, text, textFile, err := runText(t, t.TempDir(), scriptedExperiment, "none")
	must.OK(t, err)
	// Skills 0.5, 0.55 and 0.75 of 40 tasks are 20, 22 and 30 passes; for the last the first seed has one less and the
	// third one more (thousandths round away). Low takes ten of them. The sampled reward over the updates 11 to 20, the
	// last of the shorter training, is the skill before, plus 0.775 of the gain: 0.2 · 0.775 more for the larger one,
	// times 0.9, 1 and 1.1.
	wantAll(t, text, "Does training help?", "Scripted stages, no model.",
		"Where more training helps: success on test tasks",
		"Success: Yes. Much training raises success: 20.0 points higher than Little training (", "40 tasks, 20 families",
		"Trained once (one policy, 3 evaluations)", "40 test tasks per evaluation (160 different ones)",
		"Reward: Yes. Much training raises reward: 0.155 higher than Little training (0.116 to 0.194). ")
	wantAll(t, html, "Much training: 20 of 30 failed and 20 of 90 passed episodes")
	wantAll(t, text, "Much training: 20 of 30 failed and 20 of 90 passed episodes, in the HTML page")
	wantAll(t, html, "75.0 %", "55.0 %", "50.0 %", // main table
		"&#43;25.0",    // gap of the token
		"paper: 1e-06", // the departure of grpo; sft has the paper's rate
		"0 of 20", "grpo.arm[&#34;much&#34;]@2", "sft.warm", `"name":"Much training"`, `"name":"None"`)
	// The same numbers for programs and for papers.
	folder := filepath.Dir(textFile)
	for name, wanted := range map[string]string{JSONFile: `"count": 90`,
		LaTeXFile:                    `\caption{Success on test tasks, greedy decoding`,
		CSVFolder + "/main-test.csv": "Much training,", CSVFolder + "/fig-reward.csv": "update,"} {
		content := must.Get(os.ReadFile(filepath.Join(folder, name)))(t)
		if !strings.Contains(string(content), wanted) {
			t.Errorf("%s lacks %q", name, wanted)
		}
	}
	// Curves take the label of the arm whose policy they trained.
	if strings.Contains(html, `"name":"grpo.arm[much]"`) {
		t.Error("a curve has its own name although its policy was scored")
	}
}

func TestReportNamesFailedStages(t *testing.T) {
	html, text, _, err := runText(t, t.TempDir(), scriptedExperiment, "much")
	var failed *engine.RunError
	if !errors.As(err, &failed) {
		t.Fatalf("got %v, want a *engine.RunError", err)
	}
	wantAll(t, html, "update 3: the gradient is not a number", "loss is NaN",
		"Not scored, so missing from the comparisons: Much training")
	wantAll(t, text, "MISSING", "Little training")
}

func TestReportSettingsAreChecked(t *testing.T) {
	ref := func(key string) artifact.Ref { return artifact.Ref{Kind: "eval", Name: "arm", Key: key} }
	ab := func(outcome string, unpaired bool) Comparison {
		return Comparison{Label: "x", Pairs: [][]string{{"a", "b"}}, Outcome: outcome, Unpaired: unpaired}
	}
	for summary, change := range map[string]func(*settings){
		"":                            func(*settings) {},
		"Negative difference":         func(s *settings) { s.Compare = []Comparison{{Label: "x", Matters: -1}} },
		"Unknown outcome":             func(s *settings) { s.Compare = []Comparison{ab("zero_varianse", false)} },
		"Setting without effect":      func(s *settings) { s.Compare = []Comparison{ab("zero_variance", true)} },
		"Path outside the experiment": func(s *settings) { s.Path = "../page.html" },
	} {
		s := Kind().New().(*settings)
		s.Scores = []artifact.Ref{ref("a"), ref("b")}
		change(s)
		got := ""
		if diags := s.Check(); len(diags) > 0 {
			got = diags[0].Summary
		}
		equal(t, "diagnostic", got, summary)
	}
}

// Both sides of a comparison are evaluations; labels come from them.
func TestComparedArmsArePairedAndNamedByTheirEvaluations(t *testing.T) {
	stages := scriptedStages + `
stage "eval" "sft" {
  for_each = { a = stage.grpo.arm["little"].checkpoint, b = stage.grpo.arm["much"].checkpoint }
  policy   = each.value
  tasks    = [stage.tasks.t.test]
  label    = "SFT ${each.key}"
}
stage "eval" "rl" {
  for_each = { b = stage.grpo.arm["much"].checkpoint, a = stage.grpo.arm["little"].checkpoint }
  policy   = each.value
  tasks    = [stage.tasks.t.test]
  label    = "RL ${each.key}"
}
stage "report" "page" {
  scores = [stage.eval.arm, stage.eval.sft, stage.eval.rl]
  compare "x" {
    %s
  }
  arms = [stage.eval.rl["b"]]
}
`
	for _, c := range []struct{ settings, want string }{
		{"without = stage.eval.sft\nwith = stage.eval.rl", "[[SFT a RL a] [SFT b RL b]]"},
		{`without = stage.eval.sft["a"]` + "\nwith = stage.eval.rl", "[[SFT a RL a] [SFT a RL b]]"},
		{`without = stage.eval.sft` + "\nwith = stage.eval.arm[\"None\"]", "[[SFT a None] [SFT b None]]"},
		{`without = [stage.eval.sft["a"], stage.eval.sft["b"]]` + "\n" +
			`with = [stage.eval.arm["None"], stage.eval.rl["a"]]`, "[[SFT a None] [SFT b RL a]]"},
		{"without = stage.eval.sft\nwith = stage.eval.arm", "Arms without a partner"},
		{"without = stage.eval.sft\nwith = stage.eval.once", "Unknown arm"},
		{"without = stage.eval.sft", "Nothing to compare"},
		{`pairs = [["SFT a", "RL b"]]`, "Unknown setting"},
	} {
		x, diags := loaded(t, fmt.Sprintf(stages, c.settings))
		got := ""
		if len(diags) > 0 {
			got = diags[0].Summary
		} else {
			n := x.Node("stage.report.page")
			pairs, err := n.Stage.(*settings).Compare[0].pairs(n)
			if err != nil || !slices.Equal(labels(n, n.Stage.(*settings).Arms), []string{"RL b"}) {
				t.Errorf("%s: got %v", c.settings, err)
			}
			got = fmt.Sprint(pairs)
		}
		equal(t, c.settings, got, c.want)
	}
}

func TestArmsOfARepeatedModuleHaveItsKeyInTheirLabels(t *testing.T) {
	arms := filepath.Join(t.TempDir(), "arms.hcl")
	must.OK(t, os.WriteFile(arms, []byte(`
stage "sft" "warm" {}
stage "eval" "old" {
  for_each = ["a", "b"]
  policy   = stage.sft.warm.checkpoint
}
stage "eval" "new" {
  policy = stage.sft.warm.checkpoint
  label  = "New"
}
stage "eval" "plain" {
  policy = stage.sft.warm.checkpoint
}`), 0o644))
	x, diags := loaded(t, strings.ReplaceAll(`
experiment {}
module "model" {
  for_each = ["qwen", "llama"]
  source   = ARMS
}
stage "report" "page" {
  scores = [for name in ["qwen", "llama"] : values(module.model[name].stage.eval)]
  compare "x" {
    without = [for name in ["qwen", "llama"] : module.model[name].stage.eval.plain]
    with    = [for name in ["llama", "qwen"] : module.model[name].stage.eval.new]
  }
}`, "ARMS", fmt.Sprintf("%q", arms)))
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	n := x.Node("stage.report.page")
	s := n.Stage.(*settings)
	want := []string{"qwen/New", "qwen/a", "qwen/b", "qwen/plain", "llama/New", "llama/a", "llama/b", "llama/plain"}
	equal(t, "labels", labels(n, s.Scores), want)
	if pairs, err := s.Compare[0].pairs(n); err != nil || fmt.Sprint(pairs) !=
		"[[qwen/plain qwen/New] [llama/plain llama/New]]" {
		t.Errorf("pairs: got %v, %v", pairs, err)
	}
}

func TestOneNameAndSeedIsOnePolicy(t *testing.T) {
	g := &gathering{study: &Study{}}
	scores := func(stage, policy string) error {
		dir := t.TempDir()
		must.OK(t, artifact.WriteRows(dir, rl.ScoresFile, []rl.Score{{Task: "1", Greedy: true}}))
		in := &Input{Address: stage, Label: "SFT", Ref: artifact.Ref{Kind: "eval", Name: "arm", Key: "SFT", Port: "scores"}}
		return g.scores(in, &artifact.Artifact{Dir: dir,
			Manifest: &artifact.Manifest{Parts: map[string]string{"input.policy": policy}}})
	}
	must.OK(t, scores("stage.eval.a", `"digest 1"`))
	must.OK(t, scores("stage.eval.b", `"digest 1"`)) // the same policy again
	must.Match(t, scores("stage.eval.c", `"digest 2"`), `different policies under the name "SFT"`)
}

// The head of the page distinguishes the result of an override from that of the experiment's file.
func TestThePageListsOverridesBeforeOtherNotes(t *testing.T) {
	ev := &Evidence{Overrides: []string{"grpo.arm.lr=1e-4"}, Notes: []string{"A note."},
		Windows: Windows{Early: 1, Late: 1}}
	study := must.Get(gather(ev, nil, nil))(t)
	limits := study.Page().Limits
	if len(limits) < 2 || !strings.Contains(limits[0], "grpo.arm.lr=1e-4") || limits[1] != "A note." {
		t.Errorf("got %q, want the override first", limits)
	}
}

// A label says nothing about the design of an arm: a slash and a plus in it are letters.
func TestDesignsFollowFromTheGraph(t *testing.T) {
	x, diags := loaded(t, `
experiment {}
stage "tasks" "t" {}
stage "curate" "data" { tasks = [stage.tasks.t.train] }
stage "model" "base" {}
stage "endpoint" "api" {}
stage "sft" "first" {
  policy = stage.model.base.checkpoint
  data   = [stage.curate.data.mixed]
}
stage "grpo" "arm" {
  policy = stage.sft.first.checkpoint
  tasks  = [stage.tasks.t.train]
}
stage "eval" "arm" {
  for_each = {
    "wide/2 + x" = stage.grpo.arm.checkpoint
    "warm"       = stage.sft.first.checkpoint
    "base"       = stage.model.base.checkpoint
    "api"        = stage.endpoint.api.policy
  }
  policy = each.value
  tasks  = [stage.tasks.t.test]
  method = each.key == "warm" ? "none" : null
}
stage "report" "page" { scores = [stage.eval.arm] }`)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	got := map[string]Design{}
	for _, in := range x.Node("stage.report.page").Inputs {
		got[in.Ref.Key] = designOf(in.From, in.Ref)
	}
	want := map[string]Design{"wide/2 + x": {Init: "SFT", Method: "GRPO"}, "warm": {Init: "SFT", Method: "none"},
		"base": {}, "api": {Model: apiModels}}
	if !maps.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
