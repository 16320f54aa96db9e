package agent

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/semaphore"

	"rcgrpo/bfcl"
	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/environment"
	"rcgrpo/stages/internal/environment/faults"
	"rcgrpo/stages/internal/serve"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// TestMain is an agent if the variable PLAY is set: it plays each task as its id says.
func TestMain(m *testing.M) {
	if os.Getenv("PLAY") == "" {
		os.Exit(m.Run())
	}
	if text := os.Getenv("RCGRPO_TASK"); text != "" { // a process for one episode
		p := played{Base: os.Getenv("OPENAI_BASE_URL"), Key: os.Getenv("OPENAI_API_KEY"), Model: os.Getenv("RCGRPO_MODEL"),
			Tools: os.Getenv("RCGRPO_MCP_URL")}
		json.Unmarshal([]byte(text), &p.Task)
		answer := p.play()
		if fault := p.fault("answer"); faults.Break(fault) {
			if fault == "silence" {
				time.Sleep(time.Hour)
			}
			os.Exit(0)
		}
		fmt.Printf("some text\n%s\n", answer)
		return
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var r struct {
			ID     int64
			Params played
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			panic(err)
		}
		answer := r.Params.play()
		faults.Answer(r.Params.fault("answer"), r.ID, json.RawMessage(answer))
	}
}

type played struct {
	Task  struct{ ID, User string }
	Base  string `json:"base_url"`
	Key   string `json:"api_key"`
	Model string
	Tools string `json:"mcp_url"`
}

func (p played) post(url string, body any) (status int, answer map[string]any) {
	text, _ := json.Marshal(body)
	r, _ := http.NewRequest("POST", url, bytes.NewReader(text))
	r.Header.Set("Authorization", "Bearer "+p.Key)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		panic(err)
	}
	defer got.Body.Close()
	text, _ = io.ReadAll(got.Body)
	json.Unmarshal(text, &answer)
	return got.StatusCode, answer
}

type said = map[string]any

// fault returns the fault of the task at a point of its episode; "" for none. A task with a fault has the id "faulty
// POINT FAULT always", or "faulty POINT FAULT once" for its first episode only.
func (p played) fault(point string) string {
	words := strings.Fields(p.Task.ID)
	if len(words) < 4 || words[1] != point || words[3] == "once" && faults.Once(p.Task.ID) {
		return ""
	}
	return words[2]
}

// breaksAt has the process do the fault of a point before the answer.
func (p played) breaksAt(point string) {
	fault := p.fault(point)
	if fault != "" && !faults.Break(fault) {
		panic(fault)
	}
	if fault == "silence" {
		time.Sleep(time.Hour)
	}
}

// ask requests a reply and returns it as a message.
func (p played) ask(more said, messages ...said) (status int, message said) {
	body := said{"model": p.Model, "messages": messages}
	for name, value := range more {
		body[name] = value
	}
	status, answer := p.post(p.Base+"/chat/completions", body)
	if status != 200 {
		return status, answer
	}
	return status, answer["choices"].([]any)[0].(map[string]any)["message"].(map[string]any)
}

// call calls the tool with the SDK, or with one POST.
func (p played) call(n int) {
	if n == 2 {
		client := mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil)
		s, err := client.Connect(context.Background(), &mcp.StreamableClientTransport{Endpoint: p.Tools}, nil)
		if err != nil {
			panic(err)
		}
		defer s.Close()
		r, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "add", Arguments: said{"n": n}})
		if err != nil || r.IsError {
			panic(fmt.Sprint(r, err))
		}
		return
	}
	p.post(p.Tools, said{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": said{"name": "add",
		"arguments": said{"n": n}}})
}

