package enginetest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/internal/must"
)

// The settings below have the names and ports of the real kinds and cover every sort of setting that the
// decoder supports. These stages never run.

type paperModel struct {
	Path   artifact.File `hcl:"path,optional"`
	Layers int           `hcl:"layers,optional"`
}

type paperTasks struct {
	// where the tasks come from
	Source string `hcl:"source" choices:"bfcl|drills"`
	Count  int    `hcl:"count,optional"`
	Split  *struct {
		By   string  `hcl:"by,optional"`
		Test float64 `hcl:"test,optional"`
		Seed int     `hcl:"seed,optional"`
	} `hcl:"split,block"`
}

type paperRollout struct {
	Policy  artifact.Ref `hcl:"policy" port:"checkpoint|endpoint"`
	Tasks   artifact.Ref `hcl:"tasks" port:"tasks"`
	Samples int          `hcl:"samples,optional"`
}

type paperCurate struct {
	Tasks    artifact.Ref   `hcl:"tasks" port:"tasks"`
	Failures []artifact.Ref `hcl:"failures,optional" port:"trajectories"`
	Ratio    float64        `hcl:"ratio,optional"`
}

// PaperTrain holds the settings of the kinds "sft" and "rctp-ft".
type PaperTrain struct {
	Policy  artifact.Ref       `hcl:"policy" port:"checkpoint"`
	Data    artifact.Ref       `hcl:"data" port:"dataset"`
	Epochs  int                `hcl:"epochs,optional"`
	LR      float64            `hcl:"lr,optional"`
	Warmup  *int               `hcl:"warmup,optional"`
	Limit   time.Duration      `hcl:"limit,optional"`
	Names   []string           `hcl:"names,optional"`
	Weights map[string]float64 `hcl:"weights,optional"`
	Echo    string             `hcl:"echo,optional" key:"-"`
	Tokens  *paperTokens       `hcl:"tokens,block"`
}

