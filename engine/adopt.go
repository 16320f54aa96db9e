package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
)

// watch is what a run does about a node that another process makes. While the engine that started the stage lives, it
// only shows how far the stage is. Once that engine is gone, one of those who wait adopts the stage: it keeps to the
// timeout, stops the stage when the user wants that, and takes its failure in.
type watch struct {
	*run
	task   *task
	holder holder
	tail   tail
	last   *Event   // progress
	engine int      // process of the run that makes it; 0: unknown, or on another machine
	paused bool     // that process is stopped, and we have said so
	guard  *os.File // open while we are the one who has adopted it
	log    logLimit
	cause  error // why it was told to stop
	kill   time.Time
}

// attend waits for the lock of a key that somebody else holds. It runs beside loop.
func (r *run) attend(ctx context.Context, t *task) foreignEnd {
	w := &watch{run: r, task: t}
	defer w.close()
	waiting, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	type answer struct {
		lock *artifact.Lock
		err  error
	}
	free := make(chan answer, 1)
	go func() {
		lock, err := r.Store.Lock(waiting, t.Key)
		free <- answer{lock, err}
	}()
	every := time.NewTicker(followEvery)
	defer every.Stop()
	interrupted, killed := ctx.Done(), r.Kill
	w.look()
	for {
		select {
		case a := <-free:
			return w.result(a.lock, a.err)
		case <-every.C:
			w.look()
		case <-killed:
			killed, w.kill = nil, time.Now()
		case <-interrupted:
			interrupted = nil
			if w.guard != nil {
				w.stop(context.Cause(ctx))
				continue
			}
			giveUp()
			if a := <-free; a.lock != nil {
				r.recordError(a.lock.Unlock())
			}
			return foreignEnd{task: t, err: context.Cause(ctx)}
		}
	}
}

// look takes in what has happened since the last look.
func (w *watch) look() {
	var h holder
	if w.Store.Holder(w.task.Key, &h) == nil && w.guard == nil && h != w.holder { // first seen, or started again
		w.holder = h
		w.tail.close()
		w.tail, w.last, w.engine = tail{}, nil, 0
		if record, err := h.folder().record(); err == nil && record.Host == hostName() {
			w.engine = record.PID
		}
	}
	if w.holder.Run == "" {
		return
	}
	w.tail.read(w.holder.folder().events(w.holder.Address), w.observe)
	paused := w.guard == nil && stopped(w.engine) && w.holder.folder().live()
	if paused && !w.paused {
		w.emit(Event{Address: w.task.Address, Kind: EventNote, Text: fmt.Sprintf("waiting for run %s, but %s", RunName(w.holder.Run), stoppedText(w.engine))})
	}
	w.paused = paused
	if w.guard == nil && w.holder.PID != 0 && w.holder.alive() {
		if w.guard = w.holder.adopt(); w.guard != nil {
			w.tell()
		}
	}
	if w.guard == nil {
		return
	}
	w.recordError(w.log.look())
	if limit := w.task.Timeout; limit > 0 && w.cause == nil && w.holder.running() > limit {
		w.stop(errTimeout)
	}
	if w.cause != nil && time.Now().After(w.kill) || !w.holder.alive() {
		killSession(w.holder.PID)
	}
}

// observe passes on the progress of the stage under the address that it has here.
func (w *watch) observe(e Event) {
	if e.Kind != EventProgress {
		return
	}
	if w.last = &e; w.guard != nil || time.Since(e.Time) < time.Second {
		e.Address = w.task.Address
		w.emit(e)
	}
}

// tell says that the stage is ours now.
func (w *watch) tell() {
	h := w.holder
	since, now := h.running(), time.Now()
	live := liveStage{started: now.Add(-since)}
	if w.last != nil {
		live.first, live.last = Event{Time: live.started}, *w.last
	}
	w.recordError(w.folder.showLogOf(h, w.task.Address))
	w.log = logLimit{path: w.folder.log(w.task.Address), most: w.Experiment.Site.LogLimit, report: func(text string) {
		w.emit(Event{Address: w.task.Address, Kind: EventNote, Text: text})
	}}
	w.emit(Event{Address: w.task.Address, Kind: EventAdopted, Key: w.task.Key, Attempt: h.Attempt, Seconds: since.Seconds(),
		Expect: w.task.Estimate.Seconds(), Path: w.folder.log(w.task.Address), Text: fmt.Sprintf("it goes on from %s: %s", h.text(), live.text(now))})
	if w.last != nil {
		e := *w.last
		e.Address = w.task.Address
		w.emit(e)
	}
}

