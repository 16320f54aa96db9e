package main

import (
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
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
