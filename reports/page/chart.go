package page

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-echarts/go-echarts/v2/charts"
	"github.com/go-echarts/go-echarts/v2/opts"
	"github.com/go-echarts/go-echarts/v2/types"
)

// diagonalColour has a contrast of 3 on both backgrounds.
const diagonalColour = "#808891"

// Steps from few to many, of one hue.
var (
	LightSteps = []string{"#dbe4f0", "#bcd0e8", "#9abade", "#77a3d2", "#568bc2", "#3b72ad", "#275a93", "#174376",
		"#0b2d57"}
	darkSteps = []string{"#24303f", "#2b4360", "#335880", "#3e6f9f", "#5287bb", "#6ea0d0", "#8fb9e2", "#b3d1f0",
		"#d8e8fb"}
)

// divergingColours run from negative over zero to positive differences. Each has a contrast of 3 on the light and on
// the dark background, and readers with common colour deficiencies can distinguish blue, grey and orange.
var divergingColours = []string{"#1a72b5", "#4a7fae", "#808891", "#b37a48", "#d0640f"}

// layer is a series of a chart.
type layer = charts.SingleSeries

// options draws the figure as one list of series and returns the options for the chart library as JSON for a script
// element (json.Marshal escapes <, > and &). Colours are for the light background; the page's script replaces them on
// the dark one.
func (f *Figure) options() ([]byte, error) {
	chart := charts.NewLine()
	chart.SetGlobalOptions(f.global()...)
	if f.Categories != nil {
		chart.SetXAxis(f.Categories)
	}
	switch {
	case f.Effects != nil:
		chart.MultiSeries = f.forest()
	case f.Scale != "":
		chart.MultiSeries = f.marks()
		bound := f.largest()
		chart.VisualMapList = []opts.VisualMap{{
			Dimension: "2", Min: float32(-bound), Max: float32(bound), Right: "0", Top: "middle",
			Text:    []string{f.shade(bound) + strings.TrimPrefix(f.Scale, "difference,"), f.shade(-bound)},
			InRange: &opts.VisualMapInRange{Color: divergingColours},
		}}
	case f.Apart+f.Lower != "":
		f.alignPanels(chart)
		fallthrough
	default:
		for panel := range 2 {
			for i := range f.Series {
				if s := &f.Series[i]; f.shows(s, panel) {
					chart.MultiSeries = append(chart.MultiSeries, f.layers(s, i, panel)...)
				}
			}
		}
	}
	if f.Diagonal != "" {
		low, high := f.extent()
		ends := pairs([]float64{low, high}, []float64{low, high})
		chart.MultiSeries = append(chart.MultiSeries, line(f.Diagonal, "", ends, diagonalColour, 1.5, 1, "dashed"))
	}
	linesFirst := func(a, b layer) int { return strings.Compare(b.Type, a.Type) }
	slices.SortStableFunc(chart.MultiSeries, linesFirst)
	chart.Validate()
	options := chart.JSON()
	for _, unused := range []string{"title", "color", "toolbox"} { // defaults of go-echarts
		delete(options, unused)
	}
	return json.Marshal(options)
}

// shows reports whether a panel, 0 or the lower 1, shows the series.
func (f *Figure) shows(s *Series, panel int) bool {
	if panel == 0 {
		return !s.Lower
	}
	return s.Lower || f.Apart != "" && s.Name != f.Apart
}

