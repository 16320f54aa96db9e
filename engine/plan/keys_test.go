package plan_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2/hclwrite"

	"rcgrpo/engine"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/internal/must"
)

func paperText(t *testing.T) string {
	return enginetest.PaperText(t, "../lang/testdata/valid/paper.hcl")
}

func keysOf(t *testing.T, text string, change ...func(*lang.Source)) map[string]string {
	t.Helper()
	return enginetest.Keys(enginetest.MustLoadPaper(t, text, change...))
}

func TestTextsWithTheSameMeaningHaveTheSameKeys(t *testing.T) {
	text := paperText(t)
	want := keysOf(t, text)
	spaces := regexp.MustCompile(` +=`).ReplaceAllString(text, "    =")
	with := func(line string) string { return strings.Replace(text, "  epochs  = 2", "  epochs  = 2\n  "+line, 1) }
	for name, other := range map[string]string{
		"spaces before the equals sign": spaces,
		"formatted":                     string(hclwrite.Format([]byte(spaces))),
		"byte order mark":               "\ufeff" + text,
		"lines that end in CR LF":       strings.ReplaceAll(text, "\n", "\r\n"),
		"tabs":                          strings.ReplaceAll(text, "  ", "\t"),
		"an executor":                   with(`executor = "local"`),
		"an order without content":      with("depends_on = [stage.curate.data]"),
		"enabled":                       with("enabled = 1 < 2"),
	} {
		wantEqual(t, name, keysOf(t, other), want)
	}
	site := filepath.Join(t.TempDir(), "site.hcl")
	enginetest.WriteFile(t, site, `
store { path = "elsewhere" }
data {
  bfcl = "elsewhere"
}
executor "local" {
  cpus   = 64
  gpus   = [0, 1, 2, 3, 4, 5, 6, 7]
  memory = "1TB"
}
`)
	wantEqual(t, "site file", keysOf(t, text, func(s *lang.Source) { s.Site = site }), want)
}

// cosmetic changes of the text change no key, for any random number.
var cosmetic = []struct {
	name   string
	change func(text string, rng *rand.Rand) string
}{
	{"a comment at the end of a line", func(s string, rng *rand.Rand) string {
		lines := strings.Split(s, "\n")
		i := rng.IntN(len(lines))
		if strings.Contains(lines[i], "\"sh\"") {
			return s
		}
		lines[i] += fmt.Sprintf(" # note %d", rng.Int())
		return strings.Join(lines, "\n")
	}},
	{"an empty line", func(s string, rng *rand.Rand) string {
		blocks := strings.Split(s, "\n\n")
		i := rng.IntN(len(blocks))
		blocks[i] += "\n"
		return strings.Join(blocks, "\n\n")
	}},
	{"blocks in another order", func(s string, rng *rand.Rand) string {
		blocks := strings.Split(strings.TrimSpace(s), "\n\n")
		rng.Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
		return strings.Join(blocks, "\n\n") + "\n"
	}},
	{"a local renamed", func(s string, rng *rand.Rand) string {
		return regexp.MustCompile(`\binits\b`).ReplaceAllString(s, fmt.Sprintf("starts%d", rng.IntN(100)))
	}},
	{"a variable renamed", func(s string, rng *rand.Rand) string {
		name := fmt.Sprintf("rounds%d", rng.IntN(100))
		return strings.NewReplacer("var.updates", "var."+name, `variable "updates"`, `variable "`+name+`"`).Replace(s)
	}},
	{"a default written out", func(s string, _ *rand.Rand) string {
		if strings.Contains(s, "high = 0.2") {
			return s
		}
		return strings.Replace(s, "    low = 0.1", "    low = 0.1\n    high = 0.2", 1)
	}},
	{"a value computed from others", func(s string, rng *rand.Rand) string {
		n := rng.IntN(300)
		return strings.Replace(s, "default = 350", fmt.Sprintf("default = %d + %d", n, 350-n), 1)
	}},
	{"resources, timeout, retry and description", func(s string, rng *rand.Rand) string {
		return strings.NewReplacer("gpus       = 8", fmt.Sprintf("gpus = %d", 1+rng.IntN(8)), `"48h"`, `"50h"`,
			"attempts = 3", "attempts = 2", `"unconditioned"`, `"plain"`).Replace(s)
	}},
	{"map entries in another order", func(s string, _ *rand.Rand) string {
		return strings.Replace(s, "{ sft = stage.sft.warm.checkpoint, rctp = stage.rctp-ft.warm.checkpoint }",
			"{ rctp = stage.rctp-ft.warm.checkpoint, sft = stage.sft.warm.checkpoint }", 1)
	}},
	{"a port inferred from its type", func(s string, _ *rand.Rand) string {
		return strings.ReplaceAll(s, "policy = stage.model.base.checkpoint", "policy = stage.model.base")
	}},
}

