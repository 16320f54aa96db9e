package serve

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/jinja"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// family is a model family with an official handler.
type family struct {
	decoder, handler, opens, closes, key, end string
	context                                   int // in which some tasks of long context do not fit
	special                                   []string
}

var families = []family{
	{"qwen2", bfcl.QwenHandler, "<|im_start|>", "\n", "arguments", "<|im_end|>", 16000,
		[]string{"<|im_start|>", "<|im_end|>", "<|endoftext|>"}},
	{"llama", bfcl.LlamaHandler, "<|start_header_id|>", "<|end_header_id|>\n\n", "parameters", "<|eot_id|>",
		28000, []string{"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>",
			"<|end_of_text|>", "<|python_tag|>"}},
}

// script is a policy that replies to the text of a prompt with the ground truth, with planned mistakes.
type script struct {
	family
	turns    map[string]turn // by the user messages so far
	flawless bool            // without mistakes
}

type turn struct {
	task *bfcl.Task
	k    int
}

func newScript(t *testing.T, f family, data *bfcl.Data, tasks []*bfcl.Task) *script {
	s := &script{family: f, turns: map[string]turn{}}
	for _, task := range tasks {
		e := must.Get(task.Start(bfcl.Settings{Data: data}))(t)
		users := ""
		for k := 0; !e.Done(); k++ {
			users += strings.TrimSpace(e.User()) + "\x00"
			if _, known := s.turns[users]; !known {
				s.turns[users] = turn{task, k}
			}
			must.Get(e.StepOutcomes(nil))(t)
		}
	}
	return s
}

// reply returns the reply to a prompt.
func (s *script) reply(prompt string) string {
	users, steps := "", 0
	for _, part := range strings.Split(prompt, s.opens)[1:] {
		role, text, _ := strings.Cut(part, s.closes)
		text, _, _ = strings.Cut(text, s.end)
		text, _, _ = strings.Cut(text, rl.GoalBefore)
		switch {
		case role == "assistant":
			steps++
		case role == "user" && !strings.HasPrefix(text, "<tool_response>"):
			if at := strings.LastIndex(text, "\n}\n\n"); users == "" && at >= 0 { // Llama's tools
				text = text[at+4:]
			}
			users, steps = users+strings.TrimSpace(text)+"\x00", 0
		}
	}
	at, known := s.turns[users]
	if !known {
		return "unknown" + s.end
	}
	h := fnv.New64a()
	h.Write([]byte(users))
	return s.say(at.task.Turns[at.k].GroundTruth, steps-1, h.Sum64())
}

// say returns the reply of a step, the mistake of whose turn is chosen by plan.
func (s *script) say(truth []string, step int, plan uint64) string {
	done := "Done, 好." + s.end
	mistake := plan % 40
	if s.flawless {
		mistake = 39
	}
	calls := truth
	switch {
	case mistake == 0: // incomplete
		calls = truth[:max(0, len(truth)-1)]
	case mistake == 1: // an empty turn
		return done
	case mistake == 2: // never done
		return s.write([]string{"pwd()"}) + s.end
	case mistake == 3: // cut after calls
		if step == 0 {
			return s.write(truth) + strings.Repeat(" ", 5000)
		}
	case mistake == 4: // cut within a call
		return s.write([]string{"mv(source='" + strings.Repeat("a b ", 3000)})
	case mistake == 5: // the handler cannot write its prompt again
		return "<tool_call>\n[1]\n</tool_call>" + s.end
	case mistake == 6 && step == 0: // broken JSON
		return "<tool_call>\n{\"name\": \"ls\", \n</tool_call>{'name': " + s.end
	case mistake == 7: // another state
		calls = append([]string{"mkdir(dir_name='extra')", "post_tweet(content='x')", "nothing(a=None)"}, truth...)
	case mistake == 8 && step == 0: // reasoning and text around calls
		return "<think>\nCalls: <tool_call>\n</think>\n\n \n" + s.write(truth) + " \n" + s.end
	case mistake == 9:
		done = "<|python_tag|>\uFFFD" + done
	case mistake == 10:
		done = s.end
	}
	if plan>>32%3 == 0 && step < len(calls) { // one call in a reply
		return s.write(calls[step:step+1]) + s.end
	}
	if step == 0 && len(calls) > 0 {
		return s.write(calls) + s.end
	}
	return done
}

func (s *script) write(calls []string) string {
	var out []string
	for _, call := range calls {
		name, arguments, err := bfcl.CallJSON(call)
		text := fmt.Sprintf("{\"name\": %q, %q: %s}", name, s.key, arguments)
		if err != nil {
			text = call
		}
		if s.key == "arguments" {
			text = "<tool_call>\n" + text + "\n</tool_call>"
		}
		out = append(out, text)
	}
	if s.key == "arguments" {
		return strings.Join(out, "\n")
	}
	return strings.Join(out, "; ")
}

