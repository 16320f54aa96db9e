// Package serve puts a policy behind an HTTP endpoint in the form of OpenAI's API.
//
//	Config      the policy, its names and the limits
//	Server      an http.Handler; start with New
//
// request.go reads requests, choice.go samples and cuts the replies, chat.go and completions.go answer
// as response.go writes, log.go writes conversations. Neighbours: rl (Batcher), chat (layouts), token.
package serve

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// Config describes the served policy and the limits of requests.
type Config struct {
	Name      string   // of the model
	Aliases   []string // further names, such as the path of the checkpoint
	Batcher   *rl.Batcher
	Codec     chat.Codec
	Tokenizer *token.Tokenizer
	Position  string // of reward tokens; "" for a policy without them
	Token     string // reward token of requests that name none

	Addr     string              // host and port of the listener
	Key      string              // API key; "": none
	Queue    int                 // replies that may wait for a slot
	MaxBody  int64               // bytes of a request
	Prompts  *semaphore.Weighted // bytes of requests that become prompts at once, of several servers; nil: of this one
	Logprobs *atomic.Int64       // that replies may get, of several servers; nil: of this one
	Texts    *semaphore.Weighted // bytes of texts that are written at once, of several servers; nil: of this one
	Timeout  time.Duration       // of a request
	Logf     func(format string, args ...any)
	Log      *Log // of conversations; nil: none

	Sampling *Sampling // of the episode that the client plays; nil: as the requests ask
}

// Sampling fixes how replies are sampled, whatever requests ask for, and records them.
type Sampling struct {
	Temperature, TopP float64
	Reply             int // tokens of a reply
	// Stream names the random numbers of the reply to a prompt. The client gets its error with status 429.
	Stream func(prompt []int32) (rl.Stream, error)
	// Left is the number of bytes that tokens longer than rl.BytesPerToken may have beyond that, in all replies of the
	// episode; below 0 they end. It is not nil.
	Left *atomic.Int64
	// Sampled receives the reply for each Stream, without draws if it was interrupted, before the request ends.
	Sampled func(Reply)
}

// Reply is a sampled reply.
type Reply struct {
	Prompt       []int32
	Draws        []rl.Draw
	Conversation *chat.Conversation // before the reply; nil if the prompt was a text
	Text         string
	Calls        []rl.Call
	Malformed    bool  // no calls, but the beginning of one
	Changed      bool  // the request asked for another temperature or top_p
	Err          error // the policy failed
}

// Server answers requests. Start it with [Server.Serve].
type Server struct {
	Config
	mux      *http.ServeMux
	started  time.Time
	requests atomic.Int64 // whose body is read, or that are answered
	replies  atomic.Int64 // whose request is not answered
	draining atomic.Bool
	memory   chat.Memory
	unread   time.Duration // that a client has for the rest of a stream when all of it is sampled
}

// mostPrompts is the number of requests that become prompts at once. Together they have at most the bytes of the
// largest one, because each may take 110 times its bytes of memory then.
const mostPrompts = 4

// mostLogprobs bounds the logprobs in memory. Each takes up to 500 bytes while its reply is written.
const mostLogprobs = 2 << 20

// A reply or an event is written at once. The bytes of its texts, and of the names of its logprobs beyond nameOfLogprob
// on average, take up to 30 times as much then. MostText bounds those of replies from fewText on.
const nameOfLogprob, fewText, MostText = 16, 64 << 10, 32 << 20

// bytesPerLogprob is the number of bytes of an echo that count as a logprob: escaped as \u003c, and in the list of
// tokens too, each takes up to 38 while its reply is written.
const bytesPerLogprob = 8

// New returns a server.
func New(c Config) *Server {
	s := &Server{Config: c, mux: http.NewServeMux(), started: time.Now(), unread: time.Minute}
	s.Prompts = cmp.Or(c.Prompts, semaphore.NewWeighted(max(c.MaxBody, mostPrompts)))
	s.Logprobs = cmp.Or(c.Logprobs, new(atomic.Int64))
	s.Texts = cmp.Or(c.Texts, semaphore.NewWeighted(MostText))
	s.mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	s.mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{s.model(s.Name)}})
	})
	s.mux.HandleFunc("GET /v1/models/{name...}", func(w http.ResponseWriter, r *http.Request) {
		if _, _, err := s.named(r.PathValue("name")); err != nil {
			writeError(w, err)
			return
		}
		writeJSON(w, http.StatusOK, s.model(r.PathValue("name")))
	})
	s.mux.HandleFunc("POST /v1/chat/completions", s.post(s.chat))
	s.mux.HandleFunc("POST /v1/completions", s.post(s.completions))
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, &apiError{status: http.StatusNotFound, Type: "invalid_request_error", Code: "unknown_url",
			Message: fmt.Sprintf("there is no %s %s", r.Method, r.URL.Path)})
	})
	return s
}

