//go:build libtorch

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
)

// session runs the commands of a page as a script.
type session struct {
	*testing.T
	page          string
	script, files strings.Builder
}

func newSession(t *testing.T, path string) *session {
	t.Helper()
	page := must.Get(os.ReadFile(filepath.Join(fixtures.Root(t), path)))(t)
	return &session{T: t, page: string(page)}
}

func (s *session) line(format string, args ...any) { fmt.Fprintf(&s.script, format+"\n", args...) }

func (s *session) file(name, text string) { fmt.Fprintf(&s.files, "-- %s --\n%s", name, text) }

// block returns the first block of a language. It replaces texts that must occur once with smaller ones.
func (s *session) block(language string, smaller ...string) string {
	s.Helper()
	found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(s.page)
	if found == nil {
		s.Fatalf("the page has no block of %s", language)
	}
	text := found[1]
	for pair := range slices.Chunk(smaller, 2) {
		if strings.Count(text, pair[0]) != 1 {
			s.Errorf("the example must contain %q once; adapt this test", pair[0])
		}
		text = strings.Replace(text, pair[0], pair[1], 1)
	}
	return text
}

// run runs the script in a folder that prepare fills.
func (s *session) run(site string, prepare func(work string) error) {
	if !strings.Contains(site, "store {") {
		site = "store {\n  path = \"store\"\n}\n" + site
	}
	s.file("site.hcl", site)
	dir := s.TempDir()
	text := s.script.String() + "\n" + s.files.String()
	must.OK(s, os.WriteFile(filepath.Join(dir, "page.txtar"), []byte(text), 0o644))
	testscript.Run(s.T, testscript.Params{
		Dir: dir, Cmds: map[string]func(*testscript.TestScript, bool, []string){"changes": changes, "edit": edit,
			"api": api},
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("RCGRPO_SITE", filepath.Join(e.WorkDir, "site.hcl"))
			e.Setenv("RCGRPO_LEASES", filepath.Join(e.WorkDir, ".leases"))
			return prepare(e.WorkDir)
		}})
}

// changes N BUNDLE calls changeBytes in a script.
func changes(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	ts.Check(changeBytes(ts.MkAbs(args[1]), ts.MkAbs("unpacked"), n, ts.Logf))
}

// shellCommands returns the commands of a page without their comments.
func shellCommands(page string) []string {
	var commands []string
	comment := regexp.MustCompile(`(  #| # ).*`)
	for _, block := range regexp.MustCompile("(?s)```(?:sh|bash|console)\n(.*?)```").FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(block[1]) {
			if line = strings.TrimSpace(comment.ReplaceAllString(line, "")); line != "" {
				commands = append(commands, line)
			}
		}
	}
	return commands
}

// notInASession are the commands of README.md that the test cannot run.
var notInASession = map[string]string{
	"make demo":    "fetches libtorch and trains for ten minutes; its steps are run here and in the tutorial",
	"make smollm2": "trains a real model for ten minutes; experiments checks its file, stages/internal/gguf the model",
	"make test":    "runs this test",
}

// TestReadme runs the commands of README.md on a smaller version of its example. A stand-in replaces the demo.
func TestReadme(t *testing.T) {
	benchmark := fixtures.Benchmark(t)
	s := newSession(t, "README.md")
	s.file("rates.hcl", s.block("hcl", "[1, 2, 3]", "[1]", "copy = 16000, single = 8000, multi = 1500",
		"copy = 60, single = 60, multi = 60", "train    = each.value",
		"train = each.value\n  test  = each.key == \"multi\" ? 20 : null", "hidden = 128", "hidden = 32",
		"layers = 2", "layers = 1"))
	s.file("demo", demoStandIn)
	s.line("mkdir experiments\ncp demo experiments/drills.hcl\nexec rcgrpo run experiments/drills.hcl")
	commands := 0
	for _, c := range shellCommands(s.page) {
		command, ours := strings.CutPrefix(c, "bin/")
		switch {
		case ours:
			s.line("exec %s", command)
			commands++
		case notInASession[c] == "":
			t.Errorf("no test runs %q; add it to the session or to notInASession", c)
		}
	}
	if commands < 4 {
		t.Errorf("got %d commands, want at least 4", commands)
	}
	s.run("", func(work string) error {
		if err := os.Mkdir(filepath.Join(work, ".deps"), 0o755); err != nil { // as make does
			return err
		}
		return os.Symlink(benchmark, filepath.Join(work, ".deps", "bfcl"))
	})
}