func (p played) play() string {
	user := said{"role": "user", "content": p.Task.User}
	how, _, _ := strings.Cut(p.Task.ID, " ")
	switch how {
	case "plain", "join":
		_, first := p.ask(said{"temperature": 0.3}, user)
		_, second := p.ask(nil, user, first, said{"role": "user", "content": "And?"})
		if how == "join" {
			p.ask(nil, user, first, said{"role": "user", "content": "And?"}, second, said{"role": "user", "content": "Well?"})
			p.call(2)
			break
		}
		p.call(1)
	case "helper":
		p.ask(nil, user)
		p.ask(nil, said{"role": "user", "content": "Help me."})
		p.ask(nil, user)
		p.call(1)
	case "greedy":
		for {
			if status, _ := p.ask(nil, user); status == 429 {
				os.Exit(7)
			}
		}
	case "two":
		if status, answer := p.ask(said{"n": 2}, user); status != 400 {
			panic(fmt.Sprint(status, answer))
		}
		p.ask(nil, user)
	case "hasty": // it leaves a request behind
		p.Task.User = strings.Repeat("Put in one. ", 20)
		go p.ask(nil, said{"role": "user", "content": p.Task.User})
		time.Sleep(time.Millisecond)
		p.call(1)
	case "strange":
		p.Key = "other"
		if status, _ := p.ask(nil, user); status != 401 {
			panic(status)
		}
	case "death":
		fmt.Fprintln(os.Stderr, "no way")
		os.Exit(3)
	case "faulty":
		p.breaksAt("start")
		p.ask(nil, user)
		p.breaksAt("asked")
		p.call(1)
		p.breaksAt("called")
		return `{"text": "Done.", "reward": 1}`
	case "secret":
		p.ask(nil, said{"role": "user", "content": "put in " + os.Getenv("AGENT_TOKEN")})
	case "nonsense":
		return `{"reward": "much"}`
	}
	return `{"text": "Done.", "reward": 0.25}`
}

// sampler replies with a hash of the sequence and the uniform number.
type sampler struct {
	tok   *token.Tokenizer
	slots [][]int32
}

func (s *sampler) Slots() int     { return len(s.slots) }
func (s *sampler) MaxLen() int    { return 400 }
func (s *sampler) Cut(i, n int)   { s.slots[i] = s.slots[i][:n] }
func (s *sampler) Release() error { return nil }
func (s *sampler) Next(_ context.Context, rs []rl.Request) ([]rl.Draw, error) {
	draws := make([]rl.Draw, len(rs))
	for i, r := range rs {
		s.slots[r.Slot] = append(slices.Clone(s.slots[r.Slot]), r.Feed...)
		h := uint64(14695981039346656037)
		for _, id := range s.slots[r.Slot] {
			h = (h ^ uint64(id)) * 1099511628211
		}
		next := int32('a' + (h>>20+uint64(r.U*1e9))%26)
		id := s.tok.Encode(string(rune(next)))[0]
		if end, _ := s.tok.ID("<|end|>"); (h>>8)%6 == 0 {
			id = end
		}
		draws[i] = rl.Draw{Token: id, Logp: -float32(h%1000) / 100}
	}
	return draws, nil
}

// cart is an environment with one request and the tool add; its reward is 1 after one call.
type cart struct{ calls, ended, turns int }

func (c *cart) System() string { return "" }
func (c *cart) Turn() int      { return 0 }
func (c *cart) User() string   { return "Put in one." }
func (c *cart) Done() bool     { return c.Stop() != "" }
func (c *cart) Close()         {}
func (c *cart) Stop() string {
	if c.ended > c.turns {
		return rl.StopDone
	}
	return ""
}
func (c *cart) Tools() []rl.Tool {
	return []rl.Tool{{Name: "add", JSON: []byte(`{"type": "function", "function": {"name": "add"}}`)}}
}
func (c *cart) Step(_ context.Context, r rl.Reply) ([]string, int, error) {
	if len(r.Calls) == 0 {
		c.ended++
		return nil, 0, nil
	}
	c.calls++
	return []string{"ok"}, 0, nil
}
func (c *cart) Verdict(context.Context) (bfcl.Verdict, error) {
	v := bfcl.Verdict{}
	if c.calls == 1 {
		v.Reward, v.Official = 1, true
	}
	return v, nil
}

func vocabulary(t *testing.T) (*token.Tokenizer, chat.Codec) {
	t.Helper()
	tok := must.Get(token.Train([]string{"abcdefghijklmnopqrstuvwxyz Put in one. And? Well? Help me."}, 300,
		chat.DrillTokens))(t)
	return tok, must.Get(chat.NewDrill(tok, ""))(t)
}

