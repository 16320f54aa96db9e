package metrics

import (
	"math"
	"path/filepath"
	"reflect"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/stages/internal/resume"
	"rcgrpo/stages/rl"
)

func TestRowsAreReadBackAndTimesStandApart(t *testing.T) {
	dir := t.TempDir()
	job, err := engine.NewJob(engine.JobSetup{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	training, err := resume.Open(job.Dir, resume.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	defer training.Close()
	log, err := Open(training)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{"loss": 0.5, "grad_norm": math.NaN(), "kl": math.Inf(1)}
	if err := log.Write(rl.Metric{Update: 1, Values: values}, map[string]float64{"update_s": 2}); err != nil {
		t.Fatal(err)
	}
	if len(values) != 3 {
		t.Error("Write changed the caller's values")
	}
	if err := log.Publish(job); err != nil {
		t.Fatal(err)
	}
	read := func(file string) (rows []rl.Metric) {
		for row, err := range artifact.ReadRows[rl.Metric](filepath.Join(dir, "metrics", file)) {
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, row)
		}
		return rows
	}
	want := []rl.Metric{{Update: 1, Values: map[string]float64{"loss": 0.5}}} // what is no finite number is left out
	if got := read(rl.MetricsFile); !reflect.DeepEqual(got, want) {
		t.Errorf("values: got %v, want %v", got, want)
	}
	want = []rl.Metric{{Update: 1, Values: map[string]float64{"update_s": 2}}}
	if got := read(rl.TimesFile); !reflect.DeepEqual(got, want) {
		t.Errorf("times: got %v, want %v", got, want)
	}
}