// demoStandIn has the stages of experiments/drills.hcl that README.md uses.
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
  architecture = { family = "qwen2", hidden = 32, layers = 1, heads = 2, kv_heads = 1, mlp = 64, rope_base = 1000,
  context = 384 }
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

// TestTutorial runs the commands of docs/tutorial.md with few drills. A block of HCL replaces the blocks with the same
// header in the file that the page named last, is appended to it, or is a new file.
func TestTutorial(t *testing.T) {
	s := newSession(t, "docs/tutorial.md")
	names := regexp.MustCompile("`(study/[a-z_]+\\.hcl)`")
	s.line("env RCGRPO_VAR_drills=5")
	commands := 0
	for n, at := range regexp.MustCompile("(?s)```(hcl|sh)\n(.*?)```").FindAllStringSubmatchIndex(s.page, -1) {
		kind, text := s.page[at[2]:at[3]], s.page[at[4]:at[5]]
		if kind == "hcl" {
			name := names.FindAllStringSubmatch(s.page[:at[0]], -1)
			if name == nil {
				t.Fatalf("block %d has no file", n+1)
			}
			s.line("edit %s file%d", name[len(name)-1][1], n)
			s.file(fmt.Sprint("file", n), text)
			continue
		}
		for line := range strings.Lines(text) {
			s.line("exec %s", strings.TrimSpace(line))
			commands++
			switch strings.TrimSpace(line) {
			case "rcgrpo plan study/drills.hcl": // the rate of the first run is reused
				s.line(`! stdout '0\.002'`)
			case "rcgrpo plan study/widths.hcl": // and the width
				s.line("stdout '\"64\"'\n! stdout '\"128\"'")
			}
		}
	}
	if commands < 17 {
		t.Errorf("got %d commands, want at least 17", commands)
	}
	s.line(`changes 200 drills.tar.gz
exec rcgrpo plan study/widths.hcl --detailed-exitcode
grep 'Drills and copies, width 64' study/widths.html`)
	s.run("", func(string) error { return nil })
}

// edit FILE BLOCK changes a file of a script as TestTutorial describes.
func edit(ts *testscript.TestScript, _ bool, args []string) {
	path, block := ts.MkAbs(args[0]), ts.ReadFile(args[1])
	text := ""
	if old, err := os.ReadFile(path); err == nil {
		text = string(old)
	}
	header, _, _ := strings.Cut(block, "{")
	before, rest, found := strings.Cut(text, header)
	if found { // the block ends with the first line } or is one line
		_, after, _ := strings.Cut(rest, "}\n")
		if first, _, _ := strings.Cut(rest, "\n"); !strings.HasSuffix(first, "}") {
			_, after, _ = strings.Cut(rest, "\n}\n")
		}
		text = before + block + after
	} else {
		text += block
	}
	ts.Check(os.WriteFile(path, []byte(text), 0o644))
}

