// Package proc starts, stops and inspects processes. Start returns a Process; its Exit reports how it ended.
// OpenOutput masks secrets in a log, The package has no knowledge of stages: package engine
// derives the cause of a failure from an Exit.
package proc
