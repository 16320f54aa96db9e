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

// TInterval is the interval of the mean of independent values, such as one result per seed. Unknown below two values, and
// where all values are equal: a spread that was not seen is not known to be 0.
func TInterval(values []float64, level float64) Interval {
	n := float64(len(values))
	if n < 2 || slices.Min(values) == slices.Max(values) {
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

// Level of every test and interval on a page.
const Level = 0.95

// meanVariance is the cluster-robust variance of the mean total(sums)/total(sizes), each unit being a cluster, with the
// correction F/(F-1) for F units. NaN below two units.
func meanVariance(sums, sizes []float64) float64 {
	units, n := float64(len(sums)), total(sizes)
	if units < 2 {
		return math.NaN()
	}
	mean, square := total(sums)/n, 0.0
	for i := range sums {
		deviation := sums[i] - mean*sizes[i]
		square += deviation * deviation
	}
	return units / (units - 1) * square / (n * n)
}

// tTest is the two-sided p-value of an estimate against 0, given its variance and degrees of freedom. NaN where no
// variance was seen, because then nothing is known about the error.
func tTest(estimate, variance, df float64) float64 {
	if !(variance > 0) {
		return math.NaN()
	}
	return twoSidedT(estimate/math.Sqrt(variance), df)
}

// welch is the interval and the two-sided p-value of mean b minus mean a, from the variances of the means and their degrees
// of freedom (Welch 1947, with Satterthwaite's degrees of freedom). Unknown where no variance was seen.
func welch(difference, varianceA, dfA, varianceB, dfB, level float64) (Interval, float64) {
	variance := varianceA + varianceB
	if !(variance > 0) {
		return unknown, math.NaN()
	}
	df := variance * variance / (varianceA*varianceA/dfA + varianceB*varianceB/dfB)
	half := TQuantile(0.5+level/2, df) * math.Sqrt(variance)
	return Interval{difference - half, difference + half}, tTest(difference, variance, df)
}