func TestCosmeticMutationsChangeNoKey(t *testing.T) {
	text := paperText(t)
	want := keysOf(t, text)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 200 {
		mutated, names := text, []string{}
		for range 1 + rng.IntN(3) {
			m := cosmetic[rng.IntN(len(cosmetic))]
			mutated = m.change(mutated, rng)
			names = append(names, m.name)
		}
		x, diags := enginetest.LoadPaper(t, mutated)
		if diags.HasErrors() {
			t.Fatalf("mutation %d (%v): %s\n%s", i, names, diags, mutated)
		}
		if got := enginetest.Keys(x); !maps.Equal(got, want) {
			t.Fatalf("mutation %d (%v) changes keys", i, names)
		}
	}
}

// semantic changes of one value, with the stages whose settings contain it.
var semantic = []struct {
	name, from, to string
	stages         []string
}{
	{"a setting", "ratio    = 1", "ratio    = 2", []string{"curate.data"}},
	{"a setting that had its default", "epochs  = 2", "epochs  = 2\n  warmup = 3", []string{"sft.warm"}},
	{"a setting in a block", "low = 0.1", "low = 0.15", []string{"grpo.arm"}},
	{"a choice", `position = "first_user"`, `position = "before_each_action"`, []string{"rctp-ft.warm"}},
	{"an element of a list", `"n${n}"`, `"m${n}"`, []string{"sft.warm"}},
	{"an entry of a map", "a = 1, b", "a = 4, b", []string{"sft.warm"}},
	{"a variable", "default = 350", "default = 351", []string{"grpo.arm", "rc-grpo.arm"}},
	{"a port", "data   = stage.curate.data.mixed", "data   = stage.curate.data.expert", []string{"rctp-ft.warm"}},
	{"swapped inputs", "{ sft = stage.sft.warm.checkpoint, rctp = stage.rctp-ft.warm.checkpoint }",
		"{ rctp = stage.sft.warm.checkpoint, sft = stage.rctp-ft.warm.checkpoint }", []string{"grpo.arm", "rc-grpo.arm"}},
	{"the label of a block", `compare "initialisation"`, `compare "start"`, []string{"report.paper"}},
	{"a command", `\"$src\" >`, `-u \"$src\" >`, []string{"exec.score"}},
	{"the number of samples", "samples = 4", "samples = 5", []string{"rollout.explore"}},
	{"the expectation that a page shows", "RCTP-FT + RC-GRPO above", "RC-GRPO above", []string{"report.paper"}},
	{"the test split", "test = 0.1", "test = 0.2", []string{"tasks.bfcl"}},
}

