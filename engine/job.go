package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"rcgrpo/engine/artifact"
)

// Job is what a running stage has of the engine: its inputs, the folders to write to, its random streams, and a way to
// say how far it is. Open, Create, Progress and Logf may be called from several goroutines.
type Job struct {
	Address    string
	Experiment *Experiment
	Seed       int64  // of the random streams; 0 where seeds do not multiply
	Dir        string // scratch, kept when the stage fails or is killed, so that the next attempt can resume from it
	Device     string // "cpu" or "cuda" (the devices in CUDA_VISIBLE_DEVICES); a stage may say more, it is recorded
	Threads    int    // CPU slots of this stage
	GPUs       []string
	Attempt    int // 1 for the first start within this run
	Site       *Site

	shorter *Shorter
	memory  func() int64 // nil: nobody says
	state   func() (string, error)
	open    func(ref artifact.Ref) (*artifact.Artifact, error)
	create  func(port string) (string, error)
	take    func(port, dir string) error
	resumes bool
	missing []*MissingError
	observe func(Event)
	log     io.Writer

	lock      *artifact.Lock      // of the key, for a program that the stage starts; nil without one
	share     *os.File            // of the machine, likewise
	sign      func(pid int) error // names that program in the lock
	kills     int64               // what oomKills said at the start
	kill      <-chan struct{}     // closed when the program is to end at once; nil: never
	adopted   bool                // the program has ended already, well, at this moment:
	ended     time.Time
	peakBytes int64 // of the programs it started

	mu        sync.Mutex
	published []artifact.Published
	shown     time.Time // last Progress that was passed on
}

// MissingError says why an input of a stage that runs after failures (Kind.AfterFailures) is not there.
type MissingError struct {
	Address string   // of the stage that should have made it
	Why     string   // "failed: …", "was skipped: stage.model.base failed"
	Lines   []string // the last lines of its log, when it failed
}

func (e *MissingError) Error() string { return fmt.Sprintf("%s is missing: it %s", e.Address, e.Why) }

// Open opens an input for reading, by the Ref of the decoded settings. Only a stage whose kind is Always can meet a
// *MissingError here; it leaves that input out and says so.
func (j *Job) Open(ref artifact.Ref) (*artifact.Artifact, error) {
	return j.open(ref)
}

// Missing returns the inputs that are not there, with the reasons, in the order of the settings. It is empty unless
// the kind is Always and something above failed; what such a stage writes is shown and not kept.
func (j *Job) Missing() []*MissingError { return slices.Clone(j.missing) }

// Create returns the folder to fill for a port, new and empty at the first call. All ports appear together, by one
// rename, when Run returns nil. Files named times.* stay outside the digest (see package artifact).
func (j *Job) Create(port string) (dir string, err error) {
	return j.create(port)
}

// Take is Create for a folder that lies below Dir, or is Dir, and holds all that the port is to hold.
func (j *Job) Take(port, dir string) error { return j.take(port, dir) }

// Resumes says whether Dir may hold something of an earlier attempt.
func (j *Job) Resumes() bool { return j.resumes }

// Publish asks the engine to copy a file of a port to NAME beside the experiment once the stage has succeeded. A
// published file that is missing later is restored by the next run; one edited by hand is moved to NAME.edited first.
// The name stays below the experiment's folder.
func (j *Job) Publish(port, file, name string) error {
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%s publishes %q, which is not a path below the experiment's folder", j.Address, name)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range j.published {
		if p.Name == name {
			return fmt.Errorf("%s publishes %s twice", j.Address, name)
		}
	}
	j.published = append(j.published, artifact.Published{Port: port, File: file, Name: name})
	return nil
}

// Rand is a random stream of this stage. It depends on seed and name only, never on the address, so stages of one
// seed that ask for the same stream draw the same numbers. Each call starts the stream anew.
func (j *Job) Rand(stream string) *rand.Rand { return Rand(j.Seed, stream) }

// Rand is the stream of that name under a seed: ChaCha8, keyed by the SHA-256 of both.
func Rand(seed int64, stream string) *rand.Rand {
	b := binary.LittleEndian.AppendUint64(nil, uint64(seed))
	return rand.New(rand.NewChaCha8(sha256.Sum256(append(b, stream...))))
}

// Value is a number shown beside a stage's progress.
type Value struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// progressEvery bounds how often a stage's progress is passed on.
const progressEvery = 100 * time.Millisecond

// Progress says that done of total units are finished; a total of 0 is unknown. It is cheap enough for every step.
func (j *Job) Progress(done, total int, unit string, values ...Value) {
	now := time.Now()
	j.mu.Lock()
	due := now.Sub(j.shown) >= progressEvery || done == total
	if due {
		j.shown = now
	}
	j.mu.Unlock()
	if due && j.observe != nil {
		j.observe(Event{Time: now, Address: j.Address, Kind: EventProgress, Done: done, Total: total, Unit: unit, Values: finite(values)})
	}
}

// Logf appends a line to the stage's log.
func (j *Job) Logf(format string, args ...any) {
	text := strings.TrimSuffix(fmt.Sprintf(format, args...), "\n")
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Fprintln(j.log, text)
}

// finite drops what JSON cannot carry.
func finite(values []Value) []Value {
	return slices.DeleteFunc(slices.Clone(values), func(v Value) bool { return math.IsNaN(v.Value) || math.IsInf(v.Value, 0) })
}

// JobSetup is what NewJob needs.
type JobSetup struct {
	Dir    string // below it: work/ (Job.Dir) and one folder per port
	Seed   int64
	Inputs map[artifact.Ref]string // folder that each input is read from
	Site   *Site                   // nil: an empty one
	Log    io.Writer               // nil: nowhere
}

// NewJob makes a job outside a plan, to run a stage alone: in tests, or on files that no store holds. Whatever port is
// created lies in the folder of that name below s.Dir afterwards (Job.State in .state); nothing is committed.
func NewJob(s JobSetup) (*Job, error) {
	work := filepath.Join(s.Dir, "work")
	if err := os.MkdirAll(work, 0o700); err != nil {
		return nil, err
	}
	j := &Job{Address: "stage.alone", Experiment: &Experiment{}, Seed: s.Seed, Dir: work, Device: "cpu", Threads: 1,
		Attempt: 1, Site: s.Site, log: s.Log}
	if j.Site == nil {
		j.Site = &Site{CPUs: 1}
	}
	if j.log == nil {
		j.log = io.Discard
	}
	j.open = func(ref artifact.Ref) (*artifact.Artifact, error) {
		dir, ok := s.Inputs[ref]
		if !ok {
			return nil, fmt.Errorf("no input for stage.%s.%s.%s", ref.Kind, ref.Name, ref.Port)
		}
		return &artifact.Artifact{Dir: dir, Type: ref.Type, Ref: ref}, nil
	}
	j.resumes = true
	j.take = func(port, dir string) error { return os.Rename(dir, filepath.Join(s.Dir, port)) }
	j.create = func(port string) (string, error) {
		dir := filepath.Join(s.Dir, port)
		return dir, os.MkdirAll(dir, 0o700)
	}
	j.state = func() (string, error) { return j.create(".state") }
	return j, nil
}
