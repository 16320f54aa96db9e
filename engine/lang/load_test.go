package lang_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
)

const paperFile = "testdata/valid/paper.hcl"

func loadFile(t *testing.T, path string, change ...func(*lang.Source)) *lang.Experiment {
	t.Helper()
	src := lang.Source{Path: path, Vars: map[string]string{}}
	for _, c := range change {
		c(&src)
	}
	x, diags := lang.Load(src, enginetest.PaperKinds())
	if len(diags) > 0 {
		t.Fatalf("load %s: %s", path, diags)
	}
	return x
}

func addresses(nodes []*lang.Node) []string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.Address)
	}
	slices.Sort(out)
	return out
}

func wantEqual[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// wantList compares two lists of strings.
func wantList(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func inputsOf(n *lang.Node) []string {
	var out []string
	for _, in := range n.Inputs {
		out = append(out, in.Setting+" = "+in.From.Address+"."+in.Ref.Port)
	}
	return out
}

func TestPaperExperimentHasTheNodesOfThePaper(t *testing.T) {
	x := loadFile(t, paperFile)
	var multiplied, single int
	for _, n := range x.Nodes {
		if strings.Contains(n.Address, "@") {
			multiplied++
		} else {
			single++
		}
	}
	// Once: base model, tasks, scores of Base, report, exec. For each of three seeds: rollout, curate, two
	// warm starts, four arms and their four evaluations.
	if single != 5 || multiplied != 3*12 {
		t.Errorf("got %d single and %d multiplied nodes, want 5 and 36: %v", single, multiplied, addresses(x.Nodes))
	}
	for address, want := range map[string][]string{
		`stage.grpo.arm["rctp"]@2`: {"policy = stage.rctp-ft.warm@2.checkpoint", "tasks = stage.tasks.bfcl.train"},
		`stage.eval.arm["Base"]`:   {"policy = stage.model.base.checkpoint", "tasks = stage.tasks.bfcl.test"},
		"stage.exec.score":         {"inputs.page = stage.report.paper.page"},
	} {
		wantList(t, "inputs of "+address, inputsOf(x.Node(address)), want...)
	}
	arm := x.Node(`stage.grpo.arm["rctp"]@2`)
	s := arm.Stage.(*enginetest.PaperGRPO)
	if s.Updates != 350 || s.Group != 8 || s.Clip.Low != 0.1 || s.Clip.High != 0.2 {
		t.Errorf("settings: got %+v %+v, want the file's values over the defaults", s, s.Clip)
	}
	if arm.Resources != (lang.Resources{GPUs: 8, CPUs: 2, Memory: 64e9, GPUMemory: 40 << 30}) ||
		arm.Timeout != 48*time.Hour || arm.Doc != "unconditioned" ||
		arm.Retry.Attempts != 3 || len(arm.Retry.On) != 2 || arm.Retry.Backoff != 30*time.Second {
		t.Errorf("settings of every stage: got %+v %v %+v %q", arm.Resources, arm.Timeout, arm.Retry, arm.Doc)
	}
	warm := x.Node("stage.sft.warm@1").Stage.(*enginetest.PaperTrain)
	wantList(t, "names", warm.Names, "n0", "n1")
	if warm.Epochs != 2 || warm.LR != 1e-5 || warm.Limit != 90*time.Minute || warm.Weights["b"] != 2 ||
		warm.Warmup != nil || warm.Tokens.High != 1 {
		t.Errorf("warm start: got %+v", warm)
	}
	report := x.Node("stage.report.paper")
	wantEqual(t, "artifacts of the report", len(report.Inputs), 1+4*3+4*3) // Base; scores, curves of 4 arms, 3 seeds
	exec := x.Node("stage.exec.score")
	wantEqual(t, "files of exec", len(exec.Files), 1)
	wantList(t, "exec waits", addresses(exec.DependsOn), "stage.sft.warm@1", "stage.sft.warm@2", "stage.sft.warm@3")
	for i, n := range x.Nodes {
		for _, in := range n.Inputs {
			if slices.Index(x.Nodes, in.From) >= i {
				t.Errorf("%s precedes %s, which it reads", n.Address, in.From.Address)
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

func TestSeedsMultiplyStagesThatDependOnChance(t *testing.T) {
	const pinned = "stage \"curate\" \"p\" {\n tasks = stage.tasks.drawn.train\n seed = 2\n}\n"
	for name, tc := range map[string]struct {
		before, tasks, setting string   // of stage.eval.x
		want                   []string // besides the nodes of seedsHead
	}{
		"no chance enters":           {"", "fixed", "", []string{"stage.eval.x"}},
		"an input depends on chance": {"", "drawn", "", []string{"stage.eval.x@1", "stage.eval.x@2"}},
		"the stage draws":            {"", "fixed", "sample = true", []string{"stage.eval.x@1", "stage.eval.x@2"}},
		"the stage is pinned to a seed outside the list": {"", "drawn", "seed = 7",
			[]string{"stage.eval.x", "stage.tasks.drawn@7"}},
		"all inputs are pinned": {pinned, "fixed", "depends_on = [stage.curate.p]",
			[]string{"stage.curate.p", "stage.eval.x"}},
	} {
		t.Run(name, func(t *testing.T) {
			x := enginetest.MustLoadPaper(t, fmt.Sprintf("%s%sstage \"eval\" \"x\" {\n policy = stage.model.base\n"+
				" tasks = stage.tasks.%s.test\n %s\n}\n", seedsHead, tc.before, tc.tasks, tc.setting))
			want := append(tc.want, "stage.model.base", "stage.tasks.drawn@1", "stage.tasks.drawn@2", "stage.tasks.fixed")
			slices.Sort(want)
			wantList(t, "nodes", addresses(x.Nodes), want...)
			if x.Node("stage.tasks.drawn@7") == nil {
				return
			}
			if n := x.Node("stage.eval.x"); n.Inputs[1].From.Address != "stage.tasks.drawn@7" || *n.Seed != 7 {
				t.Errorf("pinned stage: got %v, seed %v, want the nodes of seed 7", inputsOf(n), *n.Seed)
			}
		})
	}
}

func TestWithoutSeedsNoAddressHasOne(t *testing.T) {
	x := enginetest.MustLoadPaper(t, strings.Replace(seedsHead, "seeds = [1, 2]", "", 1)+
		"stage \"curate\" \"c\" {\n tasks = stage.tasks.drawn.train\n seed = 5\n}\n")
	wantList(t, "nodes", addresses(x.Nodes), "stage.curate.c", "stage.model.base", "stage.tasks.drawn",
		"stage.tasks.drawn@5", "stage.tasks.fixed")
	wantEqual(t, "seed", *x.Node("stage.tasks.drawn").Seed, 1)
}

func TestConditionalSelectsBetweenStagesOfDifferentKinds(t *testing.T) {
	x := enginetest.MustLoadPaper(t, strings.Replace(seedsHead, "seeds = [1, 2]", "", 1)+`
stage "curate" "data" {
  tasks = stage.tasks.fixed.train
}
stage "sft" "warm" {
  policy = stage.model.base
  data   = stage.curate.data.expert
}
stage "eval" "e" {
  policy = 1 > 2 ? stage.model.base : stage.sft.warm
  tasks  = stage.tasks.fixed.test
}
`)
	wantEqual(t, "policy", x.Node("stage.eval.e").Inputs[0].From.Address, "stage.sft.warm")
}

func TestRetryAcceptsPatternsBesidesTheCauses(t *testing.T) {
	const retry = "retry {\n attempts = 2\n on = [\"nan in the loss\", \"(timeuot)\", \"preempted\"]\n}"
	enginetest.MustLoadPaper(t, strings.Replace(seedsHead, `"bfcl"`, "\"bfcl\"\n"+retry, 1))
}

func TestInputReturnsTheNodeOfAReference(t *testing.T) {
	x := loadFile(t, paperFile)
	n := x.Node(`stage.grpo.arm["sft"]@3`)
	in, ok := n.Input(n.Stage.(*enginetest.PaperGRPO).Policy)
	if !ok || in.From.Address != "stage.sft.warm@3" {
		t.Errorf("got %v, %v, want stage.sft.warm@3", in.From, ok)
	}
	report := x.Node("stage.report.paper")
	for _, ref := range report.Stage.(*enginetest.PaperReport).Scores {
		if in, ok := report.Input(ref); !ok || in.Ref != ref && *in.Ref.Seed != *ref.Seed {
			t.Errorf("%+v: got %+v", ref, in)
		}
	}
	if _, ok := n.Input(artifact.Ref{Kind: "sft", Name: "cold", Port: "checkpoint"}); ok {
		t.Error("reference outside the inputs: got an input, want none")
	}
}

func TestDisabledStagesDisableTheirReadersButNotReports(t *testing.T) {
	x := enginetest.MustLoadPaper(t, `
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
	wantList(t, "nodes", addresses(x.Nodes),
		`stage.eval.e["a"]`, `stage.model.m["a"]`, "stage.report.r", "stage.tasks.t")
	wantList(t, "disabled", x.Disabled, `stage.model.m["b"]`, `stage.eval.e["b"]`)
	wantList(t, "report", inputsOf(x.Node("stage.report.r")), `scores[0] = stage.eval.e["a"].scores`)
}

func TestReportsHaveNoReferenceToADisabledStageWithOneNode(t *testing.T) {
	x := enginetest.MustLoadPaper(t, `
stage "tasks" "t" {
  source = "bfcl"
}
stage "model" "m" {
  path = file("raw.csv")
}
stage "eval" "e" {
  for_each = toset(["a", "b"])
  enabled  = each.key == "b"
  seed     = 1
  policy   = stage.model.m
  tasks    = stage.tasks.t.test
}
stage "report" "r" {
  scores = stage.eval.e
}
experiment {}
`)
	wantList(t, "report", inputsOf(x.Node("stage.report.r")), `scores[0] = stage.eval.e["b"].scores`)
}

// summary is a stage of a kind across seeds with a setting for one artifact.
type summary struct {
	First artifact.Ref `hcl:"first" port:"files"`
}

func (*summary) Check() hcl.Diagnostics { return nil }

func TestAKindAcrossSeedsIsDisabledWithTheStageOfASingleReference(t *testing.T) {
	kinds := append(enginetest.ToyKinds(), &lang.Kind{Name: "summary", Summary: "of one", Version: 1,
		New: func() lang.Stage { return &summary{} }, Outputs: enginetest.FilesOut, AcrossSeeds: true, InProcess: true})
	x, diags := enginetest.Load(t, kinds, `
stage "light" "off" {
  enabled = false
}
stage "summary" "s" {
  first = stage.light.off
}
`)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	wantList(t, "nodes", addresses(x.Nodes))
	wantList(t, "disabled", x.Disabled, "stage.light.off", "stage.summary.s")
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
	file := filepath.Join(t.TempDir(), "vars.hcl")
	enginetest.WriteFile(t, file, "samples = 3\nname = \"file\"\n")
	change := func(s *lang.Source) {}
	for _, tc := range []struct {
		source string
		add    func(*lang.Source)
		want   []string
	}{
		{"default", func(s *lang.Source) {}, []string{"echo", "none", "1"}},
		{"environment", func(s *lang.Source) {
			s.Env = []string{"RCGRPO_VAR_samples=2", "RCGRPO_VAR_name=env", "RCGRPO_VAR_other=1"}
		}, []string{"echo", "env", "2"}},
		{"file", func(s *lang.Source) { s.VarFiles = []string{file} }, []string{"echo", "file", "3"}},
		{"flag", func(s *lang.Source) { s.Vars["samples"] = "4" }, []string{"echo", "file", "4"}},
	} {
		before := change
		change = func(s *lang.Source) { before(s); tc.add(s) }
		x := enginetest.MustLoadPaper(t, text, change)
		again := enginetest.MustLoadPaper(t, text, func(s *lang.Source) { s.Vars = x.Vars }) // from a run folder
		for _, x := range []*lang.Experiment{x, again} {
			wantList(t, tc.source, x.Nodes[0].Stage.(*enginetest.PaperExec).Command, tc.want...)
		}
	}
}

func TestMistakesInVariablesAreReported(t *testing.T) {
	const declared = "experiment {}\nvariable \"samples\" {\n  default = 1\n}\n"
	for given, want := range map[string]string{"sampels=3": "did you mean samples?",
		"samples=many": "is not a value of type number"} {
		_, diags := enginetest.LoadPaper(t, declared+"locals {\n  s = var.samples\n}\n", func(s *lang.Source) {
			name, value, _ := strings.Cut(given, "=")
			s.Vars[name] = value
		})
		if len(diags) != 1 || !strings.Contains(enginetest.Mistakes(diags), want) {
			t.Errorf("--var %s: got %v, want one diagnostic with %q", given, diags, want)
		}
	}
	if _, diags := enginetest.LoadPaper(t, declared); len(diags) != 1 || diags[0].Summary != "Unused variable" ||
		diags.HasErrors() {
		t.Errorf("unused: got %v, want a warning", diags)
	}
}

// A run folder stores the source as JSON beside copies of the files.
func TestSourceOfARunFolderGivesTheSameKeys(t *testing.T) {
	x := loadFile(t, "testdata/valid/folder")
	dir := filepath.Join(t.TempDir(), "files")
	must.OK(t, os.Mkdir(dir, 0o700))
	for _, path := range x.Paths {
		text := must.Get(os.ReadFile(path))(t)
		enginetest.WriteFile(t, filepath.Join(dir, filepath.Base(path)), string(text))
	}
	written := lang.Source{Path: dir, Vars: x.Vars, Base: x.Dir, Name: x.Name, Digests: x.Digests}
	b := must.Get(json.Marshal(written))(t)
	var src lang.Source
	must.OK(t, json.Unmarshal(b, &src))
	copied, diags := lang.Load(src, enginetest.PaperKinds())
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	wantEqual(t, "name", copied.Name, "folder")
	wantEqual(t, "keys", enginetest.Keys(copied), enginetest.Keys(x))
}

func TestFindExperimentReturnsTheOnlyExperiment(t *testing.T) {
	dir := t.TempDir()
	one := filepath.Join(dir, "one.hcl")
	for _, step := range []struct{ name, text, want, err string }{
		{"site.hcl", "store {}\n", "", "no experiment"},
		{"one.hcl", "experiment {}\n", one, ""},
		{"more.hcl", "locals {}\n", dir, ""},
		{"two.hcl", "experiment {}\n", "", "one.hcl"},
	} {
		enginetest.WriteFile(t, filepath.Join(dir, step.name), step.text)
		got, err := lang.FindExperiment(dir, nil)
		must.Match(t, err, step.err, "with", step.name)
		wantEqual(t, "with "+step.name, got, step.want)
	}
}

func TestSiteFileSetsStoreDataAndExecutor(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "site.hcl")
	enginetest.WriteFile(t, path, `
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

  gpu_reserve = "0B"
}
default_executor = "local"
api "KEY" {
  requests_per_minute = 60
  prices              = { m = [0.5, 2] }
}
`)
	site, _, diags := lang.LoadSite(lang.Source{Site: path, Env: []string{"HOME=/home/me"}})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	wantList(t, "GPUs", site.GPUs, "0", "3")
	if site.StorePath != filepath.Join(dir, "cache") || site.Limit != 200e9 || site.BFCL != "/home/me/bfcl" ||
		site.CPUs != 6 || site.Memory != 64<<30 || site.AutoGPUs || site.GPUReserve != 0 {
		t.Errorf("got %+v, want the values of the file", site)
	}
	if api := site.APIs["KEY"]; api.RequestsPerMinute != 60 || api.TokensPerMinute != 0 || api.Prices["m"][1] != 2 {
		t.Errorf("got %+v, want the rate and the price of the file", api)
	}
	site, _, _ = lang.LoadSite(lang.Source{Env: []string{"HOME=/home/me"}})
	if site.StorePath != "/home/me/.cache/rcgrpo" || !site.AutoGPUs || site.GPUReserve != 4<<30 {
		t.Errorf("without a file: got %+v, want the defaults", site)
	}
}

func TestSiteFileSetsRemote(t *testing.T) {
	path := filepath.Join(t.TempDir(), "site.hcl")
	enginetest.WriteFile(t, path, remoteText+"  push = \"yes\"\n}\n")
	site, _, diags := lang.LoadSite(lang.Source{Site: path})
	r := site.Remote
	if len(diags) > 0 || r == nil {
		t.Fatalf("got %v, %v, want a remote", r, diags)
	}
	if r.Name != "a" || r.Folder != filepath.Join(filepath.Dir(path), "x") || !r.Pull || r.Push != "yes" ||
		r.Parallel != 16 {
		t.Errorf("got %+v", r)
	}
	for url, want := range map[string]lang.S3{
		"s3://lab": {Host: "s3.amazonaws.com", TLS: true, Bucket: "lab"},
		"s3://lab/a/b/?endpoint=http://localhost:9&region=eu": {"localhost:9", false, "eu", "lab", "a/b/"},
	} {
		enginetest.WriteFile(t, path, strings.Replace(remoteText, `"x"`, strconv.Quote(url), 1)+"}\n")
		site, _, diags := lang.LoadSite(lang.Source{Site: path})
		if len(diags) > 0 || site.Remote.S3 == nil || *site.Remote.S3 != want {
			t.Errorf("%s: got %+v, %v, want %+v", url, site.Remote, diags, want)
		}
	}
	enginetest.WriteFile(t, path, "")
	site, _, diags = lang.LoadSite(lang.Source{Site: path})
	if len(diags) > 0 || site.Remote != nil {
		t.Errorf("got %+v, %v, want no remote", site, diags)
	}
}

const remoteText = "remote \"a\" {\n  url = \"x\"\n"

func TestMistakesInSiteFilesAreReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "site.hcl")
	for text, want := range map[string]string{ // a summary, or the hint of a misspelling
		"executor \"k8s\" {}\n":                                "Unknown executor",
		"executor \"a\" {\n  type = \"local\"\n}\n":            "Second local executor",
		"executor \"local\" {\n  type = \"slurm\"\n}\n":        "Reserved name",
		"executor \"local\" {\n  partition = \"x\"\n}\n":       "Setting of another executor",
		"executor \"slurm\" {\n  gpus = [0]\n}\n":              "Setting of another executor",
		"executor \"slurm\" {\n  cpus = \"auto\"\n}\n":         "Wrong type",
		"executor \"slurm\" {\n  memory = \"1kB\"\n}\n":        "memory must be at least 1MiB",
		"executor \"slurm\" {\n  poll = \"0s\"\n}\n":           "poll must be at least 1s",
		"executor \"slurm\" {\n  time = \"5s\"\n}\n":           "time must be at least 1m0s",
		"executor \"slurm\" {\n  factor = 0.5\n}\n":            "factor must be at least 1",
		"executor \"slurm\" {\n  jobs = -1\n}\n":               "jobs must be at least 1",
		"executor \"slurm\" {\n  extra = [\"x\"]\n}\n":         "Bad option",
		"executor \"slurm\" {\n  env = { SLURM_X = \"1\" }\n}": "Bad variable",
		"executor \"local\" {\n  cpus = -1\n}\n":               "Bad number",
		"executor \"local\" {\n  gpus = true\n}":               "Wrong type",
		"default_executor = \"k8s\"\n":                         "Unknown executor",
		"executor \"local\" {}\nexecutor \"local\" {}\n":       "Duplicate executor",
		"executor \"local\" {\n  gpus = [0, \"0\"]\n}\n":       "Duplicate device",
		"executor \"local\" {\n  gpus = [true]\n}\n":           "Wrong type",
		"executor \"local\" {\n  memory = \"much\"\n}\n":       "Wrong type",
		"api \"K\" {}\napi \"K\" {}\n":                         "Duplicate API key",
		"api \"K\" {\n  prices = { m = [1] }\n}\n":             "Bad price",
		"api \"K\" {\n  tokens_per_minute = -1\n}\n":           "Bad number",
		"store {\n  path = \"\"\n}\n":                          "No store",
		"data {\n  bfcl = \"a\"\n}\ndata {\n}\n":               "Duplicate block",
		"site = 3\n":                                           "Unknown setting",
		"store {\n  path = var.x\n}\n":                         "Unknown variable",
		"store {\n  path = \"x\n}\n":                           "Invalid multi-line string",
		"stroe {\n}\n":                                         "did you mean store?",
		"store {\n  pth = \"x\"\n}\n":                          "did you mean path?",
		"store {\n  limt = \"1GB\"\n}\n":                       "did you mean limit?",
		"default_executor = \"lcoal\"\n":                       "did you mean local?",

		"remote {\n  url = \"x\"\n}\n":                                   "Missing label",
		"remote \"a\" {\n}\n":                                            "Missing setting",
		"remote \"a/b\" {\n  url = \"x\"\n}\n":                           "Bad name",
		"remote \"a\" {\n  url = \"gs://x\"\n}\n":                        `got "gs://"`,
		"remote \"a\" {\n  url = \"s3:///x\"\n}\n":                       "is not a bucket",
		"remote \"a\" {\n  url = \"s3://k:s@x\"\n}\n":                    "credentials belong in AWS_ACCESS_KEY_ID",
		"remote \"a\" {\n  url = \"s3://x?zone=eu\"\n}\n":                `unknown parameter "zone"`,
		"remote \"a\" {\n  url = \"s3://x?endpoint=h:9\"\n}\n":           `is not such as https://`,
		"remote \"a\" {\n  url = \"s3://x?endpoint=https://k:s@h\"\n}\n": "credentials belong in",
		remoteText + "  push = \"always\"\n}\n":                          "push",
		remoteText + "  parallel = 0\n}\n":                               "parallel must be from 1 to 256",
		remoteText + "}\nremote \"b\" {\n}\n":                            "Duplicate block",
	} {
		enginetest.WriteFile(t, path, text)
		_, _, diags := lang.LoadSite(lang.Source{Site: path})
		if len(diags) != 1 || !strings.Contains(diags[0].Summary+": "+diags[0].Detail, want) {
			t.Errorf("%q: got %v, want one diagnostic with %q", text, diags, want)
		}
	}
}

// The digest of a large file is reused while size and times of the file are the same, except with Paranoid.
// A file that was just written may change again within its time stamp, so its digest is not stored.
func TestDigestsOfLargeFilesAreCached(t *testing.T) {
	dir := t.TempDir()
	path, file := filepath.Join(dir, "x.hcl"), filepath.Join(dir, "weights.bin")
	site, cache := filepath.Join(dir, "site.hcl"), filepath.Join(dir, "store", "digests.json")
	enginetest.WriteFile(t, path, "experiment {}\nstage \"model\" \"m\" {\n  path = file(\"weights.bin\")\n}\n")
	enginetest.WriteFile(t, site, "store {\n  path = \"store\"\n}\n")
	digest := func(paranoid bool) string {
		return loadFile(t, path, func(s *lang.Source) { s.Site, s.Paranoid = site, paranoid }).Digests[file]
	}
	enginetest.WriteFile(t, file, strings.Repeat("x", 1<<20)) // the smallest large file
	first := digest(false)
	if b, _ := os.ReadFile(cache); strings.Contains(string(b), first) {
		t.Error("the digest of a file that was just written is stored")
	}
	old := time.Now().Add(-time.Hour)
	must.OK(t, os.Chtimes(file, old, old))
	wantEqual(t, "after a touch", digest(false), first)
	b := must.Get(os.ReadFile(cache))(t)
	fake := strings.Repeat("0", len(first))
	enginetest.WriteFile(t, cache, strings.ReplaceAll(string(b), first, fake))
	wantEqual(t, "the stored digest", digest(false), fake)
	wantEqual(t, "with Paranoid", digest(true), first)
	enginetest.WriteFile(t, file, strings.Repeat("y", 1<<20))
	if got := digest(false); got == first || got == fake {
		t.Errorf("other content of the same size: got %s, want another digest", got)
	}
}

// The store may be a copy of someone else's.
func TestACacheOfDigestsThatIsNoPlainFileIsNotRead(t *testing.T) {
	for name, put := range must.NoPlainFiles {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, file := filepath.Join(dir, "x.hcl"), filepath.Join(dir, "weights.bin")
			enginetest.WriteFile(t, path, "experiment {}\nstage \"model\" \"m\" {\n  path = file(\"weights.bin\")\n}\n")
			enginetest.WriteFile(t, file, strings.Repeat("x", 1<<20)) // the smallest large file
			site := filepath.Join(dir, "site.hcl")
			enginetest.WriteFile(t, site, "store {\n  path = \"store\"\n}\n")
			must.OK(t, os.Mkdir(filepath.Join(dir, "store"), 0o700))
			must.OK(t, put(filepath.Join(dir, "store", "digests.json")))
			got := loadFile(t, path, func(s *lang.Source) { s.Site = site }).Digests[file]
			wantEqual(t, "the digest", got, must.Get(artifact.FileDigest(file))(t))
		})
	}
}
