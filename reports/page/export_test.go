package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/reports/stats"
)

func TestCSVOfHostileTextReadsBack(t *testing.T) {
	table := &Table{Columns: Columns("<a\"b,c\n</td>", "d"), Rows: []Row{{Cells: []Cell{Text("'\n;,"), Text("=1")}}}}
	rows := table.CSV()
	got, err := csv.NewReader(strings.NewReader(csvText(rows))).ReadAll()
	if want := Inert(rows); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestCSVCellsAreNoFormulas(t *testing.T) {
	for text, want := range map[string]string{
		"=HYPERLINK(1)": "'=HYPERLINK(1)", "+1+cmd": "'+1+cmd", "-2+3": "'-2+3", "@SUM(A1)": "'@SUM(A1)", "\t=1": "'\t=1",
		"\r=1": "'\r=1", "\n=1": "'\n=1", "＝1": "'＝1", "-": "'-",
		"-1.5e-3": "-1.5e-3", "+3": "+3", "": "", "a=b": "a=b", "'=1": "'=1",
	} {
		if got := Inert([][]string{{text}})[0][0]; got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestJSONOmitsNumbersThatItCannotRepresent(t *testing.T) {
	none, some := math.NaN(), 0.5
	p := &Page{Title: "x", Sections: []Section{{Parts: []Part{{Table: &Table{ID: "t", Columns: []Column{{Name: "c"}},
		Rows: []Row{{Cells: []Cell{
			{Text: "–", Value: &none, Interval: &stats.Unknown}, {Text: "0", Value: &some, Counts: &Counts{0, 4}}}}}}}}}}}
	var b bytes.Buffer
	must.OK(t, p.JSON(&b))
	var got Page
	must.OK(t, json.Unmarshal(b.Bytes(), &got))
	cells := got.Sections[0].Parts[0].Table.Rows[0].Cells
	if cells[0].Value != nil || cells[0].Interval != nil || *cells[1].Value != 0.5 || cells[1].Of != 4 {
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

// The packed library is the published file, unchanged (assets/README.md names it).
func TestChartLibraryIsThePublishedFile(t *testing.T) {
	text := must.Get(library())(t)
	sum := sha256.Sum256([]byte(text))
	const want = "bf4a223524e40b77c304bec67e1222cf551f14880cf42c69dc046558e11c07b1"
	if got := hex.EncodeToString(sum[:]); got != want {
		t.Errorf("sha256 of echarts.min.js: got %s, want %s", got, want)
	}
	readme, err := os.ReadFile("assets/README.md")
	if err != nil || !bytes.Contains(readme, []byte(want)) {
		t.Errorf("assets/README.md does not name %s (%v)", want, err)
	}
}
