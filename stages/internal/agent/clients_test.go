package agent

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/bfcl/drill"
	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/environment"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// truth is a policy that continues each sequence as its experts do.
type truth struct {
	experts [][]int32
	slots   [][]int32
}

func (s *truth) Slots() int     { return len(s.slots) }
func (s *truth) MaxLen() int    { return 8192 }
func (s *truth) Cut(i, n int)   { s.slots[i] = s.slots[i][:n] }
func (s *truth) Release() error { return nil }
func (s *truth) Next(_ context.Context, rs []rl.Request) ([]rl.Draw, error) {
	draws := make([]rl.Draw, len(rs))
	for i, r := range rs {
		seq := append(slices.Clone(s.slots[r.Slot]), r.Feed...)
		s.slots[r.Slot] = seq
		at := slices.IndexFunc(s.experts, func(ids []int32) bool {
			return len(ids) > len(seq) && slices.Equal(ids[:len(seq)], seq)
		})
		if at < 0 {
			return nil, fmt.Errorf("the %d ids of a request begin no episode of an expert", len(seq))
		}
		draws[i] = rl.Draw{Token: s.experts[at][len(seq)], Logp: -0.5}
	}
	return draws, nil
}

// An agent with the packages openai and mcp of Python plays drills, and a policy that knows the ground truth earns the
// reward: requests, replies and results become the ids of our own loop. A proxy in the variables of the agent, or in
// those of the engine, does not matter. The packages are in $RCGRPO_MCP_PYTHON or in .deps/mcp-python, where .ci/run
// installs them.
func TestAgentWithPythonsPackagesPlaysDrills(t *testing.T) {
	root := fixtures.Root(t)
	python := cmp.Or(os.Getenv("RCGRPO_MCP_PYTHON"), filepath.Join(root, ".deps/mcp-python/bin/python"))
	if exec.Command(python, "-c", "import mcp, openai").Run() != nil {
		t.Skip("there is no Python with the packages mcp and openai; .ci/run installs them")
	}
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:9")
	tasks := must.Get(drill.Generate(rand.New(rand.NewPCG(1, 2)), drill.Multi, drill.Train, "drill", 3))(t)
	settings := bfcl.Settings{Today: bfcl.ReleaseDate}
	var asks []rl.Rollout
	var experts []*rl.Trajectory
	texts := []string{"user assistant"}
	for i, task := range tasks {
		tasks[i] = task.Merged()
		asks = append(asks, rl.Rollout{Task: tasks[i]})
		e := must.Get(rl.Expert(tasks[i], settings))(t)
		experts = append(experts, e)
		for _, m := range e.Messages {
			texts = append(append(texts, m.Text), m.Calls...)
		}
	}
	tok := must.Get(token.Train(texts, 400, chat.DrillTokens))(t)
	codec := must.Get(chat.NewDrill(tok, ""))(t)
	policy := &truth{slots: make([][]int32, 4)}
	for _, e := range experts {
		ids, _, err := chat.Encode(codec, e, "")
		must.OK(t, err)
		policy.experts = append(policy.experts, ids)
	}
	local := &rl.Local{Batcher: rl.NewBatcher(policy), Codec: codec, Seed: 1, Temperature: 1,
		Limits: blocks.Limits{Steps: 20, Reply: 400, Context: 8192}}
	dir := t.TempDir()
	script := must.Get(os.ReadFile(filepath.Join(root, "bench/own_agent.py")))(t)
	must.OK(t, os.WriteFile(filepath.Join(dir, "agent.py"), script, 0o600))
	g := must.Get(Open(&Settings{Program: &artifact.File{Path: dir, Dir: true}, Command: []string{python, "agent.py"},
		Lives: "episode", Workers: 2, Env: map[string]string{"http_proxy": "http://127.0.0.1:9"}},
		Options{Policy: local, Codec: codec, Tokenizer: tok, Data: must.Get(bfcl.LoadData(fixtures.Benchmark(t)))(t),
			Place: environment.Options{Scratch: t.TempDir(), Name: "agents", Log: t.Logf}}))(t)
	defer func() { must.OK(t, g.Close()) }()
	got, _, err := (&rl.Collector{Policy: local, Agent: g,
		Environment: rl.Benchmark(settings, local.Limits)}).Collect(t.Context(), asks, nil)
	must.OK(t, err)
	for i, e := range got {
		if e.Reward != 1 || e.Calls != experts[i].Calls || len(e.Segments) > 0 || !slices.Equal(e.IDs, policy.experts[i]) {
			t.Errorf("%s: reward %v (%s), %d calls, want %d, %d segments, %d ids, want %d", e.Task, e.Reward, e.Failure,
				e.Calls, experts[i].Calls, len(e.Segments), len(e.IDs), len(policy.experts[i]))
		}
	}
}
