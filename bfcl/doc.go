// Package bfcl implements the multi-turn part of the Berkeley Function-Calling Leaderboard (v4)
// offline and in Go: tasks, episodes, verdicts, the paper's reward, splits and decoders. Result
// strings, states and verdicts are identical to those of the official Python code.
//
// Start with LoadData, which reads the official tasks; package drill generates others. Task.Start
// returns an Episode: pass the policy's calls to Step, read User and Tools, and call Verdict at
// the end. DecodeQwen and DecodeLlama31 parse model output into calls, and HandlerChat writes the
// prompts of the official handlers of local models. Tally aggregates verdicts by category, and
// PaperSplit and FamilySplit divide tasks.
//
// Package internal/py implements Python's values, and internal/api the eight simulated classes. The
// tests replay recorded runs of the official code. bfcl/SPEC.md describes the behaviour of that code
// (ShishirPatil/gorilla, commit 6ea57973); comments cite the sections of SPEC.md.
package bfcl
