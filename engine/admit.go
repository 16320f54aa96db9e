package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

	"rcgrpo/engine/machine"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
	"rcgrpo/engine/sched"
)

// sharing is the state of a run that concerns other users of the machine: other runs, and foreign processes on GPUs.
type sharing struct {
	ledger *machine.Ledger
	driver machine.GPUs
	query  chan machine.GPUs // a query of the driver that is under way; nil: none

	blocked bool           // the queue waits for resources that this run does not hold
	head    *sched.Request // the first request of the queue
	since   time.Duration  // when head became the first; since boot

	reportedWait   string   // the last report about head
	driverReported bool     // an error of the driver was reported
	delayed        []func() // reports that wait until the ledger is unlocked
}

const (
	admitEvery    = 100 * time.Millisecond // between polls of a blocked run
	priorityAfter = time.Second            // a request that waits so long goes before younger ones of other runs
)

// startReady starts every task that the queue, other runs and foreign processes allow to start.
func (r *run) startReady() {
	r.sharing.blocked = false
	for !r.stopping && r.ctx.Err() == nil {
		var err error
		t := r.nextForPool()
		if t == nil && len(r.queued.Waiting) > 0 {
			t, err = r.admit()
		}
		if err != nil {
			r.fail(t, err, 0)
			continue
		}
		if t == nil {
			break
		}
		r.start(t) // may find the result in the store, so that another task becomes ready
	}
	if !r.sharing.blocked { // the waiting task may have left the queue without admit
		r.recordError(r.sharing.ledger.Withdraw())
	}
}

// nextForPool removes the first task whose pool has room from the queue of the pools; nil if there is none.
func (r *run) nextForPool() *task {
	i := slices.IndexFunc(r.poolQueue, func(t *task) bool { return r.inPools[t.pool] < t.pool.Room() })
	if i < 0 {
		return nil
	}
	t := r.poolQueue[i]
	r.poolQueue = slices.Delete(r.poolQueue, i, i+1)
	r.inPools[t.pool]++
	return t
}

// admit removes the next task that may start from the queue and reserves its share; nil if none may start. With
// an error, the returned task cannot be started. All runs of the user wait while the ledger is locked, and the
// reader of this run's events may block, so admit reports after it has unlocked the ledger.
func (r *run) admit() (t *task, err error) {
	if err = r.sharing.ledger.Lock(r.ctx); err == nil {
		t, err = r.decide()
		r.sharing.ledger.Unlock()
	} else if r.ctx.Err() != nil {
		return nil, nil
	}
	for _, report := range r.sharing.delayed {
		report()
	}
	r.sharing.delayed = nil
	switch {
	case err == nil:
		return t, nil
	case t != nil:
		r.free(t)
	default: // the first one cannot start
		t = r.byAddress[r.queued.Waiting[0].ID]
		r.queued.Remove(t.request)
	}
	return t, fmt.Errorf("share the machine with other runs: %w", err)
}

// decide is the part of admit that holds the ledger's mutex. With an error, a returned task has a share.
func (r *run) decide() (*task, error) {
	others, err := r.sharing.ledger.Others()
	if err != nil {
		return nil, err
	}
	r.joinOthers(others)
	if len(r.queued.Waiting) == 0 {
		return nil, nil
	}
	if head := r.queued.Waiting[0]; r.sharing.head != head {
		r.sharing.head, r.sharing.since = head, proc.SinceBoot()
	}
	now := time.Now()
	free := r.available(others, now)
	q := r.queued.Next(now)
	if q == nil {
		err := r.publishRequest(others)
		r.sharing.delayed = append(r.sharing.delayed, func() { r.recordError(err) })
		return nil, nil
	}
	t := r.byAddress[q.ID]
	large := r.machine.Driver.WithMemory(t.Resources.GPUMemory, free)
	if len(large) < q.Need.GPUs { // enough GPUs, but some are too small
		r.queued.PutBack(q)
		r.sharing.blocked = true
		return nil, nil
	}
	t.gpus = large[:q.Need.GPUs:q.Need.GPUs]
	r.gpus = slices.DeleteFunc(r.gpus, func(id string) bool { return slices.Contains(t.gpus, id) })
	t.lease, err = r.sharing.ledger.Reserve(machine.Lease{Address: t.Address, Key: t.Key, CPUs: q.Need.CPUs,
		Memory: t.Resources.Memory, GPUs: t.gpus, Devices: len(t.gpus), Since: proc.SinceBoot()})
	return t, err
}

// joinOthers removes the tasks that another run executes from the queue; waiting for a result needs no share.
func (r *run) joinOthers(others []machine.Lease) {
	for _, q := range slices.Clone(r.queued.Waiting) {
		t := r.byAddress[q.ID]
		same := func(o machine.Lease) bool { return o.Key == t.Key && o.Store == r.sharing.ledger.Store }
		if !t.shownOnly() && t.lock == nil && slices.ContainsFunc(others, same) {
			r.queued.Remove(q)
			r.sharing.delayed = append(r.sharing.delayed, func() { r.awaitLock(t) })
		}
	}
}