func (s *Server) model(name string) map[string]any {
	return map[string]any{"id": name, "object": "model", "created": s.started.Unix(), "owned_by": "rcgrpo",
		"max_model_len": s.Batcher.MaxLen()}
}

// named returns the reward token that the name of a model asks for: NAME or NAME:high, NAME:low, NAME:none.
func (s *Server) named(name string) (reward string, given bool, err error) {
	for _, own := range append([]string{s.Name}, s.Aliases...) {
		if name == own {
			return "", false, nil
		}
		if setting, ok := strings.CutPrefix(name, own+":"); ok && slices.Contains(rewardSettings, setting) {
			return setting, true, nil
		}
	}
	return "", false, &apiError{status: http.StatusNotFound, Type: "invalid_request_error", Code: "model_not_found",
		Param: "model", Message: fmt.Sprintf("there is no model %.200q; this server has %q", name, s.Name)}
}

// Serve answers requests of the listener until ctx ends. Then new requests get status 503, and those in progress have
// drain to end.
func (s *Server) Serve(ctx context.Context, l net.Listener, drain time.Duration) error {
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	h := NewHTTP(s)
	h.BaseContext = func(net.Listener) context.Context { return base }
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	s.draining.Store(true)
	limit, stop := context.WithTimeout(base, drain)
	defer stop()
	for s.replies.Load() > 0 && limit.Err() == nil { // the listener stays open, so that clients get the status 503
		time.Sleep(10 * time.Millisecond)
	}
	cut()
	limit, stop = context.WithTimeout(context.Background(), 5*time.Second)
	defer stop()
	if err := h.Shutdown(limit); err != nil {
		return h.Close()
	}
	return nil
}

// NewHTTP returns a server whose connections cannot be held open: headers, bodies, replies and pauses have limits, also
// before authentication. A handler whose requests may take longer sets its own deadlines.
func NewHTTP(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 20 * time.Second,
		WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.ownHost(r.Host) {
		writeError(w, &apiError{status: http.StatusForbidden, Type: "invalid_request_error", Code: "unknown_host",
			Message: fmt.Sprintf("the Host header is %.200q, want %s or localhost", r.Host, s.Addr)})
		return
	}
	s.mux.ServeHTTP(w, r)
}

// ownHost reports whether a request was sent to this server by its own address. A page of another site whose name
// resolves to a loopback address has another Host. Off loopback, where the names of the machine are unknown, the key
// protects the server.
func (s *Server) ownHost(host string) bool {
	name, port, err := net.SplitHostPort(s.Addr)
	if err != nil || host == s.Addr {
		return err == nil
	}
	ip := net.ParseIP(name)
	if ip == nil || !ip.IsLoopback() {
		return true
	}
	return host == net.JoinHostPort("localhost", port) || host == "localhost" || host == name
}

// post wraps the handler of a POST request with the checks that all of them share.
func (s *Server) post(handle func(w http.ResponseWriter, r *request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), s.Timeout)
		defer cancel()
		control := http.NewResponseController(w)
		err := s.authorised(r)
		if err == nil && s.draining.Load() {
			err = &apiError{status: http.StatusServiceUnavailable, Type: "server_error", Code: "draining",
				Message: "the server is shutting down"}
		}
		var body []byte
		if err == nil { // a request has one reply at least
			defer s.requests.Add(-1)
			if s.requests.Add(1) > int64(s.Batcher.Slots()+s.Queue) {
				err = s.full()
			}
		}
		if err == nil { // the body of an unauthorised client has the shorter limit of the connection
			_ = control.SetReadDeadline(time.Now().Add(s.Timeout))
			body, err = s.receive(w, r)
		}
		if err == nil {
			_ = control.SetReadDeadline(time.Time{}) // the body is read; an expired deadline would cancel the request
			err = s.answer(w, &request{ctx: ctx, cancel: cancel, header: w.Header()}, body, handle)
		}
		if err == nil {
			return
		}
		if r.Context().Err() != nil && !errors.As(err, new(*apiError)) { // net/http would send status 200 and no body
			err = &apiError{status: http.StatusServiceUnavailable, Type: "server_error", Code: "cancelled",
				Message: "the request was cut: its client left, or the server is shutting down"}
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = &apiError{status: http.StatusServiceUnavailable, Type: "server_error", Code: "timeout",
				Message: fmt.Sprintf("the request took longer than %v", s.Timeout)}
		}
		if !errors.As(err, new(*apiError)) {
			s.Logf("%s %s: %v", r.Method, r.URL.Path, err)
			err = &apiError{status: http.StatusInternalServerError, Type: "server_error", Message: "the policy failed; " +
				"the log of the server names the cause"}
		}
		writeError(w, err)
	}
}

