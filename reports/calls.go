package reports

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/reports/page"
	"rcgrpo/stages/rl"
)

// costFile sums up the calls in an artifact of type calls: callCost.
const costFile = "cost.json"

// callCost is the sum of recorded calls of an API model.
type callCost struct {
	Dollars  float64  `json:"dollars"`
	Attempts int      `json:"attempts"`
	Replies  int      `json:"replies"`
	Input    int      `json:"input"`  // tokens
	Output   int      `json:"output"` // tokens
	Models   []string `json:"models"` // returned names, sorted
	First    string   `json:"first"`  // dates, RFC 3339, UTC
	Last     string   `json:"last"`
}

// Calls sums up the calls of the stages with one label.
type Calls struct {
	Label string // label of the arm, or the stage of a rollout
	From  []string
	callCost
}

// calls adds the sum of the calls of a stage to those of its label.
func (g *gathering) calls(in *Input, a *artifact.Artifact) error {
	var one callCost
	if err := a.ReadJSON(costFile, &one); err != nil {
		return fmt.Errorf("%s: %s: %w", in.port(), costFile, err)
	}
	c := findOrAdd(&g.study.Calls, Calls{Label: in.Label}, func(c Calls) bool { return c.Label == in.Label })
	c.From = append(c.From, in.port())
	c.Dollars += one.Dollars
	c.Attempts += one.Attempts
	c.Replies += one.Replies
	c.Input += one.Input
	c.Output += one.Output
	c.Models = slices.Compact(slices.Sorted(slices.Values(append(c.Models, one.Models...))))
	if c.First == "" || one.First != "" && one.First < c.First {
		c.First = one.First
	}
	c.Last = max(c.Last, one.Last)
	return nil
}

// Types of the ports of a stage that samples from an endpoint.
const (
	callsType        = "calls"
	trajectoriesType = "trajectories"
)

// sampled returns the result of a stage that sampled from an endpoint, and the results that it read; nil for another
// stage.
func (a *ancestry) sampled(n *lang.Node) (m *artifact.Manifest, read map[*lang.Input]*artifact.Manifest) {
	m = a.made[n.Address]
	if m == nil || m.Outputs[callsType].Type != callsType {
		return nil, nil
	}
	read = map[*lang.Input]*artifact.Manifest{}
	for i := range n.Inputs {
		in := &n.Inputs[i]
		if one := ancestor(a.planned[in.From.Address], m, *in); one != nil {
			read[in] = one
		}
	}
	return m, read
}

// fetchCalls fetches the artifacts that addCalls adds from the remote store, because they are no inputs of a report,
// and the description of the endpoint.
func (a *ancestry) fetchCalls(in lang.Input) {
	m, read := a.sampled(in.From)
	if m == nil {
		return
	}
	need := map[string][]string{m.Key: {callsType, trajectoriesType}}
	for from, one := range read {
		need[one.Key] = append(need[one.Key], from.Ref.Port)
	}
	if err := a.remote.Complete(context.Background(), need); err != nil {
		a.logf("%s: %v", in.From.Address, err)
	}
}

// addCalls adds the record of a stage that sampled from an endpoint, and the other artifacts that a replay of it
// reads: trajectories and tasks. A record that the store lacks is left out, with a note on the page.
func (a *ancestry) addCalls(in lang.Input) {
	m, read := a.sampled(in.From)
	if m == nil {
		return
	}
	var all []Input
	add := func(role, address string, ref artifact.Ref, m *artifact.Manifest) {
		all = append(all, Input{Role: role, Address: address, Ref: ref, Key: m.Key, Digest: m.Outputs[ref.Port].Digest})
	}
	ref := in.Ref
	ref.Port, ref.Type = callsType, callsType
	add(roleCalls, in.From.Address, ref, m)
	all[0].Label = instanceName(ref)
	for _, other := range a.ev.Inputs {
		if other.Role == roleScores && other.Address == in.From.Address {
			all[0].Label = other.Label
		}
	}
	ref.Port, ref.Type = trajectoriesType, trajectoriesType
	add(roleReplay, in.From.Address, ref, m)
	for i := range in.From.Inputs {
		if tasks := &in.From.Inputs[i]; tasks.Ref.Type == "tasks" && read[tasks] != nil {
			add(roleReplay, tasks.From.Address, tasks.Ref, read[tasks])
		}
	}
	for _, one := range all {
		if m, err := a.store.Manifest(one.Key); err != nil || !a.store.Has(m, one.Ref.Port) {
			a.ev.Notes = append(a.ev.Notes, fmt.Sprintf("%s called an API model. This page shows neither cost nor calls, "+
				"because the store lacks %s.", lang.TrimStage(in.From.Address), one.port()))
			return
		}
	}
	a.ev.Inputs = append(a.ev.Inputs, all...)
}

