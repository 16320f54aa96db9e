package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"rcgrpo/engine"
	"rcgrpo/reports"
)

// reportCommand runs `rcgrpo report [EXP]`: it makes the pages of an experiment again from what the store holds and, with
// -bundle, packs one with everything behind it.
func reportCommand(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c := newCall("report", "[EXP]", stdout, stderr)
	var o engine.PlanOptions
	c.Func("target", "only the report at this `ADDRESS`; may be repeated", func(s string) error {
		o.Targets = append(o.Targets, s)
		return nil
	})
	bundle := c.String("bundle", "", "pack the page, the artifacts behind its numbers and the experiment's files into `FILE"+reports.BundleSuffix+"`")
	if code, done := c.parse(args); done {
		return code
	}
	if *bundle != "" && !strings.HasSuffix(*bundle, reports.BundleSuffix) {
		return c.misuse("the name of a bundle ends in %s; got %s", reports.BundleSuffix, *bundle)
	}
	x, code := c.experiment()
	if x == nil {
		return code
	}
	if len(o.Targets) == 0 {
		for _, n := range x.Nodes {
			if n.Kind.Name == reports.Kind().Name {
				o.Targets = append(o.Targets, n.Address)
			}
		}
	}
	if len(o.Targets) == 0 {
		return c.fail(fmt.Errorf("%s has no report stage", x.Name))
	}
	if *bundle != "" && len(o.Targets) > 1 {
		return c.misuse("a bundle holds one page; pick it with -target: %s", strings.Join(o.Targets, ", "))
	}
	store, err := c.store(x)
	if err != nil {
		return c.fail(err)
	}
	if *bundle != "" { // the page records the experiment's files, of which a comment may have changed since it was made
		o.Replace = o.Targets
	}
	plan, err := engine.NewPlan(x, store, o)
	if err != nil {
		return c.fail(err)
	}
	waiting := 0
	for _, n := range plan.Nodes {
		if (n.Verb == engine.MustRun || n.Verb == engine.MayRun) && n.Kind.Name != reports.Kind().Name {
			waiting++
		}
	}
	if waiting > 0 {
		return c.fail(fmt.Errorf("the page needs results that the store does not hold (%d stages would run): see rcgrpo plan, then rcgrpo run", waiting))
	}
	ctx, kill, stop := interruptible(stderr)
	defer stop()
	if err := plan.Run(ctx, engine.RunOptions{Kill: kill}, func(engine.Event) {}); err != nil {
		return c.fail(err)
	}
	for _, address := range o.Targets {
		nodes, err := x.Find(address)
		if err != nil {
			return c.fail(err)
		}
		for _, n := range nodes {
			m, err := store.Last(x.Name, n.Address)
			if err != nil {
				return c.fail(fmt.Errorf("%s: %w", n.Address, err))
			}
			for _, p := range m.Published {
				fmt.Fprintln(stdout, filepath.Join(x.Dir, filepath.FromSlash(p.Name)))
			}
			if *bundle == "" {
				continue
			}
			page, err := reports.PageOf(m, store)
			if err != nil {
				return c.fail(err)
			}
			files := map[string][]byte{}
			for _, path := range x.Paths {
				files[filepath.Base(path)] = x.Files[path].Bytes
			}
			if err := writeWhole(*bundle, func(w io.Writer) error { return reports.WriteBundle(w, page, store, files) }); err != nil {
				return c.fail(fmt.Errorf("write %s: %w", *bundle, err))
			}
			info, err := os.Stat(*bundle)
			if err != nil {
				return c.fail(err)
			}
			fmt.Fprintf(stdout, "%s (%d bytes)\n", *bundle, info.Size())
		}
	}
	return exitDone
}

// writeWhole writes a file aside and renames it, so that it is whole or not there.
func writeWhole(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // nothing, once it is renamed
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Chmod(f.Name(), 0o644); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
