package curate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"rcgrpo/bfcl"
	"rcgrpo/bfcl/drill"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/environment"
	"rcgrpo/stages/rl"
)

// bench is a curation's input: drills, and for each a list of rollouts.
type bench struct {
	tasks    []*bfcl.Task
	rollouts [][]*rl.Trajectory // one list per artifact
	program  string             // shell script that plays the tasks; "" for drills
	experts  []*rl.Trajectory   // rollouts for experts; nil: the ground truth
}

func drills(t *testing.T, form drill.Form, n int) []*bfcl.Task {
	t.Helper()
	return must.Get(drill.Generate(rand.New(rand.NewPCG(1, 2)), form, drill.Train, "t", n))(t)
}

// rollout returns an episode with one reply.
func rollout(task *bfcl.Task, said string, reward float64) *rl.Trajectory {
	return &rl.Trajectory{Task: task.ID, Family: task.Family, Category: task.Category, Origin: rl.OriginPolicy,
		Reward: rl.Reward(reward), Stop: rl.StopDone,
		Messages: []rl.Message{{Role: rl.RoleUser, Text: task.Turns[0].User}, {Role: rl.RoleAssistant, Text: said}}}
}

// curate runs the stage with the settings' ratio and spoilt.
func curate(t *testing.T, b bench, ratio, spoilt float64, seed int64) (expert, mixed []*rl.Trajectory, sum Summary,
	err error) {
	t.Helper()
	dir := t.TempDir()
	s := &settings{Tasks: artifact.Ref{Kind: "tasks", Port: "train", Type: "tasks"}, Ratio: ratio, Spoilt: spoilt}
	inputs := map[artifact.Ref]string{s.Tasks: filepath.Join(dir, "in tasks")}
	if b.program != "" {
		folder := t.TempDir()
		must.OK(t, os.WriteFile(filepath.Join(folder, "shop.sh"), []byte(b.program), 0o600))
		p := &environment.Description{Command: []string{"sh", "shop.sh"}, Start: time.Minute, Step: time.Minute,
			Score: time.Minute}
		must.OK(t, p.Write(inputs[s.Tasks], folder, nil))
	}
	write(t, inputs[s.Tasks], bfcl.TasksFile, b.tasks)
	for i, list := range b.rollouts {
		ref := artifact.Ref{Kind: "rollout", Name: fmt.Sprintf("r%d", i), Port: "trajectories", Type: "trajectories"}
		s.Failures = append(s.Failures, ref)
		inputs[ref] = filepath.Join(dir, "in "+ref.Name)
		write(t, inputs[ref], rl.TrajectoriesFile, list)
	}
	if b.experts != nil {
		ref := artifact.Ref{Kind: "rollout", Name: "teacher", Port: "trajectories", Type: "trajectories"}
		s.Experts, inputs[ref] = []artifact.Ref{ref}, filepath.Join(dir, "in "+ref.Name)
		write(t, inputs[ref], rl.TrajectoriesFile, b.experts)
	}
	job := must.Get(engine.NewJob(engine.JobSetup{Dir: dir, Seed: seed, Inputs: inputs}))(t)
	if err := s.Run(t.Context(), job); err != nil {
		return nil, nil, sum, err
	}
	expert = read(t, filepath.Join(dir, "expert", rl.DatasetFile))
	if ports := Kind().Outputs(s); ports["mixed"] == "" {
		return expert, nil, sum, nil
	}
	mixed = read(t, filepath.Join(dir, "mixed", rl.DatasetFile))
	text := must.Get(os.ReadFile(filepath.Join(dir, "mixed", SummaryFile)))(t)
	must.OK(t, json.Unmarshal(text, &sum))
	return expert, mixed, sum, nil
}

func write[T any](t *testing.T, dir, file string, rows []T) {
	t.Helper()
	must.OK(t, os.MkdirAll(dir, 0o700))
	must.OK(t, artifact.WriteRows(dir, file, rows))
}

func read(t *testing.T, path string) []*rl.Trajectory {
	t.Helper()
	var rows []*rl.Trajectory
	for row, err := range artifact.ReadRows[*rl.Trajectory](path) {
		must.OK(t, err)
		rows = append(rows, row)
	}
	return rows
}

// explored gives each of n drills failed rollouts that differ, and one success.
func explored(t *testing.T, n, failures int) bench {
	b := bench{tasks: drills(t, drill.Multi, n), rollouts: [][]*rl.Trajectory{nil}}
	for _, task := range b.tasks {
		for k := range failures {
			b.rollouts[0] = append(b.rollouts[0], rollout(task, fmt.Sprintf("failure %d", k), 0))
		}
		b.rollouts[0] = append(b.rollouts[0], rollout(task, "success", 1))
	}
	return b
}

