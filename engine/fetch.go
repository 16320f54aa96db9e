package engine

import (
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

// fetchPlanned starts the transfers that the plan has found.
func (r *run) fetchPlanned() {
	planned := slices.DeleteFunc(slices.Clone(r.tasks), func(t *task) bool { return t.Verb != plan.Fetch })
	for _, t := range r.tasks {
		if len(planned) > 0 && t.Kind.AfterFailures {
			t.awaitFetched(t, map[*task]bool{})
		}
	}
	for _, t := range planned {
		t.needs = append(t.needs, t.FetchPorts...)
		r.fetch(t)
	}
}

// awaitFetched makes a report wait for the results behind its inputs that the remote store has: it reads their
// manifests, and fetched results end in any order, that of an input also before that of its own inputs.
func (t *task) awaitFetched(below *task, seen map[*task]bool) {
	for _, up := range below.reads {
		if seen[up] {
			continue
		}
		seen[up] = true
		if below != t && up.Verb == plan.Fetch && !slices.Contains(t.reads, up) {
			t.awaits = append(t.awaits, up)
			up.readers = append(up.readers, t)
		}
		t.awaitFetched(up, seen)
	}
}

// wanted returns the ports of a result that readers or published files need.
func (r *run) wanted(t *task) []string {
	need := slices.Clone(t.needs)
	for _, p := range r.plan.Experiment.Publishes(t.Node) {
		need = append(need, p.Port)
	}
	slices.Sort(need)
	return slices.Compact(need)
}

// missing returns the wanted ports that the store lacks.
func (r *run) missing(t *task, m *artifact.Manifest) []string {
	return slices.DeleteFunc(r.wanted(t), func(port string) bool { return r.plan.Store.Has(m, port) })
}

// lacks reports whether a task that has ended lacks bytes that a reader needs, and adds them to its needs.
func (r *run) lacks(t, reader *task) bool {
	if t.manifest == nil {
		return false
	}
	for _, in := range reader.Inputs {
		if in.From == t.Node && !slices.Contains(t.needs, in.Ref.Port) {
			t.needs = append(t.needs, in.Ref.Port)
		}
	}
	return slices.ContainsFunc(reader.Inputs, func(in lang.Input) bool {
		return in.From == t.Node && !r.plan.Store.Has(t.manifest, in.Ref.Port)
	})
}

// fetch starts the transfer of a task's result from the remote store. It reports false if there is none, or if that has
// been tried.
func (r *run) fetch(t *task) bool {
	if r.plan.Remote == nil || !r.plan.Remote.Pull || t.notRemote || t.Force {
		return false
	}
	t.state = running
	key, started, ports, outputs := t.Key, time.Now(), r.wanted(t), t.Outputs
	r.async(func() func() {
		m := r.plan.Remote.FindFor(r.ctx, map[string]map[string]string{key: outputs})[key]
		if m == nil {
			return func() { r.onNotFetched(t, artifact.ErrNotFound) }
		}
		size := int64(0)
		for _, port := range ports {
			size += m.Outputs[port].Bytes
		}
		m, err := r.plan.Remote.Fetch(r.ctx, key, ports)
		if err != nil {
			return func() { r.onNotFetched(t, err) }
		}
		took, source := time.Since(started), fmt.Sprintf("%s from remote %s", lang.BytesText(size), r.plan.Remote.Name)
		return func() { r.onFetched(t, m, took, source) }
	})
	return true
}

// onFetched ends a task with a result of the remote store.
func (r *run) onFetched(t *task, m *artifact.Manifest, took time.Duration, source string) {
	how := t.how
	if how == "" && t.Verb != plan.UpToDate && !t.NotHere() {
		how = runs.EventFetched
		r.emit(runs.Event{Address: t.Address, Kind: how, Key: t.Key, Seconds: took.Seconds(), Text: source})
	} else { // it had ended, and a reader needs its bytes
		r.note(t.Address, "fetched %s", source)
	}
	r.finishReused(t, how, m)
}

// onNotFetched runs the stage of a result that could not be fetched.
func (r *run) onNotFetched(t *task, err error) {
	t.state = waiting
	switch {
	case r.ctx.Err() != nil: // loop abandons it
	case r.skipAfterFailure(t):
	default:
		busy := errors.Is(err, remote.ErrBusy)
		t.notRemote, t.manifest = !busy, nil
		switch {
		case !t.unblocked():
		case busy:
			r.queue(t) // waits for the lock
		default:
			r.resolve(t)
		}
	}
}
