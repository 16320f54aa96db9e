package bfcl

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Timing has the fields that the timing script of the official Python code prints, and the cost of
// allocation here.
type Timing struct {
	Tasks        int       `json:"tasks"`
	Passed       int       `json:"passed"`
	Calls        int       `json:"ground_truth_calls"`
	Full         []float64 `json:"replay_and_check_s"`
	FullMedian   float64   `json:"replay_and_check_median_s"`
	Replay       []float64 `json:"replay_only_s"`
	ReplayMedian float64   `json:"replay_only_median_s"`
	Go           string    `json:"go"`
	Machine      string    `json:"machine"`

	Workers          int     `json:"workers"`
	Rewarded         int     `json:"rewarded"`              // tasks with reward 1
	MicrosPerCall    float64 `json:"microseconds_per_call"` // of the full replay, which executes every call twice
	AllocsPerEpisode float64 `json:"allocs_per_episode"`    // of the full replay
	BytesPerEpisode  float64 `json:"bytes_per_episode"`
}

// Time measures the replay of every ground truth as policy and as reference with all official
// checks and the paper's reward, like an evaluation of a perfect policy, and once without checks.
// Reading the data is excluded, as in the official script; creating instances is included. Workers
// share the tasks; the official script has one worker.
func (d *Data) Time(repeats, workers int) (Timing, error) {
	timing := Timing{Tasks: len(d.tasks), Go: runtime.Version(), Machine: runtime.GOARCH, Workers: max(workers, 1)}
	settings := Settings{Data: d, Today: ReleaseDate}
	for _, t := range d.tasks {
		if _, err := t.Start(settings); err != nil { // parse the scenario
			return timing, err
		}
		for _, turn := range t.Turns {
			timing.Calls += len(turn.GroundTruth)
		}
	}
	for range max(repeats, 1) {
		if err := d.timeFull(&timing, settings); err != nil {
			return timing, err
		}
	}
	for range max(repeats, 1) {
		wall, err := d.round(timing.Workers, func(t *Task) error {
			e, err := t.Start(settings)
			if err != nil {
				return err
			}
			for _, turn := range t.Turns {
				for _, call := range turn.GroundTruth {
					e.model.run(call)
				}
			}
			return nil
		})
		if err != nil {
			return timing, err
		}
		timing.Replay = append(timing.Replay, wall)
	}
	timing.FullMedian, timing.ReplayMedian = median(timing.Full), median(timing.Replay)
	timing.MicrosPerCall = timing.FullMedian * 1e6 / float64(max(2*timing.Calls, 1))
	return timing, nil
}

// timeFull measures one full replay.
func (d *Data) timeFull(timing *Timing, settings Settings) error {
	var before, after runtime.MemStats
	var passed, rewarded atomic.Int64
	runtime.ReadMemStats(&before)
	wall, err := d.round(timing.Workers, func(t *Task) error {
		e, _, err := t.Play(settings, t.GroundTruthSteps())
		if err != nil {
			return err
		}
		v := e.Verdict()
		if v.Official {
			passed.Add(1)
		}
		if v.Reward == 1 {
			rewarded.Add(1)
		}
		return nil
	})
	runtime.ReadMemStats(&after)
	n := float64(max(len(d.tasks), 1))
	timing.AllocsPerEpisode = float64(after.Mallocs-before.Mallocs) / n
	timing.BytesPerEpisode = float64(after.TotalAlloc-before.TotalAlloc) / n
	timing.Full = append(timing.Full, wall)
	timing.Passed, timing.Rewarded = int(passed.Load()), int(rewarded.Load())
	return err
}

// round does the work for all tasks and returns the seconds it took. It starts with a collected
// heap.
func (d *Data) round(workers int, work func(*Task) error) (float64, error) {
	runtime.GC()
	start := time.Now()
	var group errgroup.Group
	group.SetLimit(workers)
	for _, t := range d.tasks {
		group.Go(func() error { return work(t) })
	}
	err := group.Wait()
	return time.Since(start).Seconds(), err
}

func median(x []float64) float64 {
	s := slices.Clone(x)
	slices.Sort(s)
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}
