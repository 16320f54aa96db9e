package plan_test

import (
	"slices"
	"testing"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/plan"
)

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
