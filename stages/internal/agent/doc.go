// Package agent plays episodes with a user's program, which calls the policy through OpenAI's API and the tools of its
// task through the Model Context Protocol.
//
//	Settings   the block agent of a stage
//	Gateway    an rl.Agent: the server of both protocols, and the processes of the program; start with Open
//
// Neighbours: rl (episodes), serve (OpenAI's API), environment (processes, tools).
package agent
