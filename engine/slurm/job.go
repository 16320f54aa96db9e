package slurm

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
)

// job is an attempt that this engine watches.
type job struct {
	*stage
	*attempt
	since     time.Time // when this engine began to watch it
	confirmed bool      // Slurm has accepted it, or a job reports that it has started
	started   bool
	startSeen time.Time // when this engine saw the start
	stale     sign      // the last one before Slurm put the job back into the queue
	events    runs.EventReader
	reason    string    // reported last, while the job waits
	silent    time.Time // since when Slurm reports an end or does not list the job; zero: it does
	signThen  sign      // at that time
	cancels   bool      // this engine cancels the job

	copies [][2]string // programs and the copies that the job uses
}

// watch waits for the end of the attempt. When ctx ends, a job in the queue is cancelled, and a running one gets a
// request to stop.
func (j *job) watch(ctx context.Context) (exit, error) {
	j.since = time.Now()
	interrupted, kill, drop := ctx.Done(), j.Kill, (<-chan time.Time)(nil)
	for {
		j.refresh(j.cancels)
		j.observeFiles()
		if e, ended := j.exit(); ended {
			j.observeFiles()
			if e.Cause == causeStopped && ctx.Err() == nil {
				e = j.whyStopped()
			}
			return e, nil
		}
		if e, ended := j.endBySlurm(); ended {
			return e, nil
		}
		if err := j.reportAway(); err != nil {
			j.note("Slurm does not answer, which does not stop the jobs: %v", err)
		}
		select {
		case <-time.After(j.interval()):
		case <-interrupted:
			interrupted = nil
			j.cancels = true
			j.scancel("--state=PENDING")
			j.scancel("--signal=TERM", "--batch")
			drop = time.After(engine.GracePeriod(nil))
		case <-kill:
			kill, drop = nil, j.cancelNow()
		case <-drop:
			if kill == nil {
				return exit{}, fmt.Errorf("%w; its job %s could not be cancelled, so the next run adopts it",
					context.Cause(ctx), j.attempt.Name)
			}
			kill, drop = nil, j.cancelNow()
		}
	}
}

// cancelNow cancels the job, whatever its state, and returns when the engine stops waiting for its end.
func (j *job) cancelNow() <-chan time.Time {
	j.cancels = true
	j.scancel()
	return time.After(j.Deadline)
}

// scancel cancels or signals the job. An error means that Slurm does not answer or that the job has ended; the watch
// continues in both cases.
func (j *job) scancel(options ...string) {
	args := append([]string{"--me", "--name=" + j.attempt.Name}, options...)
	j.command(context.Background(), "", "scancel", args...)
}

// observeFiles reports the start of the stage and its progress.
func (j *job) observeFiles() {
	if !j.started {
		s := j.sign()
		if s == j.stale || s == (sign{}) {
			return
		}
		j.started, j.startSeen, j.confirmed = true, time.Now(), true
		if j.Adopted {
			running := max(0, time.Since(s.Since))
			j.observe(runs.Event{Time: time.Now(), Address: j.Work.Address, Kind: runs.EventAdopted, Key: j.attempt.Key,
				Attempt: j.Work.Attempt, Seconds: running.Seconds(), Path: j.Log.Name(), Expect: j.Estimate.Seconds(),
				Text: fmt.Sprintf("it continues on %s from run %s", s.Host, j.Run.Name())})
		} else {
			j.observe(j.Started())
		}
	}
	j.events.Read(j.Run.Events(j.attempt.Address), func(e runs.Event) {
		e.Address = j.Work.Address
		j.observe(e)
	})
}

func (j *job) queued(text string) {
	if text != j.reason {
		j.reason = text
		j.observe(runs.Event{Time: time.Now(), Address: j.Work.Address, Kind: runs.EventQueued, Key: j.attempt.Key,
			Attempt: j.Work.Attempt, Text: text})
	}
}

