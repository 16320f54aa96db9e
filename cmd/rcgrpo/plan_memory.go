package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"rcgrpo/engine/plan"
	"rcgrpo/stages"
)

// memoryWarningThreshold: plan mentions memory only when a stage needs at least this much.
const memoryWarningThreshold = 1 << 30

// memoryLines returns a line for the stage that needs most memory, and one for each stage that its device cannot hold.
func memoryLines(p *plan.Plan, f plan.Forecast) (lines []string) {
	var most stages.MemoryPlan
	of := ""
	refused := map[string]bool{}
	for _, n := range p.Nodes {
		plan, ok := memoryOf(n, f)
		stem, _, _ := strings.Cut(n.Address, "@")
		switch {
		case !ok:
		case plan.Unfit != nil && !refused[stem]:
			refused[stem] = true
			lines = append(lines, fmt.Sprintf("Cannot run here: %s: %v.", stem, plan.Unfit))
		case plan.Unfit == nil && plan.Bytes > most.Bytes:
			most, of = plan, stem
		}
	}
	if most.Bytes >= memoryWarningThreshold {
		lines = append([]string{fmt.Sprintf("Most memory: %s takes %s.", of, most.Text)}, lines...)
	}
	return lines
}

// unfitMemory returns an error if the device of a stage that would run has too little memory.
func unfitMemory(p *plan.Plan) error {
	hasModel := func(n *plan.Planned) bool {
		_, ok := stages.Memory(n.Node, 0)
		return ok
	}
	if !slices.ContainsFunc(p.Nodes, hasModel) { // the forecast is not needed
		return nil
	}
	f := p.Forecast(context.Background())
	for _, n := range p.Nodes {
		if plan, ok := memoryOf(n, f); ok && plan.Unfit != nil {
			return fmt.Errorf("%s: %w", n.Address, plan.Unfit)
		}
	}
	return nil
}

// memoryOf returns the memory plan of a node that would run.
func memoryOf(n *plan.Planned, f plan.Forecast) (stages.MemoryPlan, bool) {
	at, ok := f.Placements[n]
	if !ok || at.Unfit != "" {
		return stages.MemoryPlan{}, false
	}
	return stages.Memory(n.Node, at.Memory)
}
