package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// sharing is what a run knows of those with whom it shares the machine: other runs, and strangers.
type sharing struct {
	ledger *ledger
	view   view
	asked  chan view // an answer that is under way; nil without one
	looks  int       // since all devices were quiet

	blocked  bool          // something waits, and not for a stage of this run
	head     *claim        // what waits
	since    time.Duration // since when it is the first; counts from boot
	told     string        // what was said about that
	toldView error         // likewise about the driver
	toldLost bool          // likewise about files of the ledger that somebody has removed

	notes []Event // that wait until the ledger is unlocked
}

// How a run shares with others: how often it looks whether its turn has come, how often it looks again at devices that
// strangers use, and how long a run must have waited before others hold back for it.
const (
	lookAgain     = 100 * time.Millisecond
	inspectSoon   = 500 * time.Millisecond // at first: it may be a stage of ours that is ending
	inspectAgain  = 5 * time.Second
	patienceFirst = time.Second
)

func inspectNow(ctx context.Context) view {
	devices, err := inspect(ctx)
	return view{at: time.Now(), devices: devices, err: err}
}

// startReady starts what the schedule lets start on what other runs and strangers leave.
func (r *run) startReady(ctx context.Context) {
	r.blocked = false
	for !r.stopping && ctx.Err() == nil && len(r.schedule.queue) > 0 {
		t, err := r.admit(ctx)
		if err != nil {
			r.fail(t, err, 0)
			continue
		}
		if t == nil {
			break
		}
		r.start(ctx, t)
	}
	if !r.blocked { // what waited may have left the queue some other way than through admit
		r.recordError(r.ledger.waitNoMore())
	}
}

// admit takes the next task that may start off the queue and gives it its share of the machine; nil when none may. With
// an error the task cannot have it. All runs of the user wait while this one decides, so it reports afterwards: whoever
// reads its events may block for ever.
func (r *run) admit(ctx context.Context) (*task, error) {
	if err := r.ledger.lock(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, nil
		}
		return r.refuse(err)
	}
	d := r.decide(ctx)
	r.ledger.unlock()
	for _, e := range r.notes {
		r.emit(e)
	}
	r.notes = nil
	for _, t := range d.same {
		r.awaitLock(ctx, t)
	}
	r.recordError(d.trouble)
	switch {
	case d.err == nil:
	case d.task == nil:
		return r.refuse(d.err)
	default:
		r.release(d.task)
	}
	return d.task, d.err
}

// decision is what admit has found while it had the ledger's lock.
type decision struct {
	task    *task   // that may start, or cannot because of err
	same    []*task // that are to wait for other runs, which make the same
	err     error
	trouble error // that stops nothing
}

// decide is admit without its reports. The caller has the ledger's lock.
func (r *run) decide(ctx context.Context) (d decision) {
	l := r.ledger
	if l.isOpaque() {
		r.blocked = true
		return d
	}
	others, err := l.others()
	if err != nil {
		d.err = err
		return d
	}
	now := time.Now()
	if len(others) > 0 {
		if d.same = r.takeSame(others); len(r.schedule.queue) == 0 {
			return d
		}
	}
	if head := r.schedule.queue[0]; r.head != head {
		r.head, r.since = head, sinceBoot()
	}
	free := r.offer(ctx, others, now)
	c := r.schedule.next(now)
	if c == nil {
		d.trouble = r.hold(others)
		return d
	}
	t := c.task
	able := r.machine.view.able(t.Resources.GPUMemory, free)
	if len(able) < c.need.gpus { // enough devices, but some too small
		r.schedule.putBack(c)
		r.blocked = true
		return d
	}
	t.gpus = able[:c.need.gpus:c.need.gpus]
	r.gpus = slices.DeleteFunc(r.gpus, func(id string) bool { return slices.Contains(t.gpus, id) })
	held := lease{Address: t.Address, Key: t.Key, CPUs: c.need.cpus, Memory: t.Resources.Memory, GPUs: t.gpus, Devices: len(t.gpus), Since: sinceBoot()}
	d.task = t
	t.lease, d.err = l.take(held)
	return d
}

// refuse takes the first of the queue off it, for an error of the ledger to become its failure.
func (r *run) refuse(err error) (*task, error) {
	t := r.schedule.queue[0].task
	r.schedule.remove(t.claim)
	return t, fmt.Errorf("share the machine with other runs: %w", err)
}

// takeSame takes the tasks off the queue that another run is making; to wait for it takes no share.
func (r *run) takeSame(others []lease) (same []*task) {
	for _, c := range r.schedule.queue {
		t := c.task
		if t.Key != "" && t.lock == nil && slices.ContainsFunc(others, func(o lease) bool { return o.Key == t.Key && o.Store == r.ledger.store }) {
			same = append(same, t)
		}
	}
	for _, t := range same {
		r.schedule.remove(t.claim)
	}
	return same
}

