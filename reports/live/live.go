// Package live serves the page of a run while it runs: Start returns it, and Observe adds an event. Package reports
// renders the page of the results.
package live

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
)

//go:embed live.html
var pageText string

//go:embed live.js
var script string

// Page serves the page of a running experiment: the state of each stage and the curves so far. It listens on the
// loopback interface only, under an address with a secret, and the page updates itself. Observing an event takes
// microseconds and never waits for a reader.
type Page struct {
	URL string

	server *http.Server
	done   chan struct{} // closed when the run has ended

	mu     sync.Mutex
	state  state
	places map[string]int // indices in state.Stages, by address
	number int            // number of changes
}

// state is the complete state that readers receive as JSON.
type state struct {
	Title    string   `json:"title"`
	Question string   `json:"question,omitempty"`
	Planned  int      `json:"planned"` // stages that the run executes
	Stages   []stage  `json:"stages"`
	Files    []string `json:"files,omitempty"` // published
	Ended    string   `json:"ended,omitempty"` // result of the run, once it has ended
}

type stage struct {
	Address string               `json:"address"`
	State   runs.EventKind       `json:"state"`
	Text    string               `json:"text,omitempty"` // why it failed or was skipped
	Done    int                  `json:"done,omitempty"`
	Total   int                  `json:"total,omitempty"`
	Unit    string               `json:"unit,omitempty"`
	Seconds float64              `json:"seconds,omitempty"` // duration
	Started time.Time            `json:"started,omitzero"`
	Curves  map[string][]float64 `json:"curves,omitempty"` // by name: done, value, done, value, …
}

const (
	liveEvery   = 500 * time.Millisecond // between updates to a reader
	mostReaders = 64                     // connections: others wait, because the stages of the run need files too
	livePoints  = 400                    // points of a curve; a longer curve is thinned
	writeTime   = 10 * time.Second       // of a reader that is gone without a word, or reads nothing
)

// Start serves the page of a run on a free port until Close.
func Start(x *lang.Experiment) (*Page, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve the live page: %w", err)
	}
	path := "/" + rand.Text() + "/"
	l := &Page{URL: "http://" + listener.Addr().String() + path, done: make(chan struct{}), places: map[string]int{},
		state: state{Title: x.Name, Question: x.Question, Stages: []stage{}}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET 127.0.0.1"+path+"{$}", l.page) // no other host, because of DNS rebinding
	mux.HandleFunc("GET 127.0.0.1"+path+"events", l.events)
	l.server = &http.Server{ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: writeTime,
		IdleTimeout: time.Minute, Handler: mux}
	go l.server.Serve(netutil.LimitListener(listener, mostReaders))
	return l, nil
}

// Close sends the last state to readers and stops the server. Open pages stay readable.
func (l *Page) Close() error {
	l.mu.Lock()
	if l.state.Ended == "" {
		l.state.Ended = "stopped"
	}
	l.number++
	l.mu.Unlock()
	close(l.done)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := l.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return l.server.Close()
}

// Observe adds an event of the run to the page.
func (l *Page) Observe(e runs.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	switch e.Kind {
	case runs.EventPlanned:
		for verb, n := range e.Counts {
			if verb != string(plan.UpToDate) && verb != string(plan.NotHere) {
				l.state.Planned += n
			}
		}
	case runs.EventEnded:
		var words []string
		for _, outcome := range slices.Sorted(maps.Keys(e.Counts)) {
			words = append(words, fmt.Sprintf("%d %s", e.Counts[outcome], outcome))
		}
		l.state.Ended = "ended: " + strings.Join(words, ", ")
	case runs.EventFile:
		l.state.Files = append(l.state.Files, e.Path)
	default:
		if e.Address != "" {
			l.observeStage(e)
		}
	}
}

func (l *Page) observeStage(e runs.Event) {
	at, known := l.places[e.Address]
	if !known {
		at = len(l.state.Stages)
		l.places[e.Address] = at
		l.state.Stages = append(l.state.Stages, stage{Address: e.Address})
	}
	s := &l.state.Stages[at]
	switch e.Kind {
	case runs.EventNote:
		s.Text = e.Text
	case runs.EventProgress:
		s.Done, s.Total, s.Unit = e.Done, e.Total, e.Unit
		for _, v := range e.Values {
			if s.Curves == nil {
				s.Curves = map[string][]float64{}
			}
			s.Curves[v.Name] = thin(append(s.Curves[v.Name], float64(e.Done), v.Value))
		}
	default:
		s.State, s.Text = e.Kind, e.Text
		if e.Failure != nil {
			s.Text = e.Failure.Text
		}
		if e.Seconds > 0 && e.Kind != runs.EventAdopted {
			s.Seconds = e.Seconds
		}
		if e.Kind == runs.EventStarted || e.Kind == runs.EventAdopted {
			s.Started = e.Time
		}
	}
}

// thin drops every second point of a curve with too many points and keeps the last.
func thin(curve []float64) []float64 {
	if len(curve) <= 2*livePoints {
		return curve
	}
	kept := curve[:0]
	for i := (len(curve)/2 - 1) % 2 * 2; i < len(curve); i += 4 {
		kept = append(kept, curve[i], curve[i+1])
	}
	return kept
}

func (l *Page) page(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	hash := sha256.Sum256([]byte(script)) // allows this script and no other
	h.Set("Content-Security-Policy", "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src "+
		"'sha256-"+base64.StdEncoding.EncodeToString(hash[:])+"'; base-uri 'none'; form-action 'none'; "+
		"frame-ancestors 'none'")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	fmt.Fprint(w, strings.Replace(pageText, "SCRIPT", script, 1))
}

// events sends the state now and after each change, until the run ends or the reader disconnects.
func (l *Page) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out, sent := http.NewResponseController(w), -1
	_ = out.SetReadDeadline(time.Time{}) // the request is read, and its reply lasts as long as the run
	send := func() error {
		_ = out.SetWriteDeadline(time.Now().Add(writeTime))
		l.mu.Lock()
		number := l.number
		if number == sent {
			l.mu.Unlock()
			return nil
		}
		text, err := json.Marshal(l.state)
		l.mu.Unlock()
		if err == nil {
			_, err = fmt.Fprintf(w, "id: %d\ndata: %s\n\n", number, text)
		}
		sent = number
		return errors.Join(err, out.Flush())
	}
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	for send() == nil {
		select {
		case <-l.done:
			if send() == nil {
				fmt.Fprint(w, "event: end\ndata: \n\n")
			}
			return
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}
