package tasks

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/bfcl/drill"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
)

// made contains the outputs of a run.
type made struct {
	sets map[string][]*bfcl.Task
	cert bfcl.Certificate
}

// load decodes one stage of the kind from a file with its settings.
func load(t *testing.T, body string) (*lang.Experiment, string) {
	t.Helper()
	x, diags := enginetest.Load(t, lang.Registry{Kind()}, "stage \"tasks\" \"t\" {\n"+body+"\n}\n")
	return x, enginetest.Mistakes(diags)
}

// wantMistakes checks what the diagnostics of settings say.
func wantMistakes(t *testing.T, settings map[string]string) {
	t.Helper()
	for body, want := range settings {
		_, got := load(t, body)
		must.Contain(t, got, want)
	}
}

// execute runs a stage with these settings, and with those of rest that they do not have. It returns the folder of its
// ports, its sets of tasks and its log.
func execute(t *testing.T, body string, rest map[string]string, setup engine.JobSetup) (dir string,
	sets map[string][]*bfcl.Task, log string, err error) {
	t.Helper()
	for setting, value := range rest {
		if !strings.Contains("\n"+body, "\n"+setting+" =") {
			body += "\n" + setting + " = " + value
		}
	}
	x, mistakes := load(t, body)
	if mistakes != "" {
		t.Fatal(mistakes)
	}
	var text strings.Builder
	setup.Dir, setup.Log = t.TempDir(), &text
	err = x.Nodes[0].Stage.(engine.Runner).Run(t.Context(), must.Get(engine.NewJob(setup))(t))
	sets = map[string][]*bfcl.Task{}
	for port, typ := range x.Nodes[0].Outputs {
		if typ == "tasks" && err == nil {
			sets[port] = append([]*bfcl.Task{}, must.Get(readTasks(filepath.Join(setup.Dir, port)))(t)...)
		}
	}
	return setup.Dir, sets, text.String(), err
}

func readTasks(dir string) (all []*bfcl.Task, err error) {
	for task, err := range artifact.ReadRows[*bfcl.Task](filepath.Join(dir, bfcl.TasksFile)) {
		if err != nil {
			return nil, err
		}
		all = append(all, task)
	}
	return all, nil
}

func run(t *testing.T, body string, seed int64, site *lang.Site) made {
	t.Helper()
	dir, sets, _, err := execute(t, body, nil, engine.JobSetup{Seed: seed, Site: site})
	must.OK(t, err)
	m := made{sets: sets}
	text := must.Get(os.ReadFile(filepath.Join(dir, "certificate", "certificate.json")))(t)
	must.OK(t, json.Unmarshal(text, &m.cert))
	return m
}

func idsOf(tasks []*bfcl.Task) []string {
	var ids []string
	for _, t := range tasks {
		ids = append(ids, t.ID)
	}
	return ids
}

func TestPortsFollowSourceAndForm(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		want []string
	}{
		"the benchmark":            {`source = "bfcl"`, []string{"certificate", "test", "train"}},
		"drills of several turns":  {`source = "drills"`, []string{"certificate", "test", "test_new", "train"}},
		"drills of one turn":       {"source = \"drills\"\nform = \"single\"", []string{"certificate", "train"}},
		"copy drills":              {"source = \"drills\"\nform = \"copy\"", []string{"certificate", "train"}},
		"copy drills, test said 0": {"source = \"drills\"\nform = \"copy\"\ntest = 0", []string{"certificate", "train"}},
		"the benchmark, paper": {"source = \"bfcl\"\nsplit {\n by = \"paper\"\n order = \"lexicographic\"\n}",
			[]string{"certificate", "test", "train"}},
		"the benchmark, own family": {"source = \"bfcl\"\nsplit {\n seed = 3\n test = 0.2\n}",
			[]string{"certificate", "test", "train"}},
	} {
		x, mistakes := load(t, tc.body)
		if mistakes != "" {
			t.Fatal(name, mistakes)
		}
		if got := slices.Sorted(maps.Keys(x.Nodes[0].Outputs)); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got the ports %v, want %v", name, got, tc.want)
		}
	}
}

