package bfcl

import (
	"fmt"
	"strings"
)

// Prompt modes of a task.
const (
	PromptTurns  = ""       // one user message per turn, as the benchmark has it
	PromptMerged = "merged" // all requests in the first user message
)

// DoneTool is the tool that ends a merged episode. It has no parameters, and no class knows it.
const DoneTool = "done"

// DoneCall is the call of it.
const DoneCall = DoneTool + "()"

// closing ends the request of a merged task, in the words of the paper (appendix, "Format").
const closing = "Complete all the steps above using the available tools. Call done() when you have finished all tasks."

// Merged returns the task with all its requests in one turn, the other prompt mode of the paper: "Step k: …" for each
// turn that has a request of its own, then the instruction to call done() at the end. All tools are offered from the
// start, those withheld in turns too, and the ground truth is that of all turns in a row. Its reward is that of the task
// in turns; the official verdict, which compares turns, has no meaning for it. t is not changed.
func (t *Task) Merged() *Task {
	merged := *t
	merged.Prompt = PromptMerged
	var requests, truth []string
	for _, turn := range t.Turns {
		if turn.User != "" {
			requests = append(requests, fmt.Sprintf("Step %d: %s", len(requests)+1, turn.User))
		}
		truth = append(truth, turn.GroundTruth...)
	}
	merged.Turns = []Turn{{User: strings.Join(append(requests, closing), "\n"), GroundTruth: truth}}
	return &merged
}

// IsDone says whether a call ends a merged episode: the tool by its name, whatever the arguments.
func IsDone(call string) bool {
	name, _, ok := strings.Cut(strings.TrimSpace(call), "(")
	return ok && strings.TrimSpace(name) == DoneTool
}
