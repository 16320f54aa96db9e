//go:build libtorch

package stages

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// Sizes of BenchmarkServing.
const (
	servedPrompt, servedReply = 512, 128 // tokens
	servedSlots               = 64
)

// BenchmarkServing measures the tokens per second of replies to prompts without a common prefix, of a Llama of 4
// million parameters: sampled by the batcher as in a rollout, and by clients of the server, whole and streamed. If
// $LLAMA_SERVER is a llama-server and $PYTHON has gguf, it measures that server with the same weights in float32 too
// (bench/serve.sh). Each iteration makes all measurements in turns.
func BenchmarkServing(b *testing.B) {
	dir := b.TempDir()
	vocabulary := writeLlama(b, dir)
	ours := serveCheckpoint(b, dir, servedPrompt+servedReply+64)
	theirs := llamaServer(b, dir)
	policy := must.Get(checkpoint.OpenFolder(dir, "cpu", lm.Use{Slots: servedSlots, Precision: lm.Float32}))(b)
	defer policy.Close()
	decoder := must.Get(lm.NewDecoder(policy.Model, servedSlots, servedPrompt+servedReply+64))(b)
	stop := must.Get(policy.Codec())(b).Stop
	if theirs != "" {
		compareGreedy(b, ours, theirs, vocabulary)
	}
	rates := map[string][]float64{}
	prompts := rand.New(rand.NewPCG(1, 2))
	for b.Loop() {
		rates["rollout"] = append(rates["rollout"], rolloutRate(b, rl.NewBatcher(decoder), stop, vocabulary, prompts))
		for _, clients := range []int{1, 16, 64} {
			name := fmt.Sprint("clients-", clients)
			rates[name] = append(rates[name], clientRate(b, ours, clients, false, vocabulary, prompts))
			if theirs != "" {
				rates["llama-"+name] = append(rates["llama-"+name], clientRate(b, theirs, clients, false, vocabulary, prompts))
			}
		}
		rates["streams-64"] = append(rates["streams-64"], clientRate(b, ours, 64, true, vocabulary, prompts))
	}
	for name, all := range rates {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], name+"-tok/s")
	}
}

// writeLlama writes a checkpoint with random weights and returns the size of its vocabulary.
func writeLlama(b *testing.B, dir string) int {
	b.Helper()
	data := must.Get(bfcl.LoadData(fixtures.Benchmark(b)))(b)
	var texts []string
	for _, task := range data.Tasks()[:40] {
		for _, class := range task.Classes {
			for _, doc := range data.Docs(class) {
				texts = append(texts, string(doc.JSON))
			}
		}
	}
	tokens := must.Get(token.Train(texts, 2048, slices.Concat(chat.DrillTokens, chat.RewardTokens)))(b)
	m := must.Get(lm.New(lm.Config{Decoder: "llama", Vocab: tokens.Size(), Hidden: 256, Layers: 4, Heads: 4, KVHeads: 2,
		HeadDim: 64, MLP: 704, RopeBase: 10000, NormEps: 1e-5, TiedEmbeddings: true, MaxPosition: 1024},
		rand.New(rand.NewPCG(1, 1))))(b)
	p := &checkpoint.Policy{Meta: checkpoint.Meta{Layout: checkpoint.Drill}, Model: m, Tokenizer: tokens}
	defer p.Close()
	must.OK(b, p.Save(dir))
	return tokens.Size()
}

// newPrompt returns random ids without special tokens.
func newPrompt(vocabulary int, r *rand.Rand) []int32 {
	ids := make([]int32, servedPrompt)
	for i := range ids {
		ids[i] = int32(300 + r.IntN(vocabulary-320))
	}
	return ids
}