// play plays tasks with an agent, and returns their trajectories and the log.
func play(t *testing.T, change func(*Settings), ids ...string) ([]*rl.Trajectory, string) {
	t.Helper()
	tok, codec := vocabulary(t)
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "agent"), nil, 0o600))
	s := &Settings{Program: &artifact.File{Path: dir, Dir: true}, Command: []string{must.Get(os.Executable())(t)},
		Env: map[string]string{"PLAY": "1", faults.Marks: t.TempDir()}, Workers: 3, Timeout: 4 * time.Second}
	if change != nil {
		change(s)
	}
	var mu sync.Mutex
	var log strings.Builder
	scratch := t.TempDir()
	policy := &rl.Local{Batcher: rl.NewBatcher(&sampler{tok, make([][]int32, 4)}), Codec: codec, Seed: 1, Temperature: 1,
		Limits: blocks.Limits{Steps: 3, Reply: 20, Context: 400}}
	g := must.Get(Open(s, Options{Policy: policy, Codec: codec, Tokenizer: tok, Place: environment.Options{
		Scratch: scratch, Name: "agents", Log: func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintf(&log, format+"\n", args...)
		}}}))(t)
	defer func() { must.OK(t, g.Close()) }()
	start := rl.StartFunc(func(_ context.Context, t *bfcl.Task, _ rl.StartOptions) (rl.Env, error) {
		return &cart{turns: strings.Count(t.ID, "turns")}, nil
	})
	var asks []rl.Rollout
	for _, id := range ids {
		asks = append(asks, rl.Rollout{Task: &bfcl.Task{ID: id}})
	}
	got, stats, err := (&rl.Collector{Policy: policy, Environment: start, Agent: g}).Collect(t.Context(), asks, nil)
	if err != nil {
		return nil, err.Error()
	}
	if stats.InPolicy < 0 || stats.InPolicy > stats.Wall || stats.Sampled > 0 && stats.InPolicy == 0 {
		t.Errorf("got %+v", stats)
	}
	mu.Lock()
	defer mu.Unlock()
	fmt.Fprintf(&log, "%d changed", g.Changed())
	return got, log.String()
}

func TestRequestsThatContinueAReplyJoinItsSequence(t *testing.T) {
	t.Parallel()
	_, codec := vocabulary(t)
	got, log := play(t, nil, "plain", "join", "helper", "two", "strange")
	for i, want := range []struct {
		messages, segments int
		reward             rl.Reward
	}{{4, 0, 1}, {6, 0, 1}, {2, 2, 1}, {2, 0, 0}, {0, 0, 0}} {
		e := got[i]
		if len(e.Messages) != want.messages || len(e.Segments) != want.segments || e.Reward != want.reward ||
			e.Stop != rl.StopDone {
			t.Errorf("%s: %d messages, %d segments, reward %v (%s), stop %s; want %+v", e.Task, len(e.Messages),
				len(e.Segments), e.Reward, e.Failure, e.Stop, want)
		}
		ids, mask, err := chat.Encode(codec, e, "")
		must.OK(t, err)
		if len(e.IDs) > 0 && (!slices.Equal(ids, e.IDs) || !slices.Equal(mask, e.Mask)) {
			t.Errorf("%s: the layout writes the messages as %v, want %v", e.Task, ids, e.IDs)
		}
		for _, s := range e.Sequences() {
			n := 0
			for _, m := range s.Messages {
				if m.Role == rl.RoleAssistant {
					for k := m.From; k < m.To; k++ {
						if !s.Mask[k] || s.Logp[k] == 0 {
							t.Errorf("%s: token %d of a reply is not marked as sampled", e.Task, k)
						}
					}
					n += m.To - m.From
				}
			}
			for _, own := range s.Mask {
				if own {
					n--
				}
			}
			if n != 0 || len(s.Mask) != len(s.IDs) || len(s.Logp) != len(s.IDs) {
				t.Errorf("%s: messages and mask differ by %d tokens", e.Task, n)
			}
		}
	}
	if h := got[2]; slices.Equal(h.IDs, h.Segments[0].IDs) || slices.Equal(h.IDs, h.Segments[1].IDs) {
		t.Error("a request made twice has the same reply; the replies to one prompt are numbered")
	}
	must.Contain(t, log, "2 changed") // requests for another temperature
	again, _ := play(t, func(s *Settings) { s.Lives, s.Workers = "episode", 1 }, "plain", "join", "helper", "two",
		"strange")
	a, b := must.Get(json.Marshal(got))(t), must.Get(json.Marshal(again))(t)
	if !bytes.Equal(a, b) {
		t.Errorf("processes for each episode give other trajectories:\n%s\n%s", a, b)
	}
}

