package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"rcgrpo/bfcl"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/journal"
	"rcgrpo/internal/must"
	"rcgrpo/stages/rl"
)

// The forged records are consistent: the sum is that of the rows.
func TestARecordOfNegativeDollarsIsAFault(t *testing.T) {
	response := func(in, out int) string {
		return fmt.Sprintf(`{"model":"m","choices":[{"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}],`+
			`"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, in, out)
	}
	reply := func(p Price, in, out int) Row {
		u := Usage{Input: in, Output: out}
		return Row{Outcome: OutcomeReply, Status: 200, Response: response(in, out), Usage: u, Dollars: p.cost(u), Model: "m",
			Stop: "stop"}
	}
	price := Price{1, 10}
	for name, tc := range map[string]struct {
		price Price
		row   Row
		fault bool
	}{
		"a reply":                    {price, reply(price, 100, 10), false},
		"a timeout, perhaps charged": {price, Row{Outcome: OutcomeRetry, Dollars: 0.01}, false},
		"negative usage":             {price, reply(price, -4_000_000_000, 10), true},
		"negative price":             {Price{-1, 10}, reply(Price{-1, 10}, 100, 0), true},
		"negative price of nothing":  {Price{1, -10}, reply(Price{1, -10}, 100, 0), true},
		"a failure that earns":       {price, Row{Outcome: OutcomeRetry, Dollars: -40_000}, true},
		"a killed call that earns":   {price, Row{Outcome: OutcomeSent, Dollars: -40_000}, true},
		"tokens of a failure":        {price, Row{Outcome: OutcomeRejected, Usage: Usage{Output: -5}}, true},
	} {
		r := &recorded{rows: []Row{tc.row}, cost: Sum([]Row{tc.row}, tc.price)}
		if faults := r.wrongRows(&Settings{API: "openai-chat"}); (len(faults) > 0) != tc.fault {
			t.Errorf("%s: got %q", name, faults)
		}
	}
	path := filepath.Join(t.TempDir(), "calls.jsonl") // of a killed stage, in a copied store
	j := must.Get(journal.Open(path))(t)
	for i, dollars := range []float64{1e300, 4e283, 0, 0} {
		must.OK(t, j.Append(Row{Call: Call{Step: i % 2}, Attempt: 1, Outcome: OutcomeSent, Dollars: dollars}))
	}
	if r := must.Get(openCallRecord(path, Price{}))(t); r.spent != 0 {
		t.Errorf("the rows in place of others cost $%g", r.spent)
	}
	must.OK(t, errors.Join(j.Append(Row{Outcome: OutcomeSent, Dollars: -40_000}), j.Close()))
	_, err := openCallRecord(path, Price{})
	must.Match(t, err, "the row records $-40000")
}

// A stranger's manifest can record a file of any size.
func TestALargeCostIsNotRead(t *testing.T) {
	store := must.Get(artifact.Open(filepath.Join(t.TempDir(), "store")))(t)
	key := strings.Repeat("ab", 32)
	staging := must.Get(store.Begin(key))(t)
	dir := must.Get(staging.Dir("calls"))(t)
	must.OK(t, os.WriteFile(filepath.Join(dir, CostFile), []byte("{}"), 0o600))
	m := must.Get(staging.Commit(artifact.Manifest{Key: key, Address: "stage.eval.a"},
		map[string]string{"calls": "calls"}))(t)
	recorded := &m.Outputs["calls"].Files[0]
	file := store.ObjectPath(m.Outputs["calls"], *recorded)
	recorded.Bytes = 1 << 40
	must.OK(t, os.Chmod(file, 0o600))
	must.OK(t, os.Truncate(file, recorded.Bytes))
	_, err := (&Result{Store: store, Manifest: m}).read()
	must.Match(t, err, "1099511627776 bytes; at most")
}

// A record of a stranger may name another model in each row, and the same tasks a thousand times.
func TestALargeRecordNeedsLittleWork(t *testing.T) {
	rows := make([]Row, 200_000)
	for i := range rows {
		rows[i].Model = fmt.Sprint(len(rows) - i)
	}
	if c := Sum(append(rows, rows...), Price{}); len(c.Models) != len(rows) || c.Models[0] != "1" { // took minutes
		t.Errorf("got %d models", len(c.Models))
	}
	store := must.Get(artifact.Open(filepath.Join(t.TempDir(), "store")))(t)
	staging := must.Get(store.Begin(strings.Repeat("ab", 32)))(t)
	dir := func(port string) string { return must.Get(staging.Dir(port))(t) }
	must.OK(t, os.WriteFile(filepath.Join(dir("calls"), CostFile), []byte("{}"), 0o600))
	must.OK(t, artifact.WriteRows(dir("calls"), CallsFile, []Row{}))
	must.OK(t, artifact.WriteRows(dir("trajectories"), rl.TrajectoriesFile, []rl.Trajectory{{}}))
	must.OK(t, artifact.WriteRows(dir("tasks"), bfcl.TasksFile, slices.Repeat([]bfcl.Task{{ID: "a"}}, 1000)))
	m := must.Get(staging.Commit(artifact.Manifest{Key: strings.Repeat("ab", 32), Address: "stage.eval.a",
		Parts: map[string]string{"settings.samples": "1", "settings.limits.steps": "1"}},
		map[string]string{"calls": "calls", "trajectories": "trajectories", "tasks": "tasks"}))(t)
	tasks := must.Get(store.Open(m, "tasks"))(t)
	endpoint := must.Get(json.Marshal(Settings{API: "openai-chat", BaseURL: "https://api.invalid/v1", Model: "m"}))(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, faults, err := (&Result{Store: store, Manifest: m, Endpoint: string(endpoint),
		Tasks: slices.Repeat([]*artifact.Artifact{tasks}, 1000)}).Replay(t.Context())
	runtime.ReadMemStats(&after)
	must.OK(t, err)
	must.Contain(t, strings.Join(faults, ""), "there are 1 trajectories, want 1 of each of 1000 tasks")
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
		t.Errorf("allocated %d bytes, want at most 64 MiB", n)
	}
}
