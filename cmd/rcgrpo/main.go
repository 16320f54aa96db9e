// Command rcgrpo plans, runs and reports experiments written in HCL. README.md has the tour, docs/language.md the
// language, docs/architecture.md the house.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"golang.org/x/term"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/reports"
	"rcgrpo/stages"
)

// Exit codes of every command.
const (
	exitDone        = 0
	exitFailed      = 1
	exitChanges     = 2 // plan -detailed-exitcode, when something would run
	exitMisuse      = 64
	exitInterrupted = 130
)

// kinds is the list of stage kinds this binary knows.
func kinds() engine.Registry {
	return append(engine.Registry(stages.Kinds()), reports.Kind())
}

// command is one word after `rcgrpo`.
type command struct {
	name, args, summary string
	run                 func(args []string, stdin io.Reader, stdout, stderr io.Writer) int
}

func commands() []command {
	return []command{
		{"plan", "[EXP]", "what would run, why, and how long it takes", planCommand},
		{"run", "[EXP]", "do what the plan says", runCommand},
		{"status", "[EXP]", "how the newest run stands", statusCommand},
		{"logs", "ADDRESS [EXP]", "what a stage wrote (-f, -n N, -run RUN)", logsCommand},
		{"why", "ADDRESS [EXP]", "what a run would do with a stage, and all the causes", whyCommand},
		{"diff", "RUN RUN", "what differs between two runs", diffCommand},
		{"show", "ADDRESS.PORT [EXP]", "an artifact as text, or its rows as -csv or -json", showCommand},
		{"replay", "TRAJECTORIES [EXP]", "stored rollouts under other settings (-profile, -group, -set)", replayCommand},
		{"check", "[EXP...]", "find mistakes without running anything", checkCommand},
		{"fmt", "[PATH...]", "format files (-check, -diff; - is standard input)", fmtCommand},
		{"graph", "[EXP]", "draw the stages as dot or mermaid", graphCommand},
		{"console", "[EXP]", "evaluate expressions with the values of an experiment", consoleCommand},
		{"kinds", "[KIND]", "the kinds of stages and their settings", kindsCommand},
		{"report", "[EXP]", "its pages again; -bundle packs one with its evidence", reportCommand},
		{"verify", "PAGE", "compute every number of a page again from the artifacts", verifyCommand},
		{"reproduce", "PAGE#CELL [EXP]", "the smallest run behind one number of a page; -run does it and compares", reproduceCommand},
		{"lint", "TABLE.csv -n N,N,...", "find what cannot be in a table of percentages", lintCommand},
		{"store", "ls|check|gc", "the results that are kept", storeCommand},
		{"bfcl", "check|replay|show|chat", "the benchmark by itself", bfclCommand},
		{"completion", "bash|zsh|fish", "what makes the shell complete commands, flags and addresses", completionCommand},
		{"complete", "", "", completeCommand}, // asked by the shell
		{"node", "", "", nodeCommand},         // started by the engine
	}
}

func main() {
	if os.Getenv("GOGC") == "" { // most commands are over before the heap has 16 MiB: a collection would cost more than it frees
		debug.SetGCPercent(400)
	}
	stdout := &output{file: os.Stdout, stderr: os.Stderr}
	os.Exit(stdout.code(run(os.Args[1:], os.Stdin, stdout, os.Stderr)))
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return exitMisuse
	}
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	name, rest := cutCommand(args, names)
	for _, c := range commands() {
		if c.name == name {
			return c.run(rest, stdin, stdout, stderr)
		}
	}
	switch {
	case asksForHelp(args[0]):
		usage(stdout)
		return exitDone
	case strings.TrimLeft(args[0], "-") == "version":
		fmt.Fprintf(stdout, "rcgrpo, built by %s from sources %s\n", runtime.Version(), engine.Revision())
		return exitDone
	}
	fmt.Fprintf(stderr, "rcgrpo: there is no command %s%s\n", args[0], engine.NearHint(args[0], names))
	return exitMisuse
}

// cutCommand takes the name of a command off its line. Flags may stand before it; name is "" where the first word that is no
// flag's is no command either.
func cutCommand(args, names []string) (name string, rest []string) {
	for i, arg := range args {
		if slices.Contains(names, arg) {
			return arg, slices.Concat(args[:i], args[i+1:])
		}
		if arg == "--" || !strings.HasPrefix(args[0], "-") || asksForHelp(arg) {
			break
		}
	}
	return "", args
}

// asksForHelp says whether a word is help, or a flag that asks for it.
func asksForHelp(arg string) bool {
	return slices.Contains([]string{"help", "-h", "--h", "-help", "--help"}, arg)
}

func usage(w io.Writer) {
	fmt.Fprint(w, "rcgrpo plans, runs and reports experiments.\n\n")
	for _, c := range commands() {
		if c.summary == "" {
			continue
		}
		fmt.Fprintf(w, "  rcgrpo %-30s %s\n", c.name+" "+c.args, c.summary)
	}
	fmt.Fprint(w, "\nEXP is a file or folder; without it the only experiment of this folder. rcgrpo COMMAND -h lists the flags,\nrcgrpo version names the sources that this is built from.\n")
}

// call is one call of a command that works on an experiment: its flags and what the command line said.
type call struct {
	*flag.FlagSet
	takes          string // arguments that are no flags, as its help names them
	stdout, stderr io.Writer
	source         engine.Source
	args           []string // what is no flag
}

