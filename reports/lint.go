package reports

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// PercentTable is a table of percentages with known denominators, as it was printed.
type PercentTable struct {
	Columns      []string
	Denominators []int
	Overall      int // column over all tasks, whose count is the sum of the others'; -1: none
	Rows         []PercentRow
}

// PercentRow is one row; marks are compared among the rows of one Group.
type PercentRow struct {
	Group, Name string
	Cells       []PercentCell
}

// PercentCell is a percentage as printed ("4.54%"), with its marks.
type PercentCell struct {
	Text            string
	Bold, Underline bool
}

// Codes of findings.
const (
	ImpossibleFraction  = "impossible_fraction"   // no count of n gives the figure, by rounding half up or truncation
	TruncatedNotRounded = "truncated_not_rounded" // only truncation does
	ColumnsPermuted     = "columns_permuted"      // impossible cells of a row fit when moved, and then add up
	CountsDoNotAddUp    = "counts_do_not_add_up"  // the overall figure contradicts the others
	WrongBold           = "wrong_bold"            // bold is not the set of largest values
	WrongUnderline      = "wrong_underline"       // underlined is not the set of second-largest values
)

// Finding is one thing that cannot be right in a table.
type Finding struct {
	Code     string   `json:"code"`
	Group    string   `json:"group,omitempty"`
	Row      string   `json:"row,omitempty"`      // "" for marks, which are about a column of a group
	Columns  []string `json:"columns"`            // as printed
	Printed  []string `json:"printed"`            // texts; for marks the marked rows
	Expected []string `json:"expected,omitempty"` // what should stand there, where that can be told
}

func (f Finding) String() string {
	place := strings.Join(f.Columns, ", ")
	if row := strings.TrimSpace(f.Group + " " + f.Row); row != "" {
		place = row + ", " + place
	}
	printed := strings.Join(f.Printed, ", ")
	if printed == "" {
		printed = "nothing is marked"
	}
	text := fmt.Sprintf("%s: %s: %s", f.Code, place, printed)
	if len(f.Expected) > 0 {
		text += "; expected " + strings.Join(f.Expected, ", ")
	}
	return text
}

// Lint returns what cannot be, row by row and then column by column. An error names a cell that is no percentage.
func Lint(t PercentTable) ([]Finding, error) {
	if len(t.Denominators) != len(t.Columns) {
		return nil, fmt.Errorf("table has %d columns and %d denominators", len(t.Columns), len(t.Denominators))
	}
	var findings []Finding
	for _, r := range t.Rows {
		row, err := t.read(r)
		if err != nil {
			return nil, err
		}
		findings = append(findings, row.findings()...)
	}
	return append(findings, t.markFindings()...), nil
}

// Corrected is the table with what Lint could repair: moved values are back, figures rounded, and a single impossible
// one derived from the others. Marks stay where they were, so Lint of the result tells which of them are wrong then.
func (t PercentTable) Corrected() (PercentTable, error) {
	rows := make([]PercentRow, len(t.Rows))
	for i, r := range t.Rows {
		row, err := t.read(r)
		if err != nil {
			return t, err
		}
		r.Cells = slices.Clone(r.Cells)
		for c, n := range row.corrected() {
			if n >= 0 {
				r.Cells[c].Text = row.print(n, c)
			}
		}
		rows[i] = r
	}
	t.Rows = rows
	return t, nil
}

// percentRow is a row as whole numbers of its last printed digit.
type percentRow struct {
	PercentRow
	table  PercentTable
	values []int // 454 for "4.54%"
	digits []int // decimals printed
	counts []int // count that gives the value, -1: none
	exact  []bool
}