// layers draws a series: its points on their intervals, its spans, or its curves.
func (f *Figure) layers(s *Series, at, panel int) []layer {
	switch {
	case f.Lanes != nil:
		data := make([]opts.CustomData, len(s.Points))
		for i, p := range s.Points {
			data[i] = opts.CustomData{Name: p.Label, Value: []any{short(p.Low), short(p.High), int(p.Value)}}
		}
		return []layer{custom(s.Name, data, "span", s.colour(), opts.Encode{X: []int{0, 1}, Y: 2})}
	case f.Categories != nil || f.Diagonal != "":
		place, places := at, len(f.Series) // the arms are side by side above each category
		if f.Categories == nil {
			place, places = 0, 1
		}
		var data []opts.CustomData
		for _, p := range s.Points {
			value := []any{short(p.X), short(p.Value), short(p.Low), short(p.High), place, places, s.Look.Marker}
			data = append(data, opts.CustomData{Name: p.Label, Value: append(value, shorts(p.Each)...)})
		}
		return []layer{custom(s.Name, data, "interval", s.colour(), opts.Encode{X: 0, Y: []int{1, 2, 3}})}
	case f.Stacked:
		points := thinned(s.X, movingAverage(s.mean(), f.Smooth))
		for _, p := range points {
			p[0] = fmt.Sprint(p[0])
		}
		area := line(s.Name, fmt.Sprintf("=%d", at), points, s.colour(), 1, 1, "solid")
		area.Stack, area.AreaStyle = "all", &opts.AreaStyle{Color: s.colour(), Opacity: opts.Float(1)}
		return []layer{area}
	}
	return f.curve(s, at, panel)
}

// curve draws a series in a panel: its band, a faint line of the values and a thick one of their moving average.
func (f *Figure) curve(s *Series, at, panel int) (all []layer) {
	id := strings.TrimSpace(fmt.Sprintf("=%d %s", at, s.Variant))
	if panel > 0 && !s.Lower {
		id = fmt.Sprintf("panel %d %s", panel, id) // tooltips show the lines of the first panel
	}
	mean := s.mean()
	points := pairs(s.X, mean)
	if f.Smooth > 1 && s.Variant == "" { // faint lines would hide several lines of an arm
		all = append(all, line(s.Name, "", points, s.colour(), 1, 0.28, "solid"))
	}
	if f.Smooth > 1 {
		points = thinned(s.X, movingAverage(mean, f.Smooth))
	}
	thick := line(s.Name, id, points, s.colour(), 2, 1, []string{"solid", "dashed", "dotted"}[s.Dash%3])
	thick.Symbol, thick.SymbolSize, thick.ShowSymbol = symbols[s.Look.Marker], 6, opts.Bool(true)
	if all = append(all, thick); len(s.Curves) > 1 {
		low, high := s.band(f.Smooth)
		all = append(all, layer{Name: s.Name, Type: types.ChartCustom, Data: thinned(s.X, low, high), RenderItem: "band",
			ItemStyle: &opts.ItemStyle{Color: s.colour()}})
	}
	for i := range all {
		all[i].XAxisIndex, all[i].YAxisIndex = panel, panel
	}
	return all
}

// alignPanels adds a lower panel over the same updates with its own axis of values.
func (f *Figure) alignPanels(chart *charts.Line) {
	last := 0.0
	for i := range f.Series {
		last = max(last, slices.Max(f.Series[i].X))
	}
	chart.XAxisList[0].Max, chart.XAxisList[0].Name = last, ""
	chart.ExtendXAxis(opts.XAxis{Type: "value", GridIndex: 1, Min: "dataMin", Max: last, MinInterval: 1, Name: f.X,
		NameLocation: "middle", NameGap: 26})
	chart.ExtendYAxis(opts.YAxis{Name: cmp.Or(f.Lower, "without "+f.Apart), Type: "value", Scale: opts.Bool(true),
		GridIndex: 1, NameLocation: "end"})
	chart.GridList = []opts.Grid{
		{Left: "52", Right: "16", Top: "30", Bottom: "54%"}, // equal margins align the panels
		{Left: "52", Right: "16", Top: "58%", Bottom: "46"}}
}

// forest draws each row at its distance from the top, in pixels.
func (f *Figure) forest() []layer {
	var data []opts.CustomData
	y, second := 0, f.Second()
	for i, e := range f.Effects {
		if head := f.head(i); head != "" {
			data = append(data, opts.CustomData{Name: head + "\n" + e.Expect, Value: []any{"-", y}})
			y += forestHeading
		}
		value := []any{short(e.Effect), y, short(number(e.Low)), short(number(e.High)), short(number(e.Detectable)),
			short(e.Matters), e.Verdict != NotDecided}
		data = append(data, opts.CustomData{Name: strings.Join([]string{e.name(second), e.Number(), string(e.Verdict)}, "\n"),
			Value: append(value, shorts(e.PerSeed)...)})
		y += forestEffect
	}
	return []layer{custom(f.Title, data, "forest", lightColours[0], opts.Encode{X: []int{0, 2, 3}, Y: 1})}
}