func TestSettingsOfAnotherSourceAreRefused(t *testing.T) {
	wantMistakes(t, map[string]string{
		"source = \"bfcl\"\ntrain = 10":                              "train = 10 has no effect: it is about generated",
		"source = \"drills\"\ntake = 10":                             "take = 10 has no effect: it is about the benchmark",
		"source = \"bfcl\"\ntake = -1":                               "or all with 0; got -1",
		"source = \"bfcl\"\nskip = 10":                               "skip = 10 has no effect",
		"source = \"drills\"\nsplit {\n seed = 3\n}":                 "split.seed = 3 has no effect",
		"source = \"drills\"\nversion = \"x\"":                       "version = \"x\" has no effect",
		"source = \"drills\"\nform = \"copy\"\ntest = 5":             "which drills of form multi alone have",
		"source = \"drills\"\nform = \"single\"\npool = 5\ntest = 0": "pool = 5 has no effect",
		"source = \"bfcl\"\nsplit {\n by = \"paper\"\n seed = 1\n}":  "it is about the split by family",
		"source = \"bfcl\"\nsplit {\n order = \"lexicographic\"\n}":  "it is about the paper's split",
		"source = \"bfcl\"\nsplit {\n test = 1.5\n}":                 "got 1.5",
		"source = \"drills\"\nform = \"copy\"\nprompt = \"merged\"":  "no steps to merge",
		"source = \"drills\"\nprompt = \"steps\"":                    "prompt must be one of",
		"source = \"drills\"\ntrain = -1":                            "got -1",
		"source = \"drills\"\nskip = -1":                             "got -1",
		"source = \"drills\"\ntest = 2000":                           "pool of 1000",
		"source = \"drills\"\npool = 10":                             "pool of 10",
	})
}

func TestSeedsShareThePoolAndDrawTheirOwnTests(t *testing.T) {
	const body = "source = \"drills\"\ntrain = 30\ntest = 15\npool = 40"
	one, again, two := run(t, body, 1, nil), run(t, body, 1, nil), run(t, body, 2, nil)
	if !reflect.DeepEqual(one, again) {
		t.Error("the same seed gave other tasks")
	}
	if got := []int{len(one.sets["train"]), len(one.sets["test"]), len(one.sets["test_new"])}; !slices.Equal(got,
		[]int{30, 15, 15}) {
		t.Errorf("sizes: got %v, want [30 15 15]", got)
	}
	whole := run(t, strings.Replace(body, "test = 15", "test = 40", 1), 9, nil)
	for _, port := range []string{"test", "test_new"} {
		pool := map[string]*bfcl.Task{}
		for _, task := range whole.sets[port] {
			pool[task.ID] = task
		}
		if len(pool) != 40 {
			t.Fatalf("the pool of %s has %d drills, want 40", port, len(pool))
		}
		for _, m := range []made{one, two} {
			for _, task := range m.sets[port] {
				if !reflect.DeepEqual(pool[task.ID], task) {
					t.Errorf("%s: drill %s is not the pool's", port, task.ID)
				}
			}
			if got := idsOf(m.sets[port]); len(slices.Compact(slices.Sorted(slices.Values(got)))) != len(got) {
				t.Errorf("%s: a drill was drawn twice: %v", port, got)
			}
		}
		if slices.Equal(idsOf(one.sets[port]), idsOf(two.sets[port])) {
			t.Errorf("%s: two seeds drew the same drills", port)
		}
	}
	if reflect.DeepEqual(one.sets["train"][0].Turns, two.sets["train"][0].Turns) {
		t.Error("two seeds have the same training drills")
	}
}

func TestMergedTasksAreTheSameTasks(t *testing.T) {
	body := "source = \"drills\"\ntrain = 6\ntest = 3\npool = 9\n"
	turns, merged := run(t, body, 1, nil), run(t, body+"prompt = \"merged\"", 1, nil)
	for port, tasks := range turns.sets {
		for i, task := range tasks {
			if got := merged.sets[port][i]; got.ID != task.ID || len(got.Turns) != 1 || got.Prompt != bfcl.PromptMerged ||
				task.Prompt != "" {
				t.Errorf("%s, %d: got %+v of %+v", port, i, got, task)
			}
		}
	}
	if !reflect.DeepEqual(turns.cert, merged.cert) {
		t.Errorf("certificates: %+v and %+v", turns.cert, merged.cert)
	}
}