// endBySlurm returns the end of an attempt without an exit file, as far as Slurm's answers show one.
func (j *job) endBySlurm() (exit, bool) {
	st, listed, at := j.state(j.attempt.Name)
	if at.Before(j.since) {
		return exit{}, false
	}
	if listed && st.launchFailed() {
		j.scancel()
		e, _ := j.end(exit{Cause: causeHost, Failure: &runs.Failure{Text: st.Reason}})
		return e, true
	}
	if listed && !st.ended() {
		j.silent, j.confirmed = time.Time{}, true
		if j.started && j.Executor.Requeue && st.waits() && at.After(j.startSeen) {
			j.started, j.stale = false, j.sign()
			j.note("its job %s was preempted or lost its host; Slurm starts it again", st.ID)
		}
		if !j.started && st.waits() {
			j.queued(st.Text())
		}
		return exit{}, false
	}
	s := j.sign()
	if j.silent.IsZero() || !listed && s != j.signThen { // it is running all the same
		j.silent, j.signThen = time.Now(), s
	}
	timeout := j.Executor.Visible // for its exit file to be seen
	switch {
	case j.cancels:
		timeout = time.Second
	case !listed && !j.confirmed:
		timeout = j.Deadline + 6*j.Poll
	case !listed:
		timeout = j.Executor.Grace
	}
	if time.Since(j.silent) < timeout {
		return exit{}, false
	}
	e := j.endOf(st, listed)
	if e.Cause != causeHost || e.Failure != nil { // its host has reported the end, so nothing of it runs
		e, _ = j.end(e)
	}
	return e, true
}

// endOf translates the state in which Slurm reports the end of a job. The package comment lists the causes.
func (j *job) endOf(st state, listed bool) exit {
	e := exit{Host: st.Host}
	e.Progress, _ = j.progress()
	last := lastLine(j.file("out"))
	failed := func(cause, format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		if last != "" {
			text += "; the last line of its output is: " + last
		}
		e.Cause, e.Failure = causeFailed, &runs.Failure{Text: text, Cause: cause}
	}
	switch _, err := j.store.Lookup(j.attempt.Key); {
	case err == nil && !j.Had: // only its exit file is missing
		e.Cause = causeDone
	case j.cancels:
		e.Cause = causeCancelled
	case !listed, st.State == "NODE_FAIL", st.State == "BOOT_FAIL":
		e.Cause = causeHost
	case st.State == "PREEMPTED":
		e.Cause = causePreempted
	case st.State == "TIMEOUT", st.State == "DEADLINE":
		e.Cause = causeTime
	case st.State == "CANCELLED" && st.Host != "" && !j.started && !strings.Contains(last, " CANCELLED AT "):
		failed("", "Slurm could not launch it") // otherwise slurmstepd would have reported the cancellation
		e.Cause = causeHost
	case st.State == "CANCELLED", st.State == "REVOKED":
		e.Cause = causeCancelled
	case st.State == "OUT_OF_MEMORY", j.overMemory():
		failed(lang.CauseOOM, "Slurm ended job %s because it used more memory than it requested", st.ID)
	case !j.started:
		failed("", "its program did not start (state %s, %s)", st.State, st.Reason)
		e.Cause = causeHost
	case st.State == "COMPLETED":
		failed("", "job %s has ended, but neither its exit file nor its result is visible here within %v: raise `visible` "+
			"of executor %q if the file system is slow", st.ID, j.Executor.Visible, j.Executor.Name)
	default:
		failed(lang.CauseKilled, "job %s ended without an exit file, in state %s (%s)", st.ID, st.State, st.Reason)
	}
	return e
}

// overMemory reports whether slurmstepd ended the job because of its memory. The state of the job is FAILED then.
func (j *job) overMemory() bool {
	return memoryText.MatchString(strings.Join(runs.LastLines(j.file("out")), "\n"))
}

var memoryText = regexp.MustCompile(`(?i)slurmstepd\S*: .*(exceeded (job|step) memory limit|oom[-_]kill)`)

// whyStopped asks Slurm why a stage got a request to stop that this engine has not sent: a preemption, the reboot of
// its host or a signal by hand.
func (j *job) whyStopped() exit {
	preempted, asked := exit{Cause: causePreempted}, time.Now()
	preempted.Progress, _ = j.progress()
	for time.Since(asked) < j.Executor.Visible+2*j.Poll {
		j.refresh(false)
		st, listed, at := j.state(j.attempt.Name)
		switch {
		case at.Before(asked) || listed && !st.ended():
		case !listed:
			return preempted
		case !j.overMemory() && (st.State == "FAILED" || st.State == "COMPLETED"): // by its own exit code, after a signal
			return exit{Cause: causeCancelled}
		default:
			return j.endOf(st, true)
		}
		time.Sleep(j.interval())
	}
	return preempted
}

