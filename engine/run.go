package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"rcgrpo/engine/artifact"
)

// RunOptions are what a caller of Plan.Run may choose.
type RunOptions struct {
	KeepGoing bool            // after a failure, go on with everything that does not depend on it
	Executor  Executor        // nil: this machine
	Kill      <-chan struct{} // closed to end running stages at once, when ctx has ended already; nil: never
}

// Run does what the plan says and tells it to observe, one event at a time. Stages run at once as far as the site's
// CPUs, GPUs and memory allow, those on the longest expected path first. A stage whose inputs come out unchanged is
// kept; one that another run is making is waited for and reused.
//
// When nothing is to be done, nothing is written and only an EventEnded comes. When ctx ends, running stages are asked to stop, and the error is
// ErrInterrupted. When stages fail, the error is a *RunError; each failure came as an event before. What was committed stays in
// every case, and running the same plan again goes on from there. The plan itself does not change.
func (p *Plan) Run(ctx context.Context, o RunOptions, observe func(Event)) error {
	p = p.clone()
	if p.paranoid {
		if err := p.readCopies(); err != nil {
			return err
		}
	}
	if p.idle() {
		p.Compile()
		observe(Event{Time: time.Now(), Kind: EventEnded, Counts: p.counts()})
		return nil
	}
	user, err := p.Store.Use()
	if err != nil {
		return err
	}
	if p, err = p.keepFound(user); err != nil {
		return errors.Join(err, user.Close())
	}
	r := &run{Plan: p, user: user, executor: o.Executor, keepGoing: o.KeepGoing, kill: o.Kill, observe: observe, results: make(chan result, 64), free: make(chan func())}
	if r.executor == nil {
		r.executor = thisMachine{}
	}
	r.link()
	if err := r.measure(ctx); err != nil {
		return errors.Join(err, user.Close())
	}
	busy, err := p.Store.Tidy()
	if err != nil {
		return errors.Join(err, user.Close())
	}
	folder, lock, err := createRunFolder(p)
	if err != nil {
		return errors.Join(err, user.Close())
	}
	r.folder = folder
	if r.ledger, err = openLedger(string(folder), p.Store.Dir()); err != nil {
		return errors.Join(err, lock.Close(), user.Close())
	}
	if r.events, err = openEventLog(folder.path("events.jsonl")); err != nil {
		return errors.Join(err, lock.Close(), user.Close())
	}
	r.committer = p.Store.Committer()
	r.emit(Event{Kind: EventPlanned, Counts: p.counts(), Path: string(folder)})
	r.tellForgotten()
	err = r.loop(ctx)
	close(r.free)
	var closing sync.WaitGroup
	var commitErr error
	closing.Go(func() {
		commitErr = r.committer.Close()
		r.tidying.Wait()
		r.note(errors.Join(p.Store.RemoveSpares(), p.copies.compact()))
		if len(busy) > 0 { // by a killed run's child perhaps, that was about to be gone
			_, err := p.Store.Tidy()
			r.note(err)
		}
	})
	var keep func() // the verdict that all is up to date
	if err == nil {
		keep = p.verdict()
	}
	closing.Wait()
	if err = cmp.Or(err, commitErr); err == nil && keep != nil {
		keep() // not before what it rests on is on the disk
	}
	r.emit(Event{Kind: EventEnded, Counts: r.outcome(), Path: string(folder)})
	return errors.Join(err, r.recordErr, r.ledger.close(), r.events.close(), lock.Close(), user.Close())
}

// clone copies what a run changes in a plan: keys and results that become known, and what it has made.
func (p *Plan) clone() *Plan {
	c := *p
	c.Nodes, c.recorded = make([]*Planned, len(p.Nodes)), maps.Clone(p.recorded)
	copied := make(map[*Planned]*Planned, len(p.Nodes))
	for i, n := range p.Nodes {
		d := *n
		if d.DuplicateOf != nil { // it stands before this one
			d.DuplicateOf = copied[d.DuplicateOf]
		}
		c.Nodes[i], copied[n] = &d, &d
	}
	return &c
}

