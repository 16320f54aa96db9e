//go:build libtorch

package experiments

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
	"rcgrpo/reports"
)

// upstream are the stages whose results the stages of EFFECTS.md read. The model learns four drills well enough to
// succeed at most of its attempts and not at all, so that rewards within a group differ.
var upstream = strings.ReplaceAll(`
experiment {
  seeds = [1]
}

stage "tasks" "drills" {
  source = "drills"
  form   = "single"
  train  = 4
}

stage "tasks" "more" {
  source = "drills"
  form   = "single"
  train  = 3
  skip   = 4
}

stage "curate" "data" {
  tasks  = stage.tasks.drills.train
  spoilt = 1
}

stage "curate" "more" {
  tasks = stage.tasks.more.train
}

stage "model" "random" {
  seed   = 0
  corpus = [stage.curate.data.expert]
  vocab  = 340
  architecture = { family = "qwen2", hidden = 32, layers = 1, heads = 2, kv_heads = 1, mlp = 32, rope_base = 1000,
  context = 512 }
}

stage "sft" "base" {
  policy = stage.model.random.checkpoint
  data   = [stage.curate.data.expert]
  epochs = 40
  batch  = 4
  lr     = 1e-2
  schedule { shape = "constant" }
}

stage "sft" "longer" {
  policy = stage.sft.base.checkpoint
  data   = [stage.curate.data.expert]
  epochs = 3
  batch  = 4
  lr     = 1e-3
}

stage "rctp-ft" "warm" {
  policy = stage.sft.base.checkpoint
  data   = [stage.curate.data.mixed]
  epochs = 30
  batch  = 4
  lr     = 5e-3
}

stage "rollout" "bad" {
  policy      = stage.sft.base.checkpoint
  tasks       = stage.tasks.drills.train
  samples     = 12
  temperature = 1.5
  LIMITS
}

stage "rollout" "worse" {
  policy      = stage.sft.base.checkpoint
  tasks       = stage.tasks.drills.train
  samples     = 12
  temperature = 2
  LIMITS
}

stage "grpo" "arm" {
  policy  = stage.sft.base.checkpoint
  tasks   = stage.tasks.drills.train
  updates = 21 # two windows of 10 and one more
  batch   = 1
  group   = 3
  LIMITS
}

stage "eval" "good" {
  policy = stage.grpo.arm.checkpoint
  tasks  = [stage.tasks.drills.train]
  LIMITS
}

stage "eval" "bad" {
  policy = stage.model.random.checkpoint
  tasks  = [stage.tasks.drills.train]
  LIMITS
}
`, "LIMITS", "limits {\n    steps   = 2\n    reply   = 60\n    context = 384\n  }")

const episode = "limits.steps = 3; limits.reply = 60; limits.context = 384"

// start are the settings of a kind's stages that rows do not name.
var start = map[string]string{
	"rollout": "policy = stage.sft.base.checkpoint; tasks = stage.tasks.drills.train; " + episode,
	"curate":  "tasks = stage.tasks.drills.train",
	"tasks":   `source = "drills"`,
	"model": `corpus = [stage.curate.data.expert]; vocab = 340; architecture.family = "qwen2"; ` +
		"architecture.hidden = 32; architecture.layers = 1; architecture.heads = 2; architecture.kv_heads = 1; " +
		"architecture.mlp = 32; architecture.rope_base = 1000; architecture.context = 512",
	"sft":     "policy = stage.sft.base.checkpoint; data = [stage.curate.data.expert]; batch = 2; lr = 1e-3",
	"rctp-ft": "policy = stage.sft.base.checkpoint; data = [stage.curate.data.expert]; epochs = 2; batch = 2; lr = 1e-3",
	"grpo": "policy = stage.sft.base.checkpoint; tasks = stage.tasks.drills.train; updates = 2; batch = 3; group = " +
		"4; lr = 1e-3; " + episode,
	"rc-grpo": "policy = stage.rctp-ft.warm.checkpoint; tasks = stage.tasks.drills.train; updates = 2; batch = 3; " +
		"group = 4; lr = 1e-3; " + episode,
	"eval": "policy = stage.sft.base.checkpoint; tasks = [stage.tasks.drills.train]; " + episode,
	"exec": `command = ["sh", "-c", "echo 1 > $out"]; outputs = { out = "out.txt" }`,
	"report": "scores = [stage.eval.good, stage.eval.bad]; curves = [stage.grpo.arm]; data = " +
		"[stage.tasks.drills.train]; transcripts = [stage.eval.good]",
}

