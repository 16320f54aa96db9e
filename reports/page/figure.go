package page

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize/english"

	"rcgrpo/reports/stats"
)

// Figure is a drawing as a plain value: curves over a numeric axis; with Categories, points with intervals above each
// category; with Lanes, spans of a numeric axis in each lane; with Diagonal, points with intervals beside the line on
// which both axes are equal; with Scale, points whose colour is a third value; with Effects, a forest plot.
// Draw sets Caption, Wide, Height, Key, Options and Sources.
type Figure struct {
	ID      string          `json:"id"` // unique on the page: "fig-reward"
	Title   string          `json:"title"`
	Caption string          `json:"caption,omitempty"` // the note, and what the curves are
	Share   bool            `json:"share,omitempty"`   // values are shares of one
	Wide    bool            `json:"wide,omitempty"`
	Folded  bool            `json:"folded,omitempty"` // secondary: in HTML behind a fold with adjacent folded figures
	Height  int             `json:"height,omitempty"` // in pixels; 0 for the default
	Key     []key           `json:"key,omitempty"`    // explains the marks of a forest plot
	Options json.RawMessage `json:"options"`          // for the chart library
	// Data is the CSV file; the first row is the head. Required for lanes, otherwise it follows from curves or points.
	Data [][]string `json:"data"`
	// Sources are as Cell.SourceAt, of columns (".c2"), rows (".r3") or the whole ("").
	Sources map[string]int `json:"sources,omitempty"`

	Note       string   `json:"-"` // how to read the figure
	X          string   `json:"-"` // axis, with its unit
	Y          string   `json:"-"`
	Categories []string `json:"-"`
	Lanes      []string `json:"-"` // from top to bottom
	Diagonal   string   `json:"-"` // meaning of the diagonal: "measured as forecast"
	Scale      string   `json:"-"` // meaning of the colour, with its unit: "difference, points"
	Effects    []Effect `json:"-"` // rows of a forest plot, all in one unit
	Series     []Series `json:"-"`
	Smooth     int      `json:"-"` // curves: updates in the moving average of the thick line; below 2: the mean
	Stacked    bool     `json:"-"` // curves: stacked areas that add up to the whole

	// Apart is the label of an arm whose values would flatten the curves of all others; "" if there is none. A second
	// panel below the first shows the others.
	Apart string `json:"-"`

	Lower string `json:"-"` // axis of the lower panel, which shows the series with Lower set; "" for one panel

	Omitted bool `json:"-"` // only zeros, so that a page omits it; Reproduce computes it

	Source Source `json:"-"` // source of the whole figure, if its curves and points have none
}

// Series is the part of one arm in a figure.
type Series struct {
	Name    string // label of the arm
	Variant string // distinguishes several series of one arm: "high"
	Arm     int    // colour
	Dash    int    // 0 solid, 1 dashed, 2 dotted
	Step    int    // index in the scale of colours, from 1; 0 for the colour of the arm
	Lower   bool   // in the lower panel

	X      []float64 // curves: the common axis of all Curves
	Curves []Curve   // curves: one per seed

	Points []Point // without categories that have no value; with lanes, their intervals along X at lane Value

	Look Look `json:"-"` // look of the arm
}

// Curve holds the values of one seed over the X of its Series; NaN for a missing value.
type Curve struct {
	Name   string // "seed 3"; "" for a single curve
	Y      []float64
	Source Source
}

// Point is a value with its interval; NaN for a missing number. In a figure with a scale the interval is Shade's.
type Point struct {
	X     float64 // index of the category, or the value on the axis X
	Value float64
	Shade float64 // value of the colour, in a figure with a scale
	stats.Interval
	Each   []float64 // the pooled values, one per seed; nil for a single seed
	Label  string    // "68/80"; "seed 3" in figures with a diagonal; the pair in figures with a scale
	Source Source
}

// maxSmooth bounds the work for long curves.
const maxSmooth = 500

// Add appends a series unless it is empty. Curves are smoothed over a twentieth of the longest one, at most maxSmooth.
func (f *Figure) Add(s Series) {
	if len(s.Curves)+len(s.Points) > 0 {
		f.Series = append(f.Series, s)
		f.Smooth = max(f.Smooth, min(len(s.X)/20, maxSmooth))
	}
}

