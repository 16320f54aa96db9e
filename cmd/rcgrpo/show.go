package main

import (
	"cmp"
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
	"rcgrpo/cmd/rcgrpo/internal/views"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/stages"
	"rcgrpo/stages/rl"
)

func showCommand() *cobra.Command {
	c := newExperimentCommand("show ADDRESS.PORT [EXP]", "Show an artifact as text, or its rows as CSV or JSON",
		wantArgs(1, 2,
			"want the address of a stage with its port, such as eval.arm[sft]@1.scores, and optionally an experiment"))
	c.overrideFlag()
	v := &views.View{}
	c.Flags().IntVarP(&v.Pick, "row", "n", -1,
		"show row `N`, counted from 0, of trajectories or tasks (default: a summary and row 0)")
	c.Flags().Lookup("row").DefValue = "0" // the zero of its type, which help does not print
	c.Flags().StringVar(&v.Task, "task", "", "only rows of the task with this `ID`")
	asCSV := c.Flags().Bool("csv", false, "print rows as CSV, of all stages that ADDRESS matches, such as 'eval.*.scores'")
	asJSON := c.Flags().Bool("json", false, "print the same rows as JSON")
	policy := c.Flags().String("policy", "", "show trajectories as tokens of the checkpoint `ADDRESS.PORT` or folder")
	c.completeFirst(c.ports)
	return c.does(func(args []string) error {
		if *asCSV && *asJSON {
			return misuse("--csv and --json exclude each other")
		}
		x, store, err := c.open(strings.Join(args[1:], ""))
		if err != nil {
			return err
		}
		if *asCSV || *asJSON {
			return export(c.stdout(), c.stderr(), x, store, args[0], v.Task, *asJSON)
		}
		if *policy != "" {
			if v.Pieces, err = piecesOf(*policy, x, store); err != nil {
				return err
			}
		}
		if v.Artifact, err = openArtifact(x, store, args[0]); err != nil {
			return err
		}
		width, _ := output.TerminalSize(c.stdout())
		v.Out, v.Width = c.stdout(), cmp.Or(width, output.DefaultWidth)
		return v.Print()
	})
}

// piecesOf returns the function that divides trajectories into the pieces that a policy reads. The policy is a
// checkpoint at an address or in a folder.
func piecesOf(policy string, x *lang.Experiment, store *artifact.Store) (func(*rl.Trajectory) []stages.Piece, error) {
	if info, err := os.Stat(policy); err == nil && info.IsDir() {
		return stages.Pieces(policy, x.Site.BFCL)
	}
	a, err := openArtifact(x, store, policy)
	if err != nil {
		return nil, err
	}
	return stages.Pieces(a.Dir, x.Site.BFCL)
}

// openArtifact opens the artifact of ADDRESS.PORT. The port may be omitted if the stage has only one.
func openArtifact(x *lang.Experiment, store *artifact.Store, address string) (*artifact.Artifact, error) {
	nodes, port, err := portNodes(x, address)
	if err != nil {
		return nil, err
	}
	if len(nodes) > 1 {
		return nil, fmt.Errorf("%s matches %d stages: name one, such as %s (--csv and --json print all)", address,
			len(nodes), nodes[0].Address)
	}
	results, err := current(x, store, nodes)
	if err != nil {
		return nil, err
	}
	if results[0] == nil {
		return nil, fmt.Errorf("%s has no result yet; `rcgrpo run` computes it", nodes[0].Address)
	}
	return store.Open(results[0], port)
}

