package stages

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
	"rcgrpo/reports"
	"rcgrpo/stages/internal/provider"
	"rcgrpo/stages/rl"
)

// oracle is a server in the form of every API that replies with the ground truth of the tasks.
type oracle struct {
	*httptest.Server
	mu     sync.Mutex
	tasks  map[string]*bfcl.Task // by first request
	calls  int                   // requests
	asked  map[string]int        // number of requests by their body
	faulty func(n int, w http.ResponseWriter, r *http.Request) bool
}

func newOracle(t *testing.T) *oracle {
	o := &oracle{tasks: map[string]*bfcl.Task{}, asked: map[string]int{}}
	o.Server = httptest.NewServer(http.HandlerFunc(o.answer))
	t.Cleanup(o.Close)
	return o
}

// count returns the number of requests. Handlers of requests that a client gave up may still run.
func (o *oracle) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.calls
}

// repeats returns the number of requests by their body.
func (o *oracle) repeats() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.asked)
}

func (o *oracle) answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil { // the client was killed
		return
	}
	o.mu.Lock()
	o.calls++
	n, faulty := o.calls, o.faulty
	o.mu.Unlock()
	if faulty != nil && faulty(n, w, r) {
		return
	}
	first, turn, results := asked(body)
	o.mu.Lock()
	task := o.tasks[first]
	o.asked[string(body)]++
	o.mu.Unlock()
	var calls [][2]string // name and arguments
	if !results {
		for _, c := range task.Turns[turn].GroundTruth {
			name, arguments, _ := bfcl.CallJSON(c)
			calls = append(calls, [2]string{name, string(arguments)})
		}
	}
	json.NewEncoder(w).Encode(reply(r.URL.Path, "Done.", calls))
}

// asked reads a request of any API: the text of the first user message, the index of the last one, and whether
// results of tools follow it.
func asked(body []byte) (first string, turn int, results bool) {
	var q map[string]any
	json.Unmarshal(body, &q)
	turn = -1
	for _, name := range []string{"messages", "input", "contents"} {
		list, _ := q[name].([]any)
		for _, item := range list {
			m := item.(map[string]any)
			text, isText := m["content"].(string)
			parts, _ := m["content"].([]any) // Anthropic
			if parts == nil {
				parts, _ = m["parts"].([]any) // Google
			}
			for _, part := range parts {
				if t, ok := part.(map[string]any)["text"].(string); ok {
					text, isText = t, true
				}
			}
			switch {
			case m["role"] == "user" && isText:
				turn, results = turn+1, false
				if turn == 0 {
					first = text
				}
			case m["role"] == "user", m["role"] == "tool", m["type"] == "function_call_output":
				results = true
			}
		}
	}
	return first, turn, results
}

// reply returns the body of a reply with calls, or with a text, in the form of the API of a path.
func reply(path, text string, calls [][2]string) any {
	type object = map[string]any
	list := func(of func(i int, name, arguments string) any, otherwise any) []any {
		var all []any
		for i, c := range calls {
			all = append(all, of(i, c[0], c[1]))
		}
		if all == nil {
			all = []any{otherwise}
		}
		return all
	}
	switch {
	case strings.HasSuffix(path, "/responses"):
		return object{"model": "oracle-1", "status": "completed", "usage": object{"input_tokens": 1000, "output_tokens": 100},
			"output": list(func(i int, name, arguments string) any {
				return object{"type": "function_call", "call_id": fmt.Sprint("c", i), "name": name, "arguments": arguments}
			}, object{"type": "message", "role": "assistant", "content": []any{object{"type": "output_text", "text": text}}})}
	case strings.HasSuffix(path, "/messages"):
		return object{"model": "oracle-1", "stop_reason": "end_turn",
			"usage": object{"input_tokens": 1000, "output_tokens": 100},
			"content": list(func(i int, name, arguments string) any {
				return object{"type": "tool_use", "id": fmt.Sprint("c", i), "name": name, "input": json.RawMessage(arguments)}
			}, object{"type": "text", "text": text})}
	case strings.HasSuffix(path, ":generateContent"):
		parts := list(func(_ int, name, arguments string) any {
			return object{"functionCall": object{"name": name, "args": json.RawMessage(arguments)}}
		}, object{"text": text})
		return object{"modelVersion": "oracle-1",
			"usageMetadata": object{"promptTokenCount": 1000, "candidatesTokenCount": 100},
			"candidates":    []any{object{"content": object{"role": "model", "parts": parts}, "finishReason": "STOP"}}}
	}
	message := object{"role": "assistant", "content": text}
	if calls != nil {
		message = object{"role": "assistant", "content": nil, "tool_calls": list(func(i int, name, arguments string) any {
			return object{"id": fmt.Sprint("c", i), "type": "function", "function": object{"name": name, "arguments": arguments}}
		}, nil)}
	}
	return object{"model": "oracle-1", "choices": []any{object{"message": message, "finish_reason": "stop"}},
		"usage": object{"prompt_tokens": 1000, "completion_tokens": 100}}
}