func TestSemanticMutationsChangeExactlyWhatTheyReach(t *testing.T) {
	text := paperText(t)
	old := keysOf(t, text)
	for _, m := range semantic {
		t.Run(m.name, func(t *testing.T) {
			if !strings.Contains(text, m.from) {
				t.Fatalf("the text lacks %q", m.from)
			}
			x := enginetest.MustLoadPaper(t, strings.Replace(text, m.from, m.to, 1))
			var want, got []string
			reached := map[*lang.Node]bool{}
			for _, n := range x.Nodes {
				reached[n] = slices.Contains(m.stages, n.Kind.Name+"."+n.Name)
				for _, in := range n.Inputs {
					reached[n] = reached[n] || reached[in.From]
				}
				if reached[n] {
					want = append(want, n.Address)
				}
			}
			for address, key := range enginetest.Keys(x) {
				if old[address] != key {
					got = append(got, address)
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			wantEqual(t, "changed keys", got, want)
		})
	}
}

func TestRenamedStageKeepsItsKey(t *testing.T) {
	text := paperText(t)
	rename := strings.NewReplacer("stage.curate.data", "stage.curate.mix", `"curate" "data"`, `"curate" "mix"`)
	now := keysOf(t, rename.Replace(text))
	for address, key := range keysOf(t, text) {
		wantEqual(t, address, now[strings.Replace(address, "curate.data", "curate.mix", 1)], key)
	}
}

// A node of one seed does not depend on the other seeds; the report and its readers do.
func TestSeedListIsOnlyInKeysOfNodesAcrossSeeds(t *testing.T) {
	text := paperText(t)
	old := keysOf(t, text)
	for address, key := range keysOf(t, strings.Replace(text, "[1, 2, 3]", "[3, 1]", 1)) {
		across := strings.Contains(address, "report") || strings.Contains(address, "exec")
		wantEqual(t, "same key of "+address, old[address] == key, !across)
	}
}

func TestContentOfAFileIsInTheKeyAndItsPathIsNot(t *testing.T) {
	const text = "experiment {}\nstage \"model\" \"m\" {\n  path = file(\"%s\")\n}\n"
	key := func(name, content string) string {
		dir := t.TempDir()
		enginetest.WriteFile(t, dir+"/"+name, content)
		enginetest.WriteFile(t, dir+"/x.hcl", fmt.Sprintf(text, name))
		x, diags := lang.Load(lang.Source{Path: dir + "/x.hcl"}, enginetest.PaperKinds())
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		return enginetest.Keys(x)["stage.model.m"]
	}
	one := key("a.bin", "one")
	wantEqual(t, "other name", key("b.bin", "one"), one)
	if key("a.bin", "two") == one {
		t.Error("other content: got the same key, want another")
	}
}

func TestKeysDoNotChangeByAccident(t *testing.T) {
	x := enginetest.MustLoadPaper(t, `
experiment {}
stage "tasks" "t" {
  source = "drills"
  split {
    test = 1e-5
  }
}
`)
	_, parts, _ := plan.Key(x.Nodes[0], nil)
	want := map[string]string{
		"kind": `"tasks"`, "version": "1", "seed": "1", "settings.source": `"drills"`, "settings.count": "0",
		"settings.split.by": `""`, "settings.split.test": "0.00001", "settings.split.seed": "0",
	}
	wantEqual(t, "parts", map[string]string(parts), want)
	wantEqual(t, "digits of the key", len(enginetest.Keys(x)["stage.tasks.t"]), 64)
}

func TestMain(m *testing.M) { enginetest.Main(m) }

// changeLab is a lab whose store is that of the site file.
type changeLab struct {
	*enginetest.Lab
	src lang.Source
}

// everything contains each input of a plan: files, folders, variables, published files, stages that are
// disabled, that run after failures, and that read others.
const everything = `
experiment {
}
variable "word" {
  default = "a"
}
variable "other" {
  default = "o"
}
stage "light" "first" {
  text = "${var.word}${var.other}"
  data = [file("data/one.txt"), file("data/link.txt"), dir("data/many")]
}
stage "light" "second" {
  from = [stage.light.first.out]
  text = "second"
}
stage "light" "left" {
  enabled = false
}
stage "page" "report" {
  from = [stage.light.second.out]
  text = "page"
}
`

func newChangeLab(t *testing.T) *changeLab {
	t.Helper()
	b := &changeLab{Lab: enginetest.NewLab(t)}
	b.put("site.hcl", "store {\n  path = \"store\"\n}\n"+enginetest.Site)
	b.put("x.hcl", everything)
	for _, name := range []string{"data/one.txt", "data/target.txt", "data/many/1.txt", "data/many/below/2.txt"} {
		b.put(name, "content of "+filepath.Base(name))
	}
	b.link("target.txt", "data/link.txt")
	b.put("vars.hcl.txt", `other = "p"`)
	b.src = lang.Source{Path: b.File, Site: b.path("site.hcl"), Env: []string{"HOME=" + b.Dir},
		Vars: map[string]string{}, VarFiles: []string{b.path("vars.hcl.txt")}}
	return b
}

func (b *changeLab) path(name string) string { return filepath.Join(b.Dir, name) }

func (b *changeLab) must(err error) { b.Helper(); must.OK(b, err) }

// put writes a file and creates its folder.
func (b *changeLab) put(name, text string) {
	b.Helper()
	b.must(os.MkdirAll(filepath.Dir(b.path(name)), 0o755))
	b.Put(name, text)
}

func (b *changeLab) remove(name string) { b.Helper(); b.must(os.RemoveAll(b.path(name))) }

// link replaces a file by a symbolic link.
func (b *changeLab) link(target, name string) {
	b.Helper()
	b.remove(name)
	b.must(os.Symlink(target, b.path(name)))
}

func (b *changeLab) edit(name, old, new string) {
	b.Helper()
	text := b.Read(name)
	if !strings.Contains(text, old) {
		b.Fatalf("%s has no %q", name, old)
	}
	b.put(name, strings.Replace(text, old, new, 1))
}

func (b *changeLab) touch(name string) {
	b.Helper()
	now := time.Now()
	b.must(os.Chtimes(b.path(name), now, now))
}

// rewrite changes the content of a file, but not its length and modification time.
func (b *changeLab) rewrite(name string) {
	b.Helper()
	info := must.Get(os.Stat(b.path(name)))(b)
	text := []byte(b.Read(name))
	text[0] ^= 1
	b.put(name, string(text))
	b.must(os.Chtimes(b.path(name), info.ModTime(), info.ModTime()))
}

// glob returns the first file that matches a pattern, relative to the lab's folder.
func (b *changeLab) glob(pattern string) string {
	b.Helper()
	found, err := filepath.Glob(b.path(pattern))
	if err != nil || len(found) == 0 {
		b.Fatalf("nothing fits %s: %v", pattern, err)
	}
	return must.Get(filepath.Rel(b.Dir, found[0]))(b)
}

// planned loads and plans.
func (b *changeLab) planned(o plan.Options) *plan.Plan {
	b.Helper()
	x, diags := lang.Load(b.src, enginetest.ToyKinds())
	if diags.HasErrors() {
		b.Fatal(diags)
	}
	return must.Get(plan.New(x, b.Store(), o))(b)
}

// run runs everything.
func (b *changeLab) run() {
	b.Helper()
	if r := b.RunPlan(b.Context(), b.planned(plan.Options{}), engine.Options{}); r.Err != nil {
		b.Fatalf("%v\n%s", r.Err, r)
	}
}

// idle reports whether a plan has nothing to do. An experiment that cannot be loaded is not idle.
func (b *changeLab) idle() bool {
	b.Helper()
	x, diags := lang.Load(b.src, enginetest.ToyKinds())
	if diags.HasErrors() {
		return false
	}
	return must.Get(plan.New(x, b.Store(), plan.Options{}))(b).Idle()
}

// A plan compares content: it notices every change that could change a result, and nothing else.
func TestPlansNoticeChangesOfContent(t *testing.T) {
	unaffected := map[string]func(b *changeLab){
		"nothing":                             func(b *changeLab) {},
		"another variable of the environment": func(b *changeLab) { b.src.Env = append(b.src.Env, "LANG=C") },
		"experiment touched":                  func(b *changeLab) { b.touch("x.hcl") },
		"comment added":                       func(b *changeLab) { b.edit("x.hcl", "experiment", "# no\nexperiment") },
		"input touched":                       func(b *changeLab) { b.touch("data/one.txt") },
		"input rewritten, content the same":   func(b *changeLab) { b.put("data/one.txt", "content of one.txt") },
		"published file touched":              func(b *changeLab) { b.touch("page.txt") },
		"number of CPUs":                      func(b *changeLab) { b.edit("site.hcl", "cpus = 4", "cpus = 3") },
		"garbage collected":                   func(b *changeLab) { _, err := b.Store().Collect(0, nil); b.must(err) },
		"collected": func(b *changeLab) { // nothing reads the bytes
			_, err := b.Store().Collect(1, nil)
			b.must(err)
		},
		"object removed": func(b *changeLab) { b.remove(b.glob("store/objects/*")) },
		"objects removed, times left": func(b *changeLab) { // gc leaves an object that another result shares
			for _, dir := range must.Get(filepath.Glob(b.path("store/objects/*")))(b) {
				if times, _ := filepath.Glob(filepath.Join(dir, "times.*")); len(times) == 0 {
					b.must(os.RemoveAll(dir))
				}
			}
		},
	}
	noticed := map[string]func(b *changeLab){
		"setting changed":            func(b *changeLab) { b.edit("x.hcl", `"second"`, `"sec"`) },
		"setting changed, time kept": func(b *changeLab) { b.edit("x.hcl", `"second"`, `"s3cond"`) },
		"input changed, time kept":   func(b *changeLab) { b.rewrite("data/one.txt") },
		"input longer":               func(b *changeLab) { b.put("data/one.txt", "content of one.txt and more") },
		"input removed":              func(b *changeLab) { b.remove("data/one.txt") },
		"input is a folder now": func(b *changeLab) {
			b.remove("data/one.txt")
			b.must(os.Mkdir(b.path("data/one.txt"), 0o755))
		},
		"target of a link changed":    func(b *changeLab) { b.rewrite("data/target.txt") },
		"link to another file":        func(b *changeLab) { b.link("one.txt", "data/link.txt") },
		"file in an input folder":     func(b *changeLab) { b.rewrite("data/many/below/2.txt") },
		"file new in an input folder": func(b *changeLab) { b.put("data/many/below/3.txt", "3") },
		"published file removed":      func(b *changeLab) { b.remove("page.txt") },
		"published file edited":       func(b *changeLab) { b.put("page.txt", "mine") },
		"published file replaced by a link": func(b *changeLab) {
			b.must(os.Rename(b.path("page.txt"), b.path("page2.txt")))
			b.link("page2.txt", "page.txt")
		},
		"variable on the command line": func(b *changeLab) { b.src.Vars["word"] = "b" },
		"variable in the environment":  func(b *changeLab) { b.src.Env = append(b.src.Env, "RCGRPO_VAR_word=b") },
		"variable in its file":         func(b *changeLab) { b.edit("vars.hcl.txt", "p", "q") },
		"without the variables' file":  func(b *changeLab) { b.src.VarFiles = nil },
		"site file broken":             func(b *changeLab) { b.edit("site.hcl", "cpus", "cpu") },
		"manifest removed":             func(b *changeLab) { b.remove(b.glob("store/results/*.json")) },
		"store removed":                func(b *changeLab) { b.remove("store") },
		"object edited": func(b *changeLab) {
			object := b.glob("store/objects/*/out.txt")
			b.must(os.Chmod(b.path(object), 0o644))
			b.put(object, "by hand")
		},
	}
	for idle, changes := range map[bool]map[string]func(*changeLab){true: unaffected, false: noticed} {
		for name, change := range changes {
			t.Run(name, func(t *testing.T) {
				b := newChangeLab(t)
				b.run()
				wantEqual(t, "idle before", b.idle(), true)
				change(b)
				wantEqual(t, "idle afterwards", b.idle(), idle)
				if problems, err := b.Store().Check(); err != nil || len(problems) > 0 {
					b.remove("store") // the lab accepts only a sound store
				}
			})
		}
	}
}

// Variable files and site files are never part of the experiment in their folder, under any name.
func TestNamedFilesAreNotPartOfAFolder(t *testing.T) {
	b := newChangeLab(t)
	b.put("exp/x.hcl", "experiment {\n}\nvariable \"word\" {\n}\n")
	b.put("exp/y.hcl", "stage \"toy\" \"a\" {\n  text = var.word\n}\n")
	b.put("exp/values.hcl", "word = \"one\"\n")
	b.put("exp/machine.hcl", "store {\n  path = \"../store\"\n}\n"+enginetest.Site)
	b.link("exp/values.hcl", "link")
	b.src = lang.Source{Path: b.path("exp"), Site: b.path("exp/machine.hcl"), Env: b.src.Env}
	wayOut := "pass --var-file " + b.path("exp/values.hcl")
	if _, diags := lang.Load(b.src, enginetest.ToyKinds()); !strings.Contains(enginetest.Mistakes(diags), wayOut) {
		t.Errorf("without --var-file: got %v, want the way out", diags)
	}
	for _, name := range []string{"exp/values.hcl", "link"} {
		b.src.VarFiles = []string{b.path(name)}
		b.run()
		wantEqual(t, name+": idle", b.idle(), true)
	}
	copied, err := os.ReadDir(b.path(filepath.Dir(b.glob("store/runs/exp/*/files/x.hcl"))))
	if err != nil || len(copied) != 2 || copied[1].Name() != "y.hcl" {
		t.Errorf("files of the run folder: got %v, %v, want x.hcl and y.hcl", copied, err)
	}
	b.rewrite("exp/values.hcl")
	wantEqual(t, "idle with changed variables", b.idle(), false)
}
