package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/machine"
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

// Binary returns the program that can execute the node: this one, or the one with tensors.
func (w Work) Binary() (string, error) { return stageBinary(w.Node) }

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
	adopted    bool           // the program has ended, after its engine: only its output is committed
	ownProcess bool           // the peak memory of this process is that of the stage

	parts     artifact.Parts                // of the key; nil: computed from inputs
	inputs    map[string]*artifact.Manifest // by address; nil: read from the store
	committed func(*artifact.Committed)     // receives the result to flush; nil: it is flushed here
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
	e := stageEnd{task: t}
	s := &start{Work: Work{Assignment: r.assignment(t), Node: t.Node, Kill: r.Kill},
		experiment: r.Experiment, store: r.Store, session: r.session, folder: r.folder,
		lock: t.lock, lease: t.lease.Inherited(), parts: t.parts, inputs: map[string]*artifact.Manifest{}}
	s.Work.start = s
	for _, up := range t.reads {
		if up.manifest != nil {
			s.inputs[up.Address] = up.manifest
		}
	}
	var made *artifact.Committed
	s.committed = func(c *artifact.Committed) { made = c }
	r.pending++
	go func() {
		started := time.Now()
		e.err = r.attempts(ctx, s)
		e.took = time.Since(started)
		if e.err == nil && t.Key != "" {
			e.manifest, e.err = r.commit(t, made, e.took)
		}
		r.ended <- e
	}()
}

// assignment describes the first attempt at a task.
func (r *run) assignment(t *task) runs.Assignment {
	a := runs.Assignment{Address: t.Address, Key: t.Key, Inputs: map[string]string{}, Missing: map[string]*runs.MissingError{},
		Store: r.Store.Dir(), CPUs: t.request.Need.CPUs, GPUs: t.gpus, Attempt: t.attempts + 1, Revision: Revision()}
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
	s.Since, s.Kills = time.Now(), proc.RecentOOMKills()
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
	if !inPlace {
		r.events.Flush() // before a process that may outlive this one
	}
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
			"the middle is removed, and a line in the log contains the size (logs.limit of the site file)", lang.BytesText(most))})
	}}
}

