package bfcl

import (
	"testing"

	"rcgrpo/internal/must"
)

// BenchmarkGroundTruth replays all official tasks as policy and as reference, with all checks.
func BenchmarkGroundTruth(b *testing.B) {
	data := official(b)
	settings := Settings{Data: data, Today: ReleaseDate}
	calls := 0
	trajectories := map[*Task][][][]string{}
	for _, t := range data.Tasks() {
		trajectories[t] = t.GroundTruthSteps()
		for _, turn := range t.Turns {
			calls += 2 * len(turn.GroundTruth)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, t := range data.Tasks() {
			e, _, err := t.Play(settings, trajectories[t])
			must.OK(b, err)
			if v := e.Verdict(); !v.Official {
				b.Fatalf("%s: %s", t.ID, v.Message)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*calls), "us/call")
}
