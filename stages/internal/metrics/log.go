// Package metrics writes the port metrics of a training stage: one row per update of what was computed, and beside it,
// outside the artifact's digest, what it took (seconds, rates).
package metrics

import (
	"errors"
	"maps"
	"math"

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

// Write appends the row of an update, and what it took. A value that is no finite number, such as the gradient norm of a
// skipped update, has no form in JSON and is left out.
func (l *Log) Write(row rl.Metric, times map[string]float64) error {
	return errors.Join(write(l.values, row.Update, row.Values), write(l.times, row.Update, times))
}

func write(w *artifact.RowWriter[rl.Metric], update int, values map[string]float64) error {
	values = maps.Clone(values)
	maps.DeleteFunc(values, func(_ string, v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
	return errors.Join(w.Write(rl.Metric{Update: update, Values: values}), w.Flush())
}

// Close finishes the files. Calling it again changes nothing.
func (l *Log) Close() error { return errors.Join(l.values.Close(), l.times.Close()) }