type paperTokens struct {
	High     float64 `hcl:"high,optional"`
	Position string  `hcl:"position,optional" choices:"first_user|before_each_action"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// PaperGRPO holds the settings of the kinds "grpo" and "rc-grpo".
type PaperGRPO struct {
	Policy  artifact.Ref `hcl:"policy" port:"checkpoint"`
	Tasks   artifact.Ref `hcl:"tasks" port:"tasks"`
	Updates int          `hcl:"updates,optional"`
	Group   int          `hcl:"group,optional"`
	Clip    *paperClip   `hcl:"clip,block"`

	At map[string]hcl.Range `hcl:",ranges"`
}

type paperClip struct {
	Low  float64 `hcl:"low,optional"`
	High float64 `hcl:"high,optional"`
}

type paperEval struct {
	Policy artifact.Ref `hcl:"policy" port:"checkpoint|endpoint"`
	Tasks  artifact.Ref `hcl:"tasks" port:"tasks"`
	Sample bool         `hcl:"sample,optional"`
}

// PaperReport holds the settings of the kind "report".
type PaperReport struct {
	Scores  []artifact.Ref `hcl:"scores,optional" port:"scores"`
	Curves  []artifact.Ref `hcl:"curves,optional" port:"metrics"`
	Compare []struct {
		Name  string     `hcl:"name,label"`
		Pairs [][]string `hcl:"pairs"`
	} `hcl:"compare,block"`
	Path string `hcl:"path,optional" key:"-"`
}

// PaperExec holds the settings of the kind "exec".
type PaperExec struct {
	Command []string                 `hcl:"command"`
	Inputs  map[string]artifact.Data `hcl:"inputs,optional"`
	Outputs map[string]string        `hcl:"outputs,optional"`
}

// Publishes returns the outputs.
func (s *PaperExec) Publishes(string, string) (all []lang.Published) {
	for port, name := range s.Outputs {
		all = append(all, lang.Published{Port: port, File: name, Name: name})
	}
	return all
}

func (*paperModel) Check() hcl.Diagnostics   { return nil }
func (*paperTasks) Check() hcl.Diagnostics   { return nil }
func (*paperRollout) Check() hcl.Diagnostics { return nil }
func (*paperCurate) Check() hcl.Diagnostics  { return nil }
func (*PaperTrain) Check() hcl.Diagnostics   { return nil }
func (*paperEval) Check() hcl.Diagnostics    { return nil }
func (*PaperReport) Check() hcl.Diagnostics  { return nil }
func (*PaperExec) Check() hcl.Diagnostics    { return nil }
func (s *PaperGRPO) Check() hcl.Diagnostics {
	if s.Group >= 2 {
		return nil
	}
	return hcl.Diagnostics{{
		Severity: hcl.DiagError, Summary: "Group too small", Subject: s.At["group"].Ptr(),
		Detail: fmt.Sprintf("An advantage compares trajectories, so group must be at least 2; got %d.", s.Group),
	}}
}

// ports returns the Outputs function of a kind whose ports have their own names as types, unless given as
// "port:type".
func ports(names ...string) func(lang.Stage) map[string]string {
	out := map[string]string{}
	for _, n := range names {
		port, kind, _ := strings.Cut(n, ":")
		out[port] = cmp.Or(kind, port)
	}
	return func(lang.Stage) map[string]string { return out }
}

// PaperKinds are the kinds of testdata/valid/paper.hcl.
func PaperKinds() lang.Registry {
	always := func(lang.Stage) bool { return true }
	train := func() lang.Stage {
		return &PaperTrain{Epochs: 1, LR: 1e-5, Tokens: &paperTokens{High: 1, Position: "first_user"}}
	}
	grpo := func() lang.Stage { return &PaperGRPO{Updates: 200, Group: 8, Clip: &paperClip{0.2, 0.2}} }
	trained := ports("checkpoint", "metrics")
	optimised := ports("checkpoint", "metrics", "trajectories")
	all := lang.Registry{
		{Name: "model", New: func() lang.Stage { return &paperModel{} }, Outputs: ports("checkpoint"),
			Stochastic: func(s lang.Stage) bool { return s.(*paperModel).Path.Path == "" }},
		{Name: "tasks", New: func() lang.Stage { return &paperTasks{} }, Outputs: ports("train:tasks", "test:tasks"),
			Stochastic: func(s lang.Stage) bool { return s.(*paperTasks).Source == "drills" }},
		{Name: "rollout", New: func() lang.Stage { return &paperRollout{Samples: 1} },
			Outputs: ports("trajectories"), Stochastic: always},
		{Name: "curate", New: func() lang.Stage { return &paperCurate{Ratio: 1} },
			Outputs: ports("expert:dataset", "mixed:dataset"), Stochastic: always},
		{Name: "sft", Version: 2, New: train, Outputs: trained, Stochastic: always},
		{Name: "rctp-ft", New: train, Outputs: trained, Stochastic: always},
		{Name: "grpo", New: grpo, Outputs: optimised, Stochastic: always, MultiGPU: true},
		{Name: "rc-grpo", New: grpo, Outputs: optimised, Stochastic: always},
		{Name: "eval", New: func() lang.Stage { return &paperEval{} }, Outputs: ports("scores", "trajectories"),
			Stochastic: func(s lang.Stage) bool { return s.(*paperEval).Sample }},
		{Name: "report", New: func() lang.Stage { return &PaperReport{} }, Outputs: ports("page"),
			AcrossSeeds: true, Light: true, InProcess: true, AfterFailures: true},
		{Name: "exec", New: func() lang.Stage { return &PaperExec{} },
			Outputs: func(s lang.Stage) map[string]string {
				out := map[string]string{}
				for port := range s.(*PaperExec).Outputs {
					out[port] = "files"
				}
				return out
			}},
	}
	for _, k := range all {
		k.Summary, k.Version = k.Name+".", max(k.Version, 1)
	}
	return all
}

// LoadPaper loads a text with PaperKinds. The file raw.csv is in its folder.
func LoadPaper(t testing.TB, text string, change ...func(*lang.Source)) (*lang.Experiment, hcl.Diagnostics) {
	t.Helper()
	dir := t.TempDir()
	src := lang.Source{Path: filepath.Join(dir, "x.hcl"), Vars: map[string]string{}}
	for _, c := range change {
		c(&src)
	}
	WriteFile(t, filepath.Join(dir, "x.hcl"), text)
	WriteFile(t, filepath.Join(dir, "raw.csv"), "1\n2\n")
	return lang.Load(src, PaperKinds())
}

// MustLoadPaper is LoadPaper for a text without mistakes.
func MustLoadPaper(t testing.TB, text string, change ...func(*lang.Source)) *lang.Experiment {
	t.Helper()
	x, diags := LoadPaper(t, text, change...)
	if diags.HasErrors() {
		t.Fatalf("load: %s\n%s", diags, text)
	}
	return x
}

// PaperText returns an experiment of PaperKinds in which every file is raw.csv, for LoadPaper.
func PaperText(t testing.TB, path string) string {
	t.Helper()
	text := must.Get(os.ReadFile(path))(t)
	const raw = `file("raw.csv")`
	return strings.NewReplacer(`dir("folder")`, raw, `file("folder/raw.csv")`, raw).Replace(string(text))
}

// Keys returns the key of every node, by address, under the assumption that each output is a function of
// its node's key. Two experiments differ in the keys of all nodes that a change reaches.
func Keys(x *lang.Experiment) map[string]string {
	keys := map[string]string{}
	digest := func(from *lang.Node, port string) (string, bool) { return keys[from.Address] + port, true }
	for _, n := range x.Nodes {
		keys[n.Address], _, _ = plan.Key(n, digest)
	}
	return keys
}
