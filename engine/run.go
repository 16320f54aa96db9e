package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/alive"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/machine"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
	"rcgrpo/engine/sched"
)

// Options are the choices of a caller of Run.
type Options struct {
	KeepGoing bool                // after a failure, continue with everything that does not depend on it
	Executor  Executor            // of stages whose executor is not in Executors; nil: this machine
	Executors map[string]Executor // by the names of the site file
	Kill      <-chan struct{}     // closed to end running stages at once, after the end of ctx; nil: never
}

// Run executes the plan and calls observe with one event at a time. Stages run in parallel as far as the
// site's CPUs, GPUs and memory allow, those on the longest expected path first. A stage whose inputs come out
// unchanged is reused; a stage that another run executes is waited for and reused.
//
// If there is nothing to do, Run writes nothing and observe gets only an EventEnded. When ctx ends, running
// stages are asked to stop, and the error is ErrInterrupted. When stages fail, the error is a *RunError; each
// failure has been an event before. Committed results stay in every case, and another run of the plan resumes
// from them. The plan itself does not change.
func Run(ctx context.Context, p *plan.Plan, o Options, observe func(runs.Event)) error {
	p = p.Clone()
	if p.Idle() {
		observe(runs.Event{Time: time.Now(), Kind: runs.EventEnded, Counts: p.Counts()})
		return nil
	}
	r := &run{options: o, observe: observe, ctx: ctx, inPools: map[Pool]int{},
		handlers: make(chan func())}
	r.options.Executor = cmp.Or[Executor](r.options.Executor, localExecutor{})
	errs := []error{r.open(p)}
	if errs[0] == nil {
		errs = r.execute()
	}
	for _, close := range slices.Backward(r.closers) {
		errs = append(errs, close())
	}
	return errors.Join(errs...)
}

// open prepares the run. It adds to closers whatever it has opened, also before an error.
func (r *run) open(p *plan.Plan) (err error) {
	if _, ok := proc.ReadStat(os.Getpid()); !ok {
		return errors.New("the machine shows no processes in /proc, which a run needs to watch its stages: " +
			"mount it (mount -t proc proc /proc)")
	}
	if p.Experiment.Site != nil && p.Experiment.Site.SharedStore {
		if err := p.Store.Share(); err != nil {
			return err
		}
	}
	if _, err := p.Store.RemoveStale(); err != nil {
		return err
	}
	release, err := p.Store.Use() // until the run folder has the pins
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	if r.plan, err = p.Current(); err != nil {
		return err
	}
	r.contents = sync.OnceValue(r.findContents)
	r.link()
	if err := r.measure(); err != nil {
		return err
	}
	folder, lock, err := createRunFolder(r.plan)
	if err != nil {
		return err
	}
	r.folder, r.pinned = folder, map[string]bool{}
	for _, n := range r.plan.Nodes {
		r.pinned[n.Key] = true
	}
	stopBeat := alive.Beat(lock) // for other hosts
	r.closers = append(r.closers, lock.Close, func() error { stopBeat(); return nil })
	if r.sharing.ledger, err = machine.OpenLedger(string(folder), r.plan.Store.Dir()); err != nil {
		return err
	}
	r.closers = append(r.closers, r.sharing.ledger.Close)
	if r.events, err = runs.OpenEventLog(folder.Journal()); err != nil {
		return err
	}
	r.closers = append(r.closers, r.events.Close)
	return nil
}

// execute runs the loop and completes the run. It returns its errors, one per cause.
func (r *run) execute() []error {
	r.emit(runs.Event{Kind: runs.EventPlanned, Counts: r.plan.Counts(), Path: string(r.folder)})
	r.reportOrphans()
	r.plan.Remote.Report(func(address, text string) { r.note(address, "%s", text) })
	err, flushErr := r.loop(), r.plan.Store.Flush()
	if n := r.plan.Remote.Close(); n > 0 { // waits for the results that are being sent
		r.note("", "%d of the results are not in remote %s; `rcgrpo store push` sends what is missing", n, r.plan.Remote.Name)
	}
	_, staleErr := r.plan.Store.RemoveStale() // of processes of a killed run that have ended since open
	r.recordError(staleErr)
	r.emit(runs.Event{Kind: runs.EventEnded, Counts: r.outcome(), Path: string(r.folder)})
	return []error{err, flushErr, r.recordErr}
}

