package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"rcgrpo/engine"
)

// logsCommand runs "rcgrpo logs ADDR": what a stage wrote, from its first byte or its last lines, and what it goes on
// to write: through restarts within its run, adoption by another, and a new run after a kill, until the stage has ended.
func logsCommand(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c := newCall("logs", "ADDRESS [EXP]", stdout, stderr)
	follow := c.Bool("f", false, "go on until the stage has ended")
	last := c.Int("n", 0, "only the last `N` lines; 0: all")
	raw := c.Bool("raw", false, "print the bytes as the stage wrote them; otherwise control characters, which could steer the terminal, are escaped")
	run := c.String("run", "", "`RUN` to look into, such as latest~1 or the beginning of an ID; default the newest that started the stage")
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
	if err != nil && *run == "" {
		return c.misuse("%v", err)
	}
	folder := ""
	if *run != "" {
		if folder, err = engine.FindRun(store, name, *run); err != nil {
			return c.fail(err)
		}
		name = filepath.Base(filepath.Dir(folder))
	}
	address, err := engine.FindLogged(store, name, c.args[0])
	if err != nil {
		return c.fail(err)
	}
	watch, err := engine.WatchStage(store, name, address, folder)
	if err != nil {
		return c.fail(err)
	}
	ctx, _, stop := interruptible(stderr)
	defer stop()
	text := &escaped{to: stdout}
	p := &logPrinter{Watch: watch, out: text, note: stderr, pinned: folder != ""}
	if *raw {
		p.out = stdout
	}
	defer p.close()
	if err := cmp.Or(p.print(ctx, *last, *follow), text.flush()); err != nil {
		return c.fail(err)
	}
	return exitDone
}

// escaped writes text with its control characters escaped, except tabs and ends of lines.
type escaped struct {
	to   io.Writer
	held []byte // the first bytes of a character
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

// flush writes what is left of a character that the log does not complete.
func (e *escaped) flush() error {
	var b []byte
	for _, c := range e.held {
		b = fmt.Appendf(b, `\x%02x`, c)
	}
	_, err := e.to.Write(b)
	return err
}

// followEvery is how often a log that is followed is looked at.
const followEvery = 200 * time.Millisecond

// logPrinter copies the logs of a stage.
type logPrinter struct {
	*engine.Watch
	out, note io.Writer
	pinned    bool // to one run
	file      *os.File
	waits     bool // and has said so
}

func (p *logPrinter) close() {
	if p.file != nil {
		p.file.Close()
	}
}

func (p *logPrinter) print(ctx context.Context, last int, follow bool) error {
	for {
		standing, err := p.Look() // before the copy, so that nothing written before the end is lost
		if err != nil {
			return err
		}
		if err := p.copy(last); err != nil {
			return err
		}
		moved := false
		if follow && !p.pinned && standing != engine.StageEnded {
			if moved, err = p.Next(); err != nil {
				return err
			}
		}
		switch {
		case moved:
			p.waits = false
			continue
		case !follow || standing == engine.StageEnded || standing == engine.RunKilled && p.pinned:
			if p.file != nil {
				return nil
			}
			if !p.pinned {
				if moved, err = p.Made(); err != nil {
					return err
				}
			}
			if !moved {
				return fmt.Errorf("run %s has not started %s, so there is nothing that it wrote", engine.RunName(p.Folder), p.Address)
			}
			continue
		case standing == engine.RunKilled && !p.waits:
			p.waits = true
			fmt.Fprintf(p.note, "rcgrpo logs: run %s was killed; waiting for the next one (^C ends)\n", engine.RunName(p.Folder))
		}
		select {
		case <-time.After(followEvery):
		case <-ctx.Done():
			return nil
		}
	}
}

// copy prints what the log has more than the last time. The log of a run that adopted the stage is the one it had.
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
		if _, err := io.Copy(p.out, p.file); err != nil { // the rest of the one before
			return errors.Join(err, f.Close())
		}
		p.file.Close()
		p.file = f
		fmt.Fprintf(p.note, "rcgrpo logs: run %s\n", engine.RunName(p.Folder))
	}
	if err := p.skipCut(); err != nil {
		return err
	}
	_, err = io.Copy(p.out, p.file)
	return err
}

// skipCut moves to the end of a log that has become shorter than what was printed: the engine has cut it to its limit.
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
	begins := true // the next piece is the start of a line
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
