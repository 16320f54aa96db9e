package page

import (
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

// Options draws the figure with go-echarts and returns its options as JSON for a script element (json.Marshal escapes
// <, > and &). Colours are for the light background; the page's script replaces them on the dark one.
func (f *Figure) Options() ([]byte, error) {
	switch {
	case f.Categories != nil || f.Diagonal != "":
		return f.pointChart()
	case f.Scale != "":
		return f.mapChart()
	case f.Effects != nil:
		return f.forestChart()
	case f.Lanes != nil:
		return f.laneChart()
	case f.Stacked:
		return f.stackedChart()
	}
	line, bands := charts.NewLine(), charts.NewCustom()
	line.SetGlobalOptions(f.global()...)
	for i := range f.Series {
		panel := 0
		if f.Series[i].Lower {
			panel = 1
		}
		f.curve(line, bands, i, panel)
	}
	if f.Apart != "" {
		f.secondPanel(line, bands)
	}
	if f.Lower != "" {
		f.alignPanels(line, f.Lower)
	}
	line.Overlap(bands)
	return finish(line)
}

// curve draws a series in a panel: its band, a faint line of the values and a thick one of their moving average.
func (f *Figure) curve(line *charts.Line, bands *charts.Custom, i, panel int) {
	s := &f.Series[i]
	in := func(o *charts.SingleSeries) { o.XAxisIndex, o.YAxisIndex = panel, panel }
	id := strings.TrimSpace(fmt.Sprintf("=%d %s", i, s.Variant))
	if panel > 0 && !s.Lower {
		id = fmt.Sprintf("panel %d %s", panel, id) // tooltips show the lines of the first panel
	}
	colour, mean := s.colour(), s.mean()
	if low, high := s.band(f.Smooth); low != nil {
		bands.AddSeries(s.Name, nil, in, charts.WithSeriesOpts(func(o *charts.SingleSeries) {
			o.Data, o.RenderItem = thinned(s.X, low, high), "band"
			o.ItemStyle = &opts.ItemStyle{Color: colour}
		}))
	}
	if f.Smooth > 1 && s.Variant == "" { // faint lines would hide several lines of an arm
		line.AddSeries(s.Name, nil, in, drawn("", pairs(s.X, mean), colour, 1, 0.28, "solid"))
	}
	points := pairs(s.X, mean)
	if f.Smooth > 1 {
		points = thinned(s.X, movingAverage(mean, f.Smooth))
	}
	line.AddSeries(s.Name, nil, in, drawn(id, points, colour, 2, 1, s.dash()), func(o *charts.SingleSeries) {
		o.Symbol, o.SymbolSize, o.ShowSymbol = symbols[s.Look.Marker], 6, opts.Bool(true)
	})
}

// secondPanel draws all curves except those of Apart below the others.
func (f *Figure) secondPanel(line *charts.Line, bands *charts.Custom) {
	for i := range f.Series {
		if f.Series[i].Name != f.Apart {
			f.curve(line, bands, i, 1)
		}
	}
	f.alignPanels(line, "without "+f.Apart)
}

// alignPanels adds a lower panel over the same updates with its own axis of values.
func (f *Figure) alignPanels(line *charts.Line, lower string) {
	last := 0.0
	for i := range f.Series {
		last = max(last, slices.Max(f.Series[i].X))
	}
	line.XAxisList[0].Max, line.XAxisList[0].Name = last, ""
	line.ExtendXAxis(opts.XAxis{Type: "value", GridIndex: 1, Min: "dataMin", Max: last, MinInterval: 1, Name: f.X,
		NameLocation: "middle", NameGap: 26})
	line.ExtendYAxis(opts.YAxis{Name: lower, Type: "value", Scale: opts.Bool(true), GridIndex: 1, NameLocation: "end"})
	line.GridList = []opts.Grid{
		{Left: "52", Right: "16", Top: "30", Bottom: "54%"}, // equal margins align the panels
		{Left: "52", Right: "16", Top: "58%", Bottom: "46"}}
}

// pointChart draws each point as a dot on its interval: the arms side by side above each category, or beside the line
// on which both axes are equal. The page's script contains the renderer "interval".
func (f *Figure) pointChart() ([]byte, error) {
	points := charts.NewCustom()
	if f.Categories != nil {
		points.SetXAxis(f.Categories)
		points.SetGlobalOptions(f.global()...)
	}
	for i, s := range f.Series {
		place, places := i, len(f.Series)
		if f.Categories == nil {
			place, places = 0, 1
		}
		var data []opts.CustomData
		for _, p := range s.Points {
			value := []any{short(p.X), short(p.Value), short(p.Low), short(p.High), place, places, s.Look.Marker}
			for _, v := range p.Each {
				value = append(value, short(v))
			}
			data = append(data, opts.CustomData{Name: p.Label, Value: value})
		}
		points.AddSeries(s.Name, data, rendered("interval", s.colour(), opts.Encode{X: 0, Y: []int{1, 2, 3}}))
	}
	if f.Categories != nil {
		return finish(points)
	}
	line := charts.NewLine()
	line.SetGlobalOptions(f.global()...)
	low, high := f.ends()
	ends := pairs([]float64{low, high}, []float64{low, high})
	line.AddSeries(f.Diagonal, nil, drawn("", ends, diagonalColour, 1.5, 1, "dashed"))
	line.Overlap(points)
	return finish(line)
}

// rendered returns the options of a series that a function of the page's script draws.
func rendered(by types.FuncStr, colour string, encode opts.Encode) charts.SeriesOpts {
	return charts.WithSeriesOpts(func(o *charts.SingleSeries) {
		o.RenderItem, o.ItemStyle, o.Encode = by, &opts.ItemStyle{Color: colour}, &encode
	})
}

// ends returns the limits of both axes of a figure with a diagonal: multiples of a tenth around all points.
func (f *Figure) ends() (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, p := range f.Points {
		for _, v := range []float64{p.X, p.Value, p.Low, p.High} {
			if !math.IsNaN(v) {
				low, high = min(low, math.Floor(10*v)/10), max(high, math.Ceil(10*v)/10)
			}
		}
	}
	return low, high
}

// laneChart draws the spans as bars in lanes. The page's script contains the renderer "span".
func (f *Figure) laneChart() ([]byte, error) {
	var lanes []string
	chart := charts.NewCustom()
	chart.SetGlobalOptions(f.global()...)
	for i, lane := range f.Lanes {
		if len(f.Series) == len(f.Lanes) { // a lane for each arm
			lane = f.Series[i].Look.glyph() + lane
		}
		lanes = append(lanes, lane)
	}
	chart.YAxisList[0].Data = lanes
	for _, s := range f.Series {
		data := make([]opts.CustomData, len(s.Spans))
		for i, span := range s.Spans {
			data[i] = opts.CustomData{Name: span.Label, Value: []any{short(span.From), short(span.To), span.Lane}}
		}
		chart.AddSeries(s.Name, data, rendered("span", s.colour(), opts.Encode{X: []int{0, 1}, Y: 2}))
	}
	return finish(chart)
}

// forestChart draws each row at its distance from the top, in pixels. The page's script contains the renderer "forest".
func (f *Figure) forestChart() ([]byte, error) {
	chart := charts.NewCustom()
	chart.SetGlobalOptions(f.global()...)
	chart.XAxisList[0].Min, chart.XAxisList[0].Max = f.extent()
	chart.YAxisList[0] = opts.YAxis{Type: "value", Min: 0, Max: f.forestHeight(), Inverse: opts.Bool(true)}
	top := 0
	var data []opts.CustomData
	for _, row := range f.forestRows() {
		y := top
		top += row.height()
		if row.Effect == nil {
			data = append(data, opts.CustomData{Name: row.text + "\n" + row.expect, Value: []any{"-", y}})
			continue
		}
		value := []any{short(row.Effect.Effect), y}
		for _, v := range []*float64{row.Low, row.High, row.Detectable} {
			if v == nil {
				value = append(value, "-")
			} else {
				value = append(value, short(*v))
			}
		}
		value = append(value, short(row.Matters), row.Verdict != NotDecided)
		for _, v := range row.PerSeed {
			value = append(value, short(v))
		}
		name := strings.Join([]string{row.text, row.Number(), string(row.Verdict)}, "\n")
		data = append(data, opts.CustomData{Name: name, Value: value})
	}
	chart.AddSeries(f.Title, data, rendered("forest", lightColours[0], opts.Encode{X: []int{0, 2, 3}, Y: 1}))
	return finish(chart)
}

// stackedChart draws the means of the curves as stacked areas.
func (f *Figure) stackedChart() ([]byte, error) {
	line := charts.NewLine()
	line.SetGlobalOptions(f.global()...)
	for i, s := range f.Series {
		points := thinned(s.X, movingAverage(s.mean(), f.Smooth))
		for _, p := range points {
			p[0] = fmt.Sprint(p[0])
		}
		stacked := charts.WithSeriesOpts(func(o *charts.SingleSeries) {
			o.Stack = "all"
			o.AreaStyle = &opts.AreaStyle{Color: s.colour(), Opacity: opts.Float(1)}
			o.LineStyle.Width = 1
		})
		line.AddSeries(s.Name, nil, drawn(fmt.Sprintf("=%d", i), points, s.colour(), 2, 1, "solid"), stacked)
	}
	return finish(line)
}

// global returns the common options. The page's script adds options that depend on the background.
func (f *Figure) global() []charts.GlobalOpts {
	y := opts.YAxis{Name: f.Y, Type: "value", Scale: opts.Bool(true), NameLocation: "end"}
	if f.Share {
		y.Min, y.Scale = 0, nil
		if f.Categories != nil {
			y.Max = f.top()
		}
		if f.Stacked {
			y.Max = 1
		}
	}
	x := opts.XAxis{Name: f.X, Type: "value", NameLocation: "middle", NameGap: 26}
	switch {
	case f.Categories != nil:
		x.Name, x.Type = "", "category"
	case f.Diagonal != "":
		low, high := f.ends()
		x.Min, x.Max, y.Min, y.Max = low, high, low, high
	case f.Lanes != nil:
		x.Min, x.Max = 0, "dataMax"
		y = opts.YAxis{Type: "category", Data: f.Lanes, Inverse: opts.Bool(true)}
	case f.Scale != "":
		x.Scale = opts.Bool(true)
	case f.Stacked: // with two numeric axes, both would be stacked
		x.Type = "category"
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

// top returns the upper limit of an axis of shares: a multiple of a fifth above all intervals and seeds.
func (f *Figure) top() float64 {
	top := 0.2
	for _, p := range f.Points {
		for _, v := range append([]float64{p.Value, p.High}, p.Each...) {
			if !math.IsNaN(v) {
				top = max(top, math.Ceil(5*v)/5)
			}
		}
	}
	return math.Min(1, top)
}

// finish encodes the options without unused defaults of go-echarts.
func finish(chart interface {
	Validate()
	JSON() map[string]any
}) ([]byte, error) {
	chart.Validate()
	options := chart.JSON()
	for _, unused := range []string{"title", "color", "toolbox"} {
		delete(options, unused)
	}
	return json.Marshal(options)
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

func (s *Series) dash() string { return []string{"solid", "dashed", "dotted"}[s.Dash%3] }

// symbols are the chart library's names of the markers.
var symbols = []string{"circle", "diamond", "rect", "triangle"}

// drawn returns the options of a line. Thick lines have an id, which the page's script uses in the tooltip.
func drawn(id string, data [][]any, colour string, width, opacity float32, dash string) charts.SeriesOpts {
	return charts.WithSeriesOpts(func(o *charts.SingleSeries) {
		o.Id, o.Data = id, data
		o.ShowSymbol = opts.Bool(id != "" && len(data) <= 12) // few points are drawn as dots
		o.ItemStyle = &opts.ItemStyle{Color: colour}
		o.LineStyle = &opts.LineStyle{Color: colour, Width: width, Opacity: opts.Float(opacity), Type: dash}
	})
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
