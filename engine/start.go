package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
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
	Execute(ctx context.Context, w *Work, observe func(runs.Event)) error
}

// Pool is an executor with machines of its own: its stages reserve no share of this machine. Its Execute reports
// EventQueued and, when the stage starts, Work.Started; it applies the timeout.
type Pool interface {
	Executor
	Room() int                 // stages that it takes at once
	Unfit(n *lang.Node) string // why a node can never run there, or ""
}

// executorOf returns the executor that the file or the site chooses for a task. A pool executes only stages that need
// tensors or a program, and whose output is committed.
func (r *run) executorOf(t *task) Executor {
	x := cmp.Or(r.options.Executors[r.plan.Experiment.Site.ExecutorOf(t.Node)], r.options.Executor)
	if _, pool := x.(Pool); pool && (!t.Submitted() || t.shownOnly()) {
		return localExecutor{}
	}
	return x
}

// poolOf returns the pool that executes a task, or nil.
func (r *run) poolOf(t *task) Pool {
	pool, _ := r.executorOf(t).(Pool)
	return pool
}

// Work is one attempt at a node. The engine makes one for its Executor (newWork). A stage with a process of its own has
// a second one there, which that process makes from the run folder (runNode).
type Work struct {
	// The request is the same in both processes. NewJob, outside a run, sets only Node, folders and resumes.
	runs.Assignment
	Node       *lang.Node
	Folder     runs.Folder // of the run
	experiment *lang.Experiment
	store      *artifact.Store

	// These are set in the engine's process only. In a process of the stage's own they are zero: its standard error is
	// the log, and the descriptors of lock and lease are inherited.
	Estimate time.Duration   // of the whole stage; 0: unknown
	Log      *os.File        // for the stage's output, open during the attempt
	Kill     <-chan struct{} // closed to end the stage at once, without a checkpoint; nil: never
	executor Executor
	lock     *artifact.Lock // of the key; nil if the output is not committed
	lease    *os.File       // entry in the ledger; nil if a pool executes the stage

	// These are set by runNode, in a process of the stage's own only.
	inherited *os.File // the lock of the key
	rank      rank     // of this process
	code      *int     // exit code of the program, whose engine was killed; nil: this process was no shell
	alone     bool     // it executes this stage only and was no shell, so its peak memory is that of the stage

	// These are the state of the execution, in the process that calls ExecuteHere. In the engine of a stage with a
	// process of its own they stay zero, except for a result whose commit the engine had to complete.
	parts   artifact.Parts                // of the key
	inputs  map[string]*artifact.Manifest // by address
	folders map[artifact.Ref]string       // of the inputs, outside a run
	shorter *Shorter                      // result to extend, or nil
	resumes bool                          // the scratch folder existed before
	usage   proc.Usage                    // of the stage's programs
	result  *artifact.Manifest            // nil before the end, or if another process committed it
}

// Started returns the event of the start of the attempt.
func (w *Work) Started() runs.Event {
	return runs.Event{Time: time.Now(), Address: w.Node.Address, Kind: runs.EventStarted, Attempt: w.Attempt, Key: w.Key,
		Expect: w.Estimate.Seconds(), Path: w.Log.Name()}
}

// Args returns the arguments with which Binary executes the node.
func (w *Work) Args() []string {
	return []string{"node", "--run", string(w.Folder), "--node", w.Node.Address}
}

// Events returns the journal to which that program appends its events, for Follow.
func (w *Work) Events() string { return w.Folder.Events(w.Node.Address) }

// Held returns the files that the program inherits as descriptors 3, 4, …: the lock of the key and the lease,
// which stay locked while one of its processes lives.
func (w *Work) Held() []*os.File {
	return slices.DeleteFunc([]*os.File{w.lock.File(), w.lease}, func(f *os.File) bool { return f == nil })
}

