package reports

import (
	"slices"
	"strings"
	"testing"

	"rcgrpo/engine/lang"
	"rcgrpo/reports/page"
)

func TestTheDocumentationNamesEveryItem(t *testing.T) {
	settings := Kind().Describe().Settings
	show := slices.IndexFunc(settings, func(s lang.SettingDoc) bool { return s.Name == "section.show" })
	if show < 0 {
		t.Fatal("the documentation has no section.show")
	}
	_, list, _ := strings.Cut(settings[show].Doc, ": ")
	equal(t, "items in the documentation of section.show", strings.Split(list, ", "), itemNames())
}

func TestTheUsualPageShowsEveryItemOnce(t *testing.T) {
	s := synthetic(3, 60, 30)
	var want, got []string
	for _, p := range items() {
		for _, part := range p.parts(s) {
			want = append(want, partID(part))
		}
	}
	for _, section := range s.usualSections() {
		for _, part := range section.Parts {
			got = append(got, partID(part))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	equal(t, "items", got, want)
	if len(want) < 35 {
		t.Errorf("only %d items on a page of everything", len(want))
	}
}

func partID(p page.Part) string {
	switch {
	case p.Table != nil:
		return p.Table.ID
	case p.Figure != nil:
		return p.Figure.ID
	}
	return "transcripts of " + p.Talks.Label
}

func TestSectionsChooseAndOrder(t *testing.T) {
	s := synthetic(1, 40, 20)
	s.Sections = []Section{{Title: "Curves", Lead: "First.", Show: []string{"fig-kl", "fig-reward"}},
		{Title: "Scores", Show: []string{"main"}}, {Title: "Nothing of this", Show: []string{"mixtures"}}}
	p := s.Page()
	var got []string
	for _, section := range p.Sections {
		got = append(got, section.Title+": "+section.Lead)
		for _, part := range section.Parts {
			got = append(got, partID(part))
		}
	}
	equal(t, "sections", got, []string{"Curves: First.", "fig-kl", "fig-reward", "Scores: ", "main-test", "main-test-new"})
}

func TestAPageExplainsTheMethodsOfItsArmsOnce(t *testing.T) {
	s := synthetic(1, 10, 8)
	text := htmlOf(t, s.Page())
	for _, whole := range []string{"GRPO whose episodes each draw a reward token", "on good and bad episodes"} {
		if n := strings.Count(text, whole); n != 1 {
			t.Errorf("got %d explanations with %q, want 1", n, whole)
		}
	}
	if !strings.Contains(text, "<b>group without variance</b>") {
		t.Error("the page does not define the measure of its question")
	}
	s.Arms, s.Compare = s.Arms[:1], nil
	s.Arms[0].Design = Design{Init: "SFTX", Method: "mine"}
	if terms := s.terms(); len(terms) > 0 {
		t.Errorf("got %q for an arm of no known method", terms)
	}
}
