// Package display shows a run to a person. A Display receives the events of a run: on a terminal it redraws a line per
// running stage and a status line, elsewhere it prints plain lines. The engine knows nothing of it.
package display

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/dustin/go-humanize/english"

	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
)

// Options describe the writer of a Display.
type Options struct {
	Terminal bool                       // lines may be redrawn in place
	Colour   bool                       // escape sequences for colours are allowed
	Size     func() (width, height int) // of the terminal

	// Left estimates the time until the end of the run; 0: unknown. It may be nil.
	Left func(map[string]plan.Spent) time.Duration
}

// Display prints the events of a run. Its methods may be called concurrently.
type Display struct {
	o Options

	mu       sync.Mutex
	out      io.Writer
	lines    bytes.Buffer // permanent lines that are not written yet
	running  []*stage
	drawn    []string // live lines on the screen
	drawnAt  time.Time
	changed  bool // since drawnAt
	started  time.Time
	open     int // stages that may still run
	estimate estimate
	done     map[string]int
	failed   []string
	skipped  map[string][]string // by reason
	stop     chan struct{}
	ended    sync.WaitGroup
}

type stage struct {
	runs.Pace
	address   string
	printedAt time.Time // the last plain line of its progress
}

const (
	redrawEvery = 100 * time.Millisecond
	printEvery  = 10 * time.Second // plain progress of one stage
)

// New returns a display that writes to w. The caller calls Close at the end.
func New(w io.Writer, o Options) *Display {
	d := &Display{o: o, out: w, done: map[string]int{}, skipped: map[string][]string{},
		estimate: estimate{left: o.Left, spent: map[string]plan.Spent{}}, stop: make(chan struct{})}
	if o.Terminal {
		d.ended.Go(d.tick)
	}
	return d
}

// tick redraws after changes, and every second without one because the run times advance.
func (d *Display) tick() {
	every := time.NewTicker(redrawEvery)
	defer every.Stop()
	for {
		select {
		case now := <-every.C:
			d.mu.Lock()
			if d.changed || now.Sub(d.drawnAt) >= time.Second {
				d.redraw(now)
			}
			d.mu.Unlock()
		case <-d.stop:
			return
		}
	}
}

// Close removes the live lines.
func (d *Display) Close() {
	close(d.stop)
	d.ended.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = nil
	d.redraw(time.Now())
}

// Continued draws below the cursor instead of over the last live lines: after ^Z and fg the shell has overwritten them.
func (d *Display) Continued() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drawn, d.changed = nil, true
}

// Observe shows an event.
func (d *Display) Observe(e runs.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := lang.ShortAddress(e.Address)
	switch e.Kind {
	case runs.EventPlanned:
		d.started = e.Time
		d.open = e.Counts[string(plan.MustRun)] + e.Counts[string(plan.MayRun)] + e.Counts[string(plan.Fetch)]
	case runs.EventQueued:
		d.running = slices.DeleteFunc(d.running, func(s *stage) bool { return s.address == e.Address })
		d.print(plain, "queued", name, e.Text)
	case runs.EventStarted:
		d.start(e, 0)
		if !d.o.Terminal {
			d.print(plain, "start", name, "")
		}
	case runs.EventAdopted:
		d.start(e, time.Duration(e.Seconds*float64(time.Second)))
		d.print(yellow, "adopt", name, e.Text)
	case runs.EventProgress:
		d.progress(e)
	case runs.EventNote:
		d.print(yellow, "note", name, e.Text)
	case runs.EventDone:
		d.end(e, green, "done", runs.DurationText(e.Seconds))
	case runs.EventKept:
		d.end(e, dim, "kept", "unchanged")
	case runs.EventFetched:
		d.end(e, green, "fetched", e.Text)
	case runs.EventShown:
		d.end(e, yellow, "shown", e.Text)
	case runs.EventFile:
		how, more, _ := strings.Cut(e.Text, "; ")
		d.print(plain, how, e.Path, more)
	case runs.EventFailed:
		d.failed = append(d.failed, name)
		d.end(e, red, "FAILED", e.Text)
		for _, line := range e.Failure.Details() {
			d.line(plain, "", "  "+line)
		}
	case runs.EventSkipped:
		d.settle(e)
		why := lang.ShortAddress(e.Text)
		d.skipped[why] = append(d.skipped[why], name)
	case runs.EventEnded:
		d.summary(e)
	}
	d.printLeft(e.Time)
	d.changed = true
	since := e.Time.Sub(d.drawnAt) // negative if the clock was set
	if !d.o.Terminal || since < 0 || since >= redrawEvery || e.Kind == runs.EventFailed {
		d.redraw(e.Time) // otherwise tick redraws: many short stages cost one frame
	}
}