// scripted is a sampler of a script.
type scripted struct {
	*script
	tok     *token.Tokenizer
	longest int
	slots   []scriptedSlot
	replied func(prompt, reply []int32) // nil, or called with each reply
}

type scriptedSlot struct {
	ids, rest []int32
	last      int32 // sampled token
}

func (s *scripted) Slots() int     { return len(s.slots) }
func (s *scripted) MaxLen() int    { return s.longest }
func (s *scripted) Cut(i, n int)   { s.slots[i].ids, s.slots[i].rest = s.slots[i].ids[:n], nil }
func (s *scripted) Release() error { return nil }
func (s *scripted) Next(_ context.Context, rs []rl.Request) ([]rl.Draw, error) {
	draws := make([]rl.Draw, len(rs))
	for i, r := range rs {
		at := &s.slots[r.Slot]
		at.ids = append(at.ids, r.Feed...)
		if len(r.Feed) > 1 || len(at.rest) == 0 || r.Feed[0] != at.last {
			tail := s.tok.Decode(at.ids[max(0, len(at.ids)-20):], false)
			if !strings.HasSuffix(tail, s.opens+"assistant"+s.closes) { // a chunk of a prompt
				continue
			}
			at.rest = s.tok.EncodeAs(s.reply(s.tok.Decode(at.ids, false)), token.Everything)
			if s.replied != nil {
				s.replied(slices.Clone(at.ids), at.rest)
			}
		}
		at.last, at.rest = at.rest[0], at.rest[1:]
		draws[i].Token = at.last
	}
	return draws, nil
}

// arena holds what the episodes of a family share.
type arena struct {
	family
	data   *bfcl.Data
	tasks  []*bfcl.Task
	tok    *token.Tokenizer
	codec  *chat.Chat
	script *script
	limits blocks.Limits
	policy func() rl.Sampler // of the episodes; at first the script
}

func newArena(t *testing.T, f family, data *bfcl.Data, tasks []*bfcl.Task) *arena {
	t.Helper()
	var texts []string
	for _, task := range tasks[:min(40, len(tasks))] {
		for _, class := range task.Classes {
			for _, doc := range data.Docs(class) {
				texts = append(texts, string(doc.JSON))
			}
		}
	}
	tok := must.Get(token.Train(texts, 3000, slices.Concat(f.special, chat.RewardTokens)))(t)
	source, variables := chat.LayoutTemplate("qwen2.5"), map[string]any{}
	if f.decoder == "llama" {
		if !fixtures.Llama(t) {
			t.Skip(fixtures.NoLlama)
		}
		source = string(fixtures.Read(t, "hf/chat/llama3_1.jinja"))
		variables["bos_token"] = jinja.Own("<|begin_of_text|>")
	}
	template := must.Get(chat.NewTemplate(source, variables, false))(t)
	a := &arena{family: f, data: data, tasks: tasks, tok: tok,
		codec:  must.Get(template.New(tok, must.Get(chat.FunctionsOf(data))(t), rl.FirstUser))(t),
		script: newScript(t, f, data, tasks), limits: blocks.Limits{Steps: 20, Reply: 4096, Context: f.context}}
	a.policy = func() rl.Sampler { return a.scripted() }
	return a
}

func (a *arena) batcher() *rl.Batcher { return rl.NewBatcher(a.policy()) }

func (a *arena) scripted() *scripted {
	return &scripted{script: a.script, tok: a.tok, longest: a.limits.Context, slots: make([]scriptedSlot, 64)}
}

// eval returns the failure of each task, "" for those that the official checker accepts, as stage eval has it.
func (a *arena) eval(t *testing.T, official bool) map[string]string {
	t.Helper()
	local := &rl.Local{Batcher: a.batcher(), Codec: a.codec, Limits: a.limits}
	settings := bfcl.Settings{Data: a.data, Today: bfcl.ReleaseDate}
	c := &rl.Collector{Policy: local, Environment: rl.Benchmark(settings, a.limits)}
	if official {
		c.Policy = must.Get(chat.NewOfficial(local, a.data))(t)
	}
	var asks []rl.Rollout
	for _, task := range a.tasks {
		asks = append(asks, rl.Rollout{Task: task, Token: rl.TokenHigh})
	}
	all, _, err := c.Collect(t.Context(), asks, nil)
	must.OK(t, err)
	out := map[string]string{}
	for _, e := range all {
		if out[e.Task] = e.Failure; e.Official != (e.Failure == "") {
			t.Errorf("%s: official %v, failure %q", e.Task, e.Official, e.Failure)
		}
		if e.Score("", true).Tokens == 0 && e.Stop != rl.StopLength {
			t.Errorf("%s: no sampled tokens", e.Task)
		}
	}
	return out
}

