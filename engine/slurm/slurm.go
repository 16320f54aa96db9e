package slurm

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
)

// Executor submits each attempt at a stage as one job. It is an engine.Pool.
type Executor struct {
	lang.Slurm
	limit func() time.Duration // of the partition; 0: none

	mu       sync.Mutex
	followed int               // Execute calls that wait for a job
	states   map[string]state  // of the newest answer of squeue
	answered time.Time         // of that answer; zero: none yet
	urgent   int               // Execute calls that cancel a job
	stop     chan struct{}     // ends the polls
	away     error             // of the newest call; nil: it answered
	binaries map[string]string // digests by path

	awayReported bool
}

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
	x := &Executor{Slurm: s, binaries: map[string]string{}}
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
	_, env := n.Program()
	for _, name := range env {
		_, given := x.Env[name]
		if _, secret := x.Secrets[name]; !strings.Contains(name, "=") && !given && !secret {
			return fmt.Sprintf("needs the variable %s, which jobs do not inherit: name a file with its value in `secrets` of "+
				"executor %q of the site file", name, x.Name)
		}
	}
	return ""
}

// Execute runs a stage in one or more jobs until it has a result or a failure. After the loss of a node, preemption
// and time limits it submits the stage again.
func (x *Executor) Execute(ctx context.Context, w *engine.Work, observe func(runs.Event)) error {
	store, err := artifact.Open(w.Store)
	if err != nil {
		return err
	}
	s := &stage{Executor: x, Work: w, store: store, observe: observe}
	x.follow()
	defer x.unfollow()
	err = s.execute(ctx)
	return errors.Join(err, forget(store, w.Key))
}

// stage is one call of Execute.
type stage struct {
	*Executor
	*engine.Work
	store   *artifact.Store
	observe func(runs.Event)
	exclude []string // nodes that were lost or could not run it
	why     string   // the newest of these reasons
}

func (s *stage) note(format string, args ...any) {
	s.observe(runs.Event{Time: time.Now(), Address: s.Work.Address, Kind: runs.EventNote,
		Text: fmt.Sprintf(format, args...)})
}

