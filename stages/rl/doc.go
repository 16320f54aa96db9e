// Package rl is the vocabulary of learning from episodes, in plain Go: what an episode's record is, how many are sampled
// at once, what a group's rewards say, and what an update minimises. It knows no tensors and no engine.
//
//	Trajectory, Message     the record of an episode; Score and Metric are rows made of it
//	Reward                  of an episode; missing where its environment failed
//	Policy, Codec, Env      what samples tokens, what turns messages into tokens, what executes calls
//	Collector               samples many episodes in shared batches
//	Expert, Spoil           trajectories made from ground truth, and failures made from it on purpose
//	Advantage, Objective    settings that are computed: rewards to advantages, log-probabilities to loss and gradient
//	Groups, Mixture, Forecast   diagnostics of an update, and the paper's propositions in closed form
//	Stream, Key             random numbers by what they decide
//
// Start with Trajectory and Collector. Neighbours: bfcl (tasks, episodes, verdicts), stages/internal/chat (codecs),
// stages/internal/lm (the policy that trains).
//
// Everything here is float64 and closed form: the model hands over log-probabilities, exact divergences and entropies of
// action tokens, and gets back the derivative of the loss by each.
package rl
