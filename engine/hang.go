package engine

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
)

// rankLimits limit the start, the waits and the silence of ranks. The ranks apply arrival, their supervisor the others.
type rankLimits struct {
	arrival time.Duration // to start and join the others
	waiting time.Duration // in which all ranks wait for each other
	silence time.Duration // in which a rank works but makes no step
}

// Variables of the environment that change the limits.
const (
	arrivalVariable = "RCGRPO_RANK_ARRIVAL"
	waitingVariable = "RCGRPO_RANK_WAITING"
	silenceVariable = "RCGRPO_RANK_SILENCE"
)

// limitsOfRanks returns the limits of the environment, by default 2, 2 and 10 minutes.
func limitsOfRanks() (l rankLimits, err error) {
	l = rankLimits{2 * time.Minute, 2 * time.Minute, 10 * time.Minute}
	for name, limit := range map[string]*time.Duration{arrivalVariable: &l.arrival, waitingVariable: &l.waiting,
		silenceVariable: &l.silence} {
		text := os.Getenv(name)
		if text == "" {
			continue
		}
		if *limit, err = time.ParseDuration(text); err != nil || *limit <= 0 {
			return l, fmt.Errorf("%s = %q is no duration above 0; write for example 30m", name, text)
		}
	}
	return l, nil
}

// reportRanksEvery is the time between two reports of a rank, and between two looks of the supervisor at them.
const reportRanksEvery = time.Second

// hangWatch finds ranks that make no progress, by their reports.
type hangWatch struct {
	limits rankLimits
	last   []runs.RankState
	idle   []time.Duration // since the last change of each report
}

// observe compares new reports of all ranks with the last ones, so much later. The error says which limit they have
// exceeded. Time in which the supervisor itself was stopped does not count.
func (h *hangWatch) observe(now []runs.RankState, passed time.Duration) error {
	if h.last == nil {
		h.last, h.idle = now, make([]time.Duration, len(now))
		return nil
	}
	passed = min(passed, 2*reportRanksEvery)
	shortest, hung := time.Duration(-1), -1
	for i, r := range now {
		if h.idle[i] += passed; !r.Same(h.last[i]) {
			h.idle[i] = 0
		}
		if !r.Waits {
			shortest = 0
			limit := h.limits.silence
			if r.Phase == "" { // it starts, and the others name it after the limit of their arrival
				limit = max(limit, 2*h.limits.arrival)
			}
			if h.idle[i] >= limit && hung < 0 {
				hung = i
			}
		} else if shortest < 0 || h.idle[i] < shortest {
			shortest = h.idle[i]
		}
	}
	h.last = now
	switch {
	case hung >= 0:
		return WithCause(lang.CauseTimeout, fmt.Errorf("rank %d of %d %s and has made no step for %v (%s): all ranks were "+
			"killed, and the log contains the phase of each", hung, len(now), now[hung].Text(), h.idle[hung].Round(time.Second),
			silenceVariable))
	case shortest >= h.limits.waiting:
		return WithCause(lang.CauseTimeout, fmt.Errorf("all %d ranks wait for each other for %v (%s), rank 0 at %q: they "+
			"were killed, and the log contains the phase of each", len(now), h.limits.waiting, waitingVariable,
			now[0].Phase))
	}
	return nil
}

// writeTable writes the phases of all ranks. stopped reports whether a rank's process is stopped by a signal.
func (h *hangWatch) writeTable(w io.Writer, stopped func(rank int) bool) {
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "rank\tphase\tsteps\tunchanged\twaited")
	for i, r := range h.last {
		phase := r.Text()
		if stopped(i) {
			phase += ", stopped by a signal"
		}
		fmt.Fprintf(t, "%d\t%s\t%d\t%v\t%.1f s\n", r.Rank, phase, r.Steps, h.idle[i].Round(time.Second/10), r.Waited)
	}
	t.Flush()
	io.WriteString(w, text.String())
}
