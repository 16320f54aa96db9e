package train

import (
	"errors"
	"io/fs"
	"maps"
	"math"
	"syscall"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/stages/internal/resume"
	"rcgrpo/stages/rl"
)

// Log is the curve of a training: one row per update of computed values, and beside it, outside the digest of the
// artifact, one row of seconds and rates. It grows in the scratch folder.
type Log struct {
	values, times *resume.Rows
	skipped       *resume.Rows
}

// OpenLog opens the log of a training and keeps the rows of the updates before the restored state.
func OpenLog(t *resume.Scratch) (*Log, error) {
	values, noValues := t.Rows(rl.MetricsFile)
	times, noTimes := t.Rows(rl.TimesFile)
	skipped, noSkipped := t.Rows(skippedFile)
	return &Log{values, times, skipped}, errors.Join(noValues, noTimes, noSkipped)
}

// Write appends the row of an update and its times. It leaves out values that are not finite, because JSON has no
// form for them.
func (l *Log) Write(row rl.Metric, times map[string]float64) error {
	return errors.Join(write(l.values, row.Update, row.Values), write(l.times, row.Update, times))
}

func write(r *resume.Rows, update int, values map[string]float64) error {
	values = maps.Clone(values)
	maps.DeleteFunc(values, func(_ string, v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
	return r.Append(rl.Metric{Update: update, Values: values})
}

// CopyFrom appends the rows of a shorter run's port metrics.
func (l *Log) CopyFrom(shorter *artifact.Artifact) error {
	err := l.skipped.CopyFrom(shorter.Path(skippedFile))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, l.values.CopyFrom(shorter.Path(rl.MetricsFile)), l.times.CopyFrom(shorter.Path(rl.TimesFile)))
}

// Publish writes the port metrics.
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

// PeakMemory returns the largest resident memory of this process so far in bytes, or 0 if the system reports
// none.
func PeakMemory() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Maxrss << 10) // Linux counts KiB
}