// offer tells the schedule what others leave and returns the ids of the devices that may be used. What a run has
// waited for longer than this one is left to it.
func (r *run) offer(ctx context.Context, others []lease, now time.Time) (free []string) {
	taken := share{}
	free = slices.Clone(r.gpus)
	drop := func(ids []string) {
		free = slices.DeleteFunc(free, func(id string) bool {
			return slices.ContainsFunc(ids, func(o string) bool { return r.view.same(id, o) })
		})
	}
	for _, o := range others {
		if !o.Wish {
			taken = taken.plus(share{o.CPUs, 0, o.Memory})
			drop(o.GPUs)
		}
	}
	if !errors.Is(r.view.err, errNoDriver) && r.asksDevices(len(free)) {
		if r.inspected(ctx, now, free) {
			free = r.quiet(free)
		} else {
			free = nil
		}
	}
	taken.gpus = len(r.gpus) - len(free)
	left := r.schedule.free.minus(taken)
	for _, o := range others {
		if o.Wish && sinceBoot()-o.Since > patienceFirst && o.Since < r.since {
			kept := share{min(o.CPUs, max(0, left.cpus)), min(o.Devices, max(0, left.gpus)), min(o.Memory, max(0, left.memory))}
			left, taken = left.minus(kept), taken.plus(kept)
		}
	}
	if r.machine.memory == 0 { // not limited
		taken.memory = 0
	}
	r.schedule.taken = taken
	return free
}

// asksDevices says whether something in the queue could use that many devices.
func (r *run) asksDevices(free int) bool {
	return slices.ContainsFunc(r.schedule.queue, func(c *claim) bool { return c.need.gpus > 0 && c.need.gpus <= free })
}

// quiet lists those of the devices that no stranger was seen to use.
func (r *run) quiet(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return r.view.stranger(id) != "" })
}

// inspected says whether the driver was asked just now about the devices that no run holds; otherwise it is being asked,
// or will be, when only those that strangers use are left. A driver that gives no answer is told of once, and devices
// count as free.
func (r *run) inspected(ctx context.Context, now time.Time, free []string) bool {
	if r.asked != nil {
		select {
		case r.view = <-r.asked:
			r.asked = nil
		default:
			return false
		}
	}
	if r.view.err != nil {
		if r.toldView == nil {
			r.toldView = r.view.err
			r.later(Event{Kind: EventNote, Text: fmt.Sprintf("whether strangers use the GPUs is not known: %v", r.view.err)})
		}
		return true
	}
	// What was held when the driver was asked had processes then that may be gone now.
	stale := slices.ContainsFunc(free, func(id string) bool { return !slices.Contains(r.view.about, id) })
	if !stale && r.view.fresh(now) {
		if len(r.quiet(free)) == len(free) {
			r.looks = 0
		}
		return true
	}
	if !stale && !r.asksDevices(len(r.quiet(free))) && now.Sub(r.view.at) < min(inspectAgain, inspectSoon<<min(r.looks, 8)) {
		return false
	}
	r.looks++
	asked, about := make(chan view, 1), slices.Clone(free)
	r.asked = asked
	go func() {
		v := inspectNow(ctx)
		v.about = about
		asked <- v
	}()
	return false
}

// later has admit emit an event once the ledger is unlocked.
func (r *run) later(e Event) { r.notes = append(r.notes, e) }

// hold notes that the first of the queue waits, and for whom. It returns an error of the ledger.
func (r *run) hold(others []lease) error {
	need := r.head.need
	if !need.fits(r.schedule.free) { // for stages of this run
		return nil
	}
	r.blocked = true
	var why []string
	if text := holders(others, need); text != "" {
		why = append(why, text)
	}
	strangers := 0
	if need.gpus > 0 {
		for _, id := range r.gpus {
			if text := r.view.stranger(id); text != "" && !heldByOthers(others, id, r.view) {
				strangers++
				why = append(why, fmt.Sprintf("GPU %s is left alone: %s, and no run of yours has it", id, text))
			}
		}
	}
	if text := strings.Join(why, "; "); text != "" && text != r.told && sinceBoot()-r.since > patienceFirst {
		r.told = text
		r.later(Event{Address: r.head.task.Address, Kind: EventNote, Text: "waiting for its share of the machine: " + text})
	}
	if need.gpus > len(r.gpus)-strangers { // other runs can do nothing about it
		return r.ledger.waitNoMore()
	}
	return r.ledger.wait(need, r.head.task.Address, r.since)
}

func heldByOthers(others []lease, id string, v view) bool {
	return slices.ContainsFunc(others, func(o lease) bool {
		return slices.ContainsFunc(o.GPUs, func(held string) bool { return v.same(held, id) })
	})
}

// release gives back what a task held.
func (r *run) release(t *task) {
	r.schedule.release(t.claim)
	r.gpus = append(r.gpus, t.gpus...)
	slices.Sort(r.gpus)
	t.gpus = nil
	if t.lease != nil {
		r.recordError(t.lease.release())
		t.lease = nil
	}
}

// renewLeases registers what this run holds again, if somebody has removed it.
func (r *run) renewLeases(ctx context.Context) {
	lost, err := r.ledger.renew(ctx)
	if !lost || r.toldLost {
		return
	}
	r.toldLost = true
	text := fmt.Sprintf("files were removed from %s, through which runs share the machine; this run has registered again", r.ledger.dir)
	if err != nil {
		text = fmt.Sprintf("files were removed from %s, through which runs share the machine, and this run cannot register again, so others may overload the machine: %v", r.ledger.dir, err)
	}
	r.emit(Event{Kind: EventNote, Text: text})
}
