package rl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
)

// Batcher samples replies for many goroutines in shared batches. It owns its sampler. A query takes a free slot
// whose whole sequence it continues, otherwise the slot that was unused for longest; a prefix that another slot
// holds is copied, and one that another query is reading is awaited.
//
// Slots may share fewer tokens than all sequences need. Then a query starts while there is room for it, and if the
// others grow out of theirs, the shortest sequence is parked: its slot is emptied, and its tokens are fed again later.
// A draw depends on its position only, so the query gets the same tokens.
//
// Whether a sample depends on the other queries is a property of the sampler; see lm.Decoder.
type Batcher struct {
	sampler Sampler
	room    func() int // tokens that all slots together can still take; nil: all that they need

	mu      sync.Mutex
	ended   *sync.Cond // the loop ended
	running bool       // the loop runs in its goroutine
	cancel  context.CancelFunc
	slots   []slot
	waiting []*work // without a slot, in the order of arrival
	active  []*work
	clock   int
	full    bool // a query waits for room, so those behind it wait too
}

// slot is the batcher's record of a slot of the sampler.
type slot struct {
	held  []int32 // tokens of its sequence
	taken bool    // by a query or by an open Seat
	used  int     // clock of its last query
}

// promptChunk is the number of new prompt tokens that a query adds to a batch, so that a long prompt delays the
// replies of other queries only a little.
const promptChunk = 512

// startRoom is the number of tokens that must be free beside those of a query when it starts next to others.
const startRoom = 1024

// leastCopied is the minimal length of a prefix that is worth waiting for.
const leastCopied = 8

// Query asks for the continuation of a sequence.
type Query struct {
	IDs         []int32 // the whole sequence, at least one id; unchanged until Sample returns
	Temperature float64 // 0 is greedy
	TopP        float64 // 0 or 1 keeps the whole vocabulary
	Stream      Stream  // its number at the position of a token in the sequence decides the draw
	Top         int     // alternatives per token
	Max         int     // tokens to sample, at least 1; fewer if the sampler's MaxLen is reached
	Score       int     // the last Score ids of IDs are scored one by one: Sample.Scores

	// Last, if not nil, is called with each drawn token in order and reports whether the reply ends with it. It
	// runs between two batches and must return quickly.
	Last func(Draw) bool

	Seat *Seat // nil: the query takes any slot
}

// Sample is a sampled reply.
type Sample struct {
	Draws  []Draw
	Scores []Draw // Draw.Token is an id of the query
	Cached int    // ids of the query that were in a slot already
}

// Seat reserves a slot for the queries of one conversation, from its first query until Close.
type Seat struct {
	batcher *Batcher
	slot    int
}

// limitedSampler is a Sampler whose slots share memory. Room returns the tokens that fit beside those of now.
type limitedSampler interface{ Room() int }

// NewBatcher returns a batcher of an empty sampler.
func NewBatcher(s Sampler) *Batcher {
	b := &Batcher{sampler: s, slots: make([]slot, max(0, s.Slots()))}
	b.ended = sync.NewCond(&b.mu)
	if limited, ok := s.(limitedSampler); ok {
		b.room = limited.Room
	}
	return b
}

// Slots returns the number of queries that are sampled at once.
func (b *Batcher) Slots() int { return len(b.slots) }

// MaxLen returns the length of the longest sequence, in tokens.
func (b *Batcher) MaxLen() int { return b.sampler.MaxLen() }

// work is a query in progress.
type work struct {
	Query
	ctx  context.Context
	seq  []int32 // the query's ids, then the drawn ones
	slot int
	fed  int // tokens of the sequence that the slot holds
	seen int // tokens that were fed before the query was parked, whose draws are known
	copy int // tokens that the sampler copies from another slot at the first request
	out  Sample
	err  error
	done chan struct{}
}

// Sample continues a sequence. After a cancelled context it returns once the slot is free, at the latest after the
// current batch. The error of a batch is that of all its queries.
func (b *Batcher) Sample(ctx context.Context, q Query) (Sample, error) {
	if n := len(q.IDs); n < 1 || n >= b.MaxLen() || q.Max < 1 || q.Score >= n {
		return Sample{}, fmt.Errorf("sample at most %d tokens after %d, with %d scored: want at least one token, room for "+
			"one in a sequence of %d, and fewer scored tokens", q.Max, n, q.Score, b.MaxLen())
	}
	w := &work{Query: q, ctx: ctx, seq: slices.Clip(q.IDs), done: make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, w)
	b.start()
	b.mu.Unlock()
	select {
	case <-w.done:
	case <-ctx.Done():
		b.mu.Lock()
		if b.cancel != nil && !slices.ContainsFunc(b.active, func(w *work) bool { return w.ctx.Err() == nil }) {
			b.cancel()
		}
		b.start()
		b.mu.Unlock()
		<-w.done
	}
	return w.out, w.err
}

