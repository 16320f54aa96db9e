package reports

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Colours of the arms on light and on dark background: hues of Okabe and Ito's set, which readers with common colour
// deficiencies can distinguish, with a lightness that gives a contrast of 3. An arm has the same colour on the whole
// page; after the last colour they repeat with another dash.
var (
	lightColours = []string{"#0072b2", "#d55e00", "#00875f", "#a8487f", "#8a6d00", "#5f5f5f", "#3c9fd0"}
	darkColours  = []string{"#5aa9e6", "#f28e4e", "#2fc39b", "#e08fbb", "#e3b94c", "#b3b3b3", "#8fcdf0"}
)

// diagonalColour has a contrast of 3 on both backgrounds.
const diagonalColour = "#808891"

// Steps from few to many, of one hue.
var (
	lightSteps = []string{"#dbe4f0", "#bcd0e8", "#9abade", "#77a3d2", "#568bc2", "#3b72ad", "#275a93", "#174376",
		"#0b2d57"}
	darkSteps = []string{"#24303f", "#2b4360", "#335880", "#3e6f9f", "#5287bb", "#6ea0d0", "#8fb9e2", "#b3d1f0",
		"#d8e8fb"}
)

// object is an object of the options of ECharts.
type object = map[string]any

// chart returns the options of ECharts for the figure, as JSON for a script element (json.Marshal escapes <, > and &).
// The page's script replaces colours and adds options on the dark background, and contains the renderers.
func (f *Figure) chart() ([]byte, error) {
	var series []object
	if f.Diagonal != "" {
		low, high := f.ends()
		series = append(series, line(f.Diagonal, "", pairs([]float64{low, high}, []float64{low, high}), diagonalColour,
			"dashed", 1.5, 1))
	}
	for i := range f.Series {
		s := &f.Series[i]
		switch {
		case f.Categories != nil || f.Diagonal != "":
			series = append(series, s.rendered("interval", s.intervals(f, i), object{"x": 0, "y": []int{1, 2, 3}}))
		case f.Lanes != nil:
			var spans []object
			for _, span := range s.Spans {
				spans = append(spans, object{"name": span.Label, "value": []any{short(span.From), short(span.To), span.Lane}})
			}
			series = append(series, s.rendered("span", spans, object{"x": []int{0, 1}, "y": 2}))
		case f.Stacked:
			points := thinned(s.X, movingAverage(s.mean(), f.Smooth))
			for _, p := range points {
				p[0] = fmt.Sprint(p[0]) // a category, because with two numeric axes both would be stacked
			}
			area := line(s.Name, fmt.Sprintf("=%d", i), points, s.colour(), "solid", 1, 1)
			area["stack"], area["areaStyle"] = "all", object{"color": s.colour(), "opacity": 1}
			series = append(series, area)
		default:
			if f.Smooth > 1 && s.Variant == "" { // faint lines would hide several lines of an arm
				series = append(series, line(s.Name, "", pairs(s.X, s.mean()), s.colour(), "solid", 1, 0.28))
			}
			points := pairs(s.X, s.mean())
			if f.Smooth > 1 {
				points = thinned(s.X, movingAverage(s.mean(), f.Smooth))
			}
			id := strings.TrimSpace(fmt.Sprintf("=%d %s", i, s.Variant))
			series = append(series, line(s.Name, id, points, s.colour(), s.dash(), 2, 1))
			if low, high := s.band(f.Smooth); low != nil {
				series = append(series, s.rendered("band", thinned(s.X, low, high), nil))
			}
		}
	}
	return json.Marshal(f.options(series))
}

// intervals returns the points for the renderer: x, value, low, high, index and number of the series above one x,
// shape, then each seed's value.
func (s *Series) intervals(f *Figure, index int) []object {
	var data []object
	for c, p := range s.Points {
		value := []any{c, short(p.Value), short(p.Low), short(p.High), index, len(f.Series), s.shape()}
		if f.Diagonal != "" {
			value[0], value[4], value[5] = short(p.X), 0, 1
		} else if !s.has(c) {
			continue
		}
		for _, v := range p.Each {
			value = append(value, short(v))
		}
		data = append(data, object{"name": p.Label, "value": value})
	}
	return data
}

