package slurm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/alive"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/machine"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
)

// Reasons for a request to stop, as causes of a context.
var (
	errStopped  = errors.New("a stop is requested")
	errLimit    = errors.New("the time limit is close")
	errReplaced = errors.New("the attempt has ended or there is a newer one, or the store cannot be reached")
)

// Main is the main function of a job. It executes the attempt whose spec is at the path, writes the exit file of its
// end, and returns the exit code. SIGTERM and SIGUSR1 make the stage stop after a checkpoint.
func Main(path string, stderr io.Writer) int {
	runtime.LockOSThread() // the kernel ends the stage with this thread
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1)
	go func() {
		for s := range signals {
			if s == syscall.SIGUSR1 {
				cancel(errLimit)
			} else {
				cancel(errStopped)
			}
		}
	}()
	e, err := superviseJob(ctx, path)
	if err != nil {
		fmt.Fprintln(stderr, err)
	}
	if err != nil || e.Cause != causeDone {
		return 1
	}
	return 0
}

// superviseJob executes an attempt. An error means that its end could not be recorded.
func superviseJob(ctx context.Context, path string) (exit, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a, err := readAttempt(path)
	for deadline := time.Now().Add(time.Minute); err != nil && time.Now().Before(deadline); a, err = readAttempt(path) {
		os.ReadDir(filepath.Dir(path)) // the spec may not be visible yet
		time.Sleep(time.Second)
	}
	if err != nil {
		return exit{}, err
	}
	alive.SetTimes(a.Beat, a.Lost)
	e, ended, err := a.claim(ctx)
	if ended || err != nil {
		return e, err
	}
	kill := make(chan struct{})
	defer a.startBeat(sync.OnceFunc(func() {
		cancel(errReplaced)
		close(kill)
	}))()
	e.Host = hostName()
	store, err := artifact.Open(a.Store)
	if err == nil {
		err = a.awaitOthers(ctx)
	}
	if err == nil && !a.finished(store) {
		if err = context.Cause(ctx); err == nil {
			err = a.run(ctx, kill)
		}
	}
	var failure *runs.Failure
	e.Progress, failure = a.progress()
	if err != nil { // Slurm signals all processes of a job, so the stage may have ended first
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	e.Cause, e.Failure = causeOf(context.Cause(ctx), err, failure)
	if a.Requeue && e.Cause == causeStopped { // Slurm knows whether the job starts again
		return e, os.Remove(a.file("alive"))
	}
	return a.end(e)
}

// causeOf returns the cause of the end of a stage, from the request to stop it, its error and the failure that it has
// reported, each of which may be nil.
func causeOf(stop, err error, reported *runs.Failure) (cause string, failure *runs.Failure) {
	_, lost := errors.AsType[*hostError](err)
	switch {
	case err == nil:
		return causeDone, nil
	case stop == errReplaced:
		return causeReplaced, nil
	case stop == errLimit:
		return causeTime, nil
	case stop == errStopped:
		return causeStopped, nil
	case lost:
		return causeHost, &runs.Failure{Text: err.Error()}
	case reported != nil && engine.CauseOf(err) != lang.CauseTimeout: // after which a stage reports the request to stop
		return causeFailed, reported
	}
	return causeFailed, &runs.Failure{Text: err.Error(), Cause: engine.CauseOf(err)}
}

// hostError is a fault of the host, not of the stage.
type hostError struct{ error }

// hostName is Slurm's name of this host.
func hostName() string {
	if name := os.Getenv("SLURMD_NODENAME"); name != "" {
		return name
	}
	return proc.HostName()
}

// claim makes this job the only one of the attempt, or returns its end, which a job that starts late finds. Another job
// exists if Slurm accepted a submission whose answer was lost. The job itself may start again.
func (a *attempt) claim(ctx context.Context) (e exit, ended bool, err error) {
	own := sign{Job: os.Getenv("SLURM_JOB_ID"), Host: hostName(), Since: time.Now().UTC()}
	err = createJSON(a.file("alive"), own)
	e, ended = a.exit()
	owner := a.sign()
	switch {
	case ended:
		err = nil
	case !errors.Is(err, fs.ErrExist):
	case owner.Job != own.Job:
		err = fmt.Errorf("job %s executes this attempt", owner.Job)
	default: // it was killed, or still runs on a host that Slurm has lost
		if e, ended, err = a.awaitEnd(ctx); !ended && err == nil {
			err = runs.WriteJSON(a.file("alive"), own)
		}
	}
	if !ended && err == nil {
		a.alive, err = os.OpenFile(a.file("alive"), os.O_RDWR, 0)
	}
	return e, ended, err
}

// startBeat touches the sign of life until stop is called. It calls replaced when there is a newer attempt, when
// another process has ended this one, or when the sign could not be touched for half of the time after which the
// attempt counts as lost.
func (a *attempt) startBeat(replaced func()) (stop func()) {
	touched := time.Now()
	beat := func() {
		if alive.Touch(a.alive) == nil {
			touched = time.Now()
		}
		if a.replaced() || time.Since(touched) >= a.Lost/2 {
			replaced()
		}
	}
	beat()
	return proc.Every(a.Beat, beat)
}

// awaitOthers waits until the attempts before this one have ended, by their exit files or because they show no sign of
// life. It measures the silence of each attempt from the start, so that many attempts take no longer than one attempt:
// a copied store may have any number.
func (a *attempt) awaitOthers(ctx context.Context) error {
	before := make([]*attempt, a.n-1)
	for i := range before {
		before[i] = &attempt{path: filepath.Join(filepath.Dir(a.path), strconv.Itoa(i+1)), n: i + 1}
		alive.Silent(before[i].file("alive")) // the measurement begins
	}
	for _, b := range before {
		_, ended, err := b.awaitEnd(ctx)
		if !ended && err == nil {
			_, err = b.end(exit{Cause: causeHost})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitEnd waits until the attempt has ended by its exit file, which it returns, or shows no sign of life.
func (a *attempt) awaitEnd(ctx context.Context) (e exit, ended bool, err error) {
	for e, ended = a.exit(); !ended && !alive.Silent(a.file("alive")); e, ended = a.exit() {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return e, false, context.Cause(ctx)
		}
	}
	return e, ended, nil
}

// finished reports whether an earlier attempt has committed the result.
func (a *attempt) finished(store *artifact.Store) bool {
	if a.Had {
		return false
	}
	_, err := store.Lookup(a.Key)
	return err == nil
}

// run executes the process of the stage.
func (a *attempt) run(ctx context.Context, kill <-chan struct{}) error {
	assignment, err := a.Run.Assignment(a.Address)
	if err != nil {
		return err
	}
	if a.GPUs > 0 {
		if assignment.GPUs, err = a.devices(ctx); err != nil {
			return &hostError{err}
		}
	}
	assignment.Since, assignment.Kills = time.Now(), proc.OOMKills()
	if err := a.Run.Assign(assignment); err != nil {
		return err
	}
	if err := checkCopy(a.Binary); err != nil {
		return &hostError{err}
	}
	log, err := os.OpenFile(a.Run.Log(a.Address), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	if a.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, a.Timeout, engine.TimeoutError(a.Timeout))
		defer cancel()
	}
	end, err := a.process(ctx, kill, assignment, log)
	switch {
	case err != nil || end.Code == 0 && end.Signal == 0:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case end.Code == loaderCode:
		return &hostError{fmt.Errorf("the dynamic loader cannot start %s: %s", filepath.Base(a.Binary), lastLine(log.Name()))}
	}
	return engine.ExitError(end, assignment.Kills)
}

// process runs the process of the stage on this host. The sign of life replaces the lock of the key.
func (a *attempt) process(
	ctx context.Context, kill <-chan struct{}, assignment runs.Assignment, log *os.File,
) (end proc.Exit, err error) {
	env, secrets, err := a.environment()
	if err != nil {
		return end, err
	}
	work := engine.Work{Assignment: assignment}
	out, finish, err := proc.OpenOutput(log, secrets)
	if err != nil {
		return end, err
	}
	p, err := proc.Start(proc.Command{Args: append([]string{a.Binary}, a.Args...), Env: work.Env(env), Dies: true,
		Files: []*os.File{nil, out, out, a.alive}, Mark: proc.ScratchMark(filepath.Join(a.Store, "work", a.Key))})
	if err != nil {
		return end, errors.Join(&hostError{fmt.Errorf("start %s: %w", a.Binary, err)}, finish())
	}
	end, err = p.Wait(ctx, engine.GracePeriod, kill)
	return end, errors.Join(err, finish())
}

// loaderCode is the exit code of a program whose libraries are missing. No stage ends with it.
const loaderCode = 127

// devices returns the GPUs of the job. A GPU that a process of no job uses is an error.
func (a *attempt) devices(ctx context.Context) ([]string, error) {
	ids := strings.FieldsFunc(os.Getenv("CUDA_VISIBLE_DEVICES"), func(r rune) bool { return r == ',' })
	if len(ids) < a.GPUs {
		return nil, fmt.Errorf("the job requested %d GPUs and got %q", a.GPUs, ids)
	}
	driver := machine.QueryGPUs(ctx) // without an answer all count as unused
	for _, id := range ids {
		if use := driver.ForeignUse(id); use != "" {
			return nil, fmt.Errorf("GPU %s is in use: %s", id, use)
		}
	}
	return ids, nil
}

// environment returns the variables of the stage, without those of Slurm, and the values of its secrets.
func (a *attempt) environment() (env, secrets []string, err error) {
	env = append(os.Environ(), engine.AttemptVariable+"="+a.path)
	env = slices.DeleteFunc(env, func(v string) bool {
		return strings.HasPrefix(v, "SLURM") || strings.HasPrefix(v, "SBATCH_") || strings.HasPrefix(v, "SQUEUE_")
	})
	for name, path := range a.Secrets {
		info, err := os.Stat(path)
		if err != nil {
			return nil, nil, fmt.Errorf("secret %s: %w", name, err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			return nil, nil, fmt.Errorf("secret %s: others may read %s; run chmod 600 on it", name, path)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, fmt.Errorf("secret %s: %w", name, err)
		}
		value := strings.TrimRight(string(text), "\r\n")
		env, secrets = append(env, name+"="+value), append(secrets, value)
	}
	return env, secrets, nil
}
