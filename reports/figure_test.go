package reports

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/reports/page"
	"rcgrpo/stages/rl"
)

// A page shows trainings of different lengths, so no window is that of all its figures.
func TestEachCaptionNamesItsOwnSmoothing(t *testing.T) {
	s := synthetic(2, 16, 150)
	for i := range s.Arms {
		for j := range s.Arms[i].Runs {
			for u := range 400 { // fine-tuning is longer than RL
				s.Arms[i].Runs[j].Tuning = append(s.Arms[i].Runs[j].Tuning,
					rl.Metric{Update: u + 1, Values: map[string]float64{"loss": 1}})
			}
		}
	}
	p := s.Page()
	checked := 0
	for _, section := range p.Sections {
		if strings.Contains(section.Lead, "verage") {
			t.Errorf("section %s: got lead %q, want no smoothing in it", section.Title, section.Lead)
		}
		for _, part := range section.Parts {
			f := part.Figure
			if f == nil || len(f.Series) == 0 || len(f.Series[0].Curves) == 0 {
				continue
			}
			checked++
			want := "moving average of the mean over seeds over 7 updates"
			switch {
			case f.ID == "fig-tuning":
				want = "moving average of the mean over seeds over 20 updates"
			case f.X == "k":
				want = "Curves: the mean over seeds at each k."
			}
			if !strings.Contains(f.Caption(), want) {
				t.Errorf("%s: got caption %q, want %q in it", f.ID, f.Caption(), want)
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d figures of curves", checked)
	}
	if html := htmlOf(t, p); strings.Count(html, "over 20 updates") != 1 {
		t.Errorf("the page names the window of 20 updates %d times, want once", strings.Count(html, "over 20 updates"))
	}
}

// A page prints the effective weight of the KL term beside all other logged values.
func TestAPagePrintsTheWeightOfKL(t *testing.T) {
	s := synthetic(1, 16, 20)
	for i := range s.Arms {
		for _, row := range s.Arms[i].Runs[0].Curve {
			row.Values["kl_weight"] = 0.1
		}
	}
	for _, row := range s.valuesTable().Rows {
		if strings.HasPrefix(row.Cells[0].Text, "kl_weight") && row.Cells[1].Text != "" {
			return
		}
	}
	t.Error("the table of all values has no row of kl_weight")
}

func TestCurvesInTextAgreeWithTheTables(t *testing.T) {
	s := synthetic(2, 16, 100)
	for i := range s.Arms {
		for j := range s.Arms[i].Runs {
			for u, row := range s.Arms[i].Runs[j].Curve { // no mean of a few updates is that of a window
				row.Values["entropy"] = float64(u*u*u) + float64(i)
			}
		}
	}
	p := s.Page()
	var md, text bytes.Buffer
	must.OK(t, p.Markdown(&md))
	must.OK(t, p.Text(&text, 120))
	tables := p.Tables()
	at := slices.IndexFunc(tables, func(table *page.Table) bool { return table.ID == "entropy" })
	if at < 0 || len(tables[at].Rows) < 4 {
		t.Fatal("the page has no table of the entropy of four arms")
	}
	for _, row := range tables[at].Rows {
		name, early, late := row.Cells[0].Text, row.Cells[2].Text, row.Cells[3].Text
		plain := strings.ReplaceAll(md.String(), `\`, "") // without the escapes of Markdown
		if want := fmt.Sprintf("- %s: %s → %s\n", name, early, late); !strings.Contains(plain, want) {
			t.Errorf("%s: the Markdown page has no line %q", name, want)
		}
		found := false
		for line := range strings.Lines(text.String()) {
			_, line, marked := strings.Cut(line, " ") // after the marker of the arm
			line = strings.TrimLeft(strings.TrimSpace(line), strings.Join(page.Markers, "")+" ")
			words := strings.Fields(strings.TrimPrefix(line, name))
			found = found || marked && strings.HasPrefix(line, name+" ") && len(words) == 3 && words[0] == early &&
				words[2] == late
		}
		if !found {
			t.Errorf("%s: the text page has no curve from %s to %s", name, early, late)
		}
	}
}
