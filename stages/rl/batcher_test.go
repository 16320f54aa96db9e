package rl

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rcgrpo/internal/must"
)

// counter is a sampler whose next token is the length of the sequence plus the last id. It records its batches.
type counter struct {
	slots   [][]int32
	batches [][]int // new tokens of each request
	begin   func(ctx context.Context, batch int) error
}

func (c *counter) Slots() int     { return len(c.slots) }
func (c *counter) MaxLen() int    { return 5000 }
func (c *counter) Cut(i, n int)   { c.slots[i] = c.slots[i][:n] }
func (c *counter) Release() error { return nil }
func (c *counter) Next(ctx context.Context, rs []Request) ([]Draw, error) {
	if c.begin != nil {
		if err := c.begin(ctx, len(c.batches)); err != nil {
			return nil, err
		}
	}
	draws := make([]Draw, len(rs))
	var sizes []int
	for i, r := range rs {
		n := len(r.Feed)
		if len(c.slots[r.Slot]) == 0 {
			most := 0
			for _, other := range c.slots {
				most = max(most, CommonPrefix(other, r.Feed[:n-1]))
			}
			n -= most
		}
		sizes = append(sizes, n)
		c.slots[r.Slot] = append(slices.Clone(c.slots[r.Slot]), r.Feed...)
		seq := c.slots[r.Slot]
		draws[i] = Draw{Token: int32(len(seq)) + seq[len(seq)-1], Logp: float32(r.U)}
		if r.Given != nil {
			draws[i] = Draw{Token: *r.Given, Logp: float32(len(seq))}
		}
	}
	c.batches = append(c.batches, sizes)
	return draws, nil
}

func newCounter(slots int) *counter { return &counter{slots: make([][]int32, slots)} }

// prompt returns n ids that start with those of another prompt of the same number.
func prompt(number, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(number*100_000 + i)
	}
	return ids
}

func sampleAll(t *testing.T, b *Batcher, queries ...Query) []Sample {
	t.Helper()
	out := make([]Sample, len(queries))
	var all sync.WaitGroup
	for i, q := range queries {
		all.Go(func() { out[i] = must.Get(b.Sample(t.Context(), q))(t) })
	}
	all.Wait()
	return out
}

func TestLongPromptIsReadInChunksBesideOtherReplies(t *testing.T) {
	c := newCounter(2)
	b := NewBatcher(c)
	started := make(chan bool)
	c.begin = func(_ context.Context, batch int) error {
		if batch == 2 {
			close(started) // the second query arrives during this batch at the latest
		}
		return nil
	}
	done := make(chan Sample)
	go func() { done <- must.Get(b.Sample(t.Context(), Query{IDs: prompt(1, 3), Max: 2000}))(t) }()
	<-started
	sampleAll(t, b, Query{IDs: prompt(2, 1500), Max: 1})
	<-done
	var read []int
	for _, sizes := range c.batches {
		if sizes = slices.DeleteFunc(slices.Clone(sizes), func(n int) bool { return n <= 3 }); len(sizes) > 0 {
			read = append(read, sizes...)
		}
	}
	if !slices.Equal(read, []int{512, 512, 476}) {
		t.Errorf("chunks of a prompt of 1500: got %v", read)
	}
}

func TestSharedPrefixIsReadOnce(t *testing.T) {
	for _, shared := range []int{40, 600, 1400} {
		c := newCounter(8)
		var queries []Query
		for member := range 6 {
			queries = append(queries, Query{IDs: append(prompt(1, shared), int32(member), 7), Max: 3})
		}
		got := sampleAll(t, NewBatcher(c), queries...)
		read := 0
		for _, sizes := range c.batches {
			for _, n := range sizes {
				read += n
			}
		}
		// A sampler shares prefixes within a batch; this one does not, so a short prefix may be read again.
		if want := shared + 6*2 + 6*2; read > want && shared > promptChunk {
			t.Errorf("a shared prefix of %d: %d tokens read, want %d", shared, read, want)
		}
		for i, s := range got {
			last := int32(shared+2) + 7
			if len(s.Draws) != 3 || s.Draws[0].Token != last || s.Draws[1].Token != last+int32(shared+3) {
				t.Errorf("query %d drew %+v", i, s.Draws)
			}
		}
	}
}

func TestContinuationTakesTheSlotOfItsSequence(t *testing.T) {
	c := newCounter(3)
	b := NewBatcher(c)
	sequences := make([][]int32, 3)
	for round := range 4 {
		for i := range sequences {
			if round == 0 {
				sequences[i] = prompt(i+1, 100)
			}
			s := must.Get(b.Sample(t.Context(), Query{IDs: sequences[i], Max: 2}))(t)
			if want := max(0, len(sequences[i])-2); round > 0 && s.Cached != want {
				t.Errorf("round %d, sequence %d: %d ids were in the slot, want %d", round, i, s.Cached, want)
			}
			for _, d := range s.Draws {
				sequences[i] = append(sequences[i], d.Token)
			}
			sequences[i] = append(sequences[i], 7)
		}
	}
	s := must.Get(b.Sample(t.Context(), Query{IDs: append(slices.Clone(sequences[1][:50]), 1, 2), Max: 1}))(t)
	if s.Cached != 50 {
		t.Errorf("a branch of a sequence found %d ids in a slot, want 50", s.Cached)
	}
}

