package engine

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
)

// DisplayOptions say what a Display writes to.
type DisplayOptions struct {
	Terminal bool                       // lines may be redrawn in place
	Colour   bool                       // escape sequences for colour are welcome
	Size     func() (width, height int) // of the terminal; nil: 80 by 24
}

// Display shows a run to a person: on a terminal a live line per running stage and a status line, redrawn in place,
// below the lines that stay; otherwise plain lines only.
type Display struct {
	o DisplayOptions

	mu      sync.Mutex
	out     io.Writer
	lines   bytes.Buffer // that stay and are not written yet
	running []*liveStage
	drawn   []string // live lines on the screen
	drawnAt time.Time
	changed bool // since then
	started time.Time
	left    int // stages that may still run
	done    map[string]int
	failed  []string
	skipped []skippedStages
	stop    chan struct{}
	ended   sync.WaitGroup
}

// skippedStages are those that were skipped for one reason.
type skippedStages struct {
	why   string
	names []string
}

// liveStage is a running stage as the display knows it.
type liveStage struct {
	Pace
	address string
	told    time.Time // of the last plain line
}

const (
	redrawEvery = 100 * time.Millisecond
	tellEvery   = 10 * time.Second // plain progress of one stage
)

// NewDisplay returns a display that writes to w. Close ends it.
func NewDisplay(w io.Writer, o DisplayOptions) *Display {
	d := &Display{o: o, out: w, done: map[string]int{}, stop: make(chan struct{})}
	if d.o.Size == nil {
		d.o.Size = func() (int, int) { return 80, 24 }
	}
	if o.Terminal {
		d.ended.Go(d.tick)
	}
	return d
}

// tick redraws what events have changed, and every second while nothing happens, so that clocks go on.
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

// Continued says that the process was stopped and goes on, as after ^Z and fg: the shell has written over the live lines.
func (d *Display) Continued() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drawn, d.changed = nil, true
}

// Observe shows an event.
func (d *Display) Observe(e Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := ShortAddress(e.Address)
	switch e.Kind {
	case EventPlanned:
		d.started = e.Time
		d.left = e.Counts[string(MustRun)] + e.Counts[string(MayRun)]
	case EventStarted:
		d.drop(e.Address)
		s := &liveStage{address: e.Address, Pace: Pace{Started: e.Time, Estimate: time.Duration(e.Expect * float64(time.Second))}, told: e.Time}
		d.running = append(d.running, s)
		if !d.o.Terminal {
			d.say("", "start", name, "")
		}
	case EventAdopted:
		d.drop(e.Address)
		before := time.Duration(e.Seconds * float64(time.Second))
		d.running = append(d.running, &liveStage{address: e.Address, told: e.Time,
			Pace: Pace{Started: e.Time.Add(-before), Estimate: time.Duration(e.Expect * float64(time.Second)), First: Event{Time: e.Time.Add(-before)}}})
		d.say("yellow", "adopt", name, e.Text)
	case EventProgress:
		d.progress(e)
	case EventNote:
		d.say("yellow", "note", name, e.Text)
	case EventDone:
		d.settle(e)
		d.say("green", "done", name, durationText(e.Seconds))
	case EventKept:
		d.settle(e)
		d.say("dim", "kept", name, "as it was")
	case EventShown:
		d.settle(e)
		d.say("yellow", "shown", name, e.Text)
	case EventFile:
		how, more, _ := strings.Cut(e.Text, "; ")
		d.say("", how, e.Path, more)
	case EventFailed:
		d.settle(e)
		d.failed = append(d.failed, name)
		d.say("red", "FAILED", name, e.Text)
		d.failure(e.Failure)
	case EventSkipped:
		d.settle(e)
		d.skip(name, ShortAddress(e.Text))
	case EventEnded:
		d.summary(e)
	}
	d.changed = true
	if since := e.Time.Sub(d.drawnAt); !d.o.Terminal || since < 0 || since >= redrawEvery || e.Kind == EventFailed {
		d.redraw(e.Time) // otherwise tick does it, so that many short stages cost one frame
	}
}

