package ranks

import (
	"errors"
	"fmt"
)

// Point is the state of a rank at a sync point. All ranks reach the same sync points in the same order.
type Point struct {
	Update int
	Phase  string // "rollout", "gradient"
	Facts  []Fact // of data that all ranks have; the same names in all ranks

	Stop        bool // the stage is to end after its state is saved
	OutOfMemory bool // the phase before ran out of the memory of this rank's device
	Err         error
}

// Fact is a value that must be equal in all ranks.
type Fact struct{ Name, Value string }

// PeerError is the failure of another rank.
type PeerError struct {
	Rank int
	Text string
}

// Echo marks the failure for the engine as a consequence of another rank's.
func (e *PeerError) Echo() bool { return true }

func (e *PeerError) Error() string { return fmt.Sprintf("rank %d: %s", e.Rank, e.Text) }

// Sync compares the points of all ranks. It returns an error if one has an error: its own, or that of the first
// rank with one, a *PeerError. It also fails if updates, phases or facts differ. Stop and OutOfMemory of the result
// are true if they are true in any rank.
func (r *Rank) Sync(p Point) (Point, error) {
	type message struct {
		Point Point
		Fail  bool
		Text  string // of the error
	}
	if r.Count() == 1 {
		return p, p.Err
	}
	r.phase.Store(&p.Phase)
	own := message{Point: p, Fail: p.Err != nil}
	if own.Fail {
		own.Text = p.Err.Error()
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
			return p, &PeerError{i, m.Text}
		}
	}
	for i := range all {
		m, first := all[i].Point, all[0].Point
		if m.Update != first.Update || m.Phase != first.Phase {
			return p, fmt.Errorf("rank %d is at update %d, %s, and rank 0 at update %d, %s", i, m.Update, m.Phase,
				first.Update, first.Phase)
		}
		for k, f := range m.Facts {
			if k >= len(first.Facts) || f != first.Facts[k] {
				return p, fmt.Errorf("the ranks differ: rank %d has %s, and rank 0 has %s", i, f, factAt(first.Facts, k))
			}
		}
		p.Stop, p.OutOfMemory = p.Stop || m.Stop, p.OutOfMemory || m.OutOfMemory
	}
	return p, nil
}

func (f Fact) String() string { return f.Name + " " + f.Value }

// factAt formats fact k, or returns "none".
func factAt(facts []Fact, k int) string {
	if k >= len(facts) {
		return "none"
	}
	return facts[k].String()
}