func TestScoredIDsHaveTheirLogprobs(t *testing.T) {
	c := newCounter(1)
	b := NewBatcher(c)
	for range 2 { // the second query finds its prefix in the slot
		s := must.Get(b.Sample(t.Context(), Query{IDs: []int32{5, 6, 7, 8}, Score: 3, Max: 1}))(t)
		var got []string
		for _, d := range s.Scores {
			got = append(got, fmt.Sprint(d.Token, " after ", d.Logp))
		}
		if text := strings.Join(got, ", "); text != "6 after 1, 7 after 2, 8 after 3" || len(s.Draws) != 1 {
			t.Errorf("got %s and %d draws", text, len(s.Draws))
		}
	}
}

// A query that is cancelled frees its slot after the current batch. A batch whose queries are all cancelled is
// cancelled itself. Other queries continue, and a waiting one takes the slot.
func TestCancelledQueryFreesItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounter(1)
		c.begin = func(ctx context.Context, _ int) error {
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		b := NewBatcher(c)
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		begin := time.Now()
		waited := make(chan Sample)
		go func() {
			time.Sleep(time.Millisecond)
			waited <- must.Get(b.Sample(t.Context(), Query{IDs: []int32{9}, Max: 1}))(t)
		}()
		_, err := b.Sample(ctx, Query{IDs: []int32{1}, Max: 1000})
		if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took != 2500*time.Millisecond {
			t.Errorf("got %v after %v, want the end of the context", err, took)
		}
		if s := <-waited; len(s.Draws) != 1 || time.Since(begin) != 3500*time.Millisecond {
			t.Errorf("the waiting query drew %v after %v, want one token after 3.5 s", s.Draws, time.Since(begin))
		}
	})
}

func TestBatcherReportsErrorsToEveryQueryOfTheBatch(t *testing.T) {
	c := newCounter(2)
	broken := errors.New("out of memory")
	c.begin = func(context.Context, int) error { return broken }
	b := NewBatcher(c)
	if _, err := b.Sample(t.Context(), Query{IDs: []int32{1}, Max: 1}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	c.begin = nil
	must.Get(b.Sample(t.Context(), Query{IDs: []int32{1}, Max: 1}))(t)
	for _, q := range []Query{{Max: 1}, {IDs: []int32{1}}, {IDs: prompt(1, 5000), Max: 1},
		{IDs: []int32{1}, Max: 1, Score: 1}} {
		if _, err := b.Sample(t.Context(), q); err == nil {
			t.Errorf("%d ids, at most %d tokens, %d scored: no error", len(q.IDs), q.Max, q.Score)
		}
	}
}

// limited is a counter whose slots share some tokens.
type limited struct {
	*counter
	tokens int
}

func (l *limited) Room() int {
	free := l.tokens
	for _, ids := range l.slots {
		free -= len(ids)
	}
	return free
}

func (l *limited) Next(ctx context.Context, rs []Request) ([]Draw, error) {
	need := 0
	for _, r := range rs {
		need += len(r.Feed)
	}
	if l.Room() < need {
		return nil, fmt.Errorf("decode: %w", ErrNoRoom)
	}
	return l.counter.Next(ctx, rs)
}

// Eight conversations of three replies grow out of the tokens that their slots share. Each gets the draws and scores
// that it gets with enough of them, whatever was parked and fed again.
func TestParkedQueriesGetTheSameDraws(t *testing.T) {
	play := func(s Sampler) (all []Sample) {
		b := NewBatcher(s)
		out := make([][]Sample, 8)
		var players sync.WaitGroup
		for i := range out {
			players.Go(func() {
				seat := &Seat{}
				defer seat.Close()
				ids := prompt(i+1, 100+40*i)
				for reply := range 3 {
					q := Query{IDs: ids, Max: 300 + 10*i, Stream: Stream(i), Seat: seat, Score: 2 * reply}
					sample := must.Get(b.Sample(t.Context(), q))(t)
					sample.Cached = 0
					out[i] = append(out[i], sample)
					for _, d := range sample.Draws {
						ids = append(ids, d.Token)
					}
					ids = append(ids, 7, 8)
				}
			})
		}
		players.Wait()
		return slices.Concat(out...)
	}
	read := func(c *counter) (n int) {
		for _, sizes := range c.batches {
			for _, size := range sizes {
				n += size
			}
		}
		return n
	}
	whole, few := newCounter(8), newCounter(8)
	want := play(whole)
	got := play(&limited{few, 3000})
	if !reflect.DeepEqual(got, want) {
		t.Error("parked queries have other draws")
	}
	if again := read(few) - read(whole); again < 500 {
		t.Errorf("%d tokens were fed again, want parked queries", again)
	}
}

func TestAQueryThatNeedsMoreThanAllTokensFails(t *testing.T) {
	b := NewBatcher(&limited{newCounter(2), 50})
	must.Get(b.Sample(t.Context(), Query{IDs: prompt(1, 40), Max: 1}))(t)
	must.Get(b.Sample(t.Context(), Query{IDs: prompt(2, 45), Max: 1}))(t) // in place of the first
	if _, err := b.Sample(t.Context(), Query{IDs: prompt(3, 51), Max: 1}); !errors.Is(err, ErrNoRoom) {
		t.Errorf("got %v, want %v", err, ErrNoRoom)
	}
}
