package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"rcgrpo/cmd/rcgrpo/internal/output"
	"rcgrpo/engine/lang"
)

func consoleCommand() *cobra.Command {
	c := newExperimentCommand("console [EXP] [EXPRESSION...]", "Evaluate expressions, or the lines of standard input",
		cobra.ArbitraryArgs)
	c.overrideFlag()
	return c.runs(func(args []string) error { return c.console(args) })
}

// console evaluates the expressions in args, or each line of standard input if there are none.
func (c *command) console(args []string) error {
	path := ""
	if len(args) > 0 {
		if _, err := os.Stat(args[0]); err == nil || strings.HasSuffix(args[0], ".hcl") {
			path, args = args[0], args[1:]
		}
	}
	x, err := c.load(path)
	if err != nil {
		return err
	}
	if len(args) > 0 {
		for _, expression := range args {
			err = errors.Join(err, c.evaluate(x, expression))
		}
		return err
	}
	return c.evaluateLines(x)
}

// evaluate prints the value of an expression, or its diagnostics and an exitCode.
func (c *command) evaluate(x *lang.Experiment, expression string) error {
	value, diags := x.Eval(expression)
	c.printDiagnostics(diags, x.Files)
	if diags.HasErrors() {
		return exitCode(exitFailed)
	}
	fmt.Fprintln(c.stdout(), value)
	return nil
}

func (c *command) evaluateLines(x *lang.Experiment) error {
	next := output.LineReader(c.InOrStdin(), c.stdout())
	var failed error
	for {
		line, err := next()
		switch line = strings.TrimSpace(line); {
		case errors.Is(err, io.EOF) || line == "exit" || line == "quit":
			return failed
		case err != nil:
			return err
		case line != "":
			failed = cmp.Or(c.evaluate(x, line), failed)
		}
	}
}
