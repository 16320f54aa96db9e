package objective

import (
	"math"

	"rcgrpo/stages/rl"
)

// Kappa returns the factor of Proposition 2: a group of size G whose tokens are drawn with probability p has an
// expected reward variance of at least Kappa times the squared gap between the tokens.
func Kappa(group int, p float64) float64 {
	return float64(group-1) / float64(group) * p * (1 - p)
}

// tokenCounts returns the distribution of the number of high tokens in a group [G+1].
func tokenCounts(allocation string, group int, p float64) []float64 {
	if allocation == rl.AllocationStratified {
		d := make([]float64, group+1)
		d[int(math.Floor(p*float64(group)+0.5))] = 1
		return d
	}
	return binomial(group, p)
}

// binomial returns the distribution of the number of successes in n trials [n+1].
func binomial(n int, p float64) []float64 {
	d := make([]float64, n+1)
	d[0] = 1
	for range n {
		for k := n; k >= 0; k-- {
			d[k] *= 1 - p
			if k > 0 {
				d[k] += p * d[k-1]
			}
		}
	}
	return d
}

// TaskSample counts the successes of a small sampling run on one task, by reward token. Without tokens all
// episodes count as High.
type TaskSample struct {
	High, HighRight int // episodes, and those with reward 1
	Low, LowRight   int
}

// Forecast is an estimate of the share of groups without variance before any update (Proposition 1).
type Forecast struct {
	ZeroVariance float64   // expected share, AllRight + AllWrong
	AllRight     float64   // share of groups with only reward 1
	AllWrong     float64   // share of groups with only reward 0
	PerTask      []float64 // estimate of P(all rewards equal) of each task; noisy
}

// ForecastZeroVariance estimates the share of groups whose rewards will all be equal, for groups of a size whose
// tokens are drawn with probability p (p = 1: no low token). The estimate of each task is unbiased: the
// probability that h episodes drawn without replacement from its high ones, and the rest from its low ones, are
// all right or all wrong, averaged over the number h of high tokens. It requires as many samples of each token as
// a group may have members with it, and omits tasks with fewer.
func ForecastZeroVariance(samples []TaskSample, allocation string, group int, p float64) Forecast {
	var f Forecast
	weights := tokenCounts(allocation, group, p)
	for _, s := range samples {
		right, wrong, enough := 0.0, 0.0, true
		for h, w := range weights {
			if w == 0 {
				continue
			}
			if h > s.High || group-h > s.Low {
				enough = false
				break
			}
			right += w * rl.AllDrawn(s.High, s.HighRight, h) * rl.AllDrawn(s.Low, s.LowRight, group-h)
			wrong += w * rl.AllDrawn(s.High, s.High-s.HighRight, h) * rl.AllDrawn(s.Low, s.Low-s.LowRight, group-h)
		}
		if enough {
			f.PerTask = append(f.PerTask, right+wrong)
			f.AllRight += right
			f.AllWrong += wrong
		}
	}
	if n := float64(len(f.PerTask)); n > 0 {
		f.AllRight /= n
		f.AllWrong /= n
	}
	f.ZeroVariance = f.AllRight + f.AllWrong
	return f
}

// Band returns the interval that contains the measured share of an update with a probability of 95 %, for groups
// of tasks from the same population. Its variance is that of the estimate (between tasks, over their number) plus
// that of a share of the groups.
func (f Forecast) Band(groups int) (low, high float64) {
	q := min(max(f.ZeroVariance, 0), 1)
	variance := q*(1-q)/float64(groups) + sampleVariance(f.PerTask)/float64(max(1, len(f.PerTask)))
	half := 1.959963984540054 * math.Sqrt(variance)
	return max(0, q-half), min(1, q+half)
}
