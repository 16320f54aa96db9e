package reports

import (
	"cmp"
	"math"
	"slices"
)

// Mean of the values; NaN when there are none.
func Mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// StandardDeviation is the sample standard deviation (divided by n-1); NaN below two values.
func StandardDeviation(values []float64) float64 {
	if len(values) < 2 {
		return math.NaN()
	}
	mean, sum := Mean(values), 0.0
	for _, v := range values {
		sum += (v - mean) * (v - mean)
	}
	return math.Sqrt(sum / float64(len(values)-1))
}

// TInterval is the interval of the mean of independent values, such as one result per seed. Unknown below two
// values.
func TInterval(values []float64, level float64) Interval {
	n := float64(len(values))
	if n < 2 {
		return unknown
	}
	mean := Mean(values)
	half := TQuantile(0.5+level/2, n-1) * StandardDeviation(values) / math.Sqrt(n)
	return Interval{mean - half, mean + half}
}

// Quantile interpolates linearly between the order statistics of sorted values, at position (n-1)q.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	i := int(math.Floor(at))
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// Holm adjusts p-values for the number of comparisons made in one table (Holm 1979): reject where the result is at
// most the wanted level, and the chance of any false rejection stays below it. Order is kept; NaN stays NaN and does
// not count as a comparison.
func Holm(p []float64) []float64 {
	order := []int{}
	for i, v := range p {
		if !math.IsNaN(v) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[a], p[b]) })
	adjusted := slices.Clone(p)
	largest := 0.0
	for rank, i := range order {
		largest = math.Max(largest, math.Min(1, float64(len(order)-rank)*p[i]))
		adjusted[i] = largest
	}
	return adjusted
}

// The level of every test and interval on a page, and the power for which effects count as detectable.
const (
	Level = 0.95
	Power = 0.80
)

// DetectablePaired is the smallest difference of two proportions on the same n tasks that McNemar's test would find
// with the usual power, when a share discordant of the tasks is passed by exactly one policy (Connor 1987, normal
// approximation). A difference cannot exceed the discordant share; where even that would not be found, the share
// itself is too small for a decision and the result is +Inf.
func DetectablePaired(n int, discordant float64) float64 {
	if n <= 0 || discordant <= 0 {
		return math.Inf(1)
	}
	alpha, beta := NormalQuantile(0.5+Level/2), NormalQuantile(Power)
	needed := func(effect float64) float64 {
		root := alpha*math.Sqrt(discordant) + beta*math.Sqrt(discordant-effect*effect)
		return root * root / (effect * effect)
	}
	if needed(discordant) > float64(n) {
		return math.Inf(1)
	}
	low, high := 0.0, discordant
	for range 60 {
		if mid := (low + high) / 2; needed(mid) > float64(n) {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// DetectableOverSeeds is the smallest mean difference that a paired t-test over seeds would find with the usual
// power, given the differences seen (the noncentral t approximated by a shifted one). +Inf below two seeds.
func DetectableOverSeeds(differences []float64) float64 {
	n := float64(len(differences))
	if n < 2 {
		return math.Inf(1)
	}
	return (TQuantile(0.5+Level/2, n-1) + TQuantile(Power, n-1)) * StandardDeviation(differences) / math.Sqrt(n)
}