// run is one execution of a plan. Only loop changes the fields, except for those that mu guards; async work reads what
// is set before the loop.
type run struct {
	plan    *plan.Plan // as of the start of the run
	options Options
	ctx     context.Context
	folder  runs.Folder
	closers []func() error

	pinned   map[string]bool          // keys
	contents func() map[string]string // files of all results by digest, found at the first call

	tasks     []*task
	byAddress map[string]*task
	failed    []*task
	handlers  chan func() // of the ends of async work
	pending   int         // sends to handlers that will come
	stopping  bool        // ctx has ended

	// The schedule: which tasks are ready, and what of this machine and of the pools is free for them.
	queued    sched.Queue
	poolQueue []*task         // ready for a pool, longest path first
	inPools   map[Pool]int    // tasks that each pool executes
	moment    int             // counts ends
	machine   machine.Machine // as detected at the start
	gpus      []string        // ids of the free devices
	sharing   sharing         // with other runs

	mu        sync.Mutex // guards the fields below
	events    *runs.EventLog
	observe   func(runs.Event)
	recordErr error
}

// async starts work in a goroutine of its own. The function that work returns is called by loop.
func (r *run) async(work func() (handle func())) {
	r.pending++
	go func() { r.handlers <- work() }()
}

type taskState int

const (
	waiting taskState = iota // for the nodes it reads
	ready                    // waits for its share of the machine, or for room in a pool
	running                  // here, or elsewhere while this run waits for its lock; also a fetch
	ended                    // see task.how
)

// task is a node of the plan during a run.
type task struct {
	*plan.Planned
	state     taskState
	how       runs.EventKind // of an ended one: done, kept, fetched, shown, failed, skipped; "": up to date or not here
	why       string         // of a failed or skipped one
	manifest  *artifact.Manifest
	reads     []*task
	awaits    []*task // further results that it waits for (awaitFetched)
	readers   []*task
	path      time.Duration // expected time from its start to the end of the longest path through it
	lock      *artifact.Lock
	request   *sched.Request     // since it was first ready, if it needs a share of this machine
	pool      Pool               // that executes it; nil: this machine
	gpus      []string           // ids of its devices while it runs
	lease     *machine.LeaseFile // its entry in the ledger while it runs
	needs     []string           // ports that readers need, beside the published ones
	notRemote bool               // the remote store has no usable result
	attempts  int                // that failed
}

// link makes the tasks and their edges, estimates their paths and ends those without work.
func (r *run) link() {
	r.byAddress = map[string]*task{}
	for _, n := range r.plan.Nodes {
		t := &task{Planned: n}
		if n.Verb == plan.UpToDate || n.NotHere() { // Fetch: see fetchPlanned
			t.state, t.manifest = ended, n.Manifest
		}
		r.tasks = append(r.tasks, t)
		r.byAddress[n.Address] = t
	}
	for _, t := range r.tasks {
		seen := map[*task]bool{}
		for _, from := range t.Before() {
			if up := r.byAddress[from.Address]; up != nil && !seen[up] {
				seen[up] = true
				t.reads = append(t.reads, up)
				up.readers = append(up.readers, t)
			}
		}
	}
	for _, t := range slices.Backward(r.tasks) {
		for _, reader := range t.readers {
			t.path = max(t.path, reader.path)
		}
		t.path += max(t.Estimate, time.Second) // stages without an estimate count the same
	}
}

// unblocked reports whether all nodes that a waiting task reads have ended.
func (t *task) unblocked() bool {
	open := func(up *task) bool { return up.state != ended }
	return t.state == waiting && !slices.ContainsFunc(t.reads, open) && !slices.ContainsFunc(t.awaits, open)
}

// shownOnly reports whether the output of a task that is ready or runs is shown in the run folder and not committed,
// because inputs are missing. Other tasks may have no key for another reason: it is not known before all inputs are.
func (t *task) shownOnly() bool { return t.Key == "" && t.state != waiting }

