package lang_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
)

const composed = `
experiment {
  seeds = [1, 2]
}
stage "model" "base" {
  layers = 2
}
stage "tasks" "t" {
  source = "bfcl"
}
`

const arm = `
stage "grpo" "arm" {
  policy = stage.model.base.checkpoint
  tasks  = stage.tasks.t.train
%s
}
`

// withFile writes a file beside the experiment.
func withFile(t *testing.T, name, text string) func(*lang.Source) {
	return func(src *lang.Source) {
		path := filepath.Join(filepath.Dir(src.Path), name)
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
		enginetest.WriteFile(t, path, text)
	}
}

// sameKeys loads both texts and compares the keys of their nodes.
func sameKeys(t *testing.T, one, other string) {
	t.Helper()
	a, b := enginetest.Keys(enginetest.MustLoadPaper(t, one)), enginetest.Keys(enginetest.MustLoadPaper(t, other))
	if len(a) == 0 || !maps.Equal(a, b) {
		t.Errorf("the keys differ:\n%v\n%v", a, b)
	}
}

func TestObjectsAndDefaultsGiveTheKeysOfABlock(t *testing.T) {
	block := composed + fmt.Sprintf(arm, "  clip {\n    low = 0.1\n  }")
	for name, text := range map[string]string{
		"literal":      fmt.Sprintf(arm, "  clip = { low = 0.1 }"),
		"local":        "locals {\n  c = { low = 0.1, high = null }\n}\n" + fmt.Sprintf(arm, "  clip = local.c"),
		"merged":       fmt.Sprintf(arm, "  clip = merge({ high = 9 }, { low = 0.1, high = 0.2 })"),
		"each value":   strings.ReplaceAll(fmt.Sprintf(arm, "  clip = { low = 0.1 }"), "0.1", `jsondecode("0.1")`),
		"of resources": fmt.Sprintf(arm, "  clip = { low = 0.1 }\n  resources = { cpus = 2 }\n  retry = null"),
		"in defaults":  "defaults {\n  clip = { low = 0.1 }\n}\n" + fmt.Sprintf(arm, ""),
		"in defaults of the kind": "defaults \"grpo\" {\n  policy = stage.model.base\n  tasks = stage.tasks.t.train\n}\n" +
			"stage \"grpo\" \"arm\" {\n  clip = { low = 0.1 }\n}\n",
	} {
		t.Run(name, func(t *testing.T) { sameKeys(t, block, composed+text) })
	}
	sameKeys(t, composed+fmt.Sprintf(arm, ""), composed+fmt.Sprintf(arm, "  clip = null"))

	repeated := composed + "stage \"report\" \"page\" {\n  %s\n}\n"
	blocks := "compare \"a\" {\n    pairs = [[\"x\", \"y\"]]\n  }\n  compare \"b\" {\n    pairs = []\n  }"
	sameKeys(t, fmt.Sprintf(repeated, blocks),
		fmt.Sprintf(repeated, `compare = { a = { pairs = [["x", "y"]] }, b = { pairs = [] } }`))
}

func TestDefaultsMergeByAttributeAndStrength(t *testing.T) {
	text := composed + `
defaults {
  updates = 3
  clip    = { low = 0.3 }
  epochs  = 7 # a setting of sft only
  timeout = "5m"
}
defaults "rc-grpo" "grpo" {
  updates = 4
  clip {
    high = 0.4
  }
}
` + fmt.Sprintf(arm, "  group = 2")
	x := enginetest.MustLoadPaper(t, text+strings.ReplaceAll(fmt.Sprintf(arm, "  updates = 5\n  clip = { low = 0.5 }"),
		`"arm"`, `"strong"`)+`
stage "curate" "data" {
  tasks = stage.tasks.t.train
}
stage "sft" "warm" {
  policy = stage.model.base.checkpoint
  data   = stage.curate.data.expert
}
`)
	settings := func(address string) map[string]string {
		got := map[string]string{}
		for _, s := range x.Node(address).Settings {
			got[s.Name] = strings.TrimSpace(s.Value + " " + s.From)
		}
		return got
	}
	want := map[string]string{"updates": `4 defaults "rc-grpo" "grpo"`, "group": "2", "clip.low": "0.3 defaults",
		"clip.high": `0.4 defaults "rc-grpo" "grpo"`}
	wantEqual(t, "arm", settings("stage.grpo.arm@1"), want)
	want["updates"], want["clip.low"], want["group"] = "5", "0.5", "8"
	wantEqual(t, "strong", settings("stage.grpo.strong@1"), want)
	wantEqual(t, "epochs of sft", settings("stage.sft.warm@1")["epochs"], "7 defaults")
	wantEqual(t, "timeout", x.Node("stage.grpo.arm@1").Timeout.Minutes(), 5)
}