// portNodes returns the stages and the port of ADDRESS.PORT. An address without key or seed matches all instances and
// seeds; it may be a pattern with * and ?.
func portNodes(x *lang.Experiment, address string) (nodes []*lang.Node, port string, err error) {
	stem := address
	if at := strings.LastIndexByte(address, '.'); at >= 0 && !strings.ContainsAny(address[at:], "]") {
		stem, port = address[:at], address[at+1:]
	}
	if strings.ContainsAny(address, "*?") {
		for _, n := range x.Nodes {
			if _, ok := n.Outputs[port]; ok && lang.MatchAddress(n.Address, stem) {
				nodes = append(nodes, n)
			}
		}
		if nodes == nil {
			return nil, "", fmt.Errorf("no stage of %s matches %s and has a port %s", x.Name, stem, port)
		}
		return nodes, port, nil
	}
	if nodes, err = x.Find(address); err == nil {
		port = ""
	} else if port != "" {
		nodes, err = x.Find(stem)
	}
	if err != nil {
		return nil, "", err
	}
	ports := slices.Sorted(maps.Keys(nodes[0].Outputs))
	list := strings.Join(ports, ", ")
	switch {
	case slices.Contains(ports, port):
		return nodes, port, nil
	case port != "":
		return nil, "", fmt.Errorf("%s has no port %s, only %s", nodes[0].Address, port, list)
	case len(ports) == 1:
		return nodes, ports[0], nil
	}
	return nil, "", fmt.Errorf("%s has the ports %s; name one: %s.%s", nodes[0].Address, list, address, ports[0])
}

// current returns the result of each node: the current one, or else the last one of an earlier version of the
// experiment. It is nil for a node without results.
func current(x *lang.Experiment, store *artifact.Store, nodes []*lang.Node) ([]*artifact.Manifest, error) {
	full, err := plan.New(x, store, plan.Options{})
	if err != nil {
		return nil, err
	}
	upToDate := map[*lang.Node]*artifact.Manifest{}
	for _, p := range full.Nodes {
		if p.Verb == plan.UpToDate {
			upToDate[p.Node] = p.Manifest
		}
	}
	results := make([]*artifact.Manifest, len(nodes))
	for i, n := range nodes {
		if results[i] = upToDate[n]; results[i] != nil {
			continue
		}
		last, err := store.Last(x.Name, n.Address)
		if errors.Is(err, artifact.ErrNotFound) {
			continue
		}
		if err == nil {
			results[i], err = store.Lookup(last.Key)
		}
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}

// export prints the rows of every artifact that an address matches.
//
// CSV is one wide table for data frames: a row per update (metrics), episode (scores, trajectories), task or example.
// The columns address and seed identify the artifact. A missing value is an empty cell. Lists, such as tokens and
// messages, are only in JSON. Numbers are printed as recorded.
func export(w, notes io.Writer, x *lang.Experiment, store *artifact.Store, address, task string, asJSON bool) error {
	nodes, port, err := portNodes(x, address)
	if err != nil {
		return err
	}
	results, err := current(x, store, nodes)
	if err != nil {
		return err
	}
	all := []views.Exported{}
	for i, m := range results {
		if m == nil {
			fmt.Fprintf(notes, "%s has no result yet\n", nodes[i].Address)
			continue
		}
		a, err := store.Open(m, port)
		if err != nil {
			return err
		}
		e := views.Exported{Address: nodes[i].Address, Seed: nodes[i].Seed, Port: port, Type: a.Type, Digest: a.Digest,
			Folder: a.Dir, Made: m.Started.Format(time.RFC3339), Seconds: m.Seconds}
		if file := views.RowsFile(a.Type); file != "" {
			if e.Rows, err = views.RawRows(a, file, task); err != nil {
				return err
			}
		} else if !asJSON {
			return fmt.Errorf("%s is of type %s, which has no rows; --json prints its folder", address, a.Type)
		}
		if a.Type == "metrics" {
			if e.Times, err = views.RawRows(a, rl.TimesFile, ""); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		all = append(all, e)
	}
	if len(all) == 0 {
		return fmt.Errorf("there is no result yet; `rcgrpo run` computes it")
	}
	if asJSON {
		return output.JSON(w, all)
	}
	return views.WriteCSV(output.Data(w), all)
}