// serve starts a server of the scripted model in a folder and returns its address.
func (a *arena) serve(t *testing.T, dir string) string {
	h := httptest.NewUnstartedServer(nil)
	h.Config.Handler = New(Config{Name: "tiny", Aliases: []string{dir}, Batcher: a.batcher(), Codec: a.codec,
		Tokenizer: a.tok, Position: rl.FirstUser, Token: rl.TokenHigh, Addr: h.Listener.Addr().String(), Queue: 256,
		MaxBody: 8 << 20, Timeout: time.Minute, Logf: t.Logf})
	h.Start()
	t.Cleanup(h.Close)
	return h.Listener.Addr().String()
}

// play plays an episode over HTTP as the official runner does, and returns its failure.
func (a *arena) play(t *testing.T, addr string, task *bfcl.Task) string {
	e := must.Get(task.Start(bfcl.Settings{Data: a.data, Today: bfcl.ReleaseDate}))(t)
	c := must.Get(bfcl.NewHandlerChat(a.handler, must.Get(a.data.Documents(e.Tools()))(t)))(t)
	c.User(e.User())
	for {
		prompt, err := c.Prompt()
		if err != nil {
			return rl.StopHandler
		}
		most := 1000
		if n := len(a.tok.EncodeAs(prompt, token.Everything)); a.limits.Context >= n+2 {
			most = min(4096, a.limits.Context-n-2)
		}
		body := must.Get(json.Marshal(map[string]any{"model": "tiny", "prompt": prompt, "max_tokens": most,
			"temperature": 0}))(t)
		r := must.Get(http.Post("http://"+addr+"/v1/completions", "application/json", bytes.NewReader(body)))(t)
		var reply response[completionChoice]
		must.OK(t, json.NewDecoder(r.Body).Decode(&reply))
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return rl.StopLength
		}
		results, _, err := e.Step(c.Reply(reply.Choices[0].Text))
		must.OK(t, err)
		if e.Done() {
			return e.Verdict().ErrorType
		}
		if c.Results(results); len(results) == 0 {
			c.User(e.User())
		}
	}
}

// verdicts compares the failures of two runs and requires each kind of failure.
func verdicts(t *testing.T, got, want map[string]string, kinds int) {
	t.Helper()
	seen := map[string]int{}
	for id, failure := range want {
		if seen[failure]++; got[id] != failure {
			t.Errorf("%s: got %q, want %q", id, got[id], failure)
		}
	}
	if len(got) != len(want) || len(seen) < kinds {
		t.Errorf("%d verdicts, want %d; failures %v", len(got), len(want), seen)
	}
	t.Logf("%d equal verdicts: %v", len(want), seen)
}

func TestRequestsOfTheOfficialHandlersHaveTheVerdictsOfTheLayoutBFCL(t *testing.T) {
	data := must.Get(bfcl.LoadData(fixtures.Benchmark(t)))(t)
	var tasks []*bfcl.Task
	for i, task := range data.Tasks() {
		if i%32 == 0 {
			tasks = append(tasks, task)
		}
	}
	for _, f := range families {
		t.Run(f.decoder, func(t *testing.T) {
			a := newArena(t, f, data, tasks)
			addr, got := a.serve(t, "/model"), map[string]string{}
			for _, task := range tasks {
				got[task.ID] = a.play(t, addr, task)
			}
			verdicts(t, got, a.eval(t, true), 4)
		})
	}
}

// folder writes what the official runner reads of a model: its configuration and its tokenizer.
func (a *arena) folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, v := range map[string]any{
		"config.json": map[string]any{"model_type": a.decoder, "max_position_embeddings": a.limits.Context},
		"tokenizer_config.json": map[string]any{"tokenizer_class": "PreTrainedTokenizerFast",
			"chat_template": a.codec.Source},
	} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), must.Get(json.Marshal(v))(t), 0o600))
	}
	must.OK(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), a.tok.JSON(), 0o600))
	return dir
}

