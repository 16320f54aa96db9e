// Package engine runs plans. It has no knowledge of machine learning: a kind (package lang) defines what a stage
// learns or measures.
//
// Run executes a plan (package plan). It admits stages by the queue of package sched and the ledger of package
// machine, starts each through an Executor, commits results to the store (package artifact), and records events in a
// run folder (package runs). If the engine is killed, stages in processes of their own and programs of exec continue;
// the next run that needs one adopts it. The output of a node without a key is not committed but shown: it stays in
// the run folder.
//
// A stage is a Runner and receives a Job: inputs, folders, random streams, log, and Execute for programs. NodeMain is
// the main function of the process of one stage. If a stage shares its work among several processes, these are
// its ranks, and the process that the engine starts is their supervisor.
package engine
