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

func TestBFCLCheckFindsTheOfficialDataFaultless(t *testing.T) {
	dir := fixtures.Benchmark(t)
	out := wantLine(t, exitDone, "", []string{"bfcl", "check", dir}, "faults in the data: 0")
	for line := range strings.Lines(out) { // every category's ground truth passes whole
		if counts, ok := strings.CutSuffix(strings.Join(strings.Fields(line), " "), " calls"); ok {
			fields := strings.Fields(counts)
			if passed, n, _ := strings.Cut(fields[1], "/"); passed != n || n == "0" {
				t.Errorf("got %s", line)
			}
		}
	}
	out = wantLine(t, exitDone, "", []string{"bfcl", "check", "--time", "--repeats", "1", dir})
	var timing map[string]any
	must.OK(t, json.Unmarshal([]byte(out), &timing))
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
	wantLine(t, exitDone, "", []string{"bfcl", "replay", "--data", dir, "--verify", "--out", out, "--in",
		fixtures.Path(t, "bfcl/golden_directed.jsonl")}, "differing: 0, unsupported: 2\n")
	if raw, err := os.ReadFile(out); err != nil || bytes.Count(raw, []byte("\n")) == 0 {
		t.Errorf("the output has no line: %v", err)
	}

	// A record with a wrong result is named, and the exit code says so.
	wrong := filepath.Join(t.TempDir(), "wrong.jsonl")
	record := `{"sid": "mine", "class": "MathAPI", "task": "multi_turn_base_0", ` +
		`"calls": [{"call": "add(a=1, b=2)", "r": "4", "exc": null, "rt": "dict"}]}`
	must.OK(t, os.WriteFile(wrong, []byte(record), 0o600))
	wantLine(t, exitFailed, "", []string{"bfcl", "replay", "--data", dir, "--in", wrong, "--verify"},
		"mine add(a=1, b=2)", "1 trajectory, 1 call, of the unimplemented format prompting: 0, allowed differences: 0, "+
			"differing: 1, unsupported: 0\n")
	wantLine(t, exitMisuse, "", []string{"bfcl", "replay", "--data", dir}, "--in FILE")
}

func TestBFCLShowAndChat(t *testing.T) {
	dir := fixtures.Benchmark(t)
	wantLine(t, exitDone, "", []string{"bfcl", "show", "--data", dir, "multi_turn_base_0"}, "cd(folder='document')",
		`{"current_working_directory": "document"}`)
	wantLine(t, exitFailed, "", []string{"bfcl", "show", "--data", dir, "base_900"}, `no task "base_900"`)
	wantLine(t, exitDone, "?\n?cd\ncd(folder='document'); mkdir(dir_name='a;b')\n\n:quit\n",
		[]string{"bfcl", "chat", "--data", dir, "base_0"}, "authenticate_twitter", `"name": "cd"`,
		`{"current_working_directory": "document"}`, "  None", "turn 2 of 4", "verdict: multi_turn:force_terminated")
}
