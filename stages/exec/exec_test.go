package exec

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
)

func TestBlanksBetweenShellWordsDoNotChangeTheKey(t *testing.T) {
	for text, want := range map[string]string{
		"cp  src.txt \t a.txt":          "cp src.txt a.txt",
		"  a\n   b ;  c  \n":            "a\nb ; c\n",
		`echo "a  b"  'c  d'   e\  f`:   `echo "a  b" 'c  d' e\  f`,
		`echo "a\"  b"   c`:             `echo "a\"  b" c`,
		"a  `b  c`  d":                  "a `b  c` d",
		"a $(b   c)  d":                 "a $(b c) d",
		"cat <<E\n a  b\nE\n":           "cat <<E\n a  b\nE\n",
		"echo $'it\\'s  odd'":           "echo $'it\\'s  odd'",
		"IFS=,;  set -- $x":             "IFS=,;  set -- $x",
		"a  # it's  b":                  "a  # it's  b",
		`echo "$(grep "a  b"   f)"`:     `echo "$(grep "a  b"   f)"`,
		`echo  "unfinished`:             `echo  "unfinished`,
		"a \\\n   b":                    "a \\\n b",
		`echo "  lead"` + "\n" + "  x ": `echo "  lead"` + "\nx",
	} {
		if got := plain(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	words := command{"echo", "-c", "a  b"}
	if got := words.Canonical().([]string); got[2] != "a  b" {
		t.Errorf("a program that is no shell: got %q, want the word as it is", got[2])
	}
}

// FuzzPlain checks that a text and its normalized form are equal for the shell's parser, and that normalization is
// idempotent.
func FuzzPlain(f *testing.F) {
	for _, text := range []string{`echo "a  b"  c`, "a  `b  c`", `x\  y`, `echo "$(a "b  c")"`, "a\n  b", "$( ( a  ) )"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		once := plain(text)
		if twice := plain(once); twice != once {
			t.Errorf("%q: plain gives %q, and again %q", text, once, twice)
		}
		strip := strings.NewReplacer(" ", "", "\t", "")
		if got, want := strip.Replace(once), strip.Replace(text); got != want {
			t.Errorf("%q: got %q, want the same but for blanks", text, once)
		}
	})
}

// The shell prints the same words for an echo and for its normalized form.
func TestNormalizedShellTextsHaveTheSameWords(t *testing.T) {
	for _, text := range []string{
		`printf '<%s>' a   b "c   d" 'e  f' g\  h`,
		`printf '<%s>'   $(echo   a    b)  "$(echo "x   y")"`,
		"printf '<%s>'  `echo  a   b`\nprintf  x   \\\n   y",
	} {
		var out [2]string
		for i, form := range []string{text, plain(text)} {
			out[i] = string(must.Get(exec.Command("/bin/sh", "-c", form).Output())(t))
		}
		if out[0] != out[1] {
			t.Errorf("%q: got %q, want %q", plain(text), out[1], out[0])
		}
	}
}

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
		s := &settings{Command: command{"true"}, Outputs: map[string]string{"out": "out.txt"}}
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
		Command: command{"sh", "-c", `sort "$src" > "$sorted"; echo "$LANG" > made/lang; ls >> made/lang`},
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