// start adds a live line for a stage that has been running for some time.
func (d *Display) start(e runs.Event, running time.Duration) {
	d.running = slices.DeleteFunc(d.running, func(s *stage) bool { return s.address == e.Address })
	s := &stage{address: e.Address, printedAt: e.Time}
	s.Started, s.Estimate = e.Time.Add(-running), time.Duration(e.Expect*float64(time.Second))
	if e.Kind == runs.EventAdopted {
		s.First = runs.Event{Time: s.Started}
	}
	d.running = append(d.running, s)
}

// end settles a stage and prints its outcome.
func (d *Display) end(e runs.Event, colour, outcome, text string) {
	d.settle(e)
	d.print(colour, outcome, lang.ShortAddress(e.Address), text)
}

// settle removes the live line of a stage and counts its outcome.
func (d *Display) settle(e runs.Event) {
	d.running = slices.DeleteFunc(d.running, func(s *stage) bool { return s.address == e.Address })
	d.done[string(e.Kind)]++
	d.estimate.end(e)
	d.open = max(0, d.open-1)
}

func (d *Display) progress(e runs.Event) {
	i := slices.IndexFunc(d.running, func(s *stage) bool { return s.address == e.Address })
	if i < 0 { // a node that was started by hand has no start event
		i = len(d.running)
		d.running = append(d.running, &stage{Pace: runs.Pace{Started: e.Time}, address: e.Address})
	}
	s := d.running[i]
	clockSet := e.Time.Before(s.Last.Time)
	if s.First.Time.IsZero() || s.First.Unit != e.Unit && s.First.Unit != "" || e.Done < s.Last.Done || clockSet {
		s.First = e
	}
	s.Last = e
	d.estimate.progress(s)
	if !d.o.Terminal && (clockSet || e.Time.Sub(s.printedAt) >= printEvery) {
		s.printedAt = e.Time
		d.print(plain, "...", lang.ShortAddress(s.address), s.Text(e.Time))
	}
}

// summary prints the failed and the skipped stages, then the last line of the run.
func (d *Display) summary(e runs.Event) {
	if len(d.done) == 0 && len(d.skipped) == 0 {
		text := fmt.Sprintf("nothing to do: %s up to date", english.Plural(e.Counts[string(plan.UpToDate)], "stage", ""))
		if n := e.Counts[string(plan.NotHere)]; n > 0 {
			text += fmt.Sprintf(", %d not here (--replace ADDRESS runs one again)", n)
		}
		d.line(plain, "", text)
		return
	}
	if len(d.failed) > 0 {
		d.line(red, "failed: "+joinNames(d.failed), "")
	}
	for _, why := range slices.Sorted(maps.Keys(d.skipped)) {
		d.line(plain, "", fmt.Sprintf("skipped: %s (%s)", joinNames(d.skipped[why]), why))
	}
	var parts []string
	for _, word := range []string{
		string(runs.EventDone), string(runs.EventFetched), string(runs.EventKept), string(runs.EventShown),
		string(runs.EventFailed),
		string(runs.EventSkipped), string(plan.UpToDate), string(plan.NotHere),
	} {
		if n := e.Counts[word]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, word))
		}
	}
	took := runs.DurationText(e.Time.Sub(d.started).Seconds())
	d.line(plain, "", fmt.Sprintf("%s in %s", strings.Join(parts, ", "), took))
}

// joinNames joins names; of many, only the first ones.
func joinNames(names []string) string {
	const most = 12
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most-2], ", "), len(names)-most+2)
}

// print adds a permanent line: a word, a name, a text.
func (d *Display) print(colour, word, name, text string) {
	if name != "" && text != "" {
		name += "  "
	}
	d.line(colour, fmt.Sprintf("%-7s", word), " "+name+text)
}

// line adds a line that begins with a coloured text. All of it may be foreign.
func (d *Display) line(colour, coloured, text string) {
	text = d.paint(colour, strings.Map(Printable, coloured)) + strings.Map(Printable, text)
	d.lines.WriteString(strings.TrimRight(text, " ") + "\n")
}

// Printable replaces a character that can control a terminal or change the direction of its text. Tabs and line breaks
// are kept.
func Printable(r rune) rune {
	if r == '\t' || r == '\n' || unicode.IsGraphic(r) {
		return r
	}
	return unicode.ReplacementChar
}

const red, green, yellow, dim, plain = "31", "32", "33", "2", ""

func (d *Display) paint(colour, text string) string {
	if !d.o.Colour || colour == plain || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
