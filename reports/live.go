package reports

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"rcgrpo/engine"
)

//go:embed assets/live.html
var livePage string

//go:embed assets/live.js
var liveScript string

// Live is a page of a run that goes on: what each stage does, the curves so far and what the machine is busy with. It is
// served on the loopback interface only, under an address that holds a secret, and changes without being loaded again.
// Observing an event takes microseconds and never waits for a reader.
type Live struct {
	URL string

	server *http.Server
	done   chan struct{} // closed when the run has ended

	mu     sync.Mutex
	state  liveState
	places map[string]int // of the stages in state, by address
	number int            // of changes
}

// liveState is what readers get, whole, as JSON.
type liveState struct {
	Title     string      `json:"title"`
	Question  string      `json:"question,omitempty"`
	Planned   int         `json:"planned"` // stages that the run would touch
	Stages    []liveStage `json:"stages"`
	Files     []string    `json:"files,omitempty"` // published
	Resources resources   `json:"resources"`
	Ended     string      `json:"ended,omitempty"` // how, once it has
}

type liveStage struct {
	Address string               `json:"address"`
	State   engine.EventKind     `json:"state"`
	Text    string               `json:"text,omitempty"` // why it failed or was skipped
	Done    int                  `json:"done,omitempty"`
	Total   int                  `json:"total,omitempty"`
	Unit    string               `json:"unit,omitempty"`
	Seconds float64              `json:"seconds,omitempty"` // that it took
	Started time.Time            `json:"started,omitzero"`
	Curves  map[string][]float64 `json:"curves,omitempty"` // value by name: done, value, done, value, …
}

// liveEvery is how often readers hear of changes, liveMachine how often the machine is looked at.
const (
	liveEvery   = 500 * time.Millisecond
	liveMachine = 2 * time.Second
	livePoints  = 400 // of a curve; beyond, every second one goes
)

// StartLive begins to serve the page of a run on a free port. Close ends it.
func StartLive(x *engine.Experiment) (*Live, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve the live page: %w", err)
	}
	var secret [16]byte
	rand.Read(secret[:])
	path := "/" + hex.EncodeToString(secret[:]) + "/"
	l := &Live{URL: "http://" + listener.Addr().String() + path, done: make(chan struct{}), places: map[string]int{},
		state: liveState{Title: x.Name, Question: x.Question, Stages: []liveStage{}}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+path+"{$}", l.page)
	mux.HandleFunc("GET "+path+"events", l.events)
	host := listener.Addr().String()
	l.server = &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != host { // another site's name for this address
			http.NotFound(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})}
	go l.server.Serve(listener)
	go l.watchMachine()
	return l, nil
}

// Close tells readers that nothing more comes and ends the server. What they have stays in their window.
func (l *Live) Close() error {
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

// Observe takes an event of the run.
func (l *Live) Observe(e engine.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	switch e.Kind {
	case engine.EventPlanned:
		for verb, n := range e.Counts {
			if verb != string(engine.UpToDate) && verb != string(engine.Collected) {
				l.state.Planned += n
			}
		}
		return
	case engine.EventEnded:
		var words []string
		for _, outcome := range sortedKeys(e.Counts) {
			words = append(words, fmt.Sprintf("%d %s", e.Counts[outcome], outcome))
		}
		l.state.Ended = "ended: " + strings.Join(words, ", ")
		return
	case engine.EventFile:
		l.state.Files = append(l.state.Files, e.Path)
		return
	}
	if e.Address == "" {
		return
	}
	at, known := l.places[e.Address]
	if !known {
		at = len(l.state.Stages)
		l.places[e.Address] = at
		l.state.Stages = append(l.state.Stages, liveStage{Address: e.Address})
	}
	s := &l.state.Stages[at]
	switch e.Kind {
	case engine.EventNote:
		s.Text = e.Text
	case engine.EventProgress:
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
		if e.Seconds > 0 && e.Kind != engine.EventAdopted {
			s.Seconds = e.Seconds
		}
		if e.Kind == engine.EventStarted || e.Kind == engine.EventAdopted {
			s.Started = e.Time
		}
	}
}

// thin drops every second point of a curve that has too many, and keeps the last.
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

func (l *Live) page(w http.ResponseWriter, _ *http.Request) {
	sum := sha256.Sum256([]byte(liveScript))
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	fmt.Fprint(w, strings.Replace(livePage, "SCRIPT", liveScript, 1))
}

// events sends the state at once and whenever it has changed, until the run has ended or the reader has gone.
func (l *Live) events(w http.ResponseWriter, r *http.Request) {
	flusher, ok := w.(http.Flusher)
	if !ok {
		http.Error(w, "no streaming", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	sent := -1
	for {
		l.mu.Lock()
		number := l.number
		var text []byte
		var err error
		if number != sent {
			text, err = json.Marshal(l.state)
		}
		l.mu.Unlock()
		if err != nil {
			return
		}
		if number != sent {
			if _, err := fmt.Fprintf(w, "id: %d\ndata: %s\n\n", number, text); err != nil {
				return
			}
			flusher.Flush()
			sent = number
		}
		select {
		case <-l.done:
			l.mu.Lock()
			last := l.number == sent
			l.mu.Unlock()
			if last {
				fmt.Fprint(w, "event: end\ndata: \n\n")
				flusher.Flush()
				return
			}
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

func (l *Live) watchMachine() {
	var before cpuTimes
	tick := time.NewTicker(liveMachine)
	defer tick.Stop()
	for {
		now, r := machine(before)
		before = now
		l.mu.Lock()
		if r != l.state.Resources {
			l.state.Resources = r
			l.number++
		}
		l.mu.Unlock()
		select {
		case <-l.done:
			return
		case <-tick.C:
		}
	}
}