// answer reads the body of a request and answers it, after the requests that become prompts before it.
func (s *Server) answer(w http.ResponseWriter, q *request, body []byte,
	handle func(http.ResponseWriter, *request) error) error {
	weight := max(int64(len(body)), s.MaxBody/mostPrompts, 1)
	if err := s.Prompts.Acquire(q.ctx, weight); err != nil {
		return err
	}
	q.encoded = sync.OnceFunc(func() { s.Prompts.Release(weight) })
	defer q.encoded()
	if err := q.read(s, body); err != nil {
		return err
	}
	return handle(w, q)
}

// authorised compares the key of a request in constant time.
func (s *Server) authorised(r *http.Request) error {
	if s.Key == "" {
		return nil
	}
	key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	got, want := sha256.Sum256([]byte(key)), sha256.Sum256([]byte(s.Key))
	if subtle.ConstantTimeCompare(got[:], want[:]) == 1 {
		return nil
	}
	return &apiError{status: http.StatusUnauthorized, Type: "authentication_error", Code: "invalid_api_key",
		Message: "the header Authorization must be \"Bearer KEY\" with the key of this server"}
}

// reserve counts the replies of a request and their logprobs until release, or returns an error with status 429 if the
// requests before it leave too little.
func (s *Server) reserve(q *request, choices []*choice) (release func(), err error) {
	n, logprobs, most := int64(len(choices)), int64(0), int64(s.Batcher.Slots()+s.Queue)
	for _, c := range choices {
		tokens := c.room
		if c.echo > 0 {
			tokens += len(c.prompt)
		}
		if logprobs += int64(c.echo / bytesPerLogprob); q.logprobs {
			logprobs += int64(tokens * (1 + q.top))
		}
	}
	if n > most || logprobs > mostLogprobs {
		return nil, bad("n", "unsupported_value", "a request has at most %d replies on this server, which may get %d "+
			"logprobs, with alternatives and each %d bytes of an echo; got %d and %d: fewer prompts, n, max_tokens or "+
			"alternatives need less", most, mostLogprobs, bytesPerLogprob, n, logprobs)
	}
	release = func() {
		s.replies.Add(-n)
		s.Logprobs.Add(-logprobs)
	}
	replies, all := s.replies.Add(n), s.Logprobs.Add(logprobs)
	if replies > most || all > mostLogprobs && logprobs > 0 {
		release()
		return nil, s.full()
	}
	return release, nil
}

func (s *Server) full() error {
	return &apiError{status: http.StatusTooManyRequests, Type: "rate_limit_error", Code: "queue_full",
		Message: fmt.Sprintf("%d replies are sampled at once, %d may wait, and they may get %d logprobs; try again later",
			s.Batcher.Slots(), s.Queue, mostLogprobs)}
}

// apiError is an error in the form of OpenAI's API.
type apiError struct {
	status  int
	Message string `json:"message"`
	Type    string `json:"type"`
	Param   string `json:"param,omitempty"`
	Code    string `json:"code,omitempty"`
}

func (e *apiError) Error() string { return e.Message }

// bad returns an error of a request with status 400.
func bad(param, code, format string, args ...any) error {
	return &apiError{status: http.StatusBadRequest, Type: "invalid_request_error", Param: param, Code: code,
		Message: fmt.Sprintf(format, args...)}
}

func writeError(w http.ResponseWriter, err error) {
	e := &apiError{status: http.StatusInternalServerError, Type: "server_error", Message: "internal error"}
	errors.As(err, &e)
	if e.status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, e.status, map[string]any{"error": e})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":{"message":"internal error","type":"server_error"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)) // a client may read nothing
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // an error means that the client has left
}
