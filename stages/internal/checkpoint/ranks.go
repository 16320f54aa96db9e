//go:build libtorch

package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rcgrpo/engine"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/ranks"
	"rcgrpo/stages/internal/torch"
)

// arrival is the time within which all ranks of a stage have to start.
const arrival = 2 * time.Minute

// Join connects the ranks of a job, or returns no peers for a job of one process. settled describes what must be equal
// in all ranks. Close the group.
func Join(job *engine.Job, settled string) (p lm.Peers, err error) {
	if job.Ranks <= 1 {
		return p, nil
	}
	p.Group, err = torch.JoinFile(job.Rendezvous, job.Rank, job.Ranks, torch.Loopback, arrival)
	if err != nil {
		return p, err
	}
	p.Rank = ranks.New(job.Rank, job.Ranks, p.Group)
	_, err = p.Rank.Sync(ranks.Point{Phase: "start", Digest: fmt.Sprintf("build %s, seed %d, %s", engine.Revision(),
		job.Seed, settled)})
	if err != nil {
		p.Group.Close()
	}
	return p, err
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
		return fmt.Errorf("another rank: %w", torch.ErrOutOfMemory)
	}
	return err
}
