package slurm

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/machine"
	"rcgrpo/engine/runs"
)

// Finding is a line of a check. A problem makes stages fail.
type Finding struct {
	Text    string
	Problem bool
}

func found(format string, args ...any) Finding { return Finding{Text: fmt.Sprintf(format, args...)} }

func problem(format string, args ...any) Finding { return Finding{fmt.Sprintf(format, args...), true} }

// Check reports the version of Slurm, its partitions, limits and accounting.
func (x *Executor) Check(ctx context.Context) []Finding {
	config, err := x.config(ctx)
	if err != nil {
		return []Finding{problem("%v", err)}
	}
	all := []Finding{found("Slurm %s, cluster %s", config["SLURM_VERSION"], config["ClusterName"])}
	all = append(all, x.checkPartitions(ctx)...)
	all = append(all, found("limits: at most %d jobs of this site file at once, %s of the cluster, arrays of %s", x.Jobs,
		config["MaxJobCount"], config["MaxArraySize"]))
	accounting := strings.TrimPrefix(config["AccountingStorageType"], "accounting_storage/")
	if accounting == "none" || accounting == "(null)" {
		accounting = "none (no stage needs it)"
	} else {
		accounting += " on " + config["AccountingStorageHost"]
		if _, err := x.command(ctx, "", "sacct", "-n", "-X", "-j", "1"); err != nil {
			accounting += fmt.Sprintf(" does not answer (no stage needs it): %v", err)
		}
	}
	return append(all, found("accounting: %s", accounting))
}

// checkPartitions reports all partitions. It is a problem if the one of the jobs is missing or not up.
func (x *Executor) checkPartitions(ctx context.Context) (all []Finding) {
	partitions, err := x.partitions(ctx)
	if err != nil {
		return []Finding{problem("%v", err)}
	}
	up := false
	for _, p := range partitions {
		mark := ""
		if p.used {
			mark, up = " (used)", up || p.state == "up"
		}
		all = append(all, found("partition %s%s: %s, limit %s, %s", p.name, mark, p.state, p.limit, p.nodes))
	}
	if !up {
		all = append(all, problem("partition %s is missing or not up: jobs are refused or wait",
			cmp.Or(x.partition(), "(default)")))
	}
	return all
}

// Probe is a job that tests its node.
type Probe struct {
	Folders  []string // that stages read or write
	Programs []string // that stages need; the first is this program
	GPUs     int      // that the job requests
}

// findings are the answer of a node, the file N.found.
type findings struct {
	Host string
	All  []Finding
}

// CheckJob submits a short job that tests on its node the folders, the programs, links of files, the delay until a file
// is seen, the clock, the GPUs, the secrets and the lines of setup.
func (x *Executor) CheckJob(ctx context.Context, store *artifact.Store, p Probe) []Finding {
	a, err := x.submitProbe(ctx, store, p)
	if a != nil {
		defer os.RemoveAll(filepath.Dir(a.path))
	}
	if err != nil {
		return []Finding{problem("the job is not submitted: %v", err)}
	}
	answer, all, err := x.awaitProbe(ctx, a)
	if err != nil {
		x.command(context.Background(), "", "scancel", "--me", "--name="+a.Name) // it may have ended
		return append(all, problem("%v", err))
	}
	all = append(all, answer.All...)
	for i, line := range x.Setup {
		if code := a.setupCode(i); code != "0" {
			all = append(all, problem("setup line %q ended with exit code %s; the output is: %s", line, code, a.answerLine()))
		} else {
			all = append(all, found("setup line %q ended with exit code 0", line))
		}
	}
	return append(all, a.measureDelay(ctx, x.Visible)...)
}