// official returns the verdicts of the official runner, which samples at the server and evaluates the results.
func (a *arena) official(t *testing.T, python, model string) map[string]string {
	t.Helper()
	dir, root := a.folder(t), t.TempDir()
	host, port, err := net.SplitHostPort(a.serve(t, dir))
	must.OK(t, err)
	ids := map[string][]string{}
	for _, task := range a.tasks {
		ids["multi_turn_"+task.Category] = append(ids["multi_turn_"+task.Category], task.ID)
	}
	must.OK(t, os.WriteFile(filepath.Join(root, "test_case_ids_to_generate.json"), must.Get(json.Marshal(ids))(t), 0o600))
	tasks := []string{"--run-ids"} // the runner then writes all results again after each task
	if len(a.tasks) == len(a.data.Tasks()) {
		tasks = []string{"--test-category", "multi_turn"}
	}
	for _, args := range [][]string{
		slices.Concat([]string{"generate", "--temperature", "0", "--skip-server-setup", "--local-model-path", dir,
			"--exclude-state-log"}, tasks),
		{"evaluate", "--partial-eval", "--test-category", "multi_turn"},
	} {
		args = slices.Concat([]string{"bfcl_official.py"}, args, []string{"--model", model})
		c := exec.CommandContext(t.Context(), python, args...)
		c.Dir = filepath.Join(fixtures.Root(t), "bench")
		c.Env = append(os.Environ(), "BFCL_PROJECT_ROOT="+root, "LOCAL_SERVER_ENDPOINT="+host, "LOCAL_SERVER_PORT="+port,
			"FAMILY="+a.decoder, "HF_HUB_OFFLINE=1", "PYTHONHASHSEED=0", "TZ=UTC")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", args[1], err, out[max(0, len(out)-3000):])
		}
	}
	out := map[string]string{}
	for _, task := range a.tasks {
		out[task.ID] = ""
	}
	for category, of := range ids {
		name := filepath.Join(root, "score", strings.ReplaceAll(model, "/", "_"), "multi_turn",
			"BFCL_v4_"+category+"_score.json")
		lines := strings.Split(strings.TrimSpace(string(must.Get(os.ReadFile(name))(t))), "\n")
		var total struct {
			Count int `json:"total_count"`
		}
		must.OK(t, json.Unmarshal([]byte(lines[0]), &total))
		if total.Count != len(of) {
			t.Fatalf("%s: the official checker judged %d episodes, want %d", category, total.Count, len(of))
		}
		for _, line := range lines[1:] {
			var failed struct {
				ID    string
				Error struct {
					Type string `json:"error_type"`
				}
			}
			must.OK(t, json.Unmarshal([]byte(line), &failed))
			out[failed.ID] = failed.Error.Type
		}
	}
	return out
}

// It takes every n-th task, n in BFCL_EVERY (default 100; bench/bfcl_runner.sh takes all), and Python from BFCL_RUNNER
// or from .deps/bfcl-runner, where .ci/run installs it. An episode that the runner could not finish has no result
// there; here it ended at a limit, or because the handler failed.
func TestTheOfficialRunnerHasTheVerdictsOfEval(t *testing.T) {
	installed := filepath.Join(fixtures.Root(t), ".deps/bfcl-runner")
	python := cmp.Or(os.Getenv("BFCL_RUNNER"), filepath.Join(installed, "bin/python"))
	if _, err := os.Stat(filepath.Join(installed, "complete")); err != nil && os.Getenv("BFCL_RUNNER") == "" {
		t.Skip("bfcl-eval is not installed; run bench/bfcl_runner.sh install")
	}
	data := must.Get(bfcl.LoadData(fixtures.Benchmark(t)))(t)
	every := must.Get(strconv.Atoi(cmp.Or(os.Getenv("BFCL_EVERY"), "100")))(t)
	var tasks []*bfcl.Task
	for i := 0; i < len(data.Tasks()); i += every {
		tasks = append(tasks, data.Tasks()[i])
	}
	for _, f := range families {
		a := newArena(t, f, data, tasks)
		kinds := 6 // of failures
		if len(tasks) < len(data.Tasks()) {
			kinds = 3
		}
		a.compareRunner(t, python, kinds)
	}
}

// compareRunner compares the official runner with eval, for the official handler of the family and for that of
// bench/bfcl_own.py. It requires a number of kinds of failure, success included.
func (a *arena) compareRunner(t *testing.T, python string, kinds int) {
	t.Helper()
	for _, model := range []string{a.handler, "own"} {
		t.Run(a.decoder+" "+model, func(t *testing.T) {
			want := a.eval(t, model != "own")
			for id, failure := range want {
				if failure == rl.StopHandler || failure == rl.StopLength || failure == rl.StopStep {
					want[id] = "multi_turn:inference_error"
				}
			}
			verdicts(t, a.official(t, python, model), want, kinds)
		})
	}
}
