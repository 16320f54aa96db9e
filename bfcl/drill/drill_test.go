package drill

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"rcgrpo/bfcl"
	"rcgrpo/internal/must"
)

func generateT(t *testing.T, seed uint64, form Form, set Set, n int) []*bfcl.Task {
	t.Helper()
	tasks := must.Get(Generate(rand.New(rand.NewPCG(seed, 1)), form, set, "drill", n))(t)
	if len(tasks) != n {
		t.Fatalf("got %d drills, want %d", len(tasks), n)
	}
	return tasks
}

func TestSameSeedGivesTheSameDrills(t *testing.T) {
	a, b := generateT(t, 3, Multi, Train, 50), generateT(t, 3, Multi, Train, 50)
	if !reflect.DeepEqual(a, b) {
		t.Error("two runs with one seed differ")
	}
	if c := generateT(t, 4, Multi, Train, 50); reflect.DeepEqual(a, c) {
		t.Error("another seed gives the same drills")
	}
}

// pairs returns the consecutive pairs of intents of a drill, read from its family.
func pairs(task *bfcl.Task) [][2]string {
	var out [][2]string
	names := strings.Split(task.Family, " > ")
	for i := 1; i < len(names); i++ {
		out = append(out, [2]string{names[i-1], names[i]})
	}
	return out
}

func TestNoFamilyIsInBothSets(t *testing.T) {
	for _, task := range generateT(t, 1, Multi, Train, 2000) {
		for _, p := range pairs(task) {
			if HeldOut(p[0], p[1]) {
				t.Fatalf("training drill %q contains the held-out pair %v", task.Family, p)
			}
		}
	}
	for _, set := range []Set{Test, TestNew} {
		for _, task := range generateT(t, 1, Multi, set, 300) {
			held := false
			for _, p := range pairs(task) {
				held = held || HeldOut(p[0], p[1])
			}
			if !held {
				t.Fatalf("drill %q of %s contains no held-out pair", task.Family, set)
			}
		}
	}
}

func TestAboutAFifthOfThePairsIsHeldOut(t *testing.T) {
	held := 0
	for _, a := range intents() {
		for _, b := range intents() {
			if HeldOut(a.name, b.name) {
				held++
			}
		}
	}
	if n := len(intents()) * len(intents()); n != 1156 || held < 170 || held > 250 {
		t.Errorf("%d of %d pairs are held out, want about 209 of 1156", held, n)
	}
}

func TestWordingOfTestNewIsHeldOut(t *testing.T) {
	for _, in := range intents() {
		for i, phrase := range in.phrases[:4] {
			if phrase == "" || phrase == in.phrases[4] {
				t.Errorf("%s: phrasing %d is empty or the held-out one", in.name, i)
			}
		}
	}
	// These phrasings have no values, so they occur literally, except for their first letter.
	const trained, heldOut = "o back up one folder.", "o up to the directory above."
	for _, tc := range []struct {
		set         Set
		want, never string
	}{{Test, trained, heldOut}, {TestNew, heldOut, trained}} {
		seen := false
		for _, task := range generateT(t, 5, Multi, tc.set, 600) {
			for _, turn := range task.Turns {
				seen = seen || strings.HasSuffix(turn.User, tc.want)
				if strings.HasSuffix(turn.User, tc.never) {
					t.Fatalf("%s asks %q", tc.set, turn.User)
				}
			}
		}
		if !seen {
			t.Errorf("%s never asks with %q in 600 drills", tc.set, tc.want)
		}
	}
}

func TestWordsOfHeldOutWordingOccurInTraining(t *testing.T) {
	words := func(phrase string) []string {
		for _, value := range []string{"f", "g", "d", "t", "u", "n", "e", "i", "p"} {
			phrase = strings.ReplaceAll(phrase, "{"+value+"}", "")
		}
		return strings.FieldsFunc(strings.ToLower(phrase), func(r rune) bool { return r < 'a' || r > 'z' })
	}
	trained := map[string]bool{}
	for _, in := range intents() {
		for _, phrase := range in.phrases[:4] {
			for _, w := range words(phrase) {
				trained[w] = true
			}
		}
	}
	for _, in := range intents() {
		for _, w := range words(in.phrases[4]) {
			if !trained[w] {
				t.Errorf("%s: the held-out phrasing %q has the word %q, which no training phrasing has", in.name,
					in.phrases[4], w)
			}
		}
	}
}

func TestGroundTruthOfEveryDrillPasses(t *testing.T) {
	for _, set := range []Set{Train, Test, TestNew} {
		for _, task := range generateT(t, 11, Multi, set, 300) {
			settings := must.Get(bfcl.SettingsFor([]*bfcl.Task{task}, ""))(t)
			e := must.Get(task.Start(settings))(t)
			for _, turn := range task.Turns {
				for _, call := range turn.GroundTruth {
					if results, errs, err := e.Step([]string{call}); err != nil || errs > 0 ||
						strings.Contains(results[0], `"error"`) {
						t.Fatalf("%s (%s): %s gives %v %v", task.ID, task.Family, call, results, err)
					}
				}
				_, _, err := e.Step(nil)
				must.OK(t, err)
			}
			if v := e.Verdict(); !e.Done() || v.Reward != 1 || !v.Official {
				t.Fatalf("%s (%s): reward %v, official %v, want both to pass", task.ID, task.Family, v.Reward, v.Official)
			}
		}
	}
}

func TestShapeOfTrainingDrills(t *testing.T) {
	const n = 2000
	classes, missing, calls := map[string]int{}, 0, 0
	for _, task := range generateT(t, 2, Multi, Train, n) {
		classes[strings.Join(task.Classes, "+")]++
		if task.Category == "miss_param" {
			missing++
		}
		intents := len(strings.Split(task.Family, " > "))
		if intents < 2 || intents > 4 {
			t.Fatalf("%s has %d intents, want 2 to 4", task.ID, intents)
		}
		for _, turn := range task.Turns {
			calls += len(turn.GroundTruth)
			if strings.ContainsAny(turn.User, "{}") {
				t.Fatalf("%s: a value is not filled in: %q", task.ID, turn.User)
			}
		}
	}
	near := func(what string, got, want, slack float64) {
		t.Helper()
		if got < want-slack || got > want+slack {
			t.Errorf("%s: got %.3f, want %.3f ± %.3f", what, got, want, slack)
		}
	}
	near("share of file system only", float64(classes["GorillaFileSystem"])/n, 0.38, 0.08)
	near("share of tickets only", float64(classes["TicketAPI"])/n, 0.12, 0.05)
	near("share of miss_param", float64(missing)/n, 0.068, 0.02)
	near("calls per drill", float64(calls)/n, 3.1, 0.4)
}

func TestImpossibleRequestsAreErrors(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for name, tc := range map[string]struct {
		form Form
		set  Set
		n    int
	}{
		"negative number":      {Multi, Train, -1},
		"unknown form":         {"double", Train, 1},
		"unknown set":          {Multi, "dev", 1},
		"copy drills for test": {Copy, Test, 1},
	} {
		if _, err := Generate(rng, tc.form, tc.set, "d", tc.n); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}
