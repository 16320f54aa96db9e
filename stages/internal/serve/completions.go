package serve

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"

	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// defaultCompletion is the length of a completion without max_tokens, as in OpenAI's API.
const defaultCompletion = 16

type (
	completionChoice struct {
		Index     int       `json:"index"`
		Text      string    `json:"text"`
		Logprobs  *logprobs `json:"logprobs"`
		Finish    *string   `json:"finish_reason"`
		Reason    any       `json:"stop_reason"`
		IDs       []int32   `json:"token_ids,omitempty"`
		PromptIDs []int32   `json:"prompt_token_ids,omitempty"`
	}
	logprobs struct {
		Tokens  []string             `json:"tokens"`
		Logps   []*float32           `json:"token_logprobs"`
		Top     []map[string]float32 `json:"top_logprobs"`
		Offsets []int                `json:"text_offset"`
	}
)

// completions answers /v1/completions.
func (s *Server) completions(w http.ResponseWriter, q *request) error {
	var prompt json.RawMessage
	var top *int
	echo := false
	err := q.take(field{"prompt", &prompt}, field{"logprobs", &top}, field{"echo", &echo})
	if err != nil {
		return err
	}
	if top != nil {
		q.logprobs, q.top = true, *top
	}
	if q.top < 0 || q.top > 5 {
		return bad("logprobs", "unsupported_value", "logprobs lies between 0 and 5; got %d", q.top)
	}
	if echo && q.stream {
		return bad("echo", "unsupported_value", "echo is not supported in streams")
	}
	prompts, texts, err := s.readPrompts(prompt, q.reward)
	if err = cmp.Or(err, q.done()); err != nil {
		return err
	}
	q.max = cmp.Or(q.max, defaultCompletion)
	var choices []*choice
	for at, ids := range prompts {
		room, err := s.room(ids, q.max)
		if err != nil {
			return err
		}
		repeated := 0
		if echo {
			for _, id := range ids {
				repeated += len(s.Tokenizer.Bytes(id))
			}
		}
		for i := range q.choices {
			choices = append(choices, &choice{s: s, q: q, index: i, number: len(choices), prompt: ids, written: texts[at],
				room: room, echo: repeated})
		}
	}
	head := newResponse[completionChoice](q, "cmpl-", "text_completion")
	return respond(s, w, q, choices, head, (*choice).completion, (*choice).completionPart)
}

// readPrompts reads a text, ids, or a list of either. The texts of ids are "".
func (s *Server) readPrompts(raw json.RawMessage, reward string) (prompts [][]int32, texts []string, err error) {
	var text string
	var ids []int32
	var some []string
	var lists [][]int32
	switch {
	case raw == nil:
		return nil, nil, bad("prompt", "", "prompt is required")
	case json.Unmarshal(raw, &text) == nil:
		some = []string{text}
	case json.Unmarshal(raw, &ids) == nil:
		lists = [][]int32{ids}
	case json.Unmarshal(raw, &some) == nil:
	case json.Unmarshal(raw, &lists) == nil:
		some = nil
	default:
		return nil, nil, bad("prompt", "", "prompt is a text, a list of ids, or a list of texts or of lists of ids")
	}
	if n, most := max(len(some), len(lists)), s.Batcher.Slots()+s.Queue; n == 0 || n > most {
		return nil, nil, bad("prompt", "", "a request has between 1 and %d prompts; got %d", most, n)
	}
	for _, text := range some {
		if len(text) > chat.BytesPerToken*s.Batcher.MaxLen() {
			return nil, nil, bad("prompt", "context_length_exceeded", "%v: %d bytes", chat.ErrLong, len(text))
		}
		text = s.Codec.Insert(text, reward)
		prompts, texts = append(prompts, s.memory.Encode(s.Tokenizer, text)), append(texts, text)
		if _, err := s.room(prompts[len(prompts)-1], 1); err != nil { // later texts are not read
			return nil, nil, err
		}
	}
	for _, ids := range lists {
		prompts, texts = append(prompts, ids), append(texts, "")
	}
	for _, ids := range prompts {
		if len(ids) == 0 {
			return nil, nil, bad("prompt", "", "a prompt must contain at least one token")
		}
		for _, id := range ids {
			if s.Tokenizer.Bytes(id) == nil {
				return nil, nil, bad("prompt", "", "there is no token %d in a vocabulary of %d", id, s.Tokenizer.Size())
			}
		}
	}
	return prompts, texts, nil
}

// completion returns the whole reply. A prompt that continues it as a text will have its ids.
func (c *choice) completion() completionChoice {
	out := completionChoice{Index: c.number, Text: token.Text(c.text), Finish: &c.finish, Reason: c.reason}
	if c.written != "" && c.reason == nil {
		c.s.memory.KeepText(c.s.Tokenizer, c.written, out.Text, c.prompt, ids(c.visible(c.draws)))
	}
	if c.echo > 0 {
		out.Text = c.s.Tokenizer.Decode(c.prompt, false) + out.Text
	}
	if c.q.logprobs {
		out.Logprobs = &logprobs{Tokens: []string{}, Logps: []*float32{}, Top: []map[string]float32{}, Offsets: []int{}}
		if c.echo > 0 {
			out.Logprobs.add(c, []rl.Draw{{Token: c.prompt[0]}})
			out.Logprobs.Logps[0], out.Logprobs.Top[0] = nil, nil
			out.Logprobs.add(c, c.echoed)
		}
		out.Logprobs.add(c, c.draws) // with the id that ended the reply, as in vLLM: lm-eval drops the last one
	}
	if c.q.returnIDs {
		out.IDs, out.PromptIDs = ids(c.draws), c.prompt
	}
	return out
}

// add appends draws after those that were added before.
func (l *logprobs) add(c *choice, draws []rl.Draw) {
	for _, d := range draws {
		logp := finite(d.Logp)
		l.Tokens = append(l.Tokens, c.s.spell(c.q, d.Token))
		l.Logps = append(l.Logps, &logp)
		l.Offsets = append(l.Offsets, c.offset)
		c.offset += len([]rune(string(c.s.Tokenizer.Bytes(d.Token))))
		var top map[string]float32
		if c.q.top > 0 {
			top = map[string]float32{}
			for _, r := range slices.Backward(d.Top) { // of tokens with equal text, the most probable remains
				top[c.s.spell(c.q, r.Token)] = finite(r.Logp)
			}
		}
		l.Top = append(l.Top, top)
	}
}

// completionPart returns the event of a piece of the reply.
func (c *choice) completionPart(p piece) []completionChoice {
	part := completionChoice{Index: c.number, Text: p.text}
	if c.q.logprobs {
		part.Logprobs = &logprobs{}
		part.Logprobs.add(c, p.draws)
	}
	if c.q.returnIDs {
		part.IDs = ids(p.draws)
	}
	if p.ended {
		part.Finish, part.Reason = &c.finish, c.reason
	}
	return []completionChoice{part}
}
