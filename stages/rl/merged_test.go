package rl

import (
	"slices"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/bfcl/drill"
	"rcgrpo/internal/must"
	"rcgrpo/stages/rl/blocks"
)

func TestMergedTasksHaveOneTurn(t *testing.T) {
	task := &bfcl.Task{ID: "x", Turns: []bfcl.Turn{
		{User: "Copy it.", GroundTruth: []string{"cp()"}},
		{User: "Send it.", GroundTruth: nil},
		{Revealed: []string{"send"}, GroundTruth: []string{"send()"}},
		{User: "Close it.", GroundTruth: []string{"close()", "log()"}},
	}}
	m := task.Merged()
	if len(m.Turns) != 1 || m.Turns[0].User != "Step 1: Copy it.\nStep 2: Send it.\nStep 3: Close it.\n"+
		"Complete all the steps above using the available tools. Call done() when you have finished all tasks." ||
		m.Turns[0].Revealed != nil ||
		!slices.Equal(m.Turns[0].GroundTruth, []string{"cp()", "send()", "close()", "log()"}) ||
		m.Prompt != bfcl.PromptMerged || m.ID != "x" {
		t.Errorf("got %+v", m)
	}
	if len(task.Turns) != 4 || task.Prompt != "" {
		t.Error("the task itself changed")
	}
}

func replyWith(calls ...string) (r Reply) {
	for _, call := range calls {
		r.Calls = append(r.Calls, Call{Text: call})
	}
	return r
}

// replies are the replies of a policy at each step of an episode, and the results.
func playMerged(t *testing.T, task *bfcl.Task, l blocks.Limits, replies ...[]string) (env Env, answers [][]string) {
	t.Helper()
	env = must.Get(Benchmark(bfcl.Settings{}, l)(t.Context(), task.Merged(), StartOptions{}))(t)
	for _, calls := range replies {
		if env.Done() {
			t.Fatalf("the episode ended before %v", calls)
		}
		results, _, err := env.Step(t.Context(), replyWith(calls...))
		must.OK(t, err)
		answers = append(answers, results)
	}
	return env, answers
}

func TestDoneEndsAMergedEpisodeWithoutACall(t *testing.T) {
	task := drills(t, drill.Multi, 1)[0]
	var truth []string
	for _, turn := range task.Turns {
		truth = append(truth, turn.GroundTruth...)
	}
	limits := blocks.Limits{Steps: 20}
	for name, tc := range map[string]struct {
		replies [][]string
		results []int
	}{
		"done alone":       {[][]string{truth, {"done()"}}, []int{len(truth), 0}},
		"no call":          {[][]string{truth, nil}, []int{len(truth), 0}},
		"done after calls": {[][]string{append(slices.Clone(truth), " done( )")}, []int{len(truth)}},
		"what follows done is nothing": {[][]string{append(slices.Clone(truth), "done()", "cd(folder='nowhere')")},
			[]int{len(truth)}},
	} {
		env, answers := playMerged(t, task, limits, tc.replies...)
		if tools := env.Tools(); slices.IndexFunc(tools, func(x Tool) bool { return x.Name == "done" }) != len(tools)-1 {
			t.Errorf("%s: tools %v, want done last", name, tools)
		}
		v := must.Get(env.Verdict(t.Context()))(t)
		if !env.Done() || env.Stop() != StopDone || v.Reward != 1 || v.Official {
			t.Errorf("%s: done %v, stop %q, verdict %+v; want reward 1 and no official verdict", name, env.Done(),
				env.Stop(), v)
		}
		for i, want := range tc.results {
			if len(answers[i]) != want {
				t.Errorf("%s: step %d has %d results, want %d", name, i+1, len(answers[i]), want)
			}
		}
	}
}

func TestMergedEpisodesHaveTwiceTheStepLimit(t *testing.T) {
	task := drills(t, drill.Multi, 1)[0]
	env, _ := playMerged(t, task, blocks.Limits{Steps: 2}, []string{"ls()"}, []string{"ls()"}, []string{"ls()"},
		[]string{"ls()"})
	if env.Done() {
		t.Error("ended within four steps, want at the fifth")
	}
	if _, _, err := env.Step(t.Context(), replyWith("ls()")); err != nil || !env.Done() || env.Stop() != StopTurnLimit {
		t.Errorf("after five steps: done %v, stop %q, %v", env.Done(), env.Stop(), err)
	}
}

// expertOf is a merged task's expert, checked for its form.
func expertOf(t *testing.T, task *bfcl.Task, s bfcl.Settings) {
	t.Helper()
	e := must.Get(Expert(task.Merged(), s))(t)
	last := e.Messages[len(e.Messages)-1]
	users := 0
	for _, m := range e.Messages {
		if m.Role == RoleUser {
			users++
		}
	}
	if e.Reward != 1 || e.Official || e.Prompt != bfcl.PromptMerged || e.Tools[len(e.Tools)-1] != "done" || users != 1 ||
		last.Role != RoleAssistant || !slices.Equal(last.Calls, []string{"done()"}) {
		t.Errorf("%s: reward %v, official %t, prompt %q, %d user messages, last %+v", task.ID, e.Reward, e.Official,
			e.Prompt, users, last)
	}
	withheld := slices.ContainsFunc(task.Turns, func(turn bfcl.Turn) bool {
		return slices.ContainsFunc(turn.Revealed, func(tool string) bool { return !slices.Contains(e.Tools, tool) })
	})
	if withheld {
		t.Errorf("%s: a tool is withheld in the merged prompt", task.ID)
	}
}

func TestEveryMergedGroundTruthEarnsItsReward(t *testing.T) {
	for _, task := range drills(t, drill.Multi, 60) {
		expertOf(t, task, bfcl.Settings{})
	}
	data := must.Get(bfcl.LoadData(fixtures.Benchmark(t)))(t)
	for _, task := range data.Tasks() {
		expertOf(t, task, bfcl.Settings{Data: data, Today: bfcl.ReleaseDate})
	}
}