// keepFound has gc leave what the plan has found in the store. It returns the plan, or, when gc was there in the meantime,
// a new one.
func (p *Plan) keepFound(user *artifact.User) (*Plan, error) {
	for {
		var keys []string
		for _, n := range p.Nodes {
			if n.Verb == UpToDate {
				keys = append(keys, n.Key)
			}
		}
		if err := user.Keep(keys...); err != nil {
			return nil, err
		}
		if p.collection == p.Store.LastCollection() {
			return p, nil
		}
		var err error
		if p, err = NewPlan(p.Experiment, p.Store, p.options); err != nil {
			return nil, err
		}
	}
}

// idle says that a run would change nothing: no node runs, and every published file is as it was.
func (p *Plan) idle() bool {
	return every(len(p.Nodes), manyReads, func(i int) bool {
		n := p.Nodes[i]
		if n.Verb == UpToDate && n.Manifest != nil {
			_, intact := p.publishedFiles(n.Manifest)
			return intact
		}
		return n.Verb == UpToDate || n.Verb == Collected
	})
}

// counts of the plan's nodes by verb.
func (p *Plan) counts() map[string]int {
	counts := map[string]int{}
	for _, n := range p.Nodes {
		counts[string(n.Verb)]++
	}
	return counts
}

// run is one walk over a plan. All fields but those of the record belong to the goroutine of loop.
type run struct {
	*Plan
	user      *artifact.User
	executor  Executor
	keepGoing bool
	kill      <-chan struct{}
	folder    runFolder
	tasks     []*task
	byAddress map[string]*task
	results   chan result
	free      chan func() // to a goroutine of beside that waits for work
	pending   int         // results that will still come
	recording int         // of them those that the committer has
	committer *artifact.Committer
	tidying   sync.WaitGroup // of scratch folders
	lost      error          // why a result could not be recorded
	failed    []*task
	stopping  bool // the context has ended

	schedule schedule
	sharing
	moment  int // counts what has ended, for the schedule
	machine machine
	gpus    []string // ids of the devices that this run holds none of now

	record    sync.Mutex // guards what follows
	events    *eventLog
	observe   func(Event)
	recordErr error
}

type taskState int

const (
	waiting  taskState = iota // for the nodes it reads
	ready                     // to run as soon as there is room
	locked                    // someone else is making it; waiting for the key's lock
	running                   //
	finished                  // has a result, or was shown
	failed                    //
	skipped                   //
)

// task is a node of the plan during a run.
type task struct {
	*Planned
	state     taskState
	how       EventKind      // of a finished one: EventDone, EventKept, EventShown; "" when it was up to date
	why       string         // of a failed or skipped one
	parts     artifact.Parts // of its key
	manifest  *artifact.Manifest
	reads     []*task
	readers   []*task
	waits     int           // of reads that are not settled
	rank      time.Duration // expected time from its start to the end of the longest path through it
	lock      *artifact.Lock
	claim     *claim         // from the first time it is ready
	gpus      []string       // ids that it holds while it runs
	lease     *slot          // likewise, its entry in the ledger
	collected bool           // its bytes are gone
	attempts  int            // of an adopted start that failed
	commit    *pendingCommit // of a result made in this process
}

// result is what a goroutine of the run reports to loop.
type result struct {
	task *task
	lock *artifact.Lock // of a task that waited for it
	err  error
	ran  bool
	took time.Duration

	made     *artifact.Finished // by a stage that ran in this process
	recorded bool               // it is now, or err says why it cannot be

	adopted bool // another run had started it, and we looked after it to its end
	attempt int  // of that start
}

func (t *task) settled() bool { return t.state >= finished }

// link makes the tasks and their edges, ranks them and marks what needs no work.
func (r *run) link() {
	r.byAddress = map[string]*task{}
	for _, n := range r.Nodes {
		t := &task{Planned: n}
		if n.Verb == UpToDate || n.collected() {
			t.state, t.manifest, t.collected = finished, n.Manifest, n.collected()
		}
		r.tasks = append(r.tasks, t)
		r.byAddress[n.Address] = t
	}
	for _, t := range r.tasks {
		seen := map[*task]bool{}
		for _, from := range t.above() {
			if up := r.byAddress[from.Address]; up != nil && !seen[up] {
				seen[up] = true
				t.reads = append(t.reads, up)
				up.readers = append(up.readers, t)
			}
		}
		t.countWaits()
	}
	for _, t := range slices.Backward(r.tasks) {
		for _, reader := range t.readers {
			t.rank = max(t.rank, reader.rank)
		}
		t.rank += max(t.Estimate, time.Second) // without a record every stage counts the same
	}
}

