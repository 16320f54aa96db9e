package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/alive"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/machine"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
)

// Runner is a stage that this binary can run. Tensor kinds implement it only under the build tag libtorch; a Stage that
// is not a Runner is started in the torch binary.
type Runner interface {
	Run(ctx context.Context, job *Job) error
}

// Chooser is a stage whose settings decide how it runs: whether it needs tensors, for example.
type Chooser interface {
	Runner() Runner // nil if this binary cannot run it
}

// runnerOf returns the Runner of a stage; nil if this binary cannot run it.
func runnerOf(s lang.Stage) Runner {
	if c, ok := s.(Chooser); ok {
		return c.Runner()
	}
	r, _ := s.(Runner)
	return r
}

// Job gives a running stage its inputs, folders, random streams and log. Open, Create, Progress and Logf are safe for
// concurrent use.
type Job struct {
	Address    string
	Experiment *lang.Experiment
	Seed       int64  // of the random streams; 0 if the stage does not run per seed
	Dir        string // scratch folder, kept when the stage fails or is killed, so that the next attempt can resume
	Device     string // "cpu" or "cuda" (the devices in CUDA_VISIBLE_DEVICES); recorded, and a stage may refine it
	Threads    int    // CPUs of this process of the stage
	GPUs       []string
	Attempt    int // 1 for the first start within this run
	Site       *lang.Site

	// A stage with several ranks runs in that many processes, each with its own Job. They meet at the file Rendezvous,
	// and only rank 0 writes ports. One process is rank 0 of 0 or 1.
	Rank, Ranks int
	Rendezvous  string
	Arrival     time.Duration // limit for all ranks to meet
	Backend     string        // of their exchange of data; a stage sets it for its manifest

	report atomic.Pointer[func() runs.RankState] // of ReportRank

	work    *Work
	observe func(runs.Event) // nil: no observer

	mu       sync.Mutex // guards the fields below
	out      ports
	log      io.Writer
	reported time.Time // last Progress that was passed on
}

// ports receives the files of a stage: an artifact.Staging or a portFolder.
type ports interface {
	Dir(port string) (string, error)
	Take(port, dir string) error
	State() (string, error)
}

// portFolder holds the ports of a stage whose output is not committed, each in the folder of its name.
type portFolder string

func (f portFolder) Dir(port string) (string, error) {
	dir := filepath.Join(string(f), port)
	return dir, disk.MkdirAll(dir, 0o700)
}

func (f portFolder) Take(port, dir string) error {
	return os.Rename(dir, filepath.Join(string(f), port))
}

func (f portFolder) State() (string, error) { return f.Dir(".state") }

// Open opens an input by the Ref in the decoded settings. Only a stage of a kind with AfterFailures can get a
// *MissingError; it omits that input and reports it.
func (j *Job) Open(ref artifact.Ref) (*artifact.Artifact, error) {
	w := j.work
	if dir, ok := w.folders[ref]; ok {
		return &artifact.Artifact{Dir: dir, Type: ref.Type, Ref: ref}, nil
	}
	in, ok := w.Node.Input(ref)
	if !ok {
		return nil, fmt.Errorf("%s opens stage.%s.%s.%s, to which its settings do not refer",
			w.Node.Address, ref.Kind, ref.Name, ref.Port)
	}
	if missing := w.Missing[in.From.Address]; missing != nil {
		return nil, missing
	}
	opened, err := w.store.Open(w.inputs[in.From.Address], in.Ref.Port)
	if err == nil {
		opened.Ref = in.Ref
	}
	return opened, err
}

// Maker returns the lang.Stage whose result an input is; nil outside a run.
func (j *Job) Maker(ref artifact.Ref) any {
	in, ok := j.work.Node.Input(ref)
	if !ok {
		return nil
	}
	return in.From.Stage
}

// InputDigest is the content digest of an input, by the address and port of the stage that made it.
type InputDigest struct{ Name, Digest string }

// InputDigests returns the digests of the inputs that exist, in the order of the settings. Outside a run there are
// none.
func (j *Job) InputDigests() (all []InputDigest) {
	for _, in := range j.work.Node.Inputs {
		if digest, ok := digestOf(j.work.inputs[in.From.Address], in.Ref.Port); ok {
			all = append(all, InputDigest{in.From.Address + "." + in.Ref.Port, digest})
		}
	}
	return all
}

// Missing returns the missing inputs in the order of the settings. It is empty unless the kind has AfterFailures
// and a stage before this one failed; then the output of this stage is shown, not committed.
func (j *Job) Missing() (missing []*runs.MissingError) {
	for _, in := range j.work.Node.Inputs {
		if m := j.work.Missing[in.From.Address]; m != nil && !slices.Contains(missing, m) {
			missing = append(missing, m)
		}
	}
	return missing
}

