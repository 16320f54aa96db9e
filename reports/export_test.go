package reports

import (
	"bytes"
	"strings"
	"testing"

	"rcgrpo/internal/must"
)

func TestLaTeXTablesAreWhole(t *testing.T) {
	s := synthetic(2, 40, 30)
	s.Arms[0].Label = `a_b & \c`
	p := s.Page()
	var b bytes.Buffer
	must.OK(t, p.LaTeX(&b))
	text := b.String()
	begins, ends := strings.Count(text, `\begin{longtable}`), strings.Count(text, `\end{longtable}`)
	if want := len(p.Tables()); begins < want || ends != begins { // wide ones in parts
		t.Errorf("got %d begins and %d ends, want %d tables", begins, ends, want)
	}
	// Braces that are not escaped open and close in turn, and every line of a table has its columns.
	depth := 0
	bare := strings.NewReplacer(`\\`, "", `\{`, "", `\}`, "", `\&`, "").Replace(text)
	for _, r := range bare {
		switch r {
		case '{':
			depth++
		case '}':
			depth--
		}
		if depth < 0 {
			t.Fatal("a brace closes what none opened")
		}
	}
	if depth != 0 {
		t.Errorf("%d braces stay open", depth)
	}
	for _, table := range strings.Split(bare, `\begin{longtable}`)[1:] {
		columns := strings.Count(table[:strings.Index(table, "\n")], `p{`)
		body := table[strings.Index(table, `\endfoot`)+len(`\endfoot`) : strings.Index(table, `\end{longtable}`)]
		for i, line := range strings.Split(strings.TrimSpace(body), "\n") {
			if got, want := strings.Count(line, "&"), columns-1; got != want && !strings.HasPrefix(line, `\multicolumn`) {
				t.Errorf("row %d of %.60s: got %d separators, want %d", i, table, got, want)
			}
		}
	}
}