// TestModelsPage runs the file and the commands of docs/models.md with a small model, and its Python if $PYTHON has
// transformers.
func TestModelsPage(t *testing.T) {
	benchmark, reference := fixtures.Benchmark(t), fixtures.Dir(t, "hf/models/qwen2-tiny")
	s := newSession(t, "docs/models.md")
	commands := shellCommands(s.page)
	for _, c := range commands {
		c, ours := strings.CutPrefix(c, "bin/")
		if !ours {
			t.Errorf("no test runs %q", c)
		}
		s.line("exec %s", c)
		switch {
		case strings.HasPrefix(c, "rcgrpo logs"):
			s.line("stdout '^memory on cpu of .*: weights .*, merged weights .*, adapter '")
		case strings.HasPrefix(c, "rcgrpo plan first"):
			s.line("stdout '^model: .*8 to run'") // agent.hcl has imported the model
		case strings.HasPrefix(c, "rcgrpo show"):
			s.line("stdout 'hidden_size +64'\nstdout 'adapter/adapter_config.json'")
		}
	}
	if len(commands) != 6 {
		t.Errorf("got %d commands, want 6", len(commands))
	}
	s.line(`exists trained/model.safetensors trained/config.json trained/tokenizer.json
exists trained/adapter/adapter_model.safetensors
cmp trained/generation_config.json models/Qwen2.5-0.5B-Instruct/generation_config.json
cmp trained/tokenizer_config.json models/Qwen2.5-0.5B-Instruct/tokenizer_config.json`)
	if python := os.Getenv("PYTHON"); python != "" && exec.Command(python, "-c", "import transformers").Run() == nil {
		s.line("exec %s load.py\nstdout 'torch.Size'", python)
	}
	s.file("agent.hcl", s.block("hcl", "group       = 4", "group       = 2",
		"    \"Base\"       = stage.model.base.checkpoint\n    \"SFT\"        = stage.sft.warm.checkpoint\n", ""))
	s.file("load.py", s.block("python"))
	must.Long(t) // stages has shorter trainings of such models
	s.run("data {\n  bfcl = \""+benchmark+"\"\n}\n", func(work string) error {
		return longContext(reference, filepath.Join(work, "models", "Qwen2.5-0.5B-Instruct"))
	})
}

