package display

import (
	"fmt"
	"time"

	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
)

const (
	measuredAfter  = 3 * time.Second // of progress, before the pace of a stage counts
	printLeftEvery = time.Minute     // without a terminal
)

// estimate is the expected time until the end of a run, from what its stages have spent.
type estimate struct {
	left           func(map[string]plan.Spent) time.Duration // nil without an estimate
	spent          map[string]plan.Spent                     // by address
	last           time.Duration                             // of left; 0: unknown
	lastAt, lineAt time.Time                                 // of the last estimate, and of its last plain line
}

// progress records what a running stage has spent. Its share is that of its progress since the first report, so that
// the start of its process and the loading of its data do not count.
func (e *estimate) progress(s *stage) {
	time := s.Last.Time.Sub(s.First.Time)
	if s.Last.Total <= 0 || time < measuredAfter {
		return
	}
	e.spent[s.address] = plan.Spent{Share: float64(s.Last.Done-s.First.Done) / float64(s.Last.Total), Time: time}
}

// end records an ended stage. One that did not run says nothing about the pace.
func (e *estimate) end(event runs.Event) {
	spent := plan.Spent{Ended: true}
	if event.Kind == runs.EventDone {
		spent.Share, spent.Time = 1, time.Duration(event.Seconds*float64(time.Second))
	}
	e.spent[event.Address] = spent
}

// rest estimates the time until the end of the run, at most once a second.
func (e *estimate) rest(now time.Time) time.Duration {
	since := now.Sub(e.lastAt)
	if e.left != nil && (since < 0 || since >= time.Second) {
		e.last, e.lastAt = e.left(e.spent), now
	}
	return e.last
}

// printLeft prints the estimated time of the whole run as soon as it is known, and the rest of it every minute.
// On a terminal the status line has it.
func (d *Display) printLeft(now time.Time) {
	e := &d.estimate
	if d.o.Terminal || !e.lineAt.IsZero() && now.Sub(e.lineAt) < printLeftEvery {
		return
	}
	left := e.rest(now)
	switch {
	case left == 0:
		return
	case e.lineAt.IsZero():
		d.print(plain, "expect", "about "+roughly(now.Sub(d.started)+left)+" in all, by the first updates", "")
	default:
		d.print(plain, "left", "about "+roughly(left), "")
	}
	e.lineAt = now
}

// roughly formats a duration to the accuracy of an estimate.
func roughly(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%d s", max(10, int(d.Round(10*time.Second).Seconds())))
	}
	if d < 10*time.Hour {
		return fmt.Sprintf("%d min", int(d.Round(time.Minute).Minutes()))
	}
	return fmt.Sprintf("%d h", int(d.Round(time.Hour).Hours()))
}