// effect is a row of EFFECTS.md.
type effect struct {
	kind, setting    string
	one, other, both string
	inherited        bool     // a row of the kind that shares this kind's settings
	occasion         bool     // without both, the data decide
	shownBy          []string // tests that the row names instead
	note             string   // why there are no two stages
}

// effects reads EFFECTS.md.
func effects(t *testing.T) []effect {
	t.Helper()
	text := must.Get(os.ReadFile("EFFECTS.md"))(t)
	cell := func(s string) string {
		return strings.ReplaceAll(strings.Trim(strings.TrimSpace(s), "`"), "\x00", "|")
	}
	var all []effect
	kind := ""
	for _, line := range strings.Split(string(text), "\n") {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			kind = name
		}
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| setting") || kind == "" {
			continue
		}
		cells := strings.Split(strings.ReplaceAll(line, `\|`, "\x00"), "|")
		if len(cells) != 6 {
			t.Fatalf("EFFECTS.md: %q has %d columns, want 4", line, len(cells)-2)
		}
		if of, ok := strings.CutPrefix(strings.TrimSpace(cells[1]), "as "); ok { // the settings that two kinds share
			for _, e := range all {
				if e.kind == cell(of) && !strings.HasPrefix(e.setting, "tokens.") {
					e.kind, e.inherited = kind, true
					all = append(all, e)
				}
			}
			continue
		}
		both, occasion := strings.CutPrefix(strings.TrimSpace(cells[4]), "occasion: ")
		e := effect{kind: kind, setting: cell(cells[1]), one: cell(cells[2]), other: cell(cells[3]),
			both: cell(both), occasion: occasion}
		all = slices.DeleteFunc(all, func(had effect) bool {
			return had.inherited && had.kind == kind &&
				had.setting == e.setting
		})
		if e.other == "" {
			e.note, e.one = e.one, ""
			e.shownBy = regexp.MustCompile(`Test\w+`).FindAllString(e.note, -1)
		}
		all = append(all, e)
	}
	return all
}

var statement = regexp.MustCompile(`^[a-z_][\w.]* = `)

// block is the body of a stage, by the path of its settings.
type block struct {
	names  []string
	values map[string]string
}

// set adds statements, separated by "; ". Later ones win.
func (b *block) set(statements string) {
	for _, s := range strings.Split(statements, "; ") {
		path, value, ok := strings.Cut(s, " = ")
		if !ok {
			continue
		}
		if _, known := b.values[path]; !known {
			b.names = append(b.names, path)
		}
		b.values[path] = value
	}
}

var published = regexp.MustCompile(`"(\w+\.txt)"`)

// labelled are the blocks that have a label.
var labelled = []string{"compare", "map", "reference", "reward_term", "section"}

func (b *block) String() string {
	var text strings.Builder
	done := map[string]bool{}
	for _, path := range b.names {
		first, rest, nested := strings.Cut(path, ".")
		if !nested {
			fmt.Fprintf(&text, "  %s = %s\n", path, b.values[path])
			continue
		}
		head := first
		if slices.Contains(labelled, first) {
			label, _, _ := strings.Cut(rest, ".")
			head, first = fmt.Sprintf("%s %q", first, label), first+"."+label
		}
		if done[first] {
			continue
		}
		done[first] = true
		fmt.Fprintf(&text, "  %s {\n", head)
		for _, other := range b.names {
			if name, ok := strings.CutPrefix(other, first+"."); ok {
				fmt.Fprintf(&text, "    %s = %s\n", name, b.values[other])
			}
		}
		text.WriteString("  }\n")
	}
	return text.String()
}

