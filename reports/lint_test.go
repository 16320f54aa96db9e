package reports

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/stages/rl"
)

// lintKey is what two lists of findings are compared by.
func lintKey(code, group, row string, columns, printed, expected []string) string {
	if !strings.HasPrefix(code, "wrong_") {
		printed = nil // the fixtures do not always repeat them
	}
	if code == ImpossibleFraction {
		expected = nil // what should have stood there is a guess
	}
	return fmt.Sprint(code, "|", group, "|", row, "|", strings.Join(columns, ","), "|", strings.Join(printed, ","), "|", strings.Join(expected, ","))
}

func keysOf(findings []Finding) []string {
	var keys []string
	for _, f := range findings {
		keys = append(keys, lintKey(f.Code, f.Group, f.Row, f.Columns, f.Printed, f.Expected))
	}
	slices.Sort(keys)
	return keys
}

// list reads a string or a list of strings.
type list []string

func (l *list) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*l = list{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(l))
}

func TestLintFindsThePlantedFaultsAndNothingElse(t *testing.T) {
	type record struct {
		ID, Kind     string
		Columns      []string
		Denominators []int
		Rows         []struct {
			Method string
			Cells  []PercentCell
		}
		Expected []struct {
			Code, Row         string
			Columns           []string
			Printed, Expected list
		}
	}
	for _, r := range fixtureLines[record](t, "rl/linter.jsonl") {
		table := PercentTable{Columns: r.Columns, Denominators: r.Denominators}
		for _, row := range r.Rows {
			table.Rows = append(table.Rows, PercentRow{Name: row.Method, Cells: row.Cells})
		}
		findings, err := Lint(table)
		if err != nil {
			t.Fatalf("%s: %v", r.ID, err)
		}
		var want []string
		for _, f := range r.Expected {
			want = append(want, lintKey(f.Code, "", f.Row, f.Columns, f.Printed, f.Expected))
		}
		slices.Sort(want)
		if got := keysOf(findings); !slices.Equal(got, want) {
			t.Errorf("%s (%s): got\n  %s\nwant\n  %s", r.ID, r.Kind, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		}
	}
}

// TestLintOfThePapersMainTable expects the findings of the six codes, those about marks also after correction.
func TestLintOfThePapersMainTable(t *testing.T) {
	var paper struct {
		Tables []struct {
			Label string
			Rows  [][]PercentCell
		}
		ExpectedFindings []struct {
			Code, Table string
			Where       struct {
				Model, Method, Column, Values string
				Columns                       list
			}
			Printed, Expected json.RawMessage
		} `json:"expected_findings"`
		Counts []struct {
			Model, Method string
			Counts        map[string]int
		} `json:"corrected_counts"`
	}
	if err := json.Unmarshal(fixtures.Read(t, "rl/paper_tables.json"), &paper); err != nil {
		t.Fatal(err)
	}
	table := PercentTable{Denominators: []int{80, 18, 17, 22, 23}}
	for _, found := range paper.Tables {
		if found.Label != "tab:main_results" {
			continue
		}
		for _, c := range found.Rows[0][2:] {
			table.Columns = append(table.Columns, c.Text)
		}
		group := ""
		for _, row := range found.Rows[1:] {
			if row[0].Text != "" {
				group = row[0].Text
			}
			table.Rows = append(table.Rows, PercentRow{Group: group, Name: row[1].Text, Cells: row[2:]})
		}
	}
	// The same table by way of a CSV file.
	var text strings.Builder
	w := csv.NewWriter(&text)
	lines := [][]string{append([]string{"Model", "Method"}, table.Columns...)}
	for _, row := range table.Rows {
		line := []string{row.Group, row.Name}
		for _, c := range row.Cells {
			cell := c.Text
			if c.Bold {
				cell = "**" + cell + "**"
			}
			if c.Underline {
				cell = "__" + cell + "__"
			}
			line = append(line, cell)
		}
		lines = append(lines, line)
	}
	if err := w.WriteAll(lines); err != nil {
		t.Fatal(err)
	}
	fromCSV, err := ReadPercentTable(strings.NewReader(text.String()), table.Denominators, "")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(fromCSV, table) {
		t.Errorf("read back from CSV: got %+v, want %+v", fromCSV, table)
	}

	read := func(raw json.RawMessage) []string {
		var l list
		if err := json.Unmarshal(raw, &l); err != nil {
			return nil
		}
		return l
	}
	var want, wantAfter []string
	for _, f := range paper.ExpectedFindings {
		if f.Table != "tab:main_results" || !slices.Contains([]string{ImpossibleFraction, TruncatedNotRounded, ColumnsPermuted, CountsDoNotAddUp, WrongBold, WrongUnderline}, f.Code) {
			continue
		}
		columns := f.Where.Columns
		if f.Where.Column != "" {
			columns = list{f.Where.Column}
		}
		key := lintKey(f.Code, f.Where.Model, f.Where.Method, columns, read(f.Printed), read(f.Expected))
		if f.Where.Values == "after correction" {
			wantAfter = append(wantAfter, key)
		} else {
			want = append(want, key)
		}
	}
	slices.Sort(want)
	slices.Sort(wantAfter)

	findings, err := Lint(table)
	if err != nil {
		t.Fatal(err)
	}
	if got := keysOf(findings); !slices.Equal(got, want) {
		t.Errorf("as printed: got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
	corrected, err := table.Corrected()
	if err != nil {
		t.Fatal(err)
	}
	after, err := Lint(corrected)
	if err != nil {
		t.Fatal(err)
	}
	if got := keysOf(after); !slices.Equal(got, wantAfter) {
		t.Errorf("after correction: got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(wantAfter, "\n  "))
	}

	// The corrected counts are those that were derived independently, and their percentages print as such.
	for i, row := range corrected.Rows {
		r, err := corrected.read(row)
		if err != nil {
			t.Fatal(err)
		}
		for c, name := range []string{"overall", "base", "miss_func", "miss_param", "long_context"} {
			if want := paper.Counts[i].Counts[name]; r.counts[c] != want {
				t.Errorf("%s %s, %s: got %d, want %d", row.Group, row.Name, name, r.counts[c], want)
			}
		}
	}

	// A table of ours, made from episodes with these counts, gives the printed percentages but where the linter objects.
	columns := []string{"overall", "base", "miss_func", "miss_param", "long_context"}
	right, wrong := 0, 0
	for i, row := range table.Rows {
		var run Run
		for c, name := range columns[1:] {
			for k := range table.Denominators[c+1] {
				score := rl.Score{Task: fmt.Sprintf("%s_%d", name, k), Family: name, Category: name, Set: "test", Greedy: true}
				if k < paper.Counts[i].Counts[name] {
					score.Reward = 1
				}
				run.Scores = append(run.Scores, score)
			}
		}
		ours := (&Study{Arms: []Arm{{Label: row.Name, Runs: []Run{run}}}}).mainTable("test")
		for c, name := range columns {
			at := slices.IndexFunc(ours.Columns, func(column Column) bool { return strings.EqualFold(column.Name, name) })
			printed, err := strconv.ParseFloat(strings.TrimRight(strings.TrimSpace(row.Cells[c].Text), " %\\"), 64)
			if at < 0 || err != nil {
				t.Fatalf("%s, %s: column %d, printed %q", row.Name, name, at, row.Cells[c].Text)
			}
			objected := slices.ContainsFunc(findings, func(f Finding) bool {
				return f.Group == row.Group && f.Row == row.Name && slices.Contains(f.Columns, table.Columns[c])
			})
			same := math.Abs(100**ours.Rows[0].Cells[at].Value-printed) <= 0.005+1e-9 // two decimals are printed
			if same == objected {
				t.Errorf("%s %s, %s: ours %s, printed %s, objected to: %v", row.Group, row.Name, name, ours.Rows[0].Cells[at].Text, row.Cells[c].Text, objected)
			}
			if same {
				right++
			} else {
				wrong++
			}
		}
	}
	t.Logf("%d printed percentages reproduced, %d are what the linter says", right, wrong)
}

func TestLintNamesCellsThatAreNoPercentages(t *testing.T) {
	for name, table := range map[string]PercentTable{
		"a word":            {Columns: []string{"a"}, Denominators: []int{3}, Rows: []PercentRow{{Name: "r", Cells: []PercentCell{{Text: "n/a"}}}}},
		"a missing cell":    {Columns: []string{"a"}, Denominators: []int{3}, Rows: []PercentRow{{Name: "r"}}},
		"a missing n":       {Columns: []string{"a"}, Rows: []PercentRow{{Name: "r", Cells: []PercentCell{{Text: "1%"}}}}},
		"a negative number": {Columns: []string{"a"}, Denominators: []int{3}, Rows: []PercentRow{{Name: "r", Cells: []PercentCell{{Text: "-1%"}}}}},
	} {
		if _, err := Lint(table); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func TestOverallColumnIsTheOneThatSumsTheOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		n    []int
		want int
	}{
		"first":              {[]int{80, 18, 17, 22, 23}, 0},
		"last":               {[]int{8, 12, 20}, 2},
		"none":               {[]int{8, 12, 21}, -1},
		"two of equal sizes": {[]int{8, 8}, -1},
		"one":                {[]int{8}, -1},
	} {
		columns := []string{"a", "b", "c", "d", "e"}[:len(tc.n)]
		if got, err := overallColumn(columns, tc.n, ""); err != nil || got != tc.want {
			t.Errorf("%s: got %d (%v), want %d", name, got, err, tc.want)
		}
	}
}