func (d *Display) skip(name, why string) {
	i := slices.IndexFunc(d.skipped, func(s skippedStages) bool { return s.why == why })
	if i < 0 {
		i = len(d.skipped)
		d.skipped = append(d.skipped, skippedStages{why: why})
	}
	d.skipped[i].names = append(d.skipped[i].names, name)
}

// drop takes a stage off the live lines.
func (d *Display) drop(address string) {
	d.running = slices.DeleteFunc(d.running, func(s *liveStage) bool { return s.address == address })
}

func (d *Display) settle(e Event) {
	d.drop(e.Address)
	d.done[string(e.Kind)]++
	d.left = max(0, d.left-1)
}

func (d *Display) progress(e Event) {
	i := slices.IndexFunc(d.running, func(s *liveStage) bool { return s.address == e.Address })
	if i < 0 { // a node run by hand has no start
		d.running = append(d.running, &liveStage{address: e.Address, Pace: Pace{Started: e.Time}})
		i = len(d.running) - 1
	}
	s := d.running[i]
	set := e.Time.Before(s.Last.Time) // the clock
	if s.First.Time.IsZero() || s.First.Unit != e.Unit && s.First.Unit != "" || e.Done < s.Last.Done || set {
		s.First = e
	}
	s.Last = e
	if !d.o.Terminal && (set || e.Time.Sub(s.told) >= tellEvery) {
		s.told = e.Time
		d.say("", "...", ShortAddress(s.address), s.Text(e.Time))
	}
}

func (d *Display) failure(f *Failure) {
	if f == nil {
		return
	}
	for _, line := range f.Lines {
		d.line("  | " + plain(line))
	}
	if f.Log != "" {
		d.line("  log:     " + f.Log)
	}
	if f.Work != "" {
		d.line("  scratch: " + f.Work)
	}
}

// summary is the last line of a run, preceded by what failed and what was skipped.
func (d *Display) summary(e Event) {
	if ran := len(d.done) > 0; !ran && len(d.skipped) == 0 {
		text := fmt.Sprintf("nothing to do: %s up to date", Plural(e.Counts[string(UpToDate)], "stage"))
		if n := e.Counts[string(Collected)]; n > 0 {
			text += fmt.Sprintf(", %d collected by gc (-replace ADDRESS makes one again)", n)
		}
		d.line(text)
		return
	}
	if len(d.failed) > 0 {
		d.line(d.paint("red", "failed: "+listed(d.failed)))
	}
	for _, s := range d.skipped {
		d.line(fmt.Sprintf("skipped: %s (%s)", listed(s.names), plain(s.why)))
	}
	var parts []string
	for _, kind := range []EventKind{EventDone, EventKept, EventShown, EventFailed, EventSkipped} {
		if n := e.Counts[string(kind)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, kind))
		}
	}
	for _, verb := range []Verb{UpToDate, Collected} {
		if n := e.Counts[string(verb)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, verb))
		}
	}
	d.line(fmt.Sprintf("%s in %s", strings.Join(parts, ", "), durationText(e.Time.Sub(d.started).Seconds())))
}

// listed writes names, the first ones of many.
func listed(names []string) string {
	const most = 12
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most-2], ", "), len(names)-most+2)
}

// say prints a line that stays: a word, a name, a text.
func (d *Display) say(colour, word, name, text string) {
	if name != "" && text != "" {
		name += "  "
	}
	d.line(strings.TrimRight(d.paint(colour, fmt.Sprintf("%-7s", word))+" "+name+plainLines(text), " "))
}

func (d *Display) line(text string) {
	d.lines.WriteString(text + "\n")
}

// plain drops what would steer the terminal: a log holds whatever the stage wrote.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' {
			return -1
		}
		return r
	}, text)
}

// plainLines is plain for a text of several lines.
func plainLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = plain(line)
	}
	return strings.Join(lines, "\n")
}

var colours = map[string]string{"red": "\x1b[31m", "green": "\x1b[32m", "yellow": "\x1b[33m", "dim": "\x1b[2m"}

func (d *Display) paint(colour, text string) string {
	if !d.o.Colour || colours[colour] == "" {
		return text
	}
	return colours[colour] + text + "\x1b[0m"
}