// adoptFinished makes the attempt commit the output of a program that has ended after its engine.
func (r *run) adoptFinished(s *start) {
	var h runs.Holder
	if s.store.Holder(s.Key, &h) != nil || !proc.Exists(s.store.Work(s.Key)) {
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
func (s *start) execute(ctx context.Context, observe func(runs.Event)) error {
	runner, ok := s.Node.Stage.(Runner)
	if !ok {
		return fmt.Errorf("%s: this binary cannot run stages of kind %s", s.Node.Address, s.Node.Kind.Name)
	}
	if err := s.bindInputs(); err != nil {
		return err
	}
	job, err := s.newJob(ctx, observe)
	if err != nil {
		return err
	}
	out, err := s.output()
	if err != nil {
		return err
	}
	job.create, job.take, job.state = out.create, out.take, out.state
	if job.shorter, err = s.shorter(); err != nil {
		return errors.Join(err, out.abort())
	}
	started := time.Now()
	if err := runStage(ctx, runner, job); err != nil {
		return errors.Join(err, out.abort())
	}
	if err := out.commit(s.manifest(job, started)); err != nil {
		return errors.Join(err, out.abort())
	}
	if s.committed != nil && s.Key != "" { // the run removes the folder
		return nil
	}
	return os.RemoveAll(job.Dir)
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
		Seed: n.Seed, Parts: s.parts, Revision: Revision(), Device: job.Device, Run: s.folder.Id(),
		Started: started.UTC(), Seconds: time.Since(started).Seconds(), Published: job.published}
	if s.adopted {
		m.Started, m.Seconds = s.Since.UTC(), max(0, job.ended.Sub(s.Since).Seconds()) // the clock may have been set back
	}
	if job.shorter != nil {
		m.Begun = job.shorter.Key
	}
	m.PeakBytes = job.peakBytes
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
func (s *start) newJob(ctx context.Context, observe func(runs.Event)) (*Job, error) {
	n := s.Node
	j := &Job{Address: n.Address, Experiment: s.experiment, Dir: s.store.Work(s.Key), Device: "cpu", Threads: s.CPUs,
		GPUs: s.GPUs, Attempt: s.Attempt, Site: s.experiment.Site}
	j.log, j.observe = io.Writer(s.Log), observe
	if s.Log == nil {
		j.log = os.Stderr
	}
	j.lock, j.lease, j.kills, j.kill = s.lock, s.lease, s.Kills, s.Kill
	j.sign = func(pid int) error {
		h, err := s.Holder(s.folder).WithProcess(pid)
		if err != nil { // it has ended
			return nil
		}
		h.Group = true
		return errors.Join(s.folder.Assign(s.Assignment), h.Write(s.lock.File()))
	}
	if n.Seed != nil {
		j.Seed = *n.Seed
	}
	if len(s.GPUs) > 0 {
		j.Device = "cuda"
	}
	j.memory = func() int64 {
		m := machine.Detect(ctx, s.experiment.Site, len(s.GPUs) > 0 && n.Resources.GPUMemory == 0)
		if len(s.GPUs) > 0 {
			m.GPUs = s.GPUs
		}
		return m.MemoryOf(n.Resources)
	}
	for _, in := range n.Inputs {
		if missing := s.Missing[in.From.Address]; missing != nil && !slices.Contains(j.missing, missing) {
			j.missing = append(j.missing, missing)
		}
	}
	j.open = s.open
	if s.adopted {
		_, j.ended, j.adopted = s.lock.Exit()
	}
	if s.Key == "" {
		j.Dir = filepath.Join(s.folder.Shown(n.Address), "work")
		if err := disk.MkdirAll(j.Dir, 0o700); err != nil {
			return nil, err
		}
		return j, nil
	}
	fresh, err := s.store.MakeWork(s.Key)
	j.resumes = !fresh
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

// shorter finds a shorter result that the stage can resume from.
func (s *start) shorter() (*Shorter, error) {
	key, _, length, why := plan.Series(s.Node, s.parts)
	if key == "" || why != "" {
		return nil, nil
	}
	found, err := s.store.Longest(key, length, s.session)
	if err != nil || found == nil {
		return nil, err
	}
	return &Shorter{found.Length, found.Dir, found.Manifest.Key, func(port string) (*artifact.Artifact, error) {
		return s.store.Open(found.Manifest, port)
	}}, nil
}

// output is the destination of a stage's ports.
type output struct {
	create func(port string) (string, error)
	take   func(port, dir string) error
	state  func() (string, error)
	commit func(artifact.Manifest) error
	abort  func() error
}

// output stages the ports in the store or, if inputs are missing, in the run folder.
func (s *start) output() (output, error) {
	var out output
	if s.Key == "" {
		out = s.shownOutput()
	} else {
		staging, err := s.store.Begin(s.Key)
		if err != nil {
			return out, err
		}
		out = output{create: staging.Dir, take: staging.Take, state: staging.State, abort: staging.Abort,
			commit: func(m artifact.Manifest) error { return s.commit(staging, m) }}
	}
	check := func(port string) error {
		if _, ok := s.Node.Outputs[port]; !ok {
			return fmt.Errorf("%s creates port %q; its kind %s declares %v", s.Node.Address, port, s.Node.Kind.Name,
				slices.Sorted(maps.Keys(s.Node.Outputs)))
		}
		return nil
	}
	var mu sync.Mutex
	create, take := out.create, out.take
	out.create = func(port string) (string, error) {
		if err := check(port); err != nil {
			return "", err
		}
		mu.Lock()
		defer mu.Unlock()
		return create(port)
	}
	out.take = func(port, dir string) error {
		if err := check(port); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		return take(port, dir)
	}
	return out, nil
}

// shownOutput collects the ports in the run folder; nothing is committed.
func (s *start) shownOutput() output {
	dir := s.folder.Shown(s.Node.Address)
	create := func(name string) (string, error) {
		return filepath.Join(dir, name), disk.MkdirAll(filepath.Join(dir, name), 0o700)
	}
	return output{
		create: create,
		take:   func(port, from string) error { return os.Rename(from, filepath.Join(dir, port)) },
		state:  func() (string, error) { return create(".state") },
		commit: func(m artifact.Manifest) error { return runs.WriteJSON(filepath.Join(dir, "manifest.json"), m) },
		abort:  func() error { return nil },
	}
}

// commit commits the staged result.
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
	if s.committed == nil {
		return s.store.Flush(c)
	}
	s.committed(c)
	return nil
}
