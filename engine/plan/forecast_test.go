package plan_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/internal/must"
)

const forecastText = `
experiment {}
stage "model" "m" {
  path = file("raw.csv")
}
stage "tasks" "t" {
  source = "bfcl"
}
stage "grpo" "arm" {
  for_each = toset([%s])
  policy   = stage.model.m
  tasks    = stage.tasks.t.train
  updates  = each.key == "a" ? 1 : each.key == "b" ? 2 : 3
  resources {
    gpus = %d
  }
}
stage "eval" "e" {
  policy = stage.grpo.arm["a"]
  tasks  = stage.tasks.t.test
}
`

// forecastOf plans a text with all of it recorded (each stage took two seconds) but forced to run again.
func forecastOf(t *testing.T, before, now string, replace ...string) (*plan.Plan, plan.Forecast) {
	t.Helper()
	store := enginetest.NewStore(t)
	makeAll(t, before, store, enginetest.ByKey)
	p := planOf(t, now, store, plan.Options{Replace: replace})
	p.Experiment.Site = &lang.Site{CPUs: 8, GPUs: []string{"3", "5"}, Executor: "local"}
	return p, p.Forecast(t.Context())
}

type sized struct{ lang.Stage }

func (sized) EpisodeTokens() float64 { return 7200 }

func TestForecastOfAStageThatHasNeverRunIsByTheStatedThroughput(t *testing.T) {
	text := fmt.Sprintf(forecastText, `"a", "b"`, 2)
	for name, tc := range map[string]struct {
		tokens, hours float64
		unknown       int
	}{"not stated": {0, 0, 5}, "1 token per second of each GPU": {1, 4, 3}} {
		x := enginetest.MustLoadPaper(t, text)
		x.Site = &lang.Site{CPUs: 8, GPUs: []string{"3", "5"}, Executor: "local", GPUTokens: tc.tokens}
		for _, n := range x.Nodes {
			if n.Kind.Name == "grpo" {
				n.Stage = sized{n.Stage}
			}
		}
		p := must.Get(plan.New(x, enginetest.NewStore(t), plan.Options{}))(t)
		f := p.Forecast(t.Context())
		if math.Abs(f.GPUHours-tc.hours) > 1e-9 || f.Stated != f.GPUHours || f.Unknown != tc.unknown {
			t.Errorf("%s: got %v GPU hours, %v of them stated, and %d unknown; want %v and %d", name, f.GPUHours, f.Stated,
				f.Unknown, tc.hours, tc.unknown)
		}
	}
}

// placed writes where and when each node would run: "eval.e: [] from 4s".
func placed(p *plan.Plan, f plan.Forecast) []string {
	var out []string
	for _, d := range p.Nodes {
		if at, ok := f.Placements[d]; ok {
			out = append(out, fmt.Sprintf("%s: %v from %v%s", lang.ShortAddress(d.Address), at.GPUs, at.Start, at.Unfit))
		}
	}
	slices.Sort(out)
	return out
}

func TestForecastPlacesStagesOnDevicesInTheOrderOfTheScheduler(t *testing.T) {
	text := fmt.Sprintf(forecastText, `"a", "b", "c"`, 1)
	p, f := forecastOf(t, text, text, "grpo.arm")
	// Three arms of two seconds on two devices; a, which eval reads, is on the longest path and comes first.
	want := []string{"eval.e: [] from 2s",
		"grpo.arm[a]: [3] from 0s", "grpo.arm[b]: [5] from 0s", "grpo.arm[c]: [3] from 2s"}
	if got := placed(p, f); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if f.Wall != 4*time.Second || f.Work != 8*time.Second || math.Abs(f.GPUHours-6./3600) > 1e-12 || f.Unknown != 0 {
		t.Errorf("got %+v", f)
	}
	var bytes int64
	for _, d := range p.Nodes {
		if d.Verb != plan.UpToDate {
			bytes += d.Last.Bytes()
		}
	}
	if f.Bytes != bytes || bytes == 0 {
		t.Errorf("disk: got %d, want the %d bytes of the results before", f.Bytes, bytes)
	}
	text = fmt.Sprintf(forecastText, `"a", "b"`, 2)
	p, f = forecastOf(t, text, text, "grpo.arm")
	want = []string{"eval.e: [] from 2s", "grpo.arm[a]: [3 5] from 0s", "grpo.arm[b]: [3 5] from 2s"}
	if got := placed(p, f); !slices.Equal(got, want) || f.Wall != 4*time.Second {
		t.Errorf("with two GPUs each: got %v, %v, want %v", got, f.Wall, want)
	}
}

func TestEstimatesAreProportionalToTheUpdates(t *testing.T) {
	text, store := fmt.Sprintf(forecastText, `"b"`, 1), enginetest.NewStore(t) // 2 updates
	text = strings.Replace(text, "arm[\"a\"]", "arm[\"b\"]", 1)
	makeAll(t, text, store, enginetest.ByKey)
	text = strings.NewReplacer(`"b"])`, `"b", "c"])`, `"b" ? 2`, `"b" ? 5`).Replace(text)
	x := enginetest.MustLoadPaper(t, text)
	for _, n := range x.Nodes {
		if n.Kind.Name == "grpo" {
			kind := *n.Kind
			kind.Length = func(lang.Stage) (setting, why string) { return "updates", "" }
			n.Kind = &kind
		}
	}
	p := must.Get(plan.New(x, store, plan.Options{}))(t)
	p.Experiment.Site = &lang.Site{CPUs: 8, GPUs: []string{"3"}, Executor: "local"}
	for _, d := range p.Nodes {
		want := map[string]time.Duration{"b": 5 * time.Second, "c": 3 * time.Second}[d.EachKey]
		if d.Kind.Name == "grpo" && d.Estimate != want {
			t.Errorf("%s: got an estimate of %v, want %v", d.Address, d.Estimate, want)
		}
	}
	if f := p.Forecast(t.Context()); math.Abs(f.GPUHours-8./3600) > 1e-12 {
		t.Errorf("got %v GPU hours, want 8 s", f.GPUHours)
	}
}

func TestNewInstancesHaveTheEstimateOfTheOthers(t *testing.T) {
	_, f := forecastOf(t, fmt.Sprintf(forecastText, `"a"`, 1), fmt.Sprintf(forecastText, `"a", "b"`, 1))
	if f.Work != 2*time.Second || f.Bytes == 0 || f.Unknown != 0 {
		t.Errorf("got %+v", f)
	}
	_, f = forecastOf(t, "experiment {}\n", fmt.Sprintf(forecastText, `"a"`, 1))
	if f.Work != 0 || f.Unknown != 4 {
		t.Errorf("without any record: got %+v", f)
	}
}

func TestForecastNamesStagesThatCanNeverRun(t *testing.T) {
	text := fmt.Sprintf(forecastText, `"a"`, 8)
	p, f := forecastOf(t, text, text, "model.m")
	i := slices.IndexFunc(p.Nodes, func(d *plan.Planned) bool { return d.Kind.Name == "grpo" })
	if at := f.Placements[p.Nodes[i]]; !strings.Contains(at.Unfit, "requests 8 GPUs, but this machine offers 2") {
		t.Errorf("got %+v", at)
	}
	if got := f.Placements[p.Nodes[len(p.Nodes)-1]]; got.Unfit != "" || got.Executor != "local" {
		t.Errorf("its reader: got %+v", got)
	}
}
