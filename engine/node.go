package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
)

// SourceDigest identifies the code of this binary; the build sets it (-ldflags "-X rcgrpo/engine.SourceDigest=…"). A
// stage runs only in a binary with the digest of the engine that started it.
var SourceDigest string

// Revision is SourceDigest, or without one the commit that the Go tool recorded; "unknown" in a test binary.
func Revision() string {
	if SourceDigest != "" {
		return SourceDigest
	}
	return committed()
}

var committed = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, modified := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+modified"
		}
	}
	return revision + modified
})

// assignment is what the scheduler decided for one start of a node. The run folder keeps it as JSON for the process
// that runs the node: with the files beside it, it is all that process needs.
type assignment struct {
	Address  string
	Key      string                   // "" when inputs are missing: the output is shown, not kept
	Inputs   map[string]string        // key of the result bound to each input, by address
	Missing  map[string]*MissingError `json:",omitempty"` // why there is none, by address
	Store    string
	CPUs     int
	GPUs     []string
	Attempt  int
	Since    time.Time // of this start
	Kills    int64     // what oomKills said then
	Revision string
}

// RunNode runs one node of a run folder in this process, as its engine assigned it, and commits the result. It loads
// the experiment from the folder's copy and refuses to run when the node's key is not the planned one.
func RunNode(ctx context.Context, runDir, address string, reg Registry, observe func(Event)) (err error) {
	folder := runFolder(runDir)
	source, err := folder.source()
	if err != nil {
		return err
	}
	a, err := folder.assignment(address)
	if err != nil {
		return err
	}
	if a.Revision != Revision() {
		return fmt.Errorf("this binary is built from other code (%s) than the engine that starts it (%s): build both again", Revision(), a.Revision)
	}
	x, diags := Load(source, reg)
	if diags.HasErrors() {
		return fmt.Errorf("load the run folder's copy of %s: %w", source.Name, diags)
	}
	n := x.Node(a.Address)
	if n == nil {
		return fmt.Errorf("the run folder's copy of %s has no %s", source.Name, a.Address)
	}
	store, err := artifact.Open(a.Store)
	if err != nil {
		return err
	}
	if os.Getenv(childVariable) == "" && a.Key != "" { // started by hand: nobody holds the lock for us
		lock, err := store.TryLock(a.Key)
		if err != nil {
			return err
		}
		if lock == nil {
			return fmt.Errorf("%s is being run by another process", a.Address)
		}
		defer lock.Unlock()
	}
	user, err := store.NewSession() // for this process may outlive its engine
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, user.Close()) }()
	if err := user.Pin(append(slices.Collect(maps.Values(a.Inputs)), a.Key)...); err != nil {
		return err
	}
	p := performance{Node: n, Experiment: x, Store: store, User: user, Folder: folder, Assignment: a, Log: os.Stderr, Observe: observe, OwnProcess: true}
	return p.run(ctx)
}

// performance is one run of a node in this process.
type performance struct {
	Node       *Node
	Experiment *Experiment
	Store      *artifact.Store
	User       *artifact.Session
	Folder     runFolder
	Assignment assignment
	Log        io.Writer
	Observe    func(Event)
	OwnProcess bool           // nothing else runs here: the peak memory is the stage's
	Lock       *artifact.Lock // of the key, for a program that the stage starts; nil without one
	Share      *os.File       // of the machine, likewise
	Adopt      bool           // the program has ended well, after an engine that is gone had started it
	Kill       <-chan struct{}
	Parts      artifact.Parts                // of the key; nil: it is concluded again, from what this process has read
	Inputs     map[string]*artifact.Manifest // by address; nil: they are read from the store
	Finish     func(*artifact.Committed)     // takes the committed result, to be flushed; nil: it is flushed here
}

// run binds the inputs, runs the stage and commits what it made, or hands it to Finish. Whatever happens, nothing
// half-made stands under a key afterwards; the scratch folder goes with the commit only.
func (p *performance) run(ctx context.Context) error {
	n, a := p.Node, p.Assignment
	runner, ok := n.Stage.(Runner)
	if !ok {
		return fmt.Errorf("%s: this binary cannot run stages of kind %s", n.Address, n.Kind.Name)
	}
	inputs, err := p.inputs()
	if err != nil {
		return err
	}
	parts := p.Parts
	if a.Key != "" && parts == nil {
		if parts, err = p.checkKey(inputs); err != nil {
			return err
		}
	}
	job, err := p.job(ctx, inputs)
	if err != nil {
		return err
	}
	out, err := p.output()
	if err != nil {
		return err
	}
	job.create, job.take, job.state = out.create, out.take, out.state
	if job.shorter, err = p.shorter(parts); err != nil {
		return errors.Join(err, out.abort())
	}
	started := time.Now()
	if err := runStage(ctx, runner, job); err != nil {
		return errors.Join(err, out.abort())
	}
	m := artifact.Manifest{Kind: n.Kind.Name, Version: n.Kind.Version, Experiment: p.Experiment.Name, Address: n.Address,
		Seed: n.Seed, Parts: parts, Revision: Revision(), Device: job.Device, Run: p.Folder.id(),
		Started: started.UTC(), Seconds: time.Since(started).Seconds(), Published: job.published}
	if job.adopted {
		m.Started, m.Seconds = a.Since.UTC(), max(0, job.ended.Sub(a.Since).Seconds()) // the clock may have been set back
	}
	if job.shorter != nil {
		m.Begun = job.shorter.Key
	}
	m.PeakBytes = job.peakBytes
	if p.OwnProcess {
		m.PeakBytes = max(m.PeakBytes, peakBytes())
	}
	if err := out.commit(m); err != nil {
		return errors.Join(err, out.abort())
	}
	if p.Finish != nil && a.Key != "" {
		return nil
	}
	return os.RemoveAll(job.Dir)
}

