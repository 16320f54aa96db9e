package stages

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/provider"
	"rcgrpo/stages/rl"
)

// oracle is a server in the form of Chat Completions that replies with the ground truth of the tasks.
type oracle struct {
	*httptest.Server
	mu     sync.Mutex
	tasks  map[string]*bfcl.Task // by first request
	calls  int                   // requests
	told   map[string]int        // replies by body of the request
	faulty func(n int, w http.ResponseWriter, r *http.Request) bool
}

func newOracle(t *testing.T) *oracle {
	o := &oracle{tasks: map[string]*bfcl.Task{}, told: map[string]int{}}
	o.Server = httptest.NewServer(http.HandlerFunc(o.answer))
	t.Cleanup(o.Close)
	return o
}

func (o *oracle) answer(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Messages []struct{ Role, Content string }
	}
	var text bytes.Buffer
	text.ReadFrom(r.Body)
	json.Unmarshal(text.Bytes(), &body)
	o.mu.Lock()
	o.calls++
	n, faulty := o.calls, o.faulty
	o.mu.Unlock()
	if faulty != nil && faulty(n, w, r) {
		return
	}
	turn, steps := -1, 0
	for _, m := range body.Messages {
		switch m.Role {
		case "user":
			turn, steps = turn+1, 0
		case "assistant":
			steps++
		}
	}
	message := map[string]any{"role": "assistant", "content": "Done."}
	o.mu.Lock()
	task := o.tasks[body.Messages[0].Content]
	o.told[text.String()]++
	o.mu.Unlock()
	if truth := task.Turns[turn].GroundTruth; steps == 0 && len(truth) > 0 {
		var calls []any
		for i, c := range truth {
			name, arguments, _ := bfcl.CallJSON(c)
			calls = append(calls, map[string]any{"id": fmt.Sprint("c", i), "type": "function",
				"function": map[string]any{"name": name, "arguments": string(arguments)}})
		}
		message = map[string]any{"role": "assistant", "content": nil, "tool_calls": calls}
	}
	json.NewEncoder(w).Encode(map[string]any{"model": "oracle-1", "choices": []any{map[string]any{"message": message,
		"finish_reason": "stop"}}, "usage": map[string]int{"prompt_tokens": 1000, "completion_tokens": 100}})
}

const testKey = "sk-test-0123456789"

// apiLab is an experiment with the oracle as the policy of an evaluation.
type apiLab struct {
	*testing.T
	dir, path string
	oracle    *oracle
}

func newAPILab(t *testing.T) *apiLab {
	t.Setenv("TEST_KEY", testKey)
	dir := t.TempDir()
	t.Setenv("RCGRPO_LEASES", filepath.Join(dir, "leases"))
	backoff := provider.FirstBackoff
	provider.FirstBackoff = time.Millisecond
	t.Cleanup(func() { provider.FirstBackoff = backoff })
	l := &apiLab{T: t, dir: dir, path: filepath.Join(dir, "x.hcl"), oracle: newOracle(t)}
	must.OK(t, os.WriteFile(filepath.Join(dir, "site.hcl"), []byte(fmt.Sprintf(`
data {
  bfcl = %q
}
api "TEST_KEY" {
  prices = { oracle = [10, 100] }
}
`, fixtures.Benchmark(t))), 0o600))
	return l
}

// load writes and loads the experiment with the settings of a block calls.
func (l *apiLab) load(calls string) *lang.Experiment {
	l.Helper()
	text := fmt.Sprintf(`
experiment {}

stage "tasks" "drills" {
  source = "drills"
  train  = 2
  test   = 6
  pool   = 20
}

stage "endpoint" "api" {
  api      = "openai-chat"
  model    = "oracle"
  key      = "TEST_KEY"
  base_url = "%s/v1"
}

stage "eval" "api" {
  policy = stage.endpoint.api.policy
  tasks  = [stage.tasks.drills.test]
  calls {
    %s
  }
}

stage "rollout" "api" {
  policy  = stage.endpoint.api.policy
  tasks   = stage.tasks.drills.train
  samples = 2
  calls {
    %s
  }
}
`, l.oracle.URL, calls, calls)
	must.OK(l, os.WriteFile(l.path, []byte(text), 0o600))
	return l.loadFile()
}

func (l *apiLab) loadFile() *lang.Experiment {
	l.Helper()
	kinds := lang.Registry(Kinds())
	for _, k := range kinds {
		k.InProcess = true
	}
	x, diags := lang.Load(lang.Source{Path: l.path, Site: filepath.Join(l.dir, "site.hcl")}, kinds)
	if len(diags) > 0 {
		l.Fatal(diags)
	}
	return x
}

