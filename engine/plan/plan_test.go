package plan_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/internal/must"
)

func planOf(t *testing.T, text string, store *artifact.Store, o plan.Options) *plan.Plan {
	t.Helper()
	return must.Get(plan.New(enginetest.MustLoadPaper(t, text), store, o))(t)
}

func wantEqual[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// makeAll makes all results of a text.
func makeAll(t *testing.T, text string, store *artifact.Store, content enginetest.Content) []string {
	t.Helper()
	return enginetest.Make(t, planOf(t, text, store, plan.Options{}), content)
}

const chain = `
experiment {}
stage "tasks" "t" {
  source = "drills"
}
stage "model" "m" {
  path = file("raw.csv")
}
stage "curate" "data" {
  tasks = stage.tasks.t.train
}
stage "sft" "warm" {
  policy = stage.model.m
  data   = stage.curate.data.expert
  lr     = 1e-5
}
stage "grpo" "arm" {
  policy = stage.sft.warm
  tasks  = stage.tasks.t.train
}
`

func TestPlanNamesTheSmallestCause(t *testing.T) {
	const waits = "run unless unchanged: input policy may change (stage.sft.warm)"
	for name, tc := range map[string]struct {
		from, to string
		want     map[string]string
	}{
		"nothing":   {"", "", map[string]string{}},
		"a comment": {"lr     = 1e-5", "lr = 0.00001 # as in the paper", map[string]string{}},
		"a setting": {"lr     = 1e-5", "lr = 2e-5",
			map[string]string{"sft.warm": "run: settings.lr 1e-5 → 2e-5", "grpo.arm": waits}},
		"two defaults": {"lr     = 1e-5", "lr = 1e-5\n  epochs = 3\n  tokens {\n    high = 0.5\n  }",
			map[string]string{"sft.warm": "run: settings.epochs 1 → 3 and 1 more", "grpo.arm": waits}},
		"a setting outside the key": {"lr     = 1e-5", "lr = 1e-5\n  echo = \"hello\"", map[string]string{}},
		"a new stage": {"stage \"grpo\"",
			"stage \"eval\" \"e\" {\n  policy = stage.sft.warm\n  tasks = stage.tasks.t.test\n}\nstage \"grpo\"",
			map[string]string{"eval.e": "run: new"}},
		"another input": {"stage.curate.data.expert", "stage.curate.data.mixed",
			map[string]string{"sft.warm": "run: input data changed (stage.curate.data)", "grpo.arm": waits}},
	} {
		t.Run(name, func(t *testing.T) {
			store := enginetest.NewStore(t)
			makeAll(t, chain, store, enginetest.ByKey)
			got := enginetest.Causes(planOf(t, strings.Replace(chain, tc.from, tc.to, 1), store, plan.Options{}))
			wantEqual(t, "causes", got, tc.want)
		})
	}
}

func TestCauseNamesFileAndLine(t *testing.T) {
	store := enginetest.NewStore(t)
	makeAll(t, chain, store, enginetest.ByKey)
	p := planOf(t, strings.Replace(chain, "1e-5", "2e-5", 1), store, plan.Options{})
	i := slices.IndexFunc(p.Nodes, func(d *plan.Planned) bool { return d.Kind.Name == "sft" })
	cause := p.Nodes[i].Cause
	if !strings.HasSuffix(cause.String(), "x.hcl:15)") || cause.Reason != plan.ReasonSetting {
		t.Errorf("got %s, %s, want a setting at x.hcl:15", cause.Reason, cause)
	}
	if b, err := json.Marshal(cause); err != nil || !strings.Contains(string(b), `"line":15`) {
		t.Errorf("as JSON: got %s, %v, want line 15", b, err)
	}
}

// A setting returns to an older value while an input is rebuilt: the older result is reused if the input is
// unchanged.
func TestOlderResultIsReusedWhenARebuiltInputIsUnchanged(t *testing.T) {
	store := enginetest.NewStore(t)
	other := strings.Replace(chain, "1e-5", "2e-5", 1)
	for _, text := range []string{chain, other, chain} {
		makeAll(t, text, store, enginetest.ByAddress)
	}
	last := strings.Replace(other, "\"data\" {\n", "\"data\" {\n  ratio = 3\n", 1)
	p := planOf(t, last, store, plan.Options{})
	got := enginetest.Causes(p)
	wantEqual(t, "curate.data", got["curate.data"], "run: settings.ratio 1 → 3")
	wantEqual(t, "sft.warm", got["sft.warm"], "run unless unchanged: input data may change (stage.curate.data)")
	wantEqual(t, "executed", enginetest.Make(t, p, enginetest.ByAddress), []string{"stage.curate.data"})
}

func TestTargetSelectsStagesAndReplaceForcesThem(t *testing.T) {
	store := enginetest.NewStore(t)
	p := planOf(t, chain, store, plan.Options{Targets: []string{"curate.data"}})
	wantEqual(t, "the stage and its input", len(p.Nodes), 2)
	makeAll(t, chain, store, enginetest.ByKey)
	p = planOf(t, chain, store, plan.Options{Replace: []string{"sft.warm"}})
	got := enginetest.Causes(p)
	wantEqual(t, "replace", got, map[string]string{"sft.warm": "run: requested with --replace",
		"grpo.arm": "run unless unchanged: input policy may change (stage.sft.warm)"})
	_, err := plan.New(p.Experiment, store, plan.Options{Targets: []string{"sft.worm"}})
	must.Match(t, err, "did you mean sft.warm?", "an unknown target")
}

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
	wantEqual(t, "placements", placed(p, f), want)
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
	wantEqual(t, "placements with two GPUs each", placed(p, f), want)
	wantEqual(t, "time with two GPUs each", f.Wall, 4*time.Second)
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
		t.Errorf("without an earlier run: got %+v", f)
	}
}

