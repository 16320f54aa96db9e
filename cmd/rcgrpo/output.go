package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// output is the standard output of a command. It stores the first error: a command whose output is lost must not exit
// with 0.
type output struct {
	file   *os.File
	stderr io.Writer
	err    error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.file.Write(b)
	if err != nil && o.err == nil {
		o.err = err
		if errors.Is(err, syscall.EPIPE) {
			fmt.Fprintln(o.stderr, "rcgrpo: standard output was closed; the command continues without it")
		} else {
			fmt.Fprintf(o.stderr, "rcgrpo: %v\n", err)
		}
	}
	return n, err
}

// Fd returns the descriptor.
func (o *output) Fd() uintptr { return o.file.Fd() }

// code returns the exit code of the process for the exit code of a command. A reader that closed the pipe is no error.
func (o *output) code(code int) int {
	if code == exitDone && o.err != nil && !errors.Is(o.err, syscall.EPIPE) {
		return exitFailed
	}
	return code
}
