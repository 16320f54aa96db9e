package ranks

import (
	"errors"
	"fmt"
)

// Point is the state of a rank at a sync point. All ranks reach the same sync points in the same order.
type Point struct {
	Update int
	Phase  string // "rollout", "gradient"
	Digest string // of data that all ranks hold; "" compares none

	Stop        bool // the stage is to end after its state is saved
	OutOfMemory bool // the phase before ran out of the memory of this rank's device
	Err         error
}

// PeerError is the failure of another rank.
type PeerError struct {
	Rank int
	Text string
}

func (e *PeerError) Error() string { return fmt.Sprintf("rank %d: %s", e.Rank, e.Text) }

// Sync compares the points of all ranks. It returns an error if one has an error: its own, or that of the first
// rank with one, a *PeerError. It also fails if updates, phases or digests differ. Stop and OutOfMemory of the result
// are true if they are true in any rank.
func (r *Rank) Sync(p Point) (Point, error) {
	type message struct {
		Point
		Err  string // in place of the embedded one
		Fail bool
	}
	own := message{Point: p, Fail: p.Err != nil}
	if own.Fail {
		own.Err = p.Err.Error()
	}
	own.Point.Err = nil
	all, err := ShareValues(r, own)
	switch {
	case err != nil:
		return p, errors.Join(p.Err, err)
	case p.Err != nil:
		return p, p.Err
	}
	for i, m := range all {
		if m.Fail {
			return p, &PeerError{i, m.Err}
		}
	}
	for i, m := range all {
		first := all[0]
		if m.Update != first.Update || m.Phase != first.Phase {
			return p, fmt.Errorf("rank %d is at update %d, %s, and rank 0 at update %d, %s", i, m.Update, m.Phase,
				first.Update, first.Phase)
		}
		if m.Digest != first.Digest {
			return p, fmt.Errorf("update %d, %s: rank %d has %s, and rank 0 has %s", p.Update, p.Phase, i, m.Digest,
				first.Digest)
		}
		p.Stop, p.OutOfMemory = p.Stop || m.Stop, p.OutOfMemory || m.OutOfMemory
	}
	return p, nil
}
