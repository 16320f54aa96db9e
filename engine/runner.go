package engine

import (
	"context"
	"time"
)

// Runner is a stage that this binary can run. Tensor kinds implement it only under the build tag libtorch; a Stage that
// is not a Runner is started in the torch binary.
type Runner interface {
	Run(ctx context.Context, job *Job) error
}

// EndedUnchanged returns the only event of a run that changes nothing, given the verdict.
func EndedUnchanged(v *Verdict) Event {
	counts := map[string]int{}
	for verb, n := range v.Counts {
		counts[string(verb)] = n
	}
	return Event{Time: time.Now(), Kind: EventEnded, Counts: counts}
}
