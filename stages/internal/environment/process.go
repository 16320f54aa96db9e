package environment

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"rcgrpo/engine/proc"
	"rcgrpo/stages/rl"
)

// Fault is a failure of a program. It matches rl.ErrAgain, because another episode of the process may have caused it.
type Fault struct {
	Method, Task string // of the request; Task may be ""
	Text         string
}

func (f *Fault) Error() string {
	if f.Task == "" {
		return fmt.Sprintf("the program failed in %s: %s", f.Method, f.Text)
	}
	return fmt.Sprintf("the program failed in %s of task %s: %s", f.Method, f.Task, f.Text)
}

// Is matches rl.ErrAgain.
func (f *Fault) Is(target error) bool { return target == rl.ErrAgain }

// process is one running program. Its methods are safe for concurrent use.
type process struct {
	*launcher
	stdin *os.File
	works context.Context         // ends with the cause of the first fault
	kill  context.CancelCauseFunc // ends works and the process
	ended chan struct{}           // closed after the program and all processes that it started have ended

	writing sync.Mutex

	mu   sync.Mutex
	next int64
	open map[int64]chan answer // requests without an answer; each channel has room for it
	tail []string
}

// killGrace is the time between the end of a program's standard input and its end by force.
const killGrace = 2 * time.Second

// launcher starts the processes of a program, and counts their failures.
type launcher struct {
	described     *Description
	scratch, mark string // variables by which the engine finds processes that are left
	log           func(format string, args ...any)
	secrets       *proc.Secrets // masked in the log and in answers
	started       atomic.Int64
	writing       sync.Mutex // a result as text: the JSON of 16 MiB may have 96 MiB, and takes five times as much

	mu     sync.Mutex
	how    string // format of the number of failures
	most   int    // failures in a row after which the program counts as broken
	lost   int    // failures in a row
	broken error
}

// mostLost is the number of consecutive episodes, both tries of which failed, after which a program counts as broken.
const mostLost = 8

func newLauncher(p *Description, o Options) *launcher {
	l := &launcher{described: p, scratch: o.Scratch, mark: programMark(o.folder()), log: o.Log,
		how: "twice in each of %d episodes", most: mostLost}
	l.secrets = proc.NewSecrets(p.secretValues()...)
	return l
}

// Broken returns an error once too many episodes in a row have failed, so that a stage ends soon.
func (l *launcher) Broken() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// Count counts an episode with the failure that ended it, nil for none.
func (l *launcher) Count(failure error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if failure == nil {
		l.lost = 0
	} else if l.lost++; l.lost >= l.most && l.broken == nil {
		l.broken = fmt.Errorf("the program failed "+l.how+" in a row, and is not started again; "+
			"the last failure: %v", l.lost, failure)
		l.log("%v", l.broken)
	}
}

// start starts a command in dir with further variables. It calls read with the standard output of the process, in which
// secrets are masked; read returns at its end.
func (l *launcher) start(command []string, dir string, more []string, read func(*process, io.Reader)) (
	*process, error) {
	env, err := l.described.environ(dir)
	if err != nil {
		return nil, err
	}
	env = append(append(env, more...), "RCGRPO_SCRATCH="+l.scratch, l.mark)
	var pipes [3][2]*os.File // read, write
	for i := range pipes {
		if pipes[i][0], pipes[i][1], err = os.Pipe(); err != nil {
			return nil, err
		}
	}
	// The shell finds the program in the PATH of env and becomes it. What it leaves without variables ends with the stage,
	// whose process is marked (proc.LimitLocks).
	words := append([]string{"/bin/sh", "-c", `exec "$@"`, "sh"}, command...)
	program, err := proc.Start(proc.Command{Args: words, Env: env, Dir: dir,
		Files: []*os.File{pipes[0][0], pipes[1][1], pipes[2][1]},
		Mark:  fmt.Sprintf("RCGRPO_PROCESS=%s/%d", dir, l.started.Add(1))})
	for _, f := range []*os.File{pipes[0][0], pipes[1][1], pipes[2][1]} {
		f.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", command[0], err)
	}
	works, kill := context.WithCancelCause(context.Background())
	c := &process{launcher: l, stdin: pipes[0][1], works: works, kill: kill, ended: make(chan struct{}),
		open: map[int64]chan answer{}}
	var readers sync.WaitGroup
	readers.Go(func() { read(c, c.secrets.Reader(pipes[1][0])) })
	readers.Go(func() { c.readLog(pipes[2][0]) })
	go func() {
		exit, err := program.Wait(works, func(error) time.Duration { return 0 }, nil)
		for _, f := range []*os.File{pipes[1][0], pipes[2][0]} { // a process that was not found may hold the other ends
			f.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		}
		readers.Wait()
		c.fail(exitText(exit, err))
		if exit.Left != "" {
			c.log("%s", exit.Left)
		}
		c.stdin.Close()
		pipes[1][0].Close()
		pipes[2][0].Close()
		close(c.ended)
	}()
	return c, nil
}

// programMark identifies the processes of the programs whose copies are in a folder.
func programMark(folder string) string { return "RCGRPO_PROGRAM=" + folder }

func exitText(exit proc.Exit, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case exit.Signal != 0:
		return fmt.Sprintf("it was ended by the signal %q", exit.Signal)
	}
	return fmt.Sprintf("it exited with code %d", exit.Code)
}

