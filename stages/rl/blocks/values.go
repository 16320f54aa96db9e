// Package blocks holds the blocks of settings that several kinds of stages share, with their checks.
//
//	Limits                    bounds of an episode
//	Schedule, Optimizer       learning rate and AdamW
//	Split, Arithmetic         micro-batches, precision
//	Effects                   settings without effect, by name
//	Mean, Quantile            of values
//
// Neighbours: rl and the kinds.
package blocks

// Quantile of ascending values, with linear interpolation between order statistics (h = (n-1) q); 0 without
// values.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	h := q * float64(len(sorted)-1)
	i := min(int(h), len(sorted)-1)
	if i+1 >= len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (h-float64(i))*(sorted[i+1]-sorted[i])
}

// Mean is 0 without values.
func Mean(values []float64) float64 {
	sum := 0.0
	for _, x := range values {
		sum += x
	}
	return sum / float64(max(1, len(values)))
}
