// Package agent plays episodes with a user's program, which calls the policy through OpenAI's API and the tools of its
// task through the Model Context Protocol.
//
//	Settings   the block agent of a stage
//	Gateway    an rl.Agent: the server of both protocols, and the processes of the program; start with Open
//
// Token ids that an agent was served reach grpo and rc-grpo without being tokenized again:
//
//	Gateway.Play        gives the episode a serve.Server of its own, with the callbacks stream and sampled
//	episode.stream      names the random numbers of a reply
//	serve.Server        samples the reply and calls sampled with the ids of its prompt and its draws
//	episode.sampled     appends them to the longest segment that the prompt continues, with the mask true on the draws
//	                    only; a prompt that continues none begins a segment
//	episode.record      stores the first segment as IDs, Mask and Logp of the trajectory, the others as its Segments
//	rl.Collector        judges the trajectory, as one of a conversation
//	objective.Rows      makes each segment a row of the batch, with the advantage of its episode (stages/grpo/batch.go)
//
// Fine-tuning on collected trajectories (curate) keeps the ids of replies and encodes the rest again (chat.Encode), of
// the first segment only. The conversations that `rcgrpo serve --log` writes reach no training.
//
// Neighbours: rl (episodes), serve (OpenAI's API), environment (processes, tools).
package agent
