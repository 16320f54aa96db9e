// Command rcgrpo plans, runs and reports experiments written in HCL. README.md is the tour, docs/language.md the
// reference of the language, docs/architecture.md describes the code.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rcgrpo/cmd/rcgrpo/internal/interrupt"
	"rcgrpo/cmd/rcgrpo/internal/output"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/remote"
	"rcgrpo/engine/slurm"
	"rcgrpo/reports"
	"rcgrpo/stages"
)

const (
	exitDone        = 0
	exitFailed      = 1
	exitChanges     = 2 // plan --detailed-exitcode: something would run
	exitMisuse      = 64
	exitInterrupted = interrupt.ExitCode
)

func kinds() lang.Registry {
	return append(lang.Registry(stages.Kinds()), reports.Kind())
}

func main() {
	log.SetOutput(httpLog{os.Stderr})
	if len(os.Args) > 1 && os.Args[1] == "node" { // started by the engine, once per stage
		os.Exit(runNode(os.Args[2:], os.Stderr))
	}
	// Until an experiment is loaded, most of the heap stays.
	collectAt(150)
	if len(os.Args) == 3 && os.Args[1] == "job" { // started by Slurm, once per job
		os.Exit(slurm.Main(os.Args[2], os.Stderr))
	}
	go limitMemory(alone, 0, func(limit uint64) {
		fmt.Fprintf(os.Stderr, "rcgrpo: this command needs more than %d MiB of memory, as files of strangers can be made "+
			"to. If you trust what it reads, set GOMEMLIMIT=8GiB, or as much as this machine has\n", limit>>20)
		syscall.Kill(syscall.Getpid(), syscall.SIGTERM) // which also removes temporary folders
	})
	stdout := output.New(os.Stdout, os.Stderr)
	code := execute(os.Args[1:], os.Stdin, stdout, os.Stderr)
	if code == exitDone && stdout.Lost() {
		code = exitFailed
	}
	os.Exit(code)
}

var alone, endAlone = context.WithCancel(context.Background())

// worksForOthers is called by the commands run and serve: from then on no limit of memory ends them.
func worksForOthers() {
	endAlone()
	collectAt(100) // they are long
}

