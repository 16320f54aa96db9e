package agent

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/semaphore"

	"rcgrpo/bfcl"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/environment"
	"rcgrpo/stages/internal/serve"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// modelName is the name of the policy in requests.
const modelName = "policy"

// maxBody is the largest number of bytes of a request for a reply, and of the requests for tools at once. It counts the
// latter as environment.Weigh does, because the SDK makes 400 bytes of an array of three.
const maxBody = 8 << 20

// mostAnswers are the answers of the tools of an episode at once: of a call, and of a request beside it.
const mostAnswers = 2

// Options describe the policy and the place of the processes.
type Options struct {
	Policy    *rl.Local
	Codec     chat.Codec
	Tokenizer *token.Tokenizer
	Position  string     // of reward tokens
	Data      *bfcl.Data // for the documents of the benchmark's tools; may be nil
	Place     environment.Options
}

// Gateway plays episodes with processes of a program. Each episode has a key of its own for both protocols, which ends
// with it. Gateway implements rl.Agent.
type Gateway struct {
	Options
	*running
}

// running is the part of a gateway that those of other policies share.
type running struct {
	settings *Settings
	workers  *environment.Workers
	server   *http.Server
	address  string
	prompts  *semaphore.Weighted // bytes of requests that become prompts at once
	calls    *semaphore.Weighted // bytes of requests for tools at once
	logprobs atomic.Int64        // that the replies of all episodes may get
	texts    *semaphore.Weighted // bytes of their texts that are written at once
	sampling rl.Stopwatch
	changed  atomic.Int64 // requests with another temperature or top_p

	mu       sync.Mutex
	episodes map[string]*episode // by key
	idle     []*environment.Worker
}

// Open starts the server. Close the gateway.
func Open(s *Settings, o Options) (*Gateway, error) {
	program := &environment.Description{Command: s.Command, Env: direct(s.Env), Secrets: s.Secrets,
		Step: cmp.Or(s.Timeout, defaultTimeout)}
	workers, err := environment.NewWorkers(program, s.Program.Path, s.Program.Left, o.Place)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, workers.Close())
	}
	g := &Gateway{o, &running{settings: s, workers: workers, address: listener.Addr().String(),
		prompts: semaphore.NewWeighted(maxBody), calls: semaphore.NewWeighted(maxBody),
		texts: semaphore.NewWeighted(serve.MostText), episodes: map[string]*episode{}}}
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp/{key}", g.callTools)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if e := g.find(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")); e != nil {
			e.serve(e.policy, w, r)
			return
		}
		http.Error(w, `{"error":{"message":"no episode has this key","type":"authentication_error"}}`,
			http.StatusUnauthorized)
	})
	g.server = serve.NewHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = io.NopCloser(workers.Masked(r.Body)) // the trajectory has the messages of the agent
		mux.ServeHTTP(w, r)
	}))
	go g.server.Serve(listener) // until Close
	return g, nil
}

// callTools answers a request for the tools of an episode. Its body has the limits of the connection; only a call of a
// tool may take longer. No request is a stream.
func (g *Gateway) callTools(w http.ResponseWriter, r *http.Request) {
	e := g.find(r.PathValue("key"))
	if e == nil {
		http.Error(w, "no episode has this address", http.StatusNotFound)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mcp.DefaultMaxRequestBodyBytes))
	weight, version := int64(environment.Weigh(body)), r.Header.Get("Mcp-Protocol-Version")
	switch {
	case err != nil:
	case weight > maxBody:
		err = errors.New("the request has too many objects and values")
	case version > environment.SessionVersion: // clients take an earlier version then
		err = errors.New("unsupported protocol version " + version)
	case bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")): // each message may ask for the list of tools
		err = errors.New("the request is a batch of messages: send one after another")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // an expired deadline would cancel the request

	select {
	case e.answers <- struct{}{}:
		defer func() { <-e.answers }()
	case <-r.Context().Done(): // the client has left
		return
	case <-e.ctx.Done():
		http.Error(w, "the episode has ended", http.StatusGone)
		return
	}
	if g.calls.Acquire(r.Context(), weight) != nil { // the client has left
		return
	}
	defer g.calls.Release(weight)
	_ = control.SetWriteDeadline(time.Now().Add(cmp.Or(g.settings.Timeout, defaultTimeout) + time.Minute))
	e.serve(e.tools, w, r)
}

// direct adds the gateway to the addresses that a proxy of the program does not serve.
func direct(env map[string]string) map[string]string {
	added := map[string]string{}
	maps.Copy(added, env)
	for _, name := range []string{"NO_PROXY", "no_proxy"} { // programs read one of them
		own := cmp.Or(env[name], env["NO_PROXY"], env["no_proxy"])
		added[name] = strings.TrimPrefix(own+",127.0.0.1", ",")
	}
	return added
}

func (g *Gateway) find(key string) *episode {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.episodes[key]
}

// Changed returns the number of requests that asked for another temperature or top_p than those of the stage.
func (g *Gateway) Changed() int64 { return g.changed.Load() }

// InPolicy implements rl.Agent.
func (g *Gateway) InPolicy() time.Duration { return g.sampling.Total() }

// Width implements rl.Agent.
func (g *Gateway) Width() int { return cmp.Or(g.settings.Workers, defaultWorkers) }