// start executes a task in a goroutine, unless there is nothing to execute. This is the life of an attempt, from the
// queue to the commit.
//
// All inputs of the task have ended, so resolve has computed its key, and neither the store nor the remote store has
// the result. startReady has reserved the task's share in the ledger.
//
//  1. acquire acquires the lock of the key. If another process holds it, the task waits for that process, and adopts
//     its stage when its engine has died (awaitLock). TryLock also completes a commit that a killed process has begun,
//     so acquire looks the key up once more.
//  2. attempt writes the Assignment into the run folder and the holder into the lock, opens the log, and calls the
//     executor under the timeout. The executor starts the stage's process, which inherits the descriptors of the lock
//     and of the lease (Work.Held): the kernel releases both with the last process of the stage.
//  3. ExecuteHere runs in that process: it computes the key again, creates the scratch folder work/KEY, begins
//     staging/KEY without what an earlier attempt left there, and runs the stage.
//  4. Staging.Commit makes the output durable and gives it its name. From then on the result counts.
//  5. deliver reports the result, publishes its files, removes the scratch folder and starts the push to the remote
//     store. onEnded, in the loop, frees the share, unlocks the key and resolves the readers of the task.
//
// What a kill leaves, and who finds it:
//
//   - Before the stage's process runs: nothing in the store. The kernel releases lock and lease, and the next run
//     starts the task.
//   - The engine is killed while the stage runs: the stage's process continues and commits, or the shell of a program
//     becomes a process that commits (shellText). Another run that wants the key finds the lock held and adopts the
//     stage; `status` reports it as an orphan.
//   - The stage's process is killed before its output is complete: its engine gets the exit, discards staging/KEY and
//     follows the retry block (stageFailed). The scratch folder stays, and the next attempt can resume from it. If the
//     engine was killed too, the next holder of the lock discards the output in step 3.
//   - During the commit, once all output is written: this engine completes the commit below, or else the next process
//     that acquires the lock does (TryLock, RemoveStale).
//   - After the commit: the next run finds the result, publishes missing copies, and removes the scratch folder
//     (RemoveStale).
//
// A job of a cluster takes the place of the process, and its exit file that of the exit: package slurm.
func (r *run) start(t *task) {
	if ready, err := r.acquire(t); !ready {
		r.free(t)
		if err != nil {
			r.fail(t, err, 0)
		}
		return
	}
	t.state = running
	w := r.newWork(t)
	r.async(func() func() {
		started, took := time.Now(), time.Duration(0)
		err := r.attempt(w)
		if err != nil && !w.ShownOnly() { // a stage that was killed during its commit has succeeded
			if m, completeErr := r.plan.Store.Complete(w.Key); completeErr != nil {
				err = completeErr
			} else if m != nil {
				w.result, err = m, nil
			}
		}
		if t.pool == nil { // otherwise the manifest has the time without the queue
			took = time.Since(started)
		}
		var m *artifact.Manifest
		if err == nil && !w.ShownOnly() {
			m, err = r.deliver(t, w.result, took)
		}
		return func() { r.onEnded(t, w.Attempt, m, err, took) }
	})
}

// acquire acquires the lock of a task's key. ready is false after an error, if the store has the result now, or if
// another process holds the lock, for which the task then waits.
func (r *run) acquire(t *task) (ready bool, err error) {
	if t.shownOnly() || t.lock != nil {
		return true, nil
	}
	if t.lock, err = r.plan.Store.TryLock(t.Key); err != nil {
		return false, err
	}
	if t.lock == nil {
		r.awaitLock(t)
		return false, nil
	}
	if t.pool == nil && r.plan.Store.HasJob(t.Key) {
		return false, fmt.Errorf("a job that another run has submitted to a cluster makes it: use the executor of that run, "+
			"which waits for the job or finds that it has ended (%s)", r.plan.Store.Jobs(t.Key))
	}
	return !r.reuseStored(t), nil
}

// newWork describes the next attempt at a task.
func (r *run) newWork(t *task) *Work {
	w := &Work{Node: t.Node, Kill: r.options.Kill, experiment: r.plan.Experiment, store: r.plan.Store, Folder: r.folder,
		lock: t.lock, executor: r.executorOf(t), Estimate: t.Estimate}
	w.Assignment = runs.Assignment{Address: t.Address, Key: t.Key, Inputs: map[string]string{},
		Missing: map[string]*runs.MissingError{}, Store: r.plan.Store.Dir(), CPUs: t.Resources.CPUs, GPUs: t.gpus,
		Attempt: t.attempts + 1, Revision: Revision()}
	if t.pool == nil {
		w.CPUs, w.lease = t.request.Need.CPUs, t.lease.File()
	}
	for _, up := range t.reads {
		missing := &runs.MissingError{Address: up.Address}
		switch {
		case up.manifest != nil:
			w.Inputs[up.Address] = up.manifest.Key
			continue
		case up.how == runs.EventFailed:
			missing.Why = "failed: " + up.why
			missing.Lines = runs.LastLines(r.folder.Log(up.Address))
		case up.how == runs.EventSkipped:
			missing.Why = "was skipped: " + up.why
		default:
			missing.Why = "was executed without some of its inputs and is not committed"
		}
		w.Missing[up.Address] = missing
	}
	return w
}

