package reports

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Span is a stretch of a lane.
type Span struct {
	Lane     int // of Figure.Lanes
	From, To float64
	Label    string // shown under the pointer
}

// coverage is the share of each of some equal stretches of the axis that the spans of a lane cover, at most 1.
func (f *Figure) coverage(lane, places int) []float64 {
	end := 0.0
	for _, s := range f.Series {
		for _, span := range s.Spans {
			end = max(end, span.To)
		}
	}
	share, width := make([]float64, places), end/float64(places)
	for _, s := range f.Series {
		for _, span := range s.Spans {
			if span.Lane != lane {
				continue
			}
			for i := range share {
				from, to := max(span.From, float64(i)*width), min(span.To, float64(i+1)*width)
				if to > from {
					share[i] = min(1, share[i]+(to-from)/width)
				}
			}
		}
	}
	return share
}

// episode is what the columns of an outcome matrix stand for: a task of one seed.
type episode struct{ seed, task string }

// outcomeFigure is the matrix of arms and tasks: which arm passed what, the tasks sorted by how many arms pass them.
// nil with fewer than two arms.
func (s *Study) outcomeFigure(set string) *Figure {
	type lane struct {
		arm    int
		bySeed map[string]outcomes
	}
	var lanes []lane
	found := map[episode]bool{}
	for i := range s.Arms {
		a := &s.Arms[i]
		l := lane{i, map[string]outcomes{}}
		for j := range a.Runs {
			if o := a.Runs[j].outcomes(set, a.condition(), true); len(o) > 0 {
				l.bySeed[a.Runs[j].Name()] = o
				for task := range o {
					found[episode{a.Runs[j].Name(), task}] = true
				}
			}
		}
		if len(l.bySeed) > 0 {
			lanes = append(lanes, l)
		}
	}
	if len(lanes) < 2 {
		return nil
	}
	passed := func(l lane, e episode) byte {
		o, known := l.bySeed[e.seed][e.task]
		if !known { // a run that no seed made stands beside every seed
			o, known = l.bySeed[""][e.task]
		}
		switch {
		case !known:
			return ' '
		case o.passed > 0:
			return '1'
		}
		return '0'
	}
	seeded := slices.ContainsFunc(slices.Collect(maps.Keys(found)), func(e episode) bool { return e.seed != "" })
	patterns := map[episode]string{}
	var episodes []episode
	for e := range found {
		if seeded && e.seed == "" {
			continue
		}
		var pattern strings.Builder
		for _, l := range lanes {
			pattern.WriteByte(passed(l, e))
		}
		patterns[e] = pattern.String()
		episodes = append(episodes, e)
	}
	slices.SortFunc(episodes, func(a, b episode) int {
		return cmp.Or(strings.Count(patterns[b], "1")-strings.Count(patterns[a], "1"), strings.Compare(patterns[b], patterns[a]),
			strings.Compare(a.seed, b.seed), strings.Compare(a.task, b.task))
	})

	source := Source{By: "reward of each episode"}
	for _, l := range lanes {
		source = together(source.By, "", source, s.Arms[l.arm].scored(set, "", ""))
	}
	f := &Figure{
		Source: source,
		ID:     "fig-outcomes-" + setID(set), Title: "Who passes which of the " + setName(set), X: "episodes, those that most arms pass first", Y: "arm", Folded: true,
		Note: "A row for each arm, a column for each task and seed; coloured where the arm passes. Greedy decoding, the paper's reward.",
		Data: [][]string{{"seed", "task"}},
	}
	for _, e := range episodes {
		f.Data = append(f.Data, []string{e.seed, e.task})
	}
	for i, l := range lanes {
		label := s.Arms[l.arm].Label
		f.Lanes, f.Data[0] = append(f.Lanes, label), append(f.Data[0], label)
		series := Series{Name: label, Arm: l.arm}
		for at, e := range episodes {
			outcome := patterns[e][i]
			f.Data[at+1] = append(f.Data[at+1], strings.TrimSpace(string(outcome)))
			if outcome != '1' {
				continue
			}
			if last := len(series.Spans) - 1; last >= 0 && series.Spans[last].To == float64(at) {
				series.Spans[last].To++
			} else {
				series.Spans = append(series.Spans, Span{Lane: i, From: float64(at), To: float64(at + 1)})
			}
		}
		for j := range series.Spans {
			span := &series.Spans[j]
			span.Label = plural(int(span.To-span.From), "episode") + " passed"
		}
		f.Series = append(f.Series, series)
	}
	return f
}

