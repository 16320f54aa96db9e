// Package environment starts the episodes of tasks: those of the benchmark and its drills, and those of a program of
// the user's that speaks JSON-RPC 2.0 on its standard input and output (docs/own_tasks.md).
//
//	Open       the rl.Environment of a list of tasks
//	Program    command, variables and time limits, stored beside the tasks; Copy makes the folder that it starts in
//	Pool       the processes of a program: many episodes each, faults, second tries
//	Fault      a failure of a program
//	Expert     plays the calls that a program gives as the expert of a task
//
// Start with Open and Pool.Start. Neighbours: rl (Environment, Env), bfcl (tasks), engine/proc (processes),
// stages/tasks (asks programs for their tasks).
package environment
