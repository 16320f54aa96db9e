package reports

import "rcgrpo/reports/page"

// sizeFigure shows how many turns the tasks of each set have; nil without sets.
func (s *Study) sizeFigure() *page.Figure {
	f := &page.Figure{
		ID:    "fig-sizes",
		Title: "Turns of the tasks",
		X:     "turns",
		Y:     "share of tasks",
		Share: true,
		Note:  "How many requests a task makes.",
	}
	for i, set := range s.TaskSets {
		series, most := page.Series{Name: set.Label, Arm: i}, 0
		for _, task := range set.Tasks {
			most = max(most, len(task.Turns))
		}
		shares := make([]float64, most)
		for _, task := range set.Tasks {
			if n := len(task.Turns); n > 0 {
				shares[n-1] += 1 / float64(len(set.Tasks))
			}
		}
		for n := range shares {
			series.X = append(series.X, float64(n+1))
		}
		if most > 0 {
			series.Curves = []page.Curve{{Y: shares,
				Source: page.Source{From: []string{set.Source}, By: "share of the tasks"}}}
			f.Series = append(f.Series, series)
		}
	}
	if len(f.Series) == 0 {
		return nil
	}
	return f
}
