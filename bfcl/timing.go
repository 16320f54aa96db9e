package bfcl

import (
	"runtime"
	"slices"
	"time"
)

// Timing has the fields that the script timing the official Python code prints, and what allocation costs here.
type Timing struct {
	Tasks          int       `json:"tasks"`
	Passed         int       `json:"passed"`
	Calls          int       `json:"ground_truth_calls"`
	Full           []float64 `json:"replay_and_check_s"`
	FullMedian     float64   `json:"replay_and_check_median_s"`
	Replay         []float64 `json:"replay_only_s"`
	ReplayMedian   float64   `json:"replay_only_median_s"`
	AllocsPerTask  float64   `json:"allocs_per_episode"`
	BytesPerTask   float64   `json:"bytes_per_episode"`
	Go             string    `json:"go"`
	Machine        string    `json:"machine"`
	MicrosPerCall  float64   `json:"microseconds_per_call"` // of the full replay, which makes every call twice
	PassedByReward int       `json:"passed_by_reward"`
}

// Time replays every ground truth twice, as policy and as reference, with the official check of every turn and the
// paper's reward, as an evaluation of a perfect policy would; and once without checks. Reading and parsing of the data
// is outside the timing, as in the official script; loading instances is inside.
func (d *Data) Time(repeats int) (Timing, error) {
	timing := Timing{Tasks: len(d.tasks), Go: runtime.Version(), Machine: runtime.GOARCH}
	settings := Settings{Data: d, Today: FixtureDate}
	trajectories := make([][][][]string, len(d.tasks))
	for i, t := range d.tasks {
		trajectories[i] = groundTruthSteps(t)
		if _, err := t.Start(settings); err != nil { // parses the scenario
			return timing, err
		}
	}
	var before, after runtime.MemStats
	for range max(repeats, 1) {
		runtime.GC()
		runtime.ReadMemStats(&before)
		start := time.Now()
		timing.Passed, timing.PassedByReward = 0, 0
		for i, t := range d.tasks {
			p, err := t.Play(settings, trajectories[i])
			if err != nil {
				return timing, err
			}
			v := p.Verdict()
			if v.Official {
				timing.Passed++
			}
			if v.Reward == 1 {
				timing.PassedByReward++
			}
		}
		timing.Full = append(timing.Full, time.Since(start).Seconds())
		runtime.ReadMemStats(&after)
	}
	n := float64(max(len(d.tasks), 1))
	timing.AllocsPerTask = float64(after.Mallocs-before.Mallocs) / n
	timing.BytesPerTask = float64(after.TotalAlloc-before.TotalAlloc) / n
	for range max(repeats, 1) {
		runtime.GC()
		start := time.Now()
		timing.Calls = 0
		for _, t := range d.tasks {
			e, err := t.Start(settings)
			if err != nil {
				return timing, err
			}
			for _, turn := range t.Turns {
				for _, call := range turn.GroundTruth {
					e.model.run(call)
					timing.Calls++
				}
			}
		}
		timing.Replay = append(timing.Replay, time.Since(start).Seconds())
	}
	timing.FullMedian, timing.ReplayMedian = median(timing.Full), median(timing.Replay)
	timing.MicrosPerCall = timing.FullMedian * 1e6 / float64(max(2*timing.Calls, 1))
	return timing, nil
}

// groundTruthSteps is the ground truth as a trajectory: one step per turn, none in an empty turn.
func groundTruthSteps(t *Task) [][][]string {
	turns := make([][][]string, len(t.Turns))
	for i, turn := range t.Turns {
		if len(turn.GroundTruth) > 0 {
			turns[i] = [][]string{turn.GroundTruth}
		}
	}
	return turns
}

func median(x []float64) float64 {
	s := slices.Clone(x)
	slices.Sort(s)
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}
