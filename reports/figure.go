package reports

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Figure is a drawing as a plain value: curves over a numeric axis; or, when Categories are named, points with
// intervals above each category; or, when Lanes are named, stretches of a numeric axis in each lane; or, when Diagonal
// says what it stands for, points with intervals at any place, beside the line on which both axes are equal.
type Figure struct {
	ID         string // ours, unique on the page: "fig-reward"
	Title      string
	Note       string // how to read it
	X, Y       string // axes, with units
	Categories []string
	Lanes      []string // from above
	Diagonal   string   // "measured as forecast"
	Series     []Series
	Smooth     int  // curves: updates in the moving average of the thick line; below 2 draws the mean itself
	Stacked    bool // curves: areas one upon the other, which add up to the whole
	Share      bool // values are shares of one
	Folded     bool // secondary: shown behind a fold in HTML, together with the folded figures beside it

	Source Source // what the whole figure was computed from, where its curves and points do not say it

	Data [][]string // the CSV file with its head, nil where it follows from curves or points; figures of lanes have it
}

// Series is what one arm contributes to a figure.
type Series struct {
	Name    string // label of the arm
	Variant string // what tells several series of one arm apart: "high"; "" when there is one
	Arm     int    // colour
	Dash    int    // 0 solid, 1 dashed, 2 dotted
	Step    int    // place on the scale of colours from few to many, from 1; 0 for the colour of the arm

	X    []float64   // curves: the common axis of all Runs
	Runs []Curve     // curves: one per seed
	Ends *[2]float64 // curves: means over the early and the late window, as the tables have them; nil: no table does

	Points []Point // one per category, or at their X
	Spans  []Span
}

// Curve is one run's values over the X of its Series; NaN where there is none.
type Curve struct {
	Name   string // "seed 3"; "" for a single run
	Y      []float64
	Source Source
}

// Point is a value with its interval; NaN where there is none.
type Point struct {
	X     float64 // figures with a diagonal
	Value float64
	Interval
	Each   []float64 // what it was pooled from, one value per seed; nil for a single one
	Label  string    // "68/80"; "seed 3" in figures with a diagonal
	Source Source
}

// full is the name of the series where no colour and dash tell it.
func (s *Series) full() string {
	if s.Variant == "" {
		return s.Name
	}
	return s.Name + ", " + s.Variant
}

// has says whether there is a point above a category.
func (s *Series) has(category int) bool {
	return category < len(s.Points) && !math.IsNaN(s.Points[category].Value)
}

// mean of the runs at each X; where a run has no value the others decide.
func (s *Series) mean() []float64 {
	if len(s.Runs) == 1 {
		return s.Runs[0].Y
	}
	return s.across(func(values []float64) float64 { return Mean(values) })
}

// band is the lowest and the highest of the smoothed runs at each X; nil for a single run.
func (s *Series) band(window int) (low, high []float64) {
	if len(s.Runs) < 2 {
		return nil, nil
	}
	smooth := Series{X: s.X}
	for _, r := range s.Runs {
		smooth.Runs = append(smooth.Runs, Curve{Y: movingAverage(r.Y, window)})
	}
	return smooth.across(slices.Min[[]float64]), smooth.across(slices.Max[[]float64])
}

// across folds the values of all runs at each X; NaN where no run has one.
func (s *Series) across(fold func([]float64) float64) []float64 {
	result, values := make([]float64, len(s.X)), make([]float64, 0, len(s.Runs))
	for i := range result {
		values = values[:0]
		for _, r := range s.Runs {
			if i < len(r.Y) && !math.IsNaN(r.Y[i]) {
				values = append(values, r.Y[i])
			}
		}
		if result[i] = math.NaN(); len(values) > 0 {
			result[i] = fold(values)
		}
	}
	return result
}

