package engine

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/dustin/go-humanize/english"

	"rcgrpo/engine/lang"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
)

// WithCause marks an error of a stage with one of the causes, for the retry rules.
func WithCause(cause string, err error) error { return &causeError{cause, err} }

type causeError struct {
	cause string
	err   error
}

func (e *causeError) Error() string { return e.err.Error() }
func (e *causeError) Unwrap() error { return e.err }

// RunError reports that stages failed. Each failure was an event before.
type RunError struct {
	Failed  []string // addresses
	Skipped []string // because of the failures
}

func (e *RunError) Error() string {
	text := fmt.Sprintf("%s failed", english.Plural(len(e.Failed), "stage", ""))
	if len(e.Failed) == 1 {
		text = e.Failed[0] + " failed"
	}
	if len(e.Skipped) > 0 {
		text += fmt.Sprintf("; %s skipped because of it", english.Plural(len(e.Skipped), "stage", ""))
	}
	return text
}

// ErrInterrupted reports that a run stopped because its context ended. Committed results stay.
var ErrInterrupted = errors.New("interrupted")

var errTimeout = errors.New("ran longer than its timeout")

// TimeoutError is the error of a stage that ran longer than its timeout, and the cause of its context.
func TimeoutError(limit time.Duration) error { return fmt.Errorf("%w of %v", errTimeout, limit) }

// codeError explains an exit code of a program; nil for 0. A shell reports a signal as a code above 128.
func codeError(name string, code int, kills int64) error {
	switch signal := syscall.Signal(code - 128); {
	case code == 0:
		return nil
	case code == 127:
		return fmt.Errorf("%s ended with exit code 127, as when a program is not found", name)
	case slices.Contains(stopSignals, signal):
		return ExitError(proc.Exit{Signal: signal}, kills)
	}
	return fmt.Errorf("%s ended with exit code %d", name, code)
}

// stopSignals end a process from outside.
var stopSignals = []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT}

// ExitError explains the end of a process that reported no error. kills is proc.OOMKills before its start.
func ExitError(exit proc.Exit, kills int64) error {
	switch {
	case exit.Signal == 0:
		return fmt.Errorf("its process ended with exit code %d", exit.Code)
	case exit.Signal == syscall.SIGKILL:
		return killedError(kills, proc.OOMKills())
	case slices.Contains(stopSignals, exit.Signal):
		return WithCause(lang.CausePreempted, fmt.Errorf("its process got a request to stop (%v)", exit.Signal))
	}
	return fmt.Errorf("its process died: %v", exit.Signal)
}

// killedError distinguishes a kill because memory ran out from others, by proc.OOMKills before and after.
func killedError(before, after int64) error {
	if before >= 0 && after > before {
		return WithCause(lang.CauseOOM, errors.New("the kernel killed its process because memory ran out (SIGKILL)"))
	}
	return WithCause(lang.CauseKilled, errors.New("its process was killed (SIGKILL)"))
}

// oomText matches the messages of allocators and of the kernel when memory runs out.
var oomText = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(
		`(?i)out of memory|can(no|')t allocate memory|not enough memory|bad_alloc|CUDA_ERROR_OUT_OF_MEMORY`)
})

// CauseOf returns the cause of a stage's error, or "".
func CauseOf(err error) string {
	var marked *causeError
	var failure *runs.Failure
	switch {
	case errors.As(err, &marked):
		return marked.cause
	case errors.As(err, &failure) && failure.Cause != "":
		return failure.Cause
	case errors.Is(err, errTimeout) || errors.Is(err, context.DeadlineExceeded):
		return lang.CauseTimeout
	case oomText().MatchString(err.Error()):
		return lang.CauseOOM
	}
	return ""
}

// failureCause is CauseOf, or the cause in the last lines of the log, because the error of a program has only an
// exit code.
func failureCause(err error, lines []string) string {
	cause := CauseOf(err)
	if cause == "" && slices.ContainsFunc(lines, oomText().MatchString) {
		return lang.CauseOOM
	}
	return cause
}

// retries reports whether the retry block names a failure.
func retries(r lang.Retry, cause, text string) bool {
	return slices.ContainsFunc(r.On, func(on string) bool {
		if slices.Contains(lang.FailureCauses, on) {
			return on == cause
		}
		pattern, err := regexp.Compile(on)
		return err == nil && pattern.MatchString(text)
	})
}
