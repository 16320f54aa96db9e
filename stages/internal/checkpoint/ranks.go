//go:build libtorch

package checkpoint

import (
	"context"
	"errors"
	"os"
	"strconv"

	"rcgrpo/engine"
	"rcgrpo/engine/runs"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/ranks"
	"rcgrpo/stages/internal/resume"
	"rcgrpo/stages/internal/torch"
)

// Join connects the ranks of a job, or returns no peers for a job of one process. It refuses ranks whose builds,
// libtorch, seeds, inputs or settled facts differ. Close the group.
func Join(job *engine.Job, settled ...ranks.Fact) (p lm.Peers, err error) {
	if job.Ranks <= 1 {
		return p, nil
	}
	p.Group, err = torch.JoinFile(job.Rendezvous, job.Rank, job.Ranks, torch.Loopback, job.Arrival)
	if err != nil {
		return p, err
	}
	p.Rank = ranks.New(job.Rank, job.Ranks, p.Group)
	// Each rank of a GPU has a device of its own.
	if library := os.Getenv(ncclVariable); job.Device != cpu && library != "off" {
		if err := useNCCL(p.Group, job.Device, library); err != nil {
			job.Logf("the ranks exchange data through the host's memory: %v", err)
		}
	}
	job.Backend = p.Group.Backend()
	job.ReportRank(func() runs.RankState {
		now, total := p.Group.Waits()
		return runs.RankState{Phase: p.Rank.Phase(), Waits: now, Waited: total.Seconds(), Steps: stepsSoFar()}
	})
	_, err = p.Rank.Sync(ranks.Point{Phase: "start", Facts: append(factsOf(job), settled...)})
	if err != nil {
		p.Group.Close()
	}
	return p, err
}

// ncclVariable is "off", or the path of the NCCL library; without it libtorch's is used.
const ncclVariable = "RCGRPO_NCCL"

func useNCCL(g *torch.Group, deviceName, library string) error {
	device, err := torch.ParseDevice(deviceName)
	if err != nil {
		return err
	}
	return g.UseNCCL(device, library)
}

// stepsSoFar returns a number that grows while this process computes, or writes and reads states.
func stepsSoFar() int64 { return torch.Steps() + resume.Steps() }

// factsOf returns the facts of a job that must be equal in all ranks.
func factsOf(job *engine.Job) []ranks.Fact {
	facts := []ranks.Fact{{Name: "build", Value: engine.Revision()}, {Name: "libtorch", Value: torch.Version()},
		{Name: "seed", Value: strconv.FormatInt(job.Seed, 10)}}
	for _, in := range job.InputDigests() {
		facts = append(facts, ranks.Fact{Name: "input " + in.Name, Value: in.Digest})
	}
	return facts
}

// Sync is a sync point of the ranks of a stage before they exchange data, with the error of this rank's work until
// then. It returns that error, or that of another rank. If the context of any rank has ended, it returns
// context.Canceled in all ranks; if any rank ran out of memory, torch.ErrOutOfMemory. With one rank it returns err.
func Sync(ctx context.Context, r *ranks.Rank, phase string, err error) error {
	if r.Count() == 1 {
		return err
	}
	p := ranks.Point{Phase: phase, OutOfMemory: errors.Is(err, torch.ErrOutOfMemory), Err: err,
		Stop: ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err()))}
	if p.Stop || p.OutOfMemory {
		p.Err = nil
	}
	switch p, failed := r.Sync(p); {
	case failed != nil:
		return failed
	case p.Stop:
		return context.Canceled
	case p.OutOfMemory && err == nil:
		return memoryOfAnother{}
	}
	return err
}

// memoryOfAnother reports that the device of another rank has run out of memory.
type memoryOfAnother struct{}

func (memoryOfAnother) Error() string { return "another rank: " + torch.ErrOutOfMemory.Error() }
func (memoryOfAnother) Unwrap() error { return torch.ErrOutOfMemory }

// Echo reports that the failure follows from that of another rank.
func (memoryOfAnother) Echo() bool { return true }