// Close frees the slot of a conversation. Its tokens remain for queries that continue them.
func (s *Seat) Close() {
	if s.batcher == nil {
		return
	}
	b := s.batcher
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slots[s.slot].taken = false
	s.batcher = nil
	b.start()
}

// Release waits for the current batches, empties all slots and frees their memory. Call it before the weights of
// the sampler's model change. No query may be in progress.
func (b *Batcher) Release() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.running {
		b.ended.Wait()
	}
	for i := range b.slots {
		b.slots[i].held, b.slots[i].used = nil, 0
	}
	return b.sampler.Release()
}

// start runs the loop if it does not run.
func (b *Batcher) start() {
	if !b.running && len(b.waiting) > 0 {
		b.running = true
		go b.loop()
	}
}

// loop samples batches until no query can continue.
func (b *Batcher) loop() {
	for {
		ctx, cancel := context.WithCancel(context.Background())
		batch, requests := b.next(cancel)
		if len(batch) == 0 {
			cancel()
			return
		}
		draws, err := b.sampler.Next(ctx, requests)
		if errors.Is(err, ErrNoRoom) && b.park() {
			cancel()
			continue
		}
		if err == nil && len(draws) != len(requests) {
			err = fmt.Errorf("the sampler returned %d tokens", len(draws))
		}
		if err != nil {
			err = fmt.Errorf("sample a batch of %d: %w", len(requests), err)
		}
		cancel()
		b.deliver(batch, requests, draws, err)
		runtime.Gosched() // most episodes that got their reply join the next batch: 9 % more tokens per batch
	}
}

// next returns the queries of the next batch and their requests. Queries that continue a reply come first, then
// those with several new tokens. Without a query it ends the loop.
func (b *Batcher) next(cancel context.CancelFunc) ([]*work, []Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.full = false
	b.waiting = slices.DeleteFunc(b.waiting, func(w *work) bool {
		if w.ctx.Err() != nil {
			w.end(w.ctx.Err())
		}
		return w.ctx.Err() != nil || b.admit(w)
	})
	batch := slices.Clone(b.active)
	slices.SortFunc(batch, func(x, y *work) int {
		return cmp.Or(min(len(x.feed()), 2)-min(len(y.feed()), 2), x.slot-y.slot)
	})
	requests := make([]Request, len(batch))
	for i, w := range batch {
		requests[i] = w.request()
	}
	b.cancel, b.running = cancel, len(batch) > 0
	if !b.running {
		b.ended.Broadcast()
	}
	return batch, requests
}

// admit gives a query a slot. It returns false if the query must wait, for a slot or for its prefix.
func (b *Batcher) admit(w *work) bool {
	at := -1
	if s := w.Seat; s != nil && s.batcher != nil {
		at = s.slot
	} else if at = b.pick(w.IDs); at < 0 {
		return false
	}
	if b.full = b.full || !b.hasRoom(w, at); b.full {
		return false
	}
	most := w.IDs[:len(w.IDs)-w.Score-1] // the rest is fed for the sake of its draws
	own, other := CommonPrefix(b.slots[at].held, most), 0
	for i := range b.slots {
		other = max(other, CommonPrefix(b.slots[i].held, most))
	}
	if other < own+leastCopied {
		other = 0
	}
	for _, leader := range b.active {
		n := CommonPrefix(leader.IDs[:len(leader.IDs)-leader.Score], most)
		together := leader.fed+other+own == 0 && n <= promptChunk // the sampler computes it once for both
		if n > leader.fed && n >= max(own, other)+leastCopied && !together && leader.fed < len(leader.IDs) {
			return false
		}
	}
	w.slot, w.fed, w.copy = at, own, other
	if other > 0 {
		w.fed = 0
	}
	if w.seen == 0 {
		w.out.Cached = max(own, other)
	}
	b.sampler.Cut(at, w.fed)
	b.clock++
	s := &b.slots[at]
	s.held, s.taken, s.used = s.held[:w.fed], true, b.clock
	if w.Seat != nil {
		w.Seat.batcher, w.Seat.slot = b, at
	}
	b.active = append(b.active, w)
	return true
}

// pick returns the free slot with the longest sequence that ids continue, otherwise the one that was unused for
// longest, or -1 if all are taken.
func (b *Batcher) pick(ids []int32) int {
	best, most := -1, 0
	for i, s := range b.slots {
		if s.taken {
			continue
		}
		whole := 0
		if CommonPrefix(s.held, ids) == len(s.held) {
			whole = len(s.held)
		}
		if best < 0 || whole > most || whole == most && s.used < b.slots[best].used {
			best, most = i, whole
		}
	}
	return best
}