// decide ends a stage by the end of its attempt, or reports that it starts again.
func (s *stage) decide(ctx context.Context, j *job, end exit, all []*attempt) (again bool, err error) {
	if ctx.Err() != nil && end.Cause != causeDone && end.Cause != causeFailed {
		return false, context.Cause(ctx)
	}
	id := "its job"
	if st, listed, _ := s.state(j.attempt.Name); listed {
		id += " " + st.ID
	}
	switch end.Cause {
	case causeDone:
		return false, s.awaitResult(ctx)
	case causeFailed:
		return false, cmp.Or(end.Failure, &runs.Failure{Text: id + " failed without a reason"})
	case causeCancelled:
		return false, fmt.Errorf("%s was cancelled outside of this run", id)
	case causeReplaced:
		return true, nil
	case causeTime:
		return s.continueAfterLimit(id, end, all)
	}
	free := 0
	for _, a := range all {
		e, ended := a.exit()
		if !ended || slices.Contains([]string{causePreempted, causeStopped, causeHost}, e.Cause) {
			free++
		}
	}
	why := "was preempted"
	switch {
	case end.Cause == causeHost && !j.confirmed:
		why = "was not accepted by Slurm"
	case end.Cause == causeHost:
		why = strings.TrimSpace("was lost with its host " + end.Host)
		if end.Failure != nil {
			why = fmt.Sprintf("could not run on host %s: %s", cmp.Or(end.Host, "(unknown)"), end.Failure.Text)
		}
		if end.Host != "" {
			s.exclude = append(s.exclude, end.Host)
		}
	}
	if unusable(all) == unusableHosts {
		return false, fmt.Errorf("%s %s; the hosts of the %d attempts before could not run it either", id, why,
			unusableHosts-1)
	}
	s.why = id + " " + why
	if free > s.FreeAttempts {
		return false, engine.WithCause(lang.CausePreempted, fmt.Errorf("%s %s, for the last of %d times (free_attempts of "+
			"executor %q)", id, why, s.FreeAttempts+1, s.Executor.Name))
	}
	s.note("%s %s; a new job resumes from the last checkpoint, if there is one", id, why)
	return true, nil
}

// unusableHosts is the number of attempts after which a stage fails that no host could run.
const unusableHosts = 3

// unusable counts the newest attempts that could not run on their hosts.
func unusable(all []*attempt) (count int) {
	for _, a := range slices.Backward(all) {
		if e, ended := a.exit(); !ended || e.Cause != causeHost || e.Failure == nil {
			break
		}
		count++
	}
	return count
}

// continueAfterLimit submits a stage again that was stopped at its time limit, if it makes progress.
func (s *stage) continueAfterLimit(id string, end exit, all []*attempt) (again bool, err error) {
	count, before := 0, -1
	for _, a := range all {
		if e, ended := a.exit(); ended && e.Cause == causeTime {
			if count++; a != all[len(all)-1] {
				before = e.Progress
			}
		}
	}
	switch {
	case end.Progress <= before:
		err = fmt.Errorf("%s reached its time limit, and so did the one before, without progress in between: raise "+
			"`time` or `checkpoint` of executor %q, or let the stage write checkpoints more often", id, s.Executor.Name)
	case count > s.Continues:
		err = fmt.Errorf("%s reached its time limit after %d continuations (continues of executor %q)", id, s.Continues,
			s.Executor.Name)
	default:
		s.note("%s reached its time limit; a new job resumes from its checkpoint", id)
		return true, nil
	}
	return false, engine.WithCause(lang.CauseTimeout, err)
}

// awaitResult waits until the result that a job has committed is visible here.
func (s *stage) awaitResult(ctx context.Context) error {
	for deadline := time.Now().Add(s.Visible); ; {
		_, err := s.store.Lookup(s.Key)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(s.interval()):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// refresh calls squeue in the background, at most once per Poll, or once per second for a job that this engine cancels.
func (x *Executor) refresh(cancels bool) {
	every := x.Poll
	if cancels {
		every = min(every, time.Second)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.asking && time.Since(x.asked) >= every {
		x.asking = true
		go x.ask()
	}
}

// ask asks Slurm for the states of all jobs.
func (x *Executor) ask() {
	asked := time.Now()
	states, err := x.list(context.Background())
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asking, x.asked = false, asked
	if x.away = err; err == nil {
		x.states, x.answered, x.awayReported = states, asked, false
	}
}

// state returns the newest answer about a job and the time of that answer.
func (x *Executor) state(name string) (st state, listed bool, at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	st, listed = x.states[name]
	return st, listed, x.answered
}

// reportAway returns the error of Slurm, once until it answers again.
func (x *Executor) reportAway() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.away == nil || x.awayReported {
		return nil
	}
	x.awayReported = true
	return x.away
}

// interval is the time between two looks at the files of a job: all jobs together cause at most 200 looks a second.
func (x *Executor) interval() time.Duration {
	return max(100*time.Millisecond, time.Duration(x.watched.Load())*5*time.Millisecond)
}
