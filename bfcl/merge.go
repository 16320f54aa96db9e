package bfcl

import (
	"fmt"
	"strings"
)

// Prompt modes of a task.
const (
	PromptTurns  = ""       // one user message per turn, as in the benchmark
	PromptMerged = "merged" // all requests in the first user message
)

// DoneTool ends a merged episode. It has no parameters and belongs to no class.
const DoneTool = "done"

// DoneCall is a call of DoneTool.
const DoneCall = DoneTool + "()"

// closing ends the request of a merged task; the text is the paper's (appendix, "Format").
const closing = "Complete all the steps above using the available tools. Call done() when you have finished all tasks."

// Merged returns a copy of the task with all requests in one turn, the paper's other prompt mode:
// "Step k: …" for each turn with a request, then the instruction to call done(). All tools are
// offered from the start, and the ground truth is the concatenation of all turns. The reward is
// comparable to that of the original task; the official verdict, which compares turns, is
// meaningless.
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

// IsDone reports whether a call ends a merged episode. It ignores the arguments.
func IsDone(call string) bool {
	name, _, ok := strings.Cut(strings.TrimSpace(call), "(")
	return ok && strings.TrimSpace(name) == DoneTool
}
