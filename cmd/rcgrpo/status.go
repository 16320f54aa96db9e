package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
)

// experimentName is the name that runs of an experiment carry, without reading its files.
func experimentName(path string) (string, error) {
	if path == "" {
		found, err := engine.FindExperiment(".")
		if err != nil {
			return "", err
		}
		path = found
	}
	abs, err := filepath.Abs(path)
	return strings.TrimSuffix(filepath.Base(abs), ".hcl"), err
}

// siteStore opens the store that the site file names, without reading an experiment.
func (c *call) siteStore() (*artifact.Store, *engine.Site, error) {
	site, files, diags := engine.LoadSite(c.source)
	c.tell(diags, files)
	if diags.HasErrors() {
		return nil, nil, errors.New("the site file has mistakes")
	}
	store, err := c.store(&engine.Experiment{Site: site})
	return store, site, err
}

// statusCommand runs "rcgrpo status [EXP]": how the newest run stands, and every other one that goes on. Without an
// experiment it does so for each that the store knows.
func statusCommand(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c := newCall("status", "[EXP]", stdout, stderr)
	all := c.Bool("all", false, "every stage, not only those that run or failed")
	list := c.Int("runs", 0, "instead, a line for each of the newest `N` runs")
	asJSON := c.Bool("json", false, "print everything for programs")
	if code, done := c.parse(args); done {
		return code
	}
	if len(c.args) > 1 {
		return c.misuse("one experiment at a time; got %s", strings.Join(c.args, " "))
	}
	store, _, err := c.siteStore()
	if err != nil {
		return c.fail(err)
	}
	names := []string{}
	if name, err := experimentName(strings.Join(c.args, "")); err == nil {
		names = append(names, name)
	} else if len(c.args) > 0 {
		return c.fail(err)
	} else if names, err = engine.Experiments(store); err != nil {
		return c.fail(err)
	}
	var runs []*engine.RunStatus
	for _, name := range names {
		folders, err := engine.Runs(store, name)
		if err != nil {
			return c.fail(err)
		}
		for i, folder := range folders {
			if *list > 0 && i >= *list || *list == 0 && i > 0 && !engine.Live(folder) {
				continue
			}
			s, err := engine.Status(folder)
			if errors.Is(err, os.ErrNotExist) { // it has no plan yet, or was removed
				continue
			}
			if err != nil {
				return c.fail(err)
			}
			runs = append(runs, s)
		}
	}
	survivors, err := engine.Orphans(store)
	if err != nil {
		return c.fail(err)
	}
	survivors = slices.DeleteFunc(survivors, func(s engine.Orphan) bool { return !slices.Contains(names, s.Experiment) })
	switch {
	case *asJSON:
		if err := writeStatusJSON(stdout, runs, survivors, *all); err != nil {
			return c.fail(err)
		}
	case len(runs) == 0:
		of := ""
		if len(names) == 1 {
			of = " of " + names[0]
		}
		fmt.Fprintf(stdout, "no runs%s in %s\n", of, store.Dir())
	default:
		for _, s := range runs {
			if *list > 0 {
				fmt.Fprintf(stdout, "%s  %s  %s\n", engine.RunName(s.Folder), s.Text(), countsText(stateCounts(s)))
			} else {
				writeStatus(stdout, s, *all)
			}
		}
		for _, s := range survivors {
			fmt.Fprintln(stdout, s.Text(time.Now()))
		}
	}
	return exitDone
}

// listed reports whether status lists a node without -all: nodes that run, failed, or have a note.
func listed(n engine.NodeStatus) bool {
	return n.State == engine.EventStarted || n.State == engine.EventFailed || n.State == engine.EventPlanned && n.Note != ""
}

func writeStatus(w io.Writer, s *engine.RunStatus, all bool) {
	fmt.Fprintf(w, "%s  %s\n", engine.RunName(s.Folder), s.Text())
	for _, n := range s.Nodes {
		if !all && !listed(n) {
			continue
		}
		now := s.Now()
		if n.Survives {
			now = time.Now()
		}
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("  %-10s %s  %s", stateText(n.State, s.Live || n.Survives), n.Address, n.Text(now)), " "))
		if n.Failure != nil {
			fmt.Fprintf(w, "             log: %s\n", n.Failure.Log)
		}
	}
	fmt.Fprintf(w, "  %s\n  %s\n", countsText(stateCounts(s)), s.Folder)
}

