// Package plan decides what a run would do with every node of an experiment, and why. Start with New, which compares an
// experiment (package lang) with a store (package artifact) and returns a Plan of Planned nodes, each with a Verb and a
// Cause. Key is the hash of everything that determines a node's result. Plan.Forecast simulates the run. Package
// engine runs a Plan.
package plan
