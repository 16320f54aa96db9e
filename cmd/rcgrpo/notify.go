package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
)

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

// observe records an event of the run.
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

// notifyLimit is the timeout of the command.
const notifyLimit = 10 * time.Second

// send runs the site's command, if there is one. Its output goes to notify.log in the folder of the run. A run with
// nothing to do has no folder and sends nothing.
func (r *notification) send(site *lang.Site, runErr error) error {
	if site == nil || site.Notify == nil || r.Folder == "" {
		return nil
	}
	var failed *engine.RunError
	switch r.Outcome = "done"; {
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

// start runs the command until ctx ends.
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
	program := site.Notify[0]
	if strings.ContainsRune(program, filepath.Separator) && !filepath.IsAbs(program) {
		program = "." + string(filepath.Separator) + program
	}
	cmd := exec.CommandContext(ctx, program, site.Notify[1:]...)
	cmd.Dir = filepath.Dir(site.Path)
	cmd.Env = append(os.Environ(), r.environment()...)
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

func (r *notification) environment() []string {
	return []string{
		"RCGRPO_EXPERIMENT=" + r.Experiment, "RCGRPO_RUN=" + r.Run, "RCGRPO_OUTCOME=" + r.Outcome,
		"RCGRPO_FOLDER=" + r.Folder, fmt.Sprintf("RCGRPO_SECONDS=%.1f", r.Seconds),
		"RCGRPO_COUNTS=" + countsText(r.Counts), "RCGRPO_ERROR=" + r.Error, "RCGRPO_STAGE=" + r.Stage,
	}
}
