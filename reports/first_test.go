package reports

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func TestForestBlocksShowIntervalEffectAndDetectableDifferences(t *testing.T) {
	low, high, detectable := -2.0, 2.0, 3.0
	for want, e := range map[string]Effect{
		" ░├─●─┤░ ": {Effect: 0, Low: &low, High: &high, Detectable: &detectable},
		"  ├─┼●┤  ": {Effect: 1, Low: &low, High: &high},
		"  ○ │ ○● ": {Effect: 3, PerSeed: []float64{-2, 2}},
	} {
		if got := e.forestBlocks(-4, 4, 9); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Every format shows the question, a verdict with its number, the forest plot, the arms and what was run.
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
		if err := tc.write(&b); err != nil {
			t.Fatal(err)
		}
		text := strings.NewReplacer("&#43;", "+", `$-$`, "−", "{[}", "[", "{]}", "]", `\[`, "[", `\]`, "]", "{-}", "-",
			`\allowbreak{}`, "", "\n  ", " ").Replace(b.String())
		for _, want := range []string{"Do reward tokens keep groups informative", string(p.Answers[0].Verdict), number,
			tc.plot, "Success on test tasks, greedy", "Limits of this result", "3 seeds (1, 2, 3)"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q", format, want)
			}
		}
	}
}

func TestTheTableOfArmsHasDifferencesAtItsMargins(t *testing.T) {
	s := synthetic(1, 40, 8)
	table := s.crossTable("test")
	if len(table.Rows) != 3 || len(table.Columns) != 4 {
		t.Fatalf("got %d rows and %d columns, want two initialisations, two methods and their differences",
			len(table.Rows), len(table.Columns))
	}
	value := func(row, column int) float64 { return *table.Rows[row].Cells[column].Value }
	for r := range 2 {
		close12(t, "difference of the methods", value(r, 3), value(r, 2)-value(r, 1))
		close12(t, "difference of the initialisations", value(2, r+1), value(1, r+1)-value(0, r+1))
	}
	s.Arms = s.Arms[:3] // one of four arms is missing
	if s.crossTable("test") != nil {
		t.Error("got a table of three arms")
	}
}