// rolloutRate samples as many replies as there are slots, twice, without a server.
func rolloutRate(b *testing.B, batcher *rl.Batcher, stop func(int32) bool, vocabulary int, r *rand.Rand) float64 {
	var all sync.WaitGroup
	var mu sync.Mutex
	sampled, began := 0, time.Now()
	for i := range servedSlots {
		prompts := [][]int32{newPrompt(vocabulary, r), newPrompt(vocabulary, r)}
		all.Go(func() {
			for k, ids := range prompts {
				out, err := batcher.Sample(b.Context(), rl.Query{IDs: ids, Temperature: 1, Stream: rl.Serving(uint64(2*i+k), 0),
					Max: servedReply, Last: func(d rl.Draw) bool { return stop(d.Token) }})
				if err != nil {
					b.Error(err)
				}
				mu.Lock()
				sampled += len(out.Draws)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	must.OK(b, batcher.Release())
	return float64(sampled) / time.Since(began).Seconds()
}

// clientRate sends two requests from each client, or eight from a single one, and returns the sampled tokens per
// second.
func clientRate(b *testing.B, url string, clients int, stream bool, vocabulary int, r *rand.Rand) float64 {
	each := 2
	if clients == 1 {
		each = 8
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	sampled := 0
	bodies := make([][][]byte, clients)
	for i := range bodies {
		for range each {
			q := map[string]any{"model": "drills", "prompt": newPrompt(vocabulary, r), "max_tokens": servedReply,
				"temperature": 1, "seed": r.Int32()}
			if stream {
				q["stream"], q["stream_options"] = true, map[string]bool{"include_usage": true}
			}
			bodies[i] = append(bodies[i], must.Get(json.Marshal(q))(b))
		}
	}
	began := time.Now()
	for _, own := range bodies {
		all.Go(func() {
			for _, body := range own {
				n, err := sampledBy(url, body)
				if err != nil {
					b.Error(err)
				}
				mu.Lock()
				sampled += n
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return float64(sampled) / time.Since(began).Seconds()
}

// sampledBy sends a request and returns the number of tokens of its reply.
func sampledBy(url string, body []byte) (int, error) {
	r, err := http.Post(url+"/v1/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	var of struct {
		Usage *struct {
			Completion int `json:"completion_tokens"`
		}
	}
	last := []byte{}
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() { // a whole reply is one line; the last event of a stream before its end has the usage
		if line := bytes.TrimPrefix(lines.Bytes(), []byte("data: ")); bytes.Contains(line, []byte(`"completion_tokens"`)) {
			last = bytes.Clone(line)
		}
	}
	if err := json.Unmarshal(last, &of); err != nil || of.Usage == nil {
		return 0, fmt.Errorf("status %d: %.300s (%w)", r.StatusCode, last, err)
	}
	return of.Usage.Completion, lines.Err()
}

// llamaServer starts llama.cpp's server with the weights of a checkpoint and returns its address; "" without it.
func llamaServer(b *testing.B, dir string) string {
	program, python := os.Getenv("LLAMA_SERVER"), os.Getenv("PYTHON")
	if program == "" {
		return ""
	}
	file := filepath.Join(b.TempDir(), "model.gguf")
	script := filepath.Join(fixtures.Root(b), "bench", "serve_gguf.py")
	convert := exec.CommandContext(b.Context(), python, script, dir, file)
	if out, err := convert.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(b)
	address := l.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	l.Close()
	c := exec.CommandContext(b.Context(), program, "--model", file, "--host", "127.0.0.1", "--port", port,
		"--threads", "2", "--threads-batch", "2", "--parallel", fmt.Sprint(servedSlots), "--ctx-size",
		fmt.Sprint(servedSlots*(servedPrompt+servedReply+64)), "--cache-type-k", "f32", "--cache-type-v", "f32")
	c.Stdout, c.Stderr = io.Discard, io.Discard
	if os.Getenv("LLAMA_LOG") != "" {
		c.Stdout, c.Stderr = os.Stderr, os.Stderr
	}
	must.OK(b, c.Start())
	b.Cleanup(func() {
		_ = c.Process.Kill() // fails if it has ended
		_ = c.Wait()
	})
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		if r, err := http.Get("http://" + address + "/health"); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return "http://" + address
			}
		}
		if time.Since(began) > 2*time.Minute {
			b.Fatal("llama-server does not start")
		}
	}
}

// compareGreedy checks that both servers have the same weights: their greedy replies begin alike.
func compareGreedy(b *testing.B, ours, theirs string, vocabulary int) {
	ids := newPrompt(vocabulary, rand.New(rand.NewPCG(3, 4)))
	post := func(url string, q map[string]any, into any) {
		r := must.Get(http.Post(url, "application/json", bytes.NewReader(must.Get(json.Marshal(q))(b))))(b)
		defer r.Body.Close()
		must.OK(b, json.NewDecoder(r.Body).Decode(into))
	}
	var a struct {
		Choices []struct {
			IDs []int32 `json:"token_ids"`
		}
	}
	post(ours+"/v1/completions", map[string]any{"model": "drills", "prompt": ids, "max_tokens": 16, "temperature": 0,
		"return_token_ids": true}, &a)
	var t struct{ Tokens []int32 }
	post(theirs+"/completion", map[string]any{"prompt": ids, "n_predict": 16, "temperature": 0, "return_tokens": true}, &t)
	same := 0
	for same < min(len(a.Choices[0].IDs), len(t.Tokens)) && a.Choices[0].IDs[same] == t.Tokens[same] {
		same++
	}
	if same < 8 {
		b.Fatalf("the greedy replies are %v and %v, want equal beginnings", a.Choices[0].IDs, t.Tokens)
	}
}
