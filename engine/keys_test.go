package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2/hclwrite"

	"rcgrpo/engine/artifact"
)

// keysOf returns every node's key if each output depends only on its node's key: keys differ exactly for the nodes
// that a change reaches.
func keysOf(x *Experiment) map[string]string {
	keys := map[string]string{}
	for _, n := range x.Nodes {
		keys[n.Address], _, _ = Key(n, func(from *Node, port string) (string,
			bool) {
			return keys[from.Address] + port, true
		})
	}
	return keys
}

func equalMaps(a, b map[string]string) bool { return maps.Equal(a, b) }

func paperText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/valid/paper.hcl")
	if err != nil {
		t.Fatal(err)
	}
	// The texts of these tests are in folders of their own.
	return strings.NewReplacer(`dir("folder")`, `file("raw.csv")`, `file("folder/raw.csv")`,
		`file("raw.csv")`).Replace(string(text))
}

func TestFormattingChangesNoKey(t *testing.T) {
	text := paperText(t)
	want := keysOf(mustLoad(t, text))
	ugly := regexp.MustCompile(` +=`).ReplaceAllString(text, "    =")
	if got := keysOf(mustLoad(t, ugly)); !maps.Equal(got, want) {
		t.Error("spaces before the equals sign change keys")
	}
	if got := keysOf(mustLoad(t, string(hclwrite.Format([]byte(ugly))))); !maps.Equal(got, want) {
		t.Error("formatting changes keys")
	}
}

// cosmetic are changes of the text that change no key, for any random number.
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
		return strings.NewReplacer("var.updates", "var."+name, `variable "updates"`,
			`variable "`+name+`"`).Replace(s)
	}},
	{"a default written out", func(s string, _ *rand.Rand) string {
		if strings.Contains(s, "high = 0.2") {
			return s
		}
		return strings.Replace(s, "    low = 0.1", "    low = 0.1\n    high = 0.2", 1)
	}},
	{"a value computed otherwise", func(s string, rng *rand.Rand) string {
		n := rng.IntN(300)
		return strings.Replace(s, "default = 350", fmt.Sprintf("default = %d + %d", n, 350-n), 1)
	}},
	{"another question", func(s string, rng *rand.Rand) string {
		return strings.Replace(s, "RCTP-FT + RC-GRPO above", fmt.Sprintf("%d above", rng.Int()), 1)
	}},
	{"resources, timeout, retry and description", func(s string, rng *rand.Rand) string {
		return strings.NewReplacer("gpus       = 8", fmt.Sprintf("gpus = %d", 1+rng.IntN(8)), `"48h"`, `"50h"`,
			"attempts = 3", "attempts = 2", `"unconditioned"`, `"plain"`).Replace(s)
	}},
	{"map entries in another order", func(s string, _ *rand.Rand) string {
		return strings.Replace(s, "{ sft = stage.sft.warm.checkpoint, rctp = stage.rctp-ft.warm.checkpoint }",
			"{ rctp = stage.rctp-ft.warm.checkpoint, sft = stage.sft.warm.checkpoint }", 1)
	}},
	{"the port picked by type", func(s string, _ *rand.Rand) string {
		return strings.ReplaceAll(s, "policy = stage.model.base.checkpoint", "policy = stage.model.base")
	}},
}

func TestCosmeticMutationsChangeNoKey(t *testing.T) {
	text := paperText(t)
	want := keysOf(mustLoad(t, text))
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 200 {
		mutated, names := text, []string{}
		for range 1 + rng.IntN(3) {
			m := cosmetic[rng.IntN(len(cosmetic))]
			mutated = m.change(mutated, rng)
			names = append(names, m.name)
		}
		x, diags := loadText(t, mutated)
		if diags.HasErrors() {
			t.Fatalf("mutation %d (%v): %s\n%s", i, names, diags, mutated)
		}
		if got := keysOf(x); !maps.Equal(got, want) {
			t.Fatalf("mutation %d (%v) changes keys", i, names)
		}
	}
}