// collectAt sets how much the heap may grow between collections, unless the user has.
func collectAt(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// limitMemory calls exceeded once this process uses more memory than GOMEMLIMIT, by default 1.75 GiB, and than is
// reserved for it. Memory of libraries in C does not count. It returns then, or when ctx ends. The files of a stranger
// can be made to need any amount, for more reasons than a limit for each of them can meet, and honest ones need far
// less.
func limitMemory(ctx context.Context, reserved int64, exceeded func(limit uint64)) {
	limit := uint64(debug.SetMemoryLimit(-1))
	if limit == math.MaxInt64 {
		limit = 7 << 28
	}
	limit = max(limit, uint64(reserved))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(int64(limit / 8 * 7))) // above it, garbage is collected sooner
	var m runtime.MemStats
	for ctx.Err() == nil { // reading the statistics stops all goroutines for a moment
		if runtime.ReadMemStats(&m); m.Sys-m.HeapReleased > limit {
			exceeded(limit)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
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
			initCommand(), checkCommand(), fmtCommand(), kindsCommand(), graphCommand(), lspCommand(),
		}},
		{"Run experiments:", []*cobra.Command{planCommand(), runCommand(), statusCommand(), logsCommand()}},
		{"Inspect results:", []*cobra.Command{
			showCommand(), whyCommand(), diffCommand(), replayCommand(), serveCommand(),
		}},
		{"Share and check pages:", []*cobra.Command{
			openCommand(), reportCommand(), verifyCommand(), reproduceCommand(),
		}},
		{"Other commands:", []*cobra.Command{storeCommand(), siteCommand(), bfclCommand(),
			completionCommand(), {Use: "version", Short: "Print the version", Args: wantArgs(0, 0, ""),
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

// execute executes a command line and returns its exit code.
func execute(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(output.NewText(stdout))
	root.SetErr(output.NewText(stderr))
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

// command is a command with the source of the experiment or store that it opens.
type command struct {
	*cobra.Command
	source lang.Source
}

func newCommand(use, short string, args cobra.PositionalArgs) *command {
	return &command{Command: &cobra.Command{Use: use, Short: short, Args: args}}
}

// newExperimentCommand returns a command with the flags of all commands that load an experiment or open a store.
func newExperimentCommand(use, short string, args cobra.PositionalArgs) *command {
	c := newCommand(use, short, args)
	c.source = lang.Source{Vars: map[string]string{}, Env: os.Environ()}
	c.Flags().Func("var", "set a variable: `NAME=VALUE`; repeatable", func(s string) error {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return errors.New("want NAME=VALUE")
		}
		c.source.Vars[name] = value
		return nil
	})
	c.Flags().StringArrayVar(&c.source.VarFiles, "var-file", nil, "read variables from `FILE`; later files win")
	c.Flags().StringVar(&c.source.Site, "site", "", "settings of this machine: `FILE` (or $RCGRPO_SITE, ./site.hcl)")
	return c
}

// overrideFlag adds --set to a command whose answer depends on the settings of stages.
func (c *command) overrideFlag() {
	c.Flags().StringArrayVar(&c.source.Sets, "set", nil, "override a setting: `ADDRESS.SETTING=VALUE`; repeatable")
}

// writeOverrides prints the overrides before an answer, which would differ without them.
func (c *command) writeOverrides(sets []string) {
	for _, set := range sets {
		fmt.Fprintln(c.stdout(), "override:", set)
	}
}

// planFlags adds the flags that narrow or force a plan.
func (c *command) planFlags(o *plan.Options) {
	c.overrideFlag()
	c.Flags().StringArrayVar(&o.Targets, "target", nil, "only the stage at `ADDRESS` and its inputs; repeatable")
	c.Flags().StringArrayVar(&o.Replace, "replace", nil, "run the stage at `ADDRESS` even if it is up to date; repeatable")
	c.Flags().BoolVar(&o.Paranoid, "paranoid", false, "hash all files instead of trusting their time stamps")
}

// does sets the function of the command, completes the values of its flags, and returns it. It is called after all
// flags are added.
func (c *command) does(f func(args []string) error) *cobra.Command {
	c.RunE = func(_ *cobra.Command, args []string) error { return f(args) }
	c.Flags().VisitAll(func(flag *pflag.Flag) { c.completeFlag(flag.Name) })
	return c.Command
}

func (c *command) stdout() io.Writer { return c.OutOrStdout() }
func (c *command) stderr() io.Writer { return c.ErrOrStderr() }

var oneExperiment = wantArgs(0, 1, "want one experiment at a time")

// load loads the experiment at path, or the only one of this folder if path is "". It prints all diagnostics; after
// errors it returns an exitCode.
func (c *command) load(path string) (*lang.Experiment, error) {
	path, err := orOnlyExperiment(path)
	if err != nil {
		return nil, err
	}
	c.source.Path = path
	x, diags := lang.Load(c.source, kinds())
	collectAt(100) // the syntax trees; a run is long
	c.printDiagnostics(diags, x.Files)
	if diags.HasErrors() {
		return nil, exitCode(exitFailed)
	}
	return x, nil
}

func (c *command) printDiagnostics(diags hcl.Diagnostics, files map[string]*hcl.File) {
	lang.WriteDiagnostics(c.stderr(), diags, files, output.Colored(c.stderr()))
}

// open loads the experiment at path, or the only one of this folder, and opens its store.
func (c *command) open(path string) (*lang.Experiment, *artifact.Store, error) {
	x, err := c.load(path)
	if err != nil {
		return nil, nil, err
	}
	store, err := openStore(x.Site)
	return x, store, err
}

func openStore(site *lang.Site) (*artifact.Store, error) {
	if site.StorePath == "" {
		return nil, errors.New(`no store: HOME is not set; name a folder in the site file: store { path = "…" }`)
	}
	return artifact.Open(site.StorePath)
}

// siteStore opens the store of the site file without loading an experiment.
func (c *command) siteStore() (*artifact.Store, *lang.Site, error) {
	site, files, diags := lang.LoadSite(c.source)
	c.printDiagnostics(diags, files)
	if diags.HasErrors() {
		return nil, nil, errors.New("the site file has errors")
	}
	store, err := openStore(site)
	return store, site, err
}

func (c *command) newPlan(args []string, o plan.Options) (*plan.Plan, error) {
	c.source.Paranoid, c.source.Targets = o.Paranoid, o.Targets
	x, store, err := c.open(strings.Join(args, ""))
	if err != nil {
		return nil, err
	}
	o.Remote = remote.Open(x.Site, store)
	o.Remote.Report(c.reportRemote)
	return plan.New(x, store, o)
}

// reportRemote prints a problem of the remote store, which never fails a plan or a run.
func (c *command) reportRemote(address, text string) {
	if address != "" {
		text = address + ": " + text
	}
	fmt.Fprintln(c.stderr(), "warning:", text)
}

// experimentName returns the name of the experiment that args name, or of the only one here, without reading it.
func experimentName(args []string) (string, error) {
	path, err := orOnlyExperiment(strings.Join(args, ""))
	if err != nil {
		return "", err
	}
	abs, err := filepath.Abs(path)
	return strings.TrimSuffix(filepath.Base(abs), ".hcl"), err
}

// orOnlyExperiment returns path, or if it is "" the path of the only experiment of this folder.
func orOnlyExperiment(path string) (string, error) {
	if path != "" {
		return path, nil
	}
	path, err := lang.FindExperiment(".", nil)
	if err != nil {
		return "", usageError{err}
	}
	return path, nil
}

// httpLog receives the log of net/http, which quotes bytes of servers and clients, also secrets and control
// characters. It writes only that a handler of ours panicked.
type httpLog struct{ to io.Writer }

func (l httpLog) Write(text []byte) (int, error) {
	if bytes.Contains(text, []byte("http: panic serving ")) {
		fmt.Fprintf(l.to, "%q\n", text)
	}
	return len(text), nil
}
