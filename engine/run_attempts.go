package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// attempts starts a node until it succeeds or its retry block says no more. It runs beside loop.
func (r *run) attempts(ctx context.Context, w Work) error {
	retry := w.Node.Retry
	backoff := retry.Backoff
	for attempt := 1; ; attempt++ {
		w.Attempt, w.assignment.Attempt = attempt, attempt
		err := r.attempt(ctx, w)
		if err == nil || ctx.Err() != nil {
			return err
		}
		cause := causeOf(err)
		if attempt >= retry.Attempts || !retry.retries(cause, err.Error()) {
			if attempt > 1 {
				err = keepCause(cause, fmt.Errorf("%w (after %d attempts)", err, attempt))
			}
			return err
		}
		r.emit(Event{Address: w.Node.Address, Kind: EventNote, Attempt: attempt,
			Text: fmt.Sprintf("attempt %d of %d failed (%s); it starts again: %v", attempt, retry.Attempts, cause, err)})
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		backoff *= 2
	}
}

func keepCause(cause string, err error) error {
	if cause == "" {
		return err
	}
	return WithCause(cause, err)
}

// attempt is one start, under the node's timeout.
func (r *run) attempt(ctx context.Context, w Work) error {
	if err := r.folder.assign(w.assignment); err != nil {
		return err
	}
	if err := openLog(w); err != nil {
		return err
	}
	r.emit(Event{Address: w.Node.Address, Kind: EventStarted, Attempt: w.Attempt, Key: w.assignment.Key,
		Expect: r.byAddress[w.Node.Address].Expect.Seconds(), Path: w.Log})
	if w.Node.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.Node.Timeout, errTimeout)
		defer cancel()
	}
	err := r.executor.Execute(ctx, w, r.emit)
	if err != nil && errors.Is(context.Cause(ctx), errTimeout) {
		return fmt.Errorf("%w of %v", errTimeout, w.Node.Timeout)
	}
	return err
}

// openLog begins the log, so that there is one from the first byte on, whatever becomes of the stage.
func openLog(w Work) error {
	f, err := os.OpenFile(w.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if w.Attempt > 1 {
		fmt.Fprintf(f, "--- attempt %d\n", w.Attempt)
	}
	return f.Close()
}