// semantic are changes of one value, with the stage blocks that contain it.
var semantic = []struct {
	name, from, to string
	stages         []string
}{
	{"a setting", "ratio    = 1", "ratio    = 2", []string{"curate.data"}},
	{"a setting that stood on its default", "epochs  = 2", "epochs  = 2\n  warmup = 3", []string{"sft.warm"}},
	{"a setting in a block", "low = 0.1", "low = 0.15", []string{"grpo.arm"}},
	{"a choice", `position = "first_user"`, `position = "before_each_action"`, []string{"rctp-ft.warm"}},
	{"an element of a list", `"n${n}"`, `"m${n}"`, []string{"sft.warm"}},
	{"an entry of a map", "a = 1, b", "a = 4, b", []string{"sft.warm"}},
	{"a variable", "default = 350", "default = 351", []string{"grpo.arm", "rc-grpo.arm"}},
	{"a port", "data   = stage.curate.data.mixed", "data   = stage.curate.data.expert", []string{"rctp-ft.warm"}},
	{"the order of compares", `compare "initialisation"`, `compare "start"`, []string{"report.paper"}},
	{"a command", `\"$src\" >`, `-u \"$src\" >`, []string{"exec.score"}},
	{"what no stage has", "samples = 4", "samples = 5", []string{"rollout.explore"}},
	{"the test split", "test = 0.1", "test = 0.2", []string{"tasks.bfcl"}},
}

