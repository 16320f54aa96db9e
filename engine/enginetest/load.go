// Package enginetest supports tests of the engine and of packages around it. Lab runs experiments of toy
// kinds, Executor is the suite that every executor must pass, LoadPaper and Load read experiments, Make
// commits results without running.
package enginetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
)

// Load reads an experiment that consists of the given stages.
func Load(t testing.TB, kinds lang.Registry, stages string) (*lang.Experiment, hcl.Diagnostics) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.hcl")
	WriteFile(t, path, "experiment {}\n"+stages)
	return lang.Load(lang.Source{Path: path}, kinds)
}

// WriteFile writes a file.
func WriteFile(t testing.TB, path, text string) {
	t.Helper()
	must.OK(t, os.WriteFile(path, []byte(text), 0o644))
}

// Mistakes returns the diagnostics as lines "summary: detail".
func Mistakes(diags hcl.Diagnostics) string {
	var lines []string
	for _, d := range diags {
		lines = append(lines, d.Summary+": "+d.Detail)
	}
	return strings.Join(lines, "\n")
}

// Node returns the first node of a kind, or nil.
func Node(x *lang.Experiment, kind string) *lang.Node {
	for _, n := range x.Nodes {
		if n.Kind.Name == kind {
			return n
		}
	}
	return nil
}

// Given returns the kind `given`, whose outputs are the given ports and types. It replaces the stages that
// a tested stage reads.
func Given(ports map[string]string) *lang.Kind {
	return &lang.Kind{Name: "given", Summary: "Given.", New: func() lang.Stage { return &given{} },
		Outputs: func(lang.Stage) map[string]string { return ports }}
}

type given struct{}

func (given) Check() hcl.Diagnostics { return nil }