// Close ends the processes and the server.
func (g *Gateway) Close() error {
	var all sync.WaitGroup
	for _, w := range g.idle {
		all.Go(w.Stop)
	}
	all.Wait()
	return errors.Join(g.server.Close(), g.workers.Close())
}

// task is what the program reads about an episode.
type task struct {
	ID     string            `json:"id"`
	User   string            `json:"user"`
	System string            `json:"system,omitempty"`
	Tools  []json.RawMessage `json:"tools"` // in OpenAI's form
}

// With returns the gateway for episodes of another policy with the same model, such as one with another temperature.
func (g *Gateway) With(policy *rl.Local) *Gateway {
	other := *g
	other.Policy = policy
	return &other
}

// Play implements rl.Agent.
func (g *Gateway) Play(ctx context.Context, ask rl.Rollout, env rl.Env, t *rl.Trajectory) (bfcl.Verdict, error) {
	offer, err := environment.NewOffer(ctx, env, g.Data)
	if err = cmp.Or(err, g.workers.Broken()); err != nil {
		return bfcl.Verdict{}, err
	}
	e := &episode{gateway: g, ask: ask, offer: offer, answers: make(chan struct{}, mostAnswers), uses: map[string]int{}}
	e.left.Store(int64(rl.ReplyBytesOf(g.Policy.Longest())))
	e.ctx, e.cancel = context.WithCancel(ctx)
	e.policy = serve.New(serve.Config{Name: modelName, Batcher: g.Policy.Batcher, Codec: g.Codec,
		Tokenizer: g.Tokenizer, Position: g.Position, Token: ask.Token, Addr: g.address, Queue: 1 << 12,
		MaxBody: maxBody, Prompts: g.prompts, Logprobs: &g.logprobs, Texts: g.texts,
		Timeout: cmp.Or(g.settings.Timeout, defaultTimeout), Logf: g.Place.Log,
		Sampling: &serve.Sampling{Temperature: g.Policy.Temperature, TopP: cmp.Or(g.Policy.TopP, 1),
			Reply: g.Policy.Limits.Reply, Stream: e.stream, Left: &e.left, Sampled: e.sampled}})
	e.tools = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return offer.Server },
		&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	key := rand.Text()
	g.mu.Lock()
	g.episodes[key] = e
	g.mu.Unlock()
	said, failure := g.run(ctx, key, task{ask.Task.ID, env.User(), env.System(), offer.Documents})
	g.mu.Lock()
	delete(g.episodes, key)
	g.mu.Unlock()
	e.close()
	e.record(t)
	t.Calls, t.Errors = offer.Calls()
	switch {
	case ctx.Err() != nil:
		return bfcl.Verdict{}, ctx.Err()
	case e.failure != nil:
		return bfcl.Verdict{}, e.failure
	case e.limited:
		t.Stop = rl.StopTurnLimit // the refusal may have ended the program
	case failure != nil:
		g.workers.Count(failure)
		g.Place.Log("%v", failure)
		return bfcl.Verdict{}, failure
	}
	g.workers.Count(nil)
	v, err := e.verdict(ctx, said)
	t.Stop = cmp.Or(t.Stop, env.Stop())
	return v, err
}

// run has the program play an episode, and returns its answer.
func (g *Gateway) run(ctx context.Context, key string, t task) ([]byte, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	base, tools := "http://"+g.address+"/v1", "http://"+g.address+"/mcp/"+key
	if g.settings.Lives == "episode" {
		return g.workers.Once(ctx, t.ID, "OPENAI_BASE_URL="+base, "OPENAI_API_KEY="+key, "RCGRPO_MODEL="+modelName,
			"RCGRPO_TASK="+string(text), "RCGRPO_MCP_URL="+tools)
	}
	w, err := g.worker()
	if err != nil {
		return nil, err
	}
	var said json.RawMessage
	err = w.Call(ctx, "play", t.ID, map[string]any{"task": json.RawMessage(text), "base_url": base, "api_key": key,
		"model": modelName, "mcp_url": tools}, &said)
	if err != nil || !w.Works() {
		w.Stop()
		return said, err
	}
	g.mu.Lock()
	g.idle = append(g.idle, w)
	g.mu.Unlock()
	return said, nil
}

// worker returns an idle process, or starts one.
func (g *Gateway) worker() (*environment.Worker, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.idle) > 0 {
		w := g.idle[len(g.idle)-1]
		g.idle = g.idle[:len(g.idle)-1]
		if w.Works() {
			return w, nil
		}
	}
	return g.workers.Start()
}

// verdict returns the reward of the environment or of the program.
func (e *episode) verdict(ctx context.Context, said []byte) (bfcl.Verdict, error) {
	var answer struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(said, &answer) // the text is optional
	v, err := e.offer.Verdict(ctx, cmp.Or(answer.Text, e.text))
	if err != nil || e.gateway.settings.Reward != "program" || e.limited {
		return v, err
	}
	reward, err := environment.Reward(said)
	if err != nil {
		return v, &environment.Fault{Method: "play", Task: e.ask.Task.ID, Text: fmt.Sprintf("reward = \"program\": %v", err)}
	}
	v.Reward, v.Official = reward, reward == 1
	return v, nil
}
