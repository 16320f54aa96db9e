package docs_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mitchellh/go-wordwrap"

	"rcgrpo/bench/fixtures"
	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
)

// Describe panics if a tag or a type of a setting is none of package lang.
func TestKindsAreSound(t *testing.T) {
	taken := map[string]bool{}
	for _, s := range lang.StageSettings() {
		taken["setting "+s.Name] = true
	}
	for _, k := range kinds() {
		d := k.Describe()
		for _, preset := range k.Presets() {
			k.DescribePreset(preset)
		}
		if taken[k.Name] || d.Summary == "" || d.Version < 1 {
			t.Errorf("kind %s: want a name of its own, a summary, and a version", k.Name)
		}
		taken[k.Name] = true
		for _, s := range d.Settings {
			if taken["setting "+s.Name] {
				t.Errorf("kind %s: setting %s means something else in every stage", k.Name, s.Name)
			}
		}
	}
}

// The part of docs/language.md after the marker is generated from the kinds; -update renews it.
func TestLanguagePageIsCurrent(t *testing.T) {
	const path, marker = "docs/language.md", "renews it. -->\n"
	page := read(t, path)
	head, had, ok := strings.Cut(page, marker)
	if !ok {
		t.Fatalf("%s lacks the marker %q", path, marker)
	}
	var printed bytes.Buffer
	printed.WriteString("\n")
	kinds().WriteMarkdown(&printed)
	functions := wordwrap.WrapString("Functions: `"+strings.Join(lang.Functions(), "`, `")+"`.", 100) + "\n\n"
	head = regexp.MustCompile(`(?ms)^Functions: .*?\n\n`).ReplaceAllLiteralString(head, functions)
	want := head + marker + printed.String()
	if *update {
		must.OK(t, os.WriteFile(path, []byte(want), 0o644))
		return
	}
	if page != want {
		t.Errorf("%s is outdated (%d bytes after the marker, want %d); run go test ./docs -run TestLanguagePage -update",
			path, len(had), printed.Len())
	}
}

// `make smollm2` trains the file that it downloads, also into another folder of dependencies.
func TestMakeSmollm2NamesTheModelThatItDownloads(t *testing.T) {
	deps := t.TempDir()
	out, err := exec.Command("make", "-C", fixtures.Root(t), "-n", "smollm2", "DEPS="+deps).CombinedOutput()
	file := regexp.MustCompile(`smollm2/(\S+\.gguf)`).FindStringSubmatch(read(t, "experiments/smollm2_first.hcl"))
	want := "--var model='" + deps + "/smollm2/" + file[1] + "' --site '" + deps + "/site.hcl'"
	must.OK(t, err)
	must.Contain(t, string(out), want, "fetch.py smollm2 '"+deps+"'")
}

// docs/own_tasks.md explains each function and each list of the programs that `rcgrpo init tools` writes.
func TestOwnTasksPageExplainsThePrograms(t *testing.T) {
	page := read(t, "docs/own_tasks.md")
	name := regexp.MustCompile(`(?m)^(?:def )?(\w+)(?: = |\()`)
	for _, path := range []string{"shop/shop.py", "agent/agent.py"} {
		_, table, _ := strings.Cut(page, "| lines of "+filepath.Base(path)+" | meaning |")
		table, _, _ = strings.Cut(table, "\n\n")
		names := name.FindAllStringSubmatch(read(t, "cmd/rcgrpo/templates/tools/"+path), -1)
		for _, n := range names {
			if !strings.Contains(table, "`"+n[1]+"`") {
				t.Errorf("%s: the table does not explain %s", path, n[1])
			}
		}
		if len(names) < 2 {
			t.Errorf("%s: found %q", path, names)
		}
	}
}

// Every hcl block of the documentation loads: as an experiment, a site file, or a part of an experiment.
func TestHCLOfTheDocumentation(t *testing.T) {
	block := regexp.MustCompile("(?s)```hcl\n(.*?)```")
	for _, path := range append(pages(t), "README.md") {
		for i, m := range block.FindAllStringSubmatch(read(t, path), -1) {
			t.Run(fmt.Sprintf("%s/%d", filepath.Base(path), i+1), func(t *testing.T) { checkBlock(t, m[1]) })
		}
	}
}

