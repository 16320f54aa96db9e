package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"rcgrpo/engine/plan"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
)

// adoption waits for a node that another process executes. While the engine that started the stage lives, it
// only shows the progress. After the end of that engine, one of the waiting runs adopts the stage: it applies
// the timeout, stops the stage if the run is interrupted, and receives its failure.
type adoption struct {
	*run
	task   *task
	holder runs.Holder
	events runs.EventReader
	last   *runs.Event // progress
	engine int         // process of the run that started the stage; 0: unknown or remote
	paused bool        // that process is stopped, which was reported
	guard  *os.File    // open if this run has adopted the stage
	limit  *proc.LogLimit
	cause  error // of the request to stop
	killAt time.Time
}

const adoptionPoll = 50 * time.Millisecond

// waitForLock waits for the lock of a key that another process holds. It runs in a goroutine of its own.
func (r *run) waitForLock(ctx context.Context, t *task) foreignEnd {
	a := &adoption{run: r, task: t}
	defer func() { a.guard.Close() }() // of a nil file too
	poll := adoptionPoll
	if r.Store.Shared() { // each look is answered by a file server
		poll = time.Second
	}
	every := time.NewTicker(poll)
	defer every.Stop()
	interrupted, killed := ctx.Done(), r.Kill
	for {
		if lock, err := r.Store.TryLock(t.Key); lock != nil || err != nil {
			return a.result(foreignEnd{task: t, lock: lock, err: err})
		}
		a.poll()
		select {
		case <-every.C:
		case <-killed:
			killed, a.killAt = nil, time.Now()
		case <-interrupted:
			if a.guard == nil {
				return foreignEnd{task: t, err: context.Cause(ctx)}
			}
			interrupted = nil
			a.stop(context.Cause(ctx))
		}
	}
}

// poll updates the adoption from the lock, the events and the processes.
func (a *adoption) poll() {
	var h runs.Holder
	if a.Store.Holder(a.task.Key, &h) == nil && a.guard == nil && h != a.holder { // a new attempt
		a.holder = h
		a.events, a.last, a.engine = runs.EventReader{}, nil, 0
		if record, err := h.Run.Record(); err == nil && record.Host == proc.HostName() {
			a.engine = record.PID
		}
	}
	if a.holder.Run == "" {
		return
	}
	a.events.Read(a.holder.Run.Events(a.holder.Address), a.observe)
	if a.guard == nil {
		a.reportPause()
		if a.holder.PID != 0 && a.holder.Alive() {
			if a.guard = a.holder.Adopt(); a.guard != nil {
				a.report()
			}
		}
	}
	if a.guard == nil {
		return
	}
	a.recordError(a.limit.Poll())
	if limit := a.task.Timeout; limit > 0 && a.cause == nil && a.holder.Running() > limit {
		a.stop(errTimeout)
	}
	if a.cause != nil && time.Now().After(a.killAt) || !a.holder.Alive() {
		proc.KillSession(a.holder.PID)
	}
}

// reportPause reports that the engine of the stage is stopped.
func (a *adoption) reportPause() {
	paused := proc.Stopped(a.engine) && a.holder.Run.Live()
	if paused && !a.paused {
		a.note(a.task.Address, "waiting for run %s, but %s", a.holder.Run.Name(), proc.StoppedText(a.engine))
	}
	a.paused = paused
}

// observe passes on the progress of the stage under its address in this run.
func (a *adoption) observe(e runs.Event) {
	if e.Kind != runs.EventProgress {
		return
	}
	if a.last = &e; a.guard != nil || time.Since(e.Time) < time.Second {
		e.Address = a.task.Address
		a.emit(e)
	}
}

// report reports the adoption and the progress so far.
func (a *adoption) report() {
	h, address := a.holder, a.task.Address
	since, now := h.Running(), time.Now()
	a.recordError(a.folder.LinkLog(h, address))
	a.limit = a.logLimit(address)
	a.emit(runs.Event{Address: address, Kind: runs.EventAdopted, Key: a.task.Key, Attempt: h.Attempt,
		Seconds: since.Seconds(), Expect: a.task.Estimate.Seconds(), Path: a.folder.Log(address),
		Text: fmt.Sprintf("it continues from %s: %s", h.Text(), runs.PaceSince(now.Add(-since), a.last).Text(now))})
	if a.last != nil {
		e := *a.last
		e.Address = address
		a.emit(e)
	}
}

// stop requests the stage to stop; poll kills it after the grace period.
func (a *adoption) stop(cause error) {
	a.cause = cause
	if a.killAt.IsZero() {
		a.killAt = time.Now().Add(gracePeriod(cause))
	}
	if proc.Same(a.holder.PID, a.holder.Start) {
		pid := a.holder.PID
		if a.holder.Group {
			pid = -pid
		}
		syscall.Kill(pid, syscall.SIGTERM)
	}
}

// result completes the result once the lock is acquired.
func (a *adoption) result(res foreignEnd) foreignEnd {
	if a.guard == nil || res.err != nil {
		return res
	}
	proc.KillSession(a.holder.PID)
	if a.holder.Group {
		if text := (proc.Leftovers{Mark: ScratchMark(a.Store.Work(a.task.Key))}).Kill(); text != "" {
			a.note(a.task.Address, "%s", text)
		}
	}
	a.events.Read(a.holder.Run.Events(a.holder.Address), a.observe)
	res.adopted, res.attempt, res.took = true, a.holder.Attempt, a.holder.Running()
	code, _, recorded := res.lock.Exit()
	switch {
	case errors.Is(a.cause, errTimeout):
		res.err = timeoutError(a.task.Timeout)
	case a.cause != nil:
		res.err = a.cause
	case a.events.Failure != nil:
		res.err = a.events.Failure
	case a.holder.Group && recorded:
		res.err = codeError(a.task.Address, code, a.holder.Kills)
	default:
		res.err = fmt.Errorf("its process %d ended without an exit record: %w", a.holder.PID,
			killedError(a.holder.Kills, proc.OOMKills()))
	}
	return res
}

// onAdopted handles the end of an adopted stage, whose lock this run has acquired.
func (r *run) onAdopted(ctx context.Context, res foreignEnd) {
	t := res.task
	if m, err := r.Store.Lookup(t.Key); err == nil && !t.Force {
		r.reportDone(t, m, res.took)
		r.finish(t, runs.EventDone, m)
		r.unlock(t)
		return
	}
	if res.err == nil { // a program, whose output is not committed yet
		r.queue(t)
		return
	}
	if ctx.Err() == nil && r.shouldRetry(t.Node, res.attempt, res.err) {
		t.attempts = res.attempt
		r.queue(t)
		return
	}
	r.stageFailed(ctx, t, finalError(res.attempt, res.err), res.took)
}

// reportOrphans names the orphans of this experiment that this run does not need: no node has their key or may still
// get it.
func (r *run) reportOrphans() {
	all, err := runs.Orphans(r.Store)
	r.recordError(err)
	for _, o := range all {
		needs := func(t *task) bool {
			return t.Key == o.Key || t.Address == o.Address && t.Verb == plan.MayRun && t.state != ended
		}
		if o.Run.Experiment() == r.Experiment.Name && !o.Taken && !slices.ContainsFunc(r.tasks, needs) {
			r.note("", "no stage of this plan needs it: %s", o.Text(time.Now()))
		}
	}
}
