package grpo

import (
	"errors"
	"slices"
	"testing"

	"rcgrpo/bfcl"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/resume"
	"rcgrpo/stages/rl"
)

func openRecorder(t *testing.T, dir string, after int) *recorder {
	t.Helper()
	scratch := must.Get(resume.Open(dir, 0, 0, 0))(t)
	t.Cleanup(func() { scratch.Close() })
	must.Get(scratch.Restore(&struct{}{}, nil))(t)
	return must.Get(readRecorder(scratch, after))(t)
}

// Two members end before the kill, out of order. The next attempt samples only the third and returns all three in
// the order of the request.
func TestFinishedTrajectoriesOfTheOpenUpdateAreNotSampledAgain(t *testing.T) {
	dir, task := t.TempDir(), &bfcl.Task{ID: "t1"}
	var list []rl.Rollout
	for member := range 3 {
		list = append(list, rl.Rollout{Task: task, Update: 7, Member: member, Token: rl.TokenHigh})
	}
	played := func(ask rl.Rollout) *rl.Trajectory {
		return &rl.Trajectory{Task: ask.Task.ID, Update: ask.Update, Member: ask.Member, Token: ask.Token,
			Reward: rl.Reward(10 + ask.Member), IDs: []int32{1}, Mask: []bool{true}, Logp: []float32{-1.0 / 3}}
	}
	killed := errors.New("killed")
	first := openRecorder(t, dir, 6)
	_, err := first.collect(list, func(rest []rl.Rollout, finished func(int, *rl.Trajectory) error) error {
		if len(rest) != 3 {
			t.Fatalf("the first attempt samples %d, want 3", len(rest))
		}
		return errors.Join(finished(2, played(rest[2])), finished(0, played(rest[0])), killed)
	})
	if !errors.Is(err, killed) {
		t.Fatal(err)
	}

	again := openRecorder(t, dir, 6)
	if again.left() != 2 {
		t.Fatalf("%d trajectories are left, want 2", again.left())
	}
	got := must.Get(again.collect(list, func(rest []rl.Rollout, finished func(int, *rl.Trajectory) error) error {
		if len(rest) != 1 || rest[0].Member != 1 {
			t.Errorf("asked for %v again, want member 1 alone", rest)
		}
		return finished(0, played(rest[0]))
	}))(t)
	for i, tr := range got {
		if want := played(list[i]); tr.Member != i || tr.Reward != want.Reward || !slices.Equal(tr.Logp, want.Logp) {
			t.Errorf("place %d: got %+v", i, tr)
		}
	}
	if left := openRecorder(t, dir, 7).left(); left != 0 {
		t.Errorf("after the update was saved %d trajectories are left, want none", left)
	}
}

// The next attempt samples an episode again whose environment failed, or that was played under another reward token.
func TestEpisodesWithoutARewardOrOfOtherTokensAreSampledAgain(t *testing.T) {
	for name, logged := range map[string]*rl.Trajectory{
		"no reward":     {Task: "t1", Update: 1, Token: rl.TokenLow, Reward: rl.MissingReward(), Stop: rl.StopError},
		"another token": {Task: "t1", Update: 1, Token: rl.TokenHigh},
	} {
		dir, sampled := t.TempDir(), 0
		for _, played := range []*rl.Trajectory{logged, {Task: "t1", Update: 1, Token: rl.TokenLow, Reward: 1}} {
			list := []rl.Rollout{{Task: &bfcl.Task{ID: "t1"}, Update: 1, Token: played.Token}}
			must.Get(openRecorder(t, dir, 0).collect(list, func(_ []rl.Rollout,
				finished func(int, *rl.Trajectory) error) error {
				sampled++
				return finished(0, played)
			}))(t)
		}
		if sampled != 2 {
			t.Errorf("%s: sampled %d times, want 2", name, sampled)
		}
	}
}

// A sampler that resumes with the number of tasks taken continues at the next task.
func TestSkippedDrillsAreTheFirstOfTheList(t *testing.T) {
	for taken := range 25 {
		whole, resumed := scripted(10, solvedBy(0)), scripted(10, solvedBy(0))
		if taken > 0 {
			whole.next(taken)
		}
		resumed.taken = taken
		if got, want := idsOf(resumed.next(12)), idsOf(whole.next(12)); !slices.Equal(got, want) {
			t.Errorf("after %d tasks: got %v, want %v", taken, got, want)
		}
	}
}

// The log may be that of a copied store; readers use the lengths of a trajectory as indices.
func TestALoggedTrajectoryIsChecked(t *testing.T) {
	scratch := openRecorder(t, t.TempDir(), 0).scratch
	must.OK(t, scratch.Append(&rl.Trajectory{IDs: []int32{1, 2}, Mask: []bool{true}}))
	_, err := readRecorder(scratch, 0)
	must.Match(t, err, "has 2 ids, 1 marks and 0 logprobs")
}
