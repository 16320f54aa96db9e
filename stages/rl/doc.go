// Package rl is the vocabulary of learning from episodes, without tensors and without the engine.
//
//	Trajectory, Message     what is stored of an episode, with its mask; Score, Pass and Metric are rows derived from it
//	Reward                  the reward of an episode; missing if its environment failed
//	Policy, Env             a Policy replies in a conversation; an Env is an episode that executes the calls
//	Environment             starts the episodes: of the benchmark, or of a program
//	Collector               samples many episodes of a Policy
//	Local                   the policy of a model in this process, from a Batcher and a Codec
//	Agent                   plays an episode with a program of the user's in place of a conversation
//	Batcher, Sampler        a Sampler draws the next tokens; a Batcher shares it among many goroutines
//	Codec                   converts messages to tokens and back
//	Expert, Spoil           trajectories made from ground truth, and failures made from it on purpose
//	Stream                  random numbers addressed by name, such as seed, update, task and member
//	DrawTokens              draws the reward tokens of a group
//
// Start with Trajectory and Collector. Neighbours: rl/objective (advantages, loss, diagnostics), rl/blocks
// (shared blocks of settings), bfcl (tasks, episodes, verdicts), stages/internal/chat (codecs),
// stages/internal/lm (models).
package rl
