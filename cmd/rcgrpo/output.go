package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// output is the standard output of a command. It stores the first error, so that a command whose output is lost does not
// exit with 0.
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

// Fd returns the descriptor, for questions about the terminal.
func (o *output) Fd() uintptr { return o.file.Fd() }

// code returns the exit code of a command that ended with code. A reader that closes the pipe has read enough, so only
// other errors count.
func (o *output) code(code int) int {
	if code == exitDone && o.err != nil && !errors.Is(o.err, syscall.EPIPE) {
		return exitFailed
	}
	return code
}