func checkBlock(t *testing.T, text string) {
	file := filepath.Join(t.TempDir(), "x.hcl")
	if regexp.MustCompile(`(?m)^(store|executor|data|api|notify|remote) `).MatchString(text) {
		must.OK(t, os.WriteFile(file, []byte(text), 0o644))
		if _, _, diags := lang.LoadSite(lang.Source{Site: file, Env: os.Environ()}); len(diags) > 0 {
			t.Errorf("%s\n%s", diags, text)
		}
		return
	}
	fragment := !strings.Contains(text, "experiment {")
	if fragment {
		text = "experiment {}\n" + text
	}
	must.OK(t, os.WriteFile(file, []byte(text), 0o644))
	for _, name := range []string{"shop", "notes", "agent"} { // of docs/own_tasks.md
		must.OK(t, os.Mkdir(filepath.Join(filepath.Dir(file), name), 0o700))
	}
	must.OK(t, os.WriteFile(filepath.Join(filepath.Dir(file), "notes.jsonl"), nil, 0o600))
	vars := map[string]string{}
	if strings.Contains(text, `variable "base"`) {
		vars["base"] = fixtures.Dir(t, "hf/models/qwen2-tiny")
	}
	_, diags := lang.Load(lang.Source{Path: file, Env: os.Environ(), Vars: vars}, kinds())
	for _, d := range diags {
		elsewhere := fragment && slices.Contains([]string{"Reference to nothing", "Unknown local", "Unknown variable",
			"Unused variable"}, d.Summary) // the fragment refers to other parts
		if !elsewhere && d.Summary != "Unreadable module" { // the files of other blocks
			t.Errorf("%s: %s\n%s", d.Summary, d.Detail, text)
		}
	}
}

func TestReadmeNamesEveryPageOfTheDocumentation(t *testing.T) {
	readme := read(t, "README.md")
	for _, page := range append(pages(t), "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff", "LICENSE",
		"experiments/LOG.md") {
		if !strings.Contains(readme, "]("+page+")") {
			t.Errorf("README.md does not link %s", page)
		}
	}
}

// Every new table changes the counts of cells, values and artifacts. verify prints them; documents do not repeat them.
func TestDocumentsDoNotCountWhatVerifyCounts(t *testing.T) {
	counted := regexp.MustCompile(`[0-9][0-9,.]* (cells|values of figures|artifacts)\b`)
	for _, path := range append(pages(t), "README.md") {
		if found := counted.FindString(read(t, path)); found != "" {
			t.Errorf("%s contains %q; verify prints the current number", path, found)
		}
	}
}

// The tree of docs/architecture.md names existing folders. Some other parts must appear in the code if the page names
// them.
func TestArchitectureNamesOnlyWhatIsThere(t *testing.T) {
	page := read(t, "docs/architecture.md")
	_, rest, _ := strings.Cut(page, "## The tree\n```\n")
	tree, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/architecture.md has no tree")
	}
	folder, parent, folders := regexp.MustCompile(`[a-z0-9_./]+/`), "", 0
	for line := range strings.Lines(tree) {
		inside := strings.HasPrefix(line, "  ")
		for i, name := range folder.FindAllString(line, -1) {
			if inside {
				name = filepath.Join(parent, name)
			} else if i == 0 {
				parent = name
			}
			if info, err := os.Stat(name); err != nil || !info.IsDir() {
				t.Errorf("docs/architecture.md names the folder %s, which does not exist", name)
			}
			folders++
		}
	}
	if folders < 20 {
		t.Errorf("got %d folders in the tree, want at least 20", folders)
	}
	var code strings.Builder
	eachFile(t, func(path string) error {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		code.Write(text)
		return err
	})
	for _, part := range []string{"c10d", "NCCL", "endpoint"} {
		if strings.Contains(page, part) && !strings.Contains(code.String(), part) {
			t.Errorf("docs/architecture.md names %s, which no code does", part)
		}
	}
}