const testKey = "sk-test-0123456789"

// apiLab is an experiment with the oracle as the policy of an evaluation.
type apiLab struct {
	*testing.T
	dir, path string
	source    lang.Source // variables and overrides of the file
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

// run runs an experiment with the settings of a block calls.
func (l *apiLab) run(ctx context.Context, calls string) ([]rl.Score, error) {
	l.Helper()
	must.OK(l, os.WriteFile(l.path, fmt.Appendf(nil, `
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
`, l.oracle.URL, calls, calls), 0o600))
	return l.runFile(ctx)
}

func (l *apiLab) loadFile() *lang.Experiment {
	l.Helper()
	kinds := append(lang.Registry(Kinds()), reports.Kind())
	for _, k := range kinds {
		k.InProcess = true
	}
	source := l.source
	source.Path, source.Site = l.path, filepath.Join(l.dir, "site.hcl")
	x, diags := lang.Load(source, kinds)
	if len(diags) > 0 {
		l.Fatal(diags)
	}
	return x
}

// runFile runs the experiment and returns its scores.
func (l *apiLab) runFile(ctx context.Context) ([]rl.Score, error) {
	l.Helper()
	x := l.loadFile()
	l.know(x)
	p := must.Get(plan.New(x, l.store(), plan.Options{}))(l)
	if err := engine.Run(ctx, p, engine.Options{}, func(e runs.Event) {
		if e.Kind == runs.EventFailed {
			l.Log(e.Address, e.Text)
		}
	}); err != nil {
		return nil, err
	}
	return l.scores(), nil
}

func (l *apiLab) store() *artifact.Store {
	l.Helper()
	return must.Get(artifact.Open(filepath.Join(l.dir, "store")))(l)
}

// scores returns the scores of all evaluations.
func (l *apiLab) scores() (scores []rl.Score) {
	l.Helper()
	store := l.store()
	for _, n := range must.Get(plan.New(l.loadFile(), store, plan.Options{}))(l).Nodes {
		if n.Kind.Name == "eval" {
			a := must.Get(store.Open(n.Manifest, "scores"))(l)
			scores = append(scores, must.Get(artifact.AllRows[rl.Score](a, rl.ScoresFile))(l)...)
		}
	}
	return scores
}

// know runs the stage tasks and gives the oracle its tasks.
func (l *apiLab) know(x *lang.Experiment) {
	l.Helper()
	for _, n := range x.Nodes {
		if n.Kind.Name != "tasks" {
			continue
		}
		dir := l.TempDir()
		setup := engine.JobSetup{Dir: dir, Site: x.Site}
		if n.Seed != nil {
			setup.Seed = *n.Seed
		}
		job := must.Get(engine.NewJob(setup))(l)
		must.OK(l, n.Stage.(engine.Runner).Run(l.Context(), job))
		for _, set := range []string{"train", "test"} {
			for task, err := range artifact.ReadRows[*bfcl.Task](filepath.Join(dir, set, bfcl.TasksFile)) {
				must.OK(l, err)
				l.oracle.mu.Lock()
				l.oracle.tasks[task.Turns[0].User] = task
				l.oracle.mu.Unlock()
			}
		}
	}
}

// wantTruth runs an experiment with the settings of a block calls, in which every episode must succeed.
func (l *apiLab) wantTruth(calls string) {
	l.Helper()
	scores := must.Get(l.run(l.Context(), calls))(l)
	if len(scores) != 6 {
		l.Fatalf("got %d scores, want 6", len(scores))
	}
	for _, s := range scores {
		if s.Reward != 1 || !s.Official || s.Stop != rl.StopDone {
			l.Errorf("%s: got %+v, want the reward of the ground truth", s.Task, s)
		}
	}
}

// wantNoKey checks that no file below the folder of the experiment contains the API key: store, logs, journals, pages.
func (l *apiLab) wantNoKey() {
	l.Helper()
	files := 0
	must.OK(l, filepath.WalkDir(l.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		text := must.Get(os.ReadFile(path))(l)
		if z, err := gzip.NewReader(bytes.NewReader(text)); err == nil {
			text = append(text, must.Get(io.ReadAll(z))(l)...)
		}
		if bytes.Contains(text, []byte(testKey)) {
			l.Errorf("%s contains the API key", path)
		}
		return nil
	}))
	if files < 20 {
		l.Errorf("got only %d files", files)
	}
}