// submitProbe submits the job of a check. The attempt is nil if it has no record.
func (x *Executor) submitProbe(ctx context.Context, store *artifact.Store, p Probe) (*attempt, error) {
	key := make([]byte, 32)
	rand.Read(key)
	r := record{Address: "site check", Key: hex.EncodeToString(key), Store: store.Dir(), GPUs: p.GPUs, Secrets: x.Secrets,
		Probe: &Probe{Folders: p.Folders}}
	s := &stage{Executor: x, store: store}
	for _, program := range p.Programs {
		to, err := s.copied(program)
		if err != nil {
			return nil, err
		}
		r.Probe.Programs = append(r.Probe.Programs, to)
	}
	r.Name = newName(r.Key)
	a := &attempt{record: r, path: filepath.Join(store.Jobs(r.Key), "1"), n: 1}
	err := a.create(store)
	if err != nil {
		return nil, err
	}
	for i, program := range p.Programs {
		err = errors.Join(err, copyBinary(program, r.Probe.Programs[i]))
	}
	if err != nil {
		return a, err
	}
	lines := []string{"#!/bin/sh"}
	for i, line := range x.Setup {
		lines = append(lines, line, fmt.Sprintf("echo %s$?", setupMark(i)))
	}
	lines = append(lines, "exec "+quote(r.Probe.Programs[0])+" job "+quote(a.path), "")
	n := &lang.Node{}
	n.Resources.GPUs = p.GPUs
	_, err = x.sbatch(ctx, strings.Join(lines, "\n"), append(x.resources(n), "--parsable", "--job-name="+a.Name,
		"--comment="+a.Address, "--no-requeue", "--open-mode=append", "--output="+a.file("out"), "--chdir="+a.Store,
		"--time=10"))
	return a, err
}

// awaitProbe waits for the answer of a node. The findings are the reasons for which the job waits.
func (x *Executor) awaitProbe(ctx context.Context, a *attempt) (answer findings, all []Finding, err error) {
	reason, ended := "", time.Time{}
	for {
		if a.readAnswer("found", &answer) {
			return answer, append(all, found("the job ran on node %s", answer.Host)), nil
		}
		x.refresh(false)
		st, listed, at := x.state(a.Name)
		switch {
		case listed && st.waits() && st.Text() != reason:
			reason = st.Text()
			all = append(all, found("%s", reason))
		case !at.IsZero() && listed && st.ended() && ended.IsZero():
			ended = time.Now()
		case !ended.IsZero() && time.Since(ended) > x.Visible:
			return answer, all, fmt.Errorf("the job ended on node %s in state %s (%s), and no file of it is visible within "+
				"%v; its output is: %s", st.Node, st.State, st.Reason, x.Visible, a.answerLine())
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return answer, all, context.Cause(ctx)
		}
	}
}

// readAnswer reads a file of the job once it is visible and complete.
func (a *attempt) readAnswer(suffix string, to any) bool {
	os.ReadDir(filepath.Dir(a.path)) // refreshes the names of a network file system
	return runs.ReadJSON(a.file(suffix), to) == nil
}

// setupMark precedes the exit code of a line of setup in the output of the job.
func setupMark(i int) string { return fmt.Sprintf("rcgrpo-setup-%d=", i) }

// setupCode returns the exit code of a line of setup; "" if the output has none.
func (a *attempt) setupCode(i int) string {
	b, _ := os.ReadFile(a.file("out"))
	_, code, _ := strings.Cut(string(b), setupMark(i))
	code, _, _ = strings.Cut(code, "\n")
	return code
}

// answerLine returns the last line of the job's output that is not an exit code of setup.
func (a *attempt) answerLine() string {
	b, _ := os.ReadFile(a.file("out"))
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(b)), "\n"), func(line string) bool {
		return strings.HasPrefix(line, "rcgrpo-setup-")
	})
	if len(lines) == 0 {
		return ""
	}
	return lines[len(lines)-1]
}

