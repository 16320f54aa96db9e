package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Table is a table of percentages with known denominators, as it was printed.
type Table struct {
	Columns      []string
	Denominators []int
	Overall      int // column over all tasks, whose count is the sum of the others' counts; -1: none
	Rows         []Row
}

// Row is one row. Marks are compared among the rows of one Group.
type Row struct {
	Group, Name string
	Cells       []Cell
}

// Cell is a percentage as printed ("4.54%"), with its marks.
type Cell struct {
	Text            string
	Bold, Underline bool
}

// Codes of findings.
const (
	ImpossibleFraction  = "impossible_fraction"   // no count of n gives the figure, by rounding half up or truncation
	TruncatedNotRounded = "truncated_not_rounded" // only truncation gives the figure
	ColumnsPermuted     = "columns_permuted"      // impossible cells of a row are possible in another order and add up
	CountsDoNotAddUp    = "counts_do_not_add_up"  // the overall figure contradicts the others
	WrongBold           = "wrong_bold"            // the bold rows are not the rows with the largest value
	WrongUnderline      = "wrong_underline"       // the underlined rows are not the rows with the second-largest value
)

// Finding is one error of a table.
type Finding struct {
	Code     string   `json:"code"`
	Group    string   `json:"group,omitempty"`
	Row      string   `json:"row,omitempty"`      // "" for marks, which concern a column of a group
	Columns  []string `json:"columns"`            // as printed
	Printed  []string `json:"printed"`            // texts; for marks the marked rows
	Expected []string `json:"expected,omitempty"` // the correct texts or rows, if they are known
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

// Check returns the findings of the rows, then those of the columns. An error names a cell that is not a percentage.
func Check(t Table) ([]Finding, error) {
	if len(t.Denominators) != len(t.Columns) {
		return nil, fmt.Errorf("table has %d columns and %d denominators", len(t.Columns), len(t.Denominators))
	}
	var findings []Finding
	for _, r := range t.Rows {
		row, err := t.parse(r)
		if err != nil {
			return nil, err
		}
		findings = append(findings, row.findings()...)
	}
	return append(findings, t.markFindings()...), nil
}

// parsedRow is a row as integers in units of its last printed digit.
type parsedRow struct {
	Row
	table  Table
	values []int  // 454 for "4.54%"
	digits []int  // printed decimals
	counts []int  // count that gives the value, -1: none
	exact  []bool // the count gives the value by rounding
}

func (t Table) parse(r Row) (*parsedRow, error) {
	if len(r.Cells) != len(t.Columns) {
		return nil, fmt.Errorf("row %q has %d cells, want %d", r.Name, len(r.Cells), len(t.Columns))
	}
	row := &parsedRow{Row: r, table: t}
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

// readPercent parses "4.54%" into 454 and two decimals.
func readPercent(text string) (value, digits int, err error) {
	number := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "%"))
	whole, fraction, _ := strings.Cut(number, ".")
	value, err = strconv.Atoi(whole + fraction)
	if err != nil || value < 0 || len(fraction) > 6 {
		return 0, 0, fmt.Errorf("%q is not a percentage", text)
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

// countFor returns the k for which k/n gives the value by rounding (exact) or else by truncation, or -1.
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

func (r *parsedRow) print(count, column int) string {
	digits := r.digits[column]
	value := rounded(count, r.table.Denominators[column], digits)
	if digits == 0 {
		return fmt.Sprintf("%d%%", value)
	}
	unit := scale(digits) / 100
	return fmt.Sprintf("%d.%0*d%%", value/unit, digits, value%unit)
}

func (r *parsedRow) impossible() []int {
	var columns []int
	for c, k := range r.counts {
		if k < 0 {
			columns = append(columns, c)
		}
	}
	return columns
}

// moved searches for a permutation of the values of the impossible cells that makes each value a fraction of its
// column's denominator and makes the counts add up: from[i] is the column whose value belongs in columns[i].
func (r *parsedRow) moved(columns []int) (from, counts []int) {
	if len(columns) < 2 || r.table.Overall < 0 || slices.Contains(columns, r.table.Overall) {
		return nil, nil
	}
	from, counts = make([]int, len(columns)), make([]int, len(columns))
	var place func(at int, left []int) bool // fills from and counts
	place = func(at int, left []int) bool {
		if at == len(columns) {
			all := slices.Clone(r.counts)
			for i, c := range columns {
				all[c] = counts[i]
			}
			return r.sum(all) == all[r.table.Overall]
		}
		for i, c := range left {
			from[at] = c
			counts[at], _ = countFor(r.values[c], r.digits[c], r.table.Denominators[columns[at]])
			if counts[at] >= 0 && place(at+1, slices.Delete(slices.Clone(left), i, i+1)) {
				return true
			}
		}
		return false
	}
	if !place(0, columns) {
		return nil, nil
	}
	return from, counts
}

// sum returns the sum of the counts of all columns except the overall column.
func (r *parsedRow) sum(counts []int) int {
	sum := 0
	for c, k := range counts {
		if c != r.table.Overall {
			sum += k
		}
	}
	return sum
}

// corrected returns the counts with permuted values moved back and a single impossible value derived from the others;
// -1 for an unknown count.
func (r *parsedRow) corrected() []int {
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

func (r *parsedRow) findings() []Finding {
	var findings []Finding
	add := func(code string, columns []int, expected ...string) {
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
			add(ImpossibleFraction, []int{c}, fmt.Sprintf("%d/%d = %s", right[c], r.table.Denominators[c], r.print(right[c], c)))
		case k < 0:
			add(ImpossibleFraction, []int{c})
		case !r.exact[c]:
			add(TruncatedNotRounded, []int{c}, r.print(k, c))
		}
	}
	if from, counts := r.moved(bad); from != nil {
		var expected []string
		for c := range r.counts {
			if c != r.table.Overall {
				expected = append(expected, r.print(right[c], c))
			}
		}
		add(ColumnsPermuted, bad, expected...)
		for i, c := range from {
			if rounded(counts[i], r.table.Denominators[bad[i]], r.digits[c]) != r.values[c] {
				add(TruncatedNotRounded, []int{c}, r.print(counts[i], bad[i]))
			}
		}
	}
	if overall := r.table.Overall; overall >= 0 && len(bad) == 0 && r.sum(r.counts) != r.counts[overall] {
		add(CountsDoNotAddUp, []int{overall}, r.print(r.sum(r.counts), overall))
	}
	return findings
}

// markFindings compares the bold rows with the largest and the underlined rows with the second-largest values of each
// column and group. Groups of one row, groups without bold cells and columns without underlined cells are skipped.
func (t Table) markFindings() []Finding {
	var groups []string
	rowsOf := map[string][]Row{}
	for _, r := range t.Rows {
		if rowsOf[r.Group] == nil {
			groups = append(groups, r.Group)
		}
		rowsOf[r.Group] = append(rowsOf[r.Group], r)
	}
	bold := func(c Cell) bool { return c.Bold }
	var findings []Finding
	for _, group := range groups {
		rows := rowsOf[group]
		if len(rows) < 2 || !slices.ContainsFunc(rows, func(r Row) bool { return slices.ContainsFunc(r.Cells, bold) }) {
			continue
		}
		for c, name := range t.Columns {
			var values []float64
			for _, r := range rows {
				value, digits, err := readPercent(r.Cells[c].Text)
				if err != nil {
					return findings // Check has reported it
				}
				values = append(values, float64(value)/float64(scale(digits)))
			}
			order := slices.Compact(slices.Sorted(slices.Values(values)))
			check := func(code string, rank int, marked func(Cell) bool) {
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
			check(WrongBold, 1, bold)
			check(WrongUnderline, 2, func(c Cell) bool { return c.Underline })
		}
	}
	return findings
}