// marks draws a triangle for each point, coloured by its shade on a scale that is symmetrical around 0.
func (f *Figure) marks() (all []layer) {
	points, left, right := f.Series[0].Points, math.Inf(1), math.Inf(-1)
	for _, p := range points {
		left, right = min(left, p.X), max(right, p.X)
	}
	for _, side := range []string{"right", "left"} { // the side of a mark with more space
		var data []opts.ScatterData
		for _, p := range points {
			if (p.X > (left+right)/2) != (side == "left") {
				continue
			}
			mark := opts.ScatterData{Name: p.Label, Symbol: "triangle", SymbolSize: 12,
				Value: []any{short(p.X), short(p.Value), short(p.Shade), f.shade(p.Shade), "–"}}
			if p.Known() {
				mark.Value.([]any)[4] = Range(f.shade(p.Low), f.shade(p.High))
				if p.Excludes(0) {
					mark.SymbolSize = 24
				}
			}
			switch {
			case p.Shade < 0:
				mark.SymbolRotate = 180
			case p.Shade == 0:
				mark.Symbol = "circle"
			}
			data = append(data, mark)
		}
		if data != nil {
			all = append(all, layer{Name: f.Series[0].Name, Type: types.ChartScatter, Data: data,
				Label:       &opts.Label{Show: opts.Bool(true), Position: side, Formatter: "{b} {@[3]}"},
				LabelLayout: &opts.LabelLayout{MoveOverlap: "shiftY"}})
		}
	}
	return all
}

// ScalePrefix is followed by the unit of a difference in the Scale of a figure.
const ScalePrefix = "difference, "

// shade formats a value of the colour, with its sign.
func (f *Figure) shade(v float64) string {
	return (&Effect{Unit: strings.TrimPrefix(f.Scale, ScalePrefix)}).Amount(v)
}

// largest returns the largest size of a shade, 1 if all are 0.
func (f *Figure) largest() (most float64) {
	for _, p := range f.Points {
		most = max(most, math.Abs(p.Shade))
	}
	return cmp.Or(most, 1)
}

