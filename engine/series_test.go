package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
)

// counting writes the numbers up to Upto, one per line; the numbers that it counted itself are in times.counted.
// With Fixed it cannot be extended.
type counting struct {
	Upto  int  `hcl:"upto"`
	From  int  `hcl:"from,optional"`
	Fixed bool `hcl:"fixed,optional"`
}

func (c *counting) Check() hcl.Diagnostics { return nil }

func (c *counting) Run(_ context.Context, job *engine.Job) error {
	dir, err := job.Create("out")
	if err != nil {
		return err
	}
	state, err := job.State()
	if err != nil {
		return err
	}
	text, at := "", c.From
	if s := job.Shorter(); s != nil {
		a, err := s.Open("out")
		if err != nil {
			return err
		}
		begun, err := os.ReadFile(a.Path("out.txt"))
		if err != nil {
			return err
		}
		last, err := os.ReadFile(filepath.Join(s.State, "last"))
		if err != nil {
			return err
		}
		text = string(begun)
		if _, err := fmt.Sscan(string(last), &at); err != nil {
			return err
		}
	}
	counted := 0
	for ; at < c.Upto; at++ {
		text += fmt.Sprintln(at + 1)
		counted++
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "out.txt"), []byte(text), 0o600),
		os.WriteFile(filepath.Join(dir, "times.counted"), []byte(fmt.Sprint(counted)), 0o600),
		os.WriteFile(filepath.Join(state, "last"), []byte(fmt.Sprint(at)), 0o600))
}

// A longer run resumes only from the longest shorter result of the same settings.
func TestLongerRunsResumeFromTheLongestShorterResult(t *testing.T) {
	root := t.TempDir()
	kinds := lang.Registry{{Name: "counting", Summary: "Counts.", Version: 1, InProcess: true,
		New:     func() lang.Stage { return &counting{} },
		Outputs: func(lang.Stage) map[string]string { return map[string]string{"out": "files"} },
		Length: func(s lang.Stage) (setting, why string) {
			if s.(*counting).Fixed {
				return "upto", "its course depends on upto"
			}
			return "upto", ""
		}}}
	store, err := artifact.Open(filepath.Join(root, "store"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "x.hcl")
	for _, tc := range []struct {
		settings, begins string
		counted          string
	}{
		{"upto = 5", "", "5"},
		{"upto = 3", "", "3"}, // a shorter one is made by itself
		{"upto = 8", "continues from upto = 5", "3"},
		{"upto = 8\nfrom = 1", "", "7"}, // other settings are another series
		{"upto = 9", "continues from upto = 8", "1"},
		{"upto = 4\nfixed = true", "", "4"},
		{"upto = 6\nfixed = true", "from the start, not from upto = 4: its course depends on upto", "6"},
	} {
		if err := os.WriteFile(path, []byte("experiment {}\nstage \"counting\" \"c\" {\n"+tc.settings+"\n}\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
		x, diags := lang.Load(lang.Source{Path: path}, kinds)
		if len(diags) > 0 {
			t.Fatal(diags)
		}
		p, err := plan.New(x, store, plan.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Nodes[0].ContinuesFrom; got != tc.begins {
			t.Errorf("%q: the plan says %q, want %q", tc.settings, got, tc.begins)
		}
		if err := engine.Run(t.Context(), p, engine.Options{}, func(runs.Event) {}); err != nil {
			t.Fatal(err)
		}
		if p, err = plan.New(x, store, plan.Options{}); err != nil {
			t.Fatal(err)
		}
		m := p.Nodes[0].Manifest
		if (m.Begun != "") != strings.HasPrefix(tc.begins, "continues") {
			t.Errorf("%q: the enginetest.Record says that it went on from %q", tc.settings, m.Begun)
		}
		a, err := store.Open(m, "out")
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(a.Path("out.txt"))
		if err != nil {
			t.Fatal(err)
		}
		settings := x.Nodes[0].Stage.(*counting)
		var want strings.Builder
		for n := settings.From; n < settings.Upto; n++ {
			fmt.Fprintln(&want, n+1)
		}
		if string(text) != want.String() {
			t.Errorf("%q: wrote %q, want %q", tc.settings, text, want.String())
		}
		if counted, err := os.ReadFile(a.Path("times.counted")); err != nil || string(counted) != tc.counted {
			t.Errorf("%q: counted %s itself, %v, want %s", tc.settings, counted, err, tc.counted)
		}
	}
	if problems, err := store.Check(); err != nil || len(problems) > 0 {
		t.Errorf("the store afterwards: %v, %v", problems, err)
	}
}
