package bfcl

import "encoding/json"

// Categories of the benchmark's multi-turn part, in official (and alphabetical) order.
var Categories = []string{"base", "long_context", "miss_func", "miss_param"}

// TasksFile is the file of a tasks artifact: one Task per line.
const TasksFile = "tasks.jsonl"

// Task is one multi-turn task: an official one, a drill of the same form, or a task of a program. Its JSON form is the
// row of a tasks artifact (TasksFile) and round-trips.
type Task struct {
	ID       string   `json:"id"`               // "multi_turn_base_17", "drill_3_00042"
	Category string   `json:"category"`         // one of Categories, "copy" for copy drills, or a program's own
	Number   int      `json:"number"`           // number at the end of the id; tasks of several categories share it
	Family   string   `json:"family"`           // unit of the split: no family has tasks in both sets
	Classes  []string `json:"classes"`          // names of the classes whose tools are on offer, in this order
	Prompt   string   `json:"prompt,omitempty"` // PromptTurns or PromptMerged

	// InitialConfig is a JSON object from class name to scenario, the initial state of the class, in its original key
	// order. A class without an entry starts with its defaults.
	InitialConfig json.RawMessage `json:"initial_config"`
	Turns         []Turn          `json:"turns"`

	// Spec is the task of a program as the program returned it (stages/internal/environment). Such a task has ID,
	// Category, Family and Program besides Spec, and no other field. The reader of a tasks artifact sets Program.
	// Spec and Program are empty for tasks of the benchmark and for drills.
	Spec    json.RawMessage `json:"spec,omitempty"`
	Program ProgramRef      `json:"-"`
}

// ProgramRef locates the program of a task.
type ProgramRef struct {
	Dir       string // folder of the tasks artifact that describes the program
	Processes int    // largest number of its processes at a time; 0 means one
}

// Turn is one user request with its ground truth.
type Turn struct {
	User        string   `json:"user"`               // "" at the reveal turn of miss_func
	GroundTruth []string `json:"ground_truth"`       // call strings; may be empty
	Revealed    []string `json:"revealed,omitempty"` // tools withheld until this turn
}