func count(rows []*rl.Trajectory) (origins, tokens map[string]int) {
	origins, tokens = map[string]int{}, map[string]int{}
	for _, r := range rows {
		origins[r.Origin]++
		tokens[r.Token]++
	}
	return origins, tokens
}

func TestFailuresAreHalfRealAndHalfSpoiltAtExactlyOneToOne(t *testing.T) {
	expert, mixed, sum, err := curate(t, explored(t, 21, 2), 1, 0.5, 1)
	must.OK(t, err)
	origins, tokens := count(mixed)
	// round(0.5 * 21) = 11 spoilt ones
	if want := map[string]int{rl.OriginExpert: 21, rl.OriginPolicy: 10,
		rl.OriginSpoilt: 11}; !reflect.DeepEqual(origins, want) {
		t.Errorf("origins: got %v, want %v", origins, want)
	}
	if want := map[string]int{rl.TokenHigh: 21, rl.TokenLow: 21}; !reflect.DeepEqual(tokens, want) {
		t.Errorf("tokens: got %v, want %v", tokens, want)
	}
	if len(expert) != 21 {
		t.Errorf("experts: got %d, want 21", len(expert))
	}
	perTask := map[string]int{}
	for _, r := range mixed {
		failure := r.Token == rl.TokenLow
		if failure {
			perTask[r.Task]++
		}
		if failure != (r.Reward == 0) || !failure && r.Reward != 1 {
			t.Errorf("%s %s: reward %v under token %s", r.Origin, r.Task, r.Reward, r.Token)
		}
		if (r.Spoilt != "") != (r.Origin == rl.OriginSpoilt) {
			t.Errorf("%s %s: spoilt says %q", r.Origin, r.Task, r.Spoilt)
		}
	}
	for task, n := range perTask {
		if n != 1 {
			t.Errorf("task %s gave %d failures although others gave none, want 1", task, n)
		}
	}
	if want := (Summary{Experts: 21, Real: 10, Spoilt: 11, Rollouts: 63, Failed: 42}); sum != want {
		t.Errorf("summary: got %+v, want %+v", sum, want)
	}
}

// An API model calls tools without a text.
func TestExpertsMayBeTheDifferentSuccessesOfRollouts(t *testing.T) {
	b := explored(t, 4, 2)
	called := func(task *bfcl.Task, call string, reward float64) *rl.Trajectory {
		e := rollout(task, "", reward)
		e.Messages[1].Calls = []string{call}
		return e
	}
	b.experts = []*rl.Trajectory{called(b.tasks[0], "a()", 1), called(b.tasks[0], "b()", 1), called(b.tasks[0], "a()", 1),
		called(b.tasks[1], "a()", 0), called(b.tasks[2], "a()", 1)}
	expert, mixed, sum, err := curate(t, b, 1, 0.5, 1)
	must.OK(t, err)
	if origins, tokens := count(expert); origins[rl.OriginPolicy] != 3 || tokens[rl.TokenHigh] != 3 {
		t.Errorf("got experts of %v with %v, want the 3 different successes", origins, tokens)
	}
	if _, tokens := count(mixed); tokens[rl.TokenHigh] != 3 || tokens[rl.TokenLow] != 3 || sum.Experts != 3 {
		t.Errorf("got %v, summary %+v, want as many failures as experts", tokens, sum)
	}
	b.experts = b.experts[3:4]
	_, _, _, err = curate(t, b, 1, 0.5, 1)
	must.Match(t, err, "no rollout in experts has")
}

func TestRatioIsExact(t *testing.T) {
	for name, tc := range map[string]struct {
		ratio, spoilt float64
		want          int // failures for 10 experts
	}{
		"none":                 {0, 0.5, 0},
		"a quarter, rounded":   {0.25, 0, 3}, // 2.5 rounds away from zero
		"two each":             {2, 0, 20},
		"more than rollouts":   {3, 0.5, 30},
		"all of them spoilt":   {1, 1, 10},
		"spoilt several times": {2, 1, 20},
	} {
		t.Run(name, func(t *testing.T) {
			_, mixed, sum, err := curate(t, explored(t, 10, 2), tc.ratio, tc.spoilt, 3)
			must.OK(t, err)
			if _, tokens := count(mixed); tokens[rl.TokenLow] != tc.want || tokens[rl.TokenHigh] != 10 ||
				sum.Real+sum.Spoilt != tc.want {
				t.Errorf("got %v, %d real and %d spoilt, want 10 high and %d low", tokens, sum.Real, sum.Spoilt, tc.want)
			}
			did := map[string]bool{}
			for _, r := range mixed {
				text := r.Task
				for _, m := range r.Messages {
					text += "|" + m.Text
				}
				if r.Token == rl.TokenLow && did[text] {
					t.Errorf("the same failure twice: %s", text)
				}
				did[text] = true
			}
		})
	}
}

