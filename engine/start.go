package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
)

// Executor executes one attempt at a node. It returns nil when the result is committed (or, if inputs are
// missing, ready to be shown), the stage's error, or the context's cause. A stage may outlive the process of the
// executor; then the next run adopts it. Package enginetest has the suite that each executor must pass.
type Executor interface {
	Execute(ctx context.Context, w Work, observe func(runs.Event)) error
}

// Work is one attempt at a node, as an Executor receives it.
type Work struct {
	runs.Assignment
	Node *lang.Node
	Log  *os.File        // for the stage's output
	Kill <-chan struct{} // closed to end the stage at once, without a checkpoint; nil: never

	start *start
}

// Args returns the arguments with which Binary executes the node.
func (w Work) Args() []string {
	return []string{"node", "--run", string(w.start.folder), "--node", w.Node.Address}
}

// Env returns base with the variables of the node's share of the machine.
func (w Work) Env(base []string) []string { return childEnv(base, w.CPUs, w.GPUs) }

// Events returns the file to which that program appends its events as JSON Lines, for Follow.
func (w Work) Events() string { return w.start.folder.Events(w.Node.Address) }

// Held returns the files that the program inherits as descriptors 3, 4, …: the lock of the key and the lease,
// which stay locked while one of its processes lives.
func (w Work) Held() []*os.File {
	var files []*os.File
	for _, f := range []*os.File{w.start.lock.File(), w.start.lease} {
		if f != nil {
			files = append(files, f)
		}
	}
	return files
}

// Perform executes the node in this process.
func (w Work) Perform(ctx context.Context, observe func(runs.Event)) error {
	return w.start.execute(ctx, observe)
}

// start is everything that the execution of a node needs, in the process of the run or in one of its own.
type start struct {
	Work
	experiment *lang.Experiment
	store      *artifact.Store
	session    *artifact.Session
	folder     runs.Folder
	lock       *artifact.Lock // of the key; nil if the output is not committed, or in a process of its own
	lease      *os.File       // nil without one, or in a process of its own
	adopted    bool           // the program ended successfully after its engine, at ended: its output is committed
	ended      time.Time
	ownProcess bool // the peak memory of this process is that of the stage

	parts     artifact.Parts                // of the key; nil: computed from inputs
	inputs    map[string]*artifact.Manifest // by address; nil: read from the store
	shorter   *Shorter                      // result to resume from, or nil
	resumes   bool                          // the scratch folder existed before
	peakBytes int64                         // of the stage's programs
	committed *artifact.Committed           // result to flush; nil before the end, or if a process of its own flushed it
}

// start acquires the lock of a task's key and executes it in a goroutine. If another process holds the lock, the task
// frees its share and waits.
func (r *run) start(ctx context.Context, t *task) {
	if err := r.session.Pin(t.Key); err != nil {
		r.free(t)
		r.fail(t, err, 0)
		return
	}
	if t.Key != "" && t.lock == nil {
		lock, err := r.Store.TryLock(t.Key)
		if err != nil {
			r.free(t)
			r.fail(t, err, 0)
			return
		}
		if lock == nil {
			r.free(t)
			r.awaitLock(ctx, t)
			return
		}
		t.lock = lock
		if r.reuseNew(t) {
			r.free(t)
			return
		}
	}
	t.state = running
	s := &start{Work: Work{Assignment: r.assignment(t), Node: t.Node, Kill: r.Kill},
		experiment: r.Experiment, store: r.Store, session: r.session, folder: r.folder,
		lock: t.lock, lease: t.lease.Inherited(), parts: t.parts, inputs: map[string]*artifact.Manifest{}}
	s.Work.start = s
	for _, up := range t.reads {
		if up.manifest != nil {
			s.inputs[up.Address] = up.manifest
		}
	}
	r.pending++
	go func() {
		e, started := stageEnd{task: t}, time.Now()
		e.err = r.attempts(ctx, s)
		e.took = time.Since(started)
		if e.err == nil && t.Key != "" {
			e.manifest, e.err = r.commit(t, s.committed, e.took)
		}
		r.ended <- e
	}()
}

