package lint

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
)

// lintKey is the part of a finding that the fixtures determine.
func lintKey(code, group, row string, columns, printed, expected []string) string {
	if !strings.HasPrefix(code, "wrong_") {
		printed = nil // the fixtures do not always repeat them
	}
	if code == ImpossibleFraction {
		expected = nil // the correct value is a guess
	}
	return fmt.Sprint(code, "|", group, "|", row, "|", strings.Join(columns, ","), "|", strings.Join(printed, ","),
		"|", strings.Join(expected, ","))
}

func keysOf(findings []Finding) []string {
	var keys []string
	for _, f := range findings {
		keys = append(keys, lintKey(f.Code, f.Block, f.Row, f.Columns, f.Printed, f.Expected))
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

func TestCheckFindsThePlantedErrorsAndNothingElse(t *testing.T) {
	type record struct {
		ID, Kind     string
		Columns      []string
		Denominators []int
		Rows         []struct {
			Method string
			Cells  []Cell
		}
		Expected []struct {
			Code, Row         string
			Columns           []string
			Printed, Expected list
		}
	}
	fixtures.Records(t, "rl/linter.jsonl", func(r record) {
		table := Table{Columns: r.Columns, Denominators: r.Denominators}
		for _, row := range r.Rows {
			table.Rows = append(table.Rows, Row{Name: row.Method, Cells: row.Cells})
		}
		findings, err := Check(table)
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
	})
}

func TestFindingsOfThePapersMainTable(t *testing.T) {
	var paper struct {
		Tables []struct {
			Label string
			Rows  [][]Cell
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
	must.OK(t, json.Unmarshal(fixtures.Read(t, "rl/paper_tables.json"), &paper))
	var text strings.Builder
	w := csv.NewWriter(&text)
	for _, found := range paper.Tables {
		if found.Label != "tab:main_results" {
			continue
		}
		for i, row := range found.Rows {
			line := []string{row[0].Text, row[1].Text}
			for _, c := range row[2:] {
				mark := map[bool]string{true: "**"}[c.Bold && i > 0] + map[bool]string{true: "__"}[c.Underline && i > 0]
				line = append(line, mark+c.Text+mark)
			}
			if i == 0 {
				line[0], line[1] = "Model", "Method"
			}
			must.OK(t, w.Write(line))
		}
	}
	w.Flush()
	table := must.Get(ReadTable(strings.NewReader(text.String()), []int{80, 18, 17, 22, 23}, ""))(t)
	read := func(raw json.RawMessage) []string {
		var l list
		if err := json.Unmarshal(raw, &l); err != nil {
			return nil
		}
		return l
	}
	codes := []string{ImpossibleFraction, TruncatedNotRounded, ColumnsPermuted, CountsDoNotAddUp, WrongBold,
		WrongUnderline}
	var want []string
	for _, f := range paper.ExpectedFindings {
		if f.Table != "tab:main_results" || !slices.Contains(codes, f.Code) || f.Where.Values == "after correction" {
			continue
		}
		columns := f.Where.Columns
		if f.Where.Column != "" {
			columns = list{f.Where.Column}
		}
		want = append(want, lintKey(f.Code, f.Where.Model, f.Where.Method, columns, read(f.Printed), read(f.Expected)))
	}
	slices.Sort(want)
	findings := must.Get(Check(table))(t)
	if got := keysOf(findings); !slices.Equal(got, want) {
		t.Errorf("as printed: got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
	for i, got := range must.Get(Counts(table))(t) { // as derived independently
		r := table.Rows[i]
		for c, name := range []string{"overall", "base", "miss_func", "miss_param", "long_context"} {
			if want := paper.Counts[i].Counts[name]; got[c] != want {
				t.Errorf("%s %s, %s: got %d, want %d", r.Block, r.Name, name, got[c], want)
			}
		}
	}
}

func TestCellsThatAreNoPercentagesAreErrors(t *testing.T) {
	for name, table := range map[string]Table{
		"a word": {Columns: []string{"a"}, Denominators: []int{3},
			Rows: []Row{{Name: "r", Cells: []Cell{{Text: "n/a"}}}}},
		"a missing cell": {Columns: []string{"a"}, Denominators: []int{3}, Rows: []Row{{Name: "r"}}},
		"a missing n":    {Columns: []string{"a"}, Rows: []Row{{Name: "r", Cells: []Cell{{Text: "1%"}}}}},
		"a negative number": {Columns: []string{"a"}, Denominators: []int{3},
			Rows: []Row{{Name: "r", Cells: []Cell{{Text: "-1%"}}}}},
	} {
		if _, err := Check(table); err == nil {
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