// After twice limits { steps } requests the episode is judged, even if the refusal ends the program.
// An agent may send the policy what a server that it called has quoted.
func TestNoSecretOfAnAgentIsInATrajectory(t *testing.T) {
	t.Setenv("AGENT_TOKEN", "zz-hush/1")
	got, _ := play(t, func(s *Settings) { s.Secrets = []string{"AGENT_TOKEN"} }, "secret")
	if m := got[0].Messages; len(m) == 0 || m[0].Text != "put in ***" {
		t.Errorf("got the messages %+v", m)
	}
}

func TestTooManyRequestsEndTheEpisode(t *testing.T) {
	t.Parallel()
	got, _ := play(t, nil, "greedy", "plain")
	if e := got[0]; e.Stop != rl.StopTurnLimit || e.Reward != 0 || len(e.Segments) != 5 {
		t.Errorf("stop %s, reward %v, %d segments", e.Stop, e.Reward, len(e.Segments))
	}
	if got[1].Reward != 1 {
		t.Errorf("the other episode: %+v", got[1])
	}
}

// agentErrors are the faults of an agent before its answer and the text of their error.
var agentErrors = map[string]string{"silence": "within 4s", "flood": "a line has more than 16777216 bytes",
	"fork": "", "killed": "signal",
	"death": "exited with code 3; the last lines of its standard error:\n  the shelf broke"}

// answerErrors are those of the answer of a process that plays one episode after another.
var answerErrors = map[string]string{"garbage": `bad answer "Hello, world!"`, "silence": "within 4s", "twice": "",
	"other": "no open request has the id 1000", "flood": "a line has more than 16777216 bytes",
	"fork": "exited with code 0", "death": "exited with code 3", "killed": "signal", "list": "neither an object",
	"error": "sold out", "half": "unexpected EOF", "nan": "invalid character 'N'"}

// lastErrors are those of a process for one episode, the last line of whose output has the reward.
var lastErrors = map[string]string{"garbage": `bad answer "Hello, world!"`, "silence": "within 4s",
	"flood": "a line has more than 16777216 bytes", "fork": "reward", "death": "exited with code 3", "killed": "signal",
	"half": "unexpected end of JSON input"}

// A third of the episodes have a fault: each kind before the first request, after a reply, after a call of a tool and
// in the answer, always or the first time only. An episode whose fault persists has no reward, all others have the
// reward 1, and no process is left. RCGRPO_CRASH is the number of episodes (make crash).
func TestFaultsOfAgentsAtEveryPoint(t *testing.T) {
	for lives, answers := range map[string]map[string]string{"stage": answerErrors, "episode": lastErrors} {
		t.Run(lives, func(t *testing.T) {
			t.Parallel()
			var plan []string
			for _, point := range []string{"start", "asked", "called", "answer"} {
				kinds := agentErrors
				if point == "answer" {
					kinds = answers
				}
				for kind := range kinds {
					plan = append(plan, "faulty "+point+" "+kind)
				}
			}
			ids := make([]string, 6*len(plan))
			if n, err := strconv.Atoi(os.Getenv("RCGRPO_CRASH")); err == nil {
				ids = make([]string, n)
			}
			for i := range ids {
				switch ids[i] = "faulty"; i % 6 {
				case 0:
					ids[i] = fmt.Sprint(plan[i/6%len(plan)], " always ", i)
				case 3:
					ids[i] = fmt.Sprint(plan[i/6%len(plan)], " once ", i)
				}
			}
			marks := t.TempDir()
			got, log := play(t, func(s *Settings) {
				s.Lives, s.Workers, s.Env[faults.Marks] = lives, 8, marks
				if lives == "episode" {
					s.Reward = "program"
				}
			}, ids...)
			if got == nil {
				t.Fatal(log)
			}
			missing := 0
			for i, e := range got {
				words := strings.Fields(ids[i] + " - - - -")
				want := agentErrors[words[2]]
				if words[1] == "answer" || words[2] == "fork" {
					want = answers[words[2]]
				}
				if strings.Contains(e.Failure, "within 4s") { // the machine is busy
					want = ""
				}
				always := words[3] == "always" && words[2] != "twice"
				switch {
				case e.Reward.Missing() && always:
					missing++
					if !strings.Contains(e.Failure, want) || !strings.Contains(e.Failure, ids[i]) {
						t.Errorf("%s: the failure %q does not say %q", ids[i], e.Failure, want)
					}
				case always || e.Reward != 1:
					t.Errorf("%s: reward %v (%s)", ids[i], e.Reward, e.Failure)
				}
			}
			if left := faults.Orphans(marks); len(left) > 0 {
				t.Errorf("processes %v, which an agent left, go on", left)
			}
			t.Logf("%d episodes: %d with reward 1, %d without a reward", len(ids), len(ids)-missing, missing)
		})
	}
}