// stage is the HCL of one of the two stages of a row.
func (e effect) stage(name, value, both string) string {
	b := &block{values: map[string]string{}}
	b.set(start[e.kind])
	b.set(both)
	switch {
	case statement.MatchString(value):
		b.set(value)
	case value != "–":
		b.set(e.setting + " = " + value)
	}
	text := b.String()
	switch e.kind { // two stages may not publish the same file
	case "exec":
		text = published.ReplaceAllString(text, `"`+name+`/$1"`)
	case "report":
		text += fmt.Sprintf("  path = %q\n", name+".html")
	}
	return fmt.Sprintf("stage %q %q {\n%s}\n", e.kind, name, text)
}

func TestEverySettingIsListedWithItsEffect(t *testing.T) {
	listed := map[string]int{}
	for _, e := range effects(t) {
		listed[e.kind+" "+e.setting]++
		for _, test := range e.shownBy {
			if out, err := exec.Command("grep", "-rlq", "--include=*_test.go", "func "+test+"(",
				fixtures.Root(t)).CombinedOutput(); err != nil {
				t.Errorf("%s %s: there is no test %s (%s)", e.kind, e.setting, test, out)
			}
		}
	}
	for _, k := range registry() {
		for _, s := range k.Describe().Settings {
			if strings.HasPrefix(s.Type, "block") {
				continue
			}
			name := k.Name + " " + s.Name
			if listed[name] != 1 {
				t.Errorf("EFFECTS.md has %d rows of %s, want 1", listed[name], name)
			}
			delete(listed, name)
		}
	}
	for name := range listed {
		t.Errorf("EFFECTS.md has a row of %s, which no kind has", name)
	}
}

// trial is a pair of stages that differ in one setting and must have different results.
type trial struct {
	effect
	one, other string // their names
	alone      bool   // without the settings that both have
}

func TestEverySettingHasAnEffect(t *testing.T) {
	t.Setenv("EFFECT_ONE", "first")
	t.Setenv("EFFECT_OTHER", "second")
	t.Setenv("RCGRPO_LEASES", filepath.Join(t.TempDir(), "leases"))
	dir := t.TempDir()
	site := filepath.Join(dir, "site.hcl")
	text := fmt.Sprintf("store {\n  path = %q\n}\nexecutor \"local\" {\n  cpus = 2\n}\n", filepath.Join(dir, "store"))
	benchmark := os.Getenv("BFCL_DATA")
	if benchmark == "" {
		benchmark = filepath.Join(fixtures.Root(t), ".deps", "bfcl")
	}
	_, err := bfcl.LoadData(benchmark)
	official := err == nil
	if official {
		text += fmt.Sprintf("data {\n  bfcl = %q\n}\n", benchmark)
	}
	must.OK(t, os.WriteFile(site, []byte(text), 0o600))

	blocks := map[string]string{} // HCL of the stages by name
	var trials []trial
	names := map[string]string{} // of equal stages
	add := func(e effect, value, both string) string {
		text := e.stage("NAME", value, both)
		if names[text] == "" {
			names[text] = fmt.Sprintf("s%d", len(names))
			blocks[names[text]] = strings.ReplaceAll(text, "NAME", names[text])
		}
		return names[text]
	}
	for _, e := range effects(t) {
		if e.note != "" {
			continue
		}
		if !official && strings.Contains(e.one+e.other+e.both, `"bfcl"`) {
			t.Logf("%s %s: left out, for there is no benchmark data in %s (run `make deps`, or set BFCL_DATA)",
				e.kind, e.setting, benchmark)
			continue
		}
		trials = append(trials, trial{e, add(e, e.one, e.both), add(e, e.other, e.both), false})
		if e.both != "" && !e.occasion {
			trials = append(trials, trial{e, add(e, e.one, ""), add(e, e.other, ""), true})
		}
	}

	_, refused := load(t, dir, site, blocks)
	for _, tr := range trials {
		for _, name := range []string{tr.one, tr.other} {
			if !tr.alone && refused[name] != "" {
				t.Errorf("%s %s: a stage of its row is refused: %s\n%s", tr.kind, tr.setting, refused[name], blocks[name])
			}
		}
	}
	maps.DeleteFunc(blocks, func(name, _ string) bool { return refused[name] != "" })
	digests, failed := perform(t, dir, site, blocks)
	for _, tr := range trials {
		if why := refused[tr.one] + refused[tr.other]; why != "" {
			continue
		}
		one, other := digests[tr.one], digests[tr.other]
		if one == "" || other == "" {
			if why := failed[tr.one] + failed[tr.other]; !tr.alone || why == "" {
				t.Errorf("%s %s: no result: %s", tr.kind, tr.setting, why)
			}
			continue
		}
		if one == other {
			if tr.alone {
				t.Errorf("%s %s has no effect without %s, and the file is not refused", tr.kind, tr.setting, tr.both)
			} else {
				t.Errorf("%s %s: both stages have the same result\n%s%s", tr.kind, tr.setting, blocks[tr.one], blocks[tr.other])
			}
		}
	}
}

