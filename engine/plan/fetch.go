package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
)

// levels groups nodes so that the inputs of a node are in earlier groups: the remote store is asked once per group.
func levels(nodes []*lang.Node) [][]*lang.Node {
	depth := make(map[*lang.Node]int, len(nodes))
	var levels [][]*lang.Node
	for _, n := range nodes {
		for _, in := range n.Inputs {
			depth[n] = max(depth[n], depth[in.From]+1)
		}
		if depth[n] == len(levels) {
			levels = append(levels, nil)
		}
		levels[depth[n]] = append(levels[depth[n]], n)
	}
	return levels
}

// decideLevel plans the nodes of a group. It asks the remote store for all results that are missing or damaged here.
func (p *Plan) decideLevel(level []*lang.Node, planned map[*lang.Node]*Planned, forced []*lang.Node) error {
	looked := make([]lookup, len(level))
	open := map[string]map[string]string{}
	for i, n := range level {
		l := p.look(n, planned)
		looked[i] = l
		if l.ok && l.err != nil && !errors.Is(l.err, artifact.ErrNotHere) && !slices.Contains(forced, n) {
			open[l.key] = n.Outputs
		}
	}
	elsewhere := p.Remote.FindFor(context.Background(), open)
	for i, n := range level {
		d, err := p.decide(n, looked[i], elsewhere[looked[i].key], planned, slices.Contains(forced, n))
		if err != nil {
			return fmt.Errorf("plan %s: %w", n.Address, err)
		}
		planned[n] = d
	}
	return nil
}

// fetch makes the remote store the source of the result and of some ports.
func (d *Planned) fetch(m *artifact.Manifest, ports ...string) {
	d.Verb, d.Manifest, d.Cause = Fetch, m, Cause{}
	for _, port := range ports {
		if !slices.Contains(d.FetchPorts, port) {
			d.FetchPorts = append(d.FetchPorts, port)
		}
	}
	slices.Sort(d.FetchPorts)
	if d.Last == nil {
		d.Last = m
	}
}

// lacks reports whether the node has a result whose port is not in the store. A node that runs lacks nothing.
func (d *Planned) lacks(port string) bool {
	switch d.Verb {
	case Fetch:
		return true
	case UpToDate:
		return slices.Contains(d.Absent, port)
	}
	return d.NotHere()
}

// fetchable reports whether the remote store has the result that this store knows without its bytes.
func (p *Plan) fetchable(d *Planned) bool {
	m := p.Remote.FindFor(context.Background(), map[string]map[string]string{d.Key: d.Outputs})[d.Key]
	return m != nil && d.Manifest != nil && m.SameOutputs(d.Manifest)
}

// fetchPublished fetches the ports with files that the experiment publishes. Without a remote store the stage runs
// again if only another part of its result is here; published copies of a port that is not here stay.
func (p *Plan) fetchPublished(d *Planned) {
	if d.Verb != Fetch && d.Verb != UpToDate {
		return
	}
	for _, pub := range p.Experiment.Publishes(d.Node) {
		switch {
		case !d.lacks(pub.Port) || d.Verb == UpToDate && p.isCopied(d, pub.Port):
		case d.Verb == Fetch || p.fetchable(d):
			d.fetch(d.Manifest, pub.Port)
		default:
			d.Verb = MustRun
			d.Cause = Cause{Reason: ReasonNotHere, Text: fmt.Sprintf("%v, and the experiment publishes %s", artifact.ErrNotHere,
				pub.Name)}
			return
		}
	}
}

// FetchBytes returns the number of bytes that a run fetches for the node.
func (d *Planned) FetchBytes() (n int64) {
	for _, port := range d.FetchPorts {
		for _, o := range d.Manifest.Outputs[port].Objects() {
			n += o.Bytes
		}
	}
	return n
}
