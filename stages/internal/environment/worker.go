package environment

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
)

// Workers starts processes that are not environments: agents. Close it.
type Workers struct {
	*launcher
	dir string
}

// NewWorkers copies the folder of a program, without the files and folders of the names left out, for its processes.
// Methods of the workers have the time limit of the program's steps.
func NewWorkers(p *Description, folder string, left []string, o Options) (*Workers, error) {
	if err := o.clear(); err != nil {
		return nil, err
	}
	if err := p.Write(o.folder(), folder, left); err != nil {
		return nil, err
	}
	dir, err := p.Copy(o.folder(), o.folder())
	l := newLauncher(p, o)
	l.how, l.most = "%d times", 2*mostLost // each try of an episode counts
	return &Workers{l, dir}, err
}

// Close removes the folder of the processes.
func (w *Workers) Close() error { return os.RemoveAll(w.dir) }

// Masked returns the text of r without the secrets of the program.
func (w *Workers) Masked(r io.Reader) io.Reader { return w.secrets.Reader(r) }

// Worker is a process that answers requests: one JSON-RPC request per line of its input, one answer per line of its
// output.
type Worker struct{ *process }

// Start starts a worker.
func (w *Workers) Start() (*Worker, error) {
	c, err := w.start(w.described.Command, w.dir, nil, (*process).readAnswers)
	return &Worker{c}, err
}

// Call sends a request about a task and decodes the answer into out. Its errors are Faults and those of ctx.
func (w *Worker) Call(ctx context.Context, method, task string, params, out any) error {
	err := w.call(ctx, method, task, params, w.described.Step, out)
	if _, ok := err.(*Fault); ok {
		return fmt.Errorf("%w%s", err, w.stderr())
	}
	return err
}

// Once runs a process of its own for a task, with further variables and an empty input, and returns the last line of
// its output that is not empty. Its errors are Faults and those of ctx.
func (w *Workers) Once(ctx context.Context, task string, more ...string) (last []byte, err error) {
	c, err := w.start(w.described.Command, w.dir, more, func(c *process, stdout io.Reader) {
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
	if c.firstFault() != exitedWell {
		return nil, fmt.Errorf("%w%s", &Fault{"play", task, c.firstFault()}, c.stderr())
	}
	return last, nil
}

// exitedWell is the cause of the end of a process without a failure.
const exitedWell = "it exited with code 0"