// above lists the nodes that come before this one.
func (t *task) above() []*Node {
	nodes := slices.Clone(t.DependsOn)
	if t.DuplicateOf != nil {
		nodes = append(nodes, t.DuplicateOf.Node)
	}
	for _, in := range t.Inputs {
		nodes = append(nodes, in.From)
	}
	return nodes
}

func (t *task) countWaits() {
	t.waits = 0
	for _, up := range t.reads {
		if !up.settled() {
			t.waits++
		}
	}
}

// measure finds out what the machine offers and refuses what can never fit.
func (r *run) measure(ctx context.Context) error {
	open := slices.DeleteFunc(slices.Clone(r.tasks), (*task).settled)
	r.machine = machineFor(ctx, r.Experiment.Site, slices.ContainsFunc(open, func(t *task) bool { return t.Resources.GPUs > 0 }))
	var errs []error
	for _, t := range open {
		if why := r.machine.unfit(t.Node); why != "" {
			errs = append(errs, fmt.Errorf("%s %s", t.Address, why))
		}
	}
	r.gpus, r.view = slices.Clone(r.machine.gpus), r.machine.view
	r.schedule.free = share{r.machine.cpus, len(r.gpus), r.machine.memory}
	return errors.Join(errs...)
}

// loop starts what can start and takes in what has ended, until nothing is left.
func (r *run) loop(ctx context.Context) error {
	for _, t := range r.tasks {
		if t.manifest != nil && t.Verb == UpToDate {
			r.publish(t.manifest, r.Store)
		}
	}
	for _, t := range slices.Clone(r.tasks) {
		if t.state == waiting && t.waits == 0 {
			r.settle(t)
		}
	}
	interrupted := ctx.Done()
	renew := time.NewTicker(renewEvery)
	defer renew.Stop()
	for {
		r.startReady(ctx)
		if r.pending == 0 && !r.blocked {
			break
		}
		if r.pending == r.recording { // nothing runs, and mostly nothing will
			r.committer.Flush()
			r.putAway()
		}
		var again <-chan time.Time
		if r.blocked {
			again = time.After(lookAgain)
		}
		select {
		case <-again:
		case <-renew.C:
			r.renewLeases(ctx)
		case res := <-r.results:
			r.pending--
			r.take(ctx, res)
		case <-interrupted:
			interrupted = nil
			r.stopping = true
			r.emit(Event{Kind: EventNote, Text: "stopping: running stages finish their checkpoints; ^C again ends them at once"})
		}
	}
	if r.stopping || ctx.Err() != nil {
		for _, t := range r.tasks {
			if !t.settled() {
				r.drop(t)
			}
		}
		return ErrInterrupted
	}
	if len(r.failed) == 0 {
		return nil
	}
	e := new(RunError)
	for _, t := range r.tasks {
		switch t.state {
		case failed:
			e.Failed = append(e.Failed, t.Address)
		case skipped:
			e.Skipped = append(e.Skipped, t.Address)
		}
	}
	return e
}

// settle decides about a task that waits for nothing any more: kept, when the store has its key now; otherwise ready.
func (r *run) settle(t *task) {
	if r.inputsMissing(t) {
		t.Key = ""
		r.queue(t)
		return
	}
	if t.absent != nil && t.DuplicateOf == nil && len(t.reads) == 0 { // nothing has changed since the plan; start looks again, under the lock
		t.parts = t.absent
		r.queue(t)
		return
	}
	key, parts, ok := t.Node.Key(r.digest)
	if !ok {
		r.fail(t, errors.New("an input has no digest"), 0)
		return
	}
	hopeless := t.Key == "" && t.Verb == MustRun // the store had nothing that it could be, and start looks again, under the lock
	t.Key, t.parts = key, parts
	if !t.Force && !hopeless {
		if err := r.user.Keep(key); err != nil {
			r.fail(t, err, 0)
			return
		}
		m, err := r.Store.Lookup(key)
		if err == nil {
			r.keep(t, m)
			return
		}
		if m == nil && !errors.Is(err, artifact.ErrNotFound) {
			r.fail(t, err, 0)
			return
		}
		t.Manifest = m // damaged or collected: its digests tell whether the new bytes are the old ones
	}
	if r.rebuildInputs(t) {
		return
	}
	r.queue(t)
}