// runStage turns a panic of a stage into an error, so that a mistake in one kind does not end the engine that runs a
// light stage in place.
func runStage(ctx context.Context, r Runner, job *Job) (err error) {
	defer func() {
		if v := recover(); v != nil {
			job.Logf("panic: %v\n%s", v, debug.Stack())
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return r.Run(ctx, job)
}

func (p *performance) inputs() (map[string]*artifact.Manifest, error) {
	if p.Inputs != nil {
		return p.Inputs, nil
	}
	inputs := map[string]*artifact.Manifest{}
	for address, key := range p.Assignment.Inputs {
		m, err := p.Store.Manifest(key)
		if err != nil {
			return nil, fmt.Errorf("input %s: %w", address, err)
		}
		inputs[address] = m
	}
	return inputs, nil
}

func (p *performance) checkKey(inputs map[string]*artifact.Manifest) (artifact.Parts, error) {
	key, parts, ok := Key(p.Node, digestsOf(inputs))
	if !ok {
		return nil, fmt.Errorf("%s: not every input has a result", p.Node.Address)
	}
	if key != p.Assignment.Key {
		return nil, fmt.Errorf("%s has key %.12s here and %.12s in the plan: data that it names has changed since, or the binaries differ", p.Node.Address, key, p.Assignment.Key)
	}
	return parts, nil
}

// digestsOf answers Node.Key from results by address.
func digestsOf(results map[string]*artifact.Manifest) func(*Node, string) (string, bool) {
	return func(from *Node, port string) (string, bool) {
		m := results[from.Address]
		if m == nil {
			return "", false
		}
		o, ok := m.Outputs[port]
		return o.Digest, ok
	}
}

func (p *performance) job(ctx context.Context, inputs map[string]*artifact.Manifest) (*Job, error) {
	n, a := p.Node, p.Assignment
	job := &Job{Address: n.Address, Experiment: p.Experiment, Device: "cpu", Threads: a.CPUs, GPUs: a.GPUs,
		Attempt: a.Attempt, Site: p.Experiment.Site, observe: p.Observe, log: p.Log, lock: p.Lock, share: p.Share,
		kills: a.Kills, kill: p.Kill}
	job.sign = func(pid int) error {
		return errors.Join(p.Folder.assign(a), a.holder(p.Folder).name(pid).write(p.Lock.File()))
	}
	if n.Seed != nil {
		job.Seed = *n.Seed
	}
	if len(a.GPUs) > 0 {
		job.Device = "cuda"
	}
	job.memory = func() int64 { return memoryFor(ctx, p.Experiment.Site, n, a.GPUs) }
	job.Dir = p.Store.Work(a.Key)
	if a.Key == "" {
		job.Dir = filepath.Join(p.Folder.shown(n.Address), "work")
	}
	told := map[string]bool{}
	for _, in := range n.Inputs {
		if missing := a.Missing[in.From.Address]; missing != nil && !told[in.From.Address] {
			told[in.From.Address] = true
			job.missing = append(job.missing, missing)
		}
	}
	job.open = func(ref artifact.Ref) (*artifact.Artifact, error) {
		in, ok := n.Input(ref)
		if !ok {
			return nil, fmt.Errorf("%s opens stage.%s.%s.%s, which its settings do not refer to", n.Address, ref.Kind, ref.Name, ref.Port)
		}
		if missing := a.Missing[in.From.Address]; missing != nil {
			return nil, missing
		}
		m := inputs[in.From.Address]
		if m == nil {
			return nil, fmt.Errorf("%s opens %s, which has no result", n.Address, in.From.Address)
		}
		opened, err := p.Store.Open(m, in.Ref.Port)
		if err == nil {
			opened.Ref = in.Ref
		}
		return opened, err
	}
	if p.Adopt {
		_, job.ended, job.adopted = p.Lock.Exit()
	}
	if a.Key == "" {
		if err := disk.MkdirAll(job.Dir, 0o700); err != nil {
			return nil, err
		}
		return job, nil
	}
	fresh, err := p.Store.MakeWork(a.Key)
	job.resumes = !fresh
	return job, err
}

// output is where a stage's ports go.
type output struct {
	create func(port string) (string, error)
	take   func(port, dir string) error
	state  func() (string, error)
	commit func(artifact.Manifest) error
	abort  func() error
}

// output stages the ports for the store, or, when inputs are missing, collects them in the run folder to be shown.
func (p *performance) output() (output, error) {
	types := p.Node.Outputs
	var mu sync.Mutex
	declared := func(create func(string) (string, error)) func(string) (string, error) {
		return func(port string) (string, error) {
			if _, ok := types[port]; !ok {
				return "", fmt.Errorf("%s creates port %q; its kind %s declares %v", p.Node.Address, port, p.Node.Kind.Name,
					slices.Sorted(maps.Keys(types)))
			}
			mu.Lock()
			defer mu.Unlock()
			return create(port)
		}
	}
	taken := func(take func(port, dir string) error) func(port, dir string) error {
		return func(port, dir string) error {
			_, err := declared(func(string) (string, error) { return dir, take(port, dir) })(port)
			return err
		}
	}
	if p.Assignment.Key != "" {
		staging, err := p.Store.Begin(p.Assignment.Key)
		if err != nil {
			return output{}, err
		}
		return output{
			create: declared(staging.Dir),
			take:   taken(staging.Take),
			state:  staging.State,
			commit: func(m artifact.Manifest) error {
				if series, _, length, _ := series(p.Node, m.Parts); series != "" {
					if err := staging.KeepState(series, length); err != nil {
						return err
					}
				}
				c, err := staging.Commit(m, types)
				if err != nil {
					return err
				}
				if p.Finish == nil {
					return p.Store.Flush(c)
				}
				p.Finish(c)
				return nil
			},
			abort: staging.Abort,
		}, nil
	}
	dir := p.Folder.shown(p.Node.Address)
	return output{
		take: taken(func(port, from string) error { return os.Rename(from, filepath.Join(dir, port)) }),
		create: declared(func(port string) (string, error) {
			return filepath.Join(dir, port), disk.MkdirAll(filepath.Join(dir, port), 0o700)
		}),
		state: func() (string, error) {
			return filepath.Join(dir, ".state"), disk.MkdirAll(filepath.Join(dir, ".state"), 0o700)
		},
		commit: func(m artifact.Manifest) error { return writeJSON(filepath.Join(dir, "manifest.json"), m) },
		abort:  func() error { return nil },
	}, nil
}

// peakBytes is the largest resident size this process has had.
func peakBytes() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return usage.Maxrss << 10 // Linux counts KiB
}

// What an engine hands to the process of a node.
const (
	childVariable = "RCGRPO_CHILD" // set to 1
	lockFile      = 3              // the key's lock, held open as long as the process lives; not there when the output is not kept
	leaseFile     = 4              // its share of the machine, likewise
)

// NodeMain is the process of one node: it runs RunNode and returns the exit code. Started by an engine, it appends its
// events to a file of the run folder, stops gracefully on SIGTERM, and goes on when the engine is gone; started by hand,
// it prints lines.
func NodeMain(runDir, address string, reg Registry, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	observe := plainObserver(stderr)
	if os.Getenv(childVariable) != "" {
		syscall.CloseOnExec(lockFile)
		syscall.CloseOnExec(leaseFile)
		var err error
		if observe, err = childObserver(runFolder(runDir), address); err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
	}
	err := runNodeSafely(ctx, runDir, address, reg, observe)
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, err)
	observe(Event{Time: time.Now(), Address: address, Kind: EventFailed, Text: err.Error(), Failure: &Failure{Text: err.Error(), Cause: causeOf(err)}})
	return 1
}

