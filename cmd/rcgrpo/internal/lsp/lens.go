package lsp

import (
	"fmt"
	"strings"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
)

// planTexts returns the verb and cause of each stage block by kind and name: "run: settings.lr 1e-4 → 3e-4".
func planTexts(x *lang.Experiment) map[string]string {
	if x.Site.StorePath == "" {
		return nil
	}
	store, err := artifact.Open(x.Site.StorePath)
	if err != nil {
		return nil
	}
	p, err := plan.New(x, store, plan.Options{})
	if err != nil {
		return nil
	}
	type group struct {
		verbs []plan.Verb // in the order of the nodes
		count map[plan.Verb]int
		cause map[plan.Verb]string // of the first node
	}
	groups := map[string]*group{}
	for _, n := range p.Nodes {
		name := lang.StageName(n.Address)
		g := groups[name]
		if g == nil {
			g = &group{count: map[plan.Verb]int{}, cause: map[plan.Verb]string{}}
			groups[name] = g
		}
		if g.count[n.Verb]++; g.count[n.Verb] == 1 {
			g.verbs = append(g.verbs, n.Verb)
			g.cause[n.Verb] = n.Cause.Text
		}
	}
	texts := map[string]string{}
	for name, g := range groups {
		var parts []string
		for _, verb := range g.verbs {
			text := string(verb)
			if len(g.verbs) > 1 {
				text = fmt.Sprintf("%d %s", g.count[verb], verb)
			}
			if cause := g.cause[verb]; cause != "" {
				text += ": " + cause
			}
			parts = append(parts, text)
		}
		texts[name] = strings.Join(parts, "; ")
	}
	for _, address := range x.Disabled {
		kind, rest, _ := strings.Cut(lang.ShortAddress(address), ".")
		name, _, _ := strings.Cut(rest, "[")
		if texts[kind+"."+name] == "" {
			texts[kind+"."+name] = "disabled"
		}
	}
	return texts
}

// lenses puts the verdicts above the stages of the document.
func (v *view) lenses(verdicts map[string]string) []codeLens {
	all := []codeLens{}
	for _, stage := range blocks([]*document{v.doc}, "stage") {
		if text := verdicts[stage.label(0)+"."+stage.label(1)]; text != "" {
			lens := codeLens{Range: v.doc.rangeOf(stage.start, stage.name.end)}
			lens.Command.Title = text
			all = append(all, lens)
		}
	}
	return all
}
