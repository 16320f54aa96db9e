package page

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/go-echarts/go-echarts/v2/charts"
	"github.com/go-echarts/go-echarts/v2/opts"
)

// ScalePrefix is followed by the unit of a difference in the Scale of a figure.
const ScalePrefix = "difference, "

// shade formats a value of the colour, with its sign.
func (f *Figure) shade(v float64) string {
	return (&Effect{Unit: strings.TrimPrefix(f.Scale, ScalePrefix)}).Amount(v)
}

// divergingColours run from negative over zero to positive differences. Each has a contrast of 3 on the light and on
// the dark background, and readers with common colour deficiencies can distinguish blue, grey and orange.
var divergingColours = []string{"#1a72b5", "#4a7fae", "#808891", "#b37a48", "#d0640f"}

// mapChart draws a triangle for each point, coloured by its shade on a scale that is symmetrical around 0.
func (f *Figure) mapChart() ([]byte, error) {
	chart := charts.NewScatter()
	points, largest := f.Series[0].Points, 0.0
	for _, p := range points {
		largest = max(largest, math.Abs(p.Shade))
	}
	bound := cmp.Or(largest, 1)
	chart.SetGlobalOptions(append(f.global(), charts.WithVisualMapOpts(opts.VisualMap{
		Dimension: "2", Min: float32(-bound), Max: float32(bound), Right: "0", Top: "middle",
		Text:    []string{f.shade(bound) + strings.TrimPrefix(f.Scale, "difference,"), f.shade(-bound)},
		InRange: &opts.VisualMapInRange{Color: divergingColours},
	}))...)
	sides := labelSides(points)
	for _, side := range []string{"right", "left", "top"} {
		var data []opts.ScatterData
		for i, p := range points {
			if sides[i] != side {
				continue
			}
			interval := "–"
			if p.Known() {
				interval = f.shade(p.Low) + " … " + f.shade(p.High)
			}
			mark := opts.ScatterData{Name: p.Label, Symbol: "triangle", SymbolSize: 12,
				Value: []any{short(p.X), short(p.Value), short(p.Shade), f.shade(p.Shade), interval}}
			if p.Known() && p.Excludes(0) {
				mark.SymbolSize = 24
			}
			switch {
			case p.Shade < 0:
				mark.SymbolRotate = 180
			case p.Shade == 0:
				mark.Symbol = "circle"
			}
			data = append(data, mark)
		}
		if data == nil {
			continue
		}
		chart.AddSeries(f.Series[0].Name, data,
			charts.WithLabelOpts(opts.Label{Show: opts.Bool(true), Position: side, Formatter: "{b} {@[3]}"}))
	}
	return finish(chart)
}

// labelSides returns the side of each mark's label: the one with more space, or above if another mark is there. The
// size of a label is estimated as parts of the plot's width and height.
func labelSides(points []Point) []string {
	const perLetter, height = 0.011, 0.08
	by := func(value func(Point) float64) (low, width float64) {
		low, high := math.Inf(1), math.Inf(-1)
		for _, p := range points {
			low, high = min(low, value(p)), max(high, value(p))
		}
		return low, cmp.Or(high-low, 1)
	}
	left, width := by(func(p Point) float64 { return p.X })
	_, tall := by(func(p Point) float64 { return p.Value })
	sides := make([]string, len(points))
	for i, p := range points {
		length, sign := perLetter*float64(len(p.Label)+len(" +0.0")), 1.0
		if sides[i] = "right"; p.X > left+width/2 {
			sides[i], sign = "left", -1
		}
		if slices.ContainsFunc(points, func(q Point) bool {
			along := sign * (q.X - p.X) / width
			return along > 0 && along < length && math.Abs(q.Value-p.Value)/tall < height
		}) {
			sides[i] = "top"
		}
	}
	return sides
}