func TestQuotaOfTasksWithoutFailurePassesToOthers(t *testing.T) {
	b := bench{tasks: drills(t, drill.Multi, 8), rollouts: [][]*rl.Trajectory{nil}}
	for i, task := range b.tasks {
		if i < 3 { // these were solved every time
			b.rollouts[0] = append(b.rollouts[0], rollout(task, "success", 1))
			continue
		}
		for k := range 2 {
			b.rollouts[0] = append(b.rollouts[0], rollout(task, fmt.Sprintf("failure %d", k), 0))
		}
	}
	_, mixed, sum, err := curate(t, b, 1, 0, 1)
	must.OK(t, err)
	if sum.Real != 8 || sum.NoFailure != 3 || sum.ShortReal != 0 {
		t.Errorf("got %+v, want 8 real failures, 3 tasks without", sum)
	}
	perTask := map[string]int{}
	for _, r := range mixed {
		if r.Token == rl.TokenLow {
			perTask[r.Task]++
		}
	}
	for i, task := range b.tasks {
		if n := perTask[task.ID]; i < 3 && n != 0 || i >= 3 && n != 1 && n != 2 {
			t.Errorf("task %d gave %d failures", i, n)
		}
	}
	// Half are spoilt: tasks without a real failure are spoilt first.
	_, mixed, _, err = curate(t, b, 1, 0.5, 1)
	must.OK(t, err)
	spoilt := map[string]bool{}
	for _, r := range mixed {
		if r.Origin == rl.OriginSpoilt {
			spoilt[r.Task] = true
		}
	}
	for _, task := range b.tasks[:3] {
		if !spoilt[task.ID] {
			t.Errorf("task %s has neither a real failure nor a spoilt expert", task.ID)
		}
	}
}

func TestTooFewRealFailures(t *testing.T) {
	b := explored(t, 6, 0)
	b.rollouts[0] = append(b.rollouts[0], rollout(b.tasks[0], "failure", 0))
	_, _, _, err := curate(t, b, 1, 0, 1)
	must.Match(t, err, "6 real failures are wanted and the rollouts have 1 different ones; sample more")
	_, _, sum, err := curate(t, b, 1, 0.5, 1)
	must.OK(t, err)
	if sum.Real != 1 || sum.ShortReal != 2 || sum.Spoilt != 5 {
		t.Errorf("with spoilt ones: got %+v, want 1 real, 2 short, 5 spoilt", sum)
	}
}

func TestDuplicatesAreDroppedAlsoAcrossRollouts(t *testing.T) {
	b := explored(t, 4, 2)
	b.rollouts = append(b.rollouts, []*rl.Trajectory{
		rollout(b.tasks[0], "failure 1", 0), // as in the first artifact
		rollout(b.tasks[1], "failure 9", 0),
		rollout(b.tasks[2], "failure 9", 0), // the same words on another task are another failure
		rollout(b.tasks[2], "failure 9", 0),
	})
	_, mixed, sum, err := curate(t, b, 2.5, 0, 1) // 10 failures: all there are
	must.OK(t, err)
	if sum.Failed != 12 || sum.Duplicates != 2 || sum.Real != 10 || len(mixed) != 14 {
		t.Errorf("got %+v and %d rows, want 12 failed, 2 duplicates, 10 real and 14 rows", sum, len(mixed))
	}
}

func TestRolloutsWithoutARewardAreNoFailures(t *testing.T) {
	b := explored(t, 4, 1)
	for _, task := range b.tasks {
		for k := range 3 {
			broken := rollout(task, fmt.Sprintf("nothing %d", k), 0)
			broken.Reward, broken.Stop = rl.MissingReward(), rl.StopError
			b.rollouts[0] = append(b.rollouts[0], broken)
		}
	}
	_, mixed, sum, err := curate(t, b, 1, 0, 1)
	must.OK(t, err)
	if want := (Summary{Experts: 4, Real: 4, Rollouts: 20, Missing: 12, Failed: 4}); sum != want {
		t.Errorf("summary: got %+v, want %+v", sum, want)
	}
	for _, r := range mixed {
		if r.Reward.Missing() || r.Stop == rl.StopError {
			t.Errorf("task %s: an episode whose environment failed is in the data", r.Task)
		}
	}
	_, _, _, err = curate(t, b, 2, 0, 1)
	must.Match(t, err, "8 real failures are wanted and the rollouts have 4")
}

