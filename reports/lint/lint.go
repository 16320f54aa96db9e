package lint

import (
	"cmp"
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

// Row is one row. Marks are compared among the rows of one Block, such as those of one model.
type Row struct {
	Block, Name string
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
	Block    string   `json:"group,omitempty"`
	Row      string   `json:"row,omitempty"`      // "" for marks, which concern a column of a block
	Columns  []string `json:"columns"`            // as printed
	Printed  []string `json:"printed"`            // texts; for marks the marked rows
	Expected []string `json:"expected,omitempty"` // the correct texts or rows, if they are known
}

func (f Finding) String() string {
	text := fmt.Sprintf("%s: %s: %s", f.Code, f.cells(), cmp.Or(strings.Join(f.Printed, ", "), "nothing is marked"))
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
	var rows []*parsedRow
	for _, r := range t.Rows {
		row, err := t.parse(r)
		if err != nil {
			return nil, err
		}
		rows, findings = append(rows, row), append(findings, row.findings()...)
	}
	return append(findings, t.markFindings(rows)...), nil
}

// Counts returns the counts behind the percentages of each row, with permuted figures moved back and a single
// impossible figure derived from the others; -1 for an unknown count. An error names a cell that is not a percentage.
func Counts(t Table) ([][]int, error) {
	var all [][]int
	for _, r := range t.Rows {
		row, err := t.parse(r)
		if err != nil {
			return nil, err
		}
		all = append(all, row.corrected())
	}
	return all, nil
}

// meanings explain the codes for readers.
var meanings = map[string]string{
	ImpossibleFraction:  "No count of the column's tasks gives the figure",
	TruncatedNotRounded: "Truncated instead of rounded",
	ColumnsPermuted:     "Figures of a row in the wrong columns",
	CountsDoNotAddUp:    "The figure contradicts the sum of the categories",
	WrongBold:           "Bold marks other rows than the largest",
	WrongUnderline:      "Underlined are other rows than the second-largest",
}

// Sentences explains findings for readers, one sentence for each code in the order of the first finding.
func Sentences(findings []Finding) []string {
	var codes []string
	places := map[string][]string{}
	for _, f := range findings {
		if places[f.Code] == nil {
			codes = append(codes, f.Code)
		}
		places[f.Code] = append(places[f.Code], f.place())
	}
	for i, code := range codes {
		codes[i] = fmt.Sprintf("%s: %s.", meanings[code], strings.Join(places[code], "; "))
	}
	return codes
}

// cells names the row, if there is one, and the columns of the finding.
func (f Finding) cells() string {
	columns := strings.Join(f.Columns, ", ")
	if row := strings.TrimSpace(f.Block + " " + f.Row); row != "" {
		return row + ", " + columns
	}
	return columns
}

// place returns the location of the finding, the printed value and the right one.
func (f Finding) place() string {
	text := f.cells() + " (printed " + cmp.Or(strings.Join(f.Printed, ", "), "without a mark")
	if f.Code == ColumnsPermuted {
		text += "; the right row"
	} else if len(f.Expected) > 0 {
		text += "; right"
	}
	if len(f.Expected) > 0 {
		text += ": " + strings.Join(f.Expected, ", ")
	}
	return text + ")"
}

// parsedRow is a row with its percentages and the counts behind them.
type parsedRow struct {
	Row
	table    Table
	percents []percent
	counts   []int  // -1: no count gives the percentage
	exact    []bool // the count gives it by rounding
}

func (t Table) parse(r Row) (*parsedRow, error) {
	if len(r.Cells) != len(t.Columns) {
		return nil, fmt.Errorf("row %q has %d cells, want %d", r.Name, len(r.Cells), len(t.Columns))
	}
	row := &parsedRow{Row: r, table: t}
	for i, c := range r.Cells {
		p, err := readPercent(c.Text)
		if err != nil {
			return nil, fmt.Errorf("row %q, column %q: %w", r.Name, t.Columns[i], err)
		}
		count, exact := p.countOf(t.Denominators[i])
		row.percents, row.counts, row.exact = append(row.percents, p), append(row.counts, count), append(row.exact, exact)
	}
	return row, nil
}

// percent is a percentage in units of its last digit: "4.54%" is 454 with unit 100, "4%" is 4 with unit 1.
type percent struct{ value, unit, decimals int }

func readPercent(text string) (percent, error) {
	number := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "%"))
	whole, fraction, _ := strings.Cut(number, ".")
	p := percent{unit: 1, decimals: len(fraction)}
	var err error
	p.value, err = strconv.Atoi(whole + fraction)
	if err != nil || p.value < 0 || p.decimals > 6 {
		return p, fmt.Errorf("%q is not a percentage", text)
	}
	for range p.decimals {
		p.unit *= 10
	}
	return p, nil
}

// rounded returns k/n with the decimals of p, rounded half up.
func (p percent) rounded(k, n int) percent {
	p.value = (200*k*p.unit + n) / (2 * n)
	return p
}

