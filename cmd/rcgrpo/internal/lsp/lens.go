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
	nodes := map[string][]*plan.Planned{} // of each stage block
	for _, n := range p.Nodes {
		name := lang.StageName(n.Address)
		nodes[name] = append(nodes[name], n)
	}
	texts := map[string]string{}
	for name, group := range nodes {
		texts[name] = verdictText(group)
	}
	for _, address := range x.Disabled {
		if name := lang.StageName(address); texts[name] == "" {
			texts[name] = "disabled"
		}
	}
	return texts
}

// verdictText returns each verb of the nodes with the cause of its first node, and the number of nodes if there are
// several verbs.
func verdictText(nodes []*plan.Planned) string {
	first, count := []*plan.Planned{}, map[plan.Verb]int{}
	for _, n := range nodes {
		if count[n.Verb]++; count[n.Verb] == 1 {
			first = append(first, n)
		}
	}
	var parts []string
	for _, n := range first {
		text := string(n.Verb)
		if len(first) > 1 {
			text = fmt.Sprintf("%d %s", count[n.Verb], n.Verb)
		}
		if n.Cause.Text != "" {
			text += ": " + n.Cause.Text
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
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
