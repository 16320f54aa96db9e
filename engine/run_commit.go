package engine

import (
	"fmt"
	"time"

	"rcgrpo/engine/artifact"
)

// pendingCommit is a result on its way into the store. Stages that run in this process go on with it before it has arrived.
type pendingCommit struct {
	done chan struct{} // closed when it has
	err  error         // why it could not, once done is closed
}

// inPlace says whether a node runs in this process.
func (r *run) inPlace(n *Node) bool {
	_, here := r.executor.(localExecutor)
	return here && runsInPlace(n)
}

// made takes in what a stage made in this process. Its readers start at once; the committer records it before theirs.
func (r *run) made(t *task, f *artifact.Finished, took time.Duration) {
	t.state, t.how, t.manifest = finished, EventDone, f.Manifest
	r.tidying.Add(1)
	r.beside(func() {
		defer r.tidying.Done()
		r.recordError(r.Store.RemoveWork(t.Key, t.Node.folders()...)) // the next stage may want such a one
	})
	lock, c := t.lock, &pendingCommit{done: make(chan struct{})}
	t.lock, t.commit = nil, c
	r.recorded[t.Key] = f
	r.pending++
	r.recording++
	r.committer.Add(f, func(err error) {
		if err == nil {
			r.reportDone(t, f.Manifest, took)
			r.recordError(lock.Retire())
		} else {
			r.recordError(r.Store.Discard(t.Key))
			r.recordError(lock.Unlock())
		}
		c.err = err
		close(c.done)
		r.results <- result{task: t, recorded: true, err: err}
	})
	r.after(t)
}

// awaitCommits waits until results are recorded.
func (r *run) awaitCommits(all []*pendingCommit) error {
	if len(all) == 0 {
		return nil
	}
	r.committer.Flush()
	for _, c := range all {
		<-c.done
		if c.err != nil {
			return fmt.Errorf("an input is not kept: %w", c.err)
		}
	}
	return nil
}

// takeRecorded hears from the committer. What cannot be recorded is lost, and nothing after it will be kept either: the
// first such task fails, whatever is to be kept going, and the others end with it.
func (r *run) takeRecorded(res result) {
	r.recording--
	t := res.task
	switch {
	case res.err == nil:
	case r.lost == nil:
		r.lost = res.err
		r.fail(t, res.err, 0)
		for _, other := range r.tasks {
			if other.state == waiting || other.state == ready {
				r.skip(other, "the store cannot be written")
			}
		}
	default:
		r.skip(t, "it was made and could not be kept: the store cannot be written")
	}
}
