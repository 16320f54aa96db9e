// Package lm is the language model: a transformer decoder (Llama, Qwen2, Qwen3 or SmolLM3; see Config.Decoder) over
// package torch, with its files, gradient, optimizer and sampler.
//
// Start with New (random weights) or Load (a folder in Hugging Face's format). A Model computes Stats of given
// sequences; a Trainer accumulates gradients of any loss that is a function of these statistics and updates the
// weights; a Decoder samples from the same weights and is an rl.Sampler. An Adapter is a low-rank change of a
// Model.
//
// The package has no notion of tasks, rewards or losses: the caller passes the derivative of the loss with
// respect to each token's logprob, entropy and KL (see Weights). The gradient is written by hand instead of
// recorded: the architecture is fixed, every operation is one pass over memory, and weight gradients accumulate
// in place.
//
// Sequences are packed: linear layers see one [tokens, width] matrix without padding, attention stays inside each
// sequence, and common prefixes of the sequences of a pass are computed once. The last layer computes everything
// but keys and values only at the positions that predict a token of the mask.
//
// Equal inputs give identical results on one machine, in float32 on the CPU, with any number of threads
// (torch.SetThreads). Buffers and Model.Use select products in bfloat16: trained weights, gradients, the residual
// stream, norms and the statistics of the head stay in float32; logits are products in bfloat16 with its 8 bits of
// precision.
//
// Config, Sequence and the other plain values need no build tag; all computation needs the tag libtorch.
package lm
