package engine

import (
	"context"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
)

// Runner is a stage that this binary can run. Tensor kinds implement it only under the build tag libtorch; a Stage that
// is not a Runner is started in the torch binary.
type Runner interface {
	Run(ctx context.Context, job *Job) error
}

// EndedUnchanged returns the only event of a run that changes nothing, given the verdict.
func EndedUnchanged(v *plan.Verdict) runs.Event {
	counts := map[string]int{}
	for verb, n := range v.Counts {
		counts[string(verb)] = n
	}
	return runs.Event{Time: time.Now(), Kind: runs.EventEnded, Counts: counts}
}

// Shorter is a result that differs from the requested one only in a smaller value of the setting named by
// Kind.Length. A stage that resumes from it produces the same bytes as one that starts from the beginning.
type Shorter struct {
	Length int    // the setting's value
	State  string // the folder that was its Job.State
	Key    string // key of the result

	open func(port string) (*artifact.Artifact, error)
}

// Open opens one of its ports.
func (s *Shorter) Open(port string) (*artifact.Artifact, error) { return s.open(port) }

// Shorter returns the longest result from which the stage can resume, or nil.
func (j *Job) Shorter() *Shorter { return j.shorter }

// State returns an empty folder for the state from which a longer run of this stage can resume. No digest includes
// it, and gc evicts it first.
func (j *Job) State() (dir string, err error) { return j.state() }
