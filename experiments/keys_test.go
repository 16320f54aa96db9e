package experiments

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/internal/must"
)

// rewritten maps the files that testdata/keys.txt names to the present files and their variables.
var rewritten = map[string]struct {
	file string
	vars func(old map[string]string) map[string]string
}{
	"paper_qwen.hcl": {"paper.hcl", func(old map[string]string) map[string]string {
		return map[string]string{"models": fmt.Sprintf("{ qwen = %q }", old["base"])}
	}},
	"paper_llama.hcl": {"paper.hcl", func(old map[string]string) map[string]string {
		return map[string]string{"models": fmt.Sprintf("{ llama = %q }", old["base"]), "explorer": old["explorer"]}
	}},
}

// Rewriting an experiment must not change its results: every stage of the files before has a stage with the same key.
// Keys of reports contain the addresses of their inputs, so these are compared without addresses.
func TestEveryStageKeepsItsKey(t *testing.T) {
	folders := map[string]string{"FOLDER/qwen2": folder(t, "qwen2"), "FOLDER/llama": folder(t, "llama")}
	blocks := strings.Split(strings.TrimSpace(read(t, filepath.Join("testdata", "keys.txt"))), "\n\n")[1:]
	for _, block := range blocks {
		lines := strings.Split(block, "\n")
		file, vars := lines[0], map[string]string{}
		for len(lines) > 1 && strings.HasPrefix(lines[1], "var ") {
			for _, field := range strings.Fields(lines[1])[1:] {
				name, value, _ := strings.Cut(field, "=")
				vars[name] = cmp.Or(folders[value], value)
			}
			lines = slices.Delete(lines, 1, 2)
		}
		if r, ok := rewritten[file]; ok {
			given := r.vars(vars)
			delete(vars, "base")
			maps.Copy(vars, given)
			file = r.file
		}
		t.Run(fmt.Sprint(lines[0], " ", len(vars)), func(t *testing.T) {
			x, diags := lang.Load(lang.Source{Path: file, Vars: vars}, registry())
			if len(diags) > 0 {
				t.Fatal(diags)
			}
			keys := slices.Collect(maps.Values(keysOf(x)))
			for _, line := range lines[1:] {
				key, address, _ := strings.Cut(line, " ")
				if !slices.Contains(keys, key) {
					t.Errorf("no stage has the key of %s", address)
				}
			}
			if len(lines) < 15 {
				t.Errorf("got %d keys", len(lines))
			}
		})
	}
}

// keysOf returns the key of every node by address, if each output is a function of its node's key. The key of a report
// does not contain the addresses of its inputs here, and that of a model does not contain the path of its folder.
func keysOf(x *lang.Experiment) map[string]string {
	keys := map[*lang.Node]string{}
	byAddress := map[string]string{}
	for _, n := range x.Nodes {
		same := *n
		same.Inputs, same.Settings = slices.Clone(n.Inputs), slices.Clone(n.Settings)
		for i, in := range n.Inputs {
			from := *in.From
			from.Address = ""
			keys[&from], same.Inputs[i].From = keys[in.From], &from
		}
		for i, s := range n.Settings {
			// The notes name the file with the settings of the paper, whose name has changed.
			same.Settings[i].Value = folderPath.ReplaceAllString(strings.ReplaceAll(s.Value, "paper.hcl", "paper_qwen.hcl"), "$1")
		}
		keys[n], _, _ = plan.Key(&same, func(from *lang.Node, port string) (string, bool) { return keys[from] + port, true })
		byAddress[n.Address] = keys[n][:16]
	}
	return byAddress
}

var folderPath = regexp.MustCompile(`^{"Path":".*","Digest":("[0-9a-f]{64}"),"Dir":true}$`)

func TestExperimentsAreShortAndFormatted(t *testing.T) {
	files := must.Get(filepath.Glob("*.hcl"))(t)
	total := 0
	for _, file := range files {
		text := read(t, file)
		if formatted, diags := lang.Format([]byte(text), file); diags.HasErrors() || string(formatted) != text {
			t.Errorf("rcgrpo fmt changes %s", file)
		}
		for line := range strings.Lines(text) {
			total++
			if utf8.RuneCountInString(line) > 121 {
				t.Errorf("%s has a line of more than 120 columns: %s", file, line)
			}
		}
	}
	if total > 900 {
		t.Errorf("the experiments have %d lines, want at most 900; put shared stages into a module", total)
	}
}
