package reports

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
	"rcgrpo/reports/page"
)

// Each value is recomputed from the artifacts of its source alone.
func TestEveryCellFollowsFromItsSourceAlone(t *testing.T) {
	html, store := scriptedPage(t, "none")
	if checked, parts := followFromTheirSources(t, html, store); checked < 300 || parts < 10 {
		t.Errorf("%d cells and values from %d sets of artifacts are too few to mean anything", checked, parts)
	}
}

// followFromTheirSources checks the cells of some tables and figures, or of all, and returns their number and that of
// the sets of artifacts.
func followFromTheirSources(t *testing.T, html []byte, store *artifact.Store, only ...string) (cells, sets int) {
	t.Helper()
	ev := must.Get(ReadEvidence(html))(t)
	shown := append(slices.Clone(ev.Tables), ev.Figures...)
	parts := map[string][]page.Grid{}
	checked := 0
	check := func(g *page.Grid, r, c int) {
		id, text, name := page.CellID(g.ID, r+1, c+1), g.Rows[r].Cells[c], g.Name(r, c)
		source, ok := ev.source(id)
		if !ok || len(only) > 0 && !slices.Contains(only, g.ID) {
			return
		}
		checked++
		from := fmt.Sprint(source.From)
		if parts[from] == nil {
			parts[from] = must.Get(ev.part(source).recompute(store))(t)
		}
		if first, _ := find(shown, g.ID, name); first != text {
			t.Errorf("%s: its name %q means another cell too", id, name)
		}
		if got, ok := find(parts[from], g.ID, name); got != text {
			t.Errorf("%s, %s: got %q (%v) from %s alone, want %q", id, name, got, ok, source, text)
		}
	}
	for _, g := range ev.Tables {
		for r, row := range g.Rows {
			for c := range row.Cells {
				check(&g, r, c)
			}
		}
	}
	for _, g := range ev.Figures {
		for r := 0; r < len(g.Rows); r += 7 {
			if last := len(g.Rows[r].Cells) - 1; g.Rows[r].Cells[last] != "" {
				check(&g, r, last)
			}
		}
	}
	return checked, len(parts)
}

func TestACellIsReproducedFromOtherResults(t *testing.T) {
	html, _ := scriptedPage(t, "none")
	_, other := scriptedPage(t, "none")
	made := func(address string) (*artifact.Manifest, error) { return other.Last("scripted", address) }
	named := regexp.MustCompile(`id="(main-test\.r\d)c1"[^>]*>(<span[^>]*></span>)?Much training`).FindSubmatch(html)
	if named == nil {
		t.Fatal("the page has no row of Much training")
	}
	cell := string(named[1]) + "c2"
	r := must.Get(Reproduce(html, "#"+cell, other, made))(t)
	if !r.Equal() || !strings.HasPrefix(r.Got, "75.0 %") && !strings.HasPrefix(r.Got, "75.0\u00a0%") ||
		len(r.Differs) > 0 || r.Name != "Much training | Overall" {
		t.Errorf("got %+v", r)
	}
	forged := []byte(strings.Replace(string(html), `id="`+cell+`">75.0`, `id="`+cell+`">80.0`, 1))
	if r := must.Get(Reproduce(forged, cell, other, made))(t); r.Equal() {
		t.Errorf("a forged cell: got %+v, want a difference", r)
	}
	for _, cell := range []string{"main-test.r99c1", "man-test.r1c2", "nonsense"} {
		if _, err := Reproduce(html, cell, other, made); err == nil {
			t.Errorf("%s: want an error", cell)
		}
	}
}