// assignment describes the first attempt at a task.
func (r *run) assignment(t *task) runs.Assignment {
	a := runs.Assignment{Address: t.Address, Key: t.Key, Inputs: map[string]string{},
		Missing: map[string]*runs.MissingError{},
		Store:   r.Store.Dir(), CPUs: t.request.Need.CPUs, GPUs: t.gpus, Attempt: t.attempts + 1, Revision: Revision()}
	for _, up := range t.reads {
		missing := &runs.MissingError{Address: up.Address}
		switch {
		case up.manifest != nil:
			a.Inputs[up.Address] = up.manifest.Key
			continue
		case up.how == runs.EventFailed:
			missing.Why = "failed: " + up.why
			missing.Lines = shortLines(lastLines(r.folder.Log(up.Address), failureLines))
		case up.how == runs.EventSkipped:
			missing.Why = "was skipped: " + up.why
		default:
			missing.Why = "was executed without some of its inputs and is not committed"
		}
		a.Missing[up.Address] = missing
	}
	return a
}

// attempt starts the node once, under its timeout.
func (r *run) attempt(ctx context.Context, s *start) error {
	s.Since, s.Kills = time.Now(), proc.OOMKills()
	address, inPlace := s.Node.Address, r.inPlace(s.Node)
	if !inPlace {
		if err := r.folder.Assign(s.Assignment); err != nil {
			return err
		}
	}
	if s.lock.TakeOrphan() {
		r.adoptFinished(s)
	}
	if s.lock != nil {
		if err := s.Holder(r.folder).Write(s.lock.File()); err != nil {
			return err
		}
	}
	if err := s.openLog(); err != nil {
		return err
	}
	defer s.Log.Close()
	r.emit(runs.Event{Address: address, Kind: runs.EventStarted, Attempt: s.Attempt, Key: s.Key,
		Expect: r.byAddress[address].Estimate.Seconds(), Path: s.Log.Name()})
	if s.Node.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.Node.Timeout, errTimeout)
		defer cancel()
	}
	limit := r.logLimit(address)
	end := limit.Watch()
	err := r.Executor.Execute(ctx, s.Work, r.emit)
	r.recordError(end())
	if err != nil && errors.Is(context.Cause(ctx), errTimeout) {
		return timeoutError(s.Node.Timeout)
	}
	return err
}

// logLimit limits the log of an address.
func (r *run) logLimit(address string) *proc.LogLimit {
	most := r.Experiment.Site.LogLimit
	return &proc.LogLimit{Path: r.folder.Log(address), Most: most, Report: func() {
		r.emit(runs.Event{Address: address, Kind: runs.EventNote, Text: fmt.Sprintf("its log reached the limit of %s: "+
			"the middle is removed, and a line in the log contains the size (logs.limit of the site file)",
			lang.BytesText(most))})
	}}
}

// adoptFinished makes the attempt commit the output of a program that has ended after its engine.
func (r *run) adoptFinished(s *start) {
	var h runs.Holder
	if s.store.Holder(s.Key, &h) != nil || !disk.Exists(s.store.Work(s.Key)) {
		return
	}
	s.adopted, s.Since = true, h.Since
	r.recordError(r.folder.LinkLog(h, s.Node.Address))
	r.emit(runs.Event{Address: s.Node.Address, Kind: runs.EventNote,
		Text: fmt.Sprintf("adopted: its program ended successfully after the end of %s", h.Text())})
}

// openLog opens the log for appending, and marks the start of an attempt after the first.
func (s *start) openLog() (err error) {
	s.Log, err = disk.OpenFile(s.folder.Log(s.Node.Address), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil && s.Attempt > 1 {
		_, err = fmt.Fprintf(s.Log, "%s%d\n", attemptMark, s.Attempt)
	}
	return err
}

// execute binds the inputs, runs the stage and commits the result. After an error the key has no result; the scratch
// folder is removed only after the commit.
func (s *start) execute(ctx context.Context, observe func(runs.Event)) (err error) {
	runner, ok := s.Node.Stage.(Runner)
	if !ok {
		return fmt.Errorf("%s: this binary cannot run stages of kind %s", s.Node.Address, s.Node.Kind.Name)
	}
	if err := s.bindInputs(); err != nil {
		return err
	}
	job, err := s.newJob(observe)
	if err != nil {
		return err
	}
	if s.Key == "" {
		shown := s.folder.Shown(s.Node.Address)
		started := time.Now()
		job.out = portFolder(shown)
		if err := runStage(ctx, runner, job); err != nil {
			return err
		}
		return errors.Join(runs.WriteJSON(filepath.Join(shown, "manifest.json"), s.manifest(job, started)),
			os.RemoveAll(job.Dir))
	}
	staging, err := s.store.Begin(s.Key)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, staging.Abort())
		}
	}()
	job.out = staging
	if err := s.findShorter(); err != nil {
		return err
	}
	started := time.Now()
	if err := runStage(ctx, runner, job); err != nil {
		return err
	}
	return s.commit(staging, s.manifest(job, started))
}

