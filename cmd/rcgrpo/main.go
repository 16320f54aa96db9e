// Command rcgrpo plans, runs and reports experiments written in HCL. README.md is the tour, docs/language.md the
// reference of the language, docs/architecture.md describes the code.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rcgrpo/engine"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/slurm"
	"rcgrpo/reports"
	"rcgrpo/stages"
)

const (
	exitDone        = 0
	exitFailed      = 1
	exitChanges     = 2 // plan --detailed-exitcode: something would run
	exitMisuse      = 64
	exitInterrupted = 130
)

func kinds() lang.Registry {
	return append(lang.Registry(stages.Kinds()), reports.Kind())
}

func main() {
	if os.Getenv("GOGC") == "" { // most commands end before the heap reaches 12 MiB
		debug.SetGCPercent(300)
	}
	if len(os.Args) > 1 && os.Args[1] == "node" { // started by the engine, once per stage
		os.Exit(runNode(os.Args[2:], os.Stderr))
	}
	if len(os.Args) == 3 && os.Args[1] == "job" { // started by Slurm, once per job
		os.Exit(slurm.Main(os.Args[2], os.Stderr))
	}
	stdout := &output{file: os.Stdout, stderr: os.Stderr}
	os.Exit(stdout.code(run(os.Args[1:], os.Stdin, stdout, os.Stderr)))
}

func newRoot() *cobra.Command {
	cobra.EnableCommandSorting = false
	root := newGroup("rcgrpo [EXP]", "Plan, run and report experiments on tool-calling language models.")
	root.Use = "rcgrpo"
	root.Long = root.Short +
		"\n\nEXP is the path of an experiment, a file or a folder; by default the only experiment in this folder.\n" +
		"ADDRESS names a stage of it as `rcgrpo plan` prints it, such as eval.arm[sft]@1: kind, name, key, seed."
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.DisableDefaultCmd = true
	root.Version = fmt.Sprintf("rcgrpo, built by %s from sources %s\n", runtime.Version(), engine.Revision())
	root.SetVersionTemplate("{{.Version}}")
	root.InitDefaultVersionFlag()
	for _, group := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Write experiments:", []*cobra.Command{
			initCommand(), checkCommand(), fmtCommand(), kindsCommand(), consoleCommand(), graphCommand(),
			lspCommand(),
		}},
		{"Run experiments:", []*cobra.Command{planCommand(), runCommand(), statusCommand(), logsCommand()}},
		{"Inspect results:", []*cobra.Command{
			showCommand(), whyCommand(), diffCommand(), replayCommand(), serveCommand(),
		}},
		{"Share and check pages:", []*cobra.Command{
			openCommand(), reportCommand(), verifyCommand(), reproduceCommand(), lintCommand(),
		}},
		{"Other commands:", []*cobra.Command{storeCommand(), bfclCommand(), mcpCommand(), completionCommand(), {
			Use: "version", Short: "Print the version", Args: wantArgs(0, 0, ""),
			Run: func(c *cobra.Command, _ []string) { fmt.Fprint(c.OutOrStdout(), root.Version) },
		}}},
	} {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, c := range group.commands {
			c.GroupID = group.title
			root.AddCommand(c)
		}
	}
	root.SetHelpCommandGroupID("Other commands:")
	root.InitDefaultHelpCmd()
	return root
}

// exitCode is an error that the command has already reported.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprint("exit code ", int(c)) }

// usageError is a mistake in the command line.
type usageError struct{ error }

func misuse(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	line, renamed := withTwoDashes(root, args)
	if len(renamed) > 0 {
		fmt.Fprintf(stderr, "warning: write %s; flags with one dash end with the next release\n", strings.Join(renamed, ", "))
	}
	root.SetArgs(line)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	c, err := root.ExecuteC()
	if err == nil {
		return exitDone
	}
	if code, ok := errors.AsType[exitCode](err); ok {
		return int(code)
	}
	reportError(c, err)
	if errors.As(err, new(usageError)) {
		return exitMisuse
	}
	return exitFailed
}

func reportError(c *cobra.Command, err error) {
	fmt.Fprintf(c.ErrOrStderr(), "%s: %v\n", c.CommandPath(), err)
}

// withTwoDashes rewrites long flags with one dash, and returns their new names.
func withTwoDashes(root *cobra.Command, args []string) (line, renamed []string) {
	c, _, err := root.Find(args)
	if err != nil {
		c = root
	}
	line = slices.Clone(args)
	value := false // the word is the value of the flag before it
	for i, word := range line {
		if word == "--" {
			break
		}
		name, _, assigned := strings.Cut(strings.TrimLeft(word, "-"), "=")
		f := c.Flags().Lookup(name)
		isLong := strings.HasPrefix(word, "-") && len(name) > 1 && (f != nil || name == "help")
		if isLong && !value && !strings.HasPrefix(word, "--") {
			line[i] = "-" + word
			renamed = append(renamed, "--"+name)
		}
		if len(name) == 1 && strings.HasPrefix(word, "-") {
			f = c.Flags().ShorthandLookup(name)
		}
		value = !value && strings.HasPrefix(word, "-") && f != nil && f.NoOptDefVal == "" && !assigned
	}
	return line, renamed
}

func newGroup(use, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs}
	group.AddCommand(commands...)
	group.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			c.SetOut(c.ErrOrStderr())
			return errors.Join(c.Help(), exitCode(exitMisuse))
		}
		var names []string
		for _, sub := range c.Commands() {
			names = append(names, sub.Name())
		}
		hint := lang.NearHint(args[0], names)
		return misuse("there is no command %s%s (%s -h lists the commands)", args[0], hint, c.CommandPath())
	}
	return group
}

func flagError(c *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name := "--" + unknown.GetSpecifiedName()
		if group := unknown.GetSpecifiedShortnames(); group != "" {
			name = "-" + group
		}
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
		err = fmt.Errorf("there is no flag %s%s", name, lang.NearHint(name, names))
	}
	return misuse("%w (%s -h lists the flags)", err, c.CommandPath())
}

// wantArgs checks the number of arguments. Its message describes the arguments.
func wantArgs(least, most int, message string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) >= least && len(args) <= most:
			return nil
		case most == 0:
			return misuse("the command has no arguments; got %s", strings.Join(args, " "))
		}
		return misuse("%s; got %d arguments", message, len(args))
	}
}
