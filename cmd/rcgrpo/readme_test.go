//go:build libtorch

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"rcgrpo/bench/fixtures"
)

// notInASession are the commands of README.md that no session can run.
var notInASession = map[string]string{
	"make demo": "fetches libtorch and trains for ten minutes; its steps are run here and in the tutorial",
	"make test": "runs this test",
}

// TestReadme runs the commands of README.md in its order, on its own example made smaller and on a stand-in for the
// demo's experiment that has the stages which the commands name.
func TestReadme(t *testing.T) {
	page, err := os.ReadFile(rootFile(t, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)```hcl\n(.*?)```").FindSubmatch(page)
	if example == nil {
		t.Fatal("README.md has no example")
	}
	rates := string(example[1])
	for _, smaller := range [][2]string{{"[1, 2, 3]", "[1]"}, {"train  = 500", "train  = 60"}, {"test   = 100", "test   = 20"}, {"hidden    = 64", "hidden    = 32"}, {"layers    = 2", "layers    = 1"}} {
		if strings.Count(rates, smaller[0]) != 1 {
			t.Errorf("the example has %q not once; make it smaller in another way here", smaller[0])
		}
		rates = strings.Replace(rates, smaller[0], smaller[1], 1)
	}
	benchmark := fixtures.Benchmark(t)

	var session strings.Builder
	session.WriteString("mkdir experiments\ncp demo experiments/drills.hcl\nexec rcgrpo run experiments/drills.hcl\n")
	commands := shellCommands(string(page))
	for _, c := range commands {
		if notInASession[c] != "" {
			continue
		}
		command, ours := strings.CutPrefix(c, "bin/")
		if !ours {
			t.Errorf("%q is run by no test; add it to the session or say why not", c)
			continue
		}
		fmt.Fprintf(&session, "exec %s\n", command)
	}
	if n := strings.Count(session.String(), "exec rcgrpo"); n < 5 {
		t.Errorf("only %d commands", n)
	}
	dir := t.TempDir()
	files := map[string]string{"site.hcl": "store {\n  path = \"store\"\n}\n", "rates.hcl": rates, "demo": demoStandIn}
	session.WriteString("\n")
	for name, text := range files {
		fmt.Fprintf(&session, "-- %s --\n%s", name, text)
	}
	if err := os.WriteFile(filepath.Join(dir, "readme.txtar"), []byte(session.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{Dir: dir, Setup: func(e *testscript.Env) error {
		e.Setenv("HOME", e.WorkDir)
		e.Setenv("RCGRPO_SITE", filepath.Join(e.WorkDir, "site.hcl"))
		e.Setenv("RCGRPO_LEASES", filepath.Join(e.WorkDir, ".leases"))
		if err := os.Mkdir(filepath.Join(e.WorkDir, ".deps"), 0o755); err != nil { // where make puts it
			return err
		}
		return os.Symlink(benchmark, filepath.Join(e.WorkDir, ".deps", "bfcl"))
	}})
}

// demoStandIn has the stages of experiments/drills.hcl that README.md names.
const demoStandIn = `
experiment {
  question = "Do the commands of the README work?"
  seeds    = [1]
}
stage "tasks" "drills" {
  source = "drills"
  train  = 40
  test   = 10
}
stage "curate" "data" {
  tasks  = stage.tasks.drills.train
  ratio  = 1
  spoilt = 1
}
stage "model" "random" {
  seed   = 0
  corpus = [stage.curate.data.expert]
  architecture {
    family    = "qwen2"
    hidden    = 32
    layers    = 1
    heads     = 2
    kv_heads  = 1
    mlp       = 64
    rope_base = 1000
    context   = 384
  }
}
stage "rctp-ft" "warm" {
  policy = stage.model.random.checkpoint
  data   = [stage.curate.data.mixed]
  epochs = 1
}
stage "rc-grpo" "arm" {
  for_each = { rctp = stage.rctp-ft.warm.checkpoint }
  policy   = each.value
  tasks    = stage.tasks.drills.train
  updates  = 2
  batch    = 2
  group    = 8
  limits {
    steps   = 2
    reply   = 16
    context = 384
  }
}
stage "report" "page" {
  curves = [stage.rc-grpo.arm]
  data   = [stage.tasks.drills.train, stage.tasks.drills.test]
}
`

// A block of commands stands where a test runs it: in README.md, docs/tutorial.md or docs/models.md, and each of its exceptions is one.
func TestCommandsStandOnlyWhereTheyAreRun(t *testing.T) {
	t.Chdir(fixtures.Root(t))
	paths, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(paths, "README.md", "CONTRIBUTING.md", "CHANGELOG.md") {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		commands := shellCommands(string(page))
		if run := slices.Contains([]string{"README.md", filepath.Join("docs", "tutorial.md"), filepath.Join("docs", "models.md")}, path); len(commands) > 0 && !run {
			t.Errorf("%s has commands that no test runs: %q", path, commands)
		}
		if path == "README.md" {
			for c := range notInASession {
				if !slices.Contains(commands, c) {
					t.Errorf("README.md has no command %q any more", c)
				}
			}
		}
	}
}

// rootFile returns the path of a file of the repository.
func rootFile(t *testing.T, name string) string {
	return filepath.Join(fixtures.Root(t), name)
}

// shellCommands are the lines of a page's blocks of commands, without what explains them.
func shellCommands(page string) []string {
	var commands []string
	for _, block := range regexp.MustCompile("(?s)```(?:sh|bash|console)\n(.*?)```").FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(block[1]) {
			line, _, _ = strings.Cut(line, "  #")
			line, _, _ = strings.Cut(line, " # ")
			if line = strings.TrimSpace(line); line != "" {
				commands = append(commands, line)
			}
		}
	}
	return commands
}