func TestAgentsThatAlwaysFailAndTasksWithSeveralRequestsEndTheStage(t *testing.T) {
	t.Parallel()
	_, log := play(t, nil, slices.Repeat([]string{"death"}, 100)...)
	must.Contain(t, log, "failed 16 times in a row")
	_, log = play(t, nil, "plain turns")
	must.Contain(t, log, "the task has several requests")
}

func TestRequestsThatAnAgentLeavesBehindEndWithItsEpisode(t *testing.T) {
	t.Parallel()
	for range 5 {
		got, _ := play(t, nil, "hasty", "hasty 2", "hasty 3")
		for _, e := range got {
			if e.Reward != 1 || len(e.Mask) != len(e.IDs) {
				t.Errorf("%s: reward %v (%s), %d ids", e.Task, e.Reward, e.Failure, len(e.IDs))
			}
		}
	}
}

// An agent with the key of its episode holds no connection, and a call may take longer than the limit of a body.
func TestNoAgentHoldsAConnectionToTheTools(t *testing.T) {
	var now, most atomic.Int64
	e := &episode{ctx: t.Context(), answers: make(chan struct{}, mostAnswers)}
	e.tools = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		for n, old := now.Add(1), most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		defer now.Add(-1)
		select {
		case <-r.Context().Done():
		case <-time.After(1500 * time.Millisecond):
			w.Write(text)
		}
	})
	g := &Gateway{running: &running{settings: &Settings{}, episodes: map[string]*episode{"k": e},
		calls: semaphore.NewWeighted(maxBody)}}
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp/{key}", g.callTools)
	h := httptest.NewUnstartedServer(nil)
	h.Config = serve.NewHTTP(mux)
	h.Config.ReadTimeout = time.Second
	h.Start()
	defer h.Close()
	for body, want := range map[string]string{"whole": "200 OK", "half": "400 Bad Request",
		strings.Repeat("[],", 50_000): "too many objects", ` [{"id": 1}]`: "a batch of messages",
		"later\r\nMcp-Protocol-Version: 2026-07-28": "unsupported protocol version"} {
		conn := must.Get(net.Dial("tcp", h.Listener.Addr().String()))(t)
		must.OK(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
		body, header, _ := strings.Cut(body, "\r\n")
		fmt.Fprintf(conn, "POST /mcp/k HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n%s\r\n\r\n%s",
			max(5, len(body)), cmp.Or(header, "X: y"), body)
		reply := string(must.Get(io.ReadAll(conn))(t))
		if !strings.Contains(reply, want) {
			t.Errorf("%.9s: got %q, want %s", body, reply, want)
		}
		conn.Close()
	}
	var all sync.WaitGroup
	for range 2 * mostAnswers { // an agent reads no answer
		all.Go(func() {
			r, err := http.Post(h.URL+"/mcp/k", "", strings.NewReader("whole"))
			if err != nil || r.StatusCode != http.StatusOK {
				t.Errorf("got %v (%v)", r, err)
			}
		})
	}
	if all.Wait(); most.Load() != mostAnswers {
		t.Errorf("%d requests were served at once", most.Load())
	}
}

