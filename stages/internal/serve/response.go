package serve

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// response is the answer of both endpoints, and each event of a stream.
type response[Choice any] struct {
	ID        string   `json:"id"`
	Object    string   `json:"object"`
	Created   int64    `json:"created"`
	Model     string   `json:"model"`
	Seed      uint64   `json:"seed"`
	Choices   []Choice `json:"choices"`
	Usage     *usage   `json:"usage,omitempty"`
	PromptIDs []int32  `json:"prompt_token_ids,omitempty"` // of a chat
}

// newResponse returns the response to a request without its choices.
func newResponse[Choice any](q *request, prefix, object string) response[Choice] {
	return response[Choice]{ID: prefix + rand.Text(), Object: object, Created: time.Now().Unix(), Model: q.model,
		Seed: q.seed}
}

// respond samples the choices of a request, and writes them as a whole or as the events of their pieces.
func respond[Choice any](s *Server, w http.ResponseWriter, q *request, choices []*choice, head response[Choice],
	whole func(*choice) Choice, parts func(*choice, piece) []Choice) error {
	q.encoded()
	release, err := s.reserve(q, choices)
	if err != nil {
		return err
	}
	defer release() // after the reply is written
	if !q.stream {
		if err := s.run(q, choices, nil); err != nil {
			return err
		}
		text := 0
		for _, c := range choices {
			text += c.textBytes(len(c.text), c.echoed, c.draws)
		}
		written, err := s.write(q, text)
		if err != nil {
			return err
		}
		defer written()
		for _, c := range choices {
			head.Choices = append(head.Choices, whole(c))
		}
		head.Usage = usageOf(choices, q.choices)
		writeJSON(w, http.StatusOK, head)
		return nil
	}
	events := &events{w: w}
	err = s.run(q, choices, func(c *choice, p piece) error {
		written, err := s.write(q, c.textBytes(len(p.text), p.draws))
		if err != nil {
			return err
		}
		defer written()
		for _, part := range parts(c, p) {
			head.Choices = []Choice{part}
			err := q.ctx.Err() // run ends the context of a client that reads too slowly
			if err == nil {
				err = events.send(head)
			}
			if err != nil {
				return err
			}
			head.PromptIDs = nil // they are in the first event
		}
		return nil
	})
	if err == nil && q.usage {
		head.Choices, head.Usage = []Choice{}, usageOf(choices, q.choices)
		err = events.send(head)
	}
	return events.end(err)
}

// write waits until a number of bytes of texts may be written; the caller calls written then.
func (s *Server) write(q *request, text int) (written func(), err error) {
	if text > MostText {
		return nil, bad("max_tokens", "unsupported_value", "the texts of the reply have %d bytes, with the names of "+
			"logprobs, and %d are written at once: fewer prompts, n, max_tokens or alternatives need less", text, MostText)
	}
	if text < fewText { // it does not wait for large ones, whose clients may read slowly
		return func() {}, nil
	}
	return func() { s.Texts.Release(int64(text)) }, s.Texts.Acquire(q.ctx, int64(text))
}

// events writes server-sent events.
type events struct {
	w     http.ResponseWriter
	begun bool
}

func (e *events) send(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return e.write(string(text))
}

func (e *events) write(text string) error {
	if !e.begun {
		e.begun = true
		e.w.Header().Set("Content-Type", "text/event-stream")
		e.w.Header().Set("Cache-Control", "no-cache")
	}
	control := http.NewResponseController(e.w)
	_ = control.SetWriteDeadline(time.Now().Add(time.Minute))
	if _, err := fmt.Fprintf(e.w, "data: %s\n\n", text); err != nil {
		return err
	}
	return control.Flush()
}

// end ends the stream, after an error with an event that contains it. An error before the first event is returned.
func (e *events) end(err error) error {
	if err == nil {
		err = e.write("[DONE]")
	}
	if err == nil || !e.begun {
		return err
	}
	_ = e.send(map[string]any{"error": apiError{Type: "server_error", Message: "the reply was interrupted"}})
	return nil
}

// usage counts the tokens of a response.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// usageOf counts each prompt once; prompts is the number of choices per prompt.
func usageOf(choices []*choice, perPrompt int) *usage {
	u := &usage{}
	for i, c := range choices {
		if i%perPrompt == 0 {
			u.Prompt += len(c.prompt)
			u.Details.Cached += c.cached
		}
		u.Completion += len(c.draws)
	}
	u.Total = u.Prompt + u.Completion
	return u
}
