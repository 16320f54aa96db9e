package bfcl

import (
	"encoding/json"
)

// Categories of the benchmark's multi-turn part, in official (and alphabetical) order.
var Categories = []string{"base", "long_context", "miss_func", "miss_param"}

// TasksFile is the file of a tasks artifact: one Task per line.
const TasksFile = "tasks.jsonl"

// Task is one multi-turn task: an official one, or a drill of the same form. Its JSON form is the
// row of a tasks artifact (tasks.jsonl) and round-trips.
type Task struct {
	ID       string   `json:"id"`               // "multi_turn_base_17", "drill_3_00042"
	Category string   `json:"category"`         // one of Categories
	Number   int      `json:"number"`           // the number at the end of the id
	Family   string   `json:"family"`           // unit of the split: no family has tasks in both sets
	Classes  []string `json:"classes"`          // classes of the task, in tool-list order
	Prompt   string   `json:"prompt,omitempty"` // PromptTurns or PromptMerged

	// InitialConfig is the scenario as JSON in its original key order: class name -> scenario.
	InitialConfig json.RawMessage `json:"initial_config"`
	Turns         []Turn          `json:"turns"`

	// Spec is the task of a program as the program returned it (stages/internal/environment); the reader sets Program.
	// Such a task has ID, Category and Family, and no other field. Both are empty for tasks of the benchmark.
	Spec    json.RawMessage `json:"spec,omitempty"`
	Program Program         `json:"-"`
}

// Program locates the program of a task.
type Program struct {
	Dir       string // tasks artifact that describes it
	Processes int    // to start at most; 0: one
}

// Turn is one user request with its ground truth.
type Turn struct {
	User        string   `json:"user"`               // "" at the reveal turn of miss_func
	GroundTruth []string `json:"ground_truth"`       // call strings; may be empty
	Revealed    []string `json:"revealed,omitempty"` // tools withheld until this turn
}
