package page

import (
	"cmp"
	"math"
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
	points, largest, left, right := f.Series[0].Points, 0.0, math.Inf(1), math.Inf(-1)
	for _, p := range points {
		largest, left, right = max(largest, math.Abs(p.Shade)), min(left, p.X), max(right, p.X)
	}
	bound := cmp.Or(largest, 1)
	chart.SetGlobalOptions(append(f.global(), charts.WithVisualMapOpts(opts.VisualMap{
		Dimension: "2", Min: float32(-bound), Max: float32(bound), Right: "0", Top: "middle",
		Text:    []string{f.shade(bound) + strings.TrimPrefix(f.Scale, "difference,"), f.shade(-bound)},
		InRange: &opts.VisualMapInRange{Color: divergingColours},
	}))...)
	for _, side := range []string{"right", "left"} { // of a mark, the side with more space
		var data []opts.ScatterData
		for _, p := range points {
			if (p.X > (left+right)/2) != (side == "left") {
				continue
			}
			interval := "–"
			if p.Known() {
				interval = Range(f.shade(p.Low), f.shade(p.High))
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
			charts.WithLabelOpts(opts.Label{Show: opts.Bool(true), Position: side, Formatter: "{b} {@[3]}"}),
			charts.WithLabelLayoutOpts(opts.LabelLayout{MoveOverlap: "shiftY"}))
	}
	return finish(chart)
}
