package runs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
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
	before, after := from.byAddress(), to.byAddress()
	onlyBefore := slices.DeleteFunc(slices.Clone(from.Nodes), func(n NodeStatus) bool { return after[n.Address] != nil })
	for _, n := range slices.Concat(to.Nodes, onlyBefore) {
		old, now := before[n.Address], after[n.Address]
		diff := NodeDiff{Address: n.Address, What: "changed"}
		switch {
		case old == nil:
			diff.What = "only in the second"
		case now == nil:
			diff.What = "only in the first"
		case old.Key != "" && old.Key == now.Key:
			d.Same++
			continue
		}
		if err := diff.compare(store, old, now); err != nil {
			return nil, err
		}
		d.Nodes = append(d.Nodes, diff)
	}
	return d, nil
}

// compare sets the differences between the results of a node; nil is a run without the node.
func (d *NodeDiff) compare(store *artifact.Store, from, to *NodeStatus) (err error) {
	var first, second string
	if d.From, first, err = from.result(store); err != nil {
		return err
	}
	if d.To, second, err = to.result(store); err != nil {
		return err
	}
	if first != "" {
		d.Causes = append(d.Causes, "the first "+first)
	}
	if second != "" {
		d.Causes = append(d.Causes, "the second "+second)
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

// result returns the result of a node, or explains why there is none.
func (n *NodeStatus) result(store *artifact.Store) (m *artifact.Manifest, why string, err error) {
	switch {
	case n == nil:
		return nil, "", nil
	case n.Key != "":
		m, err := store.Manifest(n.Key)
		if errors.Is(err, artifact.ErrNotFound) {
			return nil, "has a result that is no longer in the store", nil
		}
		return m, "", err
	}
	ends := map[EventKind]string{EventFailed: "failed", EventSkipped: "was skipped",
		EventShown: "was shown, not committed"}
	return nil, cmp.Or(ends[n.State], "has no result"), nil
}

// diffParts describes the parts of two keys that differ: settings by value, inputs by name.
func diffParts(from, to artifact.Parts) (causes []string) {
	all := maps.Clone(from)
	maps.Copy(all, to)
	for _, name := range slices.Sorted(maps.Keys(all)) {
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
	return causes
}