// measure detects the machine and returns an error for every node that can never fit.
func (r *run) measure() error {
	open := slices.DeleteFunc(slices.Clone(r.tasks), func(t *task) bool { return t.state == ended })
	needGPUs := slices.ContainsFunc(open, func(t *task) bool { return t.Resources.GPUs > 0 && r.poolOf(t) == nil })
	r.machine = machine.Detect(r.ctx, r.plan.Experiment.Site, needGPUs)
	var errs []error
	for _, t := range open {
		why := r.machine.Unfit(t.Node)
		if pool := r.poolOf(t); pool != nil {
			why = pool.Unfit(t.Node)
		}
		if why != "" {
			errs = append(errs, fmt.Errorf("%s %s", t.Address, why))
		}
	}
	r.gpus, r.sharing.driver = slices.Clone(r.machine.GPUs), r.machine.Driver
	r.queued.Free = sched.Share{CPUs: r.machine.CPUs, GPUs: len(r.gpus), Memory: r.machine.Memory}
	return errors.Join(errs...)
}

// loop starts tasks and handles their ends until none is left.
func (r *run) loop() error {
	for _, t := range r.tasks {
		if t.Verb == plan.UpToDate && t.manifest != nil {
			r.publish(t, t.manifest)
		}
	}
	r.fetchPlanned()
	for _, t := range r.tasks {
		if t.unblocked() {
			r.resolve(t)
		}
	}
	interrupted := r.ctx.Done()
	for r.startReady(); r.pending > 0 || r.sharing.blocked; r.startReady() {
		var again <-chan time.Time
		if r.sharing.blocked { // the ledger may answer differently soon
			again = time.After(admitEvery)
		}
		select {
		case handle := <-r.handlers:
			r.pending--
			r.moment++
			handle()
		case <-again:
		case <-interrupted:
			interrupted = nil
			r.stopping = true
			r.note("", "stopping: running stages finish their checkpoints; ^C again ends them at once")
		}
	}
	if r.ctx.Err() != nil {
		for _, t := range r.tasks {
			if t.state != ended {
				r.abandon(t)
			}
		}
		return ErrInterrupted
	}
	return r.failure()
}

// failure returns the RunError of the failed and skipped tasks, or nil.
func (r *run) failure() error {
	e := new(RunError)
	for _, t := range r.tasks {
		switch t.how {
		case runs.EventFailed:
			e.Failed = append(e.Failed, t.Address)
		case runs.EventSkipped:
			e.Skipped = append(e.Skipped, t.Address)
		}
	}
	if len(e.Failed) == 0 {
		return nil
	}
	return e
}

// resolve decides on a task whose inputs have ended: it is reused if the store has its key now. Otherwise it is
// fetched, waits for inputs that are made again, or becomes ready.
func (r *run) resolve(t *task) {
	if slices.ContainsFunc(t.reads, func(up *task) bool { return up.manifest == nil }) {
		t.Key = "" // a kind with AfterFailures: its output is only shown
		r.queue(t)
		return
	}
	key, _, ok := plan.Key(t.Node, func(from *lang.Node, port string) (string, bool) {
		return digestOf(r.byAddress[from.Address].manifest, port)
	})
	if !ok {
		r.fail(t, errors.New("an input has no digest"), 0)
		return
	}
	t.Key = key
	if err := r.pin(key); err != nil {
		r.fail(t, err, 0)
		return
	}
	if !r.reuseStored(t) && !r.fetch(t) && !r.rebuildAbsent(t) {
		r.queue(t)
	}
}

// pin keeps gc from removing the result of a key, unless the plan had the key.
func (r *run) pin(key string) error {
	if r.pinned[key] {
		return nil
	}
	r.pinned[key] = true
	return r.folder.Pin(r.plan.Store, key)
}

// reuseStored ends a task whose result is in the store, and fails it if the store cannot be read. It reports whether
// the task has ended.
func (r *run) reuseStored(t *task) bool {
	if t.Force {
		return false
	}
	switch m, err := r.plan.Store.Lookup(t.Key); {
	case err == nil && len(r.missing(t, m)) == 0:
		r.unlock(t)
		r.emit(runs.Event{Address: t.Address, Kind: runs.EventKept, Key: t.Key})
		r.finishReused(t, runs.EventKept, m)
	case m == nil && !errors.Is(err, artifact.ErrNotFound):
		r.fail(t, err, 0)
	default:
		t.Manifest = m // damaged or not here: reportDone compares its digests with the new ones
		return false
	}
	return true
}