func (t PercentTable) read(r PercentRow) (*percentRow, error) {
	if len(r.Cells) != len(t.Columns) {
		return nil, fmt.Errorf("row %q has %d cells, want %d", r.Name, len(r.Cells), len(t.Columns))
	}
	row := &percentRow{PercentRow: r, table: t}
	for i, c := range r.Cells {
		value, digits, err := readPercent(c.Text)
		if err != nil {
			return nil, fmt.Errorf("row %q, column %q: %w", r.Name, t.Columns[i], err)
		}
		count, exact := countFor(value, digits, t.Denominators[i])
		row.values, row.digits = append(row.values, value), append(row.digits, digits)
		row.counts, row.exact = append(row.counts, count), append(row.exact, exact)
	}
	return row, nil
}

// readPercent reads "4.54%" as 454 with two decimals.
func readPercent(text string) (value, digits int, err error) {
	number := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "%"))
	whole, fraction, _ := strings.Cut(number, ".")
	value, err = strconv.Atoi(whole + fraction)
	if err != nil || value < 0 || len(fraction) > 6 {
		return 0, 0, fmt.Errorf("%q is no percentage", text)
	}
	return value, len(fraction), nil
}

func scale(digits int) int {
	s := 100
	for range digits {
		s *= 10
	}
	return s
}

func rounded(k, n, digits int) int   { return (2*k*scale(digits) + n) / (2 * n) }
func truncated(k, n, digits int) int { return k * scale(digits) / n }

// countFor finds k with k/n giving the value: by rounding (exact), or else by truncation. -1 when there is none.
func countFor(value, digits, n int) (k int, exact bool) {
	if n <= 0 {
		return -1, false
	}
	near := value * n / scale(digits)
	cut := -1
	for k := max(0, near-1); k <= min(n, near+2); k++ {
		switch value {
		case rounded(k, n, digits):
			return k, true
		case truncated(k, n, digits):
			cut = k
		}
	}
	return cut, false
}

func (r *percentRow) print(count, column int) string {
	digits := r.digits[column]
	value := rounded(count, r.table.Denominators[column], digits)
	text := fmt.Sprintf("%0*d", digits+1, value)
	if digits > 0 {
		text = text[:len(text)-digits] + "." + text[len(text)-digits:]
	}
	return text + "%"
}

func (r *percentRow) impossible() []int {
	var columns []int
	for c, k := range r.counts {
		if k < 0 {
			columns = append(columns, c)
		}
	}
	return columns
}

// moved finds how to move the values of the impossible cells among themselves so that each is a fraction of its
// column's denominator and the counts add up: from[i] is the column whose value belongs into columns[i].
func (r *percentRow) moved(columns []int) (from, counts []int) {
	if len(columns) < 2 || r.table.Overall < 0 || slices.Contains(columns, r.table.Overall) {
		return nil, nil
	}
	var try func(at int, used []bool, from, counts []int) ([]int, []int)
	try = func(at int, used []bool, from, counts []int) ([]int, []int) {
		if at == len(columns) {
			all := slices.Clone(r.counts)
			for i, c := range columns {
				all[c] = counts[i]
			}
			if r.sum(all) == all[r.table.Overall] {
				return slices.Clone(from), slices.Clone(counts)
			}
			return nil, nil
		}
		for i, c := range columns {
			if used[i] {
				continue
			}
			k, _ := countFor(r.values[c], r.digits[c], r.table.Denominators[columns[at]])
			if k < 0 {
				continue
			}
			used[i] = true
			if f, n := try(at+1, used, append(from, c), append(counts, k)); f != nil {
				return f, n
			}
			used[i] = false
		}
		return nil, nil
	}
	return try(0, make([]bool, len(columns)), nil, nil)
}

// sum of the counts of all columns but the overall one.
func (r *percentRow) sum(counts []int) int {
	sum := 0
	for c, k := range counts {
		if c != r.table.Overall {
			sum += k
		}
	}
	return sum
}

