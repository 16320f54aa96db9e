package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"rcgrpo/engine/lang"
)

// inherited are the variables of the engine that Slurm's commands and jobs get. Others may be secret, or belong to a
// job in which the engine itself runs.
var inherited = []string{"PATH", "HOME", "XDG_STATE_HOME", "USER", "LOGNAME", "TMPDIR", "SLURM_CONF"}

// environment returns the variables of Slurm's commands, which sbatch passes on to the job.
func (x *Executor) environment() []string {
	env := []string{"LC_ALL=C"}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		ours := strings.HasPrefix(name, "RCGRPO_") && !strings.HasPrefix(name, "RCGRPO_VAR_")
		if slices.Contains(inherited, name) || ours {
			env = append(env, v)
		}
	}
	for name, value := range x.Env {
		env = append(env, name+"="+value)
	}
	return env
}

// command runs a command of Slurm and returns its output and error output. The error contains the last line of the
// error output.
func (x *Executor) command(ctx context.Context, input, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), x.Deadline,
		fmt.Errorf("%s did not answer within %v", name, x.Deadline))
	defer cancel()
	path, err := exec.LookPath(filepath.Join(x.Path, name))
	if err != nil {
		return "", fmt.Errorf("the command %s of Slurm is missing: install slurm-client, or name its folder in the "+
			"executor's `path`: %w", name, err)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	var out, errOut output
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = x.environment(), strings.NewReader(input), &out, &errOut
	cmd.WaitDelay = time.Second // for its output after its end
	err = cmd.Run()
	switch {
	case errors.Is(err, exec.ErrWaitDelay):
		err = nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case max(len(out.text), len(errOut.text)) > mostOutput:
		err = fmt.Errorf("%s prints more than %d bytes", name, mostOutput)
	case err != nil:
		err = fmt.Errorf("%s: %s (%w)", name, lastWords(string(errOut.text)), err)
	}
	return string(out.text) + string(errOut.text), err
}

// mostOutput limits what a command prints, in bytes: squeue prints a line for each job.
const mostOutput = 32 << 20

// output is a buffer that ends the command which fills it.
type output struct{ text []byte }

func (o *output) Write(b []byte) (int, error) {
	if o.text = append(o.text, b...); len(o.text) > mostOutput {
		return 0, errors.New("too long")
	}
	return len(b), nil
}

// lastWords returns the last line with Slurm's error, without its prefix.
func lastWords(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	_, words, found := strings.Cut(lines[len(lines)-1], "error: ")
	if !found {
		return lines[len(lines)-1]
	}
	return words
}

// Answers of sbatch as regular expressions. All other errors refuse the job for good.
const (
	uncertain = `(?i)timed out|did not answer|unable to contact|connect|zero bytes|transport|communication|send/recv|` +
		`unexpected message|try again`
	notNow = `(?i)temporarily|submit limit|SubmitJobsLimit|MaxJobCount|slurmctld.*(full|busy)`
)

var (
	errUncertain = errors.New("the answer of Slurm was lost, and it may have accepted the job")
	errNotNow    = errors.New("no job is accepted now")
)

// sbatch submits a job and returns its id. The error is errUncertain, errNotNow, or final.
func (x *Executor) sbatch(ctx context.Context, script string, args []string) (string, error) {
	x.submitting <- struct{}{}
	defer func() { <-x.submitting }()
	out, err := x.command(ctx, script, "sbatch", args...)
	if err == nil {
		if m := regexp.MustCompile(`(?m)^(\d+)(;\S*)?\s*$`).FindStringSubmatch(out); m != nil {
			return m[1], nil
		}
		return "", fmt.Errorf("%w: sbatch printed no id: %q", errUncertain, lastWords(out))
	}
	switch text := err.Error(); {
	case matches(notNow, text):
		return "", fmt.Errorf("%w: %w", errNotNow, err)
	case matches(uncertain, text):
		return "", fmt.Errorf("%w: %w", errUncertain, err)
	}
	return "", err
}

func matches(pattern, text string) bool { return regexp.MustCompile(pattern).MatchString(text) }

// state is what squeue reports of a job.
type state struct {
	ID     string
	State  string // PENDING, RUNNING, …
	Start  string // expected, while it waits
	Host   string
	Reason string
}

// listFormat has the reason last, since it may contain any character. The prefix tells our lines from a banner.
const listFormat = "rcgrpo|%j|%i|%T|%S|%N|%r"

// parseStates reads the lines of squeue in listFormat by name. Of several jobs of a name, one that has not ended
// counts.
func parseStates(out string) map[string]state {
	all := map[string]state{}
	for line := range strings.Lines(out) {
		f := strings.SplitN(strings.TrimRight(line, "\r\n"), "|", 7)
		if len(f) != 7 || f[0] != "rcgrpo" || !strings.HasPrefix(f[1], "rcgrpo-") {
			continue
		}
		s := state{ID: f[2], State: f[3], Start: f[4], Host: f[5], Reason: f[6]}
		if old, twice := all[f[1]]; !twice || old.ended() {
			all[f[1]] = s
		}
	}
	return all
}

// endStates are the states of jobs that have ended. All others may still run.
var endStates = []string{"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL",
	"DEADLINE", "OUT_OF_MEMORY", "REVOKED"}

