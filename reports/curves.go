package reports

import (
	"fmt"
	"slices"

	"rcgrpo/reports/page"
	"rcgrpo/reports/stats"
)

// curveFigure describes a figure over updates. A figure without logged values is left out.
type curveFigure struct {
	id, title, note, y string
	metrics            []string // several: drawn solid, dashed, dotted
	names              []string // names of the metrics
	share              bool
	folded             bool   // secondary
	tuning             bool   // curves of the fine-tuning before RL
	lower              string // axis of a lower panel with the last metric; "" for one panel
}

// curveFigures are in the order of their questions: the learning signal, the policy, the optimizer; then the rest,
// folded.
var curveFigures = []curveFigure{
	{id: "reward", title: "Training reward", y: "mean reward", metrics: []string{"reward"}, share: true,
		note: "Mean reward of the sampled episodes of an update."},
	{id: "zero-variance", title: "Groups without variance", y: "share of groups", metrics: []string{"zero_variance"},
		share: true,
		note:  "Groups whose episodes all have the same reward carry no learning signal."},
	{id: "zero-variance-split", title: "Groups without variance: all right, and all wrong", y: "share of groups",
		metrics: []string{"all_right", "all_wrong"}, names: []string{"all right", "all wrong"}, share: true,
		note: "The two kinds of groups without variance. All right: the tasks are learned; all wrong: they are too hard."},
	{id: "spread", title: "Advantage spread within groups", y: "spread", metrics: []string{"spread_within"},
		note: "Largest minus smallest advantage of a group, mean over the groups of an update (0 for groups without " +
			"variance)."},
	{id: "tokens-gap", title: "Gap between the tokens", y: "high minus low", metrics: []string{"token_gap"}},
	{id: "entropy", title: "Entropy", y: "nats per token", metrics: []string{"entropy"},
		note: "Mean over the tokens the policy sampled."},
	{id: "kl", title: "KL to the reference policy", y: "nats", metrics: []string{"kl"},
		note: "The estimator in the loss."},
	{id: "grad-norm", title: "Gradient norm", y: "norm before clipping", metrics: []string{"grad_norm"}},
	{id: "spread-reward", title: "Advantage spread and training reward", y: "spread over the batch",
		metrics: []string{"spread_batch_ddof1", "reward"}, names: []string{"spread", "reward"}, lower: "mean reward",
		note: "The paper's figure. Upper panel: largest minus smallest advantage among all episodes of an update, " +
			"advantages with ddof 1, the reading that gives the paper's late spreads of 3.2 to 3.6. Lower panel: mean reward."},
	{id: "tokens-reward", folded: true, title: "Reward by token", y: "mean reward",
		metrics: []string{"reward_high", "reward_low"},
		names:   []string{"high", "low"}, share: true, note: "Sampled episodes, by the token they were conditioned on."},
	{id: "variance", folded: true, title: "Reward variance within groups, and Proposition 2", y: "reward²",
		metrics: []string{"sigma2", unbiasedBound}, names: []string{"measured mean σ²", "bound (G−1)/G·p(1−p)·(gap² − se²)"},
		note: "Population variance of the rewards of a group, mean over groups, and the part of it that the token " +
			"guarantees. The bound is unbiased: the sampling variance se² of the gap is subtracted from gap², so that " +
			"single updates may be below 0."},
	{id: "spread-batch", folded: true, title: "Advantage spread over the batch", y: "spread",
		metrics: []string{"spread_batch", "spread_batch_ddof1"}, names: []string{"ddof 0", "ddof 1"},
		note: "Largest minus smallest advantage among all episodes of an update."},
	{id: "kl-estimators", folded: true, title: "KL by estimator", y: "nats per token",
		metrics: []string{"kl_k1", "kl_k3", "kl_exact"}, names: []string{"k1", "k3", "exact"},
		note: "Policy to reference; k1 and k3 from the sampled tokens, exact over the vocabulary."},
	{id: "clip", folded: true, title: "Clip fraction", y: "share of ratios", metrics: []string{"clip_fraction"},
		share: true,
		note:  "Where the clipped term is strictly smaller."},
	{id: "log-ratio", folded: true, title: "Log-ratio quantiles", y: "nats", note: "Of the ratios that are clipped.",
		metrics: []string{"log_ratio_p50", "log_ratio_p05", "log_ratio_p95"}, names: []string{"median", "5 %", "95 %"}},
	{id: "turns", folded: true, title: "User turns reached", y: "turns per episode", metrics: []string{"turns"}},
	{id: "calls", folded: true, title: "Tool calls per episode", y: "calls", metrics: []string{"calls"}},
	{id: "tool-errors", folded: true, title: "Calls answered by an error", y: "share of calls",
		metrics: []string{"tool_errors"}, share: true},
	{id: "malformed", folded: true, title: "Malformed replies", y: "share of replies",
		metrics: []string{"malformed"}, share: true, note: "Without a call that can be read, but with the beginning of one."},
	{id: "stops", folded: true, title: "Truncated episodes", y: "share of episodes", share: true, note: "By stop reason.",
		metrics: []string{"stop_turn_limit", "stop_length", "stop_step"},
		names:   []string{"turn limit", "context full", "reply too long"}},
	{id: "length", folded: true, title: "Length of an episode", y: "sampled tokens", metrics: []string{"sampled_tokens"}},
	{id: "tuning", folded: true, title: "Fine-tuning loss", y: "nats per token", metrics: []string{"loss"}, tuning: true,
		note: "Of the shown stages before RL, which count their own updates."},
}

