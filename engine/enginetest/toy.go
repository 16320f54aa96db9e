package enginetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
)

// Toy writes its text and the contents of its inputs to out.txt. The other settings make it draw a random
// number, run a shell text, wait for the test, fail or panic on the way.
type Toy struct {
	From  []artifact.Ref  `hcl:"from,optional" port:"files"`
	Data  []artifact.File `hcl:"data,optional"`
	Text  string          `hcl:"text,optional"`
	Note  string          `hcl:"note,optional"` // in the key, not in the output
	Draw  bool            `hcl:"draw,optional"`
	Count string          `hcl:"count,optional" key:"-"` // file that gets a line for each start
	Gate  string          `hcl:"gate,optional" key:"-"`  // Unix socket at which the stage waits, see Lab.Gate
	Fail  string          `hcl:"fail,optional" key:"-"`  // error, after a line in the log
	Cause string          `hcl:"cause,optional" key:"-"` // of that error
	Until int             `hcl:"until,optional" key:"-"` // fail only in attempts before this one
	Panic bool            `hcl:"panic,optional" key:"-"`
	Die   bool            `hcl:"die,optional" key:"-"`   // by SIGKILL
	Shell string          `hcl:"shell,optional" key:"-"` // program to run first
	Takes bool            `hcl:"takes,optional"`         // the output is the folder made/, written by Shell
}

// ToyKinds are "toy", which runs in its own process, "light", which runs inside the engine, and "page",
// which runs inside the engine even after failures and publishes page.txt.
func ToyKinds() lang.Registry {
	draws := func(s lang.Stage) bool {
		t, ok := s.(*Toy)
		return ok && t.Draw
	}
	toy := func() lang.Stage { return &Toy{} }
	return lang.Registry{
		{Name: "toy", Summary: "runs in its own process", Version: 1, New: toy,
			Outputs: FilesOut, Stochastic: draws, MultiGPU: true},
		{Name: "light", Summary: "runs in place", Version: 1, New: toy,
			Outputs: FilesOut, Stochastic: draws, Light: true, InProcess: true},
		{Name: "page", Summary: "runs always", Version: 1, New: func() lang.Stage { return &page{} },
			Outputs: FilesOut, AfterFailures: true, AcrossSeeds: true, Light: true, InProcess: true},
	}
}

// FilesOut is the Outputs function of a kind with the single port "out" of type "files".
func FilesOut(lang.Stage) map[string]string { return map[string]string{"out": "files"} }

func (t *Toy) Check() hcl.Diagnostics { return nil }

func (t *Toy) Run(ctx context.Context, job *engine.Job) error {
	if err := t.count(job); err != nil {
		return err
	}
	if t.Takes && !job.Recovered() {
		if err := os.RemoveAll(filepath.Join(job.Dir, "made")); err != nil { // of an earlier attempt
			return err
		}
	}
	if t.Shell != "" {
		p := engine.Program{Args: []string{"sh", "-c", t.Shell}, Dir: job.Dir,
			Env: []string{"PATH=" + os.Getenv("PATH"), "lab=" + os.Getenv("LAB")}}
		if err := job.RunProgram(ctx, p); err != nil {
			return err
		}
	}
	if t.Takes {
		return job.Take("out", filepath.Join(job.Dir, "made"))
	}
	dir, err := job.Create("out")
	if err != nil {
		return err
	}
	// Half of the output exists before the gate, so that a kill there leaves a partial result.
	path := filepath.Join(dir, "out.txt")
	if err := os.WriteFile(path, []byte("half"), 0o644); err != nil {
		return err
	}
	job.Progress(1, 2, "halves", runs.Value{Name: "size", Value: 4})
	if b, err := os.ReadFile(filepath.Join(job.Dir, "checkpoint")); err == nil {
		job.Logf("resumed from %s", b)
	}
	if t.Gate != "" {
		if err := t.wait(ctx, job); err != nil {
			return errors.Join(err, os.WriteFile(filepath.Join(job.Dir, "checkpoint"), []byte("1"), 0o644))
		}
	}
	switch {
	case t.Panic:
		panic("a mistake in a kind")
	case t.Die && os.Getenv("RCGRPO_CHILD") != "":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case t.Die:
		return engine.WithCause(lang.CauseKilled, errors.New("its process was killed"))
	}
	if t.Fail != "" && (t.Until == 0 || job.Attempt < t.Until) {
		job.Logf("about to fail")
		return engine.WithCause(t.Cause, errors.New(t.Fail))
	}
	text, err := t.text(job)
	if err != nil {
		return err
	}
	job.Progress(2, 2, "halves")
	if err := os.WriteFile(filepath.Join(dir, "times.txt"), []byte(time.Now().String()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// text returns the content of out.txt. A missing input contributes the reason instead.
func (t *Toy) text(job *engine.Job) (string, error) {
	lines := []string{t.Text}
	if t.Draw {
		lines = append(lines, fmt.Sprint(job.Rand("toy").Uint64()))
	}
	for _, ref := range t.From {
		a, err := job.Open(ref)
		var missing *runs.MissingError
		if errors.As(err, &missing) {
			lines = append(lines, missing.Error())
			continue
		}
		if err != nil {
			return "", err
		}
		b, err := os.ReadFile(a.Path("out.txt"))
		if err != nil {
			return "", err
		}
		lines = append(lines, strings.TrimSpace(string(b)))
	}
	return strings.Join(lines, "\n") + "\n", nil
}

func (t *Toy) count(job *engine.Job) error {
	if t.Count == "" || job.Recovered() { // the start of a recovered program has been counted
		return nil
	}
	f, err := os.OpenFile(t.Count, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s threads=%d gpus=%s\n", job.Address, job.Threads, os.Getenv("CUDA_VISIBLE_DEVICES"))
	return errors.Join(err, f.Close())
}

// wait announces the stage at the gate and waits until the test lets it pass.
func (t *Toy) wait(ctx context.Context, job *engine.Job) error {
	conn, err := net.Dial("unix", t.Gate)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	fmt.Fprintln(conn, job.Address, os.Getpid())
	_, err = bufio.NewReader(conn).ReadString('\n')
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("at the gate: %w", err)
	}
	job.Logf("passed the gate")
	return nil
}

type page struct{ Toy }

func (p *page) Publishes(string, string) []lang.Published {
	return []lang.Published{{Port: "out", File: "out.txt", Name: "page.txt"}}
}
