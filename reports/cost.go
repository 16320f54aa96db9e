package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"rcgrpo/engine/lang"
)

// runsTable shows the cost of the shown artifacts, from their manifests.
func (s *Study) runsTable() *Table {
	phases := map[string]bool{}
	for _, r := range s.Records {
		for name := range r.Phases {
			phases[name] = true
		}
	}
	t := &Table{ID: "runs", Title: "Cost of the stages"}
	t.Columns = append(columns("<Stage", "Time"), columns(sortedKeys(phases)...)...)
	t.Columns = append(t.Columns, columns("Peak memory", "<Device")...)
	sum := 0.0
	for _, r := range s.Records {
		m := r.Manifest
		if m == nil {
			continue
		}
		sum += m.Seconds
		recorded := func(rows string) Source { return sourceOf(manifestOf(r.Address), rows, "as recorded") }
		took := Cell{Text: duration(m.Seconds), Value: &m.Seconds, Source: recorded("seconds")}
		cells := []Cell{Text("%s", lang.TrimStage(r.Address)), took}
		for _, name := range sortedKeys(phases) {
			var cell Cell
			if v, ok := r.Phases[name]; ok {
				source := sourceOf(manifestOf(r.Address), name+"_s of the times beside the metrics", "sum over the updates")
				cell = Cell{Text: duration(v), Value: &v, Source: source}
			}
			cells = append(cells, cell)
		}
		peak := ""
		if m.PeakBytes > 0 {
			peak = megabytes(m.PeakBytes)
		}
		t.add(NoArm, append(cells, Text("%s", peak).From(recorded("peak_bytes")),
			Text("%s", m.Device).From(recorded("device")))...)
	}
	t.Notes = []string{"From the manifests of the shown artifacts, including those of earlier runs: " + duration(sum) +
		" of stage time in total."}
	return t.orNil()
}

func duration(seconds float64) string {
	if seconds < 60 {
		return significant(seconds) + " s"
	}
	return (time.Duration(seconds) * time.Second).String()
}

// megabytes formats a number of bytes. One unit keeps a column comparable.
func megabytes(n int64) string { return fmt.Sprintf("%d MB", (n+500_000)/1_000_000) }

// timelineFigure shows when the artifacts of the page were made: a lane for each stage, a bar for each of its seeds.
// Times without a running stage are left out, because the artifacts may come from runs on different days. nil if no
// artifact was made.
func (s *Study) timelineFigure() *Figure {
	made := slices.DeleteFunc(slices.Clone(s.Records), func(r Record) bool {
		return r.Manifest == nil || r.Manifest.Started.IsZero() || r.Manifest.Seconds <= 0
	})
	if len(made) == 0 {
		return nil
	}
	slices.SortStableFunc(made, func(a, b Record) int {
		return cmp.Or(a.Manifest.Started.Compare(b.Manifest.Started), strings.Compare(a.Address, b.Address))
	})
	f := &Figure{
		ID: "fig-timeline", Title: "Time line of the stages", X: "seconds with a running stage", Y: "stage", Folded: true,
		Note:   "From the manifests of the shown artifacts. Times in which none of these stages ran are left out.",
		Data:   [][]string{{"stage", "seed", "from, s", "to, s"}},
		Source: Source{By: "start and duration as recorded"},
	}
	idle, busyUntil := 0.0, 0.0 // seconds since the first start
	series := Series{Name: "stages", Arm: NoArm}
	for _, r := range made {
		f.Source.From = append(f.Source.From, manifestOf(r.Address))
		from, took := r.Manifest.Started.Sub(made[0].Manifest.Started).Seconds(), r.Manifest.Seconds
		idle += max(0, from-busyUntil)
		busyUntil = max(busyUntil, from+took)
		name, seed, _ := strings.Cut(lang.TrimStage(r.Address), "@")
		lane := slices.Index(f.Lanes, name)
		if lane < 0 {
			lane = len(f.Lanes)
			f.Lanes = append(f.Lanes, name)
		}
		label := duration(took)
		if seed != "" {
			label = "seed " + seed + ": " + label
		}
		from -= idle
		series.Spans = append(series.Spans, Span{Lane: lane, From: from, To: from + took, Label: label})
		f.Data = append(f.Data, []string{name, seed, plain(from), plain(from + took)})
	}
	f.Series = []Series{series}
	return f
}

func (s *Study) artifactsTable() *Table {
	t := &Table{ID: "evidence", Title: "Artifacts behind this page", Folded: true,
		Columns: columns("<Stage", "<Port", "<Digest", "<Key", "<Code"),
		Notes: []string{"A digest is the hash of the names and contents of an artifact's files; a key is the hash of " +
			"all inputs of the stage. Equal keys give equal digests."}}
	for _, r := range s.Records {
		if r.Manifest == nil {
			continue
		}
		for _, port := range sortedKeys(r.Manifest.Outputs) {
			cells := []Cell{Text("%s", lang.TrimStage(r.Address)), Text("%s", port)}
			for _, text := range []string{prefix(r.Manifest.Outputs[port].Digest, 16), prefix(r.Manifest.Key, 16),
				prefix(r.Manifest.Revision, 12)} {
				recorded := sourceOf(manifestOf(r.Address), "port "+port, "as recorded")
				cells = append(cells, Text("%s", text).From(recorded))
			}
			t.add(NoArm, cells...)
		}
	}
	return t.orNil()
}

// prefix returns at most n bytes of a text.
func prefix(text string, n int) string { return text[:min(n, len(text))] }
