package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"rcgrpo/cmd/rcgrpo/internal/interrupt"
	"rcgrpo/cmd/rcgrpo/internal/output"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/slurm"
)

func checkCommand() *cobra.Command {
	c := newExperimentCommand("check [EXP...]", "Find mistakes without running anything", cobra.ArbitraryArgs)
	asJSON := c.Flags().Bool("json", false, "print JSON")
	c.overrideFlag()
	return c.runs(func(args []string) error { return c.check(args, *asJSON) })
}

func (c *command) check(paths []string, asJSON bool) error {
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
	job := c.Flags().Bool("job", false, "also submit a short job that tests paths, programs, clock and GPUs of a node")
	gpu := c.Flags().Bool("gpu", false, "with --job, request a GPU")
	return c.runs(func([]string) error {
		if *gpu && !*job {
			return misuse("--gpu needs --job")
		}
		store, site, err := c.siteStore()
		if err != nil {
			return err
		}
		if len(site.Slurm) == 0 {
			return errors.New(`the site file names no cluster: add executor "slurm" { partition = "…" } (docs/cluster.md)`)
		}
		problems := 0
		for _, name := range slices.Sorted(maps.Keys(site.Slurm)) {
			fmt.Fprintf(c.stdout(), "executor %s\n", name)
			x := slurm.NewExecutor(site.Slurm[name])
			findings := x.Check(c.Context())
			if *job {
				findings = append(findings, c.checkJob(x, store, site, *gpu)...)
			}
			for _, f := range findings {
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

// checkJob submits a job that tests the folders of the store, of the site file and of this command on a node.
func (c *command) checkJob(x *slurm.Executor, store *artifact.Store, site *lang.Site, gpu bool) []slurm.Finding {
	self, err := os.Executable()
	if err != nil {
		return []slurm.Finding{{Text: err.Error(), Problem: true}}
	}
	programs := []string{self}
	if torch, err := engine.TorchBinary(""); err == nil && torch != self { // without it no stage needs tensors
		programs = append(programs, torch)
	}
	folders := []string{store.Dir()}
	if dir, err := os.Getwd(); err == nil {
		folders = append(folders, dir)
	}
	if dir := filepath.Dir(site.Path); site.Path != "" && !slices.Contains(folders, dir) {
		folders = append(folders, dir)
	}
	gpus := 0
	if gpu {
		gpus = 1
	}
	ctx, _, stop := interrupt.Context(c.stderr())
	defer stop()
	return x.CheckJob(ctx, store, slurm.Probe{Folders: folders, Programs: programs, GPUs: gpus})
}