// bindInputs reads the inputs from the store and checks the key, unless the run has done so.
func (s *start) bindInputs() error {
	if s.inputs == nil {
		s.inputs = map[string]*artifact.Manifest{}
		for address, key := range s.Inputs {
			m, err := s.store.Manifest(key)
			if err != nil {
				return fmt.Errorf("input %s: %w", address, err)
			}
			s.inputs[address] = m
		}
	}
	if s.Key == "" || s.parts != nil {
		return nil
	}
	key, parts, ok := plan.Key(s.Node, func(from *lang.Node, port string) (string, bool) {
		m := s.inputs[from.Address]
		if m == nil {
			return "", false
		}
		o, ok := m.Outputs[port]
		return o.Digest, ok
	})
	if !ok {
		return fmt.Errorf("%s: not every input has a result", s.Node.Address)
	}
	if key != s.Key {
		return fmt.Errorf("%s has key %.12s here and %.12s in the plan: data that it names has changed since, "+
			"or the binaries differ", s.Node.Address, key, s.Key)
	}
	s.parts = parts
	return nil
}

// manifest describes the result of a job.
func (s *start) manifest(job *Job, started time.Time) artifact.Manifest {
	n := s.Node
	m := artifact.Manifest{Kind: n.Kind.Name, Version: n.Kind.Version, Experiment: s.experiment.Name, Address: n.Address,
		Seed: n.Seed, Parts: s.parts, Revision: Revision(), Device: job.Device, Run: s.folder.ID(),
		Started: started.UTC(), Seconds: time.Since(started).Seconds(), PeakBytes: s.peakBytes, Published: job.published}
	if s.adopted {
		m.Started, m.Seconds = s.Since.UTC(), max(0, s.ended.Sub(s.Since).Seconds()) // the clock may have been set back
	}
	if s.shorter != nil {
		m.Begun = s.shorter.Key
	}
	if s.ownProcess {
		m.PeakBytes = max(m.PeakBytes, peakBytes())
	}
	return m
}