// hasRoom reports whether the slots have room for a query in slot at, beside the queries that are still being fed. For
// that it empties free slots. A query without others always has room.
func (b *Batcher) hasRoom(w *work, at int) bool {
	if b.room == nil || len(b.active) == 0 {
		return true
	}
	need := len(w.seq) - len(b.slots[at].held) + startRoom
	for _, other := range b.active {
		need += len(other.seq) - other.fed
	}
	for i := range b.slots {
		if b.room() >= need {
			return true
		}
		if s := &b.slots[i]; !s.taken && i != at {
			b.empty(i)
		}
	}
	return b.room() >= need
}

func (b *Batcher) empty(slot int) {
	b.slots[slot].held = nil
	b.sampler.Cut(slot, 0)
}

// park empties slots for a batch without room: those that no query reads, otherwise the one with the fewest tokens,
// whose query waits until there is room again. It returns false if there is only one query.
func (b *Batcher) park() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	reads := map[int]*work{}
	for _, w := range b.active {
		reads[w.slot] = w
	}
	emptied := false
	for i, s := range b.slots {
		if reads[i] == nil && len(s.held) > 0 {
			b.empty(i)
			emptied = true
		}
	}
	if emptied || len(b.active) < 2 {
		return emptied
	}
	w := slices.MinFunc(b.active, func(x, y *work) int { return cmp.Or(x.fed-y.fed, y.slot-x.slot) })
	b.empty(w.slot)
	w.seen, w.fed, w.copy = max(w.seen, w.fed), 0, 0
	b.slots[w.slot].taken = w.Seat != nil
	b.active = slices.DeleteFunc(b.active, func(other *work) bool { return other == w })
	b.waiting = append([]*work{w}, b.waiting...)
	return true
}

// feed returns the tokens of the next request.
func (w *work) feed() []int32 {
	end := w.fed + 1
	if known := max(len(w.IDs)-w.Score, w.seen); w.fed < known {
		end = min(known, max(w.fed, w.copy)+promptChunk)
	}
	return w.seq[w.fed:end]
}

func (w *work) request() Request {
	r := Request{Slot: w.slot, Feed: w.feed()}
	switch end := w.fed + len(r.Feed); {
	case end >= len(w.IDs):
		r.Temperature, r.TopP, r.U, r.Top = w.Temperature, w.TopP, w.Stream.At(end), w.Top
	case end >= len(w.IDs)-w.Score:
		r.Given, r.Top = &w.IDs[end], w.Top
	}
	return r
}

// take adds the draw of a request and reports whether the query has ended.
func (w *work) take(fed int, d Draw) bool {
	w.fed += fed
	switch n := len(w.IDs); {
	case w.fed <= w.seen: // known from before it was parked
	case w.fed >= n:
		w.seq = append(w.seq, d.Token)
		w.out.Draws = append(w.out.Draws, d)
		return w.Last != nil && w.Last(d) || len(w.out.Draws) >= w.Max
	case w.fed >= n-w.Score:
		w.out.Scores = append(w.out.Scores, d)
	}
	return false
}

func (w *work) end(err error) {
	w.err = err
	close(w.done)
}

// deliver gives the queries of a batch their draws and frees the slots of those that ended.
func (b *Batcher) deliver(batch []*work, requests []Request, draws []Draw, err error) {
	ended := make([]bool, len(batch))
	if err == nil {
		for i, w := range batch {
			if l := float64(draws[i].Logp); requests[i].Given == nil && (math.IsNaN(l) || math.IsInf(l, 0)) {
				w.err = fmt.Errorf("the policy samples token %d with the logprob %v: its logits are not finite", draws[i].Token, l)
				ended[i] = true
				continue
			}
			ended[i] = w.take(len(requests[i].Feed), draws[i]) || w.fed+1 >= b.MaxLen()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancel = nil
	b.active = b.active[:0]
	for i, w := range batch {
		s := &b.slots[w.slot]
		if err == nil {
			s.held = w.seq[:w.fed]
		}
		gone := w.ctx.Err()
		if !ended[i] && err == nil && gone == nil {
			b.active = append(b.active, w)
			continue
		}
		s.taken = w.Seat != nil
		if ended[i] {
			gone = nil
		}
		w.end(cmp.Or(w.err, gone, err))
	}
}

// CommonPrefix returns the length of the longest common prefix.
func CommonPrefix[E comparable](a, b []E) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// Select returns values[index[i]] for each i, or nil without values.
func Select[T any](values []T, index []int) []T {
	if values == nil {
		return nil
	}
	selected := make([]T, len(index))
	for i, k := range index {
		selected[i] = values[k]
	}
	return selected
}
