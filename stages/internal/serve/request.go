package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"

	"rcgrpo/internal/nesting"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// Limits of requests.
const (
	maxDepth   = 64 // of nested JSON
	maxStops   = 4
	maxStop    = 1000 // bytes of a stop string, which each token is compared with
	maxStopIDs = 256
	maxChoices = 8

	maxTools    = 1 << 20 // bytes of all tools; each of their values takes a microsecond in a template
	maxCalls    = 1 << 20 // bytes of the calls in all messages, each of which is read as JSON and counts for some more
	maxToolName = 256     // bytes; the log has the names with each conversation
)

var rewardSettings = []string{"high", "low", "none"}

// request is a request with the settings that both endpoints share.
type request struct {
	ctx     context.Context
	cancel  func()                     // ends ctx
	encoded func()                     // lets the next request become a prompt
	fields  map[string]json.RawMessage // not read yet
	model   string
	reward  string // reward token
	header  http.Header
	ignored []string // fields without effect

	temperature, topP float64
	max               int // tokens of a reply; 0: not given
	stops             []string
	stopIDs           []int32
	seed              uint64
	choices           int
	logprobs          bool
	top               int // alternatives per token
	stream, usage     bool
	returnIDs         bool
	tokensAsIDs       bool
	conversation      *chat.Conversation // of a chat
	skipSpecial       bool
	changed           bool // temperature or top_p are those of Config.Sampling instead
}

// ignoredFields change nothing in a reply. Those with values change nothing only if they have that value.
var ignoredFields = map[string]string{
	"store": "", "user": "", "metadata": "", "service_tier": "", "parallel_tool_calls": "", "safety_identifier": "",
	"prompt_cache_key": "", "best_of": "1", "frequency_penalty": "0", "presence_penalty": "0", "logit_bias": "{}",
	"repetition_penalty": "1", "top_k": "-1", "min_p": "0", "suffix": `""`, "response_format": `{"type":"text"}`,
	"add_generation_prompt": "true", "continue_final_message": "false", "ignore_eos": "false", "min_tokens": "0",
	"spaces_between_special_tokens": "true", "modalities": `["text"]`, "use_beam_search": "false",
}

// receive reads the body of a request.
func (s *Server) receive(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, bad("", "", "the header Content-Type must be application/json")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.MaxBody))
	if errors.As(err, new(*http.MaxBytesError)) {
		return nil, &apiError{status: http.StatusRequestEntityTooLarge, Type: "invalid_request_error",
			Message: fmt.Sprintf("the request is longer than %d bytes", s.MaxBody)}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, &apiError{status: http.StatusRequestTimeout, Type: "invalid_request_error", Code: "timeout",
			Message: fmt.Sprintf("the request was not received within %v", s.Timeout)}
	}
	if err != nil {
		return nil, bad("", "", "the request could not be read: %v", err)
	}
	return body, nil
}

// read reads the common settings of a request from its body. The handler reads its own fields, then calls done.
func (q *request) read(s *Server, body []byte) error {
	q.temperature, q.topP, q.choices, q.skipSpecial = 1, 1, 1, true
	if depth, _ := nesting.JSON(body); depth > maxDepth {
		return bad("", "", "the JSON of the request is nested deeper than %d", maxDepth)
	}
	if err := json.Unmarshal(body, &q.fields); err != nil || q.fields == nil {
		return bad("", "", "the request must be a JSON object")
	}
	if err := q.take(field{"model", &q.model}); err != nil {
		return err
	}
	setting, given, err := s.named(q.model)
	if err != nil {
		return err
	}
	given = given || q.has("reward_token")
	if err := q.take(field{"reward_token", &setting}); err != nil {
		return err
	}
	if err := q.chooseReward(s, setting, given); err != nil {
		return err
	}
	asksTemperature, asksTopP := q.has("temperature"), q.has("top_p") // reading them removes them
	if err := q.common(); err != nil {
		return err
	}
	return q.fix(s, asksTemperature, asksTopP)
}

// fix replaces the settings of a request by those of the episode that the client plays.
func (q *request) fix(s *Server, asksTemperature, asksTopP bool) error {
	if s.Sampling == nil {
		return nil
	}
	if q.choices != 1 {
		return bad("n", "unsupported_value", "an episode continues with one reply; n must be 1, got %d", q.choices)
	}
	q.changed = asksTemperature && q.temperature != s.Sampling.Temperature || asksTopP && q.topP != s.Sampling.TopP
	q.temperature, q.topP, q.reward = s.Sampling.Temperature, s.Sampling.TopP, s.Token
	return nil
}