func (s state) ended() bool { return slices.Contains(endStates, s.State) }

// waits reports whether the job has not started.
func (s state) waits() bool {
	return slices.Contains([]string{"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"}, s.State)
}

// launchFailed reports whether Slurm holds the job because a host could not launch it. Slurm drains that host.
func (s state) launchFailed() bool { return s.waits() && s.Reason == "launch failed requeued held" }

// Text describes a job in the queue.
func (s state) Text() string {
	text := fmt.Sprintf("job %s of Slurm waits", s.ID)
	if s.Reason != "" && s.Reason != "None" {
		text += ": " + s.Reason
	}
	if at, err := time.Parse("2006-01-02T15:04:05", s.Start); err == nil {
		text += ", starts at " + at.Format("Mon 15:04") + " at the latest"
	}
	return text
}

// list returns the jobs of this user that were submitted by this program, by their names.
func (x *Executor) list(ctx context.Context) (map[string]state, error) {
	out, err := x.command(ctx, "", "squeue", "--me", "-h", "-t", "all", "-o", listFormat)
	return parseStates(out), err
}

// partition is a group of equal hosts of a partition in one state.
type partition struct {
	name, state, limit, hosts string
	used                      bool // by jobs of this executor
}

// partitions returns the partitions of the cluster.
func (x *Executor) partitions(ctx context.Context) (all []partition, err error) {
	out, err := x.command(ctx, "", "sinfo", "-h", "-o", "rcgrpo|%P|%a|%l|%D hosts %t with %c CPUs, %m MB, devices %G")
	named := x.partition()
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) == 5 && f[0] == "rcgrpo" {
			name, isDefault := strings.CutSuffix(f[1], "*")
			all = append(all, partition{name, f[2], f[3], f[4], name == named || named == "" && isDefault})
		}
	}
	return all, err
}

// partition returns the partition that the site file names, or "".
func (x *Executor) partition() (name string) {
	for _, o := range x.Options {
		if value, ok := strings.CutPrefix(o, "--partition="); ok {
			name = value
		}
	}
	return name
}

// partitionLimit returns the largest time limit of the partition; 0: unlimited or unknown.
func (x *Executor) partitionLimit(ctx context.Context) (limit time.Duration) {
	all, _ := x.partitions(ctx)
	for _, p := range all {
		if p.used {
			limit = parseLimit(p.limit)
		}
	}
	return limit
}

// config returns the settings of the cluster.
func (x *Executor) config(ctx context.Context) (map[string]string, error) {
	out, err := x.command(ctx, "", "scontrol", "show", "config")
	config := map[string]string{}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(line, "=")
		config[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return config, err
}

// parseLimit reads a limit such as "1-00:00:00", "1:00:00" or "30:00"; 0 for others, such as "infinite".
func parseLimit(text string) time.Duration {
	days, clock, _ := strings.Cut(text, "-")
	if clock == "" {
		days, clock = "0", text
	}
	total, err := strconv.Atoi(days)
	total *= 24 * 60 * 60
	parts, scale := strings.Split(clock, ":"), 1
	for _, part := range slices.Backward(parts) {
		n, partErr := strconv.Atoi(part)
		err = errors.Join(err, partErr)
		total, scale = total+n*scale, scale*60
	}
	if err != nil || len(parts) > 3 {
		return 0
	}
	return time.Duration(total) * time.Second
}

// mostShapes limits the calls of Starts.
const mostShapes = 8

// Start is Slurm's estimate for stages that need equal jobs.
type Start struct {
	Nodes []*lang.Node
	At    time.Time // at the latest
	Err   error     // instead of At: Slurm's refusal, or no answer
}

// Starts returns when Slurm would start jobs of these stages if they were submitted now. It calls sbatch --test-only
// once for each shape of a job, at most 8 times; other stages are not in the result. expected is the time of a stage;
// 0: unknown. Slurm assumes that each job before them runs for its whole limit.
func (x *Executor) Starts(
	ctx context.Context, nodes []*lang.Node, expected func(*lang.Node) time.Duration,
) (all []*Start) {
	shapes := map[string]*Start{}
	for _, n := range nodes {
		args := append(x.resources(n), timeOptions(x.timeLimit(expected(n), n.Timeout))...)
		key := strings.Join(args, "\x00")
		if s := shapes[key]; s != nil {
			s.Nodes = append(s.Nodes, n)
			continue
		}
		if len(all) == mostShapes {
			continue
		}
		s := &Start{Nodes: []*lang.Node{n}}
		shapes[key], all = s, append(all, s)
		out, err := x.command(ctx, "#!/bin/sh\n", "sbatch", append(args, "--test-only")...)
		if s.Err = err; err == nil {
			s.At, s.Err = parseStart(out)
		}
	}
	return all
}

// parseStart reads the answer of sbatch --test-only: "sbatch: Job 5 to start at 2026-11-23T07:48:03 using 1 …".
func parseStart(out string) (at time.Time, err error) {
	m := regexp.MustCompile(`to start at (\S+)`).FindStringSubmatch(out)
	if m == nil {
		return at, errors.New("sbatch printed no start: " + lastWords(out))
	}
	return time.ParseInLocation("2006-01-02T15:04:05", m[1], time.Local)
}