func TestRolloutsOnOtherTasksAreRefused(t *testing.T) {
	for _, tc := range []struct{ task, prompt, want string }{
		{"elsewhere_1", "", `elsewhere_1 in prompt mode "", which is not one of the tasks`},
		{"", bfcl.PromptMerged, `in prompt mode "merged"`},
	} {
		b := explored(t, 3, 1)
		e := b.rollouts[0][0]
		e.Task, e.Prompt = cmp.Or(tc.task, e.Task), tc.prompt
		_, _, _, err := curate(t, b, 1, 0.5, 1)
		must.Match(t, err, tc.want)
	}
}

func TestTasksThatCannotBeSpoiltAreCountedOnce(t *testing.T) {
	b := bench{tasks: append(drills(t, drill.Copy, 2), drills(t, drill.Multi, 4)[2:]...)} // two of each
	_, _, sum, err := curate(t, b, 3, 1, 1)
	must.OK(t, err)
	if sum.Unspoiled != 2 || sum.Spoilt != 12 {
		t.Errorf("got %+v, want 2 that cannot be spoilt and 12 spoilt", sum)
	}
	b.tasks = b.tasks[:2]
	_, _, _, err = curate(t, b, 1, 1, 1)
	must.Match(t, err, "2 spoilt experts are wanted")
}

// shop is a program whose episodes have the reward of the task.
const shop = `while read -r line; do
id=${line#*'"id":'}; id=${id%%,*}
case $line in *'"worth":'*) worth=${line#*'"worth":'}; worth=${worth%%[,\}]*};; esac
case $line in
*'"method":"hello"'*) r='{"episodes": 1, "tools": [{"name": "add"}]}';;
*'"method":"reset"'*) r='{"user": "Put in one."}';;
*'"calls":[]'*) r='{"done": true}';;
*'"method":"step"'*) r='{"results": ["ok"]}';;
*'"method":"score"'*) r='{"reward": '$worth'}';;
*) r='{}';;
esac
echo '{"jsonrpc": "2.0", "id": '$id', "result": '$r'}'
done
`

// What curate cannot make of tasks of a program it refuses with the way out.
func TestOwnTasksAreCuratedOrRefusedWithTheWayOut(t *testing.T) {
	const expert = `, "expert": [[{"name": "add", "arguments": {"n": 1}}]]`
	for name, tc := range map[string]struct {
		spec          string
		rollouts      []float64 // rewards
		ratio, spoilt float64
		want, not     string // of the error; "" for none
	}{
		"experts and failures": {`"worth": 1` + expert, []float64{0, 1}, 1, 0, "", ""},
		"no expert": {`"worth": 1`, nil, 0, 0, `task a: it has no expert calls: give "expert", a list of calls for each turn`,
			""},
		"an expert with a graded reward": {`"worth": 0.5` + expert, nil, 0, 0, "earns reward 0.5", ""},
		"spoilt experts":                 {`"worth": 1` + expert, nil, 1, 1, "set spoilt = 0 and take the failures", ""},
		"graded rollouts": {`"worth": 1` + expert, []float64{0.5, 0.25, 1}, 1, 0,
			"2 rollouts left out: a reward between 0 and 1 is neither an expert's nor a failure's; let the program return 0",
			"spoilt experts"},
	} {
		t.Run(name, func(t *testing.T) {
			task := &bfcl.Task{ID: "a", Family: "a", Category: "own", Spec: json.RawMessage(`{"id": "a", ` + tc.spec + `}`)}
			b := bench{tasks: []*bfcl.Task{task}, program: shop}
			if tc.rollouts != nil {
				b.rollouts = make([][]*rl.Trajectory, 1)
			}
			for i, reward := range tc.rollouts {
				b.rollouts[0] = append(b.rollouts[0], &rl.Trajectory{Task: "a", Reward: rl.Reward(reward),
					Messages: []rl.Message{{Role: rl.RoleUser}, {Role: rl.RoleAssistant, Text: fmt.Sprint(i)}}})
			}
			experts, mixed, _, err := curate(t, b, tc.ratio, tc.spoilt, 1)
			if tc.want != "" {
				if must.Match(t, err, tc.want); tc.not != "" && strings.Contains(err.Error(), tc.not) {
					t.Errorf("got %v, want no word of %s", err, tc.not)
				}
				return
			}
			must.OK(t, err)
			if len(experts) != 1 || experts[0].Reward != 1 || len(mixed) != 2 {
				t.Errorf("got %+v and %d rows", experts, len(mixed))
			}
		})
	}
}
