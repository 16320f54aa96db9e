package slurm

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"time"

	"rcgrpo/engine/lang"
)

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
