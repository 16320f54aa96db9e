package docs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"rcgrpo/internal/must"
)

// walk is one way of extending the program, as in the list of CONTRIBUTING.md. The new files are in
// docs/testdata/walks/DIR.
type walk struct {
	dir   string
	lines []line
}

// line is a change of a file: old occurs once and becomes new.
type line struct{ file, old, new string }

var walks = []walk{
	{"kind", []line{
		{"stages/stages.go", `"rcgrpo/stages/tasks"`, "\"rcgrpo/stages/tasks\"\n\t\"rcgrpo/stages/thin\""},
		{"stages/stages.go", `exec.Kind()}`, `exec.Kind(), thin.Kind()}`},
	}},
	{"class", []line{
		{"bfcl/internal/api/class.go", `{"VehicleControlAPI", "vehicle_control", vehicleMethods, newVehicleControlAPI},`,
			"{\"VehicleControlAPI\", \"vehicle_control\", vehicleMethods, newVehicleControlAPI},\n" +
				"\t{\"CalendarAPI\", \"calendar\", calendarMethods, newCalendarAPI},"},
	}},
	{"figure", []line{
		{"reports/sections.go", `item{"certificate",`,
			"item{\"fig-sizes\", \"tasks\", single((*Study).sizeFigure)},\n\t\titem{\"certificate\","},
		{"reports/kind.go", ` data, certificate,`, ` data, fig-sizes, certificate,`},
	}},
	{"number", []line{
		{"stages/rl/objective/diagnostics.go", `{"sigma2", "mean over groups`,
			`{"best_of_group", "mean over groups of max R", "reward"}, {"sigma2", "mean over groups`},
		{"stages/rl/objective/diagnostics.go", `v["reward_range"] += (high - low) / n`,
			`v["reward_range"] += (high - low) / n; v["best_of_group"] += high / n`},
		{"reports/curves.go", `{id: "variance",`,
			`{id: "best", folded: true, title: "Best of a group", y: "reward", ` +
				`metrics: []string{"best_of_group"}}, {id: "variance",`},
		{"reports/kind.go", ` fig-variance,`, ` fig-best, fig-variance,`},
	}},
	{"reward", []line{
		{"stages/rl/objective/reward.go", `"length": func(t *rl.Trajectory)`,
			`"calls": func(t *rl.Trajectory) float64 { return float64(t.Calls) },` +
				"\n\t" + `"length": func(t *rl.Trajectory)`},
		{"stages/rl/objective/reward.go", `length is the number of tokens that the policy sampled`,
			`length is the number of tokens that the policy sampled, calls is the number of tool calls`},
	}},
	{"executor", []line{
		{"cmd/rcgrpo/run.go", `"rcgrpo/engine"`, "\"rcgrpo/engine\"\n\t\"rcgrpo/engine/apart\""},
		{"cmd/rcgrpo/run.go", `var o engine.Options`, `o := engine.Options{Executor: apart.Executor{}}`},
	}},
	{"family", []line{
		{"stages/internal/chat/template.go", `{"smollm2", "llama"}`, `{"smollm2", "llama"}, {"toy", "toy"}`},
		{"stages/model/model.go", `|smollm2|signatures`, `|smollm2|toy|signatures`},
		{"stages/internal/lm/config.go", `"llama":   {class: "LlamaForCausalLM"},`,
			"\"llama\":   {class: \"LlamaForCausalLM\"},\n\t\"toy\":     {class: \"ToyForCausalLM\"},"},
	}},
}