// digest answers Node.Key from the results at hand.
func (r *run) digest(from *Node, port string) (string, bool) {
	up := r.byAddress[from.Address]
	if up == nil || up.manifest == nil {
		return "", false
	}
	o, ok := up.manifest.Outputs[port]
	return o.Digest, ok
}

// inputsMissing says whether something that t reads has no result; only a task that runs after failures gets so far.
func (r *run) inputsMissing(t *task) bool {
	return slices.ContainsFunc(t.reads, func(up *task) bool { return up.state == failed || up.state == skipped || up.how == EventShown })
}

// rebuildCollected makes the results that t reads and gc has collected run again, and says whether there are any.
func (r *run) rebuildInputs(t *task) bool {
	for _, up := range t.reads {
		if up.state != finished || !up.collected {
			continue
		}
		up.collected, up.state = false, waiting
		for _, reader := range up.readers {
			if reader.state == waiting && reader != t {
				reader.waits++
			}
		}
		up.countWaits()
		if up.waits == 0 {
			r.settle(up)
		}
	}
	t.countWaits()
	if t.waits > 0 {
		t.state = waiting
		return true
	}
	return false
}

// queue makes a task ready to run as soon as the schedule lets it.
func (r *run) queue(t *task) {
	t.state = ready
	if t.claim == nil {
		t.claim = &claim{task: t, need: r.machine.share(t.Node), released: r.moment, rank: t.rank, expect: t.Estimate}
	}
	r.schedule.add(t.claim)
}

// start takes the key's lock and runs t; when someone else has the lock, it waits for it without holding a share of
// the machine.
func (r *run) start(ctx context.Context, t *task) {
	if err := r.user.Keep(t.Key); err != nil {
		r.release(t)
		r.fail(t, err, 0)
		return
	}
	if t.Key != "" && t.lock == nil {
		lock, err := r.Store.TryLock(t.Key)
		if err != nil {
			r.release(t)
			r.fail(t, err, 0)
			return
		}
		if lock == nil {
			r.release(t)
			r.awaitLock(ctx, t)
			return
		}
		t.lock = lock
		if r.madeMeanwhile(t) {
			r.release(t)
			return
		}
	}
	t.state = running
	w := Work{Node: t.Node, Experiment: r.Experiment, Store: r.Store, CPUs: t.claim.need.cpus, GPUs: t.gpus,
		Attempt: t.attempts + 1, Log: r.folder.log(t.Address), Kill: r.kill, user: r.user, folder: r.folder, assignment: r.assignment(t), lock: t.lock, lease: t.lease.inherited()}
	res := result{task: t, ran: true}
	w.parts, w.inputs = t.parts, map[string]*artifact.Manifest{}
	var commits []*pendingCommit
	for _, up := range t.reads {
		if up.manifest != nil {
			w.inputs[up.Address] = up.manifest
		}
		if up.commit != nil {
			commits = append(commits, up.commit)
		}
	}
	w.finish = func(f *artifact.Finished) {
		res.made.Drop() // of an attempt before
		res.made = f
	}
	r.pending++
	r.beside(func() {
		started := time.Now()
		if !r.inPlace(t.Node) || t.Kind.AcrossSeeds { // another process finds its inputs in the store, and a report what is behind them
			res.err = r.awaitCommits(commits)
		}
		if res.err == nil {
			res.err = r.attempts(ctx, w)
		}
		res.took = time.Since(started)
		r.results <- res
	})
}

// putAway begins to remove what was there for further stages, while the last results are recorded.
func (r *run) putAway() {
	r.tidying.Go(func() { r.note(r.Store.RemoveSpares()) })
}

// beside runs f beside loop, on a goroutine that has done so before when one is free: the stack of a new one has to grow first, which
// small stages feel.
func (r *run) beside(f func()) {
	select {
	case r.free <- f:
	default:
		go func() {
			for ; f != nil; f = <-r.free {
				f()
			}
		}()
	}
}

