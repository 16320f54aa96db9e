package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
)

func runBFCL(stdin string, args ...string) (code int, stdout, stderr string) {
	return callLine(stdin, append([]string{"bfcl"}, args...)...)
}

func TestBFCLCheckFindsTheOfficialDataFaultless(t *testing.T) {
	dir := fixtures.Benchmark(t)
	code, out, errs := runBFCL("", "check", dir)
	if code != 0 || !strings.Contains(out, "faults in the data: 0") {
		t.Errorf("got code %d, %s%s", code, out, errs)
	}
	for line := range strings.Lines(out) { // every category's ground truth passes whole
		if counts, ok := strings.CutSuffix(strings.Join(strings.Fields(line), " "), " calls"); ok {
			fields := strings.Fields(counts)
			if passed, n, _ := strings.Cut(fields[1], "/"); passed != n || n == "0" {
				t.Errorf("got %s", line)
			}
		}
	}
	code, out, errs = runBFCL("", "check", "--time", "--repeats", "1", dir)
	var timing map[string]any
	if err := json.Unmarshal([]byte(out), &timing); code != 0 || err != nil {
		t.Fatalf("got code %d, %v, %s%s", code, err, out, errs)
	}
	for _, field := range []string{"tasks", "passed", "ground_truth_calls", "replay_and_check_s",
		"replay_and_check_median_s", "replay_only_s", "replay_only_median_s", "machine"} {
		if timing[field] == nil {
			t.Errorf("the field %s of the official script is missing", field)
		}
	}
	if timing["passed"] != timing["tasks"] {
		t.Errorf("passed %v of %v", timing["passed"], timing["tasks"])
	}
}

func TestBFCLReplayVerifiesAndWrites(t *testing.T) {
	dir := fixtures.Benchmark(t)
	out := filepath.Join(t.TempDir(), "out.jsonl")
	code, text, errs := runBFCL("", "replay", "--data", dir, "--in", fixtures.Path(t, "bfcl/golden_directed.jsonl"),
		"--verify", "--out", out)
	if code != 0 || !strings.Contains(text, "differing: 0, unsupported: 2\n") {
		t.Errorf("got code %d, %s%s", code, text, errs)
	}
	if raw, err := os.ReadFile(out); err != nil || bytes.Count(raw, []byte("\n")) == 0 {
		t.Errorf("the output has no line: %v", err)
	}

	// A record with a wrong result is named, and the exit code says so.
	wrong := filepath.Join(t.TempDir(), "wrong.jsonl")
	record := `{"sid": "mine", "class": "MathAPI", "task": "multi_turn_base_0", ` +
		`"calls": [{"call": "add(a=1, b=2)", "r": "4", "exc": null, "rt": "dict"}]}`
	must.OK(t, os.WriteFile(wrong, []byte(record), 0o600))
	code, text, _ = runBFCL("", "replay", "--data", dir, "--in", wrong, "--verify")
	if code != 1 || !strings.Contains(text, "mine add(a=1, b=2)") ||
		!strings.Contains(text, "1 trajectory, 1 call, of the unimplemented format prompting: 0, allowed differences: 0, "+
			"differing: 1, unsupported: 0\n") {
		t.Errorf("got code %d, %s", code, text)
	}
	if code, _, errs = runBFCL("", "replay", "--data", dir); code != exitMisuse ||
		!strings.Contains(errs, "--in FILE") {
		t.Errorf("without --in: got code %d, %s", code, errs)
	}
}

func TestBFCLShowAndChat(t *testing.T) {
	dir := fixtures.Benchmark(t)
	code, out, errs := runBFCL("", "show", "--data", dir, "multi_turn_base_0")
	if code != 0 || !strings.Contains(out, "cd(folder='document')") ||
		!strings.Contains(out, `{"current_working_directory": "document"}`) {
		t.Errorf("show: got code %d, %s%s", code, out, errs)
	}
	if code, _, errs = runBFCL("", "show", "--data", dir, "base_900"); code != 1 ||
		!strings.Contains(errs, `no task "base_900"`) {
		t.Errorf("show of an unknown task: got code %d, %s", code, errs)
	}
	code, out, _ = runBFCL("?\n?cd\ncd(folder='document'); mkdir(dir_name='a;b')\n\n:quit\n", "chat", "--data", dir,
		"base_0")
	for _, want := range []string{"authenticate_twitter", `"name": "cd"`, `{"current_working_directory": "document"}`,
		"  None", "turn 2 of 4", "verdict: multi_turn:force_terminated"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("chat: got code %d and no %q in %s", code, want, out)
		}
	}
}
