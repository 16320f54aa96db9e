package engine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rcgrpo/engine/artifact"
)

func loadFile(t *testing.T, path string, change ...func(*Source)) *Experiment {
	t.Helper()
	x, diags := Load(sourceOf(path, change...), paperKinds())
	if len(diags) > 0 {
		t.Fatalf("load %s: %s", path, diags)
	}
	return x
}

func addresses(nodes []*Node) []string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.Address)
	}
	slices.Sort(out)
	return out
}

func inputsOf(n *Node) []string {
	var out []string
	for _, in := range n.Inputs {
		out = append(out, in.Setting+" = "+in.From.Address+"."+in.Ref.Port)
	}
	return out
}

func TestPaperExperimentHasTheNodesOfThePage(t *testing.T) {
	x := loadFile(t, "testdata/valid/paper.hcl")
	var multiplied, single int
	for _, n := range x.Nodes {
		if strings.Contains(n.Address, "@") {
			multiplied++
		} else {
			single++
		}
	}
	// Once each: base model, tasks, Base's scores, report, exec. For each of three seeds: rollout, curate, two
	// warm starts, four arms and their four evaluations.
	if single != 5 || multiplied != 3*12 {
		t.Errorf("got %d single and %d multiplied nodes, want 5 and 36: %v", single, multiplied, addresses(x.Nodes))
	}
	arm := x.Node(`stage.grpo.arm["rctp"]@2`)
	if arm == nil {
		t.Fatal("no node for the arm of seed 2")
	}
	if got, want := inputsOf(arm), []string{"policy = stage.rctp-ft.warm@2.checkpoint",
		"tasks = stage.tasks.bfcl.train"}; !slices.Equal(got, want) {
		t.Errorf("inputs: got %v, want %v", got, want)
	}
	if s := arm.Stage.(*toyGRPO); s.Updates != 350 || s.Group != 8 || s.Clip.Low != 0.1 || s.Clip.High != 0.2 {
		t.Errorf("settings: got %+v %+v, want the file's values over the defaults", s, s.Clip)
	}
	if arm.Resources != (Resources{GPUs: 8, CPUs: 2, Memory: 64e9,
		GPUMemory: 40 << 30}) || arm.Timeout != 48*time.Hour ||
		arm.Retry.Attempts != 3 || len(arm.Retry.On) != 2 || arm.Retry.Backoff != 30*time.Second || arm.Doc != "unconditioned" {
		t.Errorf("what every stage understands: got %+v %v %+v %q", arm.Resources, arm.Timeout, arm.Retry, arm.Doc)
	}
	warm := x.Node("stage.sft.warm@1").Stage.(*toyTrain)
	if warm.Epochs != 2 || warm.LR != 1e-5 || warm.Limit != 90*time.Minute || !slices.Equal(warm.Names,
		[]string{"n0", "n1"}) || warm.Weights["b"] != 2 || warm.Warmup != nil || warm.Tokens.High != 1 {
		t.Errorf("warm start: got %+v", warm)
	}
	report := x.Node("stage.report.paper")
	if got := len(report.Inputs); got != 1+4*3+4*3 { // scores of Base once, of four arms thrice; four arms' curves thrice
		t.Errorf("report reads %d artifacts, want 25: %v", got, inputsOf(report))
	}
	exec := x.Node("stage.exec.score")
	if got, want := inputsOf(exec), []string{"inputs.page = stage.report.paper.page"}; !slices.Equal(got,
		want) || len(exec.Files) != 1 {
		t.Errorf("exec reads %v and %d files, want %v and one", got, len(exec.Files), want)
	}
	if got, want := addresses(exec.DependsOn), []string{"stage.sft.warm@1", "stage.sft.warm@2",
		"stage.sft.warm@3"}; !slices.Equal(got, want) {
		t.Errorf("exec waits for %v, want %v", got, want)
	}
	place := map[*Node]int{}
	for i, n := range x.Nodes {
		place[n] = i
	}
	for _, n := range x.Nodes {
		for _, in := range n.Inputs {
			if place[in.From] >= place[n] {
				t.Errorf("%s stands before %s, which it reads", n.Address, in.From.Address)
			}
		}
	}
}

