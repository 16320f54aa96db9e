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

// present returns the file and variables that replace a file of testdata/keys.txt and its variables.
func present(file string, vars map[string]string) (string, map[string]string) {
	delete(vars, "precision") // follows from gpus
	models := map[string]string{"paper_qwen.hcl": "qwen", "paper_llama.hcl": "llama"}
	if model := models[file]; model != "" {
		file, vars["models"] = "paper.hcl", fmt.Sprintf("{ %s = %q }", model, vars["base"])
		delete(vars, "base")
	}
	return file, vars
}

// Rewriting an experiment must not change its results: every stage of the files before has a stage with the same key,
// and its report has the same comparisons. After an intended change of a kind or an experiment, remove the stages that
// it concerns from the list.
func TestEveryStageKeepsItsKey(t *testing.T) {
	folders := map[string]string{"FOLDER/qwen2": folder(t, "qwen2"), "FOLDER/llama": folder(t, "llama")}
	for _, block := range strings.Split(strings.TrimSpace(read(t, filepath.Join("testdata", "keys.txt"))), "\n\n")[1:] {
		lines := strings.Split(block, "\n")
		vars := map[string]string{}
		for strings.HasPrefix(lines[1], "var ") {
			for _, field := range strings.Fields(lines[1])[1:] {
				name, value, _ := strings.Cut(field, "=")
				vars[name] = cmp.Or(folders[value], value)
			}
			lines = slices.Delete(lines, 1, 2)
		}
		t.Run(fmt.Sprint(lines[0], " ", len(vars)), func(t *testing.T) {
			file, vars := present(lines[0], vars)
			x, diags := lang.Load(lang.Source{Path: file, Vars: vars}, registry())
			if len(diags) > 0 {
				t.Fatal(diags)
			}
			keys := slices.Collect(maps.Values(keysOf(x)))
			var compared, want []string
			for _, n := range x.Nodes {
				if n.Kind.AcrossSeeds {
					compared = append(compared, comparisons(n)...)
				}
			}
			for _, line := range lines[1:] {
				key, rest, _ := strings.Cut(line, " ")
				switch {
				case key == "arms" || key == "pair":
					want = append(want, line)
				case !slices.Contains(keys, key):
					t.Errorf("no stage has the key of %s", rest)
				}
			}
			if want != nil && !slices.Equal(compared, want) {
				t.Errorf("got comparisons\n%s\nwant\n%s", strings.Join(compared, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

var (
	folderPath = regexp.MustCompile(`^{"Path":".*","Digest":("[0-9a-f]{64}"),"Dir":true}$`)
	notListed  = regexp.MustCompile(`^(compare|arms\b|experiment\.|path$)`) // of a report, see testdata/keys.txt
)

// keysOf returns the keys by address, computed as testdata/keys.txt describes.
func keysOf(x *lang.Experiment) map[string]string {
	keys := map[*lang.Node]string{}
	byAddress := map[string]string{}
	for _, n := range x.Nodes {
		listed := func(name string) bool { return !n.Kind.AcrossSeeds || !notListed.MatchString(name) }
		same := *n
		same.Inputs, same.Settings = nil, nil
		for _, in := range n.Inputs {
			from := *in.From
			from.Address = ""
			keys[&from], in.From = keys[in.From], &from
			if listed(in.Setting) {
				same.Inputs = append(same.Inputs, in)
			}
		}
		for _, s := range n.Settings {
			s.Value = folderPath.ReplaceAllString(strings.ReplaceAll(s.Value, "paper.hcl", "paper_qwen.hcl"), "$1")
			if listed(s.Name) {
				same.Settings = append(same.Settings, s)
			}
		}
		keys[n], _, _ = plan.Key(&same, func(from *lang.Node, port string) (string, bool) { return keys[from] + port, true })
		byAddress[n.Address] = keys[n][:16]
	}
	return byAddress
}

// comparisons returns the order of arms and the pairs of a report, in the form of testdata/keys.txt.
func comparisons(n *lang.Node) (lines []string) {
	labels := func(setting string) (found []string) {
		for _, in := range n.Inputs {
			if strings.HasPrefix(in.Setting, setting+"[") && !slices.Contains(found, in.From.EachKey) {
				found = append(found, in.From.EachKey)
			}
		}
		return found
	}
	if arms := labels("arms"); arms != nil {
		lines = append(lines, "arms "+strings.Join(arms, "; "))
	}
	values := map[string]string{}
	for _, s := range n.Settings {
		values[s.Name] = strings.Trim(s.Value, `"`)
	}
	for i := 0; values[fmt.Sprintf("compare[%d].name", i)] != ""; i++ {
		block := fmt.Sprintf("compare[%d].", i)
		without, with := labels(block+"without"), labels(block+"with")
		for j := range max(len(without), len(with)) { // a single arm is compared with all of the other side
			pair := []string{values[block+"name"], values[block+"outcome"], values[block+"expect"],
				without[min(j, len(without)-1)], with[min(j, len(with)-1)]}
			lines = append(lines, "pair "+strings.Join(pair, "; "))
		}
	}
	return lines
}

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
