package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"rcgrpo/engine/lang"
)

func consoleCommand() *cobra.Command {
	c := newExperimentCommand("console [EXP] [EXPRESSION...]", "Evaluate expressions with the values of an experiment",
		cobra.ArbitraryArgs)
	c.RunE = func(_ *cobra.Command, args []string) error { return c.console(args) }
	return c.Command
}

// console evaluates the expressions in args, or each line of standard input if there are none.
func (c *experimentFlags) console(args []string) error {
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
func (c *experimentFlags) evaluate(x *lang.Experiment, expression string) error {
	value, diags := x.Eval(expression)
	c.printDiagnostics(diags, x.Files)
	if diags.HasErrors() {
		return exitCode(exitFailed)
	}
	fmt.Fprintln(c.stdout(), value)
	return nil
}

func (c *experimentFlags) evaluateLines(x *lang.Experiment) error {
	next, restore := lineReader(c.InOrStdin(), c.stdout(), nil)
	var failed error
	for {
		line, err := next()
		switch line = strings.TrimSpace(line); {
		case errors.Is(err, io.EOF) && line == "" || line == "exit" || line == "quit":
			if err != nil && isTerminal(c.stdout()) {
				fmt.Fprint(c.stdout(), "\r\n") // ^D leaves the cursor behind the prompt
			}
			if err := restore(); err != nil {
				return err
			}
			return failed
		case err != nil && !errors.Is(err, io.EOF):
			return errors.Join(err, restore())
		case line != "":
			if err := restore(); err != nil { // raw mode would break the lines of the answer
				return err
			}
			if err := c.evaluate(x, line); err != nil {
				failed = err
			}
		}
	}
}

// completer is the callback of term.Terminal for each key.
type completer func(line string, pos int, key rune) (newLine string, newPos int, ok bool)

// lineReader returns the lines of stdin; on a terminal with a prompt, editing, a history and completion. restore ends
// the raw mode of the terminal until the next line.
func lineReader(stdin io.Reader, stdout io.Writer, keys completer) (next func() (string, error), restore func() error) {
	in, ok := stdin.(*os.File)
	if !ok || !isTerminal(stdout) || !isTerminal(in) {
		lines := bufio.NewReader(stdin)
		return func() (string, error) { return lines.ReadString('\n') }, func() error { return nil }
	}
	editor := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{in, stdout}, "> ")
	editor.AutoCompleteCallback = keys
	var before *term.State
	next = func() (string, error) {
		var err error
		if before, err = term.MakeRaw(int(in.Fd())); err != nil {
			return "", err
		}
		return editor.ReadLine()
	}
	restore = func() error {
		if before == nil {
			return nil
		}
		state := before
		before = nil
		return term.Restore(int(in.Fd()), state)
	}
	return next, restore
}
