package exec

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
)

func TestMistakesAreReported(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*settings)
		want   []string
	}{
		"nothing wrong":      {func(s *settings) {}, nil},
		"no program":         {func(s *settings) { s.Command = nil }, []string{"Empty command"}},
		"no output":          {func(s *settings) { s.Outputs = nil }, []string{"No output"}},
		"outside the folder": {func(s *settings) { s.Outputs["out"] = "../x" }, []string{"Bad output path"}},
		"the folder itself":  {func(s *settings) { s.Outputs["out"] = "./" }, []string{"Bad output path"}},
		"same path twice":    {func(s *settings) { s.Outputs["more"] = "./out.txt" }, []string{"Output twice"}},
		"clock times":        {func(s *settings) { s.Outputs["out"] = "a/times.json" }, []string{"Bad output path"}},
		"name with a hyphen": {func(s *settings) { s.Inputs = map[string]artifact.Data{"a-b": {}} },
			[]string{"Bad variable name"}},
		"input and output": {func(s *settings) { s.Inputs = map[string]artifact.Data{"out": {}} },
			[]string{"Variable twice"}},
		"input called PATH": {func(s *settings) { s.Inputs = map[string]artifact.Data{"PATH": {}} },
			[]string{"Reserved variable"}},
		"own PATH is allowed": {func(s *settings) { s.Env = map[string]string{"PATH": "/bin"} }, nil},
		"secret set by env": {func(s *settings) { s.Env = map[string]string{"T": "1"}; s.Secrets = []string{"T"} },
			[]string{"Variable twice"}},
		"NUL in a variable": {func(s *settings) { s.Env = map[string]string{"A": "\x00"} }, []string{"Bad variable"}},
	} {
		s := &settings{Command: []string{"true"}, Outputs: map[string]string{"out": "out.txt"}}
		tc.change(s)
		var got []string
		for _, d := range s.Check() {
			got = append(got, d.Summary)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestPortOfOneFileIsPassedAsThatFile(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	must.OK(t, os.MkdirAll(in, 0o700))
	must.OK(t, os.WriteFile(filepath.Join(in, "words.txt"), []byte("b\na\n"), 0o600))
	ref := artifact.Ref{Kind: "exec", Name: "first", Port: "out", Type: "files"}
	s := &settings{
		Command: []string{"sh", "-c", `sort "$src" > "$sorted"; echo "$LANG" > made/lang; ls >> made/lang`},
		Inputs:  map[string]artifact.Data{"src": {Ref: ref}},
		Outputs: map[string]string{"sorted": "deep/sorted.txt", "made": "made/"},
		Env:     map[string]string{"LANG": "C"},
	}
	job := must.Get(engine.NewJob(engine.JobSetup{Dir: filepath.Join(dir, "job"),
		Inputs: map[artifact.Ref]string{ref: in}}))(t)
	must.OK(t, os.MkdirAll(filepath.Join(job.Dir, "run", "left"), 0o700)) // of an attempt before
	must.OK(t, s.Run(t.Context(), job))
	got := map[string]string{}
	for _, name := range []string{"sorted/sorted.txt", "made/made/lang"} {
		got[name] = string(must.Get(os.ReadFile(filepath.Join(dir, "job", name)))(t))
	}
	want := map[string]string{"sorted/sorted.txt": "a\nb\n", "made/made/lang": "C\ndeep\nmade\n"}
	if !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