// available sets the share that others use in the queue and returns the ids of the free GPUs. Resources that
// another run has requested for longer than this one stay free for it.
func (r *run) available(others []machine.Lease, now time.Time) []string {
	taken := sched.Share{}
	free := slices.Clone(r.gpus)
	for _, o := range others {
		if !o.Waits {
			taken = taken.Plus(sched.Share{CPUs: o.CPUs, Memory: o.Memory})
			free = slices.DeleteFunc(free, func(id string) bool { return r.reserves(o, id) })
		}
	}
	couldStart := func(q *sched.Request) bool { return q.Need.GPUs > 0 && q.Need.GPUs <= len(free) }
	if !errors.Is(r.sharing.driver.Err, machine.ErrNoDriver) && slices.ContainsFunc(r.queued.Waiting, couldStart) {
		known := r.queryDriver(now, free)
		free = slices.DeleteFunc(free, func(id string) bool { return !known || r.sharing.driver.ForeignUse(id) != "" })
	}
	taken.GPUs = len(r.gpus) - len(free)
	left := r.queued.Free.Minus(taken)
	for _, o := range others {
		if o.Waits && proc.SinceBoot()-o.Since > priorityAfter && o.Since < r.sharing.since {
			kept := sched.Share{CPUs: min(o.CPUs, max(0, left.CPUs)), GPUs: min(o.Devices, max(0, left.GPUs)),
				Memory: min(o.Memory, max(0, left.Memory))}
			left, taken = left.Minus(kept), taken.Plus(kept)
		}
	}
	if r.machine.Memory == 0 { // unlimited
		taken.Memory = 0
	}
	r.queued.Taken = taken
	return free
}

// reserves reports whether a lease contains a GPU.
func (r *run) reserves(o machine.Lease, id string) bool {
	return slices.ContainsFunc(o.GPUs, func(other string) bool { return r.sharing.driver.Same(id, other) })
}

// queryDriver reports whether the driver's answer about the free GPUs is recent, and starts a query if it is not. If
// the driver fails, it reports that once, and all GPUs count as unused.
func (r *run) queryDriver(now time.Time, free []string) bool {
	if r.sharing.query != nil {
		select {
		case r.sharing.driver = <-r.sharing.query:
			r.sharing.query = nil
		default:
			return false
		}
	}
	if r.sharing.driver.Err != nil {
		if !r.sharing.driverReported {
			r.sharing.driverReported = true
			r.delay("", "cannot check whether other processes use the GPUs: %v", r.sharing.driver.Err)
		}
		return true
	}
	// The processes of a GPU that was reserved at the query may have ended since.
	reserved := func(id string) bool { return !slices.Contains(r.sharing.driver.Free, id) }
	if r.sharing.driver.Fresh(now) && !slices.ContainsFunc(free, reserved) {
		return true
	}
	query, ids := make(chan machine.GPUs, 1), slices.Clone(free)
	r.sharing.query = query
	go func() {
		g := machine.QueryGPUs(r.ctx)
		g.Free = ids
		query <- g
	}()
	return false
}

// delay is note, once admit has unlocked the ledger.
func (r *run) delay(address, format string, args ...any) {
	r.sharing.delayed = append(r.sharing.delayed, func() { r.note(address, format, args...) })
}

// publishRequest records in the ledger that the first task of the queue waits, and reports for which processes.
// It returns an error of the ledger.
func (r *run) publishRequest(others []machine.Lease) error {
	need := r.sharing.head.Need
	if !need.Fits(r.queued.Free) { // stages of this run must end first
		return nil
	}
	r.sharing.blocked = true
	reasons := leasesText(others, need)
	foreign := 0
	for _, id := range r.gpus {
		reserved := func(o machine.Lease) bool { return r.reserves(o, id) }
		use := r.sharing.driver.ForeignUse(id)
		if need.GPUs > 0 && use != "" && !slices.ContainsFunc(others, reserved) {
			foreign++
			reasons = append(reasons, fmt.Sprintf("GPU %s is not used: %s, and no run of yours has reserved it", id, use))
		}
	}
	text := strings.Join(reasons, "; ")
	if text != "" && text != r.sharing.reportedWait && proc.SinceBoot()-r.sharing.since > priorityAfter {
		r.sharing.reportedWait = text
		r.delay(r.sharing.head.ID, "waiting for its share of the machine: %s", text)
	}
	if need.GPUs > len(r.gpus)-foreign { // other runs cannot free enough
		return r.sharing.ledger.Withdraw()
	}
	return r.sharing.ledger.Request(need, r.sharing.head.ID, r.sharing.since)
}

// leasesText describes at most three leases of other runs: those with GPUs if need has some, else any.
func leasesText(others []machine.Lease, need sched.Share) (texts []string) {
	for _, o := range others {
		if o.Waits || need.GPUs > 0 && len(o.GPUs) == 0 {
			continue
		}
		has := english.Plural(o.CPUs, "CPU", "")
		if need.GPUs > 0 {
			has = "GPU " + strings.Join(o.GPUs, ", ")
		}
		text := fmt.Sprintf("%s of run %s has %s", o.Address, runs.Folder(o.Run).Name(), has)
		texts = append(texts, text)
	}
	return texts[:min(3, len(texts))]
}

// free releases the share of a task.
func (r *run) free(t *task) {
	if t.pool != nil {
		r.inPools[t.pool]--
		return
	}
	r.queued.Release(t.request)
	r.gpus = append(r.gpus, t.gpus...)
	slices.Sort(r.gpus)
	t.gpus = nil
	if t.lease != nil {
		r.recordError(t.lease.Free())
		t.lease = nil
	}
}
