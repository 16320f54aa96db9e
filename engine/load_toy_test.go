package engine

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/artifact"
)

// Kinds with the names and ports of the real kinds and every type of setting. They are never run.

type toyModel struct {
	Path   artifact.File `hcl:"path,optional"`
	Layers int           `hcl:"layers,optional"`
}

type toyTasks struct {
	Source string `hcl:"source" choices:"bfcl|drills" doc:"where the tasks come from"`
	Count  int    `hcl:"count,optional"`
	Split  *struct {
		By   string  `hcl:"by,optional"`
		Test float64 `hcl:"test,optional"`
		Seed int     `hcl:"seed,optional"`
	} `hcl:"split,block"`
}

type toyRollout struct {
	Policy  artifact.Ref `hcl:"policy" port:"checkpoint|endpoint"`
	Tasks   artifact.Ref `hcl:"tasks" port:"tasks"`
	Samples int          `hcl:"samples,optional"`
}

type toyCurate struct {
	Tasks    artifact.Ref   `hcl:"tasks" port:"tasks"`
	Failures []artifact.Ref `hcl:"failures,optional" port:"trajectories"`
	Ratio    float64        `hcl:"ratio,optional"`
}

type toyTrain struct {
	Policy  artifact.Ref       `hcl:"policy" port:"checkpoint"`
	Data    artifact.Ref       `hcl:"data" port:"dataset"`
	Epochs  int                `hcl:"epochs,optional"`
	LR      float64            `hcl:"lr,optional"`
	Warmup  *int               `hcl:"warmup,optional"`
	Limit   time.Duration      `hcl:"limit,optional"`
	Names   []string           `hcl:"names,optional"`
	Weights map[string]float64 `hcl:"weights,optional"`
	Echo    string             `hcl:"echo,optional" key:"-"`
	Tokens  *toyTokens         `hcl:"tokens,block"`
}

type toyTokens struct {
	High     float64   `hcl:"high,optional"`
	Position string    `hcl:"position,optional" choices:"first_user|before_each_action"`
	At       hcl.Range `hcl:"tokens,def_range"`
}

type toyGRPO struct {
	Policy  artifact.Ref `hcl:"policy" port:"checkpoint"`
	Tasks   artifact.Ref `hcl:"tasks" port:"tasks"`
	Updates int          `hcl:"updates,optional"`
	Group   int          `hcl:"group,optional"`
	GroupAt hcl.Range    `hcl:"group,attr_range"`
	Clip    *struct {
		Low  float64 `hcl:"low,optional"`
		High float64 `hcl:"high,optional"`
	} `hcl:"clip,block"`
}

type toyEval struct {
	Policy artifact.Ref `hcl:"policy" port:"checkpoint|endpoint"`
	Tasks  artifact.Ref `hcl:"tasks" port:"tasks"`
	Sample bool         `hcl:"sample,optional"`
}

type toyReport struct {
	Scores  []artifact.Ref `hcl:"scores,optional" port:"scores"`
	Curves  []artifact.Ref `hcl:"curves,optional" port:"metrics"`
	Compare []struct {
		Name  string     `hcl:"name,label"`
		Pairs [][]string `hcl:"pairs"`
	} `hcl:"compare,block"`
	Path string `hcl:"path,optional" key:"-"`
}

type toyExec struct {
	Command []string                 `hcl:"command"`
	Inputs  map[string]artifact.Data `hcl:"inputs,optional"`
	Outputs map[string]string        `hcl:"outputs,optional"`
}

func (s *toyExec) Publishes() []string { return slices.Collect(maps.Values(s.Outputs)) }

func (*toyModel) Check() hcl.Diagnostics   { return nil }
func (*toyTasks) Check() hcl.Diagnostics   { return nil }
func (*toyRollout) Check() hcl.Diagnostics { return nil }
func (*toyCurate) Check() hcl.Diagnostics  { return nil }
func (*toyTrain) Check() hcl.Diagnostics   { return nil }
func (*toyEval) Check() hcl.Diagnostics    { return nil }
func (*toyReport) Check() hcl.Diagnostics  { return nil }
func (*toyExec) Check() hcl.Diagnostics    { return nil }
func (s *toyGRPO) Check() hcl.Diagnostics {
	if s.Group >= 2 {
		return nil
	}
	return hcl.Diagnostics{{
		Severity: hcl.DiagError, Summary: "Group too small", Subject: s.GroupAt.Ptr(),
		Detail: fmt.Sprintf("An advantage compares trajectories of one group, so group must be at least 2; got %d.", s.Group),
	}}
}

