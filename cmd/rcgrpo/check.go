package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"rcgrpo/cmd/rcgrpo/internal/output"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/slurm"
	"rcgrpo/stages"
)

func checkCommand() *cobra.Command {
	c := newExperimentCommand("check [EXP...]", "Find mistakes without running anything", cobra.ArbitraryArgs)
	c.Long = "Find mistakes of experiments without running anything. EXP may also be a GGUF file or the folder of a\n" +
		"model: then its parts, its memory and what is not supported are printed. Exit code 1: something is invalid."
	asJSON := c.Flags().Bool("json", false, "print JSON")
	layout := c.Flags().String("layout", "", "chat layout `NAME` in place of a model's template: "+
		strings.Join(stages.LayoutNames(), ", "))
	c.overrideFlag()
	return c.does(func(args []string) error { return c.check(args, *layout, *asJSON) })
}

func (c *command) check(paths []string, layout string, asJSON bool) error {
	if len(paths) == 0 {
		path, err := orOnlyExperiment("")
		if err != nil {
			return err
		}
		paths = []string{path}
	}
	invalid := false
	all := []lang.DiagnosticJSON{}
	for _, path := range paths {
		if isModel(path) {
			report := stages.CheckFolder(path, layout)
			problems := modelDiagnostics(path, report)
			invalid = invalid || len(problems) > 0
			all = append(all, problems...)
			if asJSON {
				continue
			}
			if err := c.checkModel(path, report); err != nil {
				return err
			}
			continue
		}
		c.source.Path = path
		x, diags := lang.Load(c.source, kinds())
		invalid = invalid || diags.HasErrors()
		if asJSON {
			all = append(all, lang.DiagnosticsJSON(diags)...)
			continue
		}
		c.printDiagnostics(diags, x.Files)
		if !diags.HasErrors() {
			fmt.Fprintf(c.stdout(), "%s is valid: %s\n", path, sizeText(x))
		}
	}
	if asJSON {
		if err := output.JSON(c.stdout(), all); err != nil {
			return err
		}
	}
	if invalid {
		return exitCode(exitFailed)
	}
	return nil
}

func sizeText(x *lang.Experiment) string {
	text := english.Plural(len(x.Nodes), "node", "")
	if len(x.Seeds) > 1 {
		text += ", seeds " + strings.Trim(strings.ReplaceAll(fmt.Sprint(x.Seeds), " ", ", "), "[]")
	}
	return text
}

func siteCommand() *cobra.Command {
	return newGroup("site", "Check the clusters of the site file", siteCheckCommand())
}

func siteCheckCommand() *cobra.Command {
	c := newExperimentCommand("check", "Report version, partitions, limits and accounting of each Slurm cluster",
		wantArgs(0, 0, ""))
	return c.does(func([]string) error {
		_, site, err := c.siteStore()
		if err != nil {
			return err
		}
		if len(site.Slurm) == 0 {
			return errors.New(`the site file names no cluster: add executor "slurm" { partition = "…" } (docs/cluster.md)`)
		}
		problems := 0
		for _, name := range slices.Sorted(maps.Keys(site.Slurm)) {
			fmt.Fprintf(c.stdout(), "executor %s\n", name)
			for _, f := range slurm.NewExecutor(site.Slurm[name]).Check(c.Context()) {
				mark := "  "
				if f.Problem {
					mark = "  problem: "
					problems++
				}
				fmt.Fprintln(c.stdout(), mark+f.Text)
			}
		}
		if problems > 0 {
			return exitCode(exitFailed)
		}
		return nil
	})
}
