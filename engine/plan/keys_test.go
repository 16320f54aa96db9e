package plan_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2/hclwrite"

	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
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
store {
  path = "elsewhere"
}
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
