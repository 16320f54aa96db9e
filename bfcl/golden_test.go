package bfcl

import (
	"sync"
	"testing"

	"rcgrpo/bench/fixtures"
)

var loaded struct {
	sync.Once
	data *Data
	err  error
}

// official loads the benchmark once for all tests.
func official(t testing.TB) *Data {
	t.Helper()
	dir := fixtures.Benchmark(t)
	loaded.Do(func() { loaded.data, loaded.err = LoadData(dir) })
	if loaded.err != nil {
		t.Fatalf("the official data has faults: %v", loaded.err)
	}
	return loaded.data
}

// TestGoldenTrajectories replays every recorded trajectory of every form.
func TestGoldenTrajectories(t *testing.T) {
	for _, form := range []string{"ground_truth", "perturbed", "fuzz", "directed", "decode"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			data := official(t)
			report, err := ReplayFile(data, fixtures.Path(t, "bfcl/golden_"+form+".jsonl"), "")
			if err != nil {
				t.Fatal(err)
			}
			for i, d := range report.Differing {
				if i == 40 {
					t.Errorf("and %d more", len(report.Differing)-i)
					break
				}
				t.Error(d)
			}
			if report.Trajectories == 0 {
				t.Error("the file holds no trajectory")
			}
			t.Logf("%d trajectories, %d calls, %d allowed differences", report.Trajectories, report.Calls, report.Allowed)
		})
	}
}
