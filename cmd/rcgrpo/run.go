package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"rcgrpo/cmd/rcgrpo/internal/display"
	"rcgrpo/cmd/rcgrpo/internal/interrupt"
	"rcgrpo/cmd/rcgrpo/internal/output"
	"rcgrpo/engine"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/engine/slurm"
	"rcgrpo/reports/live"
)

func runCommand() *cobra.Command {
	c := newExperimentCommand("run [EXP]", "Run the stages that are not up to date", oneExperiment)
	var o engine.Options
	var po plan.Options
	c.Flags().BoolVar(&o.KeepGoing, "keep-going", false, "after a failure, run all stages that do not depend on it")
	servePage := c.Flags().Bool("page", false, "serve a page that follows the run: progress and curves")
	c.planFlags(&po)
	return c.does(func(args []string) error { return c.runExperiment(args, o, po, *servePage) })
}

func (c *command) runExperiment(args []string, o engine.Options, po plan.Options, servePage bool) error {
	// A reader that closes the pipe must not end the run. If the signal were ignored, the stages would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	c.writeOverrides(c.source.Sets)
	p, err := c.newPlan(args, po)
	if err != nil {
		return err
	}
	if err := unfitMemory(p); err != nil && !o.KeepGoing { // with --keep-going only that stage fails
		return err
	}
	worksForOthers()
	ctx, kill, stop := interrupt.Context(c.stderr())
	defer stop()
	o.Kill, o.Executors = kill, slurm.New(p.Experiment.Site)
	observePage := func(runs.Event) {}
	if servePage {
		server, err := live.Start(p.Experiment)
		if err != nil {
			return err
		}
		defer server.Close()
		observePage = server.Observe
		fmt.Fprintf(c.stderr(), "page of the run: %s\n", server.URL)
	}
	view := newDisplay(c.stdout(), plan.NewRest(ctx, p).Left)
	end := notification{Experiment: p.Experiment.Name}
	runErr := engine.Run(ctx, p, o, func(e runs.Event) {
		end.observe(e)
		observePage(e)
		view.Observe(e)
	})
	view.Close()
	if err := end.send(p.Experiment.Site, runErr); err != nil {
		fmt.Fprintf(c.stderr(), "warning: %v (the run is not affected)\n", err)
	}
	return c.ranWith(runErr)
}

// joined is an error that errors.Join returns, such as that of engine.Run.
type joined interface{ Unwrap() []error }

// ranWith returns the error of a command after a run. The display has already printed the failures of stages, so other
// errors, such as a file that could not be published, are printed here.
func (c *command) ranWith(err error) error {
	displayed := func(err error) bool {
		return errors.Is(err, engine.ErrInterrupted) || errors.As(err, new(*engine.RunError))
	}
	if !displayed(err) {
		return err
	}
	if all, ok := err.(joined); ok {
		for _, part := range all.Unwrap() {
			if !displayed(part) {
				reportError(c.Command, part)
			}
		}
	}
	if errors.Is(err, engine.ErrInterrupted) {
		return exitCode(exitInterrupted)
	}
	return exitCode(exitFailed)
}

func newDisplay(stdout io.Writer, left func(map[string]plan.Spent) time.Duration) *display.Display {
	o := display.Options{Left: left, Terminal: output.IsTerminal(stdout) && os.Getenv("TERM") != "dumb"}
	o.Colour = o.Terminal && output.Colored(stdout)
	o.Size = func() (width, height int) { return output.TerminalSize(stdout) }
	view := display.New(output.Raw(stdout), o) // it escapes foreign text itself
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

// runNode runs "rcgrpo node --run FOLDER --node ADDRESS", the process of one stage. The engine starts it, so it has no
// help and builds no tree of commands.
func runNode(args []string, stderr io.Writer) int {
	if len(args) != 4 || args[0] != "--run" || args[2] != "--node" {
		fmt.Fprintln(stderr, "rcgrpo node: want --run FOLDER --node ADDRESS")
		return exitMisuse
	}
	limit := func(reserved int64, exceeded func(uint64)) { limitMemory(context.Background(), reserved, exceeded) }
	return engine.NodeMain(args[1], args[3], kinds(), stderr, limit)
}

// notification describes a run to the command of the site file's notify block: as JSON on standard input, and in the
// environment.
type notification struct {
	Experiment string         `json:"experiment"`
	Run        string         `json:"run"`
	Outcome    string         `json:"outcome"` // done, failed, interrupted
	Folder     string         `json:"folder"`
	Started    time.Time      `json:"started"`
	Seconds    float64        `json:"seconds"`
	Counts     map[string]int `json:"counts"` // stages by state
	Error      string         `json:"error,omitempty"`
	Stage      string         `json:"stage,omitempty"` // the first that failed
	Log        string         `json:"log,omitempty"`   // of that stage
}

func (r *notification) observe(e runs.Event) {
	switch e.Kind {
	case runs.EventPlanned:
		r.Folder, r.Run, r.Started = e.Path, filepath.Base(e.Path), e.Time
	case runs.EventFailed:
		if r.Error == "" {
			r.Error, r.Stage, r.Log = e.Text, e.Address, e.Path
		}
	case runs.EventEnded:
		r.Counts, r.Seconds = e.Counts, e.Time.Sub(r.Started).Seconds()
	}
}

const notifyLimit = 10 * time.Second

// send runs the site's command, if there is one. Its output goes to notify.log in the folder of the run. A run with
// nothing to do has no folder and sends nothing.
func (r *notification) send(site *lang.Site, runErr error) error {
	if site == nil || site.Notify == nil || r.Folder == "" {
		return nil
	}
	var failed *engine.RunError
	r.Outcome = "done"
	switch {
	case errors.Is(runErr, engine.ErrInterrupted):
		r.Outcome = "interrupted"
	case runErr != nil:
		r.Outcome = "failed"
		if !errors.As(runErr, &failed) && r.Error == "" { // an error of the run, not of a stage
			r.Error = runErr.Error()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), notifyLimit)
	defer cancel()
	return r.start(ctx, site)
}

func (r *notification) start(ctx context.Context, site *lang.Site) error {
	input, err := json.Marshal(r)
	if err != nil {
		return err
	}
	output, err := os.OpenFile(filepath.Join(r.Folder, "notify.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	defer output.Close()
	cmd := exec.CommandContext(ctx, site.Notify[0], site.Notify[1:]...) // a relative path is relative to cmd.Dir
	cmd.Dir = filepath.Dir(site.Path)
	cmd.Env = append(os.Environ(), "RCGRPO_EXPERIMENT="+r.Experiment, "RCGRPO_RUN="+r.Run,
		"RCGRPO_OUTCOME="+r.Outcome, "RCGRPO_FOLDER="+r.Folder, fmt.Sprintf("RCGRPO_SECONDS=%.1f", r.Seconds),
		"RCGRPO_COUNTS="+countsText(r.Counts), "RCGRPO_ERROR="+r.Error, "RCGRPO_STAGE="+r.Stage)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // to kill its children too; ^C does not reach it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("notify: %s took more than %v and was killed", site.Notify[0], notifyLimit)
	case err != nil:
		return fmt.Errorf("notify: %s: %w (its output: %s)", site.Notify[0], err, output.Name())
	}
	return nil
}