// run runs the experiment in a store and returns the error and the scores.
func (l *apiLab) run(ctx context.Context, storeDir, calls string) (scores []rl.Score, err error) {
	l.Helper()
	l.load(calls)
	return l.runFile(ctx, storeDir)
}

func (l *apiLab) runFile(ctx context.Context, storeDir string) (scores []rl.Score, err error) {
	l.Helper()
	x := l.loadFile()
	store := must.Get(artifact.Open(filepath.Join(l.dir, storeDir)))(l)
	l.know(x)
	p := must.Get(plan.New(x, store, plan.Options{}))(l)
	if err := engine.Run(ctx, p, engine.Options{}, func(e runs.Event) {
		if e.Kind == runs.EventFailed {
			l.Log(e.Address, e.Text)
		}
	}); err != nil {
		return nil, err
	}
	for _, n := range must.Get(plan.New(x, store, plan.Options{}))(l).Nodes {
		if n.Kind.Name != "eval" {
			continue
		}
		a := must.Get(store.Open(n.Manifest, "scores"))(l)
		for row, err := range artifact.Rows[rl.Score](a, rl.ScoresFile) {
			must.OK(l, err)
			scores = append(scores, row)
		}
	}
	return scores, nil
}

// know runs the stage tasks and gives the oracle its tasks.
func (l *apiLab) know(x *lang.Experiment) {
	l.Helper()
	for _, n := range x.Nodes {
		if n.Kind.Name != "tasks" {
			continue
		}
		dir := l.TempDir()
		job := must.Get(engine.NewJob(engine.JobSetup{Dir: dir, Seed: *n.Seed}))(l)
		must.OK(l, n.Stage.(engine.Runner).Run(l.Context(), job))
		for _, set := range []string{"train", "test"} {
			for task, err := range artifact.ReadRows[*bfcl.Task](filepath.Join(dir, set, bfcl.TasksFile)) {
				must.OK(l, err)
				l.oracle.tasks[task.Turns[0].User] = task
			}
		}
	}
}

// wantTruth checks that every episode has succeeded.
func (l *apiLab) wantTruth(scores []rl.Score) {
	l.Helper()
	if len(scores) != 6 {
		l.Fatalf("got %d scores, want 6", len(scores))
	}
	for _, s := range scores {
		if s.Reward != 1 || !s.Official || s.Stop != rl.StopDone {
			l.Errorf("%s: got %+v, want the reward of the ground truth", s.Task, s)
		}
	}
}

func TestAnEndpointIsEvaluatedOnceAndItsKeyIsNowhere(t *testing.T) {
	l := newAPILab(t)
	l.wantTruth(must.Get(l.run(t.Context(), "store", "budget = 1000"))(t))
	calls := l.oracle.calls
	l.wantTruth(must.Get(l.run(t.Context(), "store", "budget = 5"))(t)) // calls is not in the key
	if l.oracle.calls != calls || calls == 0 {
		t.Errorf("got %d calls after the second run, want those of the first, %d", l.oracle.calls, calls)
	}
	must.OK(t, filepath.WalkDir(l.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if text := must.Get(os.ReadFile(path))(t); bytes.Contains(text, []byte(testKey)) {
				t.Errorf("%s contains the API key", path)
			}
		}
		return err
	}))
}

// A fault comes before each of the first replies: 429, 500, a cut body, a closed connection, a reply without content,
// and a hang until the timeout.
func TestScoresDoNotDependOnFaultsOfTheServerAndKills(t *testing.T) {
	l := newAPILab(t)
	l.oracle.faulty = func(n int, w http.ResponseWriter, r *http.Request) bool {
		switch n % 9 {
		case 1:
			w.WriteHeader(http.StatusTooManyRequests)
		case 2:
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintf(w, `{"error": {"message": "the key %s fails"}}`, testKey)
		case 3:
			w.Header().Set("Content-Length", "1000")
			w.Write([]byte(`{"choices": [`))
		case 4:
			conn, _, _ := w.(http.Hijacker).Hijack()
			conn.Close()
		case 5:
			w.Write([]byte(`{"choices": []}`))
		case 6:
			if n < 20 {
				<-r.Context().Done()
			}
		default:
			return false
		}
		return true
	}
	const calls = "budget = 1000000\n parallel = 3\n attempts = 30\n timeout = \"500ms\""
	kills := 0
	for ; kills < 6; kills++ {
		ctx, kill := context.WithTimeout(t.Context(), time.Duration(100+60*kills)*time.Millisecond)
		_, err := l.run(ctx, "store", calls)
		kill()
		if err == nil {
			break
		}
	}
	l.wantTruth(must.Get(l.run(t.Context(), "store", calls))(t))
	again := 0
	for _, n := range l.oracle.told {
		again += n - 1
	}
	// A kill repeats at most the calls in flight. Equal requests of the two samples of a rollout count as repeated too.
	if most := 2*3*kills + 2*10; again > most {
		t.Errorf("got %d repeated replies after %d kills, want at most %d", again, kills, most)
	}
}

