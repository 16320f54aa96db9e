package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"rcgrpo/engine/runs"
)

func logsCommand() *cobra.Command {
	c := newExperimentCommand("logs ADDRESS [EXP]", "Show the log of a stage",
		wantArgs(1, 2, "want the address of a stage, and optionally an experiment"))
	c.Long = c.Short + ". With -f, follow it through restarts, adoption and new runs until the stage ends."
	follow := c.Flags().BoolP("follow", "f", false, "follow the log until the stage ends")
	last := c.Flags().IntP("lines", "n", 0, "only the last `N` lines; 0: all")
	raw := c.Flags().Bool("raw", false, "do not escape control characters")
	run := c.Flags().String("run", "", "`RUN`, such as latest~1 or a prefix of an ID (default: the newest with the stage)")
	c.completeFirst(c.addresses)
	c.RunE = func(_ *cobra.Command, args []string) error {
		watch, err := c.watch(args[0], args[1:], *run)
		if err != nil {
			return err
		}
		ctx, _, stop := interruptible(c.stderr())
		defer stop()
		text := &escaped{to: c.stdout()}
		p := &logPrinter{Watch: watch, out: text, note: c.stderr(), pinned: *run != ""}
		if *raw {
			p.out = c.stdout()
		}
		defer p.close()
		return cmp.Or(p.print(ctx, *last, *follow), text.flush())
	}
	return c.Command
}

// watch finds a stage in the named run, or in the newest run of the experiment that started it.
func (c *experimentFlags) watch(address string, experiment []string, run string) (*runs.Watch, error) {
	store, _, err := c.siteStore()
	if err != nil {
		return nil, err
	}
	name, err := experimentName(experiment)
	if err != nil && run == "" {
		return nil, usageError{err}
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

// escaped writes text and escapes its control characters, except tabs and line breaks.
type escaped struct {
	to   io.Writer
	held []byte // the first bytes of an incomplete character
}

func (e *escaped) Write(text []byte) (int, error) {
	rest := append(e.held, text...)
	var b []byte
	for len(rest) > 0 && utf8.FullRune(rest) {
		r, n := utf8.DecodeRune(rest)
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			b = append(b, byte(r))
		case r == utf8.RuneError && n == 1 || r < ' ' || r == 0x7f:
			b = fmt.Appendf(b, `\x%02x`, rest[0])
		case unicode.IsControl(r):
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = append(b, rest[:n]...)
		}
		rest = rest[n:]
	}
	e.held = append([]byte(nil), rest...)
	if _, err := e.to.Write(b); err != nil {
		return 0, err
	}
	return len(text), nil
}

// flush writes the bytes of an incomplete character.
func (e *escaped) flush() error {
	var b []byte
	for _, c := range e.held {
		b = fmt.Appendf(b, `\x%02x`, c)
	}
	_, err := e.to.Write(b)
	return err
}

// followEvery is the interval at which a followed log is read.
const followEvery = 200 * time.Millisecond

// logPrinter copies the logs of a stage.
type logPrinter struct {
	*runs.Watch
	out, note io.Writer
	pinned    bool // to one run
	file      *os.File
	waits     bool // for the next run, as already printed
}

func (p *logPrinter) close() {
	if p.file != nil {
		p.file.Close()
	}
}

func (p *logPrinter) print(ctx context.Context, last int, follow bool) error {
	for {
		standing, err := p.Look() // before the copy: otherwise the last lines could be lost
		if err != nil {
			return err
		}
		if err := p.copy(last); err != nil {
			return err
		}
		moved := false
		if follow && !p.pinned && standing != runs.StageEnded {
			if moved, err = p.Next(); err != nil {
				return err
			}
		}
		switch {
		case moved:
			p.waits = false
			continue
		case !follow || standing == runs.StageEnded || standing == runs.RunKilled && p.pinned:
			if p.file != nil {
				return nil
			}
			if !p.pinned {
				if moved, err = p.Made(); err != nil {
					return err
				}
			}
			if !moved {
				return fmt.Errorf("run %s has not started %s, so there is no log", p.Folder.Name(), p.Address)
			}
			continue
		case standing == runs.RunKilled && !p.waits:
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
	f, err := os.Open(p.Log)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case p.file == nil:
		if last > 0 {
			if err := skipToLast(f, last); err != nil {
				return errors.Join(err, f.Close())
			}
		}
		p.file = f
	case sameFile(p.file, f):
		f.Close()
	default:
		if _, err := io.Copy(p.out, p.file); err != nil { // the rest of the previous log
			return errors.Join(err, f.Close())
		}
		p.file.Close()
		p.file = f
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

// skipToLast moves f to the start of its last n lines.
func skipToLast(f *os.File, n int) error {
	starts := make([]int64, 0, n)
	lines := bufio.NewReader(f)
	var at int64
	begins := true // the next slice starts a line
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 && begins {
			if len(starts) == n {
				starts = append(starts[:0], starts[1:]...)
			}
			starts = append(starts, at)
		}
		at += int64(len(line))
		begins = err == nil
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
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
