// Package sched decides which stage starts next. A Queue orders Requests for Shares of the machine's CPUs, GPUs and
// memory. It is pure: the caller supplies the time. Package engine runs stages by it, and package plan simulates a run.
package sched