func (p percent) String() string {
	if p.decimals == 0 {
		return fmt.Sprintf("%d%%", p.value)
	}
	return fmt.Sprintf("%d.%0*d%%", p.value/p.unit, p.decimals, p.value%p.unit)
}

// countOf returns the k for which k/n gives p by rounding (exact) or else by truncation, or -1.
func (p percent) countOf(n int) (k int, exact bool) {
	near, truncated := p.value*n/(100*p.unit), -1
	for k := max(0, near-1); k <= min(n, near+2); k++ {
		switch p.value {
		case p.rounded(k, n).value:
			return k, true
		case 100 * k * p.unit / n:
			truncated = k
		}
	}
	return truncated, false
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
			counts[at], _ = r.percents[c].countOf(r.table.Denominators[columns[at]])
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

// sum adds up the counts of all columns except the overall column.
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
	if known := r.sum(counts); c == overall {
		counts[c] = known
	} else {
		counts[c] = counts[overall] - known
	}
	if counts[c] < 0 || counts[c] > r.table.Denominators[c] {
		counts[c] = -1
	}
	return counts
}

func (r *parsedRow) findings() []Finding {
	var findings []Finding
	add := func(code string, columns []int, expected ...string) {
		f := Finding{Code: code, Block: r.Block, Row: r.Name, Expected: expected}
		for _, c := range columns {
			f.Columns, f.Printed = append(f.Columns, r.table.Columns[c]), append(f.Printed, r.Cells[c].Text)
		}
		findings = append(findings, f)
	}
	right, bad := r.corrected(), r.impossible()
	expected := func(count, column, printed int) string { // the percentage of a count, with the decimals as printed
		return r.percents[printed].rounded(count, r.table.Denominators[column]).String()
	}
	for c, k := range r.counts {
		switch {
		case k < 0 && right[c] >= 0:
			add(ImpossibleFraction, []int{c}, fmt.Sprintf("%d/%d = %s", right[c], r.table.Denominators[c],
				expected(right[c], c, c)))
		case k < 0:
			add(ImpossibleFraction, []int{c})
		case !r.exact[c]:
			add(TruncatedNotRounded, []int{c}, expected(k, c, c))
		}
	}
	overall := r.table.Overall
	if from, counts := r.moved(bad); from != nil {
		var all []string
		for c := range r.counts {
			if c != overall {
				all = append(all, expected(right[c], c, c))
			}
		}
		add(ColumnsPermuted, bad, all...)
		for i, c := range from {
			if p := r.percents[c]; p != p.rounded(counts[i], r.table.Denominators[bad[i]]) {
				add(TruncatedNotRounded, []int{c}, expected(counts[i], bad[i], bad[i]))
			}
		}
	}
	if overall >= 0 && len(bad) == 0 && r.sum(r.counts) != r.counts[overall] {
		add(CountsDoNotAddUp, []int{overall}, expected(r.sum(r.counts), overall, overall))
	}
	return findings
}

// markFindings compares the bold rows with the largest and the underlined rows with the second-largest values of each
// column and block. Blocks of one row, blocks without bold cells and columns without underlined cells are skipped.
func (t Table) markFindings(all []*parsedRow) []Finding {
	var blocks []string
	rowsOf := map[string][]*parsedRow{}
	for _, r := range all {
		if rowsOf[r.Block] == nil {
			blocks = append(blocks, r.Block)
		}
		rowsOf[r.Block] = append(rowsOf[r.Block], r)
	}
	bold, underlined := func(c Cell) bool { return c.Bold }, func(c Cell) bool { return c.Underline }
	var findings []Finding
	for _, block := range blocks {
		rows := rowsOf[block]
		marked := func(r *parsedRow) bool { return slices.ContainsFunc(r.Cells, bold) }
		if len(rows) < 2 || !slices.ContainsFunc(rows, marked) {
			continue
		}
		for c, name := range t.Columns {
			value := func(r *parsedRow) float64 { return float64(r.percents[c].value) / float64(r.percents[c].unit) }
			var values []float64
			for _, r := range rows {
				values = append(values, value(r))
			}
			slices.Sort(values)
			values = slices.Compact(values)
			check := func(code string, rank int, marked func(Cell) bool) {
				f := Finding{Code: code, Block: block, Columns: []string{name}}
				for _, r := range rows {
					if marked(r.Cells[c]) {
						f.Printed = append(f.Printed, r.Name)
					}
					if len(values) >= rank && value(r) == values[len(values)-rank] {
						f.Expected = append(f.Expected, r.Name)
					}
				}
				if !slices.Equal(f.Printed, f.Expected) && (code == WrongBold || len(f.Printed) > 0) {
					findings = append(findings, f)
				}
			}
			check(WrongBold, 1, bold)
			check(WrongUnderline, 2, underlined)
		}
	}
	return findings
}
