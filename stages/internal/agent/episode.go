package agent

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/environment"
	"rcgrpo/stages/internal/serve"
	"rcgrpo/stages/rl"
)

// episode records the replies of the policy to one agent.
type episode struct {
	gateway *Gateway
	ask     rl.Rollout
	offer   *environment.Offer
	tools   http.Handler  // of the offer
	answers chan struct{} // of them: two at a time, because each is in memory, often several times, until it is read
	policy  *serve.Server

	ctx     context.Context // ends with the episode
	cancel  context.CancelFunc
	pending sync.WaitGroup // requests

	mu       sync.Mutex
	closed   bool
	requests int
	left     atomic.Int64 // bytes of its replies, which may belong to many contexts
	limited  bool         // more requests or bytes than the limits of the stage allow
	uses     map[string]int
	segments []*segment // in the order of their first replies
	text     string     // of the last reply
	failure  error      // of the policy
}

// segment is a sequence of tokens: prompts each of which continues the reply before it.
type segment struct {
	rl.Segment
	conversation *chat.Conversation // before the last reply; nil if its prompt was a text
	turns        int                // of the conversation that are in Messages
	users        int                // those of them that are of the user
}

// serve answers a request of the agent until the episode ends.
func (e *episode) serve(h http.Handler, w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		http.Error(w, "the episode has ended", http.StatusGone)
		return
	}
	e.pending.Add(1)
	e.mu.Unlock()
	defer e.pending.Done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	answered, cut := make(chan struct{}), make(chan bool, 1)
	stop := context.AfterFunc(e.ctx, func() {
		cancel()
		select {
		case <-answered:
			cut <- false
		case <-time.After(time.Second): // for a body that never comes, or an answer that no one reads
			control := http.NewResponseController(w)
			_, _ = control.SetReadDeadline(time.Now()), control.SetWriteDeadline(time.Now())
			cut <- true
		}
	})
	h.ServeHTTP(w, r.WithContext(ctx))
	close(answered)
	if !stop() && <-cut { // an expired deadline would cancel the next request of the connection too
		panic(http.ErrAbortHandler)
	}
}

// close ends the requests that an agent left behind.
func (e *episode) close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	e.pending.Wait()
}

// stream names the random numbers of the next reply to a prompt: equal prompts of an episode are numbered.
func (e *episode) stream(prompt []int32) (rl.Stream, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests++
	if most := 2 * e.gateway.Policy.Limits.Steps; most > 0 && e.requests > most || e.left.Load() < 0 || e.limited {
		e.limited = true
		return 0, fmt.Errorf("the episode has had its %d requests, twice limits { steps }, or the bytes of its replies", most)
	}
	name := make([]byte, 0, 4*len(prompt))
	for _, id := range prompt {
		name = binary.LittleEndian.AppendUint32(name, uint32(id))
	}
	e.gateway.sampling.Add(1)
	e.uses[string(name)]++
	return rl.Requested(e.gateway.Policy.Seed, e.ask, prompt, e.uses[string(name)]-1), nil
}

// sampled records a reply. It continues the longest sequence that its prompt begins with.
func (e *episode) sampled(r serve.Reply) {
	e.gateway.sampling.Add(-1)
	if r.Changed {
		e.gateway.changed.Add(1)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.Err != nil {
		e.failure = r.Err
	}
	if r.Err != nil || len(r.Draws) == 0 {
		return
	}
	var s *segment
	for _, o := range e.segments {
		if n := len(o.IDs); n <= len(r.Prompt) && slices.Equal(o.IDs, r.Prompt[:n]) && (s == nil || n > len(s.IDs)) {
			s = o
		}
	}
	if s == nil {
		s = &segment{}
		e.segments = append(e.segments, s)
	}
	given := r.Prompt[len(s.IDs):]
	s.IDs = append(s.IDs, given...)
	s.Mask = append(s.Mask, make([]bool, len(given))...)
	s.Logp = append(s.Logp, make([]float32, len(given))...)
	for _, d := range r.Draws {
		s.IDs, s.Mask, s.Logp = append(s.IDs, d.Token), append(s.Mask, true), append(s.Logp, d.Logp)
	}
	if s.conversation = r.Conversation; s.conversation != nil {
		s.add(s.conversation.Turns)
	}
	m := rl.Message{Role: rl.RoleAssistant, Text: r.Text, From: len(r.Prompt), To: len(s.IDs),
		Turn: max(0, s.users-1), Malformed: r.Malformed}
	for _, call := range r.Calls {
		m.Calls = append(m.Calls, call.Text)
	}
	s.Messages = append(s.Messages, m)
	s.turns++
	if e.text = r.Text; r.Calls != nil {
		e.text = ""
	}
}

// record adds the sequences to a trajectory: the first one, then the others in the order of their ids, which does not
// depend on the order of concurrent requests. The episode is closed.
func (e *episode) record(t *rl.Trajectory) {
	if len(e.segments) == 0 {
		return
	}
	first := e.segments[0]
	if c := first.conversation; c != nil {
		if t.System = ""; c.System != nil {
			t.System = *c.System
		}
		t.Tools, t.Documents = nil, nil
		for _, tool := range c.Tools {
			t.Tools, t.Documents = append(t.Tools, tool.Name), append(t.Documents, tool.JSON)
		}
	}
	t.Messages, t.IDs, t.Mask, t.Logp = first.Messages, first.IDs, first.Mask, first.Logp
	slices.SortStableFunc(e.segments[1:], func(a, b *segment) int { return slices.Compare(a.IDs, b.IDs) })
	for _, s := range e.segments[1:] {
		t.Segments = append(t.Segments, s.Segment)
	}
}

// add adds the turns of a conversation since the last reply. Results in a row are one message.
func (s *segment) add(turns []chat.Turn) {
	for at := min(s.turns, len(turns)); at < len(turns); at++ {
		t := turns[at]
		if t.Role == rl.RoleTool {
			var results []string
			if last := len(s.Messages) - 1; last >= 0 && s.Messages[last].Role == rl.RoleTool {
				results = slices.Clip(s.Messages[last].Results())
				s.Messages = s.Messages[:last]
			}
			for results = append(results, t.Text); at+1 < len(turns) && turns[at+1].Role == rl.RoleTool; at++ {
				results = append(results, turns[at+1].Text)
			}
			s.Messages = append(s.Messages, rl.ToolMessage(max(0, s.users-1), results))
			continue
		}
		if t.Role == rl.RoleUser {
			s.users++
		}
		m := rl.Message{Role: t.Role, Text: t.Text, Turn: max(0, s.users-1)}
		for _, call := range t.Calls { // of a reply that was not sampled here
			m.Calls = append(m.Calls, call.Python())
		}
		s.Messages = append(s.Messages, m)
	}
	s.turns = len(turns)
}
