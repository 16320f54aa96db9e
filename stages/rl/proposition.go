package rl

import (
	"math"
	"slices"
)

// Kappa is the factor of Proposition 2: a group of size G whose tokens are drawn with probability p has expected reward
// variance at least Kappa times the square of the gap between the tokens.
func Kappa(group int, p float64) float64 {
	return float64(group-1) / float64(group) * p * (1 - p)
}

// StayProbability is the chance that a group of size G repeats one trajectory exactly, so that its advantages vanish
// (Proposition 1): the product of the trajectory's step probabilities, to the power G.
func StayProbability(steps []float64, group int) float64 {
	log := 0.0
	for _, p := range steps {
		log += math.Log(p)
	}
	return math.Exp(float64(group) * log)
}

// StayBounds are Proposition 1's lower bounds of StayProbability for a policy that leaves its greedy action with
// probability at most eps in each of T steps: exp(-G T eps), and its linear form, which may be negative.
func StayBounds(group, steps int, eps float64) (exponential, linear float64) {
	x := float64(group) * float64(steps) * eps
	return math.Exp(-x), 1 - x
}

// Mixture is a group of 0/1 rewards whose members succeed with probability High or Low, by their reward token.
type Mixture struct {
	Allocation string // of tokens: AllocationIID or AllocationStratified
	Group      int
	P          float64 // probability of the high token
	High, Low  float64 // success probabilities
}

// tokens is the distribution of the number of high tokens in a group [G+1].
func (m Mixture) tokens() []float64 { return tokenCounts(m.Allocation, m.Group, m.P) }

func tokenCounts(allocation string, group int, p float64) []float64 {
	if allocation == AllocationStratified {
		d := make([]float64, group+1)
		d[int(math.Floor(p*float64(group)+0.5))] = 1
		return d
	}
	return binomial(group, p)
}

// Successes is the distribution of the number of successes in a group [G+1].
func (m Mixture) Successes() []float64 {
	out := make([]float64, m.Group+1)
	for h, weight := range m.tokens() {
		if weight == 0 {
			continue
		}
		a, b := binomial(h, m.High), binomial(m.Group-h, m.Low)
		for i := range a {
			for j := range b {
				out[i+j] += weight * a[i] * b[j]
			}
		}
	}
	return out
}

// SingleToken is the probability that all members have the same token.
func (m Mixture) SingleToken() float64 {
	d := m.tokens()
	return d[0] + d[m.Group]
}

// GroupVariance is the expected population variance of the rewards of a group.
func (m Mixture) GroupVariance() float64 {
	sum := 0.0
	for k, weight := range m.Successes() {
		mean := float64(k) / float64(m.Group)
		sum += weight * mean * (1 - mean)
	}
	return sum
}

// Bound is Proposition 2's lower bound of GroupVariance, which it states for iid tokens.
func (m Mixture) Bound() float64 {
	gap := m.High - m.Low
	return Kappa(m.Group, m.P) * gap * gap
}

// SpreadBatch is the expected largest minus smallest advantage over a batch of independent groups, with deviations of
// ddof 0 or 1 and eps 1e-6.
func (m Mixture) SpreadBatch(groups, ddof int) float64 {
	a := Advantage{Baseline: "group_mean", Scale: "group_std", DDOF: ddof, Eps: 1e-6}
	top, bottom := make([]float64, m.Group+1), make([]float64, m.Group+1)
	for k := range top {
		rewards := make([]float64, m.Group)
		for i := range k {
			rewards[i] = 1
		}
		adv := a.Of(make([]int, m.Group), rewards, nil)
		top[k], bottom[k] = slices.Max(adv), -slices.Min(adv)
	}
	d := m.Successes()
	return expectedMax(top, d, groups) + expectedMax(bottom, d, groups)
}

// expectedMax is the expected largest of n independent draws from values with probabilities d.
func expectedMax(values, d []float64, n int) float64 {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return compare(values[a], values[b]) })
	sum, below, share := 0.0, 0.0, 0.0
	for _, k := range order {
		share += d[k]
		upTo := math.Pow(min(share, 1), float64(n))
		sum += values[k] * (upTo - below)
		below = upTo
	}
	return sum
}

// binomial is the distribution of the number of successes in n trials [n+1].
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

// TaskSample counts the successes of a small sampling run on one task, by reward token. A run without tokens counts all
// as High.
type TaskSample struct {
	High, HighRight int // episodes, and how many of them had reward 1
	Low, LowRight   int
}

// Forecast is an estimate of the share of groups without variance, made before any update (Proposition 1 made
// predictive).
type Forecast struct {
	ZeroVariance float64   // expected share, AllRight + AllWrong
	AllRight     float64   // of groups that are all right
	AllWrong     float64   // of groups that are all wrong
	PerTask      []float64 // estimate of P(all rewards equal) of each task used; single ones may be far off
	Left         int       // tasks left out, because they have fewer samples than the group needs
}

// ForecastZeroVariance estimates the share of groups whose rewards will all be equal, for groups of a size whose tokens
// are allocated with probability p (p = 1: no low token). The estimate of each task is unbiased: the chance that h
// episodes drawn without replacement from its high ones, and the rest from its low ones, are all right or all wrong,
// averaged over the number h of high tokens. It needs as many samples of each token as a group may have members with it.
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
			right += w * allDrawn(s.High, s.HighRight, h) * allDrawn(s.Low, s.LowRight, group-h)
			wrong += w * allDrawn(s.High, s.High-s.HighRight, h) * allDrawn(s.Low, s.Low-s.LowRight, group-h)
		}
		if !enough {
			f.Left++
			continue
		}
		f.PerTask = append(f.PerTask, right+wrong)
		f.AllRight += right
		f.AllWrong += wrong
	}
	if n := float64(len(f.PerTask)); n > 0 {
		f.AllRight /= n
		f.AllWrong /= n
	}
	f.ZeroVariance = f.AllRight + f.AllWrong
	return f
}

// allDrawn is the probability that h draws without replacement from n items, k of them marked, are all marked.
func allDrawn(n, k, h int) float64 {
	out := 1.0
	for i := range h {
		if k-i <= 0 {
			return 0
		}
		out *= float64(k-i) / float64(n-i)
	}
	return out
}

// Band is the interval that holds the measured share of an update with a probability of 95 %, for groups of tasks drawn
// afresh from the same tasks' population: the variance of the estimate (between tasks, over their number) plus that of
// a share of the groups.
func (f Forecast) Band(groups int) (low, high float64) {
	q := min(max(f.ZeroVariance, 0), 1)
	variance := q*(1-q)/float64(groups) + sampleVariance(f.PerTask)/float64(max(1, len(f.PerTask)))
	half := 1.959963984540054 * math.Sqrt(variance)
	return max(0, q-half), min(1, q+half)
}