// rendered returns a series that a function of the page's script draws.
func (s *Series) rendered(by string, data any, encode object) object {
	o := object{"name": s.Name, "type": "custom", "renderItem": by, "data": data, "itemStyle": object{"color": s.colour()}}
	if encode != nil {
		o["encode"] = encode
	}
	return o
}

// line returns a series drawn as a line. Thick lines have an id, which the page's script uses in the tooltip.
func line(name, id string, data [][]any, colour, dash string, width, opacity float64) object {
	o := object{"name": name, "type": "line", "data": data,
		"showSymbol": id != "" && len(data) <= 12, // few points are drawn as dots
		"itemStyle":  object{"color": colour},
		"lineStyle":  object{"color": colour, "width": width, "opacity": opacity, "type": dash}}
	if id != "" {
		o["id"] = id
	}
	return o
}

// options returns the options with the axes of the figure.
func (f *Figure) options(series []object) object {
	x := object{"name": f.X, "type": "value", "nameLocation": "middle", "nameGap": 26}
	y := object{"name": f.Y, "type": "value", "nameLocation": "end"}
	if f.Share {
		y["min"] = 0
	} else {
		y["scale"] = true
	}
	switch {
	case f.Categories != nil:
		x["name"], x["type"], x["data"] = "", "category", f.Categories
		if f.Share {
			y["max"] = f.top()
		}
	case f.Diagonal != "":
		low, high := f.ends()
		x["min"], x["max"], y["min"], y["max"] = low, high, low, high
	case f.Lanes != nil:
		x["min"], x["max"] = 0, "dataMax"
		y = object{"type": "category", "data": f.Lanes, "inverse": true}
	case f.Stacked:
		x["type"], y["max"] = "category", 1
	default:
		x["min"], x["max"], x["minInterval"] = "dataMin", "dataMax", 1
	}
	trigger := "item"
	if f.curves() {
		trigger = "axis"
	}
	return object{
		"animation": false, "series": series, "xAxis": []object{x}, "yAxis": []object{y},
		"legend":  object{"show": false, "left": "0"}, // the page's script writes a legend that wraps
		"tooltip": object{"show": true, "trigger": trigger},
		"grid":    []object{{"left": "8", "right": "16", "top": "30", "bottom": "28", "containLabel": true}},
	}
}

// top returns the upper limit of an axis of shares: a multiple of a fifth above all intervals and seeds.
func (f *Figure) top() float64 {
	_, high := f.limits(5)
	return math.Min(1, math.Max(0.2, high))
}

// ends returns the limits of both axes of a figure with a diagonal: multiples of a tenth around all points.
func (f *Figure) ends() (low, high float64) { return f.limits(10) }

// limits returns the multiples of 1/steps around all points.
func (f *Figure) limits(steps float64) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, s := range f.Series {
		for _, p := range s.Points {
			all := append([]float64{p.Value, p.Low, p.High}, p.Each...)
			if f.Diagonal != "" {
				all = append(all, p.X)
			}
			for _, v := range all {
				if !math.IsNaN(v) {
					low, high = math.Min(low, math.Floor(steps*v)/steps), math.Max(high, math.Ceil(steps*v)/steps)
				}
			}
		}
	}
	return low, high
}

func (s *Series) colour() string {
	if s.Step > 0 {
		return lightSteps[min(s.Step, len(lightSteps))-1]
	}
	if s.Arm < 0 {
		return lightColours[len(lightColours)-1]
	}
	return lightColours[s.Arm%len(lightColours)]
}

// shape counts how often the colours were repeated before the arm.
func (s *Series) shape() int { return max(0, s.Arm) / len(lightColours) }

func (s *Series) dash() string { return []string{"solid", "dashed", "dotted"}[(s.Dash+s.shape())%3] }

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
