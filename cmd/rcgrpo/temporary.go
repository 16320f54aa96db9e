package main

import (
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
)

// stopping counts the runs of this process that handle signals themselves (interruptible).
var stopping atomic.Int32

// temporaryFolder makes a folder that remove removes. A signal that ends the process removes it too, unless a run
// handles that signal.
func temporaryFolder(prefix string) (dir string, remove func(), err error) {
	signals, removed := make(chan os.Signal, 3), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) // before the folder is there
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
				for range 3 { // the folder may be being filled
					if os.RemoveAll(dir) == nil {
						break
					}
				}
				signal.Reset(s)
				syscall.Kill(os.Getpid(), s.(syscall.Signal)) // so that the caller sees by which signal it ended
			}
		}
	}()
	return dir, sync.OnceFunc(func() {
		os.RemoveAll(dir)
		signal.Stop(signals)
		close(removed)
	}), nil
}
