package reports

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"rcgrpo/reports/stats"
)

func TestTableDataHoldsUnroundedNumbersAndTheirSources(t *testing.T) {
	third := 1.0 / 3
	table := &Table{Columns: []Column{{Name: "Arm"}, {Name: "Overall"}, {Name: "Note"}}, Rows: []Row{
		{Cells: []Cell{Text("a"), {Text: "33.3 %", Detail: "1/3 · 0.0 … 90.0", Value: &third, Count: 1, Of: 3,
			Interval: &stats.Interval{Low: 0, High: 0.9}, Mark: MarkBest,
			Source: Source{From: []string{"eval.a"}, By: "share"}}, Text("x, y").With("p = 1")}},
		{Cells: []Cell{Text("b"), Text("–"), Text("")}},
	}}
	want := [][]string{
		{"Arm", "Overall", "Overall, count", "Overall, of", "Overall, low", "Overall, high", "Overall, mark",
			"Overall, source", "Note", "Note, detail"},
		{"a", "0.3333333333333333", "1", "3", "0", "0.9", "best", "share — eval.a", "x, y", "p = 1"},
		{"b", "", "", "", "", "", "", "", "", ""},
	}
	if got := table.data(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestCSVOfHostileTextReadsBack(t *testing.T) {
	for _, table := range hostile("a\"b,c\n</td>").Page().tables() {
		rows := table.data()
		text := csvText(rows)
		got, err := csv.NewReader(strings.NewReader(text)).ReadAll()
		if err != nil || !reflect.DeepEqual(got, rows) {
			t.Errorf("table %s: reads back differently (%v)", table.ID, err)
		}
	}
}

func TestJSONOmitsNumbersThatItCannotRepresent(t *testing.T) {
	none, some := math.NaN(), 0.5
	p := &Page{Title: "x", Sections: []Section{{Parts: []Part{{Table: &Table{ID: "t", Columns: []Column{{Name: "c"}},
		Rows: []Row{{Cells: []Cell{
			{Text: "–", Value: &none, Interval: &stats.Unknown}, {Text: "0", Value: &some, Of: 4}}}}}}}}}}
	var b bytes.Buffer
	if err := p.JSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Tables []struct {
			Rows [][]struct{ Value, Count, Low *float64 }
		}
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	cells := got.Tables[0].Rows[0]
	if cells[0].Value != nil || cells[0].Low != nil || *cells[1].Value != 0.5 || *cells[1].Count != 0 {
		t.Errorf("got %+v", cells)
	}
}

func TestLaTeXKeepsForeignTextFromBeingCommands(t *testing.T) {
	for text, want := range map[string]string{
		`\input{x}`:        `\textbackslash{}input\{x\}`,
		"50 % & $x_1^2":    `50 \% \& \$x\_1\textasciicircum{}2`,
		"#~|<>\"":          `\#\textasciitilde{}\textbar{}\textless{}\textgreater{}\textquotedbl{}`,
		"a\nb":             "a b",
		"−1\u00a0…\u00a02": `$-$1~\ldots{}~2`,
	} {
		if got := latexText(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func TestLaTeXTablesAreWhole(t *testing.T) {
	s := synthetic(2, 40, 30)
	s.Arms[0].Label = `a_b & \c`
	p := s.Page()
	var b bytes.Buffer
	if err := p.LaTeX(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	begins, ends := strings.Count(text, `\begin{longtable}`), strings.Count(text, `\end{longtable}`)
	if want := len(p.tables()); begins < want || ends != begins { // wide ones in parts
		t.Errorf("got %d begins and %d ends, want %d tables", begins, ends, want)
	}
	for _, table := range p.tables() {
		for _, c := range table.Columns {
			if !strings.Contains(text, latexText(c.Name)+" ") {
				t.Errorf("table %s: its column %q is missing", table.ID, c.Name)
			}
		}
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
