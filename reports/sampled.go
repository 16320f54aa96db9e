package reports

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"rcgrpo/stages/rl"
)

// passTable is pass@k by arm, from the sampled episodes of each task: the unbiased estimate that one of k succeeds, mean
// over tasks, then over seeds. k doubles up to the number of episodes that every task has. nil where no task was sampled
// at least twice.
func (s *Study) passTable(set string) *Table {
	most := 0
	curves := make([][][]float64, len(s.Arms)) // by arm and policy: pass@1, pass@2, pass@4, …
	for i := range s.Arms {
		for _, p := range s.Arms[i].policies(set, false) {
			curve := p.passCurve()
			curves[i] = append(curves[i], curve)
			most = max(most, len(curve))
		}
	}
	if most < 2 {
		return nil
	}
	t := &Table{
		ID: "pass-at-k-" + setID(set), Title: "pass@k on " + setName(set) + ", sampled", Columns: []Column{{Name: "Arm", Left: true}},
		Notes: []string{"The probability that at least one of k sampled episodes of a task succeeds, by the unbiased estimator of Chen et al. 2021 (eq. 1), mean over tasks; from three policies on, the mean over policies with its 95 % t-interval, below that each policy by itself."},
	}
	for p := range most {
		t.Columns = append(t.Columns, Column{Name: fmt.Sprintf("k = %d", 1<<p)})
	}
	for i := range s.Arms {
		a := &s.Arms[i]
		row := Row{Arm: i, Cells: []Cell{Words("%s", a.Label)}}
		found := false
		for p := range most {
			var values []float64
			for _, curve := range curves[i] {
				if p < len(curve) {
					values = append(values, curve[p])
				}
			}
			found = found || len(values) > 0
			row.Cells = append(row.Cells, meanOrEach(values).From(scoresOf(a.Runs, fmt.Sprintf("pass@%d, mean over tasks, then over policies", 1<<p), set, a.condition(), "", false)))
		}
		if found {
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// passFigure draws the curves of passTable, one for each seed; nil where that table is.
func (s *Study) passFigure(set string) *Figure {
	f := &Figure{
		ID: "fig-pass-at-k-" + setID(set), Title: "pass@k on " + setName(set), X: "k", Y: "pass@k", Share: true,
		Note: "The probability that at least one of k sampled episodes of a task succeeds, mean over tasks; several seeds: their mean, and a band from the lowest to the highest.",
	}
	most := 0
	for i := range s.Arms {
		a := &s.Arms[i]
		series := Series{Name: a.Label, Arm: i}
		for _, one := range a.policies(set, false) {
			curve := one.passCurve()
			for p := len(series.X); p < len(curve); p++ {
				series.X = append(series.X, float64(int(1)<<p))
			}
			most = max(most, len(curve))
			own := slices.DeleteFunc(slices.Clone(a.Runs), func(r Run) bool { return r.identity() != one.identity })
			series.Runs = append(series.Runs, Curve{Name: one.name(), Y: curve, Source: scoresOf(own, "pass@k, mean over tasks", set, a.condition(), "", false)})
		}
		if len(series.Runs) > 0 {
			f.Series = append(f.Series, series)
		}
	}
	if most < 2 {
		return nil
	}
	return f
}

// passCurve is pass@1, pass@2, pass@4, … of a policy's sampled episodes.
func (p *policy) passCurve() []float64 {
	fewest := math.MaxInt
	for _, one := range p.outcomes {
		fewest = min(fewest, one.episodes)
	}
	var curve []float64
	for k := 1; len(p.outcomes) > 0 && k <= fewest; k *= 2 {
		sum := 0.0
		for _, task := range sortedKeys(p.outcomes) { // in one order, so that sums are equal
			sum += rl.PassAtK(p.outcomes[task].episodes, p.outcomes[task].passed, k)
		}
		curve = append(curve, sum/float64(len(p.outcomes)))
	}
	return curve
}

// meanOrEach is the mean of shares with its interval, or, of too few policies for one, each of them.
func meanOrEach(shares []float64) Cell {
	switch {
	case len(shares) == 0:
		return Words("–")
	case len(shares) < methodPolicies:
		return shareList(shares)
	}
	return shareMean(shares)
}

// forecastTable holds Proposition 1's forecast of the share of groups without variance, made before the first update,
// against what that update measured; nil where no training made one.
func (s *Study) forecastTable() *Table {
	t := &Table{
		ID: "forecast", Title: "Groups without variance: forecast and first update",
		Columns: []Column{{Name: "Arm", Left: true}, {Name: "Forecast"}, {Name: "95 % band"}, {Name: "Measured"}, {Name: "Inside", Left: true}},
		Notes:   []string{"The forecast samples some tasks under each token before the first update and computes how often all members of a group succeed or all fail (Proposition 1); the band is that of as many groups as an update has. One value per seed."},
	}
	for i := range s.Arms {
		a := &s.Arms[i]
		var forecast, measured []float64
		var bands []string
		inside := 0
		for j := range a.Runs {
			f, ok := a.Runs[j].forecast()
			if !ok {
				continue
			}
			forecast, measured, bands = append(forecast, f.share), append(measured, f.measured), append(bands, f.band.percent())
			if f.band.Low <= f.measured && f.measured <= f.band.High {
				inside++
			}
		}
		if len(forecast) == 0 {
			continue
		}
		by := func(how string, metrics ...string) Source { return a.logged(how, metrics...) }
		t.Rows = append(t.Rows, Row{Arm: i, Cells: []Cell{Words("%s", a.Label),
			shareList(forecast).From(by("as logged before the first update", "forecast_zero_variance")),
			Words("%s", strings.Join(bands, "; ")).From(by("as logged before the first update", "forecast_low", "forecast_high")),
			shareList(measured).From(by("as logged at that update", "zero_variance")),
			Words("%d of %d", inside, len(forecast)).From(by("measured within the band", "forecast_low", "forecast_high", "zero_variance"))}})
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}

// foreseen is a share of groups without variance as forecast before the first update, the band of what that update may
// measure, and what it measured.
type foreseen struct {
	share, measured float64
	band            Interval
}

// forecast is what the run's training logged; false when it made none.
func (r *Run) forecast() (foreseen, bool) {
	for _, row := range r.Curve {
		share, ok := row.Values["forecast_zero_variance"]
		measured, known := row.Values["zero_variance"]
		if ok && known {
			return foreseen{share, measured, Interval{row.Values["forecast_low"], row.Values["forecast_high"]}}, true
		}
	}
	return foreseen{}, false
}

// forecastFigure shows Proposition 1's forecasts against what the first updates measured; nil where no training made one.
func (s *Study) forecastFigure() *Figure {
	f := &Figure{
		ID: "fig-forecast", Title: "Groups without variance: forecast and measured", X: "forecast share of groups", Y: "measured share", Share: true, Diagonal: "measured as forecast",
		Note: "A point for each training: its forecast, made before the first update (Proposition 1), against what that update measured. The bar is the forecast's 95 % band for as many groups as the update has.",
	}
	for i := range s.Arms {
		a := &s.Arms[i]
		series := Series{Name: a.Label, Arm: i}
		for j := range a.Runs {
			run := &a.Runs[j]
			if made, ok := run.forecast(); ok {
				series.Points = append(series.Points, Point{X: made.share, Value: made.measured, Interval: made.band, Label: run.Name(),
					Source: Source{From: []string{run.CurveFrom}, Rows: "forecast_zero_variance, forecast_low, forecast_high, zero_variance", By: "as logged at the first update"}})
			}
		}
		if len(series.Points) > 0 {
			f.Series = append(f.Series, series)
		}
	}
	if len(f.Series) == 0 {
		return nil
	}
	return f
}

// shareList writes a share of each seed; a single one has a value.
func shareList(shares []float64) Cell {
	if len(shares) == 1 {
		return Cell{Text: percent(shares[0]), Value: &shares[0]}
	}
	var words []string
	for _, v := range shares {
		words = append(words, percent(v))
	}
	return Words("%s", strings.Join(words, "; "))
}
