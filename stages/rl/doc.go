// Package rl is the vocabulary of learning from episodes, without tensors and without the engine.
//
//	Trajectory, Message     the record of an episode; Score, Pass and Metric are rows derived from it
//	Reward                  of an episode; missing if its environment failed
//	Policy, Env             reply in a conversation; execute the calls
//	Environment             starts the episodes: of the benchmark, or of a program
//	Collector               samples many episodes of a Policy
//	Local                   the policy of a model in this process, from a Batcher and a Codec
//	Batcher, Sampler        sample replies for many goroutines in shared batches; sample the next tokens
//	Codec                   converts messages to tokens and back
//	Expert, Spoil           trajectories made from ground truth, and failures made from it on purpose
//	Stream                  random numbers addressed by name
//	DrawTokens              reward tokens of a group
//
// Start with Trajectory and Collector. Neighbours: rl/objective (advantages, loss, diagnostics), rl/blocks
// (shared blocks of settings), bfcl (tasks, episodes, verdicts), stages/internal/chat (codecs),
// stages/internal/lm (models).
package rl