// attempt starts the node once, under its timeout; steps 2 to 4 of start.
func (r *run) attempt(w *Work) error {
	ctx := r.ctx
	w.Since, w.Kills = time.Now(), proc.OOMKills()
	if err := r.folder.Assign(w.Assignment); err != nil {
		return err
	}
	if w.lock != nil {
		if err := w.Holder(r.folder).Write(w.lock.File()); err != nil {
			return err
		}
	}
	if err := w.openLog(); err != nil {
		return err
	}
	defer w.Log.Close()
	if pool, ok := w.executor.(Pool); ok {
		return pool.Execute(ctx, w, r.emit)
	}
	r.emit(w.Started())
	if w.Node.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.Node.Timeout, TimeoutError(w.Node.Timeout))
		defer cancel()
	}
	err := w.executor.Execute(ctx, w, r.emit)
	if err != nil && errors.Is(context.Cause(ctx), errTimeout) {
		return context.Cause(ctx)
	}
	return err
}

// openLog opens the log for appending, and marks the start of an attempt after the first.
func (w *Work) openLog() (err error) {
	w.Log, err = disk.OpenFile(w.Folder.Log(w.Node.Address), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil && w.Attempt > 1 {
		_, err = fmt.Fprintf(w.Log, "%s%d\n", attemptMark, w.Attempt)
	}
	return err
}

// ExecuteHere executes the node in this process: it binds the inputs, runs the stage and commits the result. After an
// error the key has no result.
func (w *Work) ExecuteHere(ctx context.Context, observe func(runs.Event)) (err error) {
	runner := runnerOf(w.Node.Stage)
	if runner == nil {
		return fmt.Errorf("%s: this binary cannot run stages of kind %s", w.Node.Address, w.Node.Kind.Name)
	}
	if err := w.bindInputs(); err != nil {
		return err
	}
	job, err := w.newJob(observe)
	if err != nil {
		return err
	}
	defer w.rank.reportEverySecond(job)()
	if w.rank.number > 0 { // it commits nothing
		job.out = portFolder(filepath.Join(w.rank.meet, "ports", strconv.Itoa(w.rank.number)))
		return runStage(ctx, runner, job)
	}
	if err := w.checkFiles(); err != nil {
		return err
	}
	started := time.Now()
	if w.code != nil { // this process was the shell of the program
		h, _ := w.Holder(w.Folder).WithProcess(os.Getpid())
		started = started.Add(-h.Running())
	}
	if w.ShownOnly() {
		shown := w.Folder.Shown(w.Node.Address)
		job.out = portFolder(shown)
		if err := runStage(ctx, runner, job); err != nil {
			return err
		}
		return errors.Join(runs.WriteJSON(filepath.Join(shown, "manifest.json"), w.manifest(job, started)),
			os.RemoveAll(job.Dir))
	}
	staging, err := w.store.Begin(w.Key)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, staging.Abort())
		}
	}()
	job.out = staging
	if err := runStage(ctx, runner, job); err != nil {
		return err
	}
	if series, _, length, _ := plan.Series(w.Node, w.parts); series != "" {
		if err := staging.KeepState(series, length); err != nil {
			return err
		}
	}
	if err := errors.Join(w.checkHeld(), w.checkFiles()); err != nil {
		return err
	}
	w.result, err = staging.Commit(w.manifest(job, started), w.Node.Outputs)
	return err
}

// checkFiles returns an error if a file or folder of the settings no longer has the content of the key.
func (w *Work) checkFiles() error {
	for _, f := range w.Node.Files {
		if err := f.Changed(); err != nil {
			return err
		}
	}
	return nil
}

// AttemptVariable names the spec of the job that executes a stage (package slurm). A spec with the next number
// replaces it.
const AttemptVariable = "RCGRPO_ATTEMPT"

// checkHeld returns an error if another host has taken over the stage, or a newer job.
func (w *Work) checkHeld() error {
	if path := os.Getenv(AttemptVariable); path != "" && w.alone {
		n, err := strconv.Atoi(filepath.Base(path))
		if err != nil || !disk.Exists(path) || disk.Exists(path+".exit") ||
			disk.Exists(filepath.Join(filepath.Dir(path), strconv.Itoa(n+1))) {
			return fmt.Errorf("another job executes this stage: the spec %s is no longer the newest, or has an end", path)
		}
	}
	if f := cmp.Or(w.lock.File(), w.inherited); f != nil {
		return artifact.CheckClaim(f)
	}
	return nil
}