func TestSemanticMutationsChangeExactlyWhatTheyReach(t *testing.T) {
	text := paperText(t)
	before := mustLoad(t, text)
	old := keysOf(before)
	for _, m := range semantic {
		t.Run(m.name, func(t *testing.T) {
			if !strings.Contains(text, m.from) {
				t.Fatalf("the text lacks %q", m.from)
			}
			x := mustLoad(t, strings.Replace(text, m.from, m.to, 1))
			var want, got []string
			reached := map[*Node]bool{}
			for _, n := range x.Nodes {
				reached[n] = slices.Contains(m.stages, n.Kind.Name+"."+n.Name)
				for _, in := range n.Inputs {
					reached[n] = reached[n] || reached[in.From]
				}
				if reached[n] {
					want = append(want, n.Address)
				}
			}
			for address, key := range keysOf(x) {
				if old[address] != key {
					got = append(got, address)
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestSwappedInputsAreAChange(t *testing.T) {
	const text = `
experiment {}
stage "exec" "a" {
  command = ["a"]
  outputs = { out = "a" }
}
stage "exec" "b" {
  command = ["b"]
  outputs = { out = "b" }
}
stage "exec" "c" {
  command = ["c"]
  inputs  = { x = stage.exec.a.out, y = stage.exec.b.out }
}
`
	a := keysOf(mustLoad(t, text))
	b := keysOf(mustLoad(t, strings.Replace(text, "x = stage.exec.a.out, y = stage.exec.b.out",
		"y = stage.exec.a.out, x = stage.exec.b.out", 1)))
	if a["stage.exec.c"] == b["stage.exec.c"] {
		t.Error("swapping two inputs keeps the key")
	}
}

// Renaming a stage reruns nothing except kinds that read all seeds, because they show names.
func TestRenamedStageKeepsItsKey(t *testing.T) {
	text := paperText(t)
	old := keysOf(mustLoad(t, text))
	now := keysOf(mustLoad(t, strings.NewReplacer("stage.curate.data", "stage.curate.mix", `"curate" "data"`,
		`"curate" "mix"`).Replace(text)))
	for address, key := range old {
		if now[strings.Replace(address, "curate.data", "curate.mix", 1)] != key {
			t.Errorf("%s has another key", address)
		}
	}
}

// Equal settings under another seed list have equal keys: the key of a seed's node does not depend on other seeds.
func TestSeedListIsInNoKeyButTheReports(t *testing.T) {
	text := paperText(t)
	old := keysOf(mustLoad(t, text))
	now := keysOf(mustLoad(t, strings.Replace(text, "[1, 2, 3]", "[3, 1]", 1)))
	for address, key := range now {
		gathered := strings.Contains(address, "report") || strings.Contains(address, "exec")
		if same := old[address] == key; same == gathered {
			t.Errorf("%s: same key %v", address, same)
		}
	}
}

// Where and when a stage runs is in no key: the site, the executor, depends_on.
func TestSiteExecutorAndOrderAreInNoKey(t *testing.T) {
	text := paperText(t)
	want := keysOf(mustLoad(t, text))
	site := filepath.Join(t.TempDir(), "site.hcl")
	writeFile(t, site, "store {\n  path = \"elsewhere\"\n}\ndata {\n  bfcl = \"elsewhere\"\n}\nexecutor "+
		"\"local\" {\n  cpus   = 64\n  gpus   = [0, 1, 2, 3, 4, 5, 6, 7]\n  memory = \"1TB\"\n}\n")
	if got := keysOf(mustLoad(t, text, func(s *Source) { s.Site = site })); !maps.Equal(got, want) {
		t.Error("the site file changes keys")
	}
	for _, line := range []string{`executor = "local"`, "depends_on = [stage.curate.data]", "enabled = 1 < 2"} {
		if got := keysOf(mustLoad(t, strings.Replace(text, "  epochs  = 2", "  epochs  = 2\n  "+line,
			1))); !maps.Equal(got, want) {
			t.Errorf("%s changes keys", line)
		}
	}
}

func TestContentOfAFileIsInTheKeyAndItsPathIsNot(t *testing.T) {
	const text = "experiment {}\nstage \"model\" \"m\" {\n  path = file(\"%s\")\n}\n"
	key := func(name, content string) string {
		dir := t.TempDir()
		writeFile(t, dir+"/"+name, content)
		writeFile(t, dir+"/x.hcl", fmt.Sprintf(text, name))
		return keysOf(loadFile(t, dir+"/x.hcl"))["stage.model.m"]
	}
	one := key("a.bin", "one")
	if key("b.bin", "one") != one {
		t.Error("another name gives another key")
	}
	if key("a.bin", "two") == one {
		t.Error("another content gives the same key")
	}
}

func TestKeysDoNotChangeByAccident(t *testing.T) {
	x := mustLoad(t, "experiment {}\nstage \"tasks\" \"t\" {\n  source = \"drills\"\n  split {\n    test = "+
		"1e-5\n  }\n}\n")
	_, parts, _ := Key(x.Nodes[0], nil)
	want := map[string]string{
		"kind": `"tasks"`, "version": "1", "seed": "1", "settings.source": `"drills"`, "settings.count": "0",
		"settings.split.by": `""`, "settings.split.test": "0.00001", "settings.split.seed": "0",
	}
	if !maps.Equal(map[string]string(parts), want) {
		t.Errorf("parts: got %v, want %v", parts, want)
	}
	if got := keysOf(x)["stage.tasks.t"]; len(got) != 64 {
		t.Errorf("key: got %q, want 64 hexadecimal digits", got)
	}
}

// Stores of earlier builds contain keys, so the hashed text must stay identical.
func TestKeysHashCanonicalJSON(t *testing.T) {
	parts := artifact.Parts{"kind": `"exec"`, "settings.command": `["sh","-c","echo \\"a\\" \\\\ > $out"]`, "": ""}
	for c := range rune(0x300) {
		parts[string(c)] = string([]rune{c, '"', c})
	}
	for _, text := range []string{"\u2028", "\u2029", "\xff\xfe", "日本", "<&>", "\U0001F600"} {
		parts["x"+text] = text
	}
	var want bytes.Buffer
	e := json.NewEncoder(&want)
	e.SetEscapeHTML(false)
	if err := e.Encode(map[string]string(parts)); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(bytes.TrimSuffix(want.Bytes(), []byte{'\n'}))
	if got := keyOf(parts); got != hex.EncodeToString(sum[:]) {
		t.Errorf("got %s, want the hash of %s", got, want.String())
	}
	const want1 = "ac271ef40ee280734aa82523dd5b1e6a45314c821621e51b223cb28d0a6c7914" // printf … | sha256sum
	if got := keyOf(artifact.Parts{"kind": `"exec"`, "version": "1"}); got != want1 {
		t.Errorf(`got %s, want %s, the hash of {"kind":"\"exec\"","version":"1"}`, got, want1)
	}
}