func TestDefaultsWithoutAStageAreReported(t *testing.T) {
	_, diags := enginetest.LoadPaper(t, composed+"defaults \"grpo\" {\n  updates = 1\n}\n")
	if len(diags) != 1 || diags[0].Summary != "Unused defaults" {
		t.Errorf("got %v", diags)
	}
}

// instances returns name, key and updates of the grpo stages of the first seed.
func instances(x *lang.Experiment) (all []string) {
	for _, n := range x.Nodes {
		if n.Seed != nil && *n.Seed == 1 && n.Kind.Name == "grpo" {
			all = append(all, fmt.Sprintf("%s %s %d", n.Name, n.EachKey, n.Stage.(*enginetest.PaperGRPO).Updates))
		}
	}
	return all
}

func TestForEachOfAListKeepsItsOrder(t *testing.T) {
	x := enginetest.MustLoadPaper(t, composed+fmt.Sprintf(arm, "  for_each = [\"b\", \"a\", \"c\"]\n  group = 2")+
		fmt.Sprintf(strings.ReplaceAll(arm, "arm", "lr"),
			"  for_each = [64, 256, true]\n  updates = each.key == \"64\" ? 1 : 2"))
	wantList(t, "instances", instances(x), "arm b 200", "arm a 200", "arm c 200", "lr 64 1", "lr 256 2", "lr true 2")
}

func TestMatrixMakesEveryCombinationInOrder(t *testing.T) {
	x := enginetest.MustLoadPaper(t, composed+`
locals {
  inits = { sft = stage.model.base, none = stage.model.base }
}
stage "grpo" "arm" {
  for_each = [for m in matrix({ init = local.inits, updates = [9, 1] }) : m if m.key != "none/9"]
  policy   = each.value.init.checkpoint
  tasks    = stage.tasks.t.train
  updates  = each.value.updates
}
`)
	wantList(t, "instances", instances(x), "arm none/1 1", "arm sft/9 9", "arm sft/1 1")
}

const baseModule = `
experiment {
  question = "Is a base."
  seeds    = [7, 8, 9]
}
variable "layers" {
  default = 2
}
variable "data" {
  type    = any
  default = null
}
locals {
  raw = file("raw.csv")
}
stage "model" "base" {
  layers = var.layers
}
stage "tasks" "t" {
  source = "bfcl"
}
stage "curate" "data" {
  tasks = stage.tasks.t.train
}
stage "sft" "warm" {
  policy = stage.model.base.checkpoint
  data   = var.data == null ? stage.curate.data.expert : var.data
}
stage "report" "page" {
  curves = stage.sft.warm
}
`

const moduleUser = composed + `
module "base" {
  source = "base.hcl"
  layers = null # the default
}
stage "grpo" "arm" {
  policy = module.base.stage.sft.warm.checkpoint
  tasks  = stage.tasks.t.train
}
`

func TestAModuleAddsTheStagesThatAreReadWithTheKeysOfItsOwnFile(t *testing.T) {
	x := enginetest.MustLoadPaper(t, moduleUser, withFile(t, "base.hcl", baseModule))
	wantList(t, "nodes", addresses(x.Nodes), "module.base.stage.curate.data@1", "module.base.stage.curate.data@2",
		"module.base.stage.model.base@1", "module.base.stage.model.base@2", "module.base.stage.sft.warm@1",
		"module.base.stage.sft.warm@2", "module.base.stage.tasks.t", "stage.grpo.arm@1", "stage.grpo.arm@2",
		"stage.model.base@1", "stage.model.base@2", "stage.tasks.t")
	found := must.Get(x.Find("module.base.sft.warm"))(t)
	wantList(t, "Find", addresses(found), "module.base.stage.sft.warm@1", "module.base.stage.sft.warm@2")
	if len(x.Modules) != 1 || filepath.Base(x.Modules[0].Path) != "base.hcl" {
		t.Errorf("modules: got %v", x.Modules)
	}
	inModule := enginetest.Keys(x)
	alone := enginetest.MustLoadPaper(t, strings.Replace(baseModule, "[7, 8, 9]", "[1, 2]", 1))
	for address, key := range enginetest.Keys(alone) {
		if got := inModule["module.base."+address]; got != key && !strings.Contains(address, "report") {
			t.Errorf("%s: the key in a module differs", address)
		}
	}
}

