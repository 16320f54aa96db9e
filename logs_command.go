package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
)

// logsCommand runs "rcgrpo logs ADDR": what a stage wrote, from its first byte or its last lines, and what it goes on
// to write.
func logsCommand(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c := newCall("logs", "ADDRESS [EXP]", stdout, stderr)
	follow := c.Bool("f", false, "go on as long as its run does")
	last := c.Int("n", 0, "only the last `N` lines; 0: all")
	if code, done := c.parse(args); done {
		return code
	}
	if len(c.args) < 1 || len(c.args) > 2 {
		return c.misuse("want the address of a stage, and perhaps an experiment")
	}
	store, _, err := c.siteStore()
	if err != nil {
		return c.fail(err)
	}
	name, err := experimentName(strings.Join(c.args[1:], ""))
	if err != nil {
		return c.fail(err)
	}
	address, err := loggedAddress(store, name, c.args[0])
	if err != nil {
		return c.fail(err)
	}
	path, _, err := engine.LogOf(store, name, address)
	if err != nil {
		return c.fail(err)
	}
	ctx, _, stop := interruptible(stderr)
	defer stop()
	live := func() bool {
		newest, live, err := engine.LogOf(store, name, address)
		return err == nil && live && newest == path
	}
	if err := printLog(ctx, stdout, path, *last, *follow, live); err != nil {
		return c.fail(err)
	}
	return exitDone
}

// loggedAddress finds the address that a user means among those that runs have planned.
func loggedAddress(store *artifact.Store, experiment, wanted string) (string, error) {
	known := engine.LoggedNodes(store, experiment)
	for _, address := range known {
		if engine.SameAddress(address, wanted) {
			return address, nil
		}
	}
	if len(known) == 0 {
		return "", fmt.Errorf("experiment %s has no runs in %s", experiment, store.Dir())
	}
	return "", fmt.Errorf("no run of %s had a stage %s; the newest had %s", experiment, wanted, strings.Join(known, ", "))
}

// followEvery is how often a log that is followed is looked at.
const followEvery = 200 * time.Millisecond

// printLog copies a log to w, then what is appended as long as live says so.
func printLog(ctx context.Context, w io.Writer, path string, last int, follow bool, live func() bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if last > 0 {
		if err := skipToLast(f, last); err != nil {
			return err
		}
	}
	for {
		goesOn := follow && live() // asked before the copy, so that nothing written before the end is lost
		if _, err := io.Copy(w, f); err != nil {
			return err
		}
		if !goesOn {
			return nil
		}
		select {
		case <-time.After(followEvery):
		case <-ctx.Done():
			return nil
		}
	}
}

// skipToLast moves f to the start of its last n lines.
func skipToLast(f *os.File, n int) error {
	starts := make([]int64, 0, n)
	lines := bufio.NewReader(f)
	var at int64
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			if len(starts) == n {
				starts = append(starts[:0], starts[1:]...)
			}
			starts = append(starts, at)
			at += int64(len(line))
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	var from int64
	if len(starts) > 0 {
		from = starts[0]
	}
	_, err := f.Seek(from, io.SeekStart)
	return err
}
