package rl

// SamplingPasses and TrainingPasses estimate the computation for one token before anything has run. The unit is one
// forward pass of the token through the policy. The numbers follow from the shares of an update in docs/performance.md
// ("Of an update of the 0.57 M model").
const (
	SamplingPasses = 1.3 // to sample the token
	TrainingPasses = 3.6 // to learn from it: forward, backward and its share of the optimizer step
)