// newCall prepares the flags that every command on an experiment has.
func newCall(name, takes string, stdout, stderr io.Writer) *call {
	c := &call{FlagSet: flag.NewFlagSet("rcgrpo "+name, flag.ContinueOnError), takes: takes, stdout: stdout, stderr: stderr}
	c.SetOutput(io.Discard)
	c.Usage = func() {}
	c.source = engine.Source{Vars: map[string]string{}, Env: os.Environ()}
	c.Func("var", "`NAME=VALUE` of a variable", func(s string) error {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return fmt.Errorf("want NAME=VALUE")
		}
		c.source.Vars[name] = value
		return nil
	})
	c.Func("var-file", "`FILE` with values of variables; later ones win", func(s string) error {
		c.source.VarFiles = append(c.source.VarFiles, s)
		return nil
	})
	c.StringVar(&c.source.Site, "site", "", "site `FILE` (default $RCGRPO_SITE, ./site.hcl)")
	return c
}

// parse reads flags anywhere on the line; what is left goes to args. When done is true the command ends with code:
// help was asked for, or the line is wrong.
func (c *call) parse(args []string) (code int, done bool) {
	var err error
	c.args, err = parseFlags(c.FlagSet, args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(c.stdout, "usage: %s\n\n", strings.TrimSpace(c.Name()+" [flags] "+c.takes))
		c.SetOutput(c.stdout)
		c.PrintDefaults()
		return exitDone, true
	}
	if err != nil {
		return c.misuse("%s; %s -h lists the flags", flagError(c.FlagSet, err), c.Name()), true
	}
	return 0, false
}

// parseFlags reads the flags of a line, wherever they stand before a --, and returns the other words.
func parseFlags(flags *flag.FlagSet, args []string) (words []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		rest := flags.Args()
		if len(rest) == 0 {
			return words, nil
		}
		if read := len(args) - len(rest); read > 0 && args[read-1] == "--" { // only arguments from here on
			return append(words, rest...), nil
		}
		words = append(words, rest[0])
		args = rest[1:]
	}
}

// flagError says what is wrong with a flag; of one that does not exist, which was meant.
func flagError(flags *flag.FlagSet, err error) string {
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return err.Error()
	}
	var names []string
	flags.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	hint := engine.NearHint(name, names)
	if hint != "" {
		hint = strings.Replace(hint, "did you mean ", "did you mean -", 1)
	}
	return fmt.Sprintf("there is no flag -%s%s", name, strings.TrimSuffix(hint, "?")) + map[bool]string{true: "?"}[hint != ""]
}

// misuse complains about the command line.
func (c *call) misuse(format string, args ...any) int {
	fmt.Fprintf(c.stderr, "%s: %s\n", c.Name(), fmt.Sprintf(format, args...))
	return exitMisuse
}

// fail tells of an error.
func (c *call) fail(err error) int {
	fmt.Fprintf(c.stderr, "%s: %v\n", c.Name(), err)
	return exitFailed
}

// load reads the experiment at path, or the only one here when path is "". With mistakes, which it prints, x is nil
// and code says how to end.
func (c *call) load(path string) (x *engine.Experiment, code int) {
	if path == "" {
		found, err := engine.FindExperiment(".")
		if err != nil {
			return nil, c.misuse("%v", err)
		}
		path = found
	}
	c.source.Path = path
	x, diags := engine.Load(c.source, kinds())
	c.tell(diags, x.Files)
	if diags.HasErrors() {
		return nil, exitFailed
	}
	return x, exitDone
}

// experiment loads the experiment that the only argument names, if any.
func (c *call) experiment() (x *engine.Experiment, code int) {
	if len(c.args) > 1 {
		return nil, c.misuse("one experiment at a time; got %s", strings.Join(c.args, " "))
	}
	return c.load(strings.Join(c.args, ""))
}

// tell prints diagnostics.
func (c *call) tell(diags hcl.Diagnostics, files map[string]*hcl.File) {
	engine.WriteDiagnostics(c.stderr, diags, files, colored(c.stderr))
}

// store opens the store of the experiment's site.
func (c *call) store(x *engine.Experiment) (*artifact.Store, error) {
	if x.Site.StorePath == "" {
		return nil, errors.New(`no store: HOME is not set, so name a folder in the site file: store { path = "…" }`)
	}
	return artifact.Open(x.Site.StorePath)
}

// plan loads the experiment that the only argument names and plans it. Without a plan, of which it has told why, code says
// how to end.
func (c *call) plan(o engine.PlanOptions) (p *engine.Plan, code int) {
	x, code := c.experiment()
	if x == nil {
		return nil, code
	}
	store, err := c.store(x)
	if err != nil {
		return nil, c.fail(err)
	}
	p, err = engine.NewPlan(x, store, o)
	if err != nil {
		return nil, c.fail(err)
	}
	return p, exitDone
}

// unchanged answers for the experiment that the only argument names, if any, without loading it: nil when it must be loaded
// to know what a run would do.
func (c *call) unchanged(o engine.PlanOptions) *engine.Verdict {
	if len(c.args) > 1 || len(o.Targets)+len(o.Replace) > 0 || o.Paranoid {
		return nil
	}
	source := c.source
	source.Path = strings.Join(c.args, "")
	return engine.Unchanged(source)
}

// printJSON prints a value for programs.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// descriptor is a writer that may be a terminal.
type descriptor interface{ Fd() uintptr }

// colored says whether a writer is a terminal that wants colours.
func colored(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && isTerminal(w)
}

// isTerminal reports whether a reader or writer is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(descriptor)
	return ok && term.IsTerminal(int(f.Fd()))
}
