// Package lm is the language model: a decoder of the Qwen2 type over package torch, with its files,
// its gradient, its optimizer and its sampler.
//
// Start with New (random weights) or Load (a folder in Hugging Face form). A Model computes Stats
// of given sequences; a Trainer accumulates gradients of any loss that is a function of those
// statistics and moves the weights; a Decoder samples from the same weights and is an rl.Policy.
//
// The package knows tokens and nothing of tasks, rewards or losses: a loss reaches it as the
// derivative by each token's log-probability, entropy and KL (see Weights). Its gradient is written
// out by hand rather than recorded: the architecture is fixed, every operation is one pass over
// memory, and weight gradients add up where they stay.
//
// Sequences are packed: linear layers see one [tokens, width] matrix without padding, attention
// stays inside each sequence, and what sequences of a pass have in common at their beginning is
// computed once. Of the last layer, everything but keys and values runs only on positions that
// carry loss.
//
// Same inputs, same bytes: on one machine, in float32 on the CPU, with any number of threads
// (torch.SetThreads).
//
// Use has a model multiply in bfloat16: the weights that are trained, gradients, the stream between
// layers, norms and the statistics of the head stay in float32; logits come from a product in
// bfloat16 and carry its 8 digits.
//
// Config, Sequence and the other plain values carry no build tag; what computes needs the tag
// libtorch.
package lm
