package engine

import (
	"context"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"rcgrpo/engine/artifact"
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
	guard  *os.File // not nil if this run has adopted the stage
	cause  error    // of the request to stop
	killAt time.Time
}

const adoptionPoll = 50 * time.Millisecond

// awaitLock waits for another process that holds the key's lock, and adopts its stage if its engine has died.
func (r *run) awaitLock(t *task) {
	t.state = running
	maker := "another run"
	var h runs.Holder
	if r.plan.Store.Holder(t.Key, &h) == nil {
		maker = h.Text()
	}
	r.note(t.Address, "waiting: it is being made by %s", maker)
	r.async(func() func() {
		a := &adoption{run: r, task: t}
		lock, err := a.await()
		if a.guard == nil || err != nil {
			a.guard.Close() // of a nil file too
			return func() { r.onForeign(t, lock, err) }
		}
		err = a.end()
		took := a.holder.Running()
		a.guard.Close()
		return func() { r.onAdopted(t, lock, a.holder, err, took) }
	})
}

// await returns the lock once it is free, or an error.
func (a *adoption) await() (*artifact.Lock, error) {
	poll := adoptionPoll
	if a.plan.Store.Shared() { // each look is answered by a file server
		poll = time.Second
	}
	every := time.NewTicker(poll)
	defer every.Stop()
	interrupted, killed := a.ctx.Done(), a.options.Kill
	for {
		if lock, err := a.plan.Store.TryLock(a.task.Key); lock != nil || err != nil {
			return lock, err
		}
		a.poll()
		select {
		case <-every.C:
		case <-killed:
			killed, a.killAt = nil, time.Now()
		case <-interrupted:
			if a.guard == nil {
				return nil, context.Cause(a.ctx)
			}
			interrupted = nil
			a.stop(context.Cause(a.ctx))
		}
	}
}

// poll updates the adoption from the lock, the events and the processes.
func (a *adoption) poll() {
	var h runs.Holder
	if a.plan.Store.Holder(a.task.Key, &h) == nil && a.guard == nil && h != a.holder { // a new attempt
		a.holder, a.events = h, runs.EventReader{}
	}
	if a.holder.Run == "" {
		return
	}
	a.events.Read(a.holder.Run.Events(a.holder.Address), a.observe)
	if a.guard == nil {
		if a.guard = a.holder.Adopt(a.plan.Store, a.task.Key); a.guard != nil {
			a.report()
		}
	}
	if a.guard == nil {
		return
	}
	if limit := a.task.Timeout; limit > 0 && a.cause == nil && a.holder.Running() > limit {
		a.stop(TimeoutError(limit))
	}
	if a.cause != nil && time.Now().After(a.killAt) || !a.holder.Alive() {
		proc.KillSession(a.holder.PID)
	}
}

// observe passes on the progress of the stage under its address in this run.
func (a *adoption) observe(e runs.Event) {
	if e.Kind == runs.EventProgress && (a.guard != nil || time.Since(e.Time) < time.Second) {
		e.Address = a.task.Address
		a.emit(e)
	}
}

// report reports the adoption and the progress so far.
func (a *adoption) report() {
	h, address, last := a.holder, a.task.Address, a.events.Progress
	since, now := h.Running(), time.Now()
	a.recordError(a.folder.LinkLog(h, address))
	a.emit(runs.Event{Address: address, Kind: runs.EventAdopted, Key: a.task.Key, Attempt: h.Attempt,
		Seconds: since.Seconds(), Expect: a.task.Estimate.Seconds(), Path: a.folder.Log(address),
		Text: fmt.Sprintf("it continues from %s: %s", h.Text(), runs.PaceSince(now.Add(-since), last).Text(now))})
	if last != nil {
		a.observe(*last)
	}
}

// stop requests the stage to stop; poll kills it after the grace period.
func (a *adoption) stop(cause error) {
	a.cause = cause
	if a.killAt.IsZero() {
		a.killAt = time.Now().Add(GracePeriod(cause))
	}
	if proc.Same(a.holder.PID, a.holder.Start) {
		syscall.Kill(-a.holder.PID, syscall.SIGTERM)
	}
}

// end ends the processes that the adopted stage has left, and returns why it has no result, if it has none: the cause
// of our request to stop, the failure in its journal, or a kill. nil is for a program that starts again then: its shell
// saw its engine alive, was killed, or could not start rcgrpo.
func (a *adoption) end() error {
	proc.KillSession(a.holder.PID)
	if text := proc.KillMarked(proc.ScratchMark(a.plan.Store.Work(a.task.Key))); text != "" {
		a.note(a.task.Address, "%s", text)
	}
	a.events.Read(a.holder.Run.Events(a.holder.Address), a.observe)
	switch {
	case a.cause != nil:
		return a.cause
	case a.events.Failure != nil:
		return a.events.Failure
	case a.task.Kind.InProcess:
		return nil
	}
	return fmt.Errorf("its process %d left neither a result nor an error: %w", a.holder.PID,
		killedError(a.holder.Kills, proc.OOMKills()))
}

// onForeign handles the end of a wait for a lock, which t has now unless there is an error.
func (r *run) onForeign(t *task, lock *artifact.Lock, err error) {
	t.lock = lock
	switch {
	case err != nil && r.ctx.Err() != nil:
		r.abandon(t)
	case err != nil:
		r.fail(t, err, 0)
	case r.reuseStored(t):
	case r.skipAfterFailure(t):
	case !r.rebuildAbsent(t):
		r.queue(t)
	}
}

// onAdopted handles the end of an adopted stage, whose lock t has now. h is its last holder.
// Where the run replaces results, only one that the adopted stage has made counts.
func (r *run) onAdopted(t *task, lock *artifact.Lock, h runs.Holder, err error, took time.Duration) {
	t.lock = lock
	m, lookupErr := r.plan.Store.Lookup(t.Key)
	switch {
	case lookupErr == nil && (!t.Force || m.Started.Add(m.Duration()).After(h.Since)):
		r.reportDone(t, m, took)
		r.finish(t, runs.EventDone, m)
		r.unlock(t)
	case err == nil:
		r.note(t.Address, "its process %d left neither a result nor an error, so it starts again", h.PID)
		r.queue(t)
	default:
		r.stageFailed(t, h.Attempt, err, took)
	}
}

// reportOrphans names the orphans of this experiment that this run does not need: no node has their key or may still
// get it.
func (r *run) reportOrphans() {
	all, err := runs.Orphans(r.plan.Store)
	r.recordError(err)
	for _, o := range all {
		needs := func(t *task) bool {
			return t.Key == o.Key || t.Address == o.Address && t.Verb == plan.MayRun && t.state != ended
		}
		if o.Run.Experiment() == r.plan.Experiment.Name && !o.Taken && !slices.ContainsFunc(r.tasks, needs) {
			r.note("", "no stage of this plan needs it: %s", o.Text(time.Now()))
		}
	}
}
