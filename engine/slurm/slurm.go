package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
)

// Executor submits each attempt at a stage as one job. It is an engine.Pool.
type Executor struct {
	lang.Slurm
	limit      func() time.Duration // of the partition; 0: none
	watched    atomic.Int64         // calls of Execute that wait for a job
	submitting chan struct{}        // full while mostSubmissions calls of sbatch run

	mu       sync.Mutex
	binaries map[string]string // digests by path
	intact   map[string]bool   // copies of these whose digest was checked, by path

	asking       bool             // a call of squeue runs
	asked        time.Time        // when the newest call began
	away         error            // of the newest call; nil: it succeeded
	awayReported bool             // since the last success
	states       map[string]state // of the last success
	answered     time.Time        // when that call began; zero: none yet
}

// mostSubmissions bounds the calls of sbatch at once, since many ready stages would overload the controller.
const mostSubmissions = 8

// New returns the executors of a site file by name.
func New(site *lang.Site) map[string]engine.Executor {
	all := map[string]engine.Executor{}
	for name, s := range site.Slurm {
		all[name] = NewExecutor(s)
	}
	return all
}

// NewExecutor returns an executor with these settings.
func NewExecutor(s lang.Slurm) *Executor {
	x := &Executor{Slurm: s, submitting: make(chan struct{}, mostSubmissions), binaries: map[string]string{},
		intact: map[string]bool{}}
	x.limit = sync.OnceValue(func() time.Duration { return x.partitionLimit(context.Background()) })
	return x
}

// Room returns the number of stages that may be in the queue or running.
func (x *Executor) Room() int { return x.Jobs }

// Unfit explains why a stage can never run as a job; "" if it can.
func (x *Executor) Unfit(n *lang.Node) string {
	r := n.Resources
	if r.GPUs > 1 && !n.Kind.MultiGPU && n.Kind.Ranks == nil {
		return fmt.Sprintf("requests %d GPUs, but a %s stage uses only one; write gpus = 1", r.GPUs, n.Kind.Name)
	}
	for _, name := range n.Reach().Secrets {
		_, given := x.Env[name]
		if _, secret := x.Secrets[name]; !given && !secret {
			return fmt.Sprintf("needs the variable %s, which jobs do not inherit: name a file with its value in `secrets` of "+
				"executor %q of the site file", name, x.Name)
		}
	}
	return ""
}

// Execute runs a stage in one or more jobs until it has a result or a failure. After the loss of a host, preemption
// and time limits it submits the stage again.
func (x *Executor) Execute(ctx context.Context, w *engine.Work, observe func(runs.Event)) error {
	store, err := artifact.Open(w.Store)
	if err != nil {
		return err
	}
	s := &stage{Executor: x, Work: w, store: store, observe: observe}
	x.watched.Add(1)
	defer x.watched.Add(-1)
	err = s.execute(ctx)
	return errors.Join(err, forget(store, w.Key))
}

// stage is one call of Execute.
type stage struct {
	*Executor
	*engine.Work
	store   *artifact.Store
	observe func(runs.Event)
	exclude []string // hosts that were lost or could not run it
	why     string   // the newest of these reasons
}

func (s *stage) note(format string, args ...any) {
	s.observe(runs.Event{Time: time.Now(), Address: s.Work.Address, Kind: runs.EventNote,
		Text: fmt.Sprintf(format, args...)})
}

func (s *stage) execute(ctx context.Context) error {
	given := 0 // the attempts up to this one have ended, with or without an exit file
	for {
		all, err := attempts(s.store, s.Key)
		if err != nil {
			return err
		}
		var j *job
		if last := len(all) - 1; last >= given {
			if _, ended := all[last].exit(); !ended {
				j = s.adopt(all[last])
			}
		}
		if j == nil {
			if j, err = s.submit(ctx, len(all)+1); errors.Is(err, fs.ErrExist) {
				continue // by an engine that had lost the lock of the key without knowing
			}
			if err != nil {
				return err
			}
			all = append(all, j.attempt)
		}
		end, err := j.watch(ctx)
		if err != nil {
			return err
		}
		if again, err := s.decide(ctx, j, end, all); !again {
			return err
		}
		given = j.n
	}
}

