package reports

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/reports/page"
)

// Every format shows the question, a verdict with its number, the forest plot, the arms and the run.
func TestTheFirstScreenIsInEveryFormat(t *testing.T) {
	p := synthetic(3, 40, 50).Page()
	number := p.Answers[0].Number()
	for format, tc := range map[string]struct {
		write func(io.Writer) error
		plot  string
	}{
		"HTML":     {p.HTML, `id="fig-answer-chart"`},
		"Markdown": {p.Markdown, "├"},
		"text":     {func(w io.Writer) error { return p.Text(w, 100) }, "├"},
		"LaTeX":    {p.LaTeX, `\begin{picture}`},
	} {
		var b bytes.Buffer
		must.OK(t, tc.write(&b))
		text := strings.NewReplacer("&#43;", "+", `$-$`, "−", "{[}", "[", "{]}", "]", `\[`, "[", `\]`, "]", "{-}", "-",
			`\allowbreak{}`, "", "\n  ", " ", `$\to$`, "→", `$\gets$`, "←").Replace(b.String())
		t.Run(format, func(t *testing.T) {
			wantAll(t, text, "Do reward tokens keep groups informative", string(p.Answers[0].Verdict), number, tc.plot,
				"Success on test tasks", "expected higher →", "expected lower ←", "too small to be detected",
				"RC-GRPO minus GRPO", "Limits of this result", "3 seeds (1, 2, 3)")
		})
	}
}

func TestTheTableOfArmsHasDifferencesAtItsMargins(t *testing.T) {
	s := synthetic(1, 40, 8)
	table := s.crossTable("test")
	if len(table.Rows) != 6 || len(table.Columns) != 4 {
		t.Fatalf("got %d rows and %d columns, want two initialisations, two methods and their differences, of success and "+
			"of groups without variance", len(table.Rows), len(table.Columns))
	}
	if group, last := table.Rows[3].Group, table.Rows[5].Cells[0].Text; group != "Groups without variance" ||
		last != "RCTP-FT minus SFT" {
		t.Errorf("got %q in the group %q, want RCTP-FT minus SFT in Groups without variance", last, group)
	}
	value := func(row, column int) float64 { return *table.Rows[row].Cells[column].Value }
	for _, first := range []int{0, 3} {
		for r := range 2 {
			close12(t, "difference of the methods", value(first+r, 3), value(first+r, 2)-value(first+r, 1))
			close12(t, "difference of the initialisations", value(first+2, r+1), value(first+1, r+1)-value(first, r+1))
		}
	}
	s.Arms = s.Arms[:3] // one of four arms is missing
	if s.crossTable("test") != nil {
		t.Error("got a table of three arms")
	}
}

func TestAForestPlotNamesACommonSecondArmInItsTitle(t *testing.T) {
	effects := []page.Effect{{Outcome: "success", A: "a", B: "c"}, {Outcome: "success", A: "b", B: "c"}}
	if got := forests("x", effects)[0].Figure.Title; !strings.HasPrefix(got, "c minus each other arm") {
		t.Errorf("got %q", got)
	}
}

func TestTheLineOfTheRunNamesTheComparedArms(t *testing.T) {
	s := synthetic(1, 10, 8)
	want := "SFT + GRPO and RCTP-FT + RC-GRPO compared, 4 more arms below"
	if got := s.runLine(); !strings.Contains(got, want) {
		t.Errorf("got %q, want %q in it", got, want)
	}
}