// chooseReward sets the reward token of a request: its own, that of the model's name, or that of the server.
func (q *request) chooseReward(s *Server, setting string, given bool) error {
	q.reward = s.Token
	if !given || setting == "checkpoint" {
		return nil
	}
	if !slices.Contains(rewardSettings, setting) {
		return bad("reward_token", "unsupported_value", "reward_token is high, low, none or checkpoint; got %.80q", setting)
	}
	if setting == "none" {
		setting = rl.TokenNone
	} else if s.Position == "" {
		return bad("reward_token", "unsupported_value", "this policy has never used reward tokens")
	}
	q.reward = setting
	return nil
}

// common reads the settings that both endpoints share.
func (q *request) common() error {
	var seed *int64
	var stop json.RawMessage
	var options struct {
		Usage bool `json:"include_usage"`
	}
	limited := q.has("max_tokens")
	err := q.take(field{"temperature", &q.temperature}, field{"top_p", &q.topP}, field{"max_tokens", &q.max},
		field{"seed", &seed}, field{"n", &q.choices}, field{"stop", &stop}, field{"stream", &q.stream},
		field{"stream_options", &options}, field{"return_token_ids", &q.returnIDs},
		field{"stop_token_ids", &q.stopIDs}, field{"skip_special_tokens", &q.skipSpecial},
		field{"return_tokens_as_token_ids", &q.tokensAsIDs})
	if err != nil {
		return err
	}
	q.usage = options.Usage
	q.seed = rand.Uint64() >> 11 // exact in JavaScript
	if seed != nil {
		q.seed = uint64(*seed)
	}
	switch {
	case limited && q.max < 1:
		return bad("max_tokens", "unsupported_value", "max_tokens must be at least 1; got %d", q.max)
	case q.temperature != 0 && !(q.temperature >= blocks.MinTemperature && q.temperature <= 100):
		return bad("temperature", "unsupported_value", "temperature is 0, for greedy decoding, or between %v and 100; "+
			"got %v", blocks.MinTemperature, q.temperature)
	case !(q.topP > 0 && q.topP <= 1):
		return bad("top_p", "unsupported_value", "top_p lies above 0 and at most at 1; got %v", q.topP)
	case q.choices < 1 || q.choices > maxChoices:
		return bad("n", "unsupported_value", "n lies between 1 and %d; got %d", maxChoices, q.choices)
	case len(q.stopIDs) > maxStopIDs:
		return bad("stop_token_ids", "unsupported_value", "at most %d stop_token_ids are supported; got %d", maxStopIDs,
			len(q.stopIDs))
	}
	return q.readStops(stop)
}

func (q *request) readStops(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		q.stops = []string{one}
	} else if json.Unmarshal(raw, &q.stops) != nil {
		return bad("stop", "", "stop is a string or a list of strings")
	}
	q.stops = slices.DeleteFunc(q.stops, func(s string) bool { return s == "" })
	if len(q.stops) > maxStops {
		return bad("stop", "unsupported_value", "at most %d stop strings are supported; got %d", maxStops, len(q.stops))
	}
	for _, stop := range q.stops {
		if len(stop) > maxStop {
			return bad("stop", "unsupported_value", "a stop string has at most %d bytes; got %d", maxStop, len(stop))
		}
	}
	return nil
}

// has reports whether the request contains a field with a value other than null.
func (q *request) has(name string) bool {
	raw, ok := q.fields[name]
	return ok && string(bytes.TrimSpace(raw)) != "null"
}

// field is the name of a field and the variable for its value.
type field struct {
	name string
	into any
}

// take reads fields. The variables of those that the request does not contain keep their values.
func (q *request) take(fields ...field) error {
	for _, f := range fields {
		given, raw := q.has(f.name), q.fields[f.name]
		delete(q.fields, f.name)
		if !given {
			continue
		}
		err := json.Unmarshal(raw, f.into)
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return bad(f.name, "", "%s has the wrong type: got %s, want %s", f.name, wrong.Value, wrong.Type)
		}
		if err != nil {
			return bad(f.name, "", "%s: %v", f.name, err)
		}
	}
	return nil
}

// done refuses the fields that were not read, except those without effect, whose names the response contains.
func (q *request) done() error {
	for name, raw := range q.fields {
		want, known := ignoredFields[name]
		switch {
		case string(bytes.TrimSpace(raw)) == "null":
		case known && (want == "" || sameJSON(raw, want)):
			q.ignored = append(q.ignored, name)
		case known:
			return bad(name, "unsupported_value", "%s is supported only as %s", name, want)
		default:
			return bad(name, "unknown_parameter", "the field %.80q is not supported", name)
		}
	}
	if len(q.ignored) > 0 {
		slices.Sort(q.ignored)
		q.header.Set("X-Rcgrpo-Ignored", strings.Join(q.ignored, ", "))
	}
	return nil
}

func sameJSON(raw json.RawMessage, want string) bool {
	var a, b any
	if json.Unmarshal(raw, &a) != nil || json.Unmarshal([]byte(want), &b) != nil {
		return false
	}
	return reflect.DeepEqual(a, b)
}
