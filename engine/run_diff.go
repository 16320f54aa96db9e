package engine

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
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
	Address string
	What    string   // "changed", "only in the first", "only in the second"
	Causes  []string // of a changed one: `settings.lr 1e-5 → 2e-5`
	Outputs []string // ports that came out with other bytes
	// Seconds that the stage took for its result in either run; 0: none is recorded.
	FromSeconds, ToSeconds float64
}

// FindRun returns the folder of the run that a user names: a folder, EXPERIMENT/ID, or the ID alone; an ID may be cut
// short as long as one run fits.
func FindRun(store *artifact.Store, name string) (string, error) {
	if exists(runFolder(name).path("plan.json")) {
		return name, nil
	}
	experiments, err := Experiments(store)
	if err != nil {
		return "", err
	}
	var found, names []string
	for _, experiment := range experiments {
		folders, err := runFolders(store, experiment)
		if err != nil {
			return "", err
		}
		for _, f := range folders {
			run := RunName(string(f))
			if run == name || f.id() == name {
				return string(f), nil
			}
			if strings.HasPrefix(run, name) || strings.HasPrefix(f.id(), name) {
				found = append(found, run)
			}
			names = append(names, run)
		}
	}
	switch {
	case len(found) == 1:
		return store.Runs(found[0]), nil
	case len(found) > 1:
		return "", fmt.Errorf("%s could be any of the runs %s", name, strings.Join(found, ", "))
	case len(names) == 0:
		return "", fmt.Errorf("there is no run %s in %s", name, store.Runs(""))
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(filepath.Base(b), filepath.Base(a)) })
	return "", fmt.Errorf("there is no run %s in %s; the last ones are %s", name, store.Runs(""), strings.Join(names[:min(5, len(names))], ", "))
}

// Diff compares two runs by the results that their nodes had in the end: the parts of the keys, and the bytes. A node
// without a result in one of them, because it failed or was skipped, is changed with that for a cause.
func Diff(store *artifact.Store, from, to string) (*RunDiff, error) {
	var d RunDiff
	var ends [2]runEnd
	for i, folder := range []string{from, to} {
		var err error
		if ends[i], err = endOf(store, folder); err != nil {
			return nil, err
		}
	}
	d.From, d.To = ends[0].status, ends[1].status
	for _, n := range d.To.Nodes {
		had, have := ends[0].results[n.Address], ends[1].results[n.Address]
		switch {
		case !ends[0].has[n.Address]:
			d.Nodes = append(d.Nodes, NodeDiff{Address: n.Address, What: "only in the second", ToSeconds: tookOf(have)})
		case had != nil && have != nil && had.Key == have.Key:
			d.Same++
		default:
			d.Nodes = append(d.Nodes, ends[0].compare(ends[1], n.Address))
		}
	}
	for _, n := range d.From.Nodes {
		if !ends[1].has[n.Address] {
			d.Nodes = append(d.Nodes, NodeDiff{Address: n.Address, What: "only in the first", FromSeconds: tookOf(ends[0].results[n.Address])})
		}
	}
	return &d, nil
}

// runEnd is a run with the results that its nodes had at its end.
type runEnd struct {
	status  *RunStatus
	has     map[string]bool // addresses
	results map[string]*artifact.Manifest
	why     map[string]string // there is none
}

func endOf(store *artifact.Store, folder string) (runEnd, error) {
	status, err := Status(folder)
	if err != nil {
		return runEnd{}, err
	}
	e := runEnd{status: status, has: map[string]bool{}, results: map[string]*artifact.Manifest{}, why: map[string]string{}}
	keys := map[string]string{}
	for _, n := range status.RunRecord.Nodes {
		if n.Verb == UpToDate || n.Verb == Collected {
			keys[n.Address] = n.Key
		}
	}
	for _, n := range status.Nodes {
		e.has[n.Address] = true
		if n.Key != "" {
			keys[n.Address] = n.Key
		}
		if keys[n.Address] == "" {
			e.why[n.Address] = "has no result"
			if n.State == EventFailed || n.State == EventSkipped || n.State == EventShown {
				e.why[n.Address] = map[EventKind]string{EventFailed: "failed", EventSkipped: "was skipped", EventShown: "was shown, not kept"}[n.State]
			}
			continue
		}
		m, err := store.Manifest(keys[n.Address])
		switch {
		case errors.Is(err, artifact.ErrNotFound):
			e.why[n.Address] = "has a result that the store no longer knows"
		case err != nil:
			return e, err
		default:
			e.results[n.Address] = m
		}
	}
	return e, nil
}

func tookOf(m *artifact.Manifest) float64 {
	if m == nil {
		return 0
	}
	return m.Seconds
}

// compare says how a node that both runs have differs.
func (e runEnd) compare(o runEnd, address string) NodeDiff {
	had, have := e.results[address], o.results[address]
	d := NodeDiff{Address: address, What: "changed", FromSeconds: tookOf(had), ToSeconds: tookOf(have)}
	if had == nil {
		d.Causes = append(d.Causes, "the first "+e.why[address])
	}
	if have == nil {
		d.Causes = append(d.Causes, "the second "+o.why[address])
	}
	if had == nil || have == nil {
		return d
	}
	d.Causes = diffParts(had.Parts, have.Parts)
	for _, port := range have.Ports() {
		if before, ok := had.Outputs[port]; ok && before.Digest != have.Outputs[port].Digest {
			d.Outputs = append(d.Outputs, port)
		}
	}
	return d
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
			causes = append(causes, fmt.Sprintf("%s %s → %s", name, shown(before, known), shown(after, given)))
		}
	}
	slices.Sort(causes)
	return causes
}