func TestModulesNestAndRepeat(t *testing.T) {
	models := `
variable "sizes" {
  type = any
}
module "base" {
  source   = "base.hcl"
  for_each = var.sizes
  layers   = each.value
}
stage "grpo" "inner" {
  for_each = var.sizes
  policy   = module.base[each.key].stage.sft.warm.checkpoint
  tasks    = module.base[each.key].stage.tasks.t.train
}
`
	x := enginetest.MustLoadPaper(t, composed+`
module "models" {
  source = "sub/models.hcl"
  sizes  = { small = 2, large = 5 }
}
stage "report" "page" {
  curves = module.models.stage.grpo.inner
}
stage "rollout" "direct" {
  policy = module.models.module.base["large"].stage.model.base.checkpoint
  tasks  = stage.tasks.t.train
}
`, withFile(t, "sub/models.hcl", models), withFile(t, "sub/base.hcl", baseModule), withFile(t, "sub/raw.csv", "2\n"))
	for _, address := range []string{"module.models.stage.grpo.inner[\"small\"]@2",
		"module.models.module.base[\"large\"].stage.sft.warm@1", "stage.rollout.direct@1"} {
		if x.Node(address) == nil {
			t.Errorf("there is no node %s in %v", address, addresses(x.Nodes))
		}
	}
	found := must.Get(x.Find("module.models.module.base[large].sft.warm@1"))(t)
	wantList(t, "Find", addresses(found), "module.models.module.base[\"large\"].stage.sft.warm@1")
}

func TestPathsInAModuleAreRelativeToItsFile(t *testing.T) {
	x := enginetest.MustLoadPaper(t, composed+"module \"m\" {\n  source = \"sub\"\n}\n"+fmt.Sprintf(
		strings.ReplaceAll(arm, "stage.model.base", "module.m.stage.model.own"), ""),
		withFile(t, "sub/a.hcl", "stage \"model\" \"own\" {\n  path = file(\"raw.csv\")\n}\n"),
		withFile(t, "sub/raw.csv", "of the module\n"))
	if n := x.Node("module.m.stage.model.own"); n == nil || !strings.HasSuffix(n.Files[0].Path, "sub/raw.csv") {
		t.Errorf("got %v", n)
	}
	if !x.Modules[0].Folder {
		t.Errorf("got the modules %v, want a folder", x.Modules)
	}
}

func TestErrorsInAModuleShowBothPlaces(t *testing.T) {
	faulty := strings.Replace(baseModule, "layers =", "layrs =", 1)
	x, diags := enginetest.LoadPaper(t, moduleUser, withFile(t, "base.hcl", faulty))
	var text strings.Builder
	lang.WriteDiagnostics(&text, diags, x.Files, false)
	must.Contain(t, text.String(), "layrs = var.layers", "did you mean layers?",
		"x.hcl:12: included as module \"base\"", "module \"base\" {")
}

func TestOverridesActAsIfTheyStoodInTheFile(t *testing.T) {
	file := composed + fmt.Sprintf(arm, "  for_each = [\"a\", \"b\"]\n  %s")
	set := func(sets ...string) func(*lang.Source) { return func(src *lang.Source) { src.Sets = sets } }
	for _, c := range []struct {
		name, settings string
		sets           []string
	}{
		{"a setting", "updates = 5", []string{"grpo.arm.updates=5"}},
		{"a setting of a block", "clip = { low = 0.7 }", []string{"stage.grpo.arm.clip.low = 0.7"}},
		{"one instance", "updates = each.key == \"a\" ? 5 : 200", []string{`grpo.arm["a"].updates=5`}},
		{"the last wins", "updates = 6", []string{"grpo.arm.updates=5", "grpo.arm.updates=6"}},
		{"a whole block", "clip = { low = 0.7 }", []string{"grpo.arm.clip={ low = 0.7 }"}},
		{"an expression", "updates = 5", []string{`grpo.arm.updates=strlen("abcde")`}},
		{"a reference", "", []string{"grpo.arm.policy=stage.model.base"}},
		{"none in the key", "", []string{"grpo.arm.timeout=5m"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := enginetest.Keys(enginetest.MustLoadPaper(t, fmt.Sprintf(file, c.settings)))
			x := enginetest.MustLoadPaper(t, fmt.Sprintf(file, "group = 8"), set(c.sets...))
			wantEqual(t, "keys", enginetest.Keys(x), want)
			wantEqual(t, "number of overrides", len(x.Overrides), len(c.sets))
		})
	}
	x := enginetest.MustLoadPaper(t, moduleUser, withFile(t, "base.hcl", baseModule),
		set("module.base.sft.warm.epochs=9", "module.base.sft.warm.names=[\"n\"]"))
	for _, s := range x.Node("module.base.stage.sft.warm@1").Settings {
		if s.Name == "epochs" && (s.Value != "9" || s.From != "--set") {
			t.Errorf("epochs of the module: got %s from %s", s.Value, s.From)
		}
	}
}

