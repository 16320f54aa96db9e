package page

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"rcgrpo/reports/stats"
)

func TestTableDataHoldsUnroundedNumbersAndTheirSources(t *testing.T) {
	third := 1.0 / 3
	table := &Table{Columns: []Column{{Name: "Arm"}, {Name: "Overall"}, {Name: "Note"}}, Rows: []Row{
		{Cells: []Cell{Text("a"), {Text: "33.3 %", Detail: "1/3 · 0.0 … 90.0", Value: &third, Counts: &Counts{1, 3},
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
	if got := table.CSV(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestDecimalPointsAreAligned(t *testing.T) {
	table := &Table{Columns: Columns("<Arm", "Value", "Share")}
	table.Add(NoArm, Text("a"), Number(0.851), Share(1, 2))
	table.Add(NoArm, Text("b"), Whole(1), Share(3, 4))
	table.Add(NoArm, Text("c"), Text("−12.5"), Text("–"))
	for r, want := range []string{"", ".000", "00"} {
		if got := table.pads()[r]; got[1] != want || got[0] != "" || got[2] != "" {
			t.Errorf("row %d: got pads %q, want %q in the second column", r, got, want)
		}
	}
}

func TestCountsStandOncePerTable(t *testing.T) {
	table := &Table{Columns: Columns("<Arm", "Overall", "base")}
	table.Add(NoArm, Text("a"), Share(50, 100), Share(20, 40))
	table.Add(NoArm, Text("b"), Share(10, 100), Share(3, 40))
	table.Add(NoArm, Text("c"), Share(5, 20), Share(3, 8))
	table.CountOnce()
	if want := "Rows with other numbers of episodes: c: Overall 20, base 8."; table.Lead != want {
		t.Errorf("got lead %q, want %q", table.Lead, want)
	}
	if got := []string{table.Columns[0].Detail, table.Columns[1].Detail, table.Columns[2].Detail}; !slices.Equal(got,
		[]string{"", "100 episodes", "40 episodes"}) {
		t.Errorf("got %q below the heads", got)
	}
	for r, row := range table.Rows {
		for _, cell := range row.Cells[1:] {
			if strings.Contains(cell.Detail, "/") || cell.Detail != PercentRange(*cell.Interval) {
				t.Errorf("row %d: got detail %q, want the interval only", r, cell.Detail)
			}
		}
	}
}