func TestSkipContinuesAfterAnotherStagesDrills(t *testing.T) {
	all := run(t, "source = \"drills\"\ntrain = 12\ntest = 0", 4, nil).sets["train"]
	first := run(t, "source = \"drills\"\ntrain = 5\ntest = 0", 4, nil).sets["train"]
	rest := run(t, "source = \"drills\"\ntrain = 7\nskip = 5\ntest = 0", 4, nil).sets["train"]
	if !reflect.DeepEqual(slices.Concat(first, rest), all) {
		t.Errorf("got %v and %v, want the parts of %v", idsOf(first), idsOf(rest), idsOf(all))
	}
}

func TestCertificateOfDrillsHasNoSharedFamily(t *testing.T) {
	m := run(t, "source = \"drills\"\ntrain = 200\ntest = 30\npool = 60", 1, nil)
	c := m.cert
	if c.Train != 200 || c.Test != 60 {
		t.Errorf("counts: got %d and %d, want 200 and 60", c.Train, c.Test)
	}
	if c.Families.Shared != 0 || c.Families.InTest == 0 || c.InitialStates.Shared != 0 {
		t.Errorf("families %+v, initial states %+v: want none shared", c.Families, c.InitialStates)
	}
	for _, task := range m.sets["train"] {
		intents := strings.Split(task.Family, " > ")
		for i := 1; i < len(intents); i++ {
			if drill.HeldOut(intents[i-1], intents[i]) {
				t.Errorf("%s holds the held-out pair %s, %s", task.ID, intents[i-1], intents[i])
			}
		}
	}
}

func TestOfficialTasksAreSplitByFamilyAndAsThePaperDid(t *testing.T) {
	dir := fixtures.Benchmark(t)
	data := must.Get(bfcl.LoadData(dir))(t)
	site := &lang.Site{BFCL: dir}

	family := run(t, "source = \"bfcl\"\nsplit {\n test = 0.2\n seed = 7\n}", 1, site)
	for name, o := range map[string]bfcl.Overlap{"families": family.cert.Families, "numbers": family.cert.Numbers,
		"initial states": family.cert.InitialStates, "ground truths": family.cert.GroundTruths} {
		if o.Shared != 0 || o.TestTasks != 0 {
			t.Errorf("split by family: %d %s on both sides, %d test tasks touched", o.Shared, name, o.TestTasks)
		}
	}
	everything := slices.Sorted(slices.Values(slices.Concat(idsOf(family.sets["train"]), idsOf(family.sets["test"]))))
	if want := slices.Sorted(slices.Values(idsOf(data.Tasks()))); !slices.Equal(everything, want) {
		t.Errorf("split by family: %d tasks on both sides together, the benchmark has %d", len(everything), len(want))
	}
	if share := float64(len(family.sets["test"])) / float64(len(everything)); share < 0.2 || share > 0.3 {
		t.Errorf("split by family: a share of %.3f is in the test set, want at least 0.2 and hardly more", share)
	}

	few := run(t, "source = \"bfcl\"\ntake = 8\nsplit {\n test = 0.2\n seed = 7\n}", 1, site)
	for _, port := range []string{"train", "test"} {
		categories := map[string]bool{}
		for _, task := range few.sets[port] {
			categories[task.Category] = true
		}
		if len(few.sets[port]) != 8 || len(categories) != 4 {
			t.Errorf("eight tasks of %s: got %d, of the categories %v", port, len(few.sets[port]), categories)
		}
	}

	paper := run(t, "source = \"bfcl\"\nsplit {\n by = \"paper\"\n}", 1, site)
	if n := len(paper.sets["test"]); n != 80 {
		t.Errorf("the paper's split: %d test tasks, want 80", n)
	}
	if want := map[string]int{"base": 18, "miss_func": 17, "miss_param": 22,
		"long_context": 23}; !maps.Equal(paper.cert.Category, want) {
		t.Errorf("the paper's split: test categories %v, want the paper's %v", paper.cert.Category, want)
	}
	if paper.cert.Numbers.TestTasks == 0 {
		t.Error("the paper's split: the certificate does not show that test tasks have siblings in training")
	}
}

func TestErrorOfMissingOfficialDataNamesTheWayOut(t *testing.T) {
	_, _, _, err := execute(t, `source = "bfcl"`, nil, engine.JobSetup{})
	must.Match(t, err, "make build")
}