// serverFaults answers most requests with a fault: 429, 500 with the key in its text, a cut body, a closed connection,
// a reply without content, and for the first requests a hang until the timeout.
func serverFaults(n int, w http.ResponseWriter, r *http.Request) bool {
	switch n % 9 {
	case 1:
		w.Header().Set("Retry-After", "0.01")
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

// The file experiments/api_models.hcl with one task of each category, against a server that throttles, fails, cuts
// replies and hangs. Its second run, with another budget, makes no call, the record replays, and the key is in no file.
func TestTheExperimentOfThePapersModelsRuns(t *testing.T) {
	l := newAPILab(t)
	for _, key := range []string{"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GLM_API_KEY"} {
		t.Setenv(key, testKey)
	}
	must.OK(t, os.WriteFile(l.path, must.Get(os.ReadFile(filepath.Join("..", "experiments", "api_models.hcl")))(t), 0o600))
	site := filepath.Join(l.dir, "site.hcl")
	must.OK(t, os.WriteFile(site, append(must.Get(os.ReadFile(site))(t),
		fmt.Sprintf("api \"GLM_API_KEY\" {\n  prices = { \"glm-4.7\" = [0.6, 2.2] }\n}\nstore {\n  path = %q\n}\n",
			filepath.Join(l.dir, "store"))...), 0o600))
	l.source = lang.Source{Vars: map[string]string{"take": "4", "budget": "1000"}, Sets: []string{
		fmt.Sprintf("endpoint.api.base_url=%q", l.oracle.URL), `eval.api.calls.timeout="2s"`, "eval.api.calls.attempts=30"}}
	l.oracle.faulty = serverFaults
	scores := must.Get(l.runFile(t.Context()))(t)
	if len(scores) != 5*4 {
		t.Fatalf("got %d scores, want those of 5 models and 4 tasks", len(scores))
	}
	for _, s := range scores {
		if s.Reward != 1 {
			t.Errorf("%s: got %+v, want the reward of the ground truth", s.Task, s)
		}
	}
	calls := l.oracle.count()
	l.source.Vars["budget"] = "5" // in no key
	must.Get(l.runFile(t.Context()))(t)
	if l.oracle.count() != calls {
		t.Errorf("the second run made %d calls", l.oracle.count()-calls)
	}
	page := must.Get(os.ReadFile(filepath.Join(l.dir, "x.html")))(t)
	store := l.store()
	replayed := 0
	for _, r := range must.Get(reports.Verify(page, store, nil, nil))(t).Recorded {
		result := CallsResult{Store: store, Manifest: r.Manifest, Endpoint: r.Endpoint, Tasks: r.Tasks,
			Benchmark: fixtures.Benchmark(t)}
		n, faults, err := result.Replay(t.Context())
		if replayed += n; err != nil || len(faults) > 0 {
			t.Errorf("%s: got %v and %q, want no faults", r.Address, err, faults)
		}
	}
	if replayed != calls {
		t.Errorf("replayed %d attempts, want the %d of the server", replayed, calls)
	}
	l.wantNoKey()
}

// edited rewrites the rows of a file of an evaluation.
func (l *apiLab) edited(store *artifact.Store, m *artifact.Manifest, file string,
	edit func([]map[string]any) []map[string]any) {
	l.Helper()
	port, _, _ := strings.Cut(file, ".")
	a := must.Get(store.Open(m, port))(l)
	var rows []map[string]any
	for row, err := range artifact.Rows[map[string]any](a, file) {
		must.OK(l, err)
		rows = append(rows, row)
	}
	must.OK(l, os.Remove(a.Path(file)))
	must.OK(l, artifact.WriteRows(a.Dir, file, edit(rows)))
}

// The calls of an evaluation are replayed without a server: every change of the record is found.
func TestRecordedCallsAreReplayed(t *testing.T) {
	l := newAPILab(t)
	l.wantTruth("budget = 1000")
	l.oracle.Close()
	set := func(field string, value any) func([]map[string]any) []map[string]any {
		return func(rows []map[string]any) []map[string]any {
			rows[0][field] = value
			return rows
		}
	}
	said := func(old, text string) func([]map[string]any) []map[string]any {
		return func(rows []map[string]any) []map[string]any {
			for _, row := range rows {
				if response := row["response"].(string); strings.Contains(response, old) {
					row["response"] = strings.Replace(response, old, text, 1)
					return rows
				}
			}
			t.Fatalf("no response contains %s", old)
			return nil
		}
	}
	last := func(edit func([]map[string]any) []map[string]any) func([]map[string]any) []map[string]any {
		return func(rows []map[string]any) []map[string]any {
			edit(rows[len(rows)-1:])
			return rows
		}
	}
	same := func(rows []map[string]any) []map[string]any { return rows }
	less := func(rows []map[string]any) []map[string]any { return rows[1:] }
	more := func(rows []map[string]any) []map[string]any {
		other := maps.Clone(rows[0])
		other["step"] = 99
		return append(rows, other)
	}
	for name, c := range map[string]struct {
		file string
		edit func([]map[string]any) []map[string]any
		want string
	}{
		"nothing":                {provider.CallsFile, same, ""},
		"another digest":         {provider.CallsFile, set("request", strings.Repeat("0", 64)), "the recorded one 0000"},
		"another text":           {provider.CallsFile, said("Done.", "Done!"), "the digest of the request"},
		"another text at an end": {provider.CallsFile, last(said("Done.", "Done!")), `that of the replay "Done!"`},
		"another call":           {provider.CallsFile, said(`"name":"`, `"name":"x`), "the digest of the request"},
		"other tokens":           {provider.CallsFile, said("1000", "1001"), "its response has"},
		"another outcome":        {provider.CallsFile, set("outcome", provider.OutcomeRefused), `with the outcome "refused"`},
		"other dollars":          {provider.CallsFile, set("dollars", 1.5), "the row records $1.5"},
		"another model":          {provider.CallsFile, set("model", "x"), `of "x"`},
		"a call less":            {provider.CallsFile, less, "no reply to this request in the record"},
		"a call more":            {provider.CallsFile, more, "no episode reads this reply"},
		"another verdict":        {rl.TrajectoriesFile, set("reward", 0), "the record has reward 0"},
		"a trajectory less":      {rl.TrajectoriesFile, less, "want 1 of each of 6 tasks"},
		"another score":          {rl.ScoresFile, set("official", false), "the score is"},
		"a score less":           {rl.ScoresFile, less, "want 6"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			must.OK(t, os.CopyFS(dir, os.DirFS(filepath.Join(l.dir, "store"))))
			store := must.Get(artifact.Open(dir))(t)
			result := l.recorded(store)
			l.edited(store, result.Manifest, c.file, c.edit)
			calls, faults, err := result.Replay(t.Context())
			must.OK(t, err)
			if calls < 8 || (c.want == "") != (len(faults) == 0) || !strings.Contains(strings.Join(faults, "\n"), c.want) {
				t.Errorf("got %d calls and %q, want a fault with %q", calls, faults, c.want)
			}
		})
	}
}

// recorded returns the evaluation in a store.
func (l *apiLab) recorded(store *artifact.Store) *CallsResult {
	l.Helper()
	r := &CallsResult{Store: store, Benchmark: fixtures.Benchmark(l.T)}
	for _, n := range must.Get(plan.New(l.loadFile(), store, plan.Options{}))(l).Nodes {
		switch n.Kind.Name {
		case "eval":
			r.Manifest = n.Manifest
		case "endpoint":
			a := must.Get(store.Open(n.Manifest, "policy"))(l)
			r.Endpoint = string(must.Get(os.ReadFile(a.Path(provider.EndpointFile)))(l))
		case "tasks":
			r.Tasks = []*artifact.Artifact{must.Get(store.Open(n.Manifest, "test"))(l)}
		}
	}
	return r
}

func TestScoresDoNotDependOnFaultsOfTheServerAndInterruptions(t *testing.T) {
	l := newAPILab(t)
	l.oracle.faulty = serverFaults
	const calls = "budget = 1000000\n parallel = 3\n attempts = 30\n timeout = \"500ms\""
	kills := 0
	for ; kills < 6; kills++ {
		ctx, kill := context.WithTimeout(t.Context(), time.Duration(100+60*kills)*time.Millisecond)
		_, err := l.run(ctx, calls)
		kill()
		if err == nil {
			break
		}
	}
	l.wantTruth(calls)
	again := 0
	for _, n := range l.oracle.repeats() {
		again += n - 1
	}
	// A kill repeats at most the calls in flight. Equal requests of the two samples of a rollout count as repeated too.
	if most := 2*3*kills + 2*10; again > most {
		t.Errorf("got %d repeated replies after %d kills, want at most %d", again, kills, most)
	}
}

// A call costs $0.02. Calls in flight may exceed the budget, and none begins when it is used up.
func TestAStageStopsWhenItsBudgetIsUsedUpAndKeepsItsCalls(t *testing.T) {
	l := newAPILab(t)
	_, err := l.run(t.Context(), "budget = 0.1\n parallel = 2")
	if err == nil || l.oracle.count() < 5 {
		t.Fatalf("got %v after %d calls, want five calls and then an error", err, l.oracle.count())
	}
	if most := 2 * (5 + 1); l.oracle.count() > most { // two stages, two calls in flight
		t.Errorf("got %d calls, want at most %d", l.oracle.count(), most)
	}
	before := l.oracle.count()
	l.wantTruth("budget = 1000")
	for body, n := range l.oracle.repeats() {
		if n > 3 { // two samples of the rollout and that of the evaluation may have equal requests
			t.Errorf("%.80s: replied %d times, want no repeated call", body, n)
		}
	}
	if l.oracle.count() == before {
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
	_, err := l.run(t.Context(), "budget = 1000")
	if err == nil || lost == "" || l.oracle.count() < 8 {
		t.Fatalf("got %v after %d calls, want the other episodes and then an error", err, l.oracle.count())
	}
	calls := l.oracle.count()
	l.wantTruth("budget = 1000")
	if more := l.oracle.count() - calls; more == 0 || more > 10 {
		t.Errorf("got %d more calls, want those of the one episode", more)
	}
}

func TestAWrongKeyStopsAStageAtOnce(t *testing.T) {
	l := newAPILab(t)
	l.oracle.faulty = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	if _, err := l.run(t.Context(), "budget = 1000\n parallel = 1"); err == nil || l.oracle.count() > 2 {
		t.Errorf("got %v after %d calls, want an error after the first of each stage", err, l.oracle.count())
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