// adopt makes this engine responsible for a job of an earlier engine.
func (s *stage) adopt(a *attempt) *job {
	log := s.Log.Name()
	if info, err := os.Stat(log); err == nil && info.Size() == 0 && a.Run != s.Folder {
		os.Remove(log) // empty, in favour of a link to that of the job
		s.Folder.LinkLog(runs.Holder{Run: a.Run, Address: a.Address}, s.Work.Address)
	}
	a.Adopted = true
	return &job{stage: s, attempt: a, confirmed: a.sign() != (sign{})} // its engine may have ended before sbatch
}

// submit submits the job of attempt n. If Slurm's answer is uncertain, the job is found by its name.
func (s *stage) submit(ctx context.Context, n int) (*job, error) {
	binary, err := s.Binary()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	sp := spec{Run: s.Folder, Address: s.Work.Address, Key: s.Key, Store: s.store.Dir(), Args: s.Args(),
		GPUs: s.Node.Resources.GPUs, Timeout: s.Node.Timeout, Secrets: s.Secrets, Requeue: s.Requeue,
		Beat: max(s.Lost/8, time.Second/4), Lost: s.Lost, Visible: s.Visible}
	_, err = s.store.Lookup(s.Key)
	sp.Had = err == nil
	if sp.Binary, err = s.copied(binary); err != nil {
		return nil, err
	}
	program, err := s.copied(self)
	if err != nil {
		return nil, err
	}
	s.Work.CPUs = cmp.Or(s.Node.Resources.CPUs, s.Executor.CPUs)
	if err := s.Folder.Assign(s.Assignment); err != nil { // a job has set the GPUs of an earlier attempt
		return nil, err
	}
	sp.Name = newName(s.Key)
	a := &attempt{spec: sp, path: filepath.Join(s.store.Jobs(s.Key), strconv.Itoa(n)), n: n}
	j := &job{stage: s, attempt: a, copies: [][2]string{{binary, sp.Binary}, {self, program}}}
	return j, j.submit(ctx, program)
}

// submit creates the spec of the attempt and calls sbatch until Slurm accepts the job, may have accepted it, or
// refuses it for good. The error is fs.ErrExist if another engine has created the spec.
func (j *job) submit(ctx context.Context, program string) error {
	if err := j.create(); err != nil {
		return err
	}
	script := strings.Join(append(append([]string{"#!/bin/sh"}, j.Setup...),
		"exec "+proc.Quote(program)+" job "+proc.Quote(j.path), ""), "\n")
	args := append(j.options(), "--parsable", "--job-name="+j.attempt.Name, "--comment="+j.attempt.Address,
		"--open-mode=append", "--chdir="+j.attempt.Store, "--output="+j.file("out"))
	for wait := 3 * j.Poll; ; wait = min(2*wait, 5*time.Minute) {
		id, err := j.sbatch(ctx, script, args)
		switch {
		case err == nil:
			j.confirmed = true
			j.queued(fmt.Sprintf("job %s of Slurm is submitted", id))
			return nil
		case errors.Is(err, errUncertain):
			j.note("%v", err)
			return nil
		case !errors.Is(err, errNotNow):
			err = fmt.Errorf("the job is refused by Slurm: %w", err)
			if j.why != "" {
				err = fmt.Errorf("%w; before, %s", err, j.why)
			}
			return errors.Join(err, os.Remove(j.path))
		}
		j.queued(err.Error())
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), os.Remove(j.path))
		}
	}
}

// create creates the spec of the attempt, and files that its job appends to.
func (j *job) create() error {
	if err := j.attempt.create(j.store); err != nil {
		return err
	}
	var errs []error
	for _, c := range j.copies { // only now no collection removes them
		errs = append(errs, j.copyBinary(c[0], c[1]))
	}
	for _, path := range []string{j.Run.Events(j.attempt.Address), j.file("out")} {
		errs = append(errs, os.WriteFile(path, nil, 0o600))
	}
	if err := errors.Join(errs...); err != nil {
		return errors.Join(err, os.Remove(j.path))
	}
	return nil
}

