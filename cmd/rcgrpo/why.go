package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
)

// whyCommand runs "rcgrpo why ADDRESS [EXP]": what a run would do with a stage and everything that makes it so, up to the
// stages where it begins.
func whyCommand(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c := newCall("why", "ADDRESS [EXP]", stdout, stderr)
	var o engine.PlanOptions
	c.planFlags(&o)
	if code, done := c.parse(args); done {
		return code
	}
	if len(c.args) < 1 || len(c.args) > 2 {
		return c.misuse("want the address of a stage, and perhaps an experiment")
	}
	x, code := c.load(strings.Join(c.args[1:], ""))
	if x == nil {
		return code
	}
	nodes, err := x.Find(c.args[0])
	if err != nil {
		return c.fail(err)
	}
	store, err := c.store(x)
	if err != nil {
		return c.fail(err)
	}
	if len(o.Targets) == 0 {
		o.Targets = c.args[:1]
	}
	p, err := engine.NewPlan(x, store, o)
	if err != nil {
		return c.fail(err)
	}
	planned := map[*engine.Node]*engine.Planned{}
	for _, n := range p.Nodes {
		planned[n.Node] = n
	}
	told := map[*engine.Node]bool{}
	waiting := map[string]bool{}
	for _, n := range nodes {
		if planned[n] == nil {
			return c.fail(fmt.Errorf("-target leaves %s aside", n.Address))
		}
		writeWhy(stdout, n, planned, told)
		if planned[n].Verb != engine.UpToDate {
			waiting[n.Address] = true
		}
	}
	if err := writeFailures(stdout, store, x.Name, waiting); err != nil {
		return c.fail(err)
	}
	return exitDone
}

// writeFailures tells how stages failed in the newest run that has each.
func writeFailures(w io.Writer, store *artifact.Store, experiment string, addresses map[string]bool) error {
	folders, err := engine.Runs(store, experiment)
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if len(addresses) == 0 {
			return nil
		}
		s, err := engine.Status(folder)
		if errors.Is(err, fs.ErrNotExist) { // it has no plan yet, or was removed
			continue
		}
		if err != nil {
			return err
		}
		for _, n := range s.Nodes {
			if addresses[n.Address] && n.Failure != nil {
				fmt.Fprintf(w, "%s failed in run %s: %s\n  log: %s\n", n.Address, engine.RunName(folder), n.Failure.Text, n.Failure.Log)
			}
			delete(addresses, n.Address)
		}
	}
	return nil
}

// writeWhy tells of a node, then of those it reads that are not up to date, each once.
func writeWhy(w io.Writer, n *engine.Node, planned map[*engine.Node]*engine.Planned, told map[*engine.Node]bool) {
	if told[n] {
		return
	}
	told[n] = true
	d := planned[n]
	fmt.Fprintf(w, "%s: %s\n", d.Address, d.Verb)
	causes := d.Causes
	if d.Cause.Reason != engine.ReasonNone && (len(causes) == 0 || causes[0].Reason != d.Cause.Reason) {
		causes = append([]engine.Cause{d.Cause}, causes...) // asked for, damaged, collected, or waiting for an input
	}
	for _, cause := range causes {
		fmt.Fprintf(w, "  %s\n", cause)
	}
	if last := d.Last; last != nil {
		made := "made"
		if d.Verb != engine.UpToDate {
			made = "last made"
		}
		fmt.Fprintf(w, "  %s %s in %s by run %s (key %.12s, code %s)\n", made, last.Started.Local().Format("2006-01-02 15:04:05"),
			secondsText(last.Seconds), last.Run, last.Key, last.Revision)
	}
	for _, in := range d.Inputs {
		if up := planned[in.From]; up != nil && up.Verb != engine.UpToDate {
			writeWhy(w, in.From, planned, told)
		}
	}
}
