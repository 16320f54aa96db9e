package main

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"rcgrpo/cmd/rcgrpo/internal/output"
	"rcgrpo/engine/lang"
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
