package slurm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/machine"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
)

// Reasons for a request to stop, as causes of a context.
var (
	errStopped  = errors.New("a stop is requested")
	errLimit    = errors.New("the time limit is close")
	errReplaced = errors.New("there is a newer attempt, or the store cannot be reached")
	errTimeout  = errors.New("timeout")
)

// Main is the main function of a job: it executes the attempt whose record is at path, writes the record of its end,
// and returns the exit code. SIGTERM and SIGUSR1 make the stage stop after a checkpoint.
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
	e, err := superviseJob(ctx, cancel, path)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	if e.Cause == causeDone {
		return 0
	}
	return 1
}

// superviseJob executes an attempt. An error means that its end could not be recorded.
func superviseJob(ctx context.Context, cancel context.CancelCauseFunc, path string) (exit, error) {
	a, err := readAttempt(path)
	for deadline := time.Now().Add(time.Minute); err != nil && time.Now().Before(deadline); a, err = readAttempt(path) {
		os.ReadDir(filepath.Dir(path)) // the record may not be visible yet
		time.Sleep(time.Second)
	}
	if err != nil {
		return exit{}, err
	}
	if err := a.claim(); err != nil {
		return exit{}, err
	}
	if a.Probe != nil {
		e, err := a.answer(ctx)
		return e, errors.Join(err, a.writeExit(e))
	}
	kill := make(chan struct{})
	stop := a.startBeat(func() {
		cancel(errReplaced)
		close(kill)
	})
	defer stop()
	e := exit{Host: nodeName()}
	store, err := artifact.Open(a.Store)
	if err == nil {
		err = a.awaitOthers(ctx)
	}
	if err == nil && !a.finished(store) {
		err = a.run(ctx, kill)
	}
	var progress runs.EventReader
	progress.Read(a.Run.Events(a.Address), func(event runs.Event) {
		if event.Kind == runs.EventProgress {
			e.Progress = event.Done
		}
	})
	var lost *nodeError
	switch cause := context.Cause(ctx); {
	case err == nil:
		e.Cause = causeDone
	case cause == errReplaced:
		e.Cause = causeReplaced
	case cause == errLimit:
		e.Cause = causeTime
	case cause == errStopped:
		e.Cause = causeStopped
	case errors.As(err, &lost):
		e.Cause, e.Failure = causeNode, &runs.Failure{Text: err.Error()}
	case progress.Failure != nil:
		e.Cause, e.Failure = causeFailed, progress.Failure
	default:
		e.Cause, e.Failure = causeFailed, &runs.Failure{Text: err.Error(), Cause: engine.CauseOf(err)}
	}
	return e, a.writeExit(e)
}

// nodeError is a fault of the node, not of the stage.
type nodeError struct{ error }

// nodeName is Slurm's name of this node.
func nodeName() string {
	if name := os.Getenv("SLURMD_NODENAME"); name != "" {
		return name
	}
	return proc.HostName()
}

// claim makes this job the only one of the attempt. Another one exists if Slurm accepted a submission whose answer was
// lost.
func (a *attempt) claim() error {
	id := os.Getenv("SLURM_JOB_ID") + "\n"
	temporary := a.file("job." + strings.TrimSpace(id))
	if err := os.WriteFile(temporary, []byte(id), 0o600); err != nil {
		return err
	}
	defer os.Remove(temporary)
	err := linkOnce(temporary, a.file("job"))
	if owner, readErr := os.ReadFile(a.file("job")); err == errTaken && readErr == nil {
		return fmt.Errorf("job %s executes this attempt", strings.TrimSpace(string(owner)))
	}
	return err
}

// startBeat writes a sign of life until the returned function is called. It calls replaced when there is a newer
// attempt, or when no sign could be written for half of the time after which the attempt counts as lost.
func (a *attempt) startBeat(replaced func()) (stop func()) {
	count, written, ended := 0, time.Now(), make(chan struct{})
	beat := func() bool {
		text := fmt.Appendf(nil, "%d %s", count, nodeName())
		if disk.Overwrite(filepath.Dir(a.path), a.file("beat"), text) == nil {
			written = time.Now()
		}
		count++
		return !a.replaced() && time.Since(written) < a.Lost/2
	}
	beat()
	go func() {
		every := time.NewTicker(a.Beat)
		defer every.Stop()
		for {
			select {
			case <-ended:
				return
			case <-every.C:
			}
			if !beat() {
				replaced()
				return
			}
		}
	}()
	return func() { close(ended) }
}

// awaitOthers waits until the attempts before this one have ended, by their records or because they show no sign of
// life.
func (a *attempt) awaitOthers(ctx context.Context) error {
	for n := 1; n < a.n; n++ {
		before := &attempt{path: filepath.Join(filepath.Dir(a.path), strconv.Itoa(n)), n: n}
		last, since := before.beat(), time.Now()
		_, ended := before.exit()
		for ; !ended && time.Since(since) < a.Lost; _, ended = before.exit() {
			select {
			case <-time.After(min(time.Second, a.Beat)):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if now := before.beat(); now != last {
				last, since = now, time.Now()
			}
		}
		if !ended {
			if err := before.writeExit(exit{Cause: causeNode}); err != nil {
				return err
			}
		}
	}
	return nil
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
			return &nodeError{err}
		}
	}
	assignment.Since, assignment.Kills = time.Now(), proc.OOMKills()
	if err := a.Run.Assign(assignment); err != nil {
		return err
	}
	env, secrets, err := a.environment()
	if err != nil {
		return err
	}
	if err := checkCopy(a.Binary); err != nil {
		return &nodeError{err}
	}
	work := engine.Work{Assignment: assignment}
	log, err := os.OpenFile(a.Run.Log(a.Address), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	out, finish, err := proc.OpenOutput(log, secrets)
	if err != nil {
		return err
	}
	holder, err := os.OpenFile(a.file("holder"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return errors.Join(err, finish())
	}
	defer holder.Close()
	limit := &proc.LogLimit{Path: log.Name(), Most: a.LogLimit, Report: func() {}}
	endLimit := limit.Watch()
	if a.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, a.Timeout, errTimeout)
		defer cancel()
	}
	p, err := proc.Start(proc.Command{Args: append([]string{a.Binary}, a.Args...), Env: work.Env(env), Dies: true,
		Files: []*os.File{nil, out, out, holder}, Mark: engine.ScratchMark(filepath.Join(a.Store, "work", a.Key))})
	if err != nil {
		return errors.Join(&nodeError{fmt.Errorf("start %s: %w", a.Binary, err)}, finish())
	}
	end, err := p.Wait(ctx, func(cause error) time.Duration {
		if cause == errTimeout {
			return 10 * time.Second
		}
		return stopWithin
	}, kill)
	err = errors.Join(err, finish(), endLimit())
	switch {
	case err != nil || end.Code == 0 && end.Signal == 0:
		return err
	case context.Cause(ctx) == errTimeout:
		return engine.WithCause(lang.CauseTimeout, fmt.Errorf("ran longer than its timeout of %v", a.Timeout))
	case end.Code == loaderCode:
		return &nodeError{fmt.Errorf("the dynamic loader cannot start %s: %s", filepath.Base(a.Binary), lastLine(log.Name()))}
	}
	return engine.ExitError(end, assignment.Kills)
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
	env = slices.DeleteFunc(append(os.Environ(), engine.AttemptVariable+"="+a.path), func(v string) bool {
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