// Zero reports whether all values of the curves are 0.
func (f *Figure) Zero() bool {
	for _, s := range f.Series {
		for _, r := range s.Curves {
			if slices.ContainsFunc(r.Y, func(v float64) bool { return v != 0 && !math.IsNaN(v) }) {
				return false
			}
		}
	}
	return true
}

// flat is the share of the range of all arms below which the range of all but one of them is too flat to read.
const flat = 0.45

// Separate sets Apart if the range of the drawn means without one arm is a small part of the range with it.
func (f *Figure) Separate() {
	extent := func(without string) float64 {
		low, high := math.Inf(1), math.Inf(-1)
		for _, s := range f.Series {
			for _, v := range movingAverage(s.mean(), f.Smooth) {
				if s.Name != without && !math.IsNaN(v) {
					low, high = min(low, v), max(high, v)
				}
			}
		}
		return high - low // -Inf without values
	}
	if f.Lower != "" { // the panels have axes of their own
		return
	}
	all := extent("")
	for _, s := range f.Series {
		if rest := extent(s.Name); rest >= 0 && rest < flat*all && !f.Share {
			f.Apart = s.Name
		}
	}
}

func (f *Figure) curves() bool {
	return f.Categories == nil && f.Lanes == nil && f.Effects == nil && f.Diagonal == "" && f.Scale == ""
}

// full returns the name of the series for writers without colours.
func (s *Series) full() string {
	if s.Variant == "" {
		return s.Name
	}
	return s.Name + ", " + s.Variant
}

// Points iterates over the points in the order of the data: by category, then by series.
func (f *Figure) Points(yield func(*Series, *Point) bool) {
	for c := range max(1, len(f.Categories)) {
		for i := range f.Series {
			s := &f.Series[i]
			for j := range s.Points {
				if p := &s.Points[j]; (f.Categories == nil || p.X == float64(c)) && !yield(s, p) {
					return
				}
			}
		}
	}
}

// mean returns the mean of the runs with a value at each X.
func (s *Series) mean() []float64 {
	if len(s.Curves) == 1 {
		return s.Curves[0].Y
	}
	return s.across(stats.Mean)
}

// band returns the lowest and the highest of the smoothed runs at each X; nil for a single run.
func (s *Series) band(window int) (low, high []float64) {
	if len(s.Curves) < 2 {
		return nil, nil
	}
	smooth := Series{X: s.X}
	for _, r := range s.Curves {
		smooth.Curves = append(smooth.Curves, Curve{Y: movingAverage(r.Y, window)})
	}
	return smooth.across(slices.Min[[]float64]), smooth.across(slices.Max[[]float64])
}