func (r *run) awaitLock(ctx context.Context, t *task) {
	r.note(r.user.Keep(t.Key)) // what is made there is to stay
	t.state = locked
	text := "waiting: another run is making it"
	var h holder
	if r.Store.Holder(t.Key, &h) == nil {
		text = "waiting: it is being made by " + h.text()
	}
	r.emit(Event{Address: t.Address, Kind: EventNote, Text: text})
	r.pending++
	go func() { r.results <- r.attend(ctx, t) }()
}

// madeMeanwhile keeps t when its result appeared before its lock could be taken.
func (r *run) madeMeanwhile(t *task) bool {
	if t.Force {
		return false
	}
	m, err := r.Store.Lookup(t.Key)
	if err != nil {
		return false
	}
	r.unlock(t)
	r.keep(t, m)
	return true
}

func (r *run) unlock(t *task) {
	if t.lock != nil {
		r.note(t.lock.Unlock())
		t.lock = nil
	}
}

func (r *run) assignment(t *task) assignment {
	a := assignment{Address: t.Address, Key: t.Key, Inputs: map[string]string{}, Missing: map[string]*MissingError{},
		Store: r.Store.Dir(), CPUs: t.claim.need.cpus, GPUs: t.gpus, Revision: Revision()}
	for _, up := range t.reads {
		missing := &MissingError{Address: up.Address}
		switch {
		case up.manifest != nil:
			a.Inputs[up.Address] = up.manifest.Key
			continue
		case up.state == failed:
			missing.Why = "failed: " + up.why
			missing.Lines = withShortLines(lastLines(r.folder.log(up.Address), failureLines))
		case up.state == skipped:
			missing.Why = "was skipped: " + up.why
		default:
			missing.Why = "was made without some of its inputs and is not kept"
		}
		a.Missing[up.Address] = missing
	}
	return a
}

// take handles what a goroutine reports.
func (r *run) take(ctx context.Context, res result) {
	t := res.task
	if res.recorded {
		r.takeRecorded(res)
		return
	}
	r.moment++
	if !res.ran {
		t.lock = res.lock
		switch {
		case res.adopted:
			r.takeAdopted(ctx, res)
		case res.err != nil && ctx.Err() != nil:
			r.drop(t)
		case res.err != nil:
			r.fail(t, res.err, 0)
		case r.madeMeanwhile(t):
		case len(r.failed) > 0 && !r.keepGoing && !t.Kind.AfterFailures:
			r.skip(t, r.halted())
		default:
			r.queue(t)
		}
		return
	}
	r.release(t)
	if res.err != nil && t.Key != "" { // a stage that was killed could not do it itself
		r.note(r.Store.Discard(t.Key))
		res.made.Drop()
	}
	switch {
	case res.err != nil && ctx.Err() != nil: // whatever it says, it was told to stop
		r.drop(t)
	case res.err != nil:
		r.fail(t, res.err, res.took)
	case t.Key == "":
		r.show(t, res.took)
	case res.made != nil:
		r.made(t, res.made, res.took)
		return // the lock is kept until the result is recorded
	default:
		m, err := r.Store.Lookup(t.Key)
		if err != nil {
			r.fail(t, fmt.Errorf("it ended well, but its result is %w", err), res.took)
			break
		}
		r.finish(t, m, res.took)
	}
	r.unlock(t)
}

// finish takes in a committed result.
func (r *run) finish(t *task, m *artifact.Manifest, took time.Duration) {
	t.state, t.how, t.manifest = finished, EventDone, m
	r.tellDone(t, m, took)
	r.after(t)
}

// tellDone tells of a committed result and publishes it.
func (r *run) tellDone(t *task, m *artifact.Manifest, took time.Duration) {
	seconds := max(took.Seconds(), m.Seconds) // a program may have run before us
	r.emit(Event{Address: t.Address, Kind: EventDone, Key: t.Key, Seconds: seconds})
	if old := t.Manifest; old != nil && old.Key == m.Key {
		for _, port := range m.Ports() {
			if old.Outputs[port].Digest != m.Outputs[port].Digest {
				r.emit(Event{Address: t.Address, Kind: EventNote, Text: fmt.Sprintf("port %s came out with other bytes than the last time, although nothing it depends on changed", port)})
			}
		}
	}
	r.publish(m, r.Store)
}

