package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
)

// Environment of a rank.
const (
	rankVariable = "RCGRPO_RANK"       // its number
	meetVariable = "RCGRPO_RENDEZVOUS" // folder of the ranks: their reports, failures and rendezvous
)

// rank is this process among the ranks of a stage; the zero value is a process that is no rank.
type rank struct {
	number, count int
	meet          string // folder of the ranks
}

// ownRank returns this process as a rank, without the count; ok is false if no supervisor has started it.
func ownRank() (r rank, ok bool) {
	r.meet, ok = os.LookupEnv(meetVariable)
	r.number, _ = strconv.Atoi(os.Getenv(rankVariable))
	return r, ok
}

// set enters the rank into its job.
func (r rank) set(j *Job) {
	if r.count == 0 {
		return
	}
	j.Rank, j.Ranks, j.Rendezvous = r.number, r.count, filepath.Join(r.meet, "store")
	j.Threads = max(1, j.Threads/r.count)
	if l, err := limitsOfRanks(); err == nil { // the supervisor has already rejected invalid limits
		j.Arrival = l.arrival
	}
}

// ReportRank makes f the source of the reports of this rank, from now on: its phase, steps and waiting. The engine
// calls it every second, from another goroutine, and after the stage. A job of one process reports nothing.
func (j *Job) ReportRank(f func() runs.RankState) { j.report.Store(&f) }

// state returns the report of this rank.
func (r rank) state(j *Job) (s runs.RankState) {
	if f := j.report.Load(); f != nil {
		s = (*f)()
	}
	s.Rank, s.Usage = r.number, proc.OwnUsage()
	return s
}

// states returns the newest reports of all ranks.
func (r rank) states(j *Job) []runs.RankState {
	all := runs.ReadRanks(r.meet, r.count)
	all[r.number] = r.state(j)
	return all
}

// reportEverySecond writes the reports of a rank until end is called.
func (r rank) reportEverySecond(j *Job) (end func()) {
	if r.count == 0 {
		return func() {}
	}
	write := func() {
		if err := runs.WriteRank(r.meet, r.state(j)); err != nil {
			j.Logf("report of the rank: %v", err)
		}
	}
	write()
	stop := proc.Every(reportRanksEvery, write)
	return func() {
		stop()
		write()
	}
}

// rankFailure is the failure of a rank. The rank leaves it as a file in the folder of the ranks.
type rankFailure struct {
	runs.Failure
	Rank    int
	Echo    bool // it follows from the failure of another rank
	Crashed bool // a signal ended the process
}

// Echo is an error that a stage returns in a rank because another rank has failed, if the method Echo returns true: the
// ranks lost contact, for example. The supervisor then reports the failure of the other rank (causality).
type Echo interface{ Echo() bool }

// failureOf describes an error of a rank.
func failureOf(rank int, err error) rankFailure {
	var e Echo
	return rankFailure{Failure: runs.Failure{Text: err.Error(), Cause: CauseOf(err)}, Rank: rank,
		Echo: errors.As(err, &e) && e.Echo()}
}

// causality orders failures: those that cause others come first.
func (f rankFailure) causality() int {
	switch {
	case f.Crashed:
		return 0
	case !f.Echo:
		return 1
	}
	return 2
}

func failurePath(meet string, rank int) string {
	return filepath.Join(meet, "failure."+strconv.Itoa(rank))
}

// leave writes the failure into the folder of the ranks. Without the file, the supervisor reports how the process
// ended.
func (f rankFailure) leave(meet string) { runs.WriteJSON(failurePath(meet, f.Rank), f) }
