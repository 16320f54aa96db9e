package runs

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
)

// Diff lists the differences between two runs by address.
type Diff struct {
	From, To *Status
	Nodes    []NodeDiff // in the order of To; those that only From has are last
	Same     int        // nodes with the same key in both
}

// NodeDiff is a node that differs between two runs.
type NodeDiff struct {
	Address  string
	What     string             // "changed", "only in the first", "only in the second"
	Causes   []string           // of a change: `settings.lr 1e-5 → 2e-5`
	Outputs  []string           // ports whose content differs
	From, To *artifact.Manifest // of the results; nil: none
}

// Compare compares the results of two runs: the parts of the keys, and the digests. A node without a result in one
// of them is changed, with the reason as the cause.
func Compare(store *artifact.Store, from, to *Status) (*Diff, error) {
	d := &Diff{From: from, To: to}
	before, after := map[string]NodeStatus{}, map[string]NodeStatus{}
	for _, n := range from.Nodes {
		before[n.Address] = n
	}
	add := func(address, what string) error {
		diff := NodeDiff{Address: address, What: what}
		err := diff.compare(store, before[address], after[address])
		d.Nodes = append(d.Nodes, diff)
		return err
	}
	for _, n := range to.Nodes {
		after[n.Address] = n
		old, ok := before[n.Address]
		if ok && old.Key != "" && old.Key == n.Key {
			d.Same++
			continue
		}
		what := "changed"
		if !ok {
			what = "only in the second"
		}
		if err := add(n.Address, what); err != nil {
			return nil, err
		}
	}
	for _, n := range from.Nodes {
		if _, ok := after[n.Address]; !ok {
			if err := add(n.Address, "only in the first"); err != nil {
				return nil, err
			}
		}
	}
	return d, nil
}

// compare sets the differences between the results of a node; a zero status is a run without the node.
func (d *NodeDiff) compare(store *artifact.Store, from, to NodeStatus) error {
	for _, side := range []struct {
		name   string
		status NodeStatus
		m      **artifact.Manifest
	}{{"the first ", from, &d.From}, {"the second ", to, &d.To}} {
		if side.status.Address == "" {
			continue
		}
		why := side.status.missingResult()
		if why == "" {
			m, err := store.Manifest(side.status.Key)
			if errors.Is(err, artifact.ErrNotFound) {
				why = "has a result that is no longer in the store"
			} else if err != nil {
				return err
			}
			*side.m = m
		}
		if why != "" {
			d.Causes = append(d.Causes, side.name+why)
		}
	}
	if d.From == nil || d.To == nil {
		return nil
	}
	d.Causes = diffParts(d.From.Parts, d.To.Parts)
	for _, port := range d.To.Ports() {
		if old, ok := d.From.Outputs[port]; ok && old.Digest != d.To.Outputs[port].Digest {
			d.Outputs = append(d.Outputs, port)
		}
	}
	return nil
}

// missingResult explains why a node has no result; "" if it has one.
func (n NodeStatus) missingResult() string {
	switch {
	case n.Key != "":
		return ""
	case n.State == EventFailed:
		return "failed"
	case n.State == EventSkipped:
		return "was skipped"
	case n.State == EventShown:
		return "was shown, not committed"
	}
	return "has no result"
}

// diffParts describes the parts of two keys that differ: settings by value, inputs by name.
func diffParts(from, to artifact.Parts) []string {
	var causes []string
	add := func(name string) {
		before, inFrom := from[name]
		after, inTo := to[name]
		switch input, isInput := strings.CutPrefix(name, "input."); {
		case inFrom && inTo && before == after:
		case isInput && inFrom && inTo:
			causes = append(causes, "input "+input+" changed")
		default:
			causes = append(causes,
				fmt.Sprintf("%s %s → %s", name, lang.FormatValue(before, inFrom), lang.FormatValue(after, inTo)))
		}
	}
	for name := range from {
		add(name)
	}
	for name := range to {
		if _, ok := from[name]; !ok {
			add(name)
		}
	}
	slices.Sort(causes)
	return causes
}
