package rl

import (
	"testing"

	"rcgrpo/bfcl"
	"rcgrpo/bfcl/drill"
	"rcgrpo/stages/internal/must"
	"rcgrpo/stages/rl/blocks"
)

// BenchmarkCollect measures what the collector itself costs per sampled token: 60 drills in 60 slots, with a
// policy whose arithmetic takes no time.
func BenchmarkCollect(b *testing.B) {
	tasks := drills(b, drill.Multi, 60)
	var rollouts []Rollout
	for _, task := range tasks {
		rollouts = append(rollouts, Rollout{Task: task})
	}
	limits := blocks.Limits{Steps: 4, Reply: 60, Context: 400}
	sampled, waiting, wall := 0, 0.0, 0.0
	for b.Loop() {
		p := newScript(60, func(prompt string) string {
			if prompt[len(prompt)-1] == 'A' && len(prompt)%3 == 0 {
				return "thank you."
			}
			return "mkdir(dir_name='abcdefgh')!"
		})
		c := &Collector{Policy: p, Codec: runes{}, Limits: limits, Temperature: 1,
			Start: EpisodeStart(bfcl.Settings{}, limits)}
		_, stats, err := c.Collect(b.Context(), rollouts, nil)
		must.OK(b, err)
		sampled += stats.Sampled
		waiting += stats.InWaiting.Seconds()
		wall += (stats.Wall - stats.InPolicy).Seconds()
	}
	b.ReportMetric(wall/float64(sampled)*1e9, "ns/token")
	b.ReportMetric(float64(sampled)/float64(b.N), "tokens/op")
	b.ReportMetric(waiting/wall, "waiting/wall")
}
