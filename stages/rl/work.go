package rl

// Work on a token in passes of it forward through the policy, for estimates of time before anything has run. The
// numbers follow from the shares of an update in docs/performance.md ("Of an update of the 0.57 M model").
const (
	SamplingPasses = 1.3
	TrainingPasses = 3.6 // forward, backward and the optimizer's share
)