// runStage turns a panic of a stage into an error, so that it does not end the engine.
func runStage(ctx context.Context, r Runner, job *Job) (err error) {
	defer func() {
		if v := recover(); v != nil {
			job.Logf("panic: %v\n%s", v, debug.Stack())
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return r.Run(ctx, job)
}

// newJob creates the job and its scratch folder.
func (s *start) newJob(observe func(runs.Event)) (*Job, error) {
	n := s.Node
	j := &Job{Address: n.Address, Experiment: s.experiment, Dir: s.store.Work(s.Key), Device: "cpu", Threads: s.CPUs,
		GPUs: s.GPUs, Attempt: s.Attempt, Site: s.experiment.Site, start: s, observe: observe, log: os.Stderr}
	if s.Log != nil {
		j.log = s.Log
	}
	if n.Seed != nil {
		j.Seed = *n.Seed
	}
	if len(s.GPUs) > 0 {
		j.Device = "cuda"
	}
	s.shorter, s.peakBytes = nil, 0 // of an earlier attempt
	var err error
	if s.Key == "" {
		j.Dir, err = portFolder(s.folder.Shown(n.Address)).Dir("work")
		return j, err
	}
	if s.adopted {
		_, s.ended, s.adopted = s.lock.Exit()
	}
	fresh, err := s.store.MakeWork(s.Key)
	s.resumes = !fresh
	return j, err
}

// open opens an input.
func (s *start) open(ref artifact.Ref) (*artifact.Artifact, error) {
	in, ok := s.Node.Input(ref)
	if !ok {
		return nil, fmt.Errorf("%s opens stage.%s.%s.%s, to which its settings do not refer",
			s.Node.Address, ref.Kind, ref.Name, ref.Port)
	}
	if missing := s.Missing[in.From.Address]; missing != nil {
		return nil, missing
	}
	m := s.inputs[in.From.Address]
	if m == nil {
		return nil, fmt.Errorf("%s opens %s, which has no result", s.Node.Address, in.From.Address)
	}
	opened, err := s.store.Open(m, in.Ref.Port)
	if err == nil {
		opened.Ref = in.Ref
	}
	return opened, err
}

// findShorter sets the result that the stage can resume from.
func (s *start) findShorter() error {
	key, _, length, why := plan.Series(s.Node, s.parts)
	if key == "" || why != "" {
		return nil
	}
	found, err := s.store.Longest(key, length, s.session)
	if found != nil {
		s.shorter = &Shorter{found.Length, found.Dir, found.Manifest.Key, s.store, found.Manifest}
	}
	return err
}

// checkPort returns an error if the kind does not declare a port. A nil start, outside a run, accepts every port.
func (s *start) checkPort(port string) error {
	if s == nil || s.Node.Outputs[port] != "" {
		return nil
	}
	return fmt.Errorf("%s creates port %q; its kind %s declares %v", s.Node.Address, port, s.Node.Kind.Name,
		slices.Sorted(maps.Keys(s.Node.Outputs)))
}

// commit commits the staged result. A process of its own also flushes it and removes the scratch folder; otherwise the
// run does so.
func (s *start) commit(staging *artifact.Staging, m artifact.Manifest) error {
	if series, _, length, _ := plan.Series(s.Node, m.Parts); series != "" {
		if err := staging.KeepState(series, length); err != nil {
			return err
		}
	}
	c, err := staging.Commit(m, s.Node.Outputs)
	if err != nil {
		return err
	}
	if !s.ownProcess {
		s.committed = c
		return nil
	}
	if err := s.store.Flush(c); err != nil {
		return err
	}
	return s.store.RemoveWork(s.Key)
}

// attempts starts a node until it succeeds or its retry block allows no further attempt. It runs in a goroutine
// of its own.
func (r *run) attempts(ctx context.Context, s *start) error {
	for ; ; s.Attempt++ {
		if s.Attempt > 1 {
			select {
			case <-time.After(s.Node.Retry.Backoff << (s.Attempt - 2)):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		err := r.attempt(ctx, s)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if !r.shouldRetry(s.Node, s.Attempt, err) {
			return finalError(s.Attempt, err)
		}
	}
}

// shouldRetry reports whether a node is started again after a failure, and emits a note if it is. A program
// explains its failure in its log, so the last lines of this attempt's log count as part of the error.
func (r *run) shouldRetry(n *lang.Node, attempt int, err error) bool {
	if attempt >= n.Retry.Attempts {
		return false
	}
	lines := ofLastAttempt(lastLines(r.folder.Log(n.Address), failureLines))
	cause := failureCause(err, lines)
	if !retries(n.Retry, cause, strings.Join(append([]string{err.Error()}, lines...), "\n")) {
		return false
	}
	if cause != "" {
		cause = " (" + cause + ")"
	}
	r.emit(runs.Event{Address: n.Address, Kind: runs.EventNote, Attempt: attempt,
		Text: fmt.Sprintf("attempt %d of %d failed%s; it starts again: %v", attempt, n.Retry.Attempts, cause, err)})
	return true
}

// finalError is the error of the last attempt.
func finalError(attempt int, err error) error {
	if attempt > 1 {
		return fmt.Errorf("%w (after %d attempts)", err, attempt)
	}
	return err
}

// attemptMark is the prefix of the log line that starts an attempt after the first.
const attemptMark = "--- attempt "

// ofLastAttempt returns the lines of the last attempt.
func ofLastAttempt(lines []string) []string {
	for i, line := range slices.Backward(lines) {
		if strings.HasPrefix(line, attemptMark) {
			return lines[i+1:]
		}
	}
	return lines
}
