package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"rcgrpo/engine/internal/disk"
)

// attempts starts a node until it succeeds or its retry block says no more. It runs beside loop.
func (r *run) attempts(ctx context.Context, w Work) error {
	for ; ; w.Attempt++ {
		if w.Attempt > 1 {
			select {
			case <-time.After(w.Node.Retry.Backoff << (w.Attempt - 2)):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		err := r.attempt(ctx, w)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if !r.again(w.Node, w.Attempt, err, w.Log) {
			return lastWord(w.Attempt, err)
		}
	}
}

// again says whether a node is to be started again after a failure, and tells of it. A program says in its log why it
// failed, so the last lines that this attempt left there count as the error's.
func (r *run) again(n *Node, attempt int, err error, log string) bool {
	if attempt >= n.Retry.Attempts {
		return false
	}
	lines := ofLastAttempt(lastLines(log, failureLines))
	cause := failureCause(err, lines)
	if !n.Retry.retries(cause, strings.Join(append([]string{err.Error()}, lines...), "\n")) {
		return false
	}
	if cause != "" {
		cause = " (" + cause + ")"
	}
	r.emit(Event{Address: n.Address, Kind: EventNote, Attempt: attempt,
		Text: fmt.Sprintf("attempt %d of %d failed%s; it starts again: %v", attempt, n.Retry.Attempts, cause, err)})
	return true
}

// lastWord is the error of the last attempt.
func lastWord(attempt int, err error) error {
	if attempt > 1 {
		return keepCause(causeOf(err), fmt.Errorf("%w (after %d attempts)", err, attempt))
	}
	return err
}

func keepCause(cause string, err error) error {
	if cause == "" {
		return err
	}
	return WithCause(cause, err)
}

// attempt is one start, under the node's timeout.
func (r *run) attempt(ctx context.Context, w Work) error {
	w.assignment.Attempt, w.assignment.Since, w.assignment.Kills = w.Attempt, time.Now(), recentOOMKills()
	if !r.inPlace(w.Node) {
		if err := r.folder.assign(w.assignment); err != nil {
			return err
		}
	}
	if w.lock.TakeOrphan() {
		r.takeUp(&w)
	}
	if w.lock != nil {
		if err := w.assignment.holder(r.folder).write(w.lock.File()); err != nil {
			return err
		}
	}
	if err := w.beginLog(); err != nil {
		return err
	}
	r.emit(Event{Address: w.Node.Address, Kind: EventStarted, Attempt: w.Attempt, Key: w.assignment.Key,
		Expect: r.byAddress[w.Node.Address].Estimate.Seconds(), Path: w.Log})
	if !r.inPlace(w.Node) {
		r.events.flush() // that process may outlive this one
	}
	if w.Node.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.Node.Timeout, errTimeout)
		defer cancel()
	}
	log := logLimit{path: w.Log, most: r.Experiment.Site.LogLimit, report: func(text string) {
		r.emit(Event{Address: w.Node.Address, Kind: EventNote, Text: text})
	}}
	end := log.keep()
	err := r.Executor.Execute(ctx, w, r.emit)
	r.recordError(end())
	if err != nil && errors.Is(context.Cause(ctx), errTimeout) {
		return timeoutError(w.Node.Timeout)
	}
	return err
}

// takeUp makes an attempt one that only takes what a program has left whose engine is gone.
func (r *run) takeUp(w *Work) {
	var before holder
	if r.Store.Holder(w.assignment.Key, &before) != nil || !exists(r.Store.Work(w.assignment.Key)) {
		return
	}
	w.adopt, w.assignment.Since = true, before.Since
	r.recordError(r.folder.showLogOf(before, w.Node.Address))
	r.emit(Event{Address: w.Node.Address, Kind: EventNote, Text: fmt.Sprintf("adopted: its program ended well after %s was gone", before.text())})
}

func timeoutError(limit time.Duration) error { return fmt.Errorf("%w of %v", errTimeout, limit) }

// openLog opens the log for appending. The file exists from the start of the stage on.
func (w Work) openLog() (*os.File, error) {
	return disk.OpenFile(w.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// beginLog creates the log and marks the beginning of a further attempt.
func (w Work) beginLog() error {
	f, err := w.openLog()
	if err != nil {
		return err
	}
	if w.Attempt > 1 {
		_, err = fmt.Fprintf(f, "%s%d\n", attemptMark, w.Attempt)
	}
	return errors.Join(err, f.Close())
}

// attemptMark begins the line that stands in the log before what an attempt after the first one says.
const attemptMark = "--- attempt "

// ofLastAttempt leaves out what earlier attempts said.
func ofLastAttempt(lines []string) []string {
	for i, line := range slices.Backward(lines) {
		if strings.HasPrefix(line, attemptMark) {
			return lines[i+1:]
		}
	}
	return lines
}