// corrected are the counts as they must have been, -1 where that cannot be told.
func (r *percentRow) corrected() []int {
	counts, bad := slices.Clone(r.counts), r.impossible()
	if from, moved := r.moved(bad); from != nil {
		for i, c := range bad {
			counts[c] = moved[i]
		}
		return counts
	}
	overall := r.table.Overall
	if len(bad) != 1 || overall < 0 {
		return counts
	}
	c := bad[0]
	counts[c] = 0
	if c == overall {
		counts[c] = r.sum(counts)
	} else {
		counts[c] = counts[overall] - r.sum(counts)
	}
	if counts[c] < 0 || counts[c] > r.table.Denominators[c] {
		counts[c] = -1
	}
	return counts
}

func (r *percentRow) findings() []Finding {
	var findings []Finding
	say := func(code string, columns []int, expected ...string) {
		f := Finding{Code: code, Group: r.Group, Row: r.Name, Expected: expected}
		for _, c := range columns {
			f.Columns, f.Printed = append(f.Columns, r.table.Columns[c]), append(f.Printed, r.Cells[c].Text)
		}
		findings = append(findings, f)
	}
	right, bad := r.corrected(), r.impossible()
	for c, k := range r.counts {
		switch {
		case k < 0 && right[c] >= 0:
			say(ImpossibleFraction, []int{c}, fmt.Sprintf("%d/%d = %s", right[c], r.table.Denominators[c], r.print(right[c], c)))
		case k < 0:
			say(ImpossibleFraction, []int{c})
		case !r.exact[c]:
			say(TruncatedNotRounded, []int{c}, r.print(k, c))
		}
	}
	if from, counts := r.moved(bad); from != nil {
		var expected []string
		for c := range r.counts {
			if c != r.table.Overall {
				expected = append(expected, r.print(right[c], c))
			}
		}
		say(ColumnsPermuted, bad, expected...)
		for i, c := range from {
			if rounded(counts[i], r.table.Denominators[bad[i]], r.digits[c]) != r.values[c] {
				say(TruncatedNotRounded, []int{c}, r.print(counts[i], bad[i]))
			}
		}
	}
	if overall := r.table.Overall; overall >= 0 && len(bad) == 0 && r.sum(r.counts) != r.counts[overall] {
		say(CountsDoNotAddUp, []int{overall}, r.print(r.sum(r.counts), overall))
	}
	return findings
}

// markFindings compares bold with the largest and underline with the second-largest values of each column and group.
// Groups of one row have nothing to compare, a group without any bold does not use it, and a column that underlines
// nothing is let be.
func (t PercentTable) markFindings() []Finding {
	var groups []string
	for _, r := range t.Rows {
		if !slices.Contains(groups, r.Group) {
			groups = append(groups, r.Group)
		}
	}
	var findings []Finding
	for _, group := range groups {
		var rows []PercentRow
		bolds := false
		for _, r := range t.Rows {
			if r.Group == group {
				rows = append(rows, r)
				bolds = bolds || slices.ContainsFunc(r.Cells, func(c PercentCell) bool { return c.Bold })
			}
		}
		if len(rows) < 2 || !bolds {
			continue
		}
		for c, name := range t.Columns {
			var values []float64
			for _, r := range rows {
				value, digits, err := readPercent(r.Cells[c].Text)
				if err != nil {
					return findings // told by Lint already
				}
				values = append(values, float64(value)/float64(scale(digits)))
			}
			order := slices.Compact(slices.Sorted(slices.Values(values)))
			check := func(code string, rank int, marked func(PercentCell) bool) {
				f := Finding{Code: code, Group: group, Columns: []string{name}}
				for i, r := range rows {
					if marked(r.Cells[c]) {
						f.Printed = append(f.Printed, r.Name)
					}
					if len(order) >= rank && values[i] == order[len(order)-rank] {
						f.Expected = append(f.Expected, r.Name)
					}
				}
				if !slices.Equal(f.Printed, f.Expected) && (code == WrongBold || len(f.Printed) > 0) {
					findings = append(findings, f)
				}
			}
			check(WrongBold, 1, func(c PercentCell) bool { return c.Bold })
			check(WrongUnderline, 2, func(c PercentCell) bool { return c.Underline })
		}
	}
	return findings
}