// All extensions of CONTRIBUTING.md are made at once in a copy of the tree, with the commands that write documentation.
// The program builds, and the tests of the extended packages pass. make test only checks that the changes apply.
func TestAdditionsTouchTheFilesThatTheirTableNames(t *testing.T) {
	files := map[string]string{} // path in the tree -> text
	for _, w := range walks {
		from := filepath.Join("docs", "testdata", "walks", w.dir)
		err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			to, err := filepath.Rel(from, path)
			if _, there := os.Stat(to); there == nil {
				t.Errorf("%s: the tree has %s already", w.dir, to)
			}
			files[to] = read(t, path)
			return err
		})
		must.OK(t, err)
		for _, l := range w.lines {
			if files[l.file] == "" {
				files[l.file] = read(t, l.file)
			}
			if n := strings.Count(files[l.file], l.old); n != 1 {
				t.Fatalf("%s: %s has %d times %q, want one", w.dir, l.file, n, l.old)
			}
			files[l.file] = strings.Replace(files[l.file], l.old, l.new, 1)
		}
	}
	must.Long(t) // the go command takes minutes
	dir, tree := t.TempDir(), t.TempDir()
	for path, text := range tracked(t, "*") {
		if files[path] == "" {
			files[path] = text
		}
	}
	for path, text := range files {
		to := filepath.Join(tree, path)
		must.OK(t, errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, []byte(text), 0o600)))
	}
	goes := func(args ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), "go", args...)
		command.Dir = tree
		command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	goes("generate", "./engine/lang")
	goes("test", "-vet=off", "-run", "TestLanguagePage", "./docs", "-update")
	goes("test", "-vet=off", "-run", "TestExecutor|DocumentationIs|LanguagePage|Calendar|Panic|Clone|Official|Toy|"+
		"BestOf|Item|Sizes|LoggedNumber|CallsTerm|RewardTerm", "./engine/apart", "./build/settings", "./docs",
		"./bfcl/internal/api", "./bfcl", "./stages/internal/chat", "./stages/rl/objective", "./stages/grpo", "./reports")
	goes("build", "-o", filepath.Join(dir, "rcgrpo"), "./cmd/rcgrpo")

	session := fmt.Sprintf(walkSession, filepath.Join(dir, "rcgrpo"))
	must.OK(t, os.WriteFile(filepath.Join(dir, "walk.txtar"), []byte(session), 0o600))
	testscript.Run(t, testscript.Params{Dir: dir, Setup: func(e *testscript.Env) error {
		e.Setenv("HOME", e.WorkDir)
		e.Setenv("RCGRPO_LEASES", filepath.Join(e.WorkDir, ".leases"))
		return nil
	}})
}

// walkSession uses the extensions that need no tensors.
const walkSession = `
env R=%s
exec $R kinds thin
stdout 'every.*tasks.*distance of the tasks'
exec $R kinds report
stdout 'fig-sizes'
exec $R kinds grpo
stdout 'calls is the number of tool calls'
exec $R check x.hcl
! exec $R check bad.hcl
stderr 'every is at least 1'
exec $R run x.hcl
exec $R show thin.half.kept x.hcl
stdout '10 tasks'
exec $R logs thin.half x.hcl
stdout 'apart starts stage.thin.half'
exec $R report x.hcl
grep 'id="fig-sizes"' x.html
exec $R verify x.html
exec $R check toy.hcl
exec $R check reward.hcl
-- site.hcl --
store { path = "store" }
-- x.hcl --
experiment {}
stage "tasks" "d" {
  source = "drills"
  train  = 20
  test   = 0
}
stage "thin" "half" {
  tasks = stage.tasks.d.train
}
stage "report" "page" {
  data = [stage.tasks.d.train, stage.thin.half.kept]
}
-- bad.hcl --
experiment {}
stage "tasks" "d" {
  source = "drills"
  train  = 20
  test   = 0
}
stage "thin" "half" {
  tasks = stage.tasks.d.train
  every = 0
}
-- toy.hcl --
experiment {}
stage "model" "toy" {
  path   = dir("toy")
  layout = "toy"
}
-- reward.hcl --
experiment {}
stage "tasks" "d" {
  source = "drills"
  train  = 20
  test   = 0
}
stage "model" "toy" {
  path = dir("toy")
}
stage "grpo" "short" {
  policy = stage.model.toy.checkpoint
  tasks  = stage.tasks.d.train
  reward_term "length" {
    weight = -0.001
  }
  reward_term "calls" {
    weight = -0.01
  }
}
-- toy/config.json --
{"architectures": ["ToyForCausalLM"], "model_type": "toy", "hidden_act": "silu", "hidden_size": 64,
 "intermediate_size": 160, "max_position_embeddings": 512, "num_attention_heads": 4, "num_hidden_layers": 3,
 "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "tie_word_embeddings": false,
 "vocab_size": 512}
`
