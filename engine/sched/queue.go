package sched

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Share is a part of the machine.
type Share struct {
	CPUs, GPUs int
	Memory     int64 // bytes
}

// Plus adds two shares.
func (s Share) Plus(o Share) Share {
	return Share{s.CPUs + o.CPUs, s.GPUs + o.GPUs, s.Memory + o.Memory}
}

// Minus subtracts a share; the result may be negative.
func (s Share) Minus(o Share) Share {
	return Share{s.CPUs - o.CPUs, s.GPUs - o.GPUs, s.Memory - o.Memory}
}

// Fits reports whether free contains s. A resource of which s needs nothing may be overcommitted.
func (s Share) Fits(free Share) bool {
	return (s.CPUs == 0 || s.CPUs <= free.CPUs) && (s.GPUs == 0 || s.GPUs <= free.GPUs) &&
		(s.Memory == 0 || s.Memory <= free.Memory)
}

// Request is a demand for a share of the machine. Next reserves the share, Release frees it.
type Request struct {
	ID       string // chosen by the caller
	Need     Share
	ReadyAt  int           // logical time at which it could start; requests that become ready together share it
	Path     time.Duration // expected time from its start to the end of the longest path through it
	Estimate time.Duration // of its own run time; 0: unknown

	batch int       // of requests for GPUs
	size  int       // order within the batch: number of GPUs, or 0 in a batch that became ready at one time
	ends  time.Time // expected; zero: unknown or not started
}

// compare orders the queue: requests for GPUs first, batch by batch; the others by the longest path.
func (q *Request) compare(o *Request) int {
	readyAt := 0
	if q.Need.GPUs > 0 {
		readyAt = cmp.Compare(q.ReadyAt, o.ReadyAt)
	}
	return cmp.Or(cmp.Compare(q.batch, o.batch), cmp.Compare(q.size, o.size), readyAt, cmp.Compare(o.Path, q.Path))
}

// Queue decides which request starts next. The first request starts as soon as it fits. Until then it has a
// reservation for its expected start, and a later request may start only if it does not delay that start.
//
// Requests for GPUs are served in batches: requests that become ready while one batch is served form the next
// batch, smallest first, so the machine is drained for large requests once per batch. Requests that become ready
// together when no other waits form a batch of their own, ordered by the longest path. A large request therefore
// waits for at most its own batch and the one before, and no request for GPUs is overtaken by one that became
// ready later and needs as many or more.
type Queue struct {
	Free    Share      // of the resources of this run
	Taken   Share      // part of Free that other runs use, for an unknown time
	Waiting []*Request // ordered by compare; equal requests in order of arrival
	running []*Request

	batch    int  // the newest
	openedAt int  // ReadyAt of the request that opened the newest batch
	single   bool // the newest batch opened on an empty queue: only requests with ReadyAt == openedAt join
}

// noGPUs is the batch of requests that need no GPU: after all others.
const noGPUs = math.MaxInt

func (s *Queue) assignBatch(q *Request) {
	switch {
	case q.Need.GPUs == 0:
		q.batch = noGPUs
		return
	case len(s.Waiting) == 0 || s.Waiting[0].batch == noGPUs:
		s.batch, s.openedAt, s.single = s.batch+1, q.ReadyAt, true
	case s.single && s.openedAt == q.ReadyAt:
	case s.Waiting[0].batch == s.batch: // the newest batch is being served
		s.batch, s.single = s.batch+1, false
	}
	q.batch = s.batch
	if !s.single {
		q.size = q.Need.GPUs
	}
}

// Add inserts a request.
func (s *Queue) Add(q *Request) {
	s.assignBatch(q)
	i, _ := slices.BinarySearchFunc(s.Waiting, q, func(w, q *Request) int { return cmp.Or(w.compare(q), -1) })
	s.Waiting = slices.Insert(s.Waiting, i, q)
}

// Remove deletes a waiting request, if it is there.
func (s *Queue) Remove(q *Request) {
	if i := slices.Index(s.Waiting, q); i >= 0 {
		s.Waiting = slices.Delete(s.Waiting, i, i+1)
	}
}

// Next removes the next request that may start now from the queue and reserves its share; nil if none may start.
func (s *Queue) Next(now time.Time) *Request {
	var first *reservation
	free := s.Free.Minus(s.Taken)
	limit := max(0, free.GPUs) + 1 // a request for GPUs must need fewer: the least that a skipped request needs
	for i, q := range s.Waiting {
		if free.CPUs <= 0 {
			break
		}
		if q.Need.GPUs > 0 && limit <= 1 { // no other request for GPUs may start
			continue
		}
		overtakes := q.Need.GPUs > 0 && q.Need.GPUs >= limit
		if !overtakes && q.Need.Fits(free) && first.allows(q, now) {
			s.Waiting = slices.Delete(s.Waiting, i, i+1)
			s.Free = s.Free.Minus(q.Need)
			if q.Estimate > 0 {
				q.ends = now.Add(q.Estimate)
			}
			s.running = append(s.running, q)
			return q
		}
		if first == nil {
			first = s.reserve(q)
		}
		if q.Need.GPUs > 0 {
			limit = min(limit, q.Need.GPUs)
		}
	}
	return nil
}

// PutBack undoes Next.
func (s *Queue) PutBack(q *Request) {
	s.Release(q)
	i, _ := slices.BinarySearchFunc(s.Waiting, q, (*Request).compare)
	s.Waiting = slices.Insert(s.Waiting, i, q)
}

// Release frees the share of a running request.
func (s *Queue) Release(q *Request) {
	if i := slices.Index(s.running, q); i >= 0 {
		s.running = slices.Delete(s.running, i, i+1)
		s.Free = s.Free.Plus(q.Need)
	}
}

// reservation belongs to the first waiting request that does not fit.
type reservation struct {
	at    time.Time // its expected start; zero: unknown
	spare Share     // free beside it from then on
}

// reserve computes the earliest time at which q fits if everything that runs ends as expected. Requests without an
// estimate count as ending last.
func (s *Queue) reserve(q *Request) *reservation {
	running := append(slices.Clone(s.running), &Request{Need: s.Taken})
	slices.SortStableFunc(running, func(a, b *Request) int {
		if a.ends.IsZero() != b.ends.IsZero() {
			return b.ends.Compare(a.ends) // an unknown end is the last
		}
		return a.ends.Compare(b.ends)
	})
	free := s.Free.Minus(s.Taken)
	for _, r := range running {
		free = free.Plus(r.Need)
		if q.Need.Fits(free) {
			return &reservation{at: r.ends, spare: free.Minus(q.Need)}
		}
	}
	return &reservation{spare: free.Minus(q.Need)}
}

// allows reports whether q does not delay the reserved start: it ends before, or fits beside the reservation.
func (r *reservation) allows(q *Request, now time.Time) bool {
	return r == nil || q.Estimate > 0 && !now.Add(q.Estimate).After(r.at) || q.Need.Fits(r.spare)
}