// Create returns the folder of a port, empty at the first call. All ports are committed together when Run
// returns nil. Files named times.* are not part of the digest (see package artifact).
func (j *Job) Create(port string) (dir string, err error) {
	if err := j.work.checkPort(port); err != nil {
		return "", err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.out.Dir(port)
}

// Take makes a folder the content of a port. The folder is Dir or below it.
func (j *Job) Take(port, dir string) error {
	if err := j.work.checkPort(port); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.out.Take(port, dir)
}

// State returns an empty folder for the state with which a longer run extends this result. No digest includes
// it, and gc evicts it first.
func (j *Job) State() (dir string, err error) { return j.out.State() }

// Shorter is a result that differs from the requested one only in a smaller value of the setting named by
// Kind.Length. A stage that extends it produces the same bytes as one that starts from the beginning. Dir is the folder
// that was its Job.State.
type Shorter struct {
	*artifact.Shorter
	store *artifact.Store
}

// Open opens one of its ports.
func (s *Shorter) Open(port string) (*artifact.Artifact, error) {
	return s.store.Open(s.Manifest, port)
}

// Shorter returns the longest result that the stage can extend, or nil.
func (j *Job) Shorter() *Shorter { return j.work.shorter }

// Resumes reports whether Dir may contain files of an earlier attempt.
func (j *Job) Resumes() bool { return j.work.resumes }

// Memory returns the bytes that this process of the stage may use on its device, and those that all its processes may
// use in the host's memory beside GPUs; 0: unknown. It may query the GPU driver.
func (j *Job) Memory() (device, host int64) {
	if j.work.store == nil {
		return 0, 0
	}
	need := j.work.Node.Resources
	m := machine.Detect(context.Background(), j.Site, len(j.GPUs) > 0 && need.GPUMemory == 0)
	if len(j.GPUs) > 0 {
		m.GPUs = j.GPUs
	}
	return m.MemoryOf(need)
}

// Host returns the CPUs and the bytes of memory of this machine, or of this process's control groups; 0 bytes: unknown.
func Host() (cpus int, memory int64) {
	m := machine.Detect(context.Background(), nil, false)
	_, memory = m.MemoryOf(lang.Resources{})
	return m.CPUs, memory
}

// Rand returns a random stream that depends on seed and name only, never on the address, so stages with the same seed
// and stream draw the same numbers. Each call restarts the stream.
func (j *Job) Rand(stream string) *rand.Rand { return Rand(j.Seed, stream) }

// Rand returns the stream of a name under a seed: ChaCha8, keyed by the SHA-256 of both.
func Rand(seed int64, stream string) *rand.Rand {
	b := binary.LittleEndian.AppendUint64(nil, uint64(seed))
	return rand.New(rand.NewChaCha8(sha256.Sum256(append(b, stream...))))
}

const reportEvery = 100 * time.Millisecond

// Progress reports that done of total units are finished; a total of 0 is unknown. It is cheap enough for every step.
func (j *Job) Progress(done, total int, unit string, values ...runs.Value) {
	now := time.Now()
	j.mu.Lock()
	due := (now.Sub(j.reported) >= reportEvery || done == total) && j.Rank == 0
	if due {
		j.reported = now
	}
	j.mu.Unlock()
	if due && j.observe != nil {
		finite := slices.DeleteFunc(slices.Clone(values), func(v runs.Value) bool { // JSON has no other numbers
			return math.IsNaN(v.Value) || math.IsInf(v.Value, 0)
		})
		j.observe(runs.Event{Time: now, Address: j.Address, Kind: runs.EventProgress,
			Done: done, Total: total, Unit: unit, Values: finite})
	}
}

// Logf appends a line to the stage's log.
func (j *Job) Logf(format string, args ...any) {
	text := strings.TrimSuffix(fmt.Sprintf(format, args...), "\n")
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Fprintln(j.log, text)
}

// note reports a message about the stage, unless it is empty.
func (j *Job) note(text string) {
	if text != "" && j.observe != nil {
		j.observe(runs.Event{Time: time.Now(), Address: j.Address, Kind: runs.EventNote, Text: text})
	}
}

// JobSetup is the input of NewJob.
type JobSetup struct {
	Dir    string // parent of work/ (Job.Dir) and of one folder per port
	Seed   int64
	Inputs map[artifact.Ref]string // folder of each input
	Site   *lang.Site              // nil: one CPU
	Log    io.Writer               // nil: discarded

	Rank, Ranks int // see Job
	Rendezvous  string
}

// NewJob creates a job outside a plan, for tests and for stages on files outside a store. The content of a port
// is in the folder of that name below s.Dir (Job.State in .state); nothing is committed.
func NewJob(s JobSetup) (*Job, error) {
	work, err := portFolder(s.Dir).Dir("work")
	return &Job{
		Address:    "stage.alone",
		Experiment: &lang.Experiment{},
		Site:       cmp.Or(s.Site, &lang.Site{CPUs: 1}),
		Seed:       s.Seed,
		Dir:        work,
		Device:     "cpu",
		Threads:    1,
		Attempt:    1,
		Rank:       s.Rank,
		Ranks:      s.Ranks,
		Rendezvous: s.Rendezvous,
		Arrival:    2 * time.Minute,
		out:        portFolder(s.Dir),
		log:        cmp.Or(s.Log, io.Discard),
		work:       &Work{Node: &lang.Node{Address: "stage.alone"}, folders: s.Inputs, resumes: true},
	}, err
}

// Program is a program that a stage executes.
type Program struct {
	Args   []string // the program, found in the PATH of Env, and its arguments
	Env    []string // NAME=VALUE; nothing else is inherited
	Dir    string   // folder in which it starts
	Secret []string // replaced by *** in the log
}

// shellText returns the text of the shell that supervises a program. The shell starts the program in a process of
// its own without the engine's descriptors, so it is the shell that holds the lock. A command that is a shell text also
// runs in its own shell, where $$, traps and exec have their usual meaning. A request to stop reaches the whole group;
// the shell waits for the program and exits with 143. It ignores other signals to the group, because only the end of
// the program counts.
//
// When the program has ended after its engine was killed, the shell becomes the process of the stage by exec, with the
// lock, the lease and the exit code. With code 0 that commits the output, else it leaves a failure in the journal
// (Recovered). A shell that got a request to stop commits nothing.
func (w *Work) shellText(mark string) (string, error) {
	text := proc.LimitText(mark) + fmt.Sprintf(`
trap 'exit 143' TERM; trap : HUP INT QUIT ALRM USR1 USR2
(exec "$@") %d>&- %d>&-
`, lockFile, leaseFile)
	if w.lock == nil { // in a process of its own, or outside a run
		return text + "exit $?", nil
	}
	if w.store.Shared() { // keeps the claim of the key after the end of the engine
		text = alive.BeatText(lockFile) + text
	}
	self, err := os.Executable()
	words := append([]string{self}, w.Args()...)
	for i, word := range words {
		words[i] = proc.Quote(word)
	}
	return text + fmt.Sprintf(`export %[1]s=$? %[2]s=1
read -r _ _ _ RCGRPO_PARENT _ </proc/$$/stat
test $RCGRPO_PARENT != %[3]d || exit $%[1]s
exec %[4]s`, codeVariable, childVariable, os.Getpid(), strings.Join(words, " ")), err
}

// Recovered reports that this process was the shell of the stage's program, which ended after its engine was killed.
// Dir has the program's files; Execute starts nothing and returns how the program ended.
func (j *Job) Recovered() bool { return j.work.code != nil }

// RunProgram runs a program. Its output goes to the stage's log, its standard input is empty. When ctx ends, the
// program gets a request to stop and is killed later. Processes that it leaves running are killed, as far as
// proc.Process.Wait finds them.
//
// If the engine is killed, the program continues; its shell holds the key's lock and commits the output at the end. The
// output of a program with secrets goes through the engine, which masks it, so such a program ends at its next line.
func (j *Job) RunProgram(ctx context.Context, p Program) error {
	w, mark := j.work, proc.ScratchMark(j.Dir)
	if w.resumes { // processes of a program whose engine or shell was killed
		j.note(proc.KillMarked(mark))
	}
	if w.code != nil {
		proc.KillSession(os.Getpid())
		w.usage = proc.ChildrenUsage()
		return codeError(p.Args[0], *w.code, w.Kills)
	}
	text, err := w.shellText(mark)
	if err != nil {
		return err
	}
	log, finish, err := proc.OpenOutput(j.log, p.Secret)
	if err != nil {
		return err
	}
	args := slices.Concat([]string{"/bin/sh", "-c", text, "sh"}, p.Args)
	files := append([]*os.File{nil, log, log}, w.Held()...)
	process, err := proc.Start(proc.Command{Args: args, Dir: p.Dir, Env: p.Env, Files: files, Mark: mark})
	if err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", p.Args[0], err), finish())
	}
	recordErr := w.recordHolder(process.PID)
	exit, err := process.Wait(ctx, GracePeriod, w.Kill)
	if err = errors.Join(err, recordErr, finish()); err != nil {
		return fmt.Errorf("supervise the program: %w", err)
	}
	j.note(exit.Left)
	w.usage = w.usage.And(exit.Usage)
	switch {
	case exit.Failed() && ctx.Err() != nil:
		return context.Cause(ctx)
	case exit.Signal != 0:
		return ExitError(exit, w.Kills)
	}
	return codeError(p.Args[0], exit.Code, w.Kills)
}

// recordHolder records the program as the holder of the key's lock, so that another engine can adopt it.
func (w *Work) recordHolder(pid int) error {
	h, running := w.Holder(w.Folder).WithProcess(pid)
	if w.lock == nil || !running {
		return nil
	}
	return h.Write(w.lock.File())
}