// options returns the options of sbatch for the stage.
func (s *stage) options() []string {
	args := append(s.resources(s.Node), timeOptions(s.timeLimit(s.Estimate, s.Node.Timeout))...)
	if len(s.exclude) > 0 {
		args = append(args, "--exclude="+strings.TrimSuffix(strings.Join(append(s.exclude, s.Exclude), ","), ","))
	}
	return args
}

// resources returns the options of sbatch for the resources of a stage, and those of the site file.
func (x *Executor) resources(n *lang.Node) []string {
	r := n.Resources
	requeue := "--no-requeue"
	if x.Requeue {
		requeue = "--requeue"
	}
	args := []string{requeue, "--nodes=1", "--ntasks-per-node=1",
		fmt.Sprintf("--cpus-per-task=%d", cmp.Or(r.CPUs, x.CPUs)),
		fmt.Sprintf("--mem=%dM", (cmp.Or(r.Memory, x.Memory)+1<<20-1)>>20)}
	if r.GPUs > 0 {
		args = append(args, fmt.Sprintf("--gres=%s:%d", x.GRES, r.GPUs))
	}
	if x.Exclude != "" {
		args = append(args, "--exclude="+x.Exclude) // replaced by a later one
	}
	return append(args, x.Options...)
}

// timeLimit returns the time limit of a job, and how long before it the stage is asked to stop; 0: it is not asked.
// Slurm may ask a minute early. An expected time or a timeout of 0 is unknown.
func (x *Executor) timeLimit(expected, timeout time.Duration) (limit, checkpoint time.Duration) {
	limit, checkpoint = x.Time, x.Checkpoint
	if expected > 0 {
		limit = max(time.Duration(float64(expected)*x.Factor), time.Minute)
	}
	if timeout > 0 {
		limit = min(limit, timeout+time.Minute)
	}
	if checkpoint > 0 {
		limit += checkpoint + time.Minute
	}
	if most := x.limit(); most > 0 && limit > most {
		limit, checkpoint = most, min(checkpoint, most/4)
	}
	return limit, checkpoint
}

// timeOptions are the options of sbatch for a time limit and a request to stop before it.
func timeOptions(limit, checkpoint time.Duration) []string {
	args := []string{fmt.Sprintf("--time=%d", int(math.Ceil(limit.Minutes())))}
	if checkpoint > 0 {
		args = append(args, fmt.Sprintf("--signal=B:USR1@%d", int(checkpoint.Seconds())))
	}
	return args
}

// copied returns the place of the copy of a binary, STORE/bin/DIGEST/NAME. A rebuild does not change it, so it is there
// when the job starts.
func (s *stage) copied(binary string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	digest := s.binaries[binary]
	if digest == "" {
		var err error
		if digest, err = artifact.FileDigest(binary); err != nil {
			return "", err
		}
		s.binaries[binary] = digest
	}
	return filepath.Join(s.store.Binaries(), digest[:digestLength], filepath.Base(binary)), nil
}

// digestLength is the number of digits of a program's digest that name the folder of its copy.
const digestLength = 16

// checkCopy returns an error if a program is not the copy after whose digest its folder is named.
func checkCopy(program string) error {
	digest, err := artifact.FileDigest(program)
	want := filepath.Base(filepath.Dir(program))
	if err == nil && digest[:digestLength] != want {
		err = fmt.Errorf("%s has the digest %s here, want %s", program, digest[:digestLength], want)
	}
	return err
}

// copyBinary copies a program unless the copy exists. The one in a copy of a stranger's store may be another program,
// so its digest is checked once.
func (x *Executor) copyBinary(from, to string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if disk.Exists(to) && (x.intact[to] || checkCopy(to) == nil) {
		x.intact[to] = true
		return nil
	}
	if err := disk.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return disk.CopyFile(from, to, 0o700)
}
