package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/remote"
)

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

// runs sets the function of the command, completes the values of its flags, and returns it. It is called after all
// flags are added.
func (c *command) runs(f func(args []string) error) *cobra.Command {
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
	c.printDiagnostics(diags, x.Files)
	if diags.HasErrors() {
		return nil, exitCode(exitFailed)
	}
	return x, nil
}

func (c *command) printDiagnostics(diags hcl.Diagnostics, files map[string]*hcl.File) {
	lang.WriteDiagnostics(c.stderr(), diags, files, colored(c.stderr()))
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

func (c *command) plan(args []string, o plan.Options) (*plan.Plan, error) {
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

// unchanged returns the stored answer that an experiment is up to date. It is nil if the experiment must be loaded.
func (c *command) unchanged(args []string, o plan.Options) *plan.Idle {
	if len(o.Targets)+len(o.Replace) > 0 || o.Paranoid {
		return nil
	}
	source := c.source
	source.Path = strings.Join(args, "")
	return plan.Unchanged(source)
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
	path, err := lang.FindExperiment(".")
	if err != nil {
		return "", usageError{err}
	}
	return path, nil
}