// measureDelay creates the file N.ping and waits for the file N.pong, in which the job writes its time.
func (a *attempt) measureDelay(ctx context.Context, most time.Duration) []Finding {
	sent := time.Now()
	if err := os.WriteFile(a.file("ping"), nil, 0o600); err != nil {
		return []Finding{problem("%v", err)}
	}
	var there time.Time
	for !a.readAnswer("pong", &there) {
		if ctx.Err() != nil || time.Since(sent) > 2*most {
			return []Finding{problem("the job sees no file of this host, or this host no file of the job, within %v: the "+
				"file system is slower than `visible`, which is %v", time.Since(sent).Round(time.Second), most)}
		}
		time.Sleep(pingEvery)
	}
	took := time.Since(sent)
	ahead := there.Sub(sent.Add(took / 2))
	return []Finding{
		found("a file is seen on the node and its answer here after %v", took.Round(time.Millisecond)),
		found("the node's clock differs by %v ± %v (stages compare no clocks)", ahead.Round(time.Millisecond),
			(took / 2).Round(time.Millisecond)),
	}
}

// pingEvery is the interval in which both sides look for the file of the other.
const pingEvery = 20 * time.Millisecond

// answer tests the node on which it runs, and answers the file N.ping of the engine.
func (a *attempt) answer(ctx context.Context) (exit, error) {
	f := findings{Host: nodeName(), All: a.testNode(ctx)}
	if err := runs.WriteJSON(a.file("found"), f); err != nil {
		return exit{}, err
	}
	for began := time.Now(); !disk.Exists(a.file("ping")) && time.Since(began) < 5*time.Minute && ctx.Err() == nil; {
		time.Sleep(pingEvery)
		os.ReadDir(filepath.Dir(a.path))
	}
	return exit{Cause: causeDone, Host: f.Host}, runs.WriteJSON(a.file("pong"), time.Now())
}

// testNode tests the folders, links, programs, secrets and devices of this node.
func (a *attempt) testNode(ctx context.Context) (all []Finding) {
	for _, folder := range a.Probe.Folders {
		if _, err := os.ReadDir(folder); err != nil {
			all = append(all, problem("folder: %v", err))
		} else {
			all = append(all, found("folder %s is readable", folder))
		}
	}
	all = append(all, a.testLink())
	for _, program := range a.Probe.Programs {
		out, err := exec.CommandContext(ctx, program, "version").CombinedOutput()
		text := lastWords(string(out))
		switch copyErr := checkCopy(program); {
		case copyErr != nil:
			all = append(all, problem("program: %v", copyErr))
		case err != nil:
			all = append(all, problem("%s does not start: %s (%v)", filepath.Base(program), text, err))
		default:
			all = append(all, found("%s starts; its digest is that of the copy", filepath.Base(program)))
		}
	}
	if _, secrets, err := a.environment(); err != nil {
		all = append(all, problem("%v", err))
	} else if len(secrets) > 0 {
		all = append(all, found("secrets: %d readable", len(secrets)))
	}
	if a.GPUs > 0 {
		all = append(all, a.testGPUs(ctx))
	}
	return all
}

// testLink tests that link creates a name of the store only once.
func (a *attempt) testLink() Finding {
	from, to := a.file("link"), a.file("linked")
	if err := os.WriteFile(from, nil, 0o600); err != nil {
		return problem("the store is not writable: %v", err)
	}
	if err := os.Link(from, to); err != nil {
		return problem("the store's file system has no links, which claims need: %v", err)
	}
	if err := os.Link(from, to); !errors.Is(err, fs.ErrExist) {
		return problem("link created a file twice (%v), so two engines could execute a stage at once", err)
	}
	return found("the store is writable, and link creates a file once")
}

// testGPUs tests the devices of the job.
func (a *attempt) testGPUs(ctx context.Context) Finding {
	ids, err := a.devices(ctx)
	if err != nil {
		return problem("GPU: %v", err)
	}
	if g := machine.QueryGPUs(ctx); g.Err != nil {
		return found("GPU %s of the job, not queried: %v", strings.Join(ids, ", "), g.Err)
	}
	return found("GPU %s of the job is not in use", strings.Join(ids, ", "))
}