// digestOf returns the digest of a port of a result, which may be nil.
func digestOf(m *artifact.Manifest, port string) (string, bool) {
	if m == nil {
		return "", false
	}
	o, ok := m.Outputs[port]
	return o.Digest, ok
}

// rebuildAbsent fetches the inputs of a task whose bytes are not in the store, or makes them run again. It reports
// whether there are any.
func (r *run) rebuildAbsent(t *task) bool {
	t.state = waiting
	for _, up := range t.reads {
		if up.state != ended || !r.lacks(up, t) {
			continue
		}
		up.state = waiting
		if r.fetch(up) {
			continue
		}
		up.manifest = nil
		if up.unblocked() {
			r.resolve(up)
		}
	}
	return !t.unblocked()
}

// queue makes a task ready.
func (r *run) queue(t *task) {
	t.state = ready
	if t.pool = r.poolOf(t); t.pool != nil {
		r.poolQueue = append(r.poolQueue, t)
		slices.SortStableFunc(r.poolQueue, func(a, b *task) int { return cmp.Compare(b.path, a.path) })
		return
	}
	if t.request == nil {
		t.request = &sched.Request{ID: t.Address, Need: r.machine.Share(t.Resources), ReadyAt: r.moment,
			Path: t.path, Estimate: t.Estimate}
	}
	r.queued.Add(t.request)
}

// unqueue removes a task from its queue.
func (r *run) unqueue(t *task) {
	switch {
	case t.state != ready:
	case t.pool != nil:
		r.poolQueue = slices.DeleteFunc(r.poolQueue, func(other *task) bool { return other == t })
	default:
		r.queued.Remove(t.request)
	}
}

// deliver reports a committed result and returns it. With a nil result, another process has committed it.
func (r *run) deliver(t *task, m *artifact.Manifest, took time.Duration) (*artifact.Manifest, error) {
	if m == nil {
		var err error
		if m, err = r.plan.Store.Lookup(t.Key); err != nil {
			return nil, fmt.Errorf("the stage succeeded, but its result is %w", err)
		}
	}
	r.reportDone(t, m, took)
	r.plan.Remote.Send(r.ctx, m)
	return m, nil
}

func (r *run) unlock(t *task) {
	if t.lock != nil {
		r.recordError(t.lock.Unlock())
		t.lock = nil
	}
}

// onEnded handles the end of a stage that this run executed. The manifest is nil if the output is only shown.
func (r *run) onEnded(t *task, attempt int, m *artifact.Manifest, err error, took time.Duration) {
	r.free(t)
	switch {
	case err != nil:
		r.stageFailed(t, attempt, err, took)
	case t.shownOnly():
		r.show(t, took)
	default:
		r.finish(t, runs.EventDone, m)
		r.unlock(t)
	}
}

// stageFailed ends a task whose stage returned an error or was killed, unless its retry block names the failure.
func (r *run) stageFailed(t *task, attempt int, err error, took time.Duration) {
	if !t.shownOnly() { // a killed stage could not discard its unfinished output
		r.recordError(r.plan.Store.Discard(t.Key))
	}
	t.attempts = attempt
	switch {
	case r.ctx.Err() != nil: // the error is a consequence of the interrupt
		r.emit(runs.Event{Address: t.Address, Kind: runs.EventSkipped,
			Text: "interrupted; its scratch folder is kept for the next run"})
		r.abandon(t)
	case r.shouldRetry(t.Node, attempt, err):
		r.again(t)
	default:
		if attempt > 1 {
			err = fmt.Errorf("%w (after %d attempts)", err, attempt)
		}
		r.fail(t, err, took)
	}
}

// finish ends a task that has a result.
func (r *run) finish(t *task, how runs.EventKind, m *artifact.Manifest) {
	t.state, t.how, t.manifest = ended, how, m
	r.settleReaders(t, "")
}

// reportDone reports and publishes a committed result, names outputs that differ although the key is the same, and
// removes the scratch folder.
func (r *run) reportDone(t *task, m *artifact.Manifest, took time.Duration) {
	seconds := max(took.Seconds(), m.Seconds) // an adopted program may have run before this run
	r.emit(runs.Event{Address: t.Address, Kind: runs.EventDone, Key: t.Key, Seconds: seconds})
	for _, port := range m.Ports() {
		old := t.Manifest
		if old != nil && old.Key == m.Key && old.Outputs[port].Digest != m.Outputs[port].Digest {
			r.note(t.Address, "port %s differs from the last result, although nothing it depends on has changed", port)
		}
	}
	r.publish(t, m)
	r.recordError(r.plan.Store.RemoveWork(t.Key))
}

