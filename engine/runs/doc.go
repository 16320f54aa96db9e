// Package runs reads and writes run folders. Create makes a Folder for a new run, which package engine fills with
// assignments, logs and events. ReadStatus derives the state of a run from its events, Compare the differences between
// two runs; Watch follows one stage. A Holder identifies the process that executes a stage, for its adoption by another
// run.
package runs
