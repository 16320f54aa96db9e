package grpo

import (
	"cmp"
	"encoding/json"
	"fmt"

	"rcgrpo/stages/internal/resume"
	"rcgrpo/stages/rl"
)

// recorder logs every trajectory to the scratch folder when it ends, so that an attempt after a kill samples only
// the missing ones. A trajectory is a function of the policy and of its rolloutName, so logged and new ones can be
// mixed.
type recorder struct {
	scratch *resume.Scratch
	earlier map[rolloutName]*rl.Trajectory // logged by earlier attempts and not used yet
}

// rolloutName identifies a rollout by the names of its random numbers and its reward token.
type rolloutName struct {
	update int
	task   string
	member int
	token  string
}

func readRecorder(scratch *resume.Scratch, after int) (*recorder, error) {
	r := &recorder{scratch, map[rolloutName]*rl.Trajectory{}}
	err := scratch.Replayed(func(record []byte) error {
		t := new(rl.Trajectory)
		if err := cmp.Or(json.Unmarshal(record, t), t.Check()); err != nil { // others may have written the log
			return fmt.Errorf("log of trajectories: %w", err)
		}
		if t.Update > after {
			r.earlier[rolloutName{t.Update, t.Task, t.Member, t.Token}] = t
		}
		return nil
	})
	return r, err
}

// left returns the number of logged trajectories that are not used yet.
func (r *recorder) left() int { return len(r.earlier) }

// collect returns the trajectories of a list of rollouts in its order. sample samples the missing ones and calls
// finished with each as it ends.
func (r *recorder) collect(list []rl.Rollout, sample func(rest []rl.Rollout,
	finished func(int, *rl.Trajectory) error) error) ([]*rl.Trajectory, error) {
	out := make([]*rl.Trajectory, len(list))
	var rest []rl.Rollout
	var missing []int // index in list of each of rest
	for i, ask := range list {
		p := rolloutName{ask.Update, ask.Task.ID, ask.Member, ask.Token}
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
