//go:build libtorch

package stages

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl"
)

// served is an experiment with a policy that has learnt its training drills, evaluated as a checkpoint and behind a
// server.
const served = `
experiment {
  seeds = [1]
}
stage "tasks" "drills" {
  source = "drills"
  train  = 60
  test   = 140
  pool   = 140
}
stage "curate" "data" {
  tasks = stage.tasks.drills.train
}
stage "model" "random" {
  seed   = 0
  corpus = [stage.curate.data.expert]
  vocab  = 500
  architecture = { family = "qwen2", hidden = 64, layers = 2, heads = 4, kv_heads = 2, mlp = 160, rope_base = 1000,
  context = 512 }
}
stage "sft" "warm" {
  policy = stage.model.random.checkpoint
  data   = [stage.curate.data.expert]
  epochs = 24
  batch  = 8
  lr     = 3e-3
}
stage "eval" "checkpoint" {
  policy = stage.sft.warm.checkpoint
  tasks  = [stage.tasks.drills.train, stage.tasks.drills.test]
  LIMITS 4 128 512
}
stage "endpoint" "server" {
  api         = "openai-chat"
  model       = "drills"
  base_url    = "http://127.0.0.1:1/v1"
  temperature = 0
  max_tokens  = 128
}
stage "eval" "server" {
  policy = stage.endpoint.server.policy
  tasks  = [stage.tasks.drills.train, stage.tasks.drills.test]
  limits {
    steps = 4
  }
  calls {
    parallel = 32
  }
}
`

// servedPolicy trains the policy of served and returns the folder of its stages and the address of its server.
func servedPolicy(t *testing.T) (dir, url string) {
	t.Helper()
	t.Setenv("RCGRPO_LEASES", t.TempDir())
	dir = t.TempDir()
	for _, n := range loaded(t, dir, expand(served)).Nodes {
		if n.Name != "server" {
			runNode(t, n, dir, &lang.Site{})
		}
	}
	return dir, serveCheckpoint(t, filepath.Join(dir, "stage.sft.warm@1", "checkpoint"), 512)
}

// serveCheckpoint starts the server of a checkpoint and returns its address.
func serveCheckpoint(t testing.TB, dir string, length int) string {
	t.Helper()
	return serveModel(t, dir, "", length)
}

// serveModel is serveCheckpoint for a model that needs a layout.
func serveModel(t testing.TB, dir, layout string, length int) string {
	t.Helper()
	out, in := io.Pipe()
	s := &Serving{Dir: dir, Layout: layout, Name: "drills", Listen: "127.0.0.1:0", Token: "checkpoint", Device: "cpu",
		Threads: 2, Slots: 64, Context: length, Queue: 600, MaxBody: 1 << 20, Timeout: time.Minute, Drain: time.Second,
		Out: in, Log: t.Output()}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		must.OK(t, <-ended)
	})
	line := must.Get(bufio.NewReader(out).ReadString('\n'))(t)
	return strings.TrimSuffix(strings.TrimSpace(line), "/v1")
}

// An endpoint at the server of a checkpoint plays 200 drills as eval of the checkpoint does: equal verdicts, and equal
// messages and stops unless the policy writes a call that an API cannot carry, or a reply is cut, which ends an episode
// in eval only.
func TestAServedPolicyEqualsItsCheckpoint(t *testing.T) {
	dir, url := servedPolicy(t)
	site := &lang.Site{BFCL: fixtures.Benchmark(t)}
	for _, n := range loaded(t, dir, strings.Replace(expand(served), "http://127.0.0.1:1", url, 1)).Nodes {
		if n.Name == "server" {
			runNode(t, n, dir, site)
		}
	}
	if threads := must.Get(torch.SetThreads(1))(t); threads != 2 {
		t.Errorf("the server computes with %d threads, want 2", threads)
	}
	want, got := playedBy(t, dir, "stage.eval.checkpoint@1"), playedBy(t, dir, "stage.eval.server@1")
	right, compared := 0, 0
	for i, e := range want {
		if e.Reward == 1 {
			right++
		}
		if a := got[i]; a.Reward != e.Reward || a.Official != e.Official {
			t.Errorf("%s: got reward %v and official verdict %v, want %v and %v", e.Task, a.Reward, a.Official, e.Reward,
				e.Official)
		}
		if !carried(e) {
			continue
		}
		compared++
		if a, b := spoken(e), spoken(got[i]); a != b {
			t.Errorf("%s: the endpoint has\n%s, want\n%s", e.Task, b, a)
		}
	}
	t.Logf("%d of %d episodes succeed, %d compared", right, len(want), compared)
	if len(want) != 200 || right < 20 || right > 180 || compared < 70 {
		t.Errorf("%d of %d episodes succeed, and %d were compared; want 200, some of each sort", right, len(want), compared)
	}
}

// carried reports whether an API can carry the calls of an episode, as a name and arguments, and no reply was cut.
func carried(e *rl.Trajectory) bool {
	if e.Stop == rl.StopStep {
		return false
	}
	for _, m := range e.Messages {
		for _, call := range m.Calls {
			if _, _, err := bfcl.CallJSON(call); err != nil {
				return false
			}
		}
	}
	return true
}

