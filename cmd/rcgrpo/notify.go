package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"rcgrpo/engine"
)

// runEnd is what the command of the site file's notify block learns of a run: JSON on its standard input, and the same
// in short in its environment.
type runEnd struct {
	Experiment string         `json:"experiment"`
	Run        string         `json:"run"`
	Outcome    string         `json:"outcome"` // done, failed, interrupted
	Folder     string         `json:"folder"`
	Started    time.Time      `json:"started"`
	Seconds    float64        `json:"seconds"`
	Counts     map[string]int `json:"counts"` // stages by how they ended
	Error      string         `json:"error,omitempty"`
	Stage      string         `json:"stage,omitempty"` // that failed first
	Log        string         `json:"log,omitempty"`   // of it
}

// observe takes in an event of the run.
func (r *runEnd) observe(e engine.Event) {
	switch e.Kind {
	case engine.EventPlanned:
		r.Folder, r.Run, r.Started = e.Path, filepath.Base(e.Path), e.Time
	case engine.EventFailed:
		if r.Error == "" {
			r.Error, r.Stage, r.Log = e.Text, e.Address, e.Path
		}
	case engine.EventEnded:
		r.Counts, r.Seconds = e.Counts, e.Time.Sub(r.Started).Seconds()
	}
}

// notifyLimit is how long the command may take.
const notifyLimit = 10 * time.Second

// notify starts the site's command, if there is one, and waits for it. A run that had nothing to do has no folder and
// tells nobody. What the command prints goes to notify.log in the run's folder.
func (r *runEnd) notify(site *engine.Site, runErr error) error {
	if site == nil || site.Notify == nil || r.Folder == "" {
		return nil
	}
	var failed *engine.RunError
	switch r.Outcome = "done"; {
	case errors.Is(runErr, engine.ErrInterrupted):
		r.Outcome = "interrupted"
	case runErr != nil:
		r.Outcome = "failed"
		if !errors.As(runErr, &failed) && r.Error == "" { // of the run itself
			r.Error = runErr.Error()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), notifyLimit)
	defer cancel()
	return r.start(ctx, site)
}

// start starts the command and waits for it, until ctx ends at the latest.
func (r *runEnd) start(ctx context.Context, site *engine.Site) error {
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
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with what it starts; ^C is not for it
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

func (r *runEnd) environment() []string {
	counts := make([]string, 0, len(r.Counts))
	for _, what := range slices.Sorted(maps.Keys(r.Counts)) {
		counts = append(counts, fmt.Sprintf("%d %s", r.Counts[what], what))
	}
	return []string{"RCGRPO_EXPERIMENT=" + r.Experiment, "RCGRPO_RUN=" + r.Run, "RCGRPO_OUTCOME=" + r.Outcome, "RCGRPO_FOLDER=" + r.Folder,
		fmt.Sprintf("RCGRPO_SECONDS=%.1f", r.Seconds), "RCGRPO_COUNTS=" + strings.Join(counts, ", "), "RCGRPO_ERROR=" + r.Error,
		"RCGRPO_STAGE=" + r.Stage}
}
