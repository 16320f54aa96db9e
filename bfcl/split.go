package bfcl

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"rcgrpo/bfcl/internal/py"
)

// Split divides tasks into two sets.
type Split struct{ Train, Test []*Task }

// assignFamilies sets the family of every task: the connected components of "same number", "same
// initial state of the task's classes" and "same non-empty ground truth". The name contains the
// smallest task number of the family. The algorithm is union-find.
func assignFamilies(tasks []*Task) {
	parent := make([]int, len(tasks))
	for i := range parent {
		parent[i] = i
	}
	var root func(i int) int
	root = func(i int) int {
		if parent[i] != i {
			parent[i] = root(parent[i])
		}
		return parent[i]
	}
	first := map[string]int{} // key -> index of the first task that has it
	for i, t := range tasks {
		for _, key := range familyKeys(t) {
			if j, ok := first[key]; ok {
				parent[root(i)] = root(j)
			} else {
				first[key] = i
			}
		}
	}
	lowest := map[int]int{} // root -> smallest number of its tasks
	for i, t := range tasks {
		r := root(i)
		if n, ok := lowest[r]; !ok || t.Number < n {
			lowest[r] = t.Number
		}
	}
	for i, t := range tasks {
		t.Family = fmt.Sprintf("family_%d", lowest[root(i)])
	}
}

// familyKeys returns the properties that two tasks of one family may share.
func familyKeys(t *Task) []string {
	keys := []string{fmt.Sprintf("number %d", t.Number), "state " + stateKey(t)}
	if truth := truthKey(t); truth != "" {
		keys = append(keys, "truth "+truth)
	}
	return keys
}

// stateKey returns the initial state of the task's classes as text with sorted keys. A state that is not JSON equals no
// other.
func stateKey(t *Task) string {
	v, err := py.FromJSON(t.InitialConfig)
	config, ok := v.(*py.Dict)
	if err != nil || !ok {
		return "unreadable " + t.ID
	}
	classes := slices.Compact(slices.Sorted(slices.Values(t.Classes))) // a stranger may repeat a large state
	var b strings.Builder
	for _, name := range classes {
		scenario, ok := config.Get(name)
		if !ok {
			continue
		}
		text, err := py.JSON(sortKeys(scenario))
		if err != nil {
			return "unreadable " + t.ID
		}
		b.WriteString(name + " " + text + "\n")
	}
	return b.String()
}

// sortKeys returns a copy of v in which the keys of all dicts are sorted.
func sortKeys(v py.Value) py.Value {
	switch v := v.(type) {
	case *py.List:
		out := py.NewList()
		for _, item := range v.Items {
			out.Append(sortKeys(item))
		}
		return out
	case *py.Dict:
		var keys []string
		for _, k := range v.Keys() {
			keys = append(keys, py.Str(k))
		}
		slices.Sort(keys)
		out := py.NewDict()
		for _, k := range keys {
			item, _ := v.Get(k)
			out.Set(k, sortKeys(item))
		}
		return out
	}
	return v
}

// truthKey returns the ground truth without its empty turns as text.
func truthKey(t *Task) string {
	var b strings.Builder
	for _, turn := range t.Turns {
		if len(turn.GroundTruth) > 0 {
			b.WriteString(strings.Join(turn.GroundTruth, "\n") + "\n\n")
		}
	}
	return b.String()
}

// FamilySplit draws whole families at random until the test set contains at least the share of the task
// numbers. No family has tasks in both sets; both sets keep the order of tasks. A share that is not between 0 and 1 and
// a task without a family are errors.
func FamilySplit(tasks []*Task, share float64, seed int64) (Split, error) {
	if share <= 0 || share >= 1 {
		return Split{}, fmt.Errorf("split by family: test share must be between 0 and 1, got %v", share)
	}
	numbers := map[string]map[int]bool{} // family -> numbers of its tasks
	allNumbers := map[int]bool{}
	var families []string
	for _, t := range tasks {
		if t.Family == "" {
			return Split{}, fmt.Errorf("split by family: task %s has no family", t.ID)
		}
		if numbers[t.Family] == nil {
			numbers[t.Family] = map[int]bool{}
			families = append(families, t.Family)
		}
		numbers[t.Family][t.Number] = true
		allNumbers[t.Number] = true
	}
	r := py.NewRandom(seed)
	r.Shuffle(len(families), func(i, j int) { families[i], families[j] = families[j], families[i] })
	testFamilies, testNumbers := map[string]bool{}, map[int]bool{}
	for _, family := range families {
		if float64(len(testNumbers)) >= share*float64(len(allNumbers)) {
			break
		}
		testFamilies[family] = true
		for n := range numbers[family] {
			testNumbers[n] = true
		}
	}
	var s Split
	for _, t := range tasks {
		if testFamilies[t.Family] {
			s.Test = append(s.Test, t)
		} else {
			s.Train = append(s.Train, t)
		}
	}
	return s, nil
}

