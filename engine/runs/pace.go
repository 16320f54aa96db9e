package runs

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Pace describes how fast a running stage is.
type Pace struct {
	Started     time.Time
	Estimate    time.Duration // of the whole stage; 0: unknown
	First, Last Event         // first and newest progress of this start; zero without any
}

// Rate returns units per second since the first progress; 0: unknown yet.
func (p Pace) Rate() float64 {
	seconds := p.Last.Time.Sub(p.First.Time).Seconds()
	if seconds <= 0 {
		return 0
	}
	return float64(p.Last.Done-p.First.Done) / seconds
}

// Left returns the seconds until the end at that rate; 0 if the rate or the total is unknown.
func (p Pace) Left(now time.Time) float64 {
	rate := p.Rate()
	if rate == 0 || p.Last.Total <= p.Last.Done {
		return 0
	}
	return max(0, float64(p.Last.Total-p.Last.Done)/rate-now.Sub(p.Last.Time).Seconds())
}

// Columns returns done of total (the run time if there is no progress), percent, rate and time left, and the
// values of the newest progress.
func (p Pace) Columns(now time.Time) (columns [4]string, values []string) {
	e := p.Last
	if e.Time.IsZero() {
		columns[0] = DurationText(now.Sub(p.Started).Seconds())
		if p.Estimate > 0 {
			columns[0] += " of about " + DurationText(p.Estimate.Seconds())
		}
		return columns, nil
	}
	columns[0] = fmt.Sprintf("%d %s", e.Done, e.Unit)
	if e.Total > 0 {
		columns[0], columns[1] = fmt.Sprintf("%d/%d %s", e.Done, e.Total, e.Unit), fmt.Sprintf("%d%%", 100*e.Done/e.Total)
	}
	if rate := p.Rate(); rate > 0 {
		columns[2] = fmt.Sprintf("%.3g/s", rate)
		if rate < 1 {
			columns[2] = fmt.Sprintf("%.3g s each", 1/rate)
		}
		if e.Total > e.Done {
			columns[3] = "ETA " + DurationText(p.Left(now))
		}
	}
	for _, v := range e.Values {
		values = append(values, fmt.Sprintf("%s %.4g", v.Name, v.Value))
	}
	return columns, values
}

// Text joins the columns and values.
func (p Pace) Text(now time.Time) string {
	columns, values := p.Columns(now)
	all := slices.DeleteFunc(append(columns[:], values...), func(text string) bool { return text == "" })
	return strings.Join(all, "  ")
}

// DurationText formats seconds for people: "0.4s", "12s", "3m05s", "2h10m".
func DurationText(seconds float64) string {
	d := max(0, time.Duration(seconds*float64(time.Second))) // negative if the clock was set
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}
