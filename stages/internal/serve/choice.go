package serve

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// choice is one reply in progress. add is called by the batcher, take by the handler.
type choice struct {
	s       *Server
	q       *request
	index   int
	tools   bool          // the reply may contain calls
	news    chan struct{} // shared by the choices of a request
	prompt  []int32
	stream  rl.Stream // of its random numbers
	room    int       // tokens that the reply may have
	number  int       // among all choices of the request
	written string    // the prompt, if it was a text
	echo    int       // bytes of the prompt, if the reply begins with it
	echoed  []rl.Draw // scored ids of the prompt
	cached  int
	longest int  // bytes of the longest stop string
	opened  bool // the first event was sent
	offset  int  // characters whose logprobs were written

	mu     sync.Mutex
	text   []byte
	sent   int // bytes of text that take has returned
	draws  []rl.Draw
	shown  string // text that take has returned before the end
	given  int    // draws that take has returned
	ended  bool
	finish string // "" while it is sampled
	reason any    // stop string or stop_token_id that ended it
	err    error
}

// sample samples the reply.
func (c *choice) sample(ctx context.Context) {
	score := 0
	if c.echo > 0 && c.q.logprobs {
		score = len(c.prompt) - 1
	}
	out, err := c.s.Batcher.Sample(ctx, rl.Query{IDs: c.prompt, Temperature: c.q.temperature, TopP: c.q.topP,
		Stream: c.stream, Top: c.q.top, Max: c.room, Score: score, Last: c.add})
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.signal()
	c.ended, c.err, c.echoed, c.cached = true, err, out.Scores, out.Cached
	if c.finish == "" {
		c.finish = "length"
	}
}

// textBytes returns the bytes of a text and of the names of logprobs, without nameOfLogprob for each.
func (c *choice) textBytes(text int, draws ...[]rl.Draw) int {
	if !c.q.logprobs {
		return text
	}
	names := 0
	for _, d := range slices.Concat(draws...) {
		names += len(c.s.Tokenizer.Bytes(d.Token)) - nameOfLogprob
		for _, r := range d.Top {
			names += len(c.s.Tokenizer.Bytes(r.Token)) - nameOfLogprob
		}
	}
	return text + max(0, names)
}

func (c *choice) signal() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// add appends a token and reports whether the reply ends with it.
func (c *choice) add(d rl.Draw) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.signal()
	c.draws = append(c.draws, d)
	switch {
	case slices.Contains(c.q.stopIDs, d.Token):
		c.finish, c.reason = "stop", d.Token
		return true
	case c.s.Codec.Stop(d.Token):
		c.finish = "stop"
		return true
	case c.q.skipSpecial && c.s.Tokenizer.Special(d.Token):
		return false
	}
	from, bytes := max(0, len(c.text)-c.longest+1), c.s.Tokenizer.Bytes(d.Token)
	c.text = append(c.text, bytes...)
	at := -1
	for _, stop := range c.q.stops {
		if i := strings.Index(string(c.text[from:]), stop); i >= 0 && (at < 0 || from+i < at) {
			at, c.reason = from+i, stop
		}
	}
	switch {
	case at >= 0:
		c.text, c.finish = c.text[:at], "stop"
	case len(c.text) > rl.LongestReply, c.s.Sampling != nil && c.s.Sampling.exceeded(len(bytes)):
		c.finish = "length"
	}
	return c.finish != ""
}

// exceeded counts the bytes of a token and reports whether the replies of the episode are too long.
func (s *Sampling) exceeded(bytes int) bool {
	more := max(0, bytes-rl.BytesPerToken)
	return more > 0 && s.Left.Add(-int64(more)) < 0
}

// piece is a part of a reply that a stream may send.
type piece struct {
	text  string
	draws []rl.Draw
	ended bool
	err   error
}

// take returns the text that was added since the last call, as far as it is final.
func (c *choice) take() piece {
	c.mu.Lock()
	defer c.mu.Unlock()
	end := len(c.text)
	if !c.ended {
		end = max(c.sent, c.certain())
	}
	p := piece{token.Text(c.text[c.sent:end]), c.draws[c.given:], c.ended, c.err}
	if p.text == "" && !c.ended {
		return piece{}
	}
	c.sent, c.given = end, len(c.draws)
	if !c.ended {
		c.shown += p.text
	}
	return p
}