func TestAStageStopsBeforeItsBudgetIsExceededAndKeepsItsCalls(t *testing.T) {
	l := newAPILab(t)
	_, err := l.run(t.Context(), "store", "budget = 13.6\n parallel = 2") // the worst case of a call is above $13.1
	if err == nil || l.oracle.calls == 0 {
		t.Fatalf("got %v after %d calls, want some calls and then an error", err, l.oracle.calls)
	}
	if spent := 0.02 * float64(l.oracle.calls); spent > 2*13.6 { // two stages
		t.Errorf("got $%.2f spent, want less than the budgets", spent)
	}
	before := l.oracle.calls
	l.wantTruth(must.Get(l.run(t.Context(), "store", "budget = 1000"))(t))
	for body, n := range l.oracle.told {
		if n > 2 { // the samples of a rollout begin with equal requests
			t.Errorf("%.80s: replied %d times, want no repeated call", body, n)
		}
	}
	if l.oracle.calls == before {
		t.Error("the run with a larger budget made no call")
	}
}

func TestWithoutReplyAStageFailsAfterItsOtherEpisodes(t *testing.T) {
	l := newAPILab(t)
	var lost string
	l.oracle.faulty = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n == 1 {
			lost = "set"
			w.WriteHeader(http.StatusBadRequest)
			w.Write([]byte(`{"error": {"message": "no"}}`))
		}
		return n == 1
	}
	_, err := l.run(t.Context(), "store", "budget = 1000")
	if err == nil || lost == "" || l.oracle.calls < 8 {
		t.Fatalf("got %v after %d calls, want the other episodes and then an error", err, l.oracle.calls)
	}
	calls := l.oracle.calls
	l.wantTruth(must.Get(l.run(t.Context(), "store", "budget = 1000"))(t))
	if more := l.oracle.calls - calls; more == 0 || more > 10 {
		t.Errorf("got %d more calls, want those of the one episode", more)
	}
}

func TestAWrongKeyStopsAStageAtOnce(t *testing.T) {
	l := newAPILab(t)
	l.oracle.faulty = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	if _, err := l.run(t.Context(), "store", "budget = 1000\n parallel = 1"); err == nil || l.oracle.calls > 2 {
		t.Errorf("got %v after %d calls, want an error after the first of each stage", err, l.oracle.calls)
	}
}

// The experiment and the site file of docs/api_models.md, with the oracle in place of OpenAI.
func TestTheExperimentOfTheDocumentationRuns(t *testing.T) {
	l := newAPILab(t)
	t.Setenv("OPENAI_API_KEY", testKey)
	page := string(must.Get(os.ReadFile(filepath.Join("..", "docs", "api_models.md")))(t))
	blocks := regexp.MustCompile("(?s)```hcl\n(.*?)```").FindAllStringSubmatch(page, -1)
	text := strings.Replace(blocks[0][1], "  model = ", fmt.Sprintf("  base_url = \"%s/v1\"\n  model = ", l.oracle.URL), 1)
	must.OK(t, os.WriteFile(l.path, []byte(text), 0o600))
	site := strings.Replace(blocks[1][1], ".deps/bfcl", fixtures.Benchmark(t), 1)
	must.OK(t, os.WriteFile(filepath.Join(l.dir, "site.hcl"), []byte(site), 0o600))
	if scores := must.Get(l.runFile(t.Context(), "store"))(t); len(scores) != 4 {
		t.Errorf("got %d scores, want 4", len(scores))
	}
}

func TestSettingsThatAnEndpointDoesNotReadAreRefused(t *testing.T) {
	for line, want := range map[string]string{
		"temperature = 1":                 "the endpoint decides how its model samples",
		"token = \"low\"":                 "the endpoint decides",
		"limits {\n reply = 5\n }":        "the endpoint decides",
		"limits {\n steps = 5\n }":        "",
		"samples = 3":                     "",
		"calls {\n parallel = 0\n }":      "got 0",
		"resources {\n processes = 2\n }": "kind eval has one process with these settings",
	} {
		text := fmt.Sprintf(`
experiment {}
stage "tasks" "drills" {
  source = "drills"
}
stage "endpoint" "api" {
  api   = "google"
  model = "m"
}
stage "eval" "api" {
  policy = stage.endpoint.api.policy
  tasks  = [stage.tasks.drills.test]
  %s
}
`, line)
		path := filepath.Join(t.TempDir(), "x.hcl")
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		_, diags := lang.Load(lang.Source{Path: path}, lang.Registry(Kinds()))
		if got := diags.Error(); want == "" && len(diags) > 0 || !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %q", line, got, want)
		}
	}
}
