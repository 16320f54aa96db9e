package golden_test

import (
	"os"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/bfcl/golden"
	"rcgrpo/internal/must"
)

// TestGoldenTrajectories replays every recorded trajectory. Only the records of
// testdata/unsupported.txt may differ; its columns are file, record and the first call outside the
// supported subset of Python. RCGRPO_UPDATE=1 rewrites the list.
func TestGoldenTrajectories(t *testing.T) {
	data := must.Get(bfcl.LoadData(fixtures.Benchmark(t)))(t)
	var unsupported strings.Builder
	for _, form := range []string{"ground_truth", "perturbed", "fuzz", "directed", "decode"} {
		file := "golden_" + form + ".jsonl"
		report := must.Get(golden.ReplayFile(data, fixtures.Path(t, "bfcl/"+file), ""))(t)
		if n := report.Prompting; n > 0 && form != "decode" {
			t.Errorf("%s: %d records have the format prompting", form, n)
		}
		if n := len(report.Differing); n > 0 {
			t.Errorf("%s: %d differ:\n%s", form, n, strings.Join(report.Differing[:min(40, n)], "\n"))
		}
		if report.Trajectories == 0 {
			t.Errorf("%s holds no trajectory", file)
		}
		for _, call := range report.Unsupported {
			unsupported.WriteString(file + "\t" + call + "\n")
		}
		t.Logf("%s: %d trajectories, %d calls, %d allowed differences, %d unsupported", form, report.Trajectories,
			report.Calls, report.Allowed, len(report.Unsupported))
	}
	const list = "testdata/unsupported.txt"
	if os.Getenv("RCGRPO_UPDATE") == "1" {
		must.OK(t, os.WriteFile(list, []byte(unsupported.String()), 0o644))
	}
	want := must.Get(os.ReadFile(list))(t)
	if got := unsupported.String(); got != string(want) {
		t.Errorf("the unsupported calls differ from %s: got\n%s\nwant\n%s", list, got, want)
	}
}
