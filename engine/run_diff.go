package engine

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"rcgrpo/engine/artifact"
)

// RunDiff is what differs between two runs, by address.
type RunDiff struct {
	From, To *RunStatus
	Nodes    []NodeDiff // in the order of To, then what only From has
	Same     int        // nodes with one key in both
}

// NodeDiff is a node that is not the same in both runs.
type NodeDiff struct {
	Address  string
	What     string             // "changed", "only in the first", "only in the second"
	Causes   []string           // of a changed one: `settings.lr 1e-5 → 2e-5`
	Outputs  []string           // ports that came out with other bytes
	From, To *artifact.Manifest // of its results; nil: it has none
}

// FindRun returns the folder of the run that a user names: a folder, EXPERIMENT/ID, or the ID alone, cut short as long
// as one run fits; `latest`, and `latest~N` for the Nth before it, of the experiment that stands before it
// (EXPERIMENT/latest) or else of the one given here; with "" of all.
func FindRun(store *artifact.Store, experiment, name string) (string, error) {
	if exists(planFile(name)) {
		return name, nil
	}
	runs, err := allRuns(store)
	if err != nil {
		return "", err
	}
	if len(runs) == 0 {
		return "", fmt.Errorf("there is no run %s: %s has none", name, store.Runs(""))
	}
	if of, back, ok := latest(name); ok {
		return nthRun(runs, cmp.Or(of, experiment), back)
	}
	var found []string
	for _, f := range runs {
		run := RunName(string(f))
		if run == name || f.id() == name {
			return string(f), nil
		}
		if strings.HasPrefix(run, name) || strings.HasPrefix(f.id(), name) {
			found = append(found, run)
		}
	}
	switch len(found) {
	case 1:
		return store.Runs(found[0]), nil
	case 0:
		var names []string
		for _, f := range runs[:min(5, len(runs))] {
			names = append(names, RunName(string(f)))
		}
		return "", fmt.Errorf("there is no run %s in %s; the last ones are %s", name, store.Runs(""), strings.Join(names, ", "))
	}
	return "", fmt.Errorf("%s could be any of the runs %s", name, strings.Join(found, ", "))
}

// allRuns returns the run folders of all experiments, the newest first.
func allRuns(store *artifact.Store) ([]runFolder, error) {
	experiments, err := Experiments(store)
	if err != nil {
		return nil, err
	}
	var all []runFolder
	for _, experiment := range experiments {
		folders, err := runFolders(store, experiment)
		if err != nil {
			return nil, err
		}
		all = append(all, folders...)
	}
	slices.SortFunc(all, func(a, b runFolder) int { return strings.Compare(b.id(), a.id()) })
	return all, nil
}

// latest reads "latest", "latest~2" and "x/latest~2".
func latest(name string) (experiment string, back int, ok bool) {
	if at := strings.LastIndexByte(name, '/'); at >= 0 {
		experiment, name = name[:at], name[at+1:]
	}
	name, count, counted := strings.Cut(name, "~")
	if counted {
		var err error
		if back, err = strconv.Atoi(count); err != nil || back < 0 {
			return "", 0, false
		}
	}
	return experiment, back, name == "latest"
}

// nthRun counts back from the newest run of an experiment, or of all.
func nthRun(runs []runFolder, experiment string, back int) (string, error) {
	runs = slices.DeleteFunc(runs, func(f runFolder) bool {
		return experiment != "" && filepath.Base(filepath.Dir(string(f))) != experiment
	})
	if back < len(runs) {
		return string(runs[back]), nil
	}
	of := "there are"
	if experiment != "" {
		of = experiment + " has"
	}
	return "", fmt.Errorf("there is no latest~%d: %s %s", back, of, Plural(len(runs), "run"))
}

// Diff compares two runs by the results that their nodes had in the end: the parts of the keys, and the bytes. A node
// without a result in one of them, because it failed or was skipped, is changed with that for a cause.
func Diff(store *artifact.Store, from, to *RunStatus) (*RunDiff, error) {
	d := &RunDiff{From: from, To: to}
	before := map[string]NodeStatus{}
	for _, n := range from.Nodes {
		before[n.Address] = n
	}
	after := map[string]bool{}
	for _, n := range to.Nodes {
		after[n.Address] = true
		had, ok := before[n.Address]
		if ok && had.Key != "" && had.Key == n.Key {
			d.Same++
			continue
		}
		diff := NodeDiff{Address: n.Address, What: "changed"}
		if !ok {
			diff.What = "only in the second"
		}
		if err := diff.compare(store, had, n); err != nil {
			return nil, err
		}
		d.Nodes = append(d.Nodes, diff)
	}
	for _, n := range from.Nodes {
		if !after[n.Address] {
			diff := NodeDiff{Address: n.Address, What: "only in the first"}
			if err := diff.compare(store, n, NodeStatus{}); err != nil {
				return nil, err
			}
			d.Nodes = append(d.Nodes, diff)
		}
	}
	return d, nil
}

// compare fills in how a node's results differ; a zero status is a run that does not have the node.
func (d *NodeDiff) compare(store *artifact.Store, had, have NodeStatus) error {
	for _, side := range []struct {
		which  string
		status NodeStatus
		m      **artifact.Manifest
	}{{"the first ", had, &d.From}, {"the second ", have, &d.To}} {
		if side.status.Address == "" {
			continue
		}
		why := side.status.without()
		if why == "" {
			m, err := store.Manifest(side.status.Key)
			if errors.Is(err, artifact.ErrNotFound) {
				why = "has a result that the store no longer knows"
			} else if err != nil {
				return err
			}
			*side.m = m
		}
		if why != "" {
			d.Causes = append(d.Causes, side.which+why)
		}
	}
	if d.From == nil || d.To == nil {
		return nil
	}
	d.Causes = diffParts(d.From.Parts, d.To.Parts)
	for _, port := range d.To.Ports() {
		if before, ok := d.From.Outputs[port]; ok && before.Digest != d.To.Outputs[port].Digest {
			d.Outputs = append(d.Outputs, port)
		}
	}
	return nil
}

// without says why a node has no result; "" when it has one.
func (n NodeStatus) without() string {
	switch {
	case n.Key != "":
		return ""
	case n.State == EventFailed:
		return "failed"
	case n.State == EventSkipped:
		return "was skipped"
	case n.State == EventShown:
		return "was shown, not kept"
	}
	return "has no result"
}

// diffParts names the parts of two keys that differ: settings as values, inputs by their name.
func diffParts(had, have artifact.Parts) []string {
	names := map[string]bool{}
	for name := range had {
		names[name] = true
	}
	for name := range have {
		names[name] = true
	}
	var causes []string
	for name := range names {
		before, known := had[name]
		after, given := have[name]
		switch {
		case known && given && before == after:
		case strings.HasPrefix(name, "input.") && known && given:
			causes = append(causes, "input "+strings.TrimPrefix(name, "input.")+" changed")
		default:
			causes = append(causes, fmt.Sprintf("%s %s → %s", name, formatValue(before, known), formatValue(after, given)))
		}
	}
	slices.Sort(causes)
	return causes
}