// finishReused publishes a result that this run has not made and ends its task.
func (r *run) finishReused(t *task, how runs.EventKind, m *artifact.Manifest) {
	r.publish(t, m)
	r.recordError(r.plan.Store.Remember(r.plan.Experiment.Name, t.Address, t.Key))
	r.finish(t, how, m)
}

// show ends a task whose output is not kept.
func (r *run) show(t *task, took time.Duration) {
	r.emit(runs.Event{Address: t.Address, Kind: runs.EventShown, Seconds: took.Seconds(), Path: r.folder.Shown(t.Address),
		Text: "not kept: inputs are missing"})
	var m artifact.Manifest
	if err := disk.ReadJSON(filepath.Join(r.folder.Shown(t.Address), "manifest.json"), disk.MaxRecord, &m); err != nil {
		r.recordError(err)
	} else {
		r.publish(t, &m)
	}
	r.finish(t, runs.EventShown, nil)
}

// settleReaders resolves the readers of a task that has ended, as far as it was their last input. why is the reason
// that the task has no result, or ""; with a reason, readers that do not run after failures are skipped.
func (r *run) settleReaders(t *task, why string) {
	for _, reader := range t.readers {
		switch {
		case reader.state == waiting && why != "" && !reader.Kind.AfterFailures:
			r.skip(reader, why)
		case reader.unblocked():
			r.resolve(reader)
		}
	}
}

// fail ends a task, reports its failure at once, and skips the tasks that cannot run any more.
func (r *run) fail(t *task, err error, took time.Duration) {
	t.state, t.how, t.why = ended, runs.EventFailed, err.Error()
	r.failed = append(r.failed, t)
	f := &runs.Failure{Text: err.Error()}
	f.Locate(r.folder.Log(t.Address), r.plan.Store, t.Key)
	f.Cause = failureCause(err, ofLastAttempt(f.Lines))
	r.emit(runs.Event{Address: t.Address, Kind: runs.EventFailed, Text: f.Text, Seconds: took.Seconds(), Path: f.Log,
		Failure: f})
	r.unlock(t)
	r.settleReaders(t, t.Address+" failed")
	for _, other := range r.tasks {
		if other.state == waiting || other.state == ready {
			r.skipAfterFailure(other)
		}
	}
}

// skipAfterFailure skips a task that no longer starts, and reports whether it did.
func (r *run) skipAfterFailure(t *task) bool {
	if len(r.failed) == 0 || r.options.KeepGoing || t.Kind.AfterFailures {
		return false
	}
	r.skip(t, r.failed[0].Address+" failed (--keep-going continues with the stages that do not need it)")
	return true
}

func (r *run) skip(t *task, why string) {
	r.unqueue(t)
	t.state, t.how, t.why = ended, runs.EventSkipped, why
	r.unlock(t)
	r.emit(runs.Event{Address: t.Address, Kind: runs.EventSkipped, Text: why})
	r.settleReaders(t, why)
}

// abandon ends a task after an interrupt.
func (r *run) abandon(t *task) {
	t.state, t.how, t.why = ended, runs.EventSkipped, "interrupted"
	r.unlock(t)
}

// outcome counts the tasks by how they ended.
func (r *run) outcome() map[string]int {
	counts := map[string]int{}
	for _, t := range r.tasks {
		counts[cmp.Or(string(t.how), string(t.Verb))]++
	}
	return counts
}

// emit records an event and passes it on.
func (r *run) emit(e runs.Event) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.events.Write(e); err != nil {
		r.recordErr = cmp.Or(r.recordErr, fmt.Errorf("write events: %w", err))
	}
	r.observe(e)
}

// note emits a message about a stage, or about the run if the address is "".
func (r *run) note(address, format string, args ...any) {
	r.emit(runs.Event{Address: address, Kind: runs.EventNote, Text: fmt.Sprintf(format, args...)})
}

// recordError stores the first error of the run's own bookkeeping, which does not stop it.
func (r *run) recordError(err error) {
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recordErr = cmp.Or(r.recordErr, err)
}
