package grpo

import (
	"encoding/json"
	"fmt"

	"rcgrpo/stages/internal/resume"
	"rcgrpo/stages/rl"
)

// recorder keeps the trajectories of updates that no saved state holds yet in the log of the scratch folder, each as it
// ends, so that an attempt after a kill samples only those that are missing. What a trajectory holds is a function of the
// policy and its names, so the two kinds mix.
type recorder struct {
	scratch *resume.Training
	earlier map[place]*rl.Trajectory // finished by earlier attempts and not used yet
}

// place names a rollout, like the key of its random numbers.
type place struct {
	update int
	task   string
	member int
	token  string
}

// readRecorder reads what was finished after an update.
func readRecorder(scratch *resume.Training, after int) (*recorder, error) {
	r := &recorder{scratch, map[place]*rl.Trajectory{}}
	err := scratch.Replayed(func(record []byte) error {
		t := new(rl.Trajectory)
		if err := json.Unmarshal(record, t); err != nil {
			return fmt.Errorf("log of trajectories: %w", err)
		}
		if t.Update > after {
			r.earlier[place{t.Update, t.Task, t.Member, t.Token}] = t
		}
		return nil
	})
	return r, err
}

// left is the number of trajectories that earlier attempts finished and nobody has asked for yet.
func (r *recorder) left() int { return len(r.earlier) }

// collect returns the trajectories of a list of rollouts in its order. sample plays those that are missing and calls
// finished with each as it ends, by its place in what it was given.
func (r *recorder) collect(list []rl.Rollout, sample func(rest []rl.Rollout, finished func(int, *rl.Trajectory) error) error) ([]*rl.Trajectory, error) {
	out := make([]*rl.Trajectory, len(list))
	var rest []rl.Rollout
	var missing []int // of each of rest its place in list
	for i, ask := range list {
		p := place{ask.Update, ask.Task.ID, ask.Member, ask.Token}
		if t := r.earlier[p]; t != nil {
			out[i] = t
			delete(r.earlier, p)
			continue
		}
		rest, missing = append(rest, ask), append(missing, i)
	}
	if len(rest) == 0 {
		return out, nil
	}
	err := sample(rest, func(i int, t *rl.Trajectory) error {
		out[missing[i]] = t
		if t.Reward.Missing() { // the environment may work in the next attempt
			return nil
		}
		return r.scratch.Append(t)
	})
	return out, err
}
