package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"rcgrpo/cmd/rcgrpo/internal/output"
	"rcgrpo/cmd/rcgrpo/internal/views"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/runs"
	"rcgrpo/stages/rl"
)

func diffCommand() *cobra.Command {
	c := newExperimentCommand("diff RUN RUN", "Show the differences between two runs", wantArgs(2, 2,
		"want two runs: latest, latest~1, EXPERIMENT/latest, prefixes of IDs, or folders; "+
			"`rcgrpo status --runs 10` lists some"))
	c.Long = c.Short + `.

RUN is latest, latest~1 (the one before), EXPERIMENT/latest, a prefix of an ID, or a run folder.`
	asJSON := c.Flags().Bool("json", false, "print JSON")
	return c.does(func(args []string) error {
		store, _, err := c.siteStore()
		if err != nil {
			return err
		}
		here, _ := experimentName(nil)
		if own, _ := runs.Folders(store, here); len(own) == 0 {
			here = "" // latest refers to all experiments
		}
		var pair [2]*runs.Status
		for i, name := range args {
			folder, err := runs.Find(store, here, name)
			if err == nil {
				pair[i], err = runs.ReadStatus(store, folder)
			}
			if err != nil {
				return err
			}
		}
		d, err := runs.Compare(store, pair[0], pair[1])
		if err != nil {
			return err
		}
		if *asJSON {
			return writeRunDiffJSON(c.stdout(), store, d)
		}
		return writeRunDiff(c.stdout(), store, d)
	})
}

func writeRunDiff(w io.Writer, store *artifact.Store, d *runs.Diff) error {
	fmt.Fprintf(w, "first   %s  %s, code %s\n", d.From.Folder.Name(), d.From.Text(), d.From.Revision)
	fmt.Fprintf(w, "second  %s  %s, code %s\n", d.To.Folder.Name(), d.To.Text(), d.To.Revision)
	for _, n := range d.Nodes {
		took := ""
		if n.From != nil && n.To != nil {
			took = fmt.Sprintf("  (%s → %s)", runs.DurationText(n.From.Seconds), runs.DurationText(n.To.Seconds))
		}
		fmt.Fprintf(w, "%s: %s%s\n", n.Address, n.What, took)
		for _, cause := range n.Causes {
			fmt.Fprintf(w, "  %s\n", cause)
		}
		if n.From == nil || n.To == nil {
			continue
		}
		before, after := n.From.Revision, n.To.Revision
		if before != after && (before != d.From.Revision || after != d.To.Revision) {
			fmt.Fprintf(w, "  code %s → %s\n", before, after)
		}
		if len(n.Outputs) == 0 {
			fmt.Fprintln(w, "  identical outputs")
			continue
		}
		fmt.Fprintf(w, "  different outputs: %s\n", strings.Join(n.Outputs, ", "))
		scores, err := scoreChanges(store, n)
		if err != nil {
			return err
		}
		for _, s := range scores {
			fmt.Fprintf(w, "  %s\n", s)
		}
	}
	fmt.Fprintf(w, "%d differ, %d are identical\n", len(d.Nodes), d.Same)
	return nil
}

// scoreChange is the difference of two results in the scores of one task set under one token.
type scoreChange struct {
	Port  string      `json:"port"`
	Set   string      `json:"set,omitempty"`
	Token string      `json:"token,omitempty"`
	From  views.Tally `json:"from"`
	To    views.Tally `json:"to"`
}

func (s scoreChange) String() string {
	name := strings.Join(strings.Fields(s.Port+" "+s.Set+" "+s.Token), " ")
	share := func(n, of int) string {
		if of == 0 {
			return "none"
		}
		return fmt.Sprintf("%.1f %% (%d/%d)", 100*float64(n)/float64(of), n, of)
	}
	return fmt.Sprintf("%s: reward 1 %s → %s, official %s → %s", name,
		share(s.From.Reward1, s.From.Episodes), share(s.To.Reward1, s.To.Episodes),
		share(s.From.Official, s.From.Episodes), share(s.To.Official, s.To.Episodes))
}

// scoreChanges compares the scores among the different outputs. Those that are not here are omitted.
func scoreChanges(store *artifact.Store, n runs.NodeDiff) ([]scoreChange, error) {
	tallies := views.Groups[[2]views.Tally]{}
	for _, port := range n.Outputs {
		if n.From.Outputs[port].Type != "scores" || n.To.Outputs[port].Type != "scores" {
			continue
		}
		for side, m := range []*artifact.Manifest{n.From, n.To} {
			a, err := store.Open(m, port)
			if err != nil {
				return nil, err
			}
			for s, err := range artifact.Rows[rl.Score](a, rl.ScoresFile) {
				if errors.Is(err, os.ErrNotExist) {
					return nil, nil
				}
				if err != nil {
					return nil, err
				}
				tallies.Of(port, s.Set, s.Token)[side].Add(s)
			}
		}
	}
	var all []scoreChange
	for _, g := range tallies.Sorted() {
		if t := tallies[g]; t[0] != t[1] {
			all = append(all, scoreChange{g[0], g[1], g[2], t[0], t[1]})
		}
	}
	return all, nil
}

func writeRunDiffJSON(w io.Writer, store *artifact.Store, d *runs.Diff) error {
	type result struct {
		Key      string            `json:"key"`
		Seconds  float64           `json:"seconds"`
		Revision string            `json:"revision"`
		Digests  map[string]string `json:"digests"` // by port
	}
	type node struct {
		Address string        `json:"address"`
		What    string        `json:"what"`
		Causes  []string      `json:"causes,omitempty"`
		Outputs []string      `json:"outputs,omitempty"`
		Scores  []scoreChange `json:"scores,omitempty"`
		From    *result       `json:"from,omitempty"`
		To      *result       `json:"to,omitempty"`
	}
	type run struct {
		Folder   runs.Folder `json:"folder"`
		State    string      `json:"state"`
		Revision string      `json:"revision"`
	}
	out := struct {
		From  run    `json:"from"`
		To    run    `json:"to"`
		Same  int    `json:"same"`
		Nodes []node `json:"nodes"`
	}{
		run{d.From.Folder, d.From.State(), d.From.Revision}, run{d.To.Folder, d.To.State(), d.To.Revision}, d.Same, []node{},
	}
	resultOf := func(m *artifact.Manifest) *result {
		if m == nil {
			return nil
		}
		return &result{m.Key, m.Seconds, m.Revision, digests(m)}
	}
	for _, n := range d.Nodes {
		scores, err := scoreChanges(store, n)
		if err != nil {
			return err
		}
		out.Nodes = append(out.Nodes, node{n.Address, n.What, n.Causes, n.Outputs, scores, resultOf(n.From), resultOf(n.To)})
	}
	return output.JSON(w, out)
}
