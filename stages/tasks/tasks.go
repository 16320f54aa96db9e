// Package tasks contains the stage kind `tasks`: the benchmark's tasks with their split, generated drills, tasks of a
// program (command.go), or tasks for the tools of an MCP server (mcp.go).
//
// Each set is a port with one file, tasks.jsonl (rows: bfcl.Task). The port certificate lists what the sides of
// the split share (certificate.json, a bfcl.Certificate). Training drills of one form and seed form one endless
// list; stages that must not share drills skip those of the others.
package tasks

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/bfcl"
	"rcgrpo/bfcl/drill"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/stages/rl/blocks"
)

// Kind returns the stage kind.
func Kind() *lang.Kind {
	return &lang.Kind{
		Name:    "tasks",
		Summary: "Tasks with their split: the benchmark's (source bfcl), generated drills, or your own.",
		Version: 2,
		New: func() lang.Stage {
			return &settings{Version: bfcl.Version, Prompt: "turns", Form: string(drill.Multi), Train: 1000, Test: 200,
				Pool: 1000, PoolSeed: 42,
				Split: &split{By: "family", Test: 0.1, Seed: 42, Order: "file"}, Processes: 1,
				Timeouts: &timeouts{Start: time.Minute, Step: 30 * time.Second, Score: time.Minute}}
		},
		Outputs: func(s lang.Stage) map[string]string {
			ports := map[string]string{"certificate": "certificate"}
			for _, port := range s.(*settings).setPorts() {
				ports[port] = "tasks"
			}
			return ports
		},
		Stochastic: func(s lang.Stage) bool {
			source := s.(*settings).Source
			return source != "bfcl" && source != "mcp"
		},
		Light: true,
	}
}