// load writes the stages into one file and loads it. mistakes has the diagnostics of each stage by its name.
func load(t *testing.T, dir, site string, blocks map[string]string) (x *lang.Experiment, mistakes map[string]string) {
	t.Helper()
	text := upstream
	names := slices.Repeat([]string{""}, 1+strings.Count(upstream, "\n")) // of the stage by line
	for _, name := range slices.Sorted(maps.Keys(blocks)) {
		text += blocks[name]
		names = append(names, slices.Repeat([]string{name}, strings.Count(blocks[name], "\n"))...)
	}
	path := filepath.Join(dir, "effects.hcl")
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
	kinds := registry()
	for _, k := range kinds {
		k.InProcess = true // in this process
	}
	x, diags := lang.Load(lang.Source{Path: path, Site: site}, kinds)
	mistakes = map[string]string{}
	for _, d := range diags {
		name := names[d.Subject.Start.Line]
		if name == "" {
			t.Fatalf("the stages that all read: %v", d)
		}
		mistakes[name] += d.Summary + ": " + d.Detail + " "
	}
	return x, mistakes
}

// perform runs the stages and returns the digests of their results, and the errors of those that failed.
func perform(t *testing.T, dir, site string, blocks map[string]string) (digests, failed map[string]string) {
	t.Helper()
	x, mistakes := load(t, dir, site, blocks)
	if len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	store := must.Get(artifact.Open(filepath.Join(dir, "store")))(t)
	p := must.Get(plan.New(x, store, plan.Options{}))(t)
	failed = map[string]string{}
	runErr := engine.Run(t.Context(), p, engine.Options{KeepGoing: true}, func(e runs.Event) {
		if e.Kind == runs.EventFailed {
			failed[x.Node(e.Address).Name] = e.Text
		}
	})
	if runErr != nil && len(failed) == 0 {
		t.Fatal(runErr)
	}
	p = must.Get(plan.New(x, store, plan.Options{}))(t)
	digests = map[string]string{}
	for _, n := range p.Nodes {
		if n.Manifest == nil {
			continue
		}
		if n.Kind.Name == "report" && !strings.Contains(blocks[n.Name], "section") { // of a training with one optimizer step
			page := must.Get(store.Open(n.Manifest, "page"))(t)
			text := must.Get(os.ReadFile(page.Path(reports.MarkdownFile)))(t)
			if !strings.Contains(string(text), "no effect here") && strings.Contains(blocks[n.Name], "stage.grpo.arm") {
				t.Errorf("%s: the table of settings marks no default without effect", n.Address)
			}
		}
		for _, port := range slices.Sorted(maps.Keys(n.Manifest.Outputs)) {
			digests[n.Name] += port + " " + n.Manifest.Outputs[port].Digest + "\n"
		}
	}
	return digests, failed
}
