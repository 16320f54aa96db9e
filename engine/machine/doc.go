// Package machine describes the hardware that stages may use and how runs share it. Detect returns the Machine.
// OpenLedger opens the Ledger, in which all runs of a user reserve CPUs, GPUs and memory. Package engine decides which
// stage starts, by the queue of package sched.
package machine
