package enginetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine"
)

// Load reads an experiment of these stages as a file would give it.
func Load(t testing.TB, kinds engine.Registry, stages string) (*engine.Experiment, hcl.Diagnostics) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.hcl")
	if err := os.WriteFile(path, []byte("experiment {}\n"+stages), 0o600); err != nil {
		t.Fatal(err)
	}
	return engine.Load(engine.Source{Path: path}, kinds)
}

// Mistakes writes "summary: detail" of each, a line each.
func Mistakes(diags hcl.Diagnostics) string {
	var said []string
	for _, d := range diags {
		said = append(said, d.Summary+": "+d.Detail)
	}
	return strings.Join(said, "\n")
}

// Node is the first node of a kind; nil when there is none.
func Node(x *engine.Experiment, kind string) *engine.Node {
	for _, n := range x.Nodes {
		if n.Kind.Name == kind {
			return n
		}
	}
	return nil
}

// Given is the kind `given`: it stands for the stages whose outputs a tested one reads, by port and type.
func Given(ports map[string]string) *engine.Kind {
	return &engine.Kind{Name: "given", Summary: "Given.", New: func() engine.Stage { return &given{} },
		Outputs: func(engine.Stage) map[string]string { return ports }}
}

type given struct{}

func (given) Check() hcl.Diagnostics { return nil }