// curveSeries returns the curves of a metric, one for each run that logged it.
func (a *Arm) curveSeries(metric string, tuning bool) page.Series {
	series := page.Series{Name: a.Label}
	for _, run := range a.Runs {
		rows := run.Curve
		if tuning {
			rows = run.Tuning
		}
		updates, values, ok := columnOf(rows, metric)
		if !ok {
			continue
		}
		by := "as logged"
		if metric == unbiasedBound {
			by = "difference of logged values"
		}
		if len(updates) > len(series.X) {
			series.X = updates
		}
		series.Curves = append(series.Curves, page.Curve{Name: run.Name(), Y: values,
			Source: page.SourceOf(run.CurveFrom, metric, by)})
	}
	return series
}

// figure draws the metrics of all arms that logged them. It is empty if none did.
func (kind *curveFigure) figure(s *Study) *page.Figure {
	f := &page.Figure{ID: "fig-" + kind.id, Title: kind.title, Note: kind.note, X: "update", Y: kind.y, Share: kind.share,
		Folded: kind.folded}
	if f.Lower = kind.lower; f.Lower == "" && len(kind.names) > 0 {
		for i, name := range kind.names {
			f.Note += []string{" Solid: ", "; dashed: ", "; dotted: "}[i] + name
		}
		f.Note += "."
	}
	for m, metric := range kind.metrics {
		for i := range s.Arms {
			series := s.Arms[i].curveSeries(metric, kind.tuning)
			series.Arm, series.Dash = i, m
			if f.Lower != "" {
				series.Dash, series.Lower = 0, m == len(kind.metrics)-1
			}
			if len(kind.names) > 1 {
				series.Variant = kind.names[m]
			}
			f.Add(series)
		}
	}
	if f.Lower != "" && !slices.ContainsFunc(f.Series, func(s page.Series) bool { return s.Lower != f.Series[0].Lower }) {
		return nil // one of the panels is empty
	}
	f.Omitted = f.Zero()
	f.Separate()
	return f
}

// successFigures show, for each arm, the share of groups in which none, one, … or all members succeed, over training.
func (s *Study) successFigures() []page.Part {
	var parts []page.Part
	for _, a := range s.Arms {
		names, size := a.metricNames(), -1 // size is the last K of "successes_0", "successes_1", …
		for names[fmt.Sprintf("successes_%d", size+1)] {
			size++
		}
		if size < 1 {
			continue
		}
		f := &page.Figure{
			ID: "fig-successes-" + page.Slug(a.Label), Title: "Successes per group: " + a.Label,
			X: "update", Y: "share of groups",
			Share: true, Stacked: true, Folded: true,
			Note: fmt.Sprintf("Number of successes among the %d episodes of a group; groups with none or all carry no "+
				"learning signal.", size),
		}
		for k := range size + 1 {
			metric := fmt.Sprintf("successes_%d", k)
			series := a.curveSeries(metric, false)
			series.Name, series.Arm = fmt.Sprintf("%d of %d", k, size), page.NoArm
			series.Step = 1 + k*(len(page.LightSteps)-1)/size
			f.Add(series)
		}
		parts = append(parts, page.Part{Figure: f})
	}
	return parts
}