func TestAListOfInstancesKeepsItsOrder(t *testing.T) {
	text := composed + fmt.Sprintf(arm, "  for_each = [\"z\", \"b\", \"c\"]") +
		"stage \"report\" \"page\" {\n  curves = %s\n}\n"
	for value, want := range map[string][]string{
		`stage.grpo.arm`: {"z", "b", "c"},
		`{ for k, v in stage.grpo.arm : k => v if k != "b" }`:          {"z", "c"},
		`[stage.grpo.arm["c"], stage.grpo.arm["z"]]`:                   {"c", "z"},
		`{ x = stage.grpo.arm["c"], y = stage.grpo.arm["z"].metrics }`: {"c", "z"},
		`{ x = stage.grpo.arm["c"], y = stage.grpo.arm["z"] }`:         {"c", "z"},
	} {
		var got []string
		for _, in := range enginetest.MustLoadPaper(t, fmt.Sprintf(text, value)).Node("stage.report.page").Inputs {
			if *in.Ref.Seed == 1 {
				got = append(got, in.Ref.Key)
			}
		}
		wantList(t, value, got, want...)
	}
}

// repeated is a module for each key; its stages have keys of their own.
const repeated = composed + `
module "m" {
  for_each = ["k.1", "k=2"]
  source   = "sub.hcl"
}
stage "report" "page" {
  curves = [for k, v in module.m : v.stage.grpo.arm["x=1"]]
}
`

const repeatedModule = composed + `
stage "grpo" "arm" {
  for_each = ["x=1", "y"]
  policy   = stage.model.base.checkpoint
  tasks    = stage.tasks.t.train
}
stage "model" "off" {
  enabled = false
}
stage "report" "own" {
  curves = stage.grpo.arm
}
`

func TestAnAddressWithoutTheKeyOfAModuleMeansAllOfThem(t *testing.T) {
	load := func(sets, targets []string) *lang.Experiment {
		return enginetest.MustLoadPaper(t, repeated, withFile(t, "sub.hcl", repeatedModule), func(src *lang.Source) {
			src.Sets, src.Targets = sets, targets
		})
	}
	for address, want := range map[string]int{"module.m.grpo.arm": 8, "module.m.grpo.arm[y]@2": 2,
		"module.m[k=2].grpo.arm": 4, "module.m[k.1]": 7, "module.m.*arm@2": 4,
		`module.m["k=2"].stage.grpo.arm["y"]@2`: 1, "tasks.t": 1, "module.m.grpo.ar?@1": 4, "*[y]@1": 2, "module.m": 14,
		"module": 0, "grpo.arm": 0} {
		found, _ := load(nil, []string{"module.m"}).Find(address)
		wantEqual(t, "nodes of "+address, len(found), want)
	}
	for target, want := range map[string]int{"module.m[k.1].tasks.t": 14, "module.m.report.own": 14, // nothing more
		"module.m[k.1].grpo.arm[y]@2": 16, "module.m[k.1]": 16, "module.*": 18} {
		wantEqual(t, "nodes of the target "+target, len(load(nil, []string{target}).Nodes), want)
	}
	_, err := load(nil, []string{"module.m.model.off"}).Find("module.m[k=2].model.off")
	must.Match(t, err, "is disabled", "a disabled stage of a module")
	_, err = load(nil, []string{"module.m"}).Find("module.m[k=2].gpro.arm[y]@2")
	must.Match(t, err, "did you mean module.m[k=2].grpo.arm[y]@2?")
	for set, want := range map[string]int{"module.m.grpo.arm.updates=77": 4, "module.m[k=2].grpo.arm.updates=77": 2,
		"module.m.grpo.arm[x=1].updates=77": 4, "module.m[k.1].grpo.arm[x=1].updates=77 ": 2} {
		n := 0
		for _, node := range load([]string{set}, nil).Nodes {
			if g, ok := node.Stage.(*enginetest.PaperGRPO); ok && g.Updates == 77 {
				n++
			}
		}
		wantEqual(t, "nodes with the value of --set "+set, n, want)
	}
}

func TestNamesOfAddresses(t *testing.T) {
	for address, want := range map[string][3]string{
		`stage.grpo.arm["a.b"]@3`: {"grpo.arm[a.b]@3", `grpo.arm["a.b"]@3`, "grpo.arm"},
		`module.base.stage.sft.warm@1`: {"module.base.sft.warm@1", "module.base.sft.warm@1",
			"module.base.sft.warm"},
		`module.a["x.y"].module.backstage.stage.eval.e["k"]`: {"module.a[x.y].module.backstage.eval.e[k]",
			`module.a["x.y"].module.backstage.eval.e["k"]`, `module.a["x.y"].module.backstage.eval.e`},
	} {
		got := [3]string{lang.ShortAddress(address), lang.TrimStage(address), lang.StageName(address)}
		wantEqual(t, address, got, want)
	}
}