// movingAverage is the centred mean over window values, shorter at the ends; a gap stays a gap and is left out of
// its neighbours' means.
func movingAverage(y []float64, window int) []float64 {
	if window < 2 {
		return y
	}
	result := make([]float64, len(y))
	for i := range y {
		from, to := max(0, i-(window-1)/2), min(len(y), i+window/2+1)
		sum, n := 0.0, 0
		for _, v := range y[from:to] {
			if !math.IsNaN(v) {
				sum += v
				n++
			}
		}
		if result[i] = math.NaN(); n > 0 && !math.IsNaN(y[i]) {
			result[i] = sum / float64(n)
		}
	}
	return result
}

// Caption is the note and how the curves of this figure are drawn, with the window that smooths them.
func (f *Figure) Caption() string { return strings.TrimSpace(f.Note + " " + f.drawing()) }

// drawing says how curves are drawn; "" for other figures.
func (f *Figure) drawing() string {
	if f.Categories != nil || f.Lanes != nil || f.Diagonal != "" || len(f.Series) == 0 {
		return ""
	}
	what, several, faint := "each run", false, false
	for _, s := range f.Series {
		several = several || len(s.Runs) > 1
		faint = faint || s.Variant == ""
	}
	if several {
		what = "the mean over seeds"
	}
	shape := "Curves"
	if f.Stacked {
		shape = "Areas"
	}
	text := fmt.Sprintf("%s: %s at each %s.", shape, what, f.X)
	if f.Smooth > 1 {
		text = fmt.Sprintf("%s: moving average of %s over %d %ss", shape, what, f.Smooth, f.X)
		if faint && !f.Stacked {
			text += "; faint: not smoothed"
		}
		text += "."
	}
	if several && !f.Stacked {
		text += " Bands: lowest to highest seed."
	}
	return text
}

// values returns the two numbers that forms without drawings print for a series: its means over the windows of the
// tables, or else its first and last value.
func (s *Series) values() (first, last float64) {
	if s.Ends != nil {
		return s.Ends[0], s.Ends[1]
	}
	mean := s.mean()
	return firstOf(mean), lastOf(mean)
}

// numbers says what the values of the series are.
func (f *Figure) numbers() string {
	if len(f.Series) > 0 && f.Series[0].Ends != nil {
		return "Numbers: means over the early and the late window, as in the tables."
	}
	return fmt.Sprintf("Numbers: at the first and at the last %s.", f.X)
}

// data is the figure as rows of text, the first being the head: what stands behind the fold and in the CSV file.
func (f *Figure) data() [][]string {
	switch {
	case f.Data != nil:
		return f.Data
	case f.Categories != nil:
		rows := [][]string{{f.X, "series", "value", "low", "high", "count"}}
		for i, category := range f.Categories {
			for _, s := range f.Series {
				if s.has(i) {
					p := s.Points[i]
					rows = append(rows, []string{category, s.Name, plain(p.Value), plain(p.Low), plain(p.High), p.Label})
				}
			}
		}
		return rows
	case f.Diagonal != "":
		rows := [][]string{{"series", "seed", f.X, f.Y, "low", "high"}}
		for _, s := range f.Series {
			for _, p := range s.Points {
				rows = append(rows, []string{s.Name, p.Label, plain(p.X), plain(p.Value), plain(p.Low), plain(p.High)})
			}
		}
		return rows
	}
	head := []string{f.X}
	at := map[float64]int{}
	var axis []float64
	for _, s := range f.Series {
		for _, r := range s.Runs {
			name := s.full()
			if r.Name != "" {
				name += ", " + r.Name
			}
			head = append(head, name)
		}
		axis = append(axis, s.X...)
	}
	slices.Sort(axis)
	axis = slices.Compact(axis)
	rows := make([][]string, 1, len(axis)+1)
	rows[0] = head
	for i, x := range axis {
		at[x] = i + 1
		row := make([]string, len(head))
		row[0] = plain(x)
		rows = append(rows, row)
	}
	column := 1
	for _, s := range f.Series {
		for _, r := range s.Runs {
			for i, x := range s.X {
				if i < len(r.Y) {
					rows[at[x]][column] = plain(r.Y[i])
				}
			}
			column++
		}
	}
	return rows
}

// plain writes a number for data files, with five significant digits; empty where there is none.
func plain(v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', 5, 64)
}