// spoken returns what an episode with and one without tokens have in common.
func spoken(e *rl.Trajectory) string {
	text := fmt.Sprintf("%s %d: reward %v, official %v, failure %q, stop %s, %d calls, %d errors\n", e.Task, e.Member,
		e.Reward, e.Official, e.Failure, e.Stop, e.Calls, e.Errors)
	for _, m := range e.Messages {
		if m.Role == rl.RoleAssistant { // calls and text are written in other ways; the results show what they are
			m.Text = fmt.Sprint(len(m.Calls), " calls")
		}
		text += fmt.Sprintf("%s %d %q\n", m.Role, m.Turn, m.Results())
	}
	return text
}

func playedBy(t *testing.T, dir, address string) (all []*rl.Trajectory) {
	t.Helper()
	for e, err := range artifact.ReadRows[*rl.Trajectory](filepath.Join(dir, address, "trajectories",
		rl.TrajectoriesFile)) {
		must.OK(t, err)
		all = append(all, e)
	}
	return all
}

// officially is an experiment with the prompts of the official handler of a model.
const officially = tinyStart + `
stage "tasks" "bfcl" {
  source = "bfcl"
  take   = 4
}
stage "eval" "base" {
  policy = stage.model.random.checkpoint
  tasks  = [stage.tasks.bfcl.test]
  layout = "bfcl"
  LIMITS 20 12 16384
}
`

// eval with layout = "bfcl" has the replies and verdicts of a client that posts the handler's prompts to the server of
// the same model.
func TestTheOfficialLayoutEqualsAClientOfTheServer(t *testing.T) {
	benchmark := fixtures.Benchmark(t)
	dir := t.TempDir()
	data := must.Get(bfcl.LoadData(benchmark))(t)
	model := filepath.Join(dir, "stage.model.random", "checkpoint")
	randomQwen(t, data, model)
	for _, n := range loaded(t, dir, expand(officially)).Nodes {
		if n.Name == "bfcl" || n.Kind.Name == "eval" {
			runNode(t, n, dir, &lang.Site{BFCL: benchmark})
		}
	}
	url := serveCheckpoint(t, model, 16384)
	want := playedBy(t, dir, "stage.eval.base")
	for _, e := range want {
		replies, failure := officialClient(t, url, data, e.Task)
		var own []string
		for _, m := range e.Messages {
			if m.Role == rl.RoleAssistant {
				own = append(own, m.Text)
			}
		}
		if !slices.Equal(replies, own) || failure != e.Failure {
			t.Errorf("%s: got %q and %q, want %q and %q", e.Task, replies, failure, own, e.Failure)
		}
	}
	if len(want) != 4 || len(want[0].Messages) < 4 || want[0].Messages[1].Text == "" {
		t.Errorf("got %d tasks and the replies %+v, want 4 and a text", len(want), want[0].Messages)
	}
}

// randomQwen writes a checkpoint with random weights in the layout of Qwen. Its tokenizer knows the documents of tools.
func randomQwen(t *testing.T, data *bfcl.Data, dir string) {
	t.Helper()
	var texts []string
	for _, task := range data.Tasks()[:40] {
		for _, class := range task.Classes {
			for _, doc := range data.Docs(class) {
				texts = append(texts, string(doc.JSON))
			}
		}
	}
	tokens := must.Get(token.Train(texts, 3000, slices.Concat(chat.RewardTokens, []string{"<|im_start|>", "<|im_end|>",
		"<|endoftext|>"})))(t)
	m := must.Get(lm.New(lm.Config{Decoder: "qwen2", Vocab: tokens.Size(), Hidden: 32, Layers: 1, Heads: 2, KVHeads: 1,
		HeadDim: 16, MLP: 64, RopeBase: 10000, NormEps: 1e-6, TiedEmbeddings: true, MaxPosition: 16384},
		rand.New(rand.NewPCG(1, 1))))(t)
	p := &checkpoint.Policy{Meta: checkpoint.Meta{Layout: "qwen2.5"}, Model: m, Tokenizer: tokens}
	defer p.Close()
	must.OK(t, os.MkdirAll(dir, 0o700))
	must.OK(t, p.Save(dir))
	template := chat.LayoutTemplate("qwen2.5")
	must.OK(t, os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), must.Get(json.Marshal(map[string]string{
		"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}))(t), 0o600))
}

// officialClient plays a task as the official runner does and returns the replies and the failure.
func officialClient(t *testing.T, url string, data *bfcl.Data, id string) (replies []string, failure string) {
	t.Helper()
	e := must.Get(data.Task(id).Start(bfcl.Settings{Data: data, Today: bfcl.ReleaseDate}))(t)
	c := must.Get(bfcl.NewHandlerChat(bfcl.QwenHandler, must.Get(data.Documents(e.Tools()))(t)))(t)
	c.User(e.User())
	for !e.Done() {
		body := must.Get(json.Marshal(map[string]any{"model": "drills", "prompt": must.Get(c.Prompt())(t), "temperature": 0,
			"max_tokens": 12}))(t)
		r := must.Get(http.Post(url+"/v1/completions", "application/json", bytes.NewReader(body)))(t)
		var of struct{ Choices []struct{ Text string } }
		must.OK(t, json.NewDecoder(r.Body).Decode(&of))
		r.Body.Close()
		replies = append(replies, of.Choices[0].Text)
		results, _, err := e.Step(c.Reply(of.Choices[0].Text))
		must.OK(t, err)
		if c.Results(results); len(results) == 0 && !e.Done() {
			c.User(e.User())
		}
	}
	return replies, e.Verdict().ErrorType
}
