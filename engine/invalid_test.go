package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
)

// Every file of testdata/invalid holds its mistakes with the summary expected on the guilty line, after "# ERROR:";
// what stands after a semicolon must be in the sentences. There must be these diagnostics and no others.
func TestInvalidFilesAreToldAtTheRightLine(t *testing.T) {
	paths, err := filepath.Glob("testdata/invalid/*.hcl")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".hcl"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var want, got []string
			said := map[string]string{}
			for i, line := range strings.Split(string(text), "\n") {
				if _, expected, ok := strings.Cut(line, "# ERROR: "); ok {
					summary, detail, _ := strings.Cut(expected, " ; ")
					at := fmt.Sprintf("%d: %s", i+1, strings.TrimSpace(summary))
					want = append(want, at)
					said[at] = strings.TrimSpace(detail)
				}
			}
			x, diags := Load(Source{Path: path}, paperKinds())
			for _, d := range diags {
				if d.Severity != hcl.DiagError {
					continue
				}
				line := 0
				if d.Subject != nil {
					line = d.Subject.Start.Line
				}
				at := fmt.Sprintf("%d: %s", line, d.Summary)
				got = append(got, at)
				if !strings.Contains(d.Detail, said[at]) {
					t.Errorf("%s: got %q, want %q in it", at, d.Detail, said[at])
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q\n%s", got, want, diags)
			}
			var shown strings.Builder
			WriteDiagnostics(&shown, diags, x.Files, false)
			if !strings.Contains(shown.String(), "^") || strings.Contains(shown.String(), "%!") {
				t.Errorf("told as:\n%s", shown.String())
			}
		})
	}
}
