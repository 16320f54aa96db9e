package main

import (
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
)

// stopping counts the runs of this process that handle signals (see interruptible).
var stopping atomic.Int32

// temporaryFolder creates a folder and returns a function that removes it. A signal that ends the process also removes
// it, unless a run handles that signal.
func temporaryFolder(prefix string) (dir string, remove func(), err error) {
	signals, removed := make(chan os.Signal, 3), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) // before the folder exists
	if dir, err = os.MkdirTemp("", prefix+"*"); err != nil {
		signal.Stop(signals)
		return "", func() {}, err
	}
	go func() {
		for {
			select {
			case <-removed:
				return
			case s := <-signals:
				if stopping.Load() > 0 && s != syscall.SIGHUP {
					continue
				}
				for range 3 { // another goroutine may be writing files
					if os.RemoveAll(dir) == nil {
						break
					}
				}
				signal.Reset(s)
				syscall.Kill(os.Getpid(), s.(syscall.Signal)) // the parent process sees this signal
			}
		}
	}()
	return dir, sync.OnceFunc(func() {
		os.RemoveAll(dir)
		signal.Stop(signals)
		close(removed)
	}), nil
}
