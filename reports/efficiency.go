package reports

import (
	"math"
	"slices"

	"rcgrpo/reports/page"
	"rcgrpo/reports/stats"
)

// efficiencyTable compares the forecast efficiency of RC-GRPO (docs/training.md 6) with its measured gain over GRPO
// from the same initialisation, on the first set of tasks. It is empty without a forecast of an efficiency.
func (s *Study) efficiencyTable() *page.Table {
	set := s.firstSet()
	how, decoding := Comparison{}, "by greedy decoding"
	if !slices.ContainsFunc(s.Arms, func(a Arm) bool { return len(a.scored(set, true).runs) > 0 }) {
		how.Outcome, decoding = OutcomeSampled, "sampled"
	}
	t := &page.Table{
		ID: "efficiency", Title: "Gain of RC-GRPO over GRPO: forecast and measured",
		Lead: "RC-GRPO is expected ahead of GRPO only if what the policy learns under low transfers to high by more than " +
			"the transfer at E = 1.",
		Columns: page.Columns("<Arm", "E, no transfer", "E, full transfer", "Transfer at E = 1", "<GRPO",
			"RC-GRPO minus GRPO"),
		Notes: []string{"E is the expected gain of success under high per update relative to GRPO's with equally many " +
			"episodes, for transfer 0 and 1, from the sampling run before RL. Mean over seeds; the 95 % interval is from " +
			"the jackknife over tasks of each seed, and treats tasks and seeds as independent."},
	}
	if set != "" {
		t.Notes = append(t.Notes, "RC-GRPO minus GRPO: success on "+setName(set)+", "+decoding+", in points, for the "+
			"first GRPO arm that starts from the same checkpoint.")
	}
	for i := range s.Arms {
		a := &s.Arms[i]
		if len(a.logged(s.Windows, "forecast_efficiency_full").before("forecast_efficiency_full")) == 0 {
			continue
		}
		forecast := func(metric string) page.Cell {
			return a.logged(s.Windows, metric, metric+"_low", metric+"_high", "forecast_zero_variance").cell(forecastMean)
		}
		t.Add(i, append([]page.Cell{page.Text("%s", a.Label), forecast("forecast_efficiency_none"),
			forecast("forecast_efficiency_full"), forecast("forecast_transfer")}, s.gainOverGRPO(a, set, how)...)...)
	}
	return t
}

// gainOverGRPO shows the first arm that GRPO trained from the checkpoints of an RC-GRPO arm, and the difference in
// the outcome; dashes if there is none.
func (s *Study) gainOverGRPO(a *Arm, set string, how Comparison) []page.Cell {
	for j := range s.Arms {
		other := &s.Arms[j]
		records := s.sameStart(a, other)
		if records == nil {
			continue
		}
		source := a.logged(s.Windows, "forecast_efficiency_full").source("")
		source = page.Together("GRPO from the same checkpoint", source.Rows, source,
			other.logged(s.Windows, "reward").source(""), page.Source{From: records})
		gain := s.crossDifference(how, set, other.Label, a.Label)
		if gain.Source.By != "" {
			gain.Source = page.Together(gain.Source.By, gain.Source.Rows, gain.Source, source)
		}
		return []page.Cell{page.Text("%s", other.Label).From(source), gain}
	}
	return []page.Cell{page.Text("–"), page.Text("–")}
}

// forecastMean is the mean over seeds of a value that was logged with its interval and a fourth metric; a dash unless
// every seed has it. Errors of seeds are independent, so the half width of the mean's interval is √(Σ half²) / n.
var forecastMean = measure[trainings]{"as logged before the first update, mean over seeds",
	func(t trainings) page.Cell {
		values, low, high := t.before(t.metrics[0]), t.before(t.metrics[1]), t.before(t.metrics[2])
		n := len(t.before(t.metrics[3]))
		if len(values) < n || len(low) < n || len(high) < n {
			return page.Text("–")
		}
		square := 0.0
		for i := range values {
			square += (high[i] - low[i]) * (high[i] - low[i]) / 4
		}
		mean, half := stats.Mean(values), math.Sqrt(square)/float64(n)
		c := page.Number(mean).With("%s", page.Range(page.Significant(mean-half), page.Significant(mean+half)))
		c.Interval = &stats.Interval{Low: mean - half, High: mean + half}
		return c
	}}

// sameStart returns the records of the trainings by which b was trained by GRPO from the checkpoints from which a was
// trained by RC-GRPO; nil if it was not. Seeds that only one arm has are ignored.
func (s *Study) sameStart(a, b *Arm) (records []string) {
	for _, x := range a.Runs {
		for _, y := range b.Runs {
			if compareSeeds(x.Seed, y.Seed) != 0 {
				continue
			}
			from, to := s.training(&x), s.training(&y)
			if from == nil || to == nil || from.Kind != "rc-grpo" || to.Kind != "grpo" ||
				from.Manifest.Parts["input.policy"] != to.Manifest.Parts["input.policy"] {
				return nil
			}
			records = append(records, manifestAddress(from.Address), manifestAddress(to.Address))
		}
	}
	return records
}

// training returns the record of the run's training with its manifest; nil if the page has none.
func (s *Study) training(r *SeedRun) *Stage {
	stage, _, _ := page.CutLast(r.CurveFrom, ".")
	at := slices.IndexFunc(s.Stages, func(one Stage) bool { return one.Address == stage })
	if at < 0 {
		return nil
	}
	return &s.Stages[at]
}