// stop asks the stage to end, and sees to it that it does.
func (w *watch) stop(cause error) {
	w.cause = cause
	if w.kill.IsZero() {
		w.kill = time.Now().Add(graceAfter(cause))
	}
	if sameProcess(w.holder.PID, w.holder.Start) {
		asked := w.holder.PID
		if w.holder.Group {
			asked = -asked
		}
		syscall.Kill(asked, syscall.SIGTERM)
	}
}

// result is what the run learns when the lock is free.
func (w *watch) result(lock *artifact.Lock, err error) foreignEnd {
	res := foreignEnd{task: w.task, lock: lock, err: err}
	if w.guard == nil || err != nil {
		return res
	}
	killSession(w.holder.PID)
	if w.holder.Group {
		if text := (leftovers{scratch: w.Store.Work(w.task.Key)}).kill(); text != "" {
			w.emit(Event{Address: w.task.Address, Kind: EventNote, Text: text})
		}
	}
	w.tail.read(w.holder.folder().events(w.holder.Address), w.observe)
	res.adopted, res.attempt, res.took = true, w.holder.Attempt, w.holder.running()
	switch {
	case errors.Is(w.cause, errTimeout):
		res.err = timeoutError(w.task.Timeout)
	case w.cause != nil:
		res.err = w.cause
	case w.tail.failure != nil:
		res.err = w.tail.failure.err()
	case w.holder.Group:
		res.err = w.exitError(lock)
	default:
		res.err = w.silentError()
	}
	return res
}

// exitError says how an adopted program ended, by the exit record that it left in the lock's file.
func (w *watch) exitError(lock *artifact.Lock) error {
	code, _, ok := lock.Exit()
	if !ok {
		return w.silentError()
	}
	return codeError(w.task.Address, code, w.holder.Kills)
}

// silentError is for a process that ended without saying why; whose it was not cannot ask the kernel how.
func (w *watch) silentError() error {
	err := killedError(w.holder.Kills, oomKills())
	if causeOf(err) == CauseKilled {
		err = WithCause(CauseKilled, fmt.Errorf("its process %d ended without a word, as when somebody kills it", w.holder.PID))
	}
	return err
}

func (w *watch) close() {
	w.tail.close()
	if w.guard != nil {
		w.guard.Close()
	}
}

// onAdopted takes in how an adopted stage ended. Its key's lock is ours.
func (r *run) onAdopted(ctx context.Context, res foreignEnd) {
	t := res.task
	if m, err := r.Store.Lookup(t.Key); err == nil && !t.Force {
		r.reportDone(t, m, res.took)
		r.publish(t, m)
		r.finish(t, EventDone, m)
		r.unlock(t)
		return
	}
	if res.err == nil { // a program, whose output is still to be taken
		r.queue(t)
		return
	}
	r.recordError(r.Store.Discard(t.Key))
	switch {
	case ctx.Err() != nil:
		r.interrupt(t)
	case r.again(t.Node, res.attempt, res.err, r.folder.log(t.Address)):
		t.attempts = res.attempt
		r.queue(t)
	default:
		r.fail(t, lastWord(res.attempt, res.err), res.took)
	}
}

// reportOrphans names the stages of this experiment that outlived their run and that this one has no use for.
func (r *run) reportOrphans() {
	all, err := Survivors(r.Store)
	r.recordError(err)
	for _, s := range all {
		if s.Experiment == r.Experiment.Name && !s.Adopted && !r.wants(s) {
			r.emit(Event{Kind: EventNote, Text: fmt.Sprintf("nothing here needs it any more: %s", s.Text(time.Now()))})
		}
	}
}

// wants says whether a node has the survivor's key, or may still get it.
func (r *run) wants(s Survivor) bool {
	for _, t := range r.tasks {
		if t.Key == s.Key || t.Address == s.Address && t.Verb == MayRun && t.state != ended {
			return true
		}
	}
	return false
}

// showLogOf makes the log of a stage that another engine started the log of an address of this run.
func (f runFolder) showLogOf(h holder, address string) error {
	theirs := h.folder().log(h.Address)
	err := disk.Symlink(theirs, f.log(address))
	if err == nil || errors.Is(err, os.ErrExist) {
		return nil
	}
	// The file system has no links.
	return disk.WriteFile(f.log(address), []byte("another run started this stage; its log is "+theirs+"\n"), 0o600)
}
