package environment

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
)

// Workers starts processes that are not environments: agents. Close it.
type Workers struct {
	*launcher
	patience
	dir string
}

// Broken returns an error after 2 mostLost failures in a row, so that a stage ends soon.
func (w *Workers) Broken() error { return w.working() }

// Count counts an episode, with the failure that ended it.
func (w *Workers) Count(failure error) {
	w.count(failure == nil, 2*mostLost, "%d times", failure, w.log)
}

// NewWorkers copies the folder of a program, without the files and folders of the names left out, for its processes.
// Methods of the workers have the time limit of the program's steps.
func NewWorkers(p *Program, folder string, left []string, o Options) (*Workers, error) {
	if err := o.clear(); err != nil {
		return nil, err
	}
	if err := p.Write(o.folder(), folder, left); err != nil {
		return nil, err
	}
	dir, err := p.Copy(o.folder(), o.folder())
	return &Workers{launcher: newLauncher(p, o.Scratch, programMark(o.folder()), o.Log), dir: dir}, err
}

// Close removes the folder of the processes.
func (w *Workers) Close() error { return os.RemoveAll(w.dir) }

// Worker is a process that answers requests: one JSON-RPC request per line of its input, one answer per line of its
// output.
type Worker struct{ process *process }

// Start starts a worker with further variables.
func (w *Workers) Start(more ...string) (*Worker, error) {
	c, err := w.start(w.dir, more, (*process).readAnswers)
	return &Worker{c}, err
}

// Call sends a request about a task and decodes the answer into out. Its errors are Faults and those of ctx.
func (w *Worker) Call(ctx context.Context, method, task string, params, out any) error {
	err := w.process.call(ctx, method, task, params, w.process.described.Step, out)
	if _, ok := err.(*Fault); ok {
		return fmt.Errorf("%w%s", err, w.process.stderr())
	}
	return err
}

// Works reports whether the process can take requests.
func (w *Worker) Works() bool { return w.process.works() }

// Stop ends the process and all that it started.
func (w *Worker) Stop() { w.process.stop() }

// Once runs a process of its own for a task, with further variables and an empty input, and returns the last line of
// its output that is not empty. Its errors are Faults and those of ctx.
func (w *Workers) Once(ctx context.Context, task string, more ...string) (last []byte, err error) {
	c, err := w.start(w.dir, more, func(c *process, stdout *os.File) {
		lines := bufio.NewReader(stdout)
		for err := error(nil); err == nil; {
			var line []byte
			if line, err = readLine(lines, maxLine); len(line) > 0 {
				last = line
			} else if err != nil && !atEnd(err) {
				c.fail(err.Error())
			}
		}
	})
	if err != nil {
		return nil, err
	}
	c.stdin.Close()
	if err := c.awaitEnd(ctx, w.described.Step, "it did not end"); err != nil {
		return nil, err
	}
	if c.cause != exitedWell {
		return nil, fmt.Errorf("%w%s", &Fault{"play", task, c.cause}, c.stderr())
	}
	return last, nil
}

// exitedWell is the cause of the end of a process without a failure.
const exitedWell = "it exited with code 0"

// Finite decodes an answer with a reward.
func Finite(raw []byte) (float64, error) {
	var a scoreAnswer
	if err := json.Unmarshal(raw, &a); err != nil {
		return 0, fmt.Errorf("bad answer %s: %w", quote(raw), err)
	}
	return a.finite()
}
