package stages

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rcgrpo/bench/fixtures"
	"rcgrpo/engine"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/provider"
	"rcgrpo/stages/rl"
)

// With this variable the test binary runs the experiment in the named folder.
const callingVariable = "RCGRPO_TEST_CALLING"

// Limits of TestKilledCallsEndInTheSameScores.
const (
	callingProcesses = 4
	callingRate      = 40 // requests per second of each process
	callingBudget    = 60 // dollars of each process
	callingParallel  = 3
)

// callers is a lab with several experiments, each for a process of its own, that share an API key.
type callers struct {
	*apiLab
	left     atomic.Int64 // kills
	requests atomic.Int64

	mu      sync.Mutex
	charged map[string]float64 // dollars by folder
}

// Processes are killed at random times while the server throttles, fails, cuts replies and delays.
// Each ends with the scores of the ground truth, within its budget.
// RCGRPO_CRASH is the number of kills (make crash).
func TestKilledCallsEndInTheSameScores(t *testing.T) {
	l := &callers{apiLab: &apiLab{T: t, dir: os.Getenv(callingVariable)}, charged: map[string]float64{}}
	if l.dir != "" { // a process that is killed
		provider.FirstBackoff = 10 * time.Millisecond
		l.path = filepath.Join(l.dir, "x.hcl")
		x := l.loadFile()
		p := must.Get(plan.New(x, l.store(), plan.Options{}))(t)
		must.OK(t, engine.Run(t.Context(), p, engine.Options{}, func(runs.Event) {}))
		return
	}
	t.Setenv("RCGRPO_LEASES", filepath.Join(t.TempDir(), "leases"))
	kills, _ := strconv.Atoi(os.Getenv("RCGRPO_CRASH"))
	l.apiLab = newAPILab(t)
	l.oracle.faulty = l.faults
	l.left.Store(int64(max(kills, 6)))
	began := time.Now()
	var all sync.WaitGroup
	for i := range callingProcesses {
		name := fmt.Sprint("c", i)
		l.prepare(name)
		all.Go(func() { l.survive(name, rand.New(rand.NewPCG(uint64(i), 24))) })
	}
	all.Wait()
	t.Logf("%d requests in %v", l.requests.Load(), time.Since(began).Round(time.Millisecond))
	l.wantNoKey()
}

// prepare writes the experiment of a process.
func (l *callers) prepare(name string) {
	dir := filepath.Join(l.dir, name)
	must.OK(l, os.Mkdir(dir, 0o700))
	must.OK(l, os.WriteFile(filepath.Join(dir, "site.hcl"), fmt.Appendf(nil, `
data {
  bfcl = %q
}
api "TEST_KEY" {
  prices              = { oracle = [10, 100] }
  requests_per_minute = %d
}
`, fixtures.Benchmark(l.T), 60*callingRate), 0o600))
	must.OK(l, os.WriteFile(filepath.Join(dir, "x.hcl"), fmt.Appendf(nil, `
experiment {}
stage "tasks" "drills" {
  source = "drills"
  train  = 0
  test   = 6
  pool   = 20
}
stage "endpoint" "api" {
  api        = "openai-chat"
  model      = "oracle"
  key        = "TEST_KEY"
  base_url   = "%s/%s/v1"
  max_tokens = 200
}
stage "eval" "api" {
  policy = stage.endpoint.api.policy
  tasks  = [stage.tasks.drills.test]
  calls {
    budget   = %d
    parallel = %d
    attempts = 50
    timeout  = "2s"
  }
}
`, l.oracle.URL, name, callingBudget, callingParallel), 0o600))
	own := &apiLab{T: l.T, dir: dir, path: filepath.Join(dir, "x.hcl"), oracle: l.oracle}
	own.know(own.loadFile())
}

// faults delays and counts requests, and answers two of nine with a fault.
func (l *callers) faults(n int, w http.ResponseWriter, r *http.Request) bool {
	time.Sleep(time.Duration(n*7919%40) * time.Millisecond)
	fault := n%9 >= 1 && n%9 <= 4 && serverFaults(n, w, r)
	l.requests.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if name := strings.Split(r.URL.Path, "/")[1]; !fault {
		l.charged[name] += (1000*10 + 100*100) / 1e6
	}
	return fault
}

// survive kills and restarts the process of a folder until no kill is left, then lets it end. A process that ends
// before its kill starts again with an empty store.
func (l *callers) survive(name string, r *rand.Rand) {
	dir := filepath.Join(l.dir, name)
	for {
		last := l.left.Add(-1) < 0
		c := exec.CommandContext(l.Context(), os.Args[0], "-test.run=^TestKilledCallsEndInTheSameScores$")
		c.Env = append(os.Environ(), callingVariable+"="+dir)
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, &out
		if err := c.Start(); err != nil {
			l.Error(err)
			return
		}
		var killed atomic.Bool
		timer := time.AfterFunc(time.Duration(100+r.IntN(1200))*time.Millisecond, func() {
			if !last {
				killed.Store(true)
				_ = c.Process.Kill() // fails if it has ended
			}
		})
		err := c.Wait()
		timer.Stop()
		switch {
		case err == nil:
			l.check(name)
			if last {
				return
			}
			if err := os.RemoveAll(filepath.Join(dir, "store")); err != nil {
				l.Error(err)
			}
			l.left.Add(1)
			l.mu.Lock()
			l.charged[name] = 0
			l.mu.Unlock()
		case !killed.Load():
			l.Errorf("%s: %v\n%s", name, err, out.Bytes())
			return
		}
	}
}

// check compares the scores of a folder with the ground truth, and its recorded dollars with those that the server
// charged and with the budget.
func (l *callers) check(name string) {
	own := &apiLab{T: l.T, dir: filepath.Join(l.dir, name), path: filepath.Join(l.dir, name, "x.hcl"), oracle: l.oracle}
	scores := own.scores()
	right := 0
	for _, s := range scores {
		if s.Reward == 1 && s.Official && s.Stop == rl.StopDone {
			right++
		}
	}
	if len(scores) != 6 || right != 6 {
		l.Errorf("%s: got %+v, want 6 rewards of the ground truth", name, scores)
	}
	store := own.store()
	dollars, _ := RecordedCost(must.Get(store.Open(own.recorded(store).Manifest, "calls"))(l).ReadJSON)
	l.mu.Lock()
	defer l.mu.Unlock()
	if charged := l.charged[name]; dollars > callingBudget || dollars < charged-1e-9 {
		l.Errorf("%s: recorded $%.2f, want at least the $%.2f that the server charged and at most $%d", name, dollars,
			charged, callingBudget)
	}
}
