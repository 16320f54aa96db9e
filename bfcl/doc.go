// Package bfcl is the multi-turn part of the Berkeley Function-Calling Leaderboard (v4), offline and in Go: tasks,
// episodes, verdicts, the paper's reward, splits and decoders. It gives the same result strings, states and verdicts as
// the official Python code.
//
// A Task is one problem with its ground truth. LoadData reads the official ones; a Task may also come from elsewhere
// (package drill). Task.Start gives an Episode: feed it the policy's calls step by step with Step, read User and Tools,
// and ask for the Verdict at the end. Decode... turns model text into calls. Score sums verdicts up by category.
//
// What Python does with values is in internal/py, what the eight classes do is in internal/api. bfcl/SPEC.md describes
// the behaviour of the official code (ShishirPatil/gorilla, commit 6ea57973), and comments cite its sections.
package bfcl
