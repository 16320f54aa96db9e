package engine

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// share is a part of the machine.
type share struct {
	cpus, gpus int
	memory     int64 // bytes
}

func (s share) plus(o share) share {
	return share{s.cpus + o.cpus, s.gpus + o.gpus, s.memory + o.memory}
}
func (s share) minus(o share) share {
	return share{s.cpus - o.cpus, s.gpus - o.gpus, s.memory - o.memory}
}

// fits says whether there is enough of everything that s asks for.
func (s share) fits(free share) bool {
	enough := func(need, free int64) bool { return need == 0 || need <= free }
	return enough(int64(s.cpus), int64(free.cpus)) && enough(int64(s.gpus), int64(free.gpus)) && enough(s.memory, free.memory)
}

// claim is what a task asks of the machine, and later what it holds.
type claim struct {
	task     *task // nil in simulations
	need     share
	released int           // number of the moment at which it could start: what became free together has the same
	rank     time.Duration // expected time from its start to the end of the longest path through it
	expect   time.Duration // of itself; 0: unknown

	batch int       // that it waits in, when it asks for devices
	size  int       // its place in the batch: devices it asks for, 0 in a batch of one moment
	ends  time.Time // expected; zero when unknown; set at its start
}

// before is the order of the queue: devices are the scarcest, so what asks for them comes first, batch by batch; the rest
// by the longest path.
func (c *claim) before(o *claim) int {
	return cmp.Or(cmp.Compare(c.batch, o.batch), cmp.Compare(c.size, o.size), c.later(o), cmp.Compare(o.rank, c.rank))
}

// later compares releases, which count among stages on devices only.
func (c *claim) later(o *claim) int {
	if c.need.gpus == 0 {
		return 0
	}
	return cmp.Compare(c.released, o.released)
}

// schedule decides who starts. The first of the queue starts as soon as it fits. While it does not, it has a reservation
// for the moment at which it will, as far as expectations go, and later ones may start only if they do not move that
// moment. Stages on devices are served in batches: what is released while one is served makes up the next, small ones
// first, so that the machine is drained for gangs once in a batch and not for each. What is released at one moment onto
// an empty queue is a batch by itself, in the order of the longest path.
//
// So a gang waits for its own batch and the one before at most, whatever stream of small ones follows; and no stage on
// devices is overtaken by one that was released later and asks for as many or more.
type schedule struct {
	free  share
	queue []*claim // in the order of before; equals as they came
	held  []*claim // of what runs
	taken share    // of free, by other runs, for nobody knows how long

	batch  int // the newest
	moment int // at which the newest was opened; only those of the same moment may join when it was opened onto an empty queue
	alone  bool
}

// noDevices is the batch of what asks for none: after all others.
const noDevices = math.MaxInt

// enter finds the batch of a claim.
func (s *schedule) enter(c *claim) {
	switch {
	case c.need.gpus == 0:
		c.batch = noDevices
		return
	case len(s.queue) == 0 || s.queue[0].batch == noDevices:
		s.batch, s.moment, s.alone = s.batch+1, c.released, true
	case s.alone && s.moment == c.released:
	case s.queue[0].batch == s.batch: // it is being served
		s.batch, s.alone = s.batch+1, false
	}
	c.batch = s.batch
	if !s.alone {
		c.size = c.need.gpus
	}
}

// add puts a claim in its place.
func (s *schedule) add(c *claim) {
	s.enter(c)
	at, _ := slices.BinarySearchFunc(s.queue, c, func(q, c *claim) int { return cmp.Or(q.before(c), -1) }) // after its equals
	s.queue = slices.Insert(s.queue, at, c)
}

// find returns where the first claim of the queue stands that does not come before c.
func (s *schedule) find(c *claim) int {
	at, _ := slices.BinarySearchFunc(s.queue, c, (*claim).before)
	return at
}

// remove takes a claim off the queue, if it is there.
func (s *schedule) remove(c *claim) {
	for at := s.find(c); at < len(s.queue) && s.queue[at].before(c) == 0; at++ {
		if s.queue[at] == c {
			s.queue = slices.Delete(s.queue, at, at+1)
			return
		}
	}
}

// next takes the next claim that may start now off the queue and gives it its share; nil when none may.
func (s *schedule) next(now time.Time) *claim {
	var reserved *reservation
	free := s.free.minus(s.taken)
	smallest := max(0, free.gpus) + 1 // devices that one which has been passed over asks for
	for i := 0; i < len(s.queue) && free.cpus > 0; i++ {
		c := s.queue[i]
		if c.need.gpus > 0 && smallest <= 1 { // nor may any other on devices
			i = s.find(&claim{batch: noDevices, rank: math.MaxInt64}) - 1
			continue
		}
		overtakes := c.need.gpus > 0 && c.need.gpus >= smallest
		if !overtakes && c.need.fits(free) && reserved.allows(c, now) {
			s.queue = slices.Delete(s.queue, i, i+1)
			s.free = s.free.minus(c.need)
			if c.expect > 0 {
				c.ends = now.Add(c.expect)
			}
			s.held = append(s.held, c)
			return c
		}
		if reserved == nil {
			reserved = s.reserve(c, now)
		}
		if c.need.gpus > 0 {
			smallest = min(smallest, c.need.gpus)
		}
	}
	return nil
}

// putBack undoes next.
func (s *schedule) putBack(c *claim) {
	s.release(c)
	s.queue = slices.Insert(s.queue, s.find(c), c)
}

// release gives back what a claim held.
func (s *schedule) release(c *claim) {
	if i := slices.Index(s.held, c); i >= 0 {
		s.held = slices.Delete(s.held, i, i+1)
		s.free = s.free.plus(c.need)
	}
}

// reservation is for the first of the queue that does not fit.
type reservation struct {
	at    time.Time // when it will; zero when nobody knows
	spare share     // what is left beside it then
}

// reserve finds the earliest moment at which c fits when everything that runs ends as expected. What is overdue counts
// as ending now, what has no expectation as ending last.
func (s *schedule) reserve(c *claim, now time.Time) *reservation {
	running := append(slices.Clone(s.held), &claim{need: s.taken})
	slices.SortFunc(running, func(a, b *claim) int {
		if a.ends.IsZero() || b.ends.IsZero() {
			return cmp.Compare(zeroLast(a.ends), zeroLast(b.ends))
		}
		return a.ends.Compare(b.ends)
	})
	free := s.free.minus(s.taken)
	for _, r := range running {
		free = free.plus(r.need)
		if c.need.fits(free) {
			at := r.ends
			if !at.IsZero() && at.Before(now) {
				at = now
			}
			return &reservation{at: at, spare: free.minus(c.need)}
		}
	}
	return &reservation{spare: free.minus(c.need)}
}

func zeroLast(t time.Time) int {
	if t.IsZero() {
		return 1
	}
	return 0
}

// allows says whether c may start before the reserved moment: it ends by then, or leaves enough beside the reservation.
func (r *reservation) allows(c *claim, now time.Time) bool {
	if r == nil {
		return true
	}
	if c.expect > 0 && !r.at.IsZero() && !now.Add(c.expect).After(r.at) {
		return true
	}
	return c.need.fits(r.spare)
}