// armName returns the name of an arm in the main table: with its reward token, or for an API model with the returned
// model, the dates of its calls and their cost. scores is the source of the row.
func (s *Study) armName(a *Arm, scores page.Source) page.Cell {
	name := page.Text("%s", a.Label)
	if i := slices.IndexFunc(s.Calls, func(c Calls) bool { return c.Label == a.Label }); i >= 0 {
		c := &s.Calls[i]
		days := c.days()
		name = name.With("%s · %s · %s", strings.Join(c.Models, ", "), strings.TrimSpace(days.Text+" "+days.Detail),
			dollars(c.Dollars))
		return name.From(page.Together("returned model, dates and cost of the calls", "", scores, page.Source{From: c.From}))
	}
	if token := a.condition(); token != rl.TokenNone {
		name = name.With("conditioned on %s", token)
	}
	return name
}

// days shows the days of the first and the last call, one if they are equal.
func (c *Calls) days() page.Cell {
	first, last := page.Prefix(c.First, len(time.DateOnly)), page.Prefix(c.Last, len(time.DateOnly))
	if first == last {
		return page.Text("%s", first)
	}
	return page.Text("%s", first).With("to %s", last)
}

// dollars formats an amount to the cent, below ten cents with two significant digits.
func dollars(v float64) string {
	if v > 0 && v < 0.1 {
		return "$" + fmt.Sprintf("%.2g", v)
	}
	return fmt.Sprintf("$%.2f", v)
}

// callsTable lists the calls of the API models: cost, tokens, returned models and dates. A model whose returned name
// has changed is marked.
func (s *Study) callsTable() *page.Table {
	t := &page.Table{ID: "calls", Title: "Calls of the API models",
		Columns: page.Columns("<Arm or stage", "Cost", "Replies", "Attempts", "Input tokens", "Output tokens", "Dates",
			"Returned model")}
	changed := false
	for _, c := range s.Calls {
		from := func(by string) page.Source { return page.Source{From: c.From, By: by} }
		count := func(n int, by string) page.Cell { return page.Whole(n).From(from(by)) }
		model := page.Text("%s", cmp.Or(strings.Join(c.Models, ", "), "–")).From(from("names of the model in the responses"))
		if len(c.Models) > 1 {
			model.Mark, changed = page.MarkDiffers, true
			model = model.With("%d names", len(c.Models))
		}
		t.Add(s.armIndex(c.Label), page.Text("%s", c.Label),
			page.Cell{Text: dollars(c.Dollars), Value: &c.Dollars}.From(from("sum of the dollars of all attempts")),
			count(c.Replies, "number of replies"), count(c.Attempts, "number of attempts"),
			count(c.Input, "sum over the replies"), count(c.Output, "sum over the replies"),
			c.days().From(from("days of the first and the last attempt")), model)
	}
	t.Notes = []string{"From the recorded calls of the shown results, also of earlier runs. An attempt without a " +
		"recorded answer counts with its highest possible cost. rcgrpo verify replays the episodes from the record."}
	if changed {
		t.Notes = append(t.Notes, "Marked: the API returned several names, so the model behind it changed during the calls.")
	}
	return t
}

// Recorded is the result of a stage that sampled from an endpoint, with the inputs of a replay of its calls.
type Recorded struct {
	Address  string
	Store    *artifact.Store
	Manifest *artifact.Manifest
	Endpoint string               // endpoint.json
	Tasks    []*artifact.Artifact // in the order of the setting
}

// recorded returns the stages whose calls the page counts, without artifacts that the store lacks.
func (ev *Evidence) recorded(store *artifact.Store) (all []Recorded) {
	manifest, open := once(store.Manifest), opener(store)
	tasks, cards := map[string]*artifact.Artifact{}, map[string]string{} // by the parts of manifests that name them
	for i, in := range ev.Inputs {
		if in.Role == roleReplay {
			tasks[quoted(in.Digest)], _ = open(&ev.Inputs[i])
		}
	}
	for _, stage := range ev.Stages {
		if m, err := manifest(stage.Key); err == nil {
			cards[quoted(m.Outputs["policy"].Digest)] = stage.Card
		}
	}
	for _, in := range ev.Inputs {
		m, err := manifest(in.Key)
		if in.Role != roleCalls || in.Ref.Port != callsType || err != nil { // the error is a fault of the page
			continue
		}
		r := Recorded{Address: in.Address, Store: store, Manifest: m, Endpoint: cards[m.Parts["input.policy"]]}
		part := cmp.Or(m.Parts["input.tasks[0]"], m.Parts["input.tasks"])
		for i := 1; tasks[part] != nil; i++ {
			r.Tasks = append(r.Tasks, tasks[part])
			part = m.Parts[fmt.Sprintf("input.tasks[%d]", i)]
		}
		all = append(all, r)
	}
	return all
}

// quoted returns a digest as manifests record it among the inputs of a stage: as JSON.
func quoted(digest string) string { return fmt.Sprintf("%q", digest) }