// certain returns the length of the text without an incomplete character at its end, and without a text in which a stop
// string or a call may begin.
func (c *choice) certain() int {
	end := len(c.text)
	for n := 1; n <= utf8.UTFMax && n <= end; n++ {
		if tail := c.text[end-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				end -= n
			}
			break
		}
	}
	text, held := string(c.text[:end]), 0
	for _, stop := range c.q.stops {
		held = max(held, chat.Partial(text, stop))
	}
	text = text[:end-held]
	if c.tools {
		return min(len(text), c.s.Codec.Visible(text))
	}
	return len(text)
}

// run samples the choices of a request. each, if not nil, is called with the pieces of a stream.
func (s *Server) run(q *request, choices []*choice, each func(c *choice, p piece) error) error {
	if err := s.name(q, choices); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(q.ctx)
	news := make(chan struct{}, 1)
	var sampling sync.WaitGroup
	for _, c := range choices {
		c.news = news
		for _, stop := range q.stops {
			c.longest = max(c.longest, len(stop))
		}
		sampling.Go(func() { c.sample(ctx) })
	}
	defer func() { // no slot is in use when the count of replies falls
		cancel()
		sampling.Wait()
		for _, c := range choices {
			s.record(c)
		}
	}()
	if each != nil {
		go func() { // a client that takes a minute for each event would hold its replies until the timeout
			sampling.Wait()
			select {
			case <-q.ctx.Done():
			case <-time.After(s.unread):
				q.cancel()
			}
		}()
		if err := stream(choices, news, each); err != nil {
			return err
		}
	}
	sampling.Wait()
	for _, c := range choices {
		if c.err != nil {
			return c.err
		}
	}
	for _, c := range choices {
		if err := s.Log.add(c); err != nil {
			s.Logf("log of conversations: %v", err)
		}
	}
	return nil
}

// name names the random numbers of the choices.
func (s *Server) name(q *request, choices []*choice) error {
	for i, c := range choices {
		c.stream = rl.Serving(q.seed, c.index)
		if s.Sampling == nil {
			continue
		}
		c.room = min(c.room, s.Sampling.Reply)
		var err error
		if c.stream, err = s.Sampling.Stream(c.prompt); err != nil {
			for _, named := range choices[:i] {
				s.record(named)
			}
			return &apiError{status: http.StatusTooManyRequests, Type: "rate_limit_error", Code: "episode_over",
				Message: err.Error()}
		}
	}
	return nil
}

// record reports a choice to the episode that the client plays.
func (s *Server) record(c *choice) {
	if s.Sampling == nil {
		return
	}
	r := Reply{Prompt: c.prompt, Conversation: c.q.conversation, Text: token.Text(c.text), Changed: c.q.changed}
	if c.err == nil {
		r.Draws = c.draws
	} else if c.q.ctx.Err() == nil {
		r.Err = c.err
	}
	if c.tools && c.err == nil {
		p := s.Codec.Parse(ids(c.draws))
		if r.Malformed = p.Malformed; p.Calls != nil {
			r.Text, r.Calls = p.Text, p.Calls
		}
	}
	s.Sampling.Sampled(r)
}

// stream calls each with the pieces of the choices until all have ended.
func stream(choices []*choice, news <-chan struct{}, each func(c *choice, p piece) error) error {
	for open := choices; len(open) > 0; {
		<-news
		var rest []*choice
		for _, c := range open {
			p := c.take()
			if p.err != nil {
				return p.err
			}
			if p.text != "" || p.ended {
				if err := each(c, p); err != nil {
					return err
				}
			}
			if !p.ended {
				rest = append(rest, c)
			}
		}
		open = rest
	}
	return nil
}

// visible returns draws without a final one that ended the reply.
func (c *choice) visible(draws []rl.Draw) []rl.Draw {
	if n := len(draws); n > 0 {
		if last := draws[n-1].Token; c.s.Codec.Stop(last) || slices.Contains(c.q.stopIDs, last) {
			return draws[:n-1]
		}
	}
	return draws
}

// ids returns all sampled ids.
func ids(draws []rl.Draw) []int32 {
	out := make([]int32, len(draws))
	for i, d := range draws {
		out[i] = d.Token
	}
	return out
}

// spell returns a token as it is written in logprobs.
func (s *Server) spell(q *request, id int32) string {
	if q.tokensAsIDs {
		return "token_id:" + strconv.Itoa(int(id))
	}
	return token.Text(s.Tokenizer.Bytes(id))
}