func (s *stage) execute(ctx context.Context) error {
	given := 0 // the attempts up to this one have ended, with or without a record
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
			if j, err = s.submit(ctx, len(all)+1); errors.Is(err, errTaken) {
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
	if info, err := os.Stat(log); err == nil && info.Size() == 0 && a.Run != s.Folder() {
		os.Remove(log) // empty, in favour of a link to that of the job
		s.Folder().LinkLog(runs.Holder{Run: a.Run, Address: a.Address}, s.Work.Address)
	}
	a.Adopted = true
	return &job{stage: s, attempt: a, confirmed: a.beat() != ""} // its engine may have ended before sbatch
}

// submit creates the record of attempt n and submits its job. If Slurm's answer is uncertain, the job is found by its
// name.
func (s *stage) submit(ctx context.Context, n int) (*job, error) {
	binary, err := s.Binary()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r := record{Run: s.Folder(), Address: s.Work.Address, Key: s.Key, Store: s.store.Dir(), Args: s.Args(),
		GPUs: s.Node.Resources.GPUs, Timeout: s.Node.Timeout, LogLimit: s.Work.LogLimit(), Secrets: s.Secrets,
		Beat: max(s.Lost/8, time.Second/4), Lost: s.Lost, Visible: s.Visible}
	for _, key := range s.Inputs {
		r.Pins = append(r.Pins, key)
	}
	_, err = s.store.Lookup(s.Key)
	r.Had = err == nil
	if r.Binary, err = s.copied(binary); err != nil {
		return nil, err
	}
	program, err := s.copied(self)
	if err != nil {
		return nil, err
	}
	s.Work.CPUs = cmp.Or(s.Node.Resources.CPUs, s.Executor.CPUs)
	if err := s.Folder().Assign(s.Assignment); err != nil { // a job has set the GPUs of an earlier attempt
		return nil, err
	}
	a, err := create(s.store, n, r)
	if err != nil {
		return nil, err
	}
	// Only now no collection removes the copies.
	if err := errors.Join(copyBinary(binary, r.Binary), copyBinary(self, program),
		os.WriteFile(a.Run.Events(a.Address), nil, 0o600), os.WriteFile(a.file("out"), nil, 0o600)); err != nil {
		return nil, errors.Join(err, os.Remove(a.path))
	}
	j := &job{stage: s, attempt: a}
	lines := append(append([]string{"#!/bin/sh"}, s.Setup...), "exec "+quote(program)+" job "+quote(a.path), "")
	return j, j.submit(ctx, strings.Join(lines, "\n"))
}

// submit calls sbatch until Slurm accepts the job, may have accepted it, or refuses it for good.
func (j *job) submit(ctx context.Context, script string) error {
	args := j.options(j.attempt)
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

// options returns the options of sbatch for an attempt.
func (s *stage) options(a *attempt) []string {
	r := s.Node.Resources
	limit, checkpoint := s.timeLimit()
	args := []string{"--parsable", "--job-name=" + a.Name, "--comment=" + a.Address, "--no-requeue", "--open-mode=append",
		"--output=" + a.file("out"), "--chdir=" + a.Store, "--nodes=1", "--ntasks=1",
		fmt.Sprintf("--cpus-per-task=%d", s.Work.CPUs),
		fmt.Sprintf("--mem=%dM", (cmp.Or(r.Memory, s.Memory)+1<<20-1)>>20),
		fmt.Sprintf("--time=%d", int(math.Ceil(limit.Minutes())))}
	if r.GPUs > 0 {
		args = append(args, fmt.Sprintf("--gres=%s:%d", s.GRES, r.GPUs))
	}
	if checkpoint > 0 {
		args = append(args, fmt.Sprintf("--signal=B:USR1@%d", int(checkpoint.Seconds())))
	}
	if nodes := append(s.exclude[:len(s.exclude):len(s.exclude)], s.Exclude); nodes[0] != "" {
		args = append(args, "--exclude="+strings.TrimSuffix(strings.Join(nodes, ","), ","))
	}
	return append(args, s.Options...)
}

// timeLimit returns the time limit of a job, and how long before it the stage is asked to stop; 0: it is not asked.
// Slurm may ask a minute early.
func (s *stage) timeLimit() (limit, checkpoint time.Duration) {
	limit, checkpoint = s.Time, s.Checkpoint
	if e := s.Estimate(); e > 0 {
		limit = max(time.Duration(float64(e)*s.Factor), time.Minute)
	}
	if t := s.Node.Timeout; t > 0 {
		limit = min(limit, t+time.Minute)
	}
	if checkpoint > 0 {
		limit += checkpoint + time.Minute
	}
	if most := s.limit(); most > 0 && limit > most {
		limit, checkpoint = most, min(checkpoint, most/4)
	}
	return limit, checkpoint
}

// copied returns the place of the copy of a binary, STORE/bin/DIGEST/NAME. A rebuild does not change it, so it is there
// when the job starts.
func (s *stage) copied(binary string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	digest := s.binaries[binary]
	if digest == "" {
		var err error
		if digest, err = digestOf(binary); err != nil {
			return "", err
		}
		s.binaries[binary] = digest
	}
	return filepath.Join(s.store.Binaries(), digest, filepath.Base(binary)), nil
}

// digestOf returns the digest of a program, which names the folder of its copy.
func digestOf(binary string) (string, error) {
	f, err := os.Open(binary)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)[:8]), nil
}

// checkCopy returns an error if a program is not the copy after whose digest its folder is named.
func checkCopy(program string) error {
	digest, err := digestOf(program)
	if want := filepath.Base(filepath.Dir(program)); err == nil && digest != want {
		err = fmt.Errorf("%s has the digest %s here, want %s", program, digest, want)
	}
	return err
}

// copyBinary copies a program unless the copy exists.
func copyBinary(from, to string) error {
	if disk.Exists(to) {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	dir := filepath.Dir(to)
	if err := disk.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return disk.Replace(dir, to, func(f *os.File) error {
		_, err := disk.Copy(f, in)
		return errors.Join(err, f.Chmod(0o700))
	})
}

// quote returns a word for sh.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
