package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/spf13/cobra"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
)

func whyCommand() *cobra.Command {
	c := newExperimentCommand("why ADDRESS [EXP]", "Explain why a run would execute or reuse a stage",
		wantArgs(1, 2, "want the address of a stage, and optionally an experiment"))
	var o plan.Options
	c.planFlags(&o)
	c.completeFirst(c.addresses)
	return c.does(func(args []string) error { return c.why(args[0], args[1:], o) })
}

func (c *command) why(address string, experiment []string, o plan.Options) error {
	c.writeOverrides(c.source.Sets)
	if len(o.Targets) == 0 {
		o.Targets = []string{address}
	}
	p, err := c.newPlan(experiment, o)
	if err != nil {
		return err
	}
	nodes, err := p.Experiment.Find(address)
	if err != nil {
		return err
	}
	planned := map[*lang.Node]*plan.Planned{}
	for _, n := range p.Nodes {
		planned[n.Node] = n
	}
	waiting := map[string]bool{}
	for _, n := range nodes {
		if planned[n] == nil {
			return fmt.Errorf("--target excludes %s", n.Address)
		}
		if planned[n].Verb != plan.UpToDate {
			waiting[n.Address] = true
		}
		writeWhy(c.stdout(), planned[n], planned)
	}
	return writeFailures(c.stdout(), p.Store, p.Experiment.Name, waiting)
}

// writeFailures prints the failure of each stage in the newest run that contains the stage.
func writeFailures(w io.Writer, store *artifact.Store, experiment string, addresses map[string]bool) error {
	folders, err := runs.Folders(store, experiment)
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if len(addresses) == 0 {
			return nil
		}
		s, err := runs.ReadStatus(store, folder)
		if errors.Is(err, fs.ErrNotExist) { // no plan yet, or removed
			continue
		} else if err != nil {
			return err
		}
		for _, n := range s.Nodes {
			if addresses[n.Address] && n.Failure != nil {
				fmt.Fprintf(w, "%s failed in run %s: %s\n", n.Address, folder.Name(), n.Failure.Text)
				for _, line := range n.Failure.Details() {
					fmt.Fprintf(w, "  %s\n", line)
				}
			}
			delete(addresses, n.Address)
		}
	}
	return nil
}

// writeWhy prints the causes of a node, then those of its inputs that are not up to date. It removes the printed nodes
// from open, so that each is printed once.
func writeWhy(w io.Writer, d *plan.Planned, open map[*lang.Node]*plan.Planned) {
	delete(open, d.Node)
	fmt.Fprintf(w, "%s: %s\n", d.Address, d.Verb)
	causes := d.Causes
	if d.Cause.Reason != plan.ReasonNone && (len(causes) == 0 || causes[0].Reason != d.Cause.Reason) {
		causes = append([]plan.Cause{d.Cause}, causes...) // replaced, damaged, not here, or waiting for an input
	}
	for _, cause := range causes {
		fmt.Fprintf(w, "  %s\n", cause)
	}
	if last := d.Last; last != nil {
		made := "made"
		if d.Verb != plan.UpToDate {
			made = "last made"
		}
		started := last.Started.Local().Format("2006-01-02 15:04:05")
		fmt.Fprintf(w, "  %s %s in %s by run %s (key %.12s, code %s)\n", made, started, runs.DurationText(last.Seconds),
			last.Run, last.Key, last.Revision)
	}
	for _, in := range d.Inputs {
		if up := open[in.From]; up != nil && up.Verb != plan.UpToDate {
			writeWhy(w, up, open)
		}
	}
}
