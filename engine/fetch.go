package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/remote"
	"rcgrpo/engine/runs"
)

// fetchEnd is the end of the transfer of a task's result from the remote store.
type fetchEnd struct {
	task   *task
	result *artifact.Committed // nil with an error
	lock   *artifact.Lock      // of its key
	bytes  int64
	err    error
	took   time.Duration
}

// openRemote reports the problems of the remote store as notes, and sends what earlier runs could not send.
func (r *run) openRemote() {
	r.Remote.Report(func(address, text string) { r.note(address, "%s", text) })
	r.Remote.SendPending(r.ctx)
}

// closeRemote waits for the results that are being sent and reports those that were not.
func (r *run) closeRemote() {
	if err := r.Remote.Close(); err != nil {
		r.note("", "%v", err)
	}
	if n := len(r.Remote.Pending()); n > 0 {
		r.note("", "%d of the results are not in remote %s; the next run or `rcgrpo store push` sends them", n, r.Remote.Name)
	}
}

// fetchPlanned starts the transfers that the plan has found.
func (r *run) fetchPlanned() {
	for _, t := range r.tasks {
		if t.Verb == plan.Fetch {
			t.needs = append(t.needs, t.FetchPorts...)
			if err := r.session.Pin(t.Key); err != nil {
				r.recordError(err)
			}
			r.fetch(t)
		}
	}
}

// wanted returns the ports of a result that readers or published files need.
func (t *task) wanted(m *artifact.Manifest) []string {
	need := slices.Clone(t.needs)
	for _, p := range t.Published(m) {
		need = append(need, p.Port)
	}
	slices.Sort(need)
	return slices.Compact(need)
}

// missing returns the wanted ports that the store lacks.
func (t *task) missing(m *artifact.Manifest) []string { return slices.DeleteFunc(t.wanted(m), m.Has) }

// lacks reports whether a task that has ended lacks bytes that a reader needs, and adds them to its needs.
func (t *task) lacks(reader *task) bool {
	if t.manifest == nil {
		return false
	}
	for _, in := range reader.Inputs {
		if in.From == t.Node && !slices.Contains(t.needs, in.Ref.Port) {
			t.needs = append(t.needs, in.Ref.Port)
		}
	}
	return slices.ContainsFunc(reader.Inputs, func(in lang.Input) bool {
		return in.From == t.Node && !t.manifest.Has(in.Ref.Port)
	})
}

// fetch starts the transfer of a task's result from the remote store. It reports false if there is none, or if that has
// been tried.
func (r *run) fetch(t *task) bool {
	if r.Remote == nil || !r.Remote.Pull || t.asked || t.Force {
		return false
	}
	t.state = running
	r.pending++
	key, started := t.Key, time.Now()
	snapshot := &task{Planned: t.Planned, needs: slices.Clone(t.needs)} // the run may add needs
	go func() {
		e := fetchEnd{task: t}
		if m := r.Remote.Find(r.ctx, []string{key})[key]; m != nil {
			ports := snapshot.wanted(m)
			for _, port := range ports {
				e.bytes += m.Outputs[port].Bytes
			}
			e.result, e.lock, e.err = r.Remote.Fetch(r.ctx, key, ports)
		} else {
			e.err = artifact.ErrNotFound
		}
		e.took = time.Since(started)
		r.fetched <- e
	}()
	return true
}

// onFetched handles the end of a transfer. Without a result the stage runs.
func (r *run) onFetched(ctx context.Context, e fetchEnd) {
	t := e.task
	r.pending--
	t.state = waiting
	switch {
	case e.err == nil:
		r.reuseFetched(t, e)
	case ctx.Err() != nil: // loop abandons it
	case len(r.failed) > 0 && !r.KeepGoing && !t.Kind.AfterFailures:
		r.skip(t, r.stopReason())
	default:
		t.asked = !errors.Is(e.err, remote.ErrBusy)
		t.manifest = nil
		if !t.unblocked() {
			return
		}
		if errors.Is(e.err, remote.ErrBusy) {
			r.queue(t) // waits for the lock
			return
		}
		r.resolve(t)
	}
}

// reuseFetched ends a task with a result of the remote store.
func (r *run) reuseFetched(t *task, e fetchEnd) {
	m := e.result.Manifest
	first := t.how == "" && t.Verb != plan.UpToDate && !t.Collected()
	r.flusher.Add(e.result, e.lock)
	text := fmt.Sprintf("%s from remote %s", lang.BytesText(e.bytes), r.Remote.Name)
	if first {
		r.emit(runs.Event{Address: t.Address, Kind: runs.EventFetched, Key: t.Key, Seconds: e.took.Seconds(), Text: text})
	} else {
		r.note(t.Address, "fetched %s", text)
	}
	r.publish(t, m)
	r.recordError(r.Store.Remember(r.Experiment.Name, t.Address, t.Key))
	how := t.how
	if first {
		how = runs.EventFetched
	}
	r.finish(t, how, m)
}