// forecastTable compares Proposition 1's forecast of the share of groups without variance with the first update; nil
// without a forecast.
func (s *Study) forecastTable() *page.Table {
	t := &page.Table{
		ID: "forecast", Title: "Groups without variance: forecast and first update",
		Columns: page.Columns("<Arm", "Forecast", "all right, forecast", "all wrong, forecast", "Measured", "all right",
			"all wrong", "<Inside the 95 % band"),
		Notes: []string{"The forecast samples some tasks under each token before the first update and computes how " +
			"often all members of a group succeed or all fail (Proposition 1). Mean over seeds, and below it the lowest and " +
			"the highest seed. The band is for as many independent groups as an update has; the figure shows each band.",
			"All trainings: the share inside their bands with its 95 % Wilson interval, which treats trainings as " +
				"independent. Compatible: the interval does not exclude 95 %."},
	}
	allInside, all, sources := 0, 0, page.Source{}
	for _, series := range s.forecastFigure().Series {
		a := &s.Arms[series.Arm]
		inside := 0
		for _, p := range series.Points {
			if !p.Excludes(p.Value) {
				inside++
			}
		}
		share := func(metric, by string) page.Cell {
			selected := a.logged(s.Windows, metric)
			if shares := selected.before(metric); len(shares) > 0 {
				return meanShare(shares).From(selected.source(by + ", mean over seeds"))
			}
			return page.Text("–")
		}
		const before, after = "as logged before the first update", "as logged at that update"
		measured := a.logged(s.Windows, "forecast_low", "forecast_high", "zero_variance")
		t.Add(series.Arm, page.Text("%s", a.Label), share("forecast_zero_variance", before),
			share("forecast_all_right", before), share("forecast_all_wrong", before), share("zero_variance", after),
			share("all_right", after), share("all_wrong", after),
			page.Text("%d of %d", inside, len(series.Points)).From(measured.source("measured within the band")))
		allInside, all = allInside+inside, all+len(series.Points)
		sources = page.Together("", "", sources, a.logged(s.Windows, "zero_variance").source(""))
	}
	if all == 0 {
		return nil
	}
	total, verdict := page.Share(allInside, all), "compatible with 95 %"
	if total.Interval != nil && total.Interval.High < 0.95 {
		verdict = "fewer than 95 %"
	}
	t.Rows = append(t.Rows, page.Row{Arm: page.NoArm, Group: "Claim", Cells: []page.Cell{
		page.Text("All trainings"), page.Text("–"), page.Text("–"), page.Text("–"), page.Text("–"), page.Text("–"),
		page.Text("–"),
		page.Text("%d of %d", allInside, all).With("%s · %s", verdict, page.PercentRange(*total.Interval)).
			From(page.Source{From: sources.From, Rows: "forecast_low, forecast_high, zero_variance",
				By: "measured within the band, of all trainings"})}})
	return t
}

// forecast returns the logged values of the update with the forecast; nil without one.
func (r *SeedRun) forecast() map[string]float64 {
	for _, row := range r.Curve {
		if _, ok := row.Values["forecast_zero_variance"]; ok {
			return row.Values
		}
	}
	return nil
}

// forecastFigure draws Proposition 1's forecasts against the measured shares. It is empty without a forecast.
func (s *Study) forecastFigure() *page.Figure {
	f := &page.Figure{
		ID: "fig-forecast", Title: "Groups without variance: forecast and measured", X: "forecast share of groups",
		Y: "measured share", Share: true, Diagonal: "measured as forecast",
		Note: "A point for each training: its forecast before the first update (Proposition 1) against the measured " +
			"share. The bar is the forecast's 95 % band for as many independent groups as the update has.",
	}
	for i, a := range s.Arms {
		series := page.Series{Name: a.Label, Arm: i}
		for _, run := range a.Runs {
			v := run.forecast()
			if measured, ok := v["zero_variance"]; ok {
				rows := "forecast_zero_variance, forecast_low, forecast_high, zero_variance"
				series.Points = append(series.Points, page.Point{X: v["forecast_zero_variance"], Value: measured,
					Label: run.Name(), Interval: stats.Interval{Low: v["forecast_low"], High: v["forecast_high"]},
					Source: page.SourceOf(run.CurveFrom, rows, "as logged at the first update")})
			}
		}
		f.Add(series)
	}
	return f
}
