package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
)

// attempts starts a node until it succeeds or its retry block allows no further attempt. It runs in a goroutine
// of its own.
func (r *run) attempts(ctx context.Context, s *start) error {
	for ; ; s.Attempt++ {
		if s.Attempt > 1 {
			select {
			case <-time.After(s.Node.Retry.Backoff << (s.Attempt - 2)):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		err := r.attempt(ctx, s)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if !r.shouldRetry(s.Node, s.Attempt, err) {
			return finalError(s.Attempt, err)
		}
	}
}

// shouldRetry reports whether a node is started again after a failure, and emits a note if it is. A program
// explains its failure in its log, so the last lines of this attempt's log count as part of the error.
func (r *run) shouldRetry(n *lang.Node, attempt int, err error) bool {
	if attempt >= n.Retry.Attempts {
		return false
	}
	lines := ofLastAttempt(lastLines(r.folder.Log(n.Address), failureLines))
	cause := failureCause(err, lines)
	if !retries(n.Retry, cause, strings.Join(append([]string{err.Error()}, lines...), "\n")) {
		return false
	}
	if cause != "" {
		cause = " (" + cause + ")"
	}
	r.emit(runs.Event{Address: n.Address, Kind: runs.EventNote, Attempt: attempt,
		Text: fmt.Sprintf("attempt %d of %d failed%s; it starts again: %v", attempt, n.Retry.Attempts, cause, err)})
	return true
}

// finalError is the error of the last attempt.
func finalError(attempt int, err error) error {
	if attempt > 1 {
		return fmt.Errorf("%w (after %d attempts)", err, attempt)
	}
	return err
}

// attemptMark is the prefix of the log line that starts an attempt after the first.
const attemptMark = "--- attempt "

// ofLastAttempt returns the lines of the last attempt.
func ofLastAttempt(lines []string) []string {
	for i, line := range slices.Backward(lines) {
		if strings.HasPrefix(line, attemptMark) {
			return lines[i+1:]
		}
	}
	return lines
}