// stateText is the state of a node in the words of people.
func stateText(state engine.EventKind, live bool) string {
	switch state {
	case "":
		return string(engine.UpToDate)
	case engine.EventPlanned:
		if live {
			return "waiting"
		}
		return "not started"
	case engine.EventStarted:
		if live {
			return "running"
		}
		return "stopped"
	}
	return string(state)
}

// stateCounts counts the nodes of a run by state.
func stateCounts(s *engine.RunStatus) map[string]int {
	counts := map[string]int{}
	for _, n := range s.Nodes {
		counts[stateText(n.State, s.Live || n.Survives)]++
	}
	return counts
}

// statusRunJSON is one run of `status -json`.
type statusRunJSON struct {
	Experiment string           `json:"experiment"`
	Run        string           `json:"run"`
	Folder     string           `json:"folder"`
	State      string           `json:"state"` // running, ended, killed
	Started    time.Time        `json:"started"`
	Seconds    float64          `json:"seconds"` // until now, or its last event
	Revision   string           `json:"revision"`
	Host       string           `json:"host"`
	PID        int              `json:"pid"`
	Counts     map[string]int   `json:"counts"` // nodes by state
	Nodes      []statusNodeJSON `json:"nodes"`  // that run or failed; with -all every one
}

type statusNodeJSON struct {
	Address string         `json:"address"`
	State   string         `json:"state"`
	Key     string         `json:"key,omitempty"`
	Started time.Time      `json:"started,omitzero"`
	Seconds float64        `json:"seconds,omitempty"` // that it took, or has run so far
	Done    int            `json:"done,omitempty"`
	Total   int            `json:"total,omitempty"`
	Unit    string         `json:"unit,omitempty"`
	Rate    float64        `json:"rate,omitempty"` // units per second
	ETA     float64        `json:"eta_seconds,omitempty"`
	Values  []engine.Value `json:"values,omitempty"`
	Note    string         `json:"note,omitempty"`
	Error   string         `json:"error,omitempty"`
	Log     string         `json:"log,omitempty"`
}

func writeStatusJSON(w io.Writer, runs []*engine.RunStatus, survivors []engine.Orphan, all bool) error {
	type survivor struct {
		Address string    `json:"address"`
		Run     string    `json:"run"` // folder of the run that it has outlived
		PID     int       `json:"pid"`
		Since   time.Time `json:"since"`
		Adopted bool      `json:"adopted"`
	}
	out := struct {
		Runs      []statusRunJSON `json:"runs"`
		Survivors []survivor      `json:"survivors"`
	}{[]statusRunJSON{}, []survivor{}}
	for _, s := range survivors {
		out.Survivors = append(out.Survivors, survivor{s.Address, s.Run, s.PID, s.Since, s.Adopted})
	}
	for _, s := range runs {
		r := statusRunJSON{Experiment: s.Experiment, Run: s.ID, Folder: s.Folder, State: s.State(), Started: s.Started,
			Seconds: s.Now().Sub(s.Started).Seconds(), Revision: s.Revision, Host: s.Host, PID: s.PID, Counts: stateCounts(s),
			Nodes: []statusNodeJSON{}}
		for _, n := range s.Nodes {
			if !all && !listed(n) {
				continue
			}
			j := statusNodeJSON{Address: n.Address, State: stateText(n.State, s.Live || n.Survives), Key: n.Key, Started: n.Started, Seconds: n.Seconds, Note: n.Note}
			if n.State == engine.EventStarted {
				now := s.Now()
				if n.Survives {
					now = time.Now()
				}
				j.Seconds = now.Sub(n.Started).Seconds()
				j.Rate, j.ETA = n.Pace(now)
				if e := n.Progress; e != nil {
					j.Done, j.Total, j.Unit, j.Values = e.Done, e.Total, e.Unit, e.Values
				}
			}
			if n.Failure != nil {
				j.Error, j.Log = n.Failure.Text, n.Failure.Log
			}
			r.Nodes = append(r.Nodes, j)
		}
		out.Runs = append(out.Runs, r)
	}
	return printJSON(w, out)
}

func secondsText(s float64) string {
	return (time.Duration(s*1000) * time.Millisecond).Round(100 * time.Millisecond).String()
}

// countsText writes "12 up to date, 3 waiting".
func countsText(counts map[string]int) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[what], what))
	}
	return strings.Join(parts, ", ")
}
