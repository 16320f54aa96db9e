package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"rcgrpo/cmd/rcgrpo/internal/interrupt"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/reports"
)

func reportCommand() *cobra.Command {
	c := newExperimentCommand("report [EXP]", "Write the pages of an experiment again from the stored results",
		oneExperiment)
	c.overrideFlag()
	var targets []string
	c.Flags().StringArrayVar(&targets, "target", nil, "only the report stage at `ADDRESS`; repeatable")
	bundle := c.Flags().String("bundle", "", "pack page, artifacts and experiment into `FILE"+reports.BundleSuffix+"`")
	return c.does(func(args []string) error {
		if *bundle != "" && !strings.HasSuffix(*bundle, reports.BundleSuffix) {
			return misuse("the name of a bundle ends in %s; got %s", reports.BundleSuffix, *bundle)
		}
		x, err := c.load(strings.Join(args, ""))
		if err != nil {
			return err
		}
		if len(targets) == 0 {
			for _, n := range x.Nodes {
				if isReport(n) {
					targets = append(targets, n.Address)
				}
			}
		}
		if len(targets) == 0 {
			return fmt.Errorf("%s has no report stage", x.Name)
		}
		if *bundle != "" && len(targets) > 1 {
			return misuse("a bundle holds one page; choose it with --target: %s", strings.Join(targets, ", "))
		}
		return c.report(x, targets, *bundle)
	})
}

func isReport(n *lang.Node) bool { return n.Kind.Name == reports.Kind().Name }

// report runs the report stages at targets, whose inputs must be up to date. It prints the names of the written files.
func (c *command) report(x *lang.Experiment, targets []string, bundle string) error {
	store, err := openStore(x.Site)
	if err != nil {
		return err
	}
	// A page depends on more than its key: on this version, and on comments in the experiment's files, which it records.
	p, err := plan.New(x, store, plan.Options{Targets: targets, Replace: targets})
	if err != nil {
		return err
	}
	missing := 0
	for _, n := range p.Nodes {
		if executes(n.Verb) && !isReport(n.Node) {
			missing++
		}
	}
	if missing > 0 {
		return fmt.Errorf("the page needs results that are not in the store (%d stages would run): "+
			"see rcgrpo plan, then rcgrpo run", missing)
	}
	ctx, kill, stop := interrupt.Context(c.stderr())
	defer stop()
	if err := engine.Run(ctx, p, engine.Options{Kill: kill}, func(e runs.Event) {
		if e.Kind == runs.EventNote { // such as a file of the user in the place of the page
			fmt.Fprintf(c.stderr(), "%s: %s\n", e.Address, e.Text)
		}
	}); err != nil {
		return err
	}
	for _, n := range p.Nodes {
		if isReport(n.Node) {
			if err := c.finishReport(n, p, bundle); err != nil {
				return fmt.Errorf("%s: %w", n.Address, err)
			}
		}
	}
	return nil
}

// finishReport prints the files that a report stage published. It writes the bundle of the page unless bundle is "".
func (c *command) finishReport(n *plan.Planned, p *plan.Plan, bundle string) error {
	m, err := p.Store.Last(p.Experiment.Name, n.Address)
	if err != nil {
		return err
	}
	for _, file := range p.Experiment.Publishes(n.Node) {
		fmt.Fprintln(c.stdout(), filepath.Join(p.Experiment.Dir, filepath.FromSlash(file.Name)))
	}
	if bundle == "" {
		return nil
	}
	if err := writeBundle(bundle, p.Experiment, m, p.Store); err != nil {
		return fmt.Errorf("write %s: %w", bundle, err)
	}
	info, err := os.Stat(bundle)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.stdout(), "%s (%d bytes)\n", bundle, info.Size())
	return err
}

// writeBundle packs the page of a result and everything that it depends on into a file.
func writeBundle(path string, x *lang.Experiment, m *artifact.Manifest, store *artifact.Store) error {
	page, err := reports.PageOf(m, store)
	if err != nil {
		return err
	}
	files := x.SourceFiles()
	for name := range files {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("the module %s is not below the experiment's folder, so a bundle cannot contain it; move it there",
				name)
		}
	}
	f, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o644))
	if err != nil {
		return err
	}
	defer f.Cleanup()
	if err := reports.WriteBundle(f, page, store, files); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}
