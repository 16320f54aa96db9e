package bfcl

import "testing"

// BenchmarkReplayAndCheck plays the ground truth of every task as policy and as truth, with all official checks and
// the paper's reward, on one goroutine. Reading the data is excluded, as in the script of the official Python code that
// bench/bfcl.sh compares.
func BenchmarkReplayAndCheck(b *testing.B) {
	d := official(b)
	settings := Settings{Data: d, Today: ReleaseDate}
	calls := 0
	for _, t := range d.tasks {
		if _, err := t.Start(settings); err != nil { // parses the scenario
			b.Fatal(err)
		}
		for _, turn := range t.Turns {
			calls += len(turn.GroundTruth)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, t := range d.tasks {
			e, _, err := t.Play(settings, t.GroundTruthSteps())
			if err != nil {
				b.Fatal(err)
			}
			if v := e.Verdict(); !v.Official || v.Reward != 1 {
				b.Fatalf("%s: the ground truth does not pass", t.ID)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(2*calls), "µs/call") // as both
}