// runNodeSafely is RunNode that returns a panic outside of the stage's own Run, where runStage recovers, as an error too.
func runNodeSafely(ctx context.Context, runDir, address string, reg Registry, observe func(Event)) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%s ended by a mistake of the program: %v", address, v)
		}
	}()
	return RunNode(ctx, runDir, address, reg, observe)
}

// childObserver appends events to the file that engines follow, and says in the key's lock who we are. A process whose
// output is not kept could not be adopted and ends when its standard input does: its engine is gone.
func childObserver(folder runFolder, address string) (func(Event), error) {
	a, err := folder.assignment(address)
	if err != nil {
		return nil, err
	}
	if a.Key == "" {
		go func() {
			io.Copy(io.Discard, os.Stdin)
			killSession(os.Getpid())
		}()
	} else if err := a.holder(folder).sign(lockFile); err != nil {
		return nil, fmt.Errorf("write into the lock of %s: %w", address, err)
	}
	events, err := os.OpenFile(folder.events(address), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	return func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		if err := writeEvent(events, e); err != nil {
			fmt.Fprintf(os.Stderr, "write events: %v\n", err)
		}
	}, nil
}

// plainObserver prints a line per event.
func plainObserver(w io.Writer) func(Event) {
	d := NewDisplay(w, DisplayOptions{})
	return d.Observe
}