const seedsHead = `
experiment {
  seeds = [1, 2]
}
stage "tasks" "fixed" {
  source = "bfcl"
}
stage "tasks" "drawn" {
  source = "drills"
}
stage "model" "base" {
  path = file("raw.csv")
}
`

func TestStochasticStagesRunOncePerSeed(t *testing.T) {
	for name, tc := range map[string]struct {
		stages string
		want   []string // besides those of seedsHead
	}{
		"neither draws nor reads anything drawn": {
			`stage "eval" "x" {
  policy = stage.model.base
  tasks  = stage.tasks.fixed.test
}`, []string{"stage.eval.x"}},
		"reads something drawn": {
			`stage "eval" "x" {
  policy = stage.model.base
  tasks  = stage.tasks.drawn.test
}`, []string{"stage.eval.x@1", "stage.eval.x@2"}},
		"draws itself": {
			`stage "eval" "x" {
  policy = stage.model.base
  tasks  = stage.tasks.fixed.test
  sample = true
}`, []string{"stage.eval.x@1", "stage.eval.x@2"}},
		"is pinned to a seed the list lacks": {
			`stage "eval" "x" {
  policy = stage.model.base
  tasks  = stage.tasks.drawn.test
  seed   = 7
}`, []string{"stage.eval.x", "stage.tasks.drawn@7"}},
		"reads only pinned stages": {
			`stage "curate" "p" {
  tasks = stage.tasks.drawn.train
  seed  = 2
}
stage "eval" "x" {
  policy = stage.model.base
  tasks  = stage.tasks.fixed.test
  depends_on = [stage.curate.p]
}`, []string{"stage.curate.p", "stage.eval.x"}},
	} {
		t.Run(name, func(t *testing.T) {
			x := mustLoad(t, seedsHead+tc.stages)
			want := append([]string{"stage.model.base", "stage.tasks.drawn@1", "stage.tasks.drawn@2",
				"stage.tasks.fixed"}, tc.want...)
			slices.Sort(want)
			if got := addresses(x.Nodes); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestPinnedStageReadsTheNodesOfItsSeed(t *testing.T) {
	x := mustLoad(t, seedsHead+`stage "eval" "x" {
  policy = stage.model.base
  tasks  = stage.tasks.drawn.test
  seed   = 7
}`)
	n := x.Node("stage.eval.x")
	if n.Inputs[1].From.Address != "stage.tasks.drawn@7" || *n.Seed != 7 {
		t.Errorf("got %v, seed %v", inputsOf(n), *n.Seed)
	}
}

func TestWithoutSeedsNoAddressCarriesOne(t *testing.T) {
	x := mustLoad(t, strings.Replace(seedsHead, "seeds = [1, 2]", "", 1))
	if got, want := addresses(x.Nodes), []string{"stage.model.base", "stage.tasks.drawn",
		"stage.tasks.fixed"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if s := x.Node("stage.tasks.drawn").Seed; s == nil || *s != 1 {
		t.Errorf("seed: got %v, want 1", s)
	}
	x = mustLoad(t, "experiment {}\nstage \"tasks\" \"t\" {\n  source = \"drills\"\n}\nstage \"curate\" \"c\" "+
		"{\n  tasks = stage.tasks.t.train\n  seed  = 5\n}\n")
	if got, want := addresses(x.Nodes), []string{"stage.curate.c", "stage.tasks.t",
		"stage.tasks.t@5"}; !slices.Equal(got, want) {
		t.Errorf("with a pinned stage: got %v, want %v", got, want)
	}
}

func TestEdgesAreTheReferencesOfTheDecodedValue(t *testing.T) {
	x := loadFile(t, "testdata/valid/paper.hcl")
	base := x.Node(`stage.eval.arm["Base"]`)
	if got, want := inputsOf(base), []string{"policy = stage.model.base.checkpoint",
		"tasks = stage.tasks.bfcl.test"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestConditionalChoosesBetweenStagesOfDifferentKinds(t *testing.T) {
	x := mustLoad(t, `
experiment {}
stage "model" "base" {
  path = file("raw.csv")
}
stage "tasks" "t" {
  source = "bfcl"
}
stage "curate" "data" {
  tasks = stage.tasks.t.train
}
stage "sft" "warm" {
  policy = stage.model.base
  data   = stage.curate.data.expert
}
stage "eval" "e" {
  policy = 1 > 2 ? stage.model.base : stage.sft.warm
  tasks  = stage.tasks.t.test
}
`)
	if got := x.Node("stage.eval.e").Inputs[0].From.Address; got != "stage.sft.warm" {
		t.Errorf("got %s", got)
	}
}

func TestRetryAcceptsPatternsBesidesCauses(t *testing.T) {
	mustLoad(t, "experiment {}\nstage \"tasks\" \"t\" {\n  source = \"bfcl\"\n  retry {\n    attempts = 2\n   "+
		" on       = [\"nan in the loss\", \"(timeuot)\", \"preempted\"]\n  }\n}\n")
}

func TestInputFindsTheNodeThatASettingMeans(t *testing.T) {
	x := loadFile(t, "testdata/valid/paper.hcl")
	n := x.Node(`stage.grpo.arm["sft"]@3`)
	in, ok := n.Input(n.Stage.(*toyGRPO).Policy)
	if !ok || in.From.Address != "stage.sft.warm@3" {
		t.Errorf("got %v, %v", in.From, ok)
	}
	report := x.Node("stage.report.paper")
	for _, ref := range report.Stage.(*toyReport).Scores {
		if in, ok := report.Input(ref); !ok || in.Ref != ref && *in.Ref.Seed != *ref.Seed {
			t.Errorf("%+v: got %+v", ref, in)
		}
	}
	if _, ok := n.Input(artifact.Ref{Kind: "sft", Name: "cold", Port: "checkpoint"}); ok {
		t.Error("found an input nobody named")
	}
}

func TestDisablingAStageDisablesItsReadersExceptReports(t *testing.T) {
	x := mustLoad(t, `
stage "tasks" "t" {
  source = "bfcl"
}
stage "model" "m" {
  for_each = toset(["a", "b"])
  path     = file("raw.csv")
  enabled  = each.key == "a"
}
stage "eval" "e" {
  for_each = stage.model.m
  policy   = each.value
  tasks    = stage.tasks.t.test
}
stage "report" "r" {
  scores = stage.eval.e
}
experiment {}
`)
	if got, want := addresses(x.Nodes), []string{`stage.eval.e["a"]`, `stage.model.m["a"]`, "stage.report.r",
		"stage.tasks.t"}; !slices.Equal(got, want) {
		t.Errorf("nodes: got %v, want %v", got, want)
	}
	if want := []string{`stage.model.m["b"]`, `stage.eval.e["b"]`}; !slices.Equal(x.Disabled, want) {
		t.Errorf("disabled: got %v, want %v", x.Disabled, want)
	}
	if got, want := inputsOf(x.Node("stage.report.r")), []string{`scores[0] = stage.eval.e["a"].scores`}; !slices.Equal(got, want) {
		t.Errorf("report: got %v, want %v", got, want)
	}
}

func TestVariablesComeFromFlagThenFileThenEnvironmentThenDefault(t *testing.T) {
	const text = `
experiment {}
variable "samples" {
  type    = number
  default = 1
}
variable "name" {
  default = "none"
}
stage "exec" "x" {
  command = ["echo", var.name, "${var.samples}"]
}
`
	dir := t.TempDir()
	file := filepath.Join(dir, "vars.hcl")
	writeFile(t, file, "samples = 3\nname = \"file\"\n")
	env := func(s *Source) { s.Env = []string{"RCGRPO_VAR_samples=2", "RCGRPO_VAR_name=env", "RCGRPO_VAR_other=1"} }
	varFile := func(s *Source) { s.VarFiles = []string{file} }
	flag := func(s *Source) { s.Vars["samples"] = "4" }
	for name, tc := range map[string]struct {
		change []func(*Source)
		want   []string
	}{
		"default":     {nil, []string{"echo", "none", "1"}},
		"environment": {[]func(*Source){env}, []string{"echo", "env", "2"}},
		"file":        {[]func(*Source){env, varFile}, []string{"echo", "file", "3"}},
		"flag":        {[]func(*Source){env, varFile, flag}, []string{"echo", "file", "4"}},
	} {
		t.Run(name, func(t *testing.T) {
			x := mustLoad(t, text, tc.change...)
			if got := x.Nodes[0].Stage.(*toyExec).Command; !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			again := mustLoad(t, text, func(s *Source) { s.Vars = x.Vars })
			if got := again.Nodes[0].Stage.(*toyExec).Command; !slices.Equal(got, tc.want) {
				t.Errorf("from the values kept: got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestCommandLineErrorsAreReported(t *testing.T) {
	text := "experiment {}\nvariable \"samples\" {\n  default = 1\n}\nlocals {\n  s = var.samples\n}\n"
	for name, tc := range map[string]struct{ vars, want string }{
		"unknown name": {"sampels=3", "did you mean samples?"},
		"no number":    {"samples=many", "is not a value of type number"},
	} {
		t.Run(name, func(t *testing.T) {
			_, diags := loadText(t, text, func(s *Source) {
				k, v, _ := strings.Cut(tc.vars, "=")
				s.Vars[k] = v
			})
			if len(diags) != 1 || !strings.Contains(diags[0].Detail, tc.want) {
				t.Errorf("got %v, want one with %q", diags, tc.want)
			}
		})
	}
}

func TestUnusedVariableIsAWarning(t *testing.T) {
	_, diags := loadText(t, "experiment {}\nvariable \"x\" {\n  default = 1\n}\n")
	if len(diags) != 1 || diags.HasErrors() || diags[0].Summary != "Unused variable" {
		t.Errorf("got %v", diags)
	}
}

// A run folder stores the source as JSON with copies of the files; loading it gives the keys of the original.
func TestSourceOfARunFolderGivesTheSameKeys(t *testing.T) {
	x := loadFile(t, "testdata/valid/folder")
	dir := filepath.Join(t.TempDir(), "files")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range x.Paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, filepath.Base(path)), string(text))
	}
	b, err := json.Marshal(Source{Path: dir, Vars: x.Vars, Base: x.Dir, Name: x.Name, Digests: x.Digests})
	if err != nil {
		t.Fatal(err)
	}
	var src Source
	if err := json.Unmarshal(b, &src); err != nil {
		t.Fatal(err)
	}
	copied, diags := Load(src, paperKinds())
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	if copied.Name != "folder" {
		t.Errorf("name: got %q", copied.Name)
	}
	if got, want := keysOf(copied), keysOf(x); !equalMaps(got, want) {
		t.Errorf("keys: got %v, want %v", got, want)
	}
}

func TestFindExperiment(t *testing.T) {
	dir := t.TempDir()
	if _, err := FindExperiment(dir); err == nil {
		t.Error("an empty folder: got no error")
	}
	one := filepath.Join(dir, "one.hcl")
	writeFile(t, one, "experiment {}\n")
	writeFile(t, filepath.Join(dir, "site.hcl"), "store {}\n")
	if got, err := FindExperiment(dir); got != one || err != nil {
		t.Errorf("one file: got %q, %v", got, err)
	}
	writeFile(t, filepath.Join(dir, "more.hcl"), "locals {}\n")
	if got, err := FindExperiment(dir); got != dir || err != nil {
		t.Errorf("a folder: got %q, %v", got, err)
	}
	writeFile(t, filepath.Join(dir, "two.hcl"), "experiment {}\n")
	if _, err := FindExperiment(dir); err == nil || !strings.Contains(err.Error(), "one.hcl") {
		t.Errorf("two experiments: got %v, want both named", err)
	}
}

func TestFindAcceptsShortAddresses(t *testing.T) {
	x := loadFile(t, "testdata/valid/paper.hcl")
	for address, want := range map[string]int{
		`stage.grpo.arm["sft"]@3`: 1, "grpo.arm[sft]@3": 1, "grpo.arm[sft]": 3, "grpo.arm": 6, "grpo.arm@2": 2, "tasks.bfcl": 1,
	} {
		nodes, err := x.Find(address)
		if err != nil || len(nodes) != want {
			t.Errorf("%s: got %d nodes, %v, want %d", address, len(nodes), err, want)
		}
	}
	if _, err := x.Find("gpro.arm[sft]@3"); err == nil || !strings.Contains(err.Error(),
		"did you mean grpo.arm[sft]@3?") {
		t.Errorf("misspelt: got %v", err)
	}
}

func TestSiteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "site.hcl")
	writeFile(t, path, `
store {
  path  = "cache"
  limit = "200GB"
}
data {
  bfcl = "~/bfcl"
}
executor "local" {
  gpus   = ["0", 3]
  cpus   = 6
  memory = "64GiB"
}
default_executor = "local"
`)
	site, _, diags := LoadSite(Source{Site: path, Env: []string{"HOME=/home/me"}})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	if site.StorePath != filepath.Join(dir,
		"cache") || site.Limit != 200e9 || site.BFCL != "/home/me/bfcl" || site.CPUs != 6 ||
		site.Memory != 64<<30 || site.AutoGPUs || !slices.Equal(site.GPUs, []string{"0", "3"}) {
		t.Errorf("got %+v", site)
	}
	for text, want := range map[string]string{
		"executor \"slurm\" {}\n":                "Unknown executor",
		"stor {}\n":                              "Unknown block",
		"executor \"local\" {\n  cpus = 0\n}\n":  "Bad number",
		"executor \"local\" {\n  gpus = true\n}": "Wrong type",
		"default_executor = \"k8s\"\n":           "Unknown executor",

		"executor \"local\" {}\nexecutor \"local\" {}\n": "Duplicate executor",
		"executor \"local\" {\n  gpus = [0, \"0\"]\n}\n": "Duplicate device",
		"executor \"local\" {\n  gpus = [true]\n}\n":     "Wrong type",
		"executor \"local\" {\n  memory = \"much\"\n}\n": "Wrong type",
		"executor {\n  cpus = 2\n}\n":                    "Missing label",
		"store {\n  path = \"\"\n}\n":                    "No store",
		"store {\n  limit = 200\n}\n":                    "Wrong type",
		"store {\n}\nstore {\n}\n":                       "Duplicate block",
		"data {\n  bfcl = 3\n}\n":                        "Wrong type",
		"data {\n  bfcl = \"a\"\n}\ndata {\n}\n":         "Duplicate block",
		"data \"bfcl\" {\n}\n":                           "Unexpected label",
		"data {\n  folder {\n  }\n}\n":                   "Unknown block",
		"site = 3\n":                                     "Unknown setting",
		"store {\n  path = var.x\n}\n":                   "Unknown variable",
		"store {\n  path = \"x\n}\n":                     "Invalid multi-line string",
	} {
		writeFile(t, path, text)
		if _, _, diags := LoadSite(Source{Site: path}); len(diags) != 1 || diags[0].Summary != want {
			t.Errorf("%q: got %v, want %s", text, diags, want)
		}
	}
	for text, want := range map[string]string{
		"stroe {\n}\n":                                  "store",
		"store {\n  pth = \"x\"\n}\n":                   "path",
		"store {\n  limt = \"1GB\"\n}\n":                "limit",
		"dat {\n}\n":                                    "data",
		"data {\n  bfc1 = \"x\"\n}\n":                   "bfcl",
		"executer \"local\" {\n}\n":                     "executor",
		"executor \"locla\" {\n}\n":                     "local",
		"executor \"local\" {\n  gpu = \"auto\"\n}\n":   "gpus",
		"executor \"local\" {\n  memroy = \"1GB\"\n}\n": "memory",
		"defualt_executor = \"local\"\n":                "default_executor",
		"default_executor = \"lcoal\"\n":                "local",
	} {
		writeFile(t, path, text)
		if _, _, diags := LoadSite(Source{Site: path}); len(diags) != 1 || !strings.Contains(diags[0].Detail,
			"did you mean "+want+"?") {
			t.Errorf("%q: got %v, want %s", text, diags, want)
		}
	}
	site, _, _ = LoadSite(Source{Env: []string{"HOME=/home/me"}})
	if site.StorePath != "/home/me/.cache/rcgrpo" || !site.AutoGPUs {
		t.Errorf("without a file: got %+v", site)
	}
}

func TestEval(t *testing.T) {
	x := loadFile(t, "testdata/valid/paper.hcl")
	for expression, want := range map[string]string{
		"var.updates - 1":                        "349",
		"stage.sft.warm":                         "stage.sft.warm",
		`stage.grpo.arm["sft"].checkpoint`:       `stage.grpo.arm["sft"].checkpoint`,
		"[for k, v in local.inits : upper(k)]":   `["RCTP", "SFT"]`,
		`{ a = true, "b c" = null, d = "${1}x"}`: `{ a = true, "b c" = null, d = "1x" }`,
	} {
		got, diags := x.Eval(expression)
		if diags.HasErrors() || got != want {
			t.Errorf("%s: got %s, %v, want %s", expression, got, diags, want)
		}
	}
	if _, diags := x.Eval("var.update"); len(diags) != 1 || !strings.Contains(diags[0].Detail,
		"did you mean var.updates?") {
		t.Errorf("misspelt: got %v", diags)
	}
}

// Large files are hashed once: while the stat data are unchanged, the digest comes from the store's cache.
func TestDigestsOfLargeFilesAreCached(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "weights.bin")
	writeFile(t, path, strings.Repeat("x", cacheFrom))
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(dir, "store", "digests.json")
	first := digests{cache: cache}
	want, err := first.of(path, path, false)
	if err != nil {
		t.Fatal(err)
	}
	first.save()
	second := digests{cache: cache}
	if got, err := second.of(path, path, false); got != want || err != nil || second.dirty {
		t.Errorf("again: got %s, %v, dirty %v, want %s from memory", got, err, second.dirty, want)
	}
	writeFile(t, path, strings.Repeat("y", cacheFrom)) // same size, just written: not to be remembered yet
	third := digests{cache: cache}
	if got, err := third.of(path, path, false); got == want || err != nil || third.dirty {
		t.Errorf("changed: got %s, %v, dirty %v", got, err, third.dirty)
	}
}

// Cached digests are used while the stat data are unchanged, and never if paranoid.
func TestParanoidIgnoresCachedDigests(t *testing.T) {
	dir := t.TempDir()
	path, file := filepath.Join(dir, "x.hcl"), filepath.Join(dir, "weights.bin")
	writeFile(t, path, "experiment {}\nstage \"model\" \"m\" {\n  path = file(\"weights.bin\")\n}\n")
	writeFile(t, filepath.Join(dir, "site.hcl"), "store {\n  path = \"store\"\n}\n")
	writeFile(t, file, strings.Repeat("x", cacheFrom))
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	load := func(paranoid bool) string {
		return loadFile(t, path, func(s *Source) {
			s.Site, s.Paranoid = filepath.Join(dir, "site.hcl"),
				paranoid
		}).Digests[file]
	}
	right := load(false)
	memory := filepath.Join(dir, "store", "digests.json")
	b, err := os.ReadFile(memory)
	if err != nil {
		t.Fatal(err)
	}
	wrong := strings.Repeat("0", len(right))
	writeFile(t, memory, strings.ReplaceAll(string(b), right, wrong))
	if got := load(false); got != wrong {
		t.Errorf("got %s, want the one remembered", got)
	}
	if got := load(true); got != right {
		t.Errorf("paranoid: got %s, want %s", got, right)
	}
}

func TestRegistryCheck(t *testing.T) {
	if got := paperKinds().Check(); len(got) > 0 {
		t.Errorf("sound kinds: got %v", got)
	}
	type bad struct {
		toyModel
		Seed  int      `hcl:"seed,optional"`
		Other chan int `hcl:"other"`
		Odd   int      `hcl:"odd,sometimes"`
	}
	k := &Kind{Name: "bad", New: func() Stage { return &bad{} }}
	got := strings.Join(Registry{k, k}.Check(), "\n")
	for _, want := range []string{"twice in the list", "no summary", "version 0",
		"setting seed means something else", "chan int", `"sometimes"`} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %q in it", got, want)
		}
	}
}