// fail ends the process. All open requests get the cause of its first fault.
func (c *process) fail(cause string) { c.kill(errors.New(cause)) }

// firstFault returns the first fault once there is one, or how the process ended.
func (c *process) firstFault() string {
	<-c.works.Done()
	return context.Cause(c.works).Error()
}

// readAnswers delivers the answers of the program. A line that is none, or that answers no open request, is a fault.
func (c *process) readAnswers(stdout io.Reader) {
	r := bufio.NewReaderSize(stdout, 64<<10)
	for {
		line, err := readLine(r, maxLine)
		if atEnd(err) {
			return // its exit code says more
		}
		if err == nil {
			err = c.deliver(line)
		}
		if err != nil {
			c.fail(fmt.Sprintf("bad answer %s: %v", quote(line), err))
			return
		}
	}
}

// atEnd reports whether an error of reading is the end of the output.
func atEnd(err error) bool {
	return err == io.EOF || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, os.ErrClosed)
}

// quote shortens a line.
func quote(line []byte) string {
	if len(line) > 200 {
		return fmt.Sprintf("%q…", line[:200])
	}
	return fmt.Sprintf("%q", line)
}

func (c *process) deliver(line []byte) error {
	a, err := parseAnswer(line)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	request, ok := c.open[a.ID]
	if !ok {
		return fmt.Errorf("no open request has the id %d; each request has one answer", a.ID)
	}
	delete(c.open, a.ID)
	request <- a
	return nil
}

const (
	tailLines = 20      // of stderr in the log of a fault
	tailWidth = 500     // bytes of such a line
	mostLog   = 1 << 20 // bytes of a process's stderr in the log
)

// readLog copies the standard error of the program to the log, up to a limit, and remembers the last lines.
func (c *process) readLog(stderr *os.File) {
	r := bufio.NewReaderSize(stderr, 64<<10)
	written, whole := 0, true
	for {
		piece, more, err := r.ReadLine()
		if err != nil {
			return
		}
		begins := whole
		whole = !more
		if !begins { // the rest of a long line
			continue
		}
		text := c.secrets.Mask(string(piece)) // before it is cut, because a part of a secret is not recognised
		text = strings.ToValidUTF8(text[:min(len(text), tailWidth)], "?")
		c.mu.Lock()
		if c.tail = append(c.tail, text); len(c.tail) > tailLines {
			c.tail = slices.Delete(c.tail, 0, 1)
		}
		c.mu.Unlock()
		if written += len(text) + 1; written <= mostLog {
			c.log("program: %s", text)
		} else if written-len(text)-1 <= mostLog {
			c.log("program: the rest of this process's standard error is left out")
		}
	}
}

// call sends a request and decodes the answer into out. Its errors are Faults and those of ctx.
func (c *process) call(ctx context.Context, method, task string, params any, limit time.Duration, out any) error {
	answered := make(chan answer, 1) // a cancelled request leaves its answer there
	c.mu.Lock()
	c.next++
	id := c.next
	c.open[id] = answered
	c.mu.Unlock()
	line, err := json.Marshal(request{"2.0", id, method, params})
	if err != nil {
		return err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	c.write(append(line, '\n'), limit)
	var a answer
	select {
	case a = <-answered:
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		c.fail(fmt.Sprintf("no answer to %s within %v", method, limit))
		return &Fault{method, task, c.firstFault()}
	case <-c.works.Done():
		select {
		case a = <-answered: // before the fault
		default:
			return &Fault{method, task, c.firstFault()}
		}
	}
	if a.Result == nil {
		return &Fault{method, task, "it answered with the error: " + a.Error}
	}
	if err := decode(a.Result, out); err != nil {
		return &Fault{method, task, fmt.Sprintf("bad result %s: %v", quote(a.Result), err)}
	}
	return nil
}

// write sends a line. A program that reads nothing is ended after the limit.
func (c *process) write(line []byte, limit time.Duration) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.stdin.SetWriteDeadline(time.Now().Add(limit))
	if _, err := c.stdin.Write(line); errors.Is(err, os.ErrDeadlineExceeded) {
		c.fail(fmt.Sprintf("it did not read its standard input for %v", limit))
	} // after other errors the process has ended, and its exit code says more
}

// Works reports whether the process can take requests.
func (c *process) Works() bool { return c.works.Err() == nil }

// stderr returns the last lines of the standard error.
func (c *process) stderr() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.tail) == 0 {
		return ""
	}
	return "; the last lines of its standard error:\n  " + strings.Join(c.tail, "\n  ")
}

// awaitEnd waits until the process and all that it started have ended, and ends them after a time limit, with the cause
// late, or with ctx, whose error it returns.
func (c *process) awaitEnd(ctx context.Context, limit time.Duration, late string) error {
	select {
	case <-c.ended:
	case <-ctx.Done():
		c.fail("the stage ends")
	case <-time.After(limit):
		c.fail(fmt.Sprintf("%s within %v", late, limit))
	}
	<-c.ended
	return ctx.Err()
}

// Stop closes the standard input, which asks the program to end, and kills it after a grace period.
// It returns after all its processes have ended.
func (c *process) Stop() {
	c.stdin.Close()
	c.awaitEnd(context.Background(), killGrace, "it did not end with its standard input")
}
