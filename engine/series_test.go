package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
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
		last, lastErr := os.ReadFile(filepath.Join(s.Dir, "last"))
		_, scanErr := fmt.Sscan(string(last), &at)
		if err := errors.Join(err, lastErr, scanErr); err != nil {
			return err
		}
		text = string(begun)
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
	kinds := lang.Registry{{Name: "counting", Summary: "Counts.", Version: 1, InProcess: true,
		New: func() lang.Stage { return &counting{} }, Outputs: enginetest.FilesOut,
		Length: func(s lang.Stage) (setting, why string) {
			if s.(*counting).Fixed {
				return "upto", "its course depends on upto"
			}
			return "upto", ""
		}}}
	store := enginetest.NewStore(t)
	var perUnit time.Duration // of the run before
	for _, tc := range []struct{ settings, from, counted string }{
		{"upto = 5", "", "5"},
		{"upto = 3", "", "3"}, // shorter than the only result
		{"upto = 8", "continues from upto = 5", "3"},
		{"upto = 8\nfrom = 1", "", "7"}, // other settings are another series
		{"upto = 9", "continues from upto = 8", "1"},
		{"upto = 4\nfixed = true", "", "4"},
		{"upto = 6\nfixed = true", "from the start, not from upto = 4: its course depends on upto", "6"},
	} {
		x, diags := enginetest.Load(t, kinds, "stage \"counting\" \"c\" {\n"+tc.settings+"\n}\n")
		if len(diags) > 0 {
			t.Fatal(diags)
		}
		planned := func() *plan.Plan {
			return must.Get(plan.New(x, store, plan.Options{}))(t)
		}
		p := planned()
		wantEqual(t, tc.settings+": plan", p.Nodes[0].ContinuesFrom, tc.from)
		had := 0
		fmt.Sscanf(tc.from, "continues from upto = %d", &had) // stays 0 for other texts
		length := time.Duration(x.Nodes[0].Stage.(*counting).Upto - had)
		wantEqual(t, tc.settings+": estimate", p.Nodes[0].Estimate, perUnit*length)
		must.OK(t, engine.Run(t.Context(), p, engine.Options{}, func(runs.Event) {}))
		m := planned().Nodes[0].Manifest
		perUnit = m.Duration() / length
		if want := strings.HasPrefix(tc.from, "continues"); (m.Begun != "") != want {
			t.Errorf("%q: key of the shorter result: got %q, want one: %v", tc.settings, m.Begun, want)
		}
		a := must.Get(store.Open(m, "out"))(t)
		settings, want := x.Nodes[0].Stage.(*counting), ""
		for n := settings.From; n < settings.Upto; n++ {
			want += fmt.Sprintln(n + 1)
		}
		wantEqual(t, tc.settings, string(must.Get(os.ReadFile(a.Path("out.txt")))(t)), want)
		wantEqual(t, tc.settings+": counted itself", string(must.Get(os.ReadFile(a.Path("times.counted")))(t)), tc.counted)
	}
	wantEqual(t, "store at the end", fmt.Sprint(store.Check()), "[] <nil>")
}
