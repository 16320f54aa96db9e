// Package environment starts the episodes of tasks: those of the benchmark and its drills, those of a user's program,
// which speaks JSON-RPC 2.0 on its standard input and output, and those of tasks for the tools of a server of the Model
// Context Protocol (docs/own_tasks.md).
//
//	Open         the rl.Environment of a list of tasks
//	Description  command, variables and time limits, stored beside the tasks; Copy makes the folder of the program
//	Processes    plays the episodes of a program in its processes: many each, faults, second tries
//	Servers      the sessions with a server: one for each episode
//	Offer        the tools of an episode for clients of the Model Context Protocol
//	Workers      the processes of an agent (stages/internal/agent)
//	Fault        a failure of a program
//	Expert       plays the calls of a task's expert, if the task has them
//
// Start with Open and Processes.Start. Neighbours: rl (Environment, Env), bfcl (tasks), engine/proc (processes),
// stages/tasks (reads the tasks and tools of programs and servers).
package environment