// keep takes in a result that the store had.
func (r *run) keep(t *task, m *artifact.Manifest) {
	t.state, t.how, t.manifest = finished, EventKept, m
	r.note(r.Store.Remember(r.Experiment.Name, t.Address, t.Key))
	r.emit(Event{Address: t.Address, Kind: EventKept, Key: t.Key})
	r.publish(m, r.Store)
	r.after(t)
}

// show takes in output that is not kept.
func (r *run) show(t *task, took time.Duration) {
	t.state, t.how = finished, EventShown
	r.emit(Event{Address: t.Address, Kind: EventShown, Seconds: took.Seconds(), Path: r.folder.shown(t.Address), Text: "not kept: inputs are missing"})
	var m artifact.Manifest
	if err := readJSON(r.folder.path("shown", fileName(t.Address), "manifest.json"), &m); err != nil {
		r.note(err)
	} else {
		r.publish(&m, nil)
	}
	r.after(t)
}

// after settles the readers of a task that has ended well.
func (r *run) after(t *task) {
	for _, reader := range t.readers {
		if reader.state == waiting {
			if reader.waits--; reader.waits == 0 {
				r.settle(reader)
			}
		}
	}
}

// fail records a failure, tells it at once, and skips what cannot run any more.
func (r *run) fail(t *task, err error, took time.Duration) {
	t.state, t.why = failed, err.Error()
	r.failed = append(r.failed, t)
	log := r.folder.log(t.Address)
	lines := lastLines(log, failureLines)
	f := &Failure{Text: err.Error(), Cause: failureCause(err, ofLastAttempt(lines)), Log: log, Lines: withShortLines(lines)}
	if work := r.Store.Work(t.Key); t.Key != "" && exists(work) {
		f.Work = work
	}
	r.emit(Event{Address: t.Address, Kind: EventFailed, Text: err.Error(), Seconds: took.Seconds(), Path: log, Failure: f})
	r.unlock(t)
	r.block(t, t.Address+" failed")
	if !r.keepGoing {
		for _, other := range r.tasks {
			if !other.Kind.AfterFailures && (other.state == waiting || other.state == ready) {
				r.skip(other, r.halted())
			}
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// halted is why nothing new starts after a failure.
func (r *run) halted() string {
	return r.failed[0].Address + " failed (-keep-going goes on with what does not need it)"
}

// block skips the readers of a task that has no result, except those that run after failures.
func (r *run) block(t *task, why string) {
	for _, reader := range t.readers {
		if reader.state != waiting {
			continue
		}
		if !reader.Kind.AfterFailures {
			r.skip(reader, why)
		} else if reader.waits--; reader.waits == 0 {
			r.settle(reader)
		}
	}
}

func (r *run) skip(t *task, why string) {
	if t.state == ready {
		r.schedule.remove(t.claim)
	}
	t.state, t.why = skipped, why
	r.unlock(t)
	r.emit(Event{Address: t.Address, Kind: EventSkipped, Text: why})
	r.block(t, why)
}

// drop gives up a task because the run was interrupted.
func (r *run) drop(t *task) {
	if t.state == running {
		r.emit(Event{Address: t.Address, Kind: EventSkipped, Text: "interrupted; its scratch folder is kept for the next run"})
	}
	t.state, t.why = skipped, "interrupted"
	r.unlock(t)
}

// outcome counts the tasks by how they ended.
func (r *run) outcome() map[string]int {
	counts := map[string]int{}
	for _, t := range r.tasks {
		switch {
		case t.state == failed:
			counts[string(EventFailed)]++
		case t.state == skipped:
			counts[string(EventSkipped)]++
		case t.how != "":
			counts[string(t.how)]++
		default:
			counts[string(t.Verb)]++
		}
	}
	return counts
}

// emit records an event and passes it on.
func (r *run) emit(e Event) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	r.record.Lock()
	defer r.record.Unlock()
	if err := r.events.write(e); err != nil && r.recordErr == nil {
		r.recordErr = fmt.Errorf("write events: %w", err)
	}
	r.observe(e)
}

// note keeps the first error of the run's own book-keeping, which does not stop it.
func (r *run) note(err error) {
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return
	}
	r.record.Lock()
	defer r.record.Unlock()
	if r.recordErr == nil {
		r.recordErr = err
	}
}