func TestForecastNamesStagesThatCanNeverRun(t *testing.T) {
	text := fmt.Sprintf(forecastText, `"a"`, 8)
	p, f := forecastOf(t, text, text, "model.m")
	i := slices.IndexFunc(p.Nodes, func(d *plan.Planned) bool { return d.Kind.Name == "grpo" })
	must.Contain(t, f.Placements[p.Nodes[i]].Unfit, "requests 8 GPUs, but this machine offers 2")
	if got := f.Placements[p.Nodes[len(p.Nodes)-1]]; got.Unfit != "" || got.Executor != "local" {
		t.Errorf("its reader: got %+v", got)
	}
}

// Any writer of a remote store can put these names into a manifest.
func TestARecordNamesNoCopyOutsideThePathsOfTheSettings(t *testing.T) {
	x := enginetest.MustLoadPaper(t, `
experiment {}
stage "exec" "made" {
  command = ["true"]
  outputs = { out = "made" }
}
`)
	p := &plan.Plan{Experiment: x}
	for _, tc := range []struct {
		port, file string
		want       []string
	}{
		{"out", "made", []string{"made"}},
		{"out", "made/below/a.txt", []string{"made/below/a.txt"}},
		{"out", "site.hcl", nil},
		{"out", "../site.hcl", nil},
		{"out", "/etc/passwd", nil},
		{"out", "study.hcl", nil},
		{"out", ".git/hooks/post-checkout", nil},
		{"out", "madeup", nil},
		{"out", "made/../site.hcl", nil},
		{"out", "made/../../site.hcl", nil},
		{"out", "made/below/../../.git/hooks/post-checkout", nil},
		{"out", "made//site.hcl", nil},
		{"other", "made", nil},
	} {
		m := &artifact.Manifest{Key: "k", Outputs: map[string]artifact.Output{
			tc.port: {Type: "files", Files: []artifact.FileInfo{{Name: tc.file}}}}}
		var got []string
		for _, c := range p.Copies(x.Nodes[0], m) {
			got = append(got, c.To)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("file %q of port %s: got copies %q, want %q", tc.file, tc.port, got, tc.want)
		}
	}
}