type settings struct {
	// official tasks, drills over its classes, tasks of a program, or tasks for the tools of an MCP server
	// (docs/own_tasks.md)
	Source string `hcl:"source" choices:"bfcl|drills|command|mcp"`
	// release of the data (source bfcl)
	Version string `hcl:"version,optional"`
	// turns gives the requests one after the other, as the benchmark does; merged puts all of them in the first
	// message, which ends with the instruction to call done() when all tasks are finished, and adds the tool done,
	// which ends the episode (the paper has both); it applies to all stages that read the tasks
	Prompt string `hcl:"prompt,optional" choices:"turns|merged"`
	// how the benchmark's tasks are divided (source bfcl)
	Split *split `hcl:"split,block"`

	// tasks kept of each set, evenly from its categories, for a trial run; 0 keeps all (source bfcl)
	Take int `hcl:"take,optional" unit:"tasks"`

	// sort of drill; copy and single drills have a training set only (source drills)
	Form string `hcl:"form,optional" choices:"copy|single|multi"`
	// size of the training set (source drills); at most so many tasks (source command)
	Train int `hcl:"train,optional" unit:"drills"`
	// training drills to skip, because another stage with this form and seed uses them (source drills)
	Skip int `hcl:"skip,optional" unit:"drills"`
	// size of each test set: held-out pairs of intents in training wording (test) and in held-out wording (test_new),
	// drawn by the seed from the pool (source drills, form multi); at most so many tasks, 0 for no test set (source
	// command)
	Test int `hcl:"test,optional" unit:"drills"`
	// pool of the test sets of all seeds (form multi)
	Pool int `hcl:"pool,optional" unit:"drills"`
	// seed of the pool, the same for every seed (form multi)
	PoolSeed int `hcl:"pool_seed,optional"`

	// folder of the program: dir("shop", [names left out]); part of every key below; optional for a server, which
	// starts each episode in a copy of its own (source command or mcp)
	Program *artifact.File `hcl:"program,optional"`
	// words that start the program, or the server on its standard input and output, in a copy of the folder (source
	// command or mcp)
	Command []string `hcl:"command,optional"`
	// processes that share the episodes, or sessions at once (source command or mcp)
	Processes int `hcl:"processes,optional" key:"-"`
	// further variables (source command or mcp)
	Env map[string]string `hcl:"env,optional"`
	// variables taken from the environment: only their names enter the key, and the log masks their values (source
	// command or mcp)
	Secrets []string `hcl:"secrets,optional"`
	// limits of the program's answers (source command or mcp)
	Timeouts *timeouts `hcl:"timeouts,block"`

	// tasks of the training set, a JSON object per line with id, user and expected (source mcp)
	File *artifact.File `hcl:"file,optional"`
	// tasks of the test set; without it there is none (source mcp)
	TestFile *artifact.File `hcl:"test_file,optional"`
	// address of a running server, in place of command (source mcp)
	URL string `hcl:"url,optional"`
	// headers of requests to url and the variables with their values: { Authorization = "NOTES_TOKEN" } (source mcp)
	Headers map[string]string `hcl:"headers,optional"`
	// words of a command that scores each episode; without it the reward is 1 if all expected calls were made (source
	// mcp)
	Score []string `hcl:"score,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

func (s *settings) setPorts() []string {
	switch {
	case s.Source == "bfcl", s.Source == "command" && s.Test > 0, s.Source == "mcp" && s.TestFile != nil:
		return []string{"train", "test"}
	case !s.own() && drill.Form(s.Form) == drill.Multi:
		return []string{"train", "test", "test_new"}
	}
	return []string{"train"}
}

// own reports whether the tasks are the user's.
func (s *settings) own() bool { return s.Source == "command" || s.Source == "mcp" }

type split struct {
	// family: connected components of tasks that share number, initial state or ground truth; paper: single tasks, as
	// the paper's counts imply (its test tasks have siblings in train)
	By string `hcl:"by,optional" choices:"family|paper"`
	// share of the task numbers in the test set (by family)
	Test float64 `hcl:"test,optional"`
	// seed of the draw of families (by family)
	Seed int `hcl:"seed,optional"`
	// order of the ids before the paper's shuffle (by paper)
	Order string `hcl:"order,optional" choices:"file|lexicographic"`

	At map[string]hcl.Range `hcl:",ranges"`
}

func (s *settings) Check() (diags hcl.Diagnostics) {
	bad := blocks.Mistakes(&diags)
	bad(s.Split.Test <= 0 || s.Split.Test >= 1, "Test share out of range", s.Split.At["test"],
		"The test set takes a share of the task numbers between 0 and 1, both excluded; got %v.", s.Split.Test)
	bad(s.Prompt == bfcl.PromptMerged && s.Source == "drills" && s.Form == string(drill.Copy), "Nothing to merge",
		s.At["prompt"], "A copy drill has no tools and no environment, so it has no steps to merge: leave prompt out.")
	bad(s.Take < 0, "Negative number of tasks", s.At["take"],
		"take keeps so many tasks of each set, or all with 0; got %d.", s.Take)
	bad(s.Train < 0, "Negative number of drills", s.At["train"], "A training set has at least 0 drills; got %d.", s.Train)
	s.checkProgram(bad)
	bad(s.Skip < 0, "Negative number of drills", s.At["skip"], "skip passes over at least 0 drills; got %d.", s.Skip)
	bad(s.Test < 0 || !s.own() && s.Test > s.Pool, "Test set larger than its pool", s.At["test"],
		"Each seed draws its test drills from a pool of %d, so test must lie between 0 and %d; got %d. Raise pool, or "+
			"lower test.", s.Pool,
		max(0, s.Pool), s.Test)
	return append(diags, blocks.CheckCounts(s.At, map[string]int{"train": s.Train, "skip": s.Skip, "test": s.Test,
		"pool": s.Pool})...)
}

// WithoutEffect returns the settings of another source or form, or of an empty set.
func (s *settings) WithoutEffect() map[string]string {
	const (
		drills = "it is about generated drills"
		multi  = "it is about the test sets, which drills of form multi alone have"
		bench  = "it is about the benchmark's own tasks"
	)
	e := blocks.Effects{}
	s.programEffects(e)
	official := s.Source == "bfcl"
	e.Add(official, drills, "form", "train", "skip", "test", "pool", "pool_seed")
	e.Add(s.own(), drills, "form", "skip", "pool", "pool_seed")
	e.Add(s.Source == "mcp", "the files have all tasks", "train", "test")
	e.Add(!official, bench, "version", "take", "split.by", "split.test", "split.seed", "split.order")
	e.Add(drill.Form(s.Form) != drill.Multi, multi, "pool", "pool_seed")
	e.Add(drill.Form(s.Form) != drill.Multi && s.Test != 0, multi, "test") // that there are none is true of all forms
	e.Add(s.Test == 0, "the test sets are empty", "pool", "pool_seed")
	e.Add(s.Train == 0, "the training set is empty", "skip")
	e.Add(s.Split.By == "paper", "it is about the split by family", "split.test", "split.seed")
	e.Add(s.Split.By == "family", "it is about the paper's split", "split.order")
	return e
}

// Run writes the sets.
func (s *settings) Run(ctx context.Context, job *engine.Job) error {
	switch s.Source {
	case "command":
		return s.runProgram(ctx, job)
	case "mcp":
		return s.runServer(ctx, job)
	}
	sets, err := s.sets(job)
	if err != nil {
		return err
	}
	if err := s.certify(job, sets); err != nil {
		return err
	}
	for _, port := range s.setPorts() {
		dir, err := job.Create(port)
		if err != nil {
			return err
		}
		if err := artifact.WriteRows(dir, bfcl.TasksFile, s.prompted(sets[port])); err != nil {
			return err
		}
	}
	return nil
}

// Size implements lang.Sizer for tasks whose number follows from the settings. The stage counts those of a user.
func (s *settings) Size(map[string]lang.Size) (map[string]lang.Size, float64) {
	var rows map[string]int
	tokens := 4000 // with the documents of the benchmark's functions
	switch {
	case s.own():
		return nil, 0
	case s.Source == "drills":
		rows = map[string]int{"train": s.Train, "test": s.Test, "test_new": s.Test}
		tokens = drill.Form(s.Form).Tokens()
	case s.Take > 0:
		rows = map[string]int{"train": s.Take, "test": s.Take}
	case s.Split.By == "paper":
		rows = map[string]int{"train": 720, "test": 80}
	default:
		test := int(800 * s.Split.Test)
		rows = map[string]int{"train": 800 - test, "test": test}
	}
	sizes := map[string]lang.Size{}
	for _, port := range s.setPorts() {
		sizes[port] = lang.Size{Rows: float64(rows[port]), Tokens: float64(rows[port] * tokens)}
	}
	return sizes, 0
}

// Preview returns the tasks of a port of a node before the node has run.
func Preview(n *lang.Node, port string, site *lang.Site) ([]*bfcl.Task, error) {
	s, ok := n.Stage.(*settings)
	if !ok {
		return nil, fmt.Errorf("%s makes no tasks", n.Address)
	}
	job := &engine.Job{Site: site}
	if n.Seed != nil {
		job.Seed = *n.Seed
	}
	sets, err := s.sets(job)
	if err != nil {
		return nil, err
	}
	return s.prompted(sets[port]), nil
}

// prompted returns the tasks in the prompt mode of the settings.
func (s *settings) prompted(tasks []*bfcl.Task) []*bfcl.Task {
	if s.Prompt != bfcl.PromptMerged {
		return tasks
	}
	var merged []*bfcl.Task
	for _, t := range tasks {
		merged = append(merged, t.Merged())
	}
	return merged
}

func (s *settings) sets(job *engine.Job) (map[string][]*bfcl.Task, error) {
	if s.Source == "bfcl" {
		return s.official(job)
	}
	form := drill.Form(s.Form)
	train, err := drill.Generate(job.Rand("drills train"), form, drill.Train,
		fmt.Sprintf("drill_%s_%d", form, job.Seed), s.Skip+s.Train)
	if err != nil {
		return nil, err
	}
	sets := map[string][]*bfcl.Task{"train": train[s.Skip:]}
	if form != drill.Multi || s.Test == 0 {
		return sets, nil
	}
	for _, set := range []drill.Set{drill.Test, drill.TestNew} {
		pool, err := drill.Generate(engine.Rand(int64(s.PoolSeed), "drills pool "+string(set)), form, set,
			"drill_"+string(set), s.Pool)
		if err != nil {
			return nil, err
		}
		for _, i := range job.Rand("drills choice " + string(set)).Perm(s.Pool)[:s.Test] {
			sets[string(set)] = append(sets[string(set)], pool[i])
		}
	}
	return sets, nil
}

func (s *settings) official(job *engine.Job) (map[string][]*bfcl.Task, error) {
	if job.Site.BFCL == "" {
		return nil, fmt.Errorf("the benchmark's data is not there: name its folder in the site file, data { bfcl = " +
			"\"...\" }, or run `make build`, which unpacks it into .deps/bfcl")
	}
	data, err := bfcl.LoadData(job.Site.BFCL)
	if err != nil {
		return nil, err
	}
	if err := data.IsVersion(s.Version); err != nil {
		return nil, err
	}
	var parts bfcl.Split
	if s.Split.By == "paper" {
		parts, err = bfcl.PaperSplit(data.Tasks(), s.Split.Order)
	} else {
		parts, err = bfcl.FamilySplit(data.Tasks(), s.Split.Test, int64(s.Split.Seed))
	}
	if err != nil {
		return nil, err
	}
	return map[string][]*bfcl.Task{"train": s.part(parts.Train), "test": s.part(parts.Test)}, nil
}

// part returns s.Take tasks of a set at equal distances.
func (s *settings) part(tasks []*bfcl.Task) []*bfcl.Task {
	if s.Take == 0 || s.Take >= len(tasks) {
		return tasks
	}
	var kept []*bfcl.Task
	for i := range s.Take {
		kept = append(kept, tasks[i*len(tasks)/s.Take])
	}
	return kept
}

func (s *settings) certify(job *engine.Job, sets map[string][]*bfcl.Task) error {
	dir, err := job.Create("certificate")
	if err != nil {
		return err
	}
	return artifact.WriteJSON(dir, "certificate.json",
		bfcl.Certify(sets["train"], slices.Concat(sets["test"], sets["test_new"])))
}