// across applies fold to the values of all runs at each X; NaN without values.
func (s *Series) across(fold func([]float64) float64) []float64 {
	result, values := make([]float64, len(s.X)), make([]float64, 0, len(s.Curves))
	for i := range result {
		values = values[:0]
		for _, r := range s.Curves {
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

// movingAverage returns the centred mean over window values, shorter at the ends. NaN stays NaN and does not enter
// other means.
func movingAverage(y []float64, window int) []float64 {
	if window < 2 {
		return y
	}
	result := slices.Clone(y)
	for i := range y {
		if !math.IsNaN(y[i]) {
			sum, n := 0.0, 0
			for _, v := range y[max(0, i-(window-1)/2):min(len(y), i+window/2+1)] {
				if !math.IsNaN(v) {
					sum, n = sum+v, n+1
				}
			}
			result[i] = sum / float64(n)
		}
	}
	return result
}

// drawing describes the curves; "" for other figures.
func (f *Figure) drawing() string {
	if !f.curves() || len(f.Series) == 0 {
		return ""
	}
	drawn, several, faint := "each run", false, false
	for _, s := range f.Series {
		several = several || len(s.Curves) > 1
		faint = faint || s.Variant == ""
	}
	if several {
		drawn = "the mean over seeds"
	}
	shape := "Curves"
	if f.Stacked {
		shape = "Areas"
	}
	text := fmt.Sprintf("%s: %s at each %s", shape, drawn, f.X)
	if f.Smooth > 1 {
		text = fmt.Sprintf("%s: moving average of %s over %d %ss", shape, drawn, f.Smooth, f.X)
		if faint && !f.Stacked {
			text += "; faint: not smoothed"
		}
	}
	text += "."
	if several && !f.Stacked {
		text += " Bands: lowest to highest seed."
	}
	if f.Apart != "" {
		text += " Lower panel: without " + f.Apart + ", whose values would flatten the others."
	}
	return text
}

// ends returns the first and the last value of a drawn curve, for writers without drawings.
func (f *Figure) ends(s *Series) (first, last float64) {
	drawn := slices.DeleteFunc(slices.Clone(movingAverage(s.mean(), f.Smooth)), math.IsNaN)
	if len(drawn) == 0 {
		return math.NaN(), math.NaN()
	}
	return drawn[0], drawn[len(drawn)-1]
}

// CSV returns the figure as rows of text, the first being the head, for the CSV file.
func (f *Figure) CSV() [][]string {
	switch {
	case f.Data != nil:
		return f.Data
	case f.Effects != nil:
		rows := [][]string{{"outcome", "series", "effect", "low", "high", "detectable", "matters", "unit", "verdict",
			"per seed"}}
		for _, e := range f.Effects {
			var seeds []string
			for _, v := range e.PerSeed {
				seeds = append(seeds, exact(v))
			}
			rows = append(rows, []string{e.Heading(), e.name(""), exact(e.Effect), exact(number(e.Low)),
				exact(number(e.High)), exact(number(e.Detectable)), exact(e.Matters), e.Unit, string(e.Verdict),
				strings.Join(seeds, "; ")})
		}
		return rows
	case f.Categories != nil:
		rows := [][]string{{f.X, "series", "value", "low", "high", "count"}}
		for s, p := range f.Points {
			rows = append(rows, []string{f.Categories[int(p.X)], s.Name, Plain(p.Value), Plain(p.Low), Plain(p.High), p.Label})
		}
		return rows
	case f.Scale != "":
		rows := [][]string{{"pair", f.X, f.Y, f.Scale, "low", "high"}}
		for _, p := range f.Points {
			rows = append(rows, []string{p.Label, Plain(p.X), Plain(p.Value), Plain(p.Shade), Plain(p.Low), Plain(p.High)})
		}
		return rows
	case f.Diagonal != "":
		rows := [][]string{{"series", "seed", f.X, f.Y, "low", "high"}}
		for s, p := range f.Points {
			rows = append(rows, []string{s.Name, p.Label, Plain(p.X), Plain(p.Value), Plain(p.Low), Plain(p.High)})
		}
		return rows
	}
	return f.curveData()
}

// curveData returns a column for each run and a row for each X.
func (f *Figure) curveData() [][]string {
	head := []string{f.X}
	for _, s := range f.Series {
		for _, r := range s.Curves {
			head = append(head, strings.TrimSuffix(s.full()+", "+r.Name, ", "))
		}
	}
	rows, column := map[float64][]string{}, 1
	for _, s := range f.Series {
		for _, r := range s.Curves {
			for i, x := range s.X[:min(len(s.X), len(r.Y))] {
				if rows[x] == nil {
					rows[x] = make([]string, len(head))
					rows[x][0] = Plain(x)
				}
				rows[x][column] = Plain(r.Y[i])
			}
			column++
		}
	}
	data := [][]string{head}
	for _, x := range slices.Sorted(maps.Keys(rows)) {
		data = append(data, rows[x])
	}
	return data
}

// Plain formats a number for data files with five significant digits; "" for NaN.
func Plain(v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', 5, 64)
}

// Extend adds the unit interval from a position to the last interval in a lane, or begins one.
func (s *Series) Extend(lane int, from float64) {
	last := len(s.Points) - 1
	if last < 0 || s.Points[last].High != from {
		s.Points = append(s.Points, Point{Value: float64(lane), Interval: stats.Interval{Low: from}})
		last++
	}
	p := &s.Points[last]
	p.High = from + 1
	p.Label = english.Plural(int(p.High-p.Low), "episode", "") + " passed"
}
