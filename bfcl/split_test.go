package bfcl

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
)

var update = flag.Bool("update", false, "rewrite the committed lists in testdata")

func ids(tasks []*Task) []string {
	out := make([]string, len(tasks))
	for i, t := range tasks {
		out[i] = t.ID
	}
	return out
}

func TestPaperSplitIsTheRecordedOne(t *testing.T) {
	data := official(t)
	raw := fixtures.Read(t, "bfcl/split_seed42.json")
	var recorded struct{ Test map[string][]string }
	must.OK(t, json.Unmarshal(raw, &recorded))
	for order, key := range map[string]string{"file": "file_order", "lexicographic": "lexicographic_order"} {
		want := recorded.Test[key]
		s := must.Get(PaperSplit(data.Tasks(), order))(t)
		got := ids(s.Test)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("order %s: got %v, want %v", order, got, want)
		}
		c := Certify(s.Train, s.Test)
		if c.Numbers.TestTasks != 80 || c.Numbers.Shared != c.Numbers.InTest {
			t.Errorf("order %s: every test task has a sibling in train; got %+v", order, c.Numbers)
		}
		want4 := map[string]int{"base": 18, "long_context": 23, "miss_func": 17, "miss_param": 22}
		if !maps.Equal(c.Category, want4) {
			t.Errorf("order %s: got %v test tasks by category, want the paper's %v", order, c.Category, want4)
		}
	}
	if _, err := PaperSplit(data.Tasks(), "alphabetical"); err == nil {
		t.Error("an unknown order was accepted")
	}
}

func TestFamilySplitSharesNothing(t *testing.T) {
	data := official(t)
	families := map[string]bool{}
	for _, task := range data.Tasks() {
		families[task.Family] = true
	}
	if len(families) != 194 {
		t.Errorf("got %d families, want 194", len(families))
	}
	s := must.Get(FamilySplit(data.Tasks(), 0.1, 42))(t)
	c := Certify(s.Train, s.Test)
	if c.Families.Shared+c.Numbers.Shared+c.InitialStates.Shared+c.GroundTruths.Shared != 0 {
		t.Errorf("train and test share something: %+v", c)
	}
	if c.Numbers.InTest < 20 {
		t.Errorf("got %d numbers in the test set, want at least 20", c.Numbers.InTest)
	}
	list := strings.Join(ids(s.Test), "\n") + "\n"
	file := filepath.Join("testdata", "family_split_seed42.txt")
	if *update {
		must.OK(t, os.WriteFile(file, []byte(list), 0o600))
	}
	want := must.Get(os.ReadFile(file))(t)
	if list != string(want) {
		t.Errorf("the test set of seed 42 is not the one in %s", file)
	}
}

// Tasks 0 and 1 share a ground truth, 2 has the state of 1, and 3 has no relative: empty ground truths
// do not join families.
func TestFamiliesAreConnectedComponents(t *testing.T) {
	task := func(number int, state string, truth ...string) *Task {
		return &Task{ID: fmt.Sprintf("t_%d", number), Number: number, Classes: []string{"MessageAPI"},
			InitialConfig: json.RawMessage(`{"MessageAPI": ` + state + `, "TravelAPI": {"a": ` +
				fmt.Sprint(number) + `}}`),
			Turns: []Turn{{GroundTruth: truth}}}
	}
	tasks := []*Task{
		task(0, `{"a": 1, "b": 2}`, "f()"), task(1, `{"c": 3}`, "f()"), task(2, `{"c":3}`), task(3, `{}`),
		task(0, `{"d": 4}`),
	}
	assignFamilies(tasks)
	var got []string
	for _, task := range tasks {
		got = append(got, task.Family)
	}
	if want := []string{"family_0", "family_0", "family_0", "family_3", "family_0"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A task of a stranger may name one class thousands of times, and its state may be long.
func TestAClassThatATaskNamesTwiceIsOneState(t *testing.T) {
	once := &Task{Classes: []string{"TicketAPI"}, InitialConfig: json.RawMessage(`{"TicketAPI": {}}`), Turns: []Turn{{}}}
	twice := *once
	twice.Classes = []string{"TicketAPI", "TicketAPI"}
	must.Contain(t, stateKey(once), stateKey(&twice))
	_, err := twice.Start(Settings{})
	must.Match(t, err, "it names the class TicketAPI twice")
}