// timelineFigure shows when the artifacts of the page were made: a lane for each stage, a bar for each of its seeds.
// Times in which none of them ran (they may come from runs on different days) are left out. nil when none was made.
func (s *Study) timelineFigure() *Figure {
	var made []Record
	for _, r := range s.Records {
		if r.Made && !r.Started.IsZero() && r.Seconds > 0 {
			made = append(made, r)
		}
	}
	if len(made) == 0 {
		return nil
	}
	slices.SortStableFunc(made, func(a, b Record) int {
		return cmp.Or(a.Started.Compare(b.Started), strings.Compare(a.Address, b.Address))
	})
	f := &Figure{
		ID: "fig-timeline", Title: "Time line of the stages", X: "seconds in which a stage ran", Y: "stage", Folded: true,
		Note: "From the manifests of the artifacts shown. Times in which none of these stages ran are left out.",
		Data: [][]string{{"stage", "seed", "from, s", "to, s"}},
	}
	first := made[0].Started
	idle, busyUntil := 0.0, 0.0 // seconds since first
	series := Series{Name: "stages", Arm: 0}
	f.Source.By = "start and duration as recorded"
	for _, r := range made {
		f.Source.From = append(f.Source.From, manifestOf(r.Address))
		from := r.Started.Sub(first).Seconds()
		idle += max(0, from-busyUntil)
		busyUntil = max(busyUntil, from+r.Seconds)
		name, seed, _ := strings.Cut(strings.TrimPrefix(r.Address, "stage."), "@")
		lane := slices.Index(f.Lanes, name)
		if lane < 0 {
			lane = len(f.Lanes)
			f.Lanes = append(f.Lanes, name)
		}
		label := duration(r.Seconds)
		if seed != "" {
			label = "seed " + seed + ": " + label
		}
		series.Spans = append(series.Spans, Span{Lane: lane, From: from - idle, To: from - idle + r.Seconds, Label: label})
		f.Data = append(f.Data, []string{name, seed, plain(from - idle), plain(from - idle + r.Seconds)})
	}
	f.Series = []Series{series}
	return f
}

// means are the curves' means over seeds as rows of text.
func (f *Figure) means() [][]string {
	mean := Figure{X: f.X}
	for _, s := range f.Series {
		mean.Series = append(mean.Series, Series{Name: s.Name, X: s.X, Runs: []Curve{{Y: s.mean()}}})
	}
	return mean.data()
}

// successFigures show, for each arm, the share of groups in which none, one, … or all members succeed, over training.
func (s *Study) successFigures() []*Figure {
	var figures []*Figure
	for i := range s.Arms {
		a := &s.Arms[i]
		size := -1
		for _, r := range a.Runs {
			for _, row := range r.Curve {
				for name := range row.Values {
					if digits, ok := strings.CutPrefix(name, "successes_"); ok {
						if k, err := strconv.Atoi(digits); err == nil {
							size = max(size, k)
						}
					}
				}
			}
		}
		if size < 1 {
			continue
		}
		f := &Figure{
			ID: "fig-successes-" + slug(a.Label), Title: "Successes per group: " + a.Label, X: "update", Y: "share of groups", Share: true, Stacked: true, Folded: true,
			Note: fmt.Sprintf("Of the %d episodes of a group, how many succeed; none and all of them teach nothing.", size),
		}
		longest := 0
		for k := range size + 1 {
			series := a.curveSeries(fmt.Sprintf("successes_%d", k), false)
			if len(series.Runs) == 0 {
				continue
			}
			series.Ends = a.ends(fmt.Sprintf("successes_%d", k), s.Windows)
			series.Name, series.Arm, series.Step = fmt.Sprintf("%d of %d", k, size), NoArm, 1+k*(len(lightSteps)-1)/size
			longest = max(longest, len(series.X))
			f.Series = append(f.Series, series)
		}
		f.Source = a.logged("mean over seeds", "successes_0", fmt.Sprintf("successes_%d", size))
		f.Source.Rows = fmt.Sprintf("successes_0 to successes_%d", size)
		f.Smooth = longest / 20
		f.Data = f.means()
		figures = append(figures, f)
	}
	return figures
}
