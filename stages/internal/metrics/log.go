// Package metrics writes the port metrics of a training stage: one row per update of what was computed, and beside it,
// outside the artifact's digest, what it took (seconds, rates).
package metrics

import (
	"errors"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/stages/rl"
)

// Log is an open metrics port.
type Log struct {
	values, times *artifact.RowWriter[rl.Metric]
}

// Create opens the port metrics of a job.
func Create(job *engine.Job) (*Log, error) {
	dir, err := job.Create("metrics")
	if err != nil {
		return nil, err
	}
	values, err := artifact.CreateRows[rl.Metric](dir, rl.MetricsFile)
	if err != nil {
		return nil, err
	}
	times, err := artifact.CreateRows[rl.Metric](dir, rl.TimesFile)
	if err != nil {
		return nil, errors.Join(err, values.Close())
	}
	return &Log{values, times}, nil
}

// Write appends the row of an update, and what it took.
func (l *Log) Write(row rl.Metric, times map[string]float64) error {
	return errors.Join(l.values.Write(row), l.values.Flush(),
		l.times.Write(rl.Metric{Update: row.Update, Values: times}), l.times.Flush())
}

// Close finishes the files. Calling it again changes nothing.
func (l *Log) Close() error { return errors.Join(l.values.Close(), l.times.Close()) }
