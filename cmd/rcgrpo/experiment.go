package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
)

// experimentFlags is a command that loads an experiment or opens a store, with the flags of all such commands.
type experimentFlags struct {
	*cobra.Command
	source lang.Source
}

func newExperimentCommand(use, short string, args cobra.PositionalArgs) *experimentFlags {
	c := &experimentFlags{Command: &cobra.Command{Use: use, Short: short, Args: args}}
	c.source = lang.Source{Vars: map[string]string{}, Env: os.Environ()}
	c.Flags().Func("var", "set a variable: `NAME=VALUE`", func(s string) error {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return errors.New("want NAME=VALUE")
		}
		c.source.Vars[name] = value
		return nil
	})
	c.Flags().StringArrayVar(&c.source.VarFiles, "var-file", nil, "read variables from `FILE`; later files win")
	c.Flags().StringVar(&c.source.Site, "site", "", "site `FILE` (default $RCGRPO_SITE, then ./site.hcl)")
	c.completeFlag("var", c.variables)
	return c
}

// planFlags adds the flags that narrow or force a plan.
func (c *experimentFlags) planFlags(o *plan.Options) {
	c.Flags().StringArrayVar(&o.Targets, "target", nil, "only `ADDRESS` and its inputs; repeatable")
	c.Flags().StringArrayVar(&o.Replace, "replace", nil, "run `ADDRESS` although it is up to date; repeatable")
	c.Flags().BoolVar(&o.Paranoid, "paranoid", false, "read all files instead of trusting time stamps")
	c.completeFlag("target", c.addresses)
	c.completeFlag("replace", c.addresses)
}

func (c *experimentFlags) stdout() io.Writer { return c.OutOrStdout() }
func (c *experimentFlags) stderr() io.Writer { return c.ErrOrStderr() }

var oneExperiment = wantArgs(0, 1, "want one experiment at a time")

// load loads the experiment at path, or the only one of this folder if path is "". It prints all diagnostics; after
// errors it returns an exitCode.
func (c *experimentFlags) load(path string) (*lang.Experiment, error) {
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

func (c *experimentFlags) printDiagnostics(diags hcl.Diagnostics, files map[string]*hcl.File) {
	lang.WriteDiagnostics(c.stderr(), diags, files, colored(c.stderr()))
}

// open loads the experiment at path, or the only one of this folder, and opens its store.
func (c *experimentFlags) open(path string) (*lang.Experiment, *artifact.Store, error) {
	x, err := c.load(path)
	if err != nil {
		return nil, nil, err
	}
	store, err := c.store(x)
	return x, store, err
}

func (c *experimentFlags) store(x *lang.Experiment) (*artifact.Store, error) {
	if x.Site.StorePath == "" {
		return nil, errors.New(`no store: HOME is not set; name a folder in the site file: store { path = "…" }`)
	}
	return artifact.Open(x.Site.StorePath)
}

// siteStore opens the store of the site file without loading an experiment.
func (c *experimentFlags) siteStore() (*artifact.Store, *lang.Site, error) {
	site, files, diags := lang.LoadSite(c.source)
	c.printDiagnostics(diags, files)
	if diags.HasErrors() {
		return nil, nil, errors.New("the site file has errors")
	}
	store, err := c.store(&lang.Experiment{Site: site})
	return store, site, err
}

func (c *experimentFlags) plan(args []string, o plan.Options) (*plan.Plan, error) {
	c.source.Paranoid = o.Paranoid
	x, store, err := c.open(strings.Join(args, ""))
	if err != nil {
		return nil, err
	}
	return plan.New(x, store, o)
}

// unchanged returns the stored answer that an experiment is up to date. It is nil if the experiment must be loaded.
func (c *experimentFlags) unchanged(args []string, o plan.Options) *plan.Idle {
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
