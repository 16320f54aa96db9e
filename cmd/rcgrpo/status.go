package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rcgrpo/cmd/rcgrpo/internal/output"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
)

func statusCommand() *cobra.Command {
	c := newExperimentCommand("status [EXP]", "Show the newest run and all that are still running", oneExperiment)
	c.Long = c.Short +
		".\nWithout EXP, and unless this folder has exactly one experiment, show all experiments of the store."
	all := c.Flags().Bool("all", false, "list every stage, not only those that run, wait or failed")
	newest := c.Flags().Int("runs", 0, "print a line for each of the newest `N` runs instead")
	asJSON := c.Flags().Bool("json", false, "print JSON")
	return c.does(func(args []string) error {
		store, _, err := c.siteStore()
		if err != nil {
			return err
		}
		var names []string
		if name, err := experimentName(args); err == nil {
			names = []string{name}
		} else if len(args) > 0 {
			return err
		} else if names, err = runs.Experiments(store); err != nil {
			return err
		}
		found, err := newestRuns(store, names, *newest)
		if err != nil {
			return err
		}
		survivors, err := runs.Orphans(store)
		if err != nil {
			return err
		}
		survivors = slices.DeleteFunc(survivors, func(s runs.Orphan) bool {
			return !slices.Contains(names, s.Run.Experiment())
		})
		switch {
		case *asJSON:
			return writeStatusJSON(c.stdout(), found, survivors, *all)
		case len(found) == 0 && len(names) == 1:
			fmt.Fprintf(c.stdout(), "no runs of %s in %s\n", names[0], store.Dir())
		case len(found) == 0:
			fmt.Fprintf(c.stdout(), "no runs in %s\n", store.Dir())
		}
		for _, s := range found {
			if *newest > 0 {
				fmt.Fprintf(c.stdout(), "%s  %s  %s\n", s.Folder.Name(), s.Text(), countsText(stateCounts(s)))
			} else {
				writeStatus(c.stdout(), s, *all)
			}
		}
		for _, s := range survivors {
			fmt.Fprintln(c.stdout(), s.Text(time.Now()))
		}
		return nil
	})
}

// newestRuns returns the status of the newest runs of each experiment: n of them, or with n = 0 the newest run and all
// that are still running.
func newestRuns(store *artifact.Store, experiments []string, n int) ([]*runs.Status, error) {
	var found []*runs.Status
	for _, name := range experiments {
		folders, err := runs.Folders(store, name)
		if err != nil {
			return nil, err
		}
		for i, folder := range folders {
			if n > 0 && i >= n || n == 0 && i > 0 && !folder.Live() {
				continue
			}
			s, err := runs.ReadStatus(store, folder)
			if err == nil {
				found = append(found, s)
			} else if !errors.Is(err, os.ErrNotExist) { // no plan yet, or removed
				return nil, err
			}
		}
	}
	return found, nil
}

