//go:build libtorch

package stages

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
	"rcgrpo/stages/rl"
)

// ownTasks is an experiment on the shop that init writes. SFT learns enough of it to call tools.
func ownTasks(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3")
	}
	return fmt.Sprintf(`
experiment {
  seeds = [1]
}

stage "tasks" "drills" {
  source  = "command"
  program = dir(%q)
  command = ["python3", "shop.py"]
  train   = 10
  test    = 5
}

stage "curate" "data" {
  tasks = stage.tasks.drills.train
}
`, templateFolder(t, "shop")) + tinyModel + `
stage "sft" "warm" {
  policy = stage.model.random.checkpoint
  data   = [stage.curate.data.expert]
  epochs = 12
  batch  = 4
  lr     = 1e-2
}
`
}

func templateFolder(t *testing.T, name string) string {
	t.Helper()
	return must.Get(filepath.Abs(filepath.Join("..", "cmd", "rcgrpo", "templates", "tools", name)))(t)
}

// agentBlock is the agent that init writes.
func agentBlock(t *testing.T, more string) string {
	t.Helper()
	return fmt.Sprintf("agent {\nprogram = dir(%q)\ncommand = [\"python3\", \"agent.py\"]\n%s\n}\n",
		templateFolder(t, "agent"), more)
}

const ownArm = `
stage "rc-grpo" "arm" {
  policy  = stage.sft.warm.checkpoint
  tasks   = stage.tasks.drills.train
  updates = 4
  batch   = 2
  group   = 4
  lr      = 1e-3
  checkpoints { minutes = 0.001 }
`

func TestKilledTrainingOnOwnTasksEndsInTheSameBytes(t *testing.T) {
	for what, agent := range map[string]string{"our loop": "", "an agent": agentBlock(t, "workers = 3")} {
		t.Run(what, func(t *testing.T) {
			if agent == "" {
				must.Long(t)
			}
			killTrainings(t, expand(ownTasks(t)+ownArm+armBlocks+agent+"}\n"), must.Short(t, 2, 4))
		})
	}
}

// Equal requests get equal replies: neither the number of workers nor the life of the processes changes a trajectory.
// The logprobs of the server are those of the training forward.
func TestAgentsPlayTheEpisodes(t *testing.T) {
	dir := t.TempDir()
	text := ownTasks(t)
	for i, more := range []string{"workers = 1\nenv = { http_proxy = \"http://127.0.0.1:9\" }", "workers = 4",
		"reward = \"program\"", "lives = \"episode\""} {
		block := agentBlock(t, more)
		if strings.Contains(more, "lives") {
			block = strings.Replace(block, "\"agent.py\"", "\"-c\", \"import json, os, io, sys; "+
				"sys.stdin = io.StringIO(json.dumps("+
				"{'id': 1, 'params': {'task': json.loads(os.environ['RCGRPO_TASK']), 'base_url': os.environ['OPENAI_BASE_URL'], "+
				"'api_key': os.environ['OPENAI_API_KEY'], 'model': os.environ['RCGRPO_MODEL'], 'mcp_url': "+
				"os.environ['RCGRPO_MCP_URL']}})); exec(open('agent.py').read())\"", 1)
		}
		text += expand(fmt.Sprintf("stage \"rollout\" \"r%d\" {\npolicy = stage.sft.warm.checkpoint\n"+
			"tasks = stage.tasks.drills.train\nsamples = 4\nLIMITS 4 30 320\n%s}\n", i, block))
	}
	text += ownArm + expand("LIMITS 4 30 320\n") + agentBlock(t, "") + "}\n"
	x := loaded(t, dir, text)
	folders := map[string]string{}
	for _, n := range x.Nodes {
		if n.Name != "r2" {
			runNode(t, n, dir, &lang.Site{})
		}
		folders[n.Name] = filepath.Join(dir, n.Address)
	}
	read := func(name string) string { return portDigest(t, filepath.Join(folders[name], "trajectories")) }
	if a, b, c := read("r0"), read("r1"), read("r3"); a != b || a != c {
		t.Errorf("the trajectories differ with the workers, %v, or with the life of the processes, %v", a != b, a != c)
	}
	calls, rewards := 0, map[rl.Reward]int{}
	for _, e := range rows[*rl.Trajectory](t, filepath.Join(folders["r0"], "trajectories"), rl.TrajectoriesFile) {
		calls += e.Calls
		rewards[e.Reward]++
		last := e.Messages[len(e.Messages)-1]
		if n := len(e.IDs); n == 0 || len(e.Mask) != n || len(e.Logp) != n || !slices.Contains(e.Mask, true) ||
			last.Role != rl.RoleAssistant || last.To != n || e.Reward.Missing() {
			t.Fatalf("%s: %+v", e.Task, e)
		}
	}
	if calls == 0 {
		t.Error("no agent called a tool")
	}
	t.Logf("%d calls, rewards %v", calls, rewards)
	updates := rows[rl.Metric](t, filepath.Join(folders["arm"], "metrics"), rl.MetricsFile)
	for _, m := range updates {
		if gap := m.Values["sampler_gap"]; gap > 1e-3 {
			t.Errorf("update %d: the logprobs of the server and of the training differ by %g", m.Update, gap)
		}
	}
	if len(updates) != 4 {
		t.Errorf("got %d updates", len(updates))
	}
}

// Programs and agents belong to each rank; the results are those of one process.
func TestOwnTasksOfSeveralRanksAreThoseOfOne(t *testing.T) {
	prepared := t.TempDir()
	text := ownTasks(t) + ownArm + "gradient_parts = 2\n" + armBlocks + agentBlock(t, "") + "}\n"
	for name, block := range map[string]string{"loop": "", "agent": agentBlock(t, "")} {
		text += fmt.Sprintf("stage \"rollout\" %q {\npolicy = stage.sft.warm.checkpoint\ntasks = stage.tasks.drills.test\n"+
			"samples = 3\nLIMITS 4 30 320\n%s}\n", name, block)
	}
	path := filepath.Join(prepared, "shared.hcl")
	must.OK(t, os.WriteFile(path, []byte(expand(text)), 0o600))
	x, diags := lang.Load(lang.Source{Path: path}, lang.Registry(Kinds()))
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	want := map[string]map[string]string{}
	for count := range 3 {
		dir := prepared
		if count > 0 {
			dir = t.TempDir()
			must.OK(t, os.CopyFS(dir, os.DirFS(prepared)))
		}
		for _, n := range x.Nodes {
			ranked := n.Kind.Name == "rollout" || n.Kind.Name == "rc-grpo"
			switch {
			case count == 0 && !ranked:
				must.OK(t, runRank(fmt.Sprint(dir, " ", n.Address, " 0 1 none")))
			case count > 0 && ranked:
				runRanks(t, dir, n.Address, count)
				got := portDigests(t, dir, n)
				if count > 1 && !maps.Equal(got, want[n.Address]) {
					t.Errorf("%s has other ports with %d ranks", n.Address, count)
				}
				want[n.Address] = got
			}
		}
	}
}
