package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/text/runes"
	"golang.org/x/text/transform"

	"rcgrpo/cmd/rcgrpo/internal/display"
	"rcgrpo/cmd/rcgrpo/internal/interrupt"
	"rcgrpo/cmd/rcgrpo/internal/output"
	"rcgrpo/engine/runs"
)

func logsCommand() *cobra.Command {
	c := newExperimentCommand("logs ADDRESS [EXP]", "Show the log of a stage",
		wantArgs(1, 2, "want the address of a stage, and optionally an experiment"))
	c.Long = c.Short + ". With -f, follow it through restarts, adoption and new runs until the stage ends."
	follow := c.Flags().BoolP("follow", "f", false, "follow the log until the stage ends")
	last := c.Flags().IntP("lines", "n", 0, "only the last `N` lines; 0: all")
	raw := c.Flags().Bool("raw", false, "print control characters unchanged")
	run := c.Flags().String("run", "", "log of `RUN`: latest~1 or a prefix of an ID (default: the newest with the stage)")
	c.completeFirst(c.addresses)
	return c.does(func(args []string) error {
		watch, err := c.watch(args[0], args[1:], *run)
		if err != nil {
			return err
		}
		ctx, _, stop := interrupt.Context(c.stderr())
		defer stop()
		text := printableLog(output.Raw(c.stdout()))
		p := &logPrinter{Watch: watch, out: text, note: c.stderr(), pinned: *run != ""}
		if *raw {
			p.out = output.Raw(c.stdout())
		}
		defer p.close()
		return cmp.Or(p.print(ctx, *last, *follow), text.Close())
	})
}

// watch finds a stage in the named run, or in the newest run of the experiment that started it.
func (c *command) watch(address string, experiment []string, run string) (*runs.Watch, error) {
	store, _, err := c.siteStore()
	if err != nil {
		return nil, err
	}
	name, err := experimentName(experiment)
	if err != nil && run == "" {
		return nil, err
	}
	var folder runs.Folder
	if run != "" {
		if folder, err = runs.Find(store, name, run); err != nil {
			return nil, err
		}
		name = folder.Experiment()
	}
	if address, err = runs.FindStage(store, name, address); err != nil {
		return nil, err
	}
	return runs.NewWatch(store, name, address, folder)
}

// printableLog returns a writer that replaces control characters, except those of progress bars. Close writes a
// character whose last bytes are missing.
func printableLog(w io.Writer) io.WriteCloser {
	return transform.NewWriter(w, runes.Map(func(r rune) rune {
		if r == '\r' {
			return r
		}
		return display.Printable(r)
	}))
}

const followEvery = 200 * time.Millisecond

type logPrinter struct {
	*runs.Watch
	out, note io.Writer
	pinned    bool // only the log of one run is printed
	file      *os.File
	waits     bool // a line says that the printer waits for the next run
}

func (p *logPrinter) close() { p.file.Close() }

func (p *logPrinter) print(ctx context.Context, last int, follow bool) error {
	for {
		state, err := p.Poll() // before the copy: otherwise the last lines could be lost
		if err == nil {
			err = p.copy(last)
		}
		moved := false
		if err == nil && follow && !p.pinned && state != runs.StageEnded {
			moved, err = p.Next(p.Folder)
		}
		atEnd := !follow || state == runs.StageEnded || state == runs.RunKilled && p.pinned
		if err == nil && atEnd && !moved {
			if p.file != nil {
				return nil
			}
			if !p.pinned {
				moved, err = p.Next("")
			}
			if err == nil && !moved {
				err = fmt.Errorf("run %s has not started %s, so there is no log", p.Folder.Name(), p.Address)
			}
		}
		switch {
		case err != nil:
			return err
		case moved:
			p.waits = false
			continue
		case state == runs.RunKilled && !p.waits:
			p.waits = true
			fmt.Fprintf(p.note, "rcgrpo logs: run %s was killed; waiting for the next one (^C ends)\n", p.Folder.Name())
		}
		select {
		case <-time.After(followEvery):
		case <-ctx.Done():
			return nil
		}
	}
}

// copy prints the new part of the log. A run that adopts the stage continues its log.
func (p *logPrinter) copy(last int) error {
	f, err := os.OpenFile(p.Log, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe has no writer
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case p.file == nil:
		p.file = f
		if err := skipToLast(f, last); err != nil {
			return err
		}
	case sameFile(p.file, f):
		f.Close()
	default:
		_, err = io.Copy(p.out, p.file) // the rest of the previous log
		p.file.Close()
		p.file = f
		if err != nil {
			return err
		}
		fmt.Fprintf(p.note, "rcgrpo logs: run %s\n", p.Folder.Name())
	}
	if err := p.skipCut(); err != nil {
		return err
	}
	_, err = io.Copy(p.out, p.file)
	return err
}

// skipCut moves to the end of a log that became shorter: the engine cut it at its limit.
func (p *logPrinter) skipCut() error {
	printed, err := p.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	info, err := p.file.Stat()
	if err != nil || info.Size() >= printed {
		return err
	}
	fmt.Fprintf(p.note, "rcgrpo logs: the log reached its limit and was cut; continuing at its end\n")
	_, err = p.file.Seek(0, io.SeekEnd)
	return err
}

func sameFile(a, b *os.File) bool {
	x, err := a.Stat()
	y, otherErr := b.Stat()
	return err == nil && otherErr == nil && os.SameFile(x, y)
}

// skipToLast moves f to the start of its last n lines, unless n is 0. It reads backwards.
func skipToLast(f *os.File, n int) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	block := make([]byte, 64<<10)
	for from := info.Size(); from > 0 && n > 0; {
		part := block[:min(from, int64(len(block)))]
		from -= int64(len(part))
		if _, err := f.ReadAt(part, from); err != nil && !errors.Is(err, io.EOF) { // the engine may cut the log
			return err
		}
		for i := bytes.LastIndexByte(part, '\n'); i >= 0; i = bytes.LastIndexByte(part[:i], '\n') {
			next := from + int64(i) + 1
			if next < info.Size() {
				n--
			}
			if n == 0 {
				_, err := f.Seek(next, io.SeekStart)
				return err
			}
		}
	}
	return nil
}
