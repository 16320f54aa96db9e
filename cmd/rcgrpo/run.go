package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"rcgrpo/cmd/rcgrpo/internal/display"
	"rcgrpo/engine"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/reports"
)

func runCommand() *cobra.Command {
	c := newExperimentCommand("run [EXP]", "Run the stages that are not up to date", oneExperiment)
	var o engine.Options
	var po plan.Options
	c.Flags().BoolVar(&o.KeepGoing, "keep-going", false, "after a failure, run all stages that do not depend on it")
	page := c.Flags().Bool("page", false, "serve a page that follows the run: progress, curves, load of the machine")
	c.planFlags(&po)
	c.RunE = func(_ *cobra.Command, args []string) error { return c.run(args, o, po, *page) }
	return c.Command
}

func (c *experimentFlags) run(args []string, o engine.Options, po plan.Options, page bool) error {
	// A reader that closes the pipe must not end the run. If the signal were ignored, the stages would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if idle := c.unchanged(args, po); idle != nil {
		view := newDisplay(c.stdout())
		view.Observe(engine.EndedUnchanged(idle))
		view.Close()
		return nil
	}
	plan, err := c.plan(args, po)
	if err != nil {
		return err
	}
	if err := unfitMemory(plan); err != nil && !o.KeepGoing { // with --keep-going only that stage fails
		return err
	}
	ctx, kill, stop := interruptible(c.stderr())
	defer stop()
	o.Kill = kill
	observePage := func(runs.Event) {}
	if page {
		live, err := reports.StartLive(plan.Experiment)
		if err != nil {
			return err
		}
		defer live.Close()
		observePage = live.Observe
		fmt.Fprintf(c.stderr(), "page of the run: %s\n", live.URL)
	}
	view := newDisplay(c.stdout())
	end := notification{Experiment: plan.Experiment.Name}
	runErr := engine.Run(ctx, plan, o, func(e runs.Event) {
		end.observe(e)
		observePage(e)
		view.Observe(e)
	})
	view.Close()
	if err := end.send(plan.Experiment.Site, runErr); err != nil {
		fmt.Fprintf(c.stderr(), "warning: %v (the run is not affected)\n", err)
	}
	return c.ranWith(runErr)
}

// ranWith returns the error of a command after a run. The display has already printed the failures of stages, so other
// errors, such as a file that could not be published, are printed here.
func (c *experimentFlags) ranWith(err error) error {
	interrupted := errors.Is(err, engine.ErrInterrupted)
	if !interrupted && !errors.As(err, new(*engine.RunError)) {
		return err
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, part := range joined.Unwrap() {
			if !errors.Is(part, engine.ErrInterrupted) && !errors.As(part, new(*engine.RunError)) {
				reportError(c.Command, part)
			}
		}
	}
	if interrupted {
		return exitCode(exitInterrupted)
	}
	return exitCode(exitFailed)
}

// interruptible returns a context that the first ^C cancels. The second ^C closes kill, the third ends the process.
func interruptible(stderr io.Writer) (ctx context.Context, kill <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	atOnce := make(chan struct{})
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	stopping.Add(1)
	go func() {
		for _, act := range []func(){cancel, func() { close(atOnce) }, func() {
			fmt.Fprintln(stderr, "stopped; the next run resumes from the committed results")
			os.Exit(exitInterrupted)
		}} {
			if _, ok := <-signals; !ok {
				return
			}
			act()
		}
	}()
	return ctx, atOnce, func() {
		signal.Stop(signals)
		stopping.Add(-1)
		close(signals)
		cancel()
	}
}

// newDisplay returns a display of a run on stdout.
func newDisplay(stdout io.Writer) *display.Display {
	o := display.Options{Terminal: isTerminal(stdout) && os.Getenv("TERM") != "dumb"}
	o.Colour = o.Terminal && colored(stdout)
	o.Size = func() (width, height int) {
		width, height, _ = terminalSize(stdout)
		return width, height
	}
	view := display.New(stdout, o)
	if o.Terminal {
		continued := make(chan os.Signal, 1)
		signal.Notify(continued, syscall.SIGCONT)
		go func() {
			for range continued {
				view.Continued()
			}
		}()
	}
	return view
}

// runNode runs "rcgrpo node -run FOLDER -node ADDRESS", the process of one stage. The engine starts it, so it has no
// help and builds no tree of commands.
func runNode(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("rcgrpo node", flag.ContinueOnError)
	dir := flags.String("run", "", "run `FOLDER`")
	address := flags.String("node", "", "`ADDRESS` of the stage")
	if flags.Parse(args) != nil || *dir == "" || *address == "" || flags.NArg() > 0 {
		fmt.Fprintln(stderr, "rcgrpo node: want -run FOLDER -node ADDRESS")
		return exitMisuse
	}
	view := display.New(stderr, display.Options{})
	defer view.Close()
	return engine.NodeMain(*dir, *address, kinds(), stderr, view.Observe)
}
