package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"rcgrpo/engine"
	"rcgrpo/reports"
)

// runCommand runs "rcgrpo run ARGS": it plans the experiment and does what the plan says.
func runCommand(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c := newCall("run", "[EXP]", stdout, stderr)
	var o engine.RunOptions
	var po engine.PlanOptions
	c.BoolVar(&o.KeepGoing, "keep-going", false, "after a failure, go on with everything that does not depend on it")
	live := c.Bool("page", false, "show the run on a page in the browser: progress, curves so far, what the machine does; for you alone, until the run ends")
	c.planFlags(&po)
	if code, done := c.parse(args); done {
		return code
	}
	// A reader that closes the pipe must not end the run. To ignore the signal instead would have the stages ignore it.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if idle := c.unchanged(po); idle != nil {
		display := newDisplay(stdout)
		display.Observe(engine.EndedUnchanged(idle))
		display.Close()
		return exitDone
	}
	plan, code := c.plan(po)
	if plan == nil {
		return code
	}
	if err := unfitMemory(plan); err != nil && !o.KeepGoing { // keep-going: that stage refuses by itself, others run
		return c.fail(err)
	}
	ctx, kill, stop := interruptible(stderr)
	defer stop()
	o.Kill = kill
	watch := func(engine.Event) {}
	if *live {
		page, err := reports.StartLive(plan.Experiment)
		if err != nil {
			return c.fail(err)
		}
		defer page.Close()
		watch = page.Observe
		fmt.Fprintf(stderr, "the run on a page: %s\n", page.URL)
	}
	display := newDisplay(stdout)
	end := runEnd{Experiment: plan.Experiment.Name}
	err := plan.Run(ctx, o, func(e engine.Event) {
		end.observe(e)
		watch(e)
		display.Observe(e)
	})
	display.Close()
	if err := end.notify(plan.Experiment.Site, err); err != nil {
		fmt.Fprintf(stderr, "note: %v; the run is not touched by that\n", err)
	}
	var failed *engine.RunError
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, engine.ErrInterrupted):
		c.tellRest(err)
		return exitInterrupted
	case errors.As(err, &failed): // told already
		c.tellRest(err)
		return exitFailed
	}
	return c.fail(err)
}

// tellRest tells what a run could not do beside its stages, such as a file that it could not publish: the display has told
// only of these.
func (c *call) tellRest(err error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return
	}
	for _, part := range joined.Unwrap() {
		var failed *engine.RunError
		if !errors.Is(part, engine.ErrInterrupted) && !errors.As(part, &failed) {
			c.fail(part)
		}
	}
}

// interruptible gives a context that ends with the first ^C. The second closes kill, the third ends the process.
func interruptible(stderr io.Writer) (ctx context.Context, kill <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	atOnce := make(chan struct{})
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	stopping.Add(1)
	go func() {
		for _, act := range []func(){cancel, func() { close(atOnce) }, func() {
			fmt.Fprintln(stderr, "stopped; the next run goes on from what is committed")
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

// newDisplay shows a run on stdout, in place when that is a terminal.
func newDisplay(stdout io.Writer) *engine.Display {
	o := engine.DisplayOptions{Terminal: isTerminal(stdout) && os.Getenv("TERM") != "dumb"}
	o.Colour = o.Terminal && colored(stdout)
	if f, ok := stdout.(descriptor); ok && o.Terminal {
		o.Size = func() (int, int) {
			width, height, err := term.GetSize(int(f.Fd()))
			if err != nil || width < 20 || height < 5 { // a terminal that does not know its size
				return 80, 24
			}
			return width, height
		}
	}
	display := engine.NewDisplay(stdout, o)
	if o.Terminal {
		continued := make(chan os.Signal, 1)
		signal.Notify(continued, syscall.SIGCONT)
		go func() {
			for range continued {
				display.Continued()
			}
		}()
	}
	return display
}

// nodeCommand runs "rcgrpo node -run DIR -node ADDRESS", the process of one stage.
func nodeCommand(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c := newCall("node", "", stdout, stderr)
	dir := c.String("run", "", "run `FOLDER`")
	address := c.String("node", "", "`ADDRESS` of the stage")
	if code, done := c.parse(args); done {
		return code
	}
	if *dir == "" || *address == "" || len(c.args) > 0 {
		return c.misuse("want -run FOLDER -node ADDRESS")
	}
	return engine.NodeMain(*dir, *address, kinds(), stderr, engine.NewDisplay(stderr, engine.DisplayOptions{}).Observe)
}