// extent returns the limits of an axis around all points or effects: multiples of a tenth or, of shares in categories,
// of a fifth from 0 on; a forest plot contains 0 and has margins.
func (f *Figure) extent() (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	include := func(values ...float64) {
		for _, v := range values {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	for _, p := range f.Points {
		if include(p.Value, p.Low, p.High); f.Diagonal != "" {
			include(p.X)
		}
		include(p.Each...)
	}
	for _, e := range f.Effects {
		include(0, e.Effect, number(e.Low), number(e.High), e.Matters, -e.Matters, number(e.Detectable),
			-number(e.Detectable))
		include(e.PerSeed...)
	}
	switch margin := (high - low) / 20; {
	case f.Categories != nil:
		return 0, min(1, max(0.2, math.Ceil(5*high)/5))
	case f.Effects == nil:
		return math.Floor(10*low) / 10, math.Ceil(10*high) / 10
	case low == high:
		return -1, 1
	default:
		return low - margin, high + margin
	}
}

// global returns the common options. The page's script adds options that depend on the background.
func (f *Figure) global() []charts.GlobalOpts {
	y := opts.YAxis{Name: f.Y, Type: "value", Scale: opts.Bool(true), NameLocation: "end"}
	if f.Share {
		y.Min, y.Scale = 0, nil
	}
	x := opts.XAxis{Name: f.X, Type: "value", NameLocation: "middle", NameGap: 26}
	switch {
	case f.Categories != nil:
		x.Name, x.Type = "", "category"
		_, y.Max = f.extent()
	case f.Diagonal != "":
		x.Min, x.Max = f.extent()
		y.Min, y.Max = x.Min, x.Max
	case f.Effects != nil:
		x.Min, x.Max = f.extent()
		y = opts.YAxis{Type: "value", Min: 0, Max: f.forestHeight(), Inverse: opts.Bool(true)}
	case f.Lanes != nil:
		x.Min, x.Max = 0, "dataMax"
		names := slices.Clone(f.Lanes)
		for i := range names {
			if len(f.Series) == len(names) { // each arm has a lane
				names[i] = f.Series[i].Look.glyph() + names[i]
			}
		}
		y = opts.YAxis{Type: "category", Data: names, Inverse: opts.Bool(true)}
	case f.Scale != "":
		x.Scale = opts.Bool(true)
	case f.Stacked: // with two numeric axes, both would be stacked
		x.Type, y.Max = "category", 1
	default:
		x.Min, x.Max, x.MinInterval = "dataMin", "dataMax", 1
	}
	trigger := "axis"
	if !f.curves() {
		trigger = "item"
	}
	return []charts.GlobalOpts{
		charts.WithAnimation(false),
		charts.WithXAxisOpts(x), charts.WithYAxisOpts(y),
		charts.WithLegendOpts(opts.Legend{Show: opts.Bool(false), Left: "0"}), // the page's script writes a legend that wraps
		charts.WithTooltipOpts(opts.Tooltip{Show: opts.Bool(true), Trigger: trigger}),
		charts.WithGridOpts(opts.Grid{Left: "8", Right: "16", Top: "30", Bottom: "28", ContainLabel: opts.Bool(true)}),
	}
}

func (s *Series) colour() string {
	if s.Step > 0 {
		return LightSteps[min(s.Step, len(LightSteps))-1]
	}
	if !s.Look.Known {
		return lightColours[Baselines*Shades+1]
	}
	return lightColours[s.Look.Colour]
}

// symbols are the chart library's names of the markers.
var symbols = []string{"circle", "diamond", "rect", "triangle"}

// custom returns a series that a function of the page's script draws.
func custom(name string, data []opts.CustomData, by types.FuncStr, colour string, encode opts.Encode) layer {
	return layer{Name: name, Type: types.ChartCustom, Data: data, RenderItem: by,
		ItemStyle: &opts.ItemStyle{Color: colour}, Encode: &encode}
}

// line returns a line. Thick lines have an id, which the page's script uses in the tooltip.
func line(name, id string, data [][]any, colour string, width, opacity float32, dash string) layer {
	return layer{Name: name, Type: types.ChartLine, Id: id, Data: data,
		ShowSymbol: opts.Bool(id != "" && len(data) <= 12), // few points are drawn as dots
		ItemStyle:  &opts.ItemStyle{Color: colour},
		LineStyle:  &opts.LineStyle{Color: colour, Width: width, Opacity: opts.Float(opacity), Type: dash}}
}

// pairs returns the points of a curve for the chart library: [x, y, …].
func pairs(x []float64, ys ...[]float64) [][]any {
	data := make([][]any, 0, len(x))
	for i := range x {
		point := []any{short(x[i])}
		for _, y := range ys {
			if i < len(y) {
				point = append(point, short(y[i]))
			}
		}
		data = append(data, point)
	}
	return data
}

// thinned returns about 120 points of smoothed curves with both ends; smoothing removes finer detail.
func thinned(x []float64, ys ...[]float64) [][]any {
	all := pairs(x, ys...)
	step := (len(all) + 119) / 120
	if step < 2 {
		return all
	}
	kept := all[:1:1]
	for i := (len(all)-2)%step + 1; i < len(all); i += step {
		kept = append(kept, all[i])
	}
	return kept
}

// short formats a number for drawing with four significant digits; "-", which draws nothing, for NaN.
func short(v float64) any {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	return json.Number(strconv.FormatFloat(v, 'g', 4, 64))
}

func shorts(values []float64) (all []any) {
	for _, v := range values {
		all = append(all, short(v))
	}
	return all
}

// number returns the number, NaN for nil.
func number(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}