// A request whose body never comes ends with its episode, which waits for it. The next request of a connection is not
// cut with the one before.
func TestHalfRequestsEndWithTheirEpisode(t *testing.T) {
	h := httptest.NewUnstartedServer(nil)
	begun := make(chan bool, 1)
	var e *episode
	start := func() {
		ctx, cancel := context.WithCancel(t.Context())
		e = &episode{ctx: ctx, cancel: cancel}
	}
	h.Config = serve.NewHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Hour)) // as serve allows its timeout
		e.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			begun <- true
			text, err := io.ReadAll(r.Body)
			if len(text) == 5 && string(text) != "quick" {
				<-r.Context().Done()
			}
			if err != nil || r.Context().Err() != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}), w, r)
	}))
	h.Start()
	defer h.Close()
	conn := must.Get(net.Dial("tcp", h.Listener.Addr().String()))(t)
	must.OK(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	replies := bufio.NewReader(conn)
	closes := func() {
		closed := make(chan bool)
		go func() { e.close(); close(closed) }()
		select {
		case <-closed:
		case <-time.After(20 * time.Second):
			t.Fatal("the episode waits for a request that never ends")
		}
	}
	const head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
	for range 20 {
		start()
		must.Get(io.WriteString(conn, head+"whole"))(t)
		<-begun
		closes()
		wantStatus(t, replies, http.StatusServiceUnavailable)
		start()
		must.Get(io.WriteString(conn, head+"quick"))(t)
		<-begun
		wantStatus(t, replies, http.StatusOK)
	}
	start()
	must.Get(io.WriteString(conn, head+"half"))(t)
	<-begun
	closes()
}

func wantStatus(t *testing.T, r *bufio.Reader, want int) {
	t.Helper()
	reply := must.Get(http.ReadResponse(r, nil))(t)
	if _, err := io.Copy(io.Discard, reply.Body); err != nil || reply.StatusCode != want {
		t.Errorf("got %s, %v, want %d", reply.Status, err, want)
	}
}

func TestRewardsOfPrograms(t *testing.T) {
	t.Parallel()
	got, _ := play(t, func(s *Settings) { s.Reward = "program" }, "plain", "nonsense")
	if got[0].Reward != 0.25 || !got[1].Reward.Missing() || !strings.Contains(got[1].Failure, "much") {
		t.Errorf("rewards %v and %v (%s)", got[0].Reward, got[1].Reward, got[1].Failure)
	}
}

func TestSettingsAreChecked(t *testing.T) {
	folder := &artifact.File{Dir: true}
	for want, s := range map[string]*Settings{"Not a folder": {Program: &artifact.File{}, Command: []string{"x"}},
		"Empty command": {Program: folder}, "Too few workers": {Program: folder, Command: []string{"x"}, Workers: -1},
		"Limit out of range": {Program: folder, Command: []string{"x"}, Timeout: -1}} {
		if diags := s.Check(); len(diags) != 1 || diags[0].Summary != want {
			t.Errorf("got %v, want %s", diags, want)
		}
	}
}

// Results in a row are one message. 60,000 of them held an episode for 16 seconds, and 250,000 for minutes.
func TestManyResultsAreJoinedInLinearTime(t *testing.T) {
	turns := append([]chat.Turn{{Role: rl.RoleUser, Text: "Go."}},
		slices.Repeat([]chat.Turn{{Role: rl.RoleTool, Text: "result"}}, 500_000)...)
	s, begin := &segment{}, time.Now()
	for _, n := range []int{3, 5, len(turns)} {
		s.add(turns[:n])
	}
	if took := time.Since(begin); took > 20*time.Second || len(s.Messages) != 2 ||
		len(s.Messages[1].Results()) != 500_000 || s.Messages[1].Text != strings.Repeat("result\n", 499_999)+"result" {
		t.Errorf("%d messages after %v", len(s.Messages), took)
	}
}