// bindInputs reads the manifests of the inputs, checks the key, and finds the result to extend.
func (w *Work) bindInputs() error {
	w.inputs = map[string]*artifact.Manifest{}
	for address, key := range w.Inputs {
		m, err := w.store.Manifest(key)
		if err != nil {
			return fmt.Errorf("input %s: %w", address, err)
		}
		w.inputs[address] = m
	}
	if w.ShownOnly() {
		return nil
	}
	key, parts, ok := plan.Key(w.Node, func(from *lang.Node, port string) (string, bool) {
		return digestOf(w.inputs[from.Address], port)
	})
	if !ok {
		return fmt.Errorf("%s: not every input has a result", w.Node.Address)
	}
	if key != w.Key {
		return fmt.Errorf("%s has key %.12s here and %.12s in the plan: data that it names has changed since, "+
			"or the binaries differ", w.Node.Address, key, w.Key)
	}
	w.parts, w.shorter = parts, nil
	series, _, length, why := plan.Series(w.Node, parts)
	if series == "" || why != "" {
		return nil
	}
	pin := func(keys ...string) error { return w.Folder.Pin(w.store, keys...) }
	found, err := w.store.Longest(series, length, pin)
	if found != nil {
		w.shorter = &Shorter{found, w.store}
	}
	return err
}

// manifest describes the result of a job.
func (w *Work) manifest(job *Job, started time.Time) artifact.Manifest {
	n := w.Node
	m := artifact.Manifest{Kind: n.Kind.Name, Version: n.Kind.Version, Experiment: w.experiment.Name, Address: n.Address,
		Seed: n.Seed, Parts: w.parts, Revision: Revision(), Device: job.Device, Run: w.Folder.ID(),
		Started: started.UTC(), Seconds: time.Since(started).Seconds()}
	if w.shorter != nil {
		m.Begun = w.shorter.Manifest.Key
	}
	usage := w.usage
	if w.alone {
		usage = usage.And(proc.OwnUsage())
	}
	if w.rank.count > 0 {
		m.Ranks = &artifact.Ranks{Count: w.rank.count, Backend: job.Backend}
		usage = proc.Usage{}
		for _, r := range w.rank.states(job) {
			m.Ranks.PeakBytes = append(m.Ranks.PeakBytes, r.PeakBytes)
			m.Ranks.Waited = append(m.Ranks.Waited, r.Waited)
			usage.PeakBytes += r.PeakBytes
			usage.CPUSeconds += r.CPUSeconds
		}
	}
	m.PeakBytes, m.CPUSeconds = usage.PeakBytes, usage.CPUSeconds
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
func (w *Work) newJob(observe func(runs.Event)) (j *Job, err error) {
	n := w.Node
	j = &Job{Address: n.Address, Experiment: w.experiment, Dir: w.scratch(), Device: "cpu", Threads: w.CPUs,
		GPUs: w.GPUs, Attempt: w.Attempt, Site: w.experiment.Site, work: w, observe: observe, log: cmp.Or(w.Log, os.Stderr)}
	w.rank.set(j)
	if n.Seed != nil {
		j.Seed = *n.Seed
	}
	if len(w.GPUs) > 0 {
		j.Device = "cuda"
	}
	if w.ShownOnly() {
		return j, disk.MkdirAll(j.Dir, 0o700)
	}
	w.usage = proc.Usage{} // without an earlier attempt's
	fresh, err := w.store.MakeWork(w.Key)
	w.resumes = !fresh
	return j, err
}

// scratch returns the scratch folder of the stage.
func (w *Work) scratch() string {
	if w.ShownOnly() {
		return filepath.Join(w.Folder.Shown(w.Node.Address), "work")
	}
	return w.store.Work(w.Key)
}

// checkPort returns an error if the kind does not declare a port. Outside a run every port is accepted.
func (w *Work) checkPort(port string) error {
	if w.store == nil || w.Node.Outputs[port] != "" {
		return nil
	}
	return fmt.Errorf("%s creates port %q; its kind %s declares %v", w.Node.Address, port, w.Node.Kind.Name,
		slices.Sorted(maps.Keys(w.Node.Outputs)))
}

// again queues a task once more after the pause before its next attempt, in which it holds no share.
func (r *run) again(t *task) {
	pause := time.After(t.Retry.Backoff << (t.attempts - 1))
	r.async(func() func() {
		select {
		case <-pause:
		case <-r.ctx.Done():
		}
		return func() {
			if !r.skipAfterFailure(t) {
				r.queue(t)
			}
		}
	})
}

// shouldRetry reports whether a node is started again after a failure, and emits a note if it is. A program
// explains its failure in its log, so the last lines of this attempt's log count as part of the error.
func (r *run) shouldRetry(n *lang.Node, attempt int, err error) bool {
	if attempt >= n.Retry.Attempts {
		return false
	}
	lines := ofLastAttempt(runs.LastLines(r.folder.Log(n.Address)))
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
