package train

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/resume"
	"rcgrpo/stages/rl"
)

func TestMetricsRoundTripAndTimesHaveTheirOwnFile(t *testing.T) {
	dir := t.TempDir()
	job := must.Get(engine.NewJob(engine.JobSetup{Dir: dir}))(t)
	training := must.Get(resume.Open(job.Dir, 0, 0, 0))(t)
	defer training.Close()
	log := must.Get(OpenLog(training))(t)
	values := map[string]float64{"loss": 0.5, "grad_norm": math.NaN(), "kl": math.Inf(1)}
	must.OK(t, log.Write(rl.Metric{Update: 1, Values: values}, map[string]float64{"update_s": 2}))
	if len(values) != 3 {
		t.Error("Write changed the caller's values")
	}
	must.OK(t, log.Publish(job))
	read := func(file string) (rows []rl.Metric) {
		for row, err := range artifact.ReadRows[rl.Metric](filepath.Join(dir, "metrics", file)) {
			must.OK(t, err)
			rows = append(rows, row)
		}
		return rows
	}
	want := []rl.Metric{{Update: 1, Values: map[string]float64{"loss": 0.5}}} // values that are not finite are left out
	if got := read(rl.MetricsFile); !reflect.DeepEqual(got, want) {
		t.Errorf("values: got %v, want %v", got, want)
	}
	want = []rl.Metric{{Update: 1, Values: map[string]float64{"update_s": 2}}}
	if got := read(rl.TimesFile); !reflect.DeepEqual(got, want) {
		t.Errorf("times: got %v, want %v", got, want)
	}
}

// Skipped batches belong to the curve: a longer run copies them.
func TestSkippedBatchesAreInThePort(t *testing.T) {
	open := func() (dir string, job *engine.Job, log *Log) {
		dir = t.TempDir()
		job = must.Get(engine.NewJob(engine.JobSetup{Dir: dir}))(t)
		training := must.Get(resume.Open(job.Dir, 0, 0, 0))(t)
		t.Cleanup(func() { training.Close() })
		log = must.Get(OpenLog(training))(t)
		return dir, job, log
	}
	publish := func(dir string, job *engine.Job, log *Log) string {
		must.OK(t, log.Publish(job))
		text, err := os.ReadFile(filepath.Join(dir, "metrics", skippedFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return string(text)
	}
	begin := func(log *Log, shorter string) {
		must.OK(t, log.CopyFrom(&artifact.Artifact{Dir: filepath.Join(shorter, "metrics")}))
	}
	dir, job, log := open()
	if got := publish(dir, job, log); got != "" {
		t.Errorf("nothing was skipped, but the port contains %q", got)
	}
	sound := dir
	dir, job, log = open()
	begin(log, sound)
	must.OK(t, log.Dump(job, 3, []Skipped{{Update: 3, Text: "<b>", IDs: []int32{7}, Mask: []bool{true},
		Logp: Numbers([]float64{math.NaN(), math.Inf(-1), -0.5})}}, nil))
	want := `{"update":3,"logp":["NaN","-Inf",-0.5],"text":"<b>","ids":[7],"mask":[true]}` + "\n"
	if got := publish(dir, job, log); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	shorter := dir
	dir, job, log = open()
	begin(log, shorter)
	if got := publish(dir, job, log); got != want {
		t.Errorf("the longer run has %s, want %s", got, want)
	}
	if err := log.Dump(job, 4, nil, errors.New("enough")); err == nil ||
		!strings.HasPrefix(err.Error(), "enough; the skipped batches are in "+job.Dir) {
		t.Errorf("the error that ends a training: got %v", err)
	}
}
