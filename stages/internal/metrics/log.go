// Package metrics writes the port metrics of a training stage: one row per update of what was computed, and beside it,
// outside the artifact's digest, what it took (seconds, rates).
package metrics

import (
	"errors"
	"io/fs"
	"maps"
	"math"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/stages/internal/resume"
	"rcgrpo/stages/rl"
)

// Log is the curve of a training so far. It stands in the scratch folder, from which a killed training goes on.
type Log struct {
	values, times *resume.Rows
	skipped       *resume.Rows // batches of updates that were left out
}

// Open opens the log of a training, with the rows of the updates that it does not make again.
func Open(t *resume.Training) (*Log, error) {
	values, err := t.Rows(rl.MetricsFile)
	if err != nil {
		return nil, err
	}
	times, err := t.Rows(rl.TimesFile)
	if err != nil {
		return nil, err
	}
	skipped, err := t.Rows(skippedFile)
	return &Log{values, times, skipped}, err
}

// Write appends the row of an update, and what it took. A value that is no finite number, such as the gradient norm of a
// skipped update, has no form in JSON and is left out.
func (l *Log) Write(row rl.Metric, times map[string]float64) error {
	return errors.Join(write(l.values, row.Update, row.Values), write(l.times, row.Update, times))
}

func write(r *resume.Rows, update int, values map[string]float64) error {
	values = maps.Clone(values)
	maps.DeleteFunc(values, func(_ string, v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
	return r.Append(rl.Metric{Update: update, Values: values})
}

// Begin takes over the rows of a shorter run that this one continues.
func (l *Log) Begin(shorter *artifact.Artifact) error {
	err := l.skipped.CopyFrom(shorter.Path(skippedFile))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, l.values.CopyFrom(shorter.Path(rl.MetricsFile)), l.times.CopyFrom(shorter.Path(rl.TimesFile)))
}

// Publish makes the port metrics of the job.
func (l *Log) Publish(job *engine.Job) error {
	dir, err := job.Create("metrics")
	if err != nil {
		return err
	}
	if !l.skipped.Empty() {
		err = l.skipped.CopyTo(dir, skippedFile)
	}
	return errors.Join(err, l.values.CopyTo(dir, rl.MetricsFile), l.times.CopyTo(dir, rl.TimesFile))
}