// paperKinds is the registry of the language tests.
func paperKinds() Registry {
	ports := func(names ...string) func(Stage) map[string]string {
		types := map[string]string{"train": "tasks", "test": "tasks", "expert": "dataset", "mixed": "dataset"}
		return func(Stage) map[string]string {
			out := map[string]string{}
			for _, n := range names {
				if out[n] = n; types[n] != "" {
					out[n] = types[n]
				}
			}
			return out
		}
	}
	yes := func(Stage) bool { return true }
	train := func() Stage {
		return &toyTrain{Epochs: 1, LR: 1e-5, Tokens: &toyTokens{High: 1, Position: "first_user"}}
	}
	grpo := func() Stage {
		s := &toyGRPO{Updates: 200, Group: 8}
		s.Clip = &struct {
			Low  float64 `hcl:"low,optional"`
			High float64 `hcl:"high,optional"`
		}{0.2, 0.2}
		return s
	}
	return Registry{
		{Name: "model", Summary: "Weights.", Version: 1, New: func() Stage { return &toyModel{} },
			Outputs: ports("checkpoint"), Stochastic: func(s Stage) bool { return s.(*toyModel).Path.Path == "" }},
		{Name: "tasks", Summary: "Tasks.", Version: 1, New: func() Stage { return &toyTasks{} },
			Outputs:    ports("train", "test"),
			Stochastic: func(s Stage) bool { return s.(*toyTasks).Source == "drills" }},
		{Name: "rollout", Summary: "Episodes.", Version: 1, New: func() Stage { return &toyRollout{Samples: 1} },
			Outputs: ports("trajectories"), Stochastic: yes},
		{Name: "curate", Summary: "Data.", Version: 1, New: func() Stage { return &toyCurate{Ratio: 1} },
			Outputs: ports("expert", "mixed"), Stochastic: yes},
		{Name: "sft", Summary: "Fine-tuning.", Version: 2, New: train, Outputs: ports("checkpoint", "metrics"),
			Stochastic: yes},
		{Name: "rctp-ft", Summary: "Fine-tuning.", Version: 1, New: train,
			Outputs: ports("checkpoint", "metrics"), Stochastic: yes},
		{Name: "grpo", Summary: "Optimisation.", Version: 1, MultiGPU: true, New: grpo,
			Outputs: ports("checkpoint", "metrics", "trajectories"), Stochastic: yes},
		{Name: "rc-grpo", Summary: "Optimisation.", Version: 1, New: grpo,
			Outputs: ports("checkpoint", "metrics", "trajectories"), Stochastic: yes},
		{Name: "eval", Summary: "Scores.", Version: 1, New: func() Stage { return &toyEval{} },
			Outputs:    ports("scores", "trajectories"),
			Stochastic: func(s Stage) bool { return s.(*toyEval).Sample }},
		{Name: "report", Summary: "Page.", Version: 1, New: func() Stage { return &toyReport{} },
			Outputs: ports("page"), AcrossSeeds: true, InProcess: true, AfterFailures: true},
		{Name: "exec", Summary: "A command.", Version: 1, New: func() Stage { return &toyExec{} },
			Outputs: func(s Stage) map[string]string {
				out := map[string]string{}
				for port := range s.(*toyExec).Outputs {
					out[port] = "files"
				}
				return out
			}},
	}
}

// loadText loads an experiment from one text, with its own store.
func loadText(t *testing.T, text string, change ...func(*Source)) (*Experiment, hcl.Diagnostics) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "x.hcl")
	writeFile(t, path, text)
	writeFile(t, filepath.Join(dir, "raw.csv"), "1\n2\n")
	return Load(sourceOf(path, change...), paperKinds())
}

func sourceOf(path string, change ...func(*Source)) Source {
	src := Source{Path: path, Vars: map[string]string{}}
	for _, c := range change {
		c(&src)
	}
	return src
}

// mustLoad is loadText for a text without errors.
func mustLoad(t *testing.T, text string, change ...func(*Source)) *Experiment {
	t.Helper()
	x, diags := loadText(t, text, change...)
	if diags.HasErrors() {
		t.Fatalf("load: %s\n%s", diags, text)
	}
	return x
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
