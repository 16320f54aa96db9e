package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/reports"
)

func reportCommand() *cobra.Command {
	c := newExperimentCommand("report [EXP]", "Write the pages of an experiment again; --bundle adds their artifacts",
		oneExperiment)
	var targets []string
	c.Flags().StringArrayVar(&targets, "target", nil, "only the report at `ADDRESS`; repeatable")
	bundle := c.Flags().String("bundle", "", "pack page, artifacts and experiment into `FILE"+reports.BundleSuffix+"`")
	c.completeFlag("target", c.addresses)
	c.RunE = func(_ *cobra.Command, args []string) error {
		if *bundle != "" && !strings.HasSuffix(*bundle, reports.BundleSuffix) {
			return misuse("the name of a bundle ends in %s; got %s", reports.BundleSuffix, *bundle)
		}
		x, err := c.load(strings.Join(args, ""))
		if err != nil {
			return err
		}
		return c.report(x, targets, *bundle)
	}
	return c.Command
}

// report runs the report stages of an experiment whose inputs are up to date, and prints the names of the files.
func (c *experimentFlags) report(x *lang.Experiment, targets []string, bundle string) error {
	if len(targets) == 0 {
		for _, n := range x.Nodes {
			if n.Kind.Name == reports.Kind().Name {
				targets = append(targets, n.Address)
			}
		}
	}
	if len(targets) == 0 {
		return fmt.Errorf("%s has no report stage", x.Name)
	}
	if bundle != "" && len(targets) > 1 {
		return misuse("a bundle holds one page; choose it with --target: %s", strings.Join(targets, ", "))
	}
	store, err := c.store(x)
	if err != nil {
		return err
	}
	o := plan.Options{Targets: targets}
	if bundle != "" { // the page records the experiment's files; a comment in them may have changed since
		o.Replace = targets
	}
	p, err := plan.New(x, store, o)
	if err != nil {
		return err
	}
	missing := 0
	for _, n := range p.Nodes {
		if (n.Verb == plan.MustRun || n.Verb == plan.MayRun) && n.Kind.Name != reports.Kind().Name {
			missing++
		}
	}
	if missing > 0 {
		return fmt.Errorf("the page needs results that are not in the store (%d stages would run): "+
			"see rcgrpo plan, then rcgrpo run", missing)
	}
	ctx, kill, stop := interruptible(c.stderr())
	defer stop()
	if err := engine.Run(ctx, p, engine.Options{Kill: kill}, func(runs.Event) {}); err != nil {
		return err
	}
	for _, n := range p.Nodes {
		if n.Kind.Name != reports.Kind().Name {
			continue
		}
		m, err := store.Last(x.Name, n.Address)
		if err != nil {
			return fmt.Errorf("%s: %w", n.Address, err)
		}
		for _, p := range m.Published {
			fmt.Fprintln(c.stdout(), filepath.Join(x.Dir, filepath.FromSlash(p.Name)))
		}
		if bundle == "" {
			continue
		}
		if err := writeBundle(c.stdout(), bundle, x, m, store); err != nil {
			return fmt.Errorf("write %s: %w", bundle, err)
		}
	}
	return nil
}

// writeBundle packs the page of a result and everything that it depends on into a file.
func writeBundle(stdout io.Writer, path string, x *lang.Experiment, m *artifact.Manifest,
	store *artifact.Store) error {
	page, err := reports.PageOf(m, store)
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	for _, path := range x.Paths {
		files[filepath.Base(path)] = x.Files[path].Bytes
	}
	f, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o644))
	if err != nil {
		return err
	}
	defer f.Cleanup()
	if err := reports.WriteBundle(f, page, store, files); err != nil {
		return err
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s (%d bytes)\n", path, info.Size())
	return err
}