// longContext copies a model folder and raises its context to the size of the benchmark's tools. Rotary positions have
// no weights.
func longContext(from, to string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	path := filepath.Join(to, "config.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var keys map[string]any
	if err := json.Unmarshal(text, &keys); err != nil {
		return err
	}
	keys["max_position_embeddings"] = 32768
	if text, err = json.Marshal(keys); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// TestServingPage runs the commands of docs/serving.md with few drills, on a free port. Its Python runs if $PYTHON, or
// .deps/mcp-python, where .ci/run installs it, has the package openai.
func TestServingPage(t *testing.T) {
	s := newSession(t, "docs/serving.md")
	port := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := port.Addr().String()
	port.Close()
	onPort := strings.NewReplacer("localhost:8000", address, "127.0.0.1:8000", address)
	s.line("env RCGRPO_VAR_drills=5")
	for _, c := range shellCommands(s.page) {
		switch words := strings.Fields(c); words[0] + " " + words[1] {
		case "rcgrpo serve":
			s.line("exec %s &", onPort.Replace(c))
			s.line("exec curl -s --retry 100 --retry-delay 1 --retry-connrefused http://%s/health", address)
		case "curl -s":
			s.line("exec %s\nstdout '\"object\":\"(list|chat.completion)\"'", onPort.Replace(c))
		default:
			s.line("exec %s", c)
		}
	}
	python := cmp.Or(os.Getenv("PYTHON"), filepath.Join(fixtures.Root(t), ".deps/mcp-python/bin/python"))
	if exec.Command(python, "-c", "import openai").Run() == nil {
		s.line("exec %s client.py", python)
	}
	s.line("kill -INT\nwait\nstdout 'http://127.0.0.1:'")
	s.file("client.py", onPort.Replace(s.block("python")))
	s.run("", func(string) error { return nil })
}

// The Python clients of bench/serve_clients.sh call a served policy. .ci/run installs them.
func TestPythonClientsOfAServer(t *testing.T) {
	root := fixtures.Root(t)
	for _, name := range []string{"inspect-ai", "lm-eval"} {
		if _, err := os.Stat(filepath.Join(root, ".deps/clients", name, "complete")); err != nil {
			t.Skipf("%s is not installed; run bench/serve_clients.sh install", name)
		}
	}
	s := &session{T: t}
	s.line("exec sh -c 'RCGRPO=$(command -v rcgrpo) exec %s'", filepath.Join(root, "bench/serve_clients.sh"))
	for _, name := range []string{"openai", "inspect-ai", "lm-eval"} {
		s.line("stdout '^%s: ok$'", name)
	}
	s.run("", func(string) error { return nil })
}

// TestAPIModelsPage runs the commands of docs/api_models.md with a server on this machine in place of OpenAI's.
func TestAPIModelsPage(t *testing.T) {
	data := fixtures.Benchmark(t)
	s := newSession(t, "docs/api_models.md")
	const model = "model = \"gpt-4.1-2025-04-14\"\n"
	s.file("models.txt", s.block("hcl", model, model+"  base_url = \"URL/v1\"\n"))
	s.line("api server\nexec sh -c 'sed s,URL,$API, models.txt > models.hcl'")
	wanted := []string{"", `API calls: about \$0\.\d\d`, "^done ", "nothing to do"}
	for i, c := range shellCommands(s.page) {
		if key, ok := strings.CutPrefix(c, "export OPENAI_API_KEY="); ok {
			s.line("env OPENAI_API_KEY=sk-test-0123456789%s", key)
			continue
		}
		s.line("exec %s\nstdout '%s'", c, wanted[i])
	}
	site := regexp.MustCompile("(?s)```hcl\n(data .*?)```").FindStringSubmatch(s.page)[1]
	s.run(strings.Replace(site, ".deps/bfcl", data, 1), func(string) error { return nil })
}

// helpedAgent has agent.py ask for help first, in a conversation of its own.
const helpedAgent = `/^    for step/i \    help = [{"role": "user", "content": "Help me."}]
/^    for step/i \    post(base_url + "/chat/completions", api_key, {"model": model, "messages": help})
`

// gapProgram has shop.py leave out what the variable GAP names.
const gapProgram = `s/^import sys/import os, sys\nGAP = os.environ["GAP"]/
s/"expert": .calls.}/**({} if GAP == "expert" else {"expert": [calls]})}/
s/"family": family, /**({} if GAP == "family" else {"family": family}), /
s/1 if cart == want else 0/1 if cart == want else 0.5 if GAP == "graded" and cart.keys() == want.keys() else 0/
`

// gapExperiment runs every kind of stage on tasks without experts, without families and with graded rewards. A curate
// stage without experts fails; the others need none.
const gapExperiment = `
locals { gaps = ["expert", "family", "graded"] }
stage "tasks" "gap" {
  for_each = local.gaps
  source   = "command"
  program  = dir("gap", ["__pycache__"])
  command  = ["python3", "shop.py"]
  env      = { GAP = each.key }
  train    = 8
  test     = 20
}
stage "rollout" "gap" {
  for_each = local.gaps
  policy   = stage.sft.base.checkpoint
  tasks    = stage.tasks.gap[each.key].train
  samples  = 8
}
stage "curate" "gap" {
  for_each = local.gaps
  tasks    = stage.tasks.gap[each.key].train
  failures = stage.rollout.gap[each.key]
  ratio    = 0.5
}
stage "sft" "gap" {
  for_each = ["family", "graded"]
  policy   = stage.sft.base.checkpoint
  data     = [stage.curate.gap[each.key].expert]
  epochs   = 1
}
stage "rctp-ft" "gap" {
  for_each = ["family", "graded"]
  policy   = stage.sft.base.checkpoint
  data     = [stage.curate.gap[each.key].mixed]
  epochs   = 1
  tokens { position = "before_each_action" }
}
stage "rc-grpo" "gap" {
  for_each = local.gaps
  policy   = stage.rctp-ft.warm.checkpoint
  tasks    = stage.tasks.gap[each.key].train
}
stage "eval" "gap" {
  for_each = local.gaps
  policy   = stage.rc-grpo.gap[each.key].checkpoint
  tasks    = stage.tasks.gap[each.key].test
}
stage "report" "page" {
  scores      = stage.eval.gap
  curves      = stage.rc-grpo.gap
  transcripts = [stage.rollout.gap]
}
`

// TestOwnTasksPage runs the commands of docs/own_tasks.md with two updates and one seed. A second experiment has tasks
// that lack what the benchmark's tasks have.
func TestOwnTasksPage(t *testing.T) {
	s := newSession(t, "docs/own_tasks.md")
	for _, c := range shellCommands(s.page) {
		s.line("exec %s", c)
		if strings.HasPrefix(c, "rcgrpo init") {
			s.line("exec sed -i 's/.1, 2, 3./[1]/' study/tools.hcl\nenv RCGRPO_VAR_updates=2")
		}
	}
	s.line(`stdout 'study/tools.html$'
exec rcgrpo verify study/tools.html
exec rcgrpo plan study/tools.hcl --detailed-exitcode
exec rcgrpo logs tasks.shop@1 study/tools.hcl
stdout 'trial: 3 experts played twice, with equal results and reward 1'
exec sh -c 'cat agent.hcl >> study/tools.hcl'
exec sed -i -f helper.sed study/agent/agent.py
exec rcgrpo run study/tools.hcl --target report.agent
exec rcgrpo verify study/agent.html
exec rcgrpo show rc-grpo.agent@1.trajectories study/tools.hcl
stdout 'assistant .*add'
stdout 'sequence 2 of 2: its first request continues no earlier reply'
exec rcgrpo replay rc-grpo.agent@1.trajectories study/tools.hcl
stdout 'with [0-9]+ further sequences of agents'
exec rcgrpo reproduce 'study/tools.html#main-test.r1c2' --run --trust
stdout 'is equal: '
exec rcgrpo show tasks.shop@1.train study/tools.hcl --row 0
stdout 'task .*"expert":'
exec cp -r study/shop study/gap
exec sed -i -f gap.sed study/gap/shop.py
exec sh -c 'sed "/^stage \"eval\"/,\$d" study/tools.hcl | cat - gaps.hcl >study/gaps.hcl'
! exec rcgrpo run study/gaps.hcl
stdout 'it has no expert calls: give "expert"'
exec rcgrpo run study/gaps.hcl --target report.page
exec rcgrpo verify study/gaps.html
grep 'Success on your own tasks is a reward of 1' study/gaps.html
exec rcgrpo logs 'tasks.gap["expert"]@1' study/gaps.hcl
stdout 'have no expert calls .*start from a checkpoint that solves some'
exec rcgrpo logs 'tasks.gap["family"]@1' study/gaps.hcl
stdout 'give tasks that share a solution one "family"'
exec rcgrpo logs 'curate.gap["graded"]@1' study/gaps.hcl
stdout 'left out: a reward between 0 and 1'
exec rcgrpo replay 'rc-grpo.gap["graded"]@1.trajectories' study/gaps.hcl
exec sed -i 's/else 0/else 0.0/' study/shop/shop.py
! exec rcgrpo plan study/tools.hcl --detailed-exitcode
stdout 'tasks.shop'
exec rcgrpo run notes.hcl
exec rcgrpo logs tasks.notes notes.hcl
stdout 'trial: 2 experts played twice, with equal results and reward 1'`)
	hcl := regexp.MustCompile("(?s)```hcl\n(.*?)```").FindAllStringSubmatch(s.page, -1)
	for name, sign := range map[string]string{"agent.hcl": "# added to study/tools.hcl", "notes.hcl": "experiment {}"} {
		for _, block := range hcl {
			if strings.HasPrefix(block[1], sign) {
				s.file(name, block[1])
			}
		}
	}
	s.file("helper.sed", helpedAgent)
	s.file("gap.sed", gapProgram)
	s.file("gaps.hcl", gapExperiment)
	s.file("notes.jsonl", s.block("json"))
	s.file("notes/notes.py", s.block("python"))
	s.run("", func(string) error { return nil })
}

// Only pages whose commands are tested have blocks of commands.
func TestAllCommandsOfThePagesAreTested(t *testing.T) {
	t.Chdir(fixtures.Root(t))
	paths := must.Get(filepath.Glob("docs/*.md"))(t)
	for _, path := range append(paths, "README.md", "CONTRIBUTING.md", "CHANGELOG.md") {
		commands := shellCommands(newSession(t, path).page)
		if run := slices.Contains([]string{"README.md", filepath.Join("docs", "tutorial.md"),
			filepath.Join("docs", "models.md"), filepath.Join("docs", "serving.md"),
			filepath.Join("docs", "own_tasks.md"), filepath.Join("docs", "cluster.md"),
			filepath.Join("docs", "api_models.md"),
		}, path); len(commands) > 0 && !run {
			t.Errorf("%s has untested commands: %q", path, commands)
		}
		for c := range notInASession {
			if path == "README.md" && !slices.Contains(commands, c) {
				t.Errorf("README.md does not have the command %q", c)
			}
		}
	}
}