// listed returns the nodes that status lists: all, or those that run, failed, are queued, or wait with a note.
func listed(s *runs.Status, all bool) (nodes []runs.NodeStatus) {
	for _, n := range s.Nodes {
		noted := n.State == runs.EventPlanned && n.Note != "" || n.State == runs.EventQueued
		if all || noted || n.State == runs.EventStarted || n.State == runs.EventFailed {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

func writeStatus(w io.Writer, s *runs.Status, all bool) {
	fmt.Fprintf(w, "%s  %s\n", s.Folder.Name(), s.Text())
	if source, err := s.Folder.Source(); err == nil {
		for _, set := range source.Sets {
			fmt.Fprintf(w, "  override: %s\n", set)
		}
	}
	for _, n := range listed(s, all) {
		line := fmt.Sprintf("  %-10s %s  %s", stateText(s, n), n.Address, n.Text(nowOf(s, n)))
		fmt.Fprintln(w, strings.TrimRight(line, " "))
		if len(n.Ranks) > 0 {
			fmt.Fprintf(w, "             %s\n", runs.RanksText(n.Ranks))
		}
		for _, line := range n.Failure.Details() {
			fmt.Fprintf(w, "             %s\n", line)
		}
	}
	fmt.Fprintf(w, "  %s\n  %s\n", countsText(stateCounts(s)), s.Folder)
}

// nowOf returns the time until which a node has run: now if it has outlived its run, else the last event of the run.
func nowOf(s *runs.Status, n runs.NodeStatus) time.Time {
	if n.Survives {
		return time.Now()
	}
	return s.Now()
}

func stateText(s *runs.Status, n runs.NodeStatus) string {
	live := s.Live || n.Survives
	switch {
	case n.State == "":
		return string(plan.UpToDate)
	case n.State == runs.EventQueued && live:
		return string(n.State)
	case n.State == runs.EventPlanned && live:
		return "waiting"
	case n.State == runs.EventPlanned || n.State == runs.EventQueued:
		return "not started"
	case n.State == runs.EventStarted && live:
		return "running"
	case n.State == runs.EventStarted:
		return "stopped"
	}
	return string(n.State)
}

func stateCounts(s *runs.Status) map[string]int {
	counts := map[string]int{}
	for _, n := range s.Nodes {
		counts[stateText(s, n)]++
	}
	return counts
}

// statusJSON is the output of `status --json`.
type statusJSON struct {
	Runs      []statusRunJSON `json:"runs"`
	Survivors []survivorJSON  `json:"survivors"`
}

type survivorJSON struct {
	Address string      `json:"address"`
	Run     runs.Folder `json:"run"` // folder of the run that started it
	PID     int         `json:"pid"`
	Since   time.Time   `json:"since"`
	Adopted bool        `json:"adopted"`
}

type statusRunJSON struct {
	Experiment string           `json:"experiment"`
	Run        string           `json:"run"`
	Folder     runs.Folder      `json:"folder"`
	State      string           `json:"state"` // running, ended, killed
	Started    time.Time        `json:"started"`
	Seconds    float64          `json:"seconds"` // until now, or until its last event
	Revision   string           `json:"revision"`
	Host       string           `json:"host"`
	PID        int              `json:"pid"`
	Counts     map[string]int   `json:"counts"` // nodes by state
	Nodes      []statusNodeJSON `json:"nodes"`  // that run or failed; all with --all
}

type statusNodeJSON struct {
	Address string       `json:"address"`
	State   string       `json:"state"`
	Key     string       `json:"key,omitempty"`
	Started time.Time    `json:"started,omitzero"`
	Seconds float64      `json:"seconds,omitempty"` // of the whole stage, or so far
	Done    int          `json:"done,omitempty"`
	Total   int          `json:"total,omitempty"`
	Unit    string       `json:"unit,omitempty"`
	Rate    float64      `json:"rate,omitempty"` // units per second
	ETA     float64      `json:"eta_seconds,omitempty"`
	Values  []runs.Value `json:"values,omitempty"`
	Ranks   *ranksJSON   `json:"ranks,omitempty"` // of a running stage with several processes
	Note    string       `json:"note,omitempty"`
	Error   string       `json:"error,omitempty"`
	Log     string       `json:"log,omitempty"`
}

// ranksJSON are the newest reports of the ranks of a stage.
type ranksJSON struct {
	Slowest int              `json:"slowest"` // the rank that has waited least for the others
	Ranks   []runs.RankState `json:"ranks"`
}

func writeStatusJSON(w io.Writer, found []*runs.Status, survivors []runs.Orphan, all bool) error {
	out := statusJSON{Runs: []statusRunJSON{}, Survivors: []survivorJSON{}}
	for _, s := range survivors {
		out.Survivors = append(out.Survivors, survivorJSON{s.Address, s.Run, s.PID, s.Since, s.Taken})
	}
	for _, s := range found {
		r := statusRunJSON{Experiment: s.Experiment, Run: s.ID, Folder: s.Folder, State: s.State(), Started: s.Started,
			Seconds: s.Now().Sub(s.Started).Seconds(), Revision: s.Revision, Host: s.Host, PID: s.PID,
			Counts: stateCounts(s), Nodes: []statusNodeJSON{}}
		for _, n := range listed(s, all) {
			j := statusNodeJSON{Address: n.Address, State: stateText(s, n), Key: n.Key, Started: n.Started,
				Seconds: n.Seconds, Note: n.Note}
			if n.State == runs.EventStarted {
				now := nowOf(s, n)
				j.Seconds = now.Sub(n.Started).Seconds()
				j.Rate, j.ETA = n.Pace(now)
				if e := n.Progress; e != nil {
					j.Done, j.Total, j.Unit, j.Values = e.Done, e.Total, e.Unit, e.Values
				}
				if len(n.Ranks) > 0 {
					j.Ranks = &ranksJSON{runs.Slowest(n.Ranks), n.Ranks}
				}
			}
			if n.Failure != nil {
				j.Error, j.Log = n.Failure.Text, n.Failure.Log
			}
			r.Nodes = append(r.Nodes, j)
		}
		out.Runs = append(out.Runs, r)
	}
	return output.JSON(w, out)
}

func countsText(counts map[string]int) string {
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[state], state))
	}
	return strings.Join(parts, ", ")
}