// The paper's table of test counts implies 80 test tasks of 800; this seed reproduces its counts.
const (
	paperTest = 80
	paperSeed = 42
)

// PaperSplit returns the split that the paper's test counts imply (bfcl/SPEC.md 14): all ids in
// category order, shuffled with seed 42, the first 80 for the test. order is the order of ids
// within a category: "file" or "lexicographic". Its test tasks have siblings in the training set;
// Certify counts them.
func PaperSplit(tasks []*Task, order string) (Split, error) {
	var within func(a, b *Task) int
	switch order {
	case "file":
		within = func(a, b *Task) int { return a.Number - b.Number }
	case "lexicographic":
		within = func(a, b *Task) int { return strings.Compare(a.ID, b.ID) }
	default:
		return Split{}, fmt.Errorf("paper split: the order of ids must be \"file\" or \"lexicographic\", got %q", order)
	}
	if len(tasks) <= paperTest {
		return Split{}, fmt.Errorf("paper split: got %d tasks, want more than %d", len(tasks), paperTest)
	}
	shuffled := slices.Clone(tasks)
	rank := func(t *Task) int { return slices.Index(Categories, t.Category) }
	slices.SortStableFunc(shuffled, func(a, b *Task) int { return cmp.Or(rank(a)-rank(b), within(a, b)) })
	r := py.NewRandom(paperSeed)
	r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	return Split{Train: shuffled[paperTest:], Test: shuffled[:paperTest]}, nil
}

// Certificate reports the overlap of the two sets of a split.
type Certificate struct {
	Train    int            `json:"train"`           // number of training tasks
	Test     int            `json:"test"`            // number of test tasks
	Category map[string]int `json:"test_categories"` // test tasks by category

	Families      Overlap `json:"families"`
	Numbers       Overlap `json:"numbers"`
	InitialStates Overlap `json:"initial_states"`
	GroundTruths  Overlap `json:"ground_truths"`
}

// Overlap counts one property that tasks of both sets may share.
type Overlap struct {
	Shared    int `json:"shared"`     // distinct values in both sets
	InTest    int `json:"in_test"`    // distinct values in the test set
	TestTasks int `json:"test_tasks"` // test tasks whose value occurs in the training set
}

// Certify compares two sets of tasks. It ignores empty ground truths, and numbers and initial states of the tasks of a
// program, which have neither.
func Certify(train, test []*Task) Certificate {
	c := Certificate{Train: len(train), Test: len(test), Category: map[string]int{}}
	for _, t := range test {
		c.Category[t.Category]++
	}
	c.Families = overlap(train, test, func(t *Task) string { return t.Family })
	ofBenchmark := func(key func(t *Task) string) func(*Task) string { // key, or "" for the task of a program
		return func(t *Task) string {
			if t.Spec != nil {
				return ""
			}
			return key(t)
		}
	}
	c.Numbers = overlap(train, test, ofBenchmark(func(t *Task) string { return fmt.Sprint(t.Number) }))
	c.InitialStates = overlap(train, test, ofBenchmark(stateKey))
	c.GroundTruths = overlap(train, test, truthKey)
	return c
}

// overlap counts the values of key, except "", in the test set and in both sets.
func overlap(train, test []*Task, key func(*Task) string) Overlap {
	known := map[string]bool{}
	for _, t := range train {
		known[key(t)] = true
	}
	var o Overlap
	seen := map[string]bool{}
	for _, t := range test {
		k := key(t)
		if k == "" {
			continue
		}
		if known[k] {
			o.TestTasks++
		}
		if !seen[k] {
			seen[k] = true
			o.InTest++
			if known[k] {
				o.Shared++
			}
		}
	}
	return o
}
