// Package interrupt reacts to signals: the first ^C stops a run, the second kills it, and temporary folders are
// removed.
package interrupt

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
)

// ExitCode is the exit code after an interrupt, as shells report it: 128 + SIGINT.
const ExitCode = 130

// stopping counts the runs of this process that handle signals (see Context).
var stopping atomic.Int32

// TemporaryFolder creates a folder and returns a function that removes it. A signal that ends the process also removes
// it, unless a run handles that signal.
func TemporaryFolder(prefix string) (dir string, remove func(), err error) {
	signals := make(chan os.Signal, 3)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) { // as nohup does
			signal.Notify(signals, s) // before the folder exists
		}
	}
	// After a signal, remove does not return: the work fails once its folder is gone, and the process must end by the
	// signal and not by that failure.
	var ending sync.Mutex
	remove = sync.OnceFunc(func() {
		ending.Lock()
		defer ending.Unlock()
		os.RemoveAll(dir)
		signal.Stop(signals)
		close(signals)
	})
	if dir, err = os.MkdirTemp("", prefix+"*"); err != nil {
		remove()
		return "", remove, err
	}
	go func() {
		for s := range signals {
			if stopping.Load() > 0 && s != syscall.SIGHUP {
				continue
			}
			ending.Lock()
			for range 3 { // another goroutine may be writing files
				if os.RemoveAll(dir) == nil {
					break
				}
			}
			signal.Reset(s)
			syscall.Kill(os.Getpid(), s.(syscall.Signal)) // the parent process sees this signal
		}
	}()
	return dir, remove, nil
}

// Context returns a context that the first ^C cancels. The second ^C closes kill, the third ends the process.
func Context(stderr io.Writer) (ctx context.Context, kill <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	atOnce := make(chan struct{})
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	stopping.Add(1)
	go func() {
		for _, act := range []func(){cancel, func() { close(atOnce) }, func() {
			fmt.Fprintln(stderr, "stopped; the next run resumes from the committed results")
			os.Exit(ExitCode)
		}} {
			if _, ok := <-signals; !ok {
				return
			}
			act()
		}
	}()
	return ctx, atOnce, func() {
		signal.Stop(signals)
		stopping.Add(-1)
		close(signals)
		cancel()
	}
}
