package stats

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/mathext"
)

// Mean returns the mean of the values, NaN without values. The sum runs in order, so that a page has the same digits on
// every machine.
func Mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// standardDeviation returns the sample standard deviation (divided by n-1), NaN below two values.
func standardDeviation(values []float64) float64 {
	if len(values) < 2 {
		return math.NaN()
	}
	mean, sum := Mean(values), 0.0
	for _, v := range values {
		sum += (v - mean) * (v - mean)
	}
	return math.Sqrt(sum / float64(len(values)-1))
}

// MeanError returns the variance of the mean of independent values and its degrees of freedom.
func MeanError(values []float64) (variance, df float64) {
	n, deviation := float64(len(values)), standardDeviation(values)
	return deviation * deviation / n, n - 1
}

// TInterval returns the t-interval of the mean of independent values, such as one result per seed. Unknown below two
// values, and if all values are equal: a spread that was not observed is not 0.
func TInterval(values []float64, level float64) Interval {
	n := float64(len(values))
	if n < 2 || slices.Min(values) == slices.Max(values) {
		return Unknown
	}
	mean := Mean(values)
	half := tQuantile(0.5+level/2, n-1) * standardDeviation(values) / math.Sqrt(n)
	return Interval{mean - half, mean + half}
}

// TTest returns the two-sided p-value of an estimate against 0, given its variance and degrees of freedom. NaN if no
// variance was observed, because then the error is unknown.
func TTest(estimate, variance, df float64) float64 {
	if !(variance > 0) {
		return math.NaN()
	}
	t := estimate / math.Sqrt(variance)
	return regularizedBeta(df/(df+t*t), df/2, 0.5)
}

// Welch returns the interval and the two-sided p-value of mean b minus mean a, given the variances of both means and
// their degrees of freedom (Welch 1947, with Satterthwaite's degrees of freedom). Unknown if no variance was observed.
func Welch(difference, varianceA, dfA, varianceB, dfB, level float64) (Interval, float64) {
	variance := varianceA + varianceB
	if !(variance > 0) {
		return Unknown, math.NaN()
	}
	df := variance * variance / (varianceA*varianceA/dfA + varianceB*varianceB/dfB)
	half := tQuantile(0.5+level/2, df) * math.Sqrt(variance)
	return Interval{difference - half, difference + half}, TTest(difference, variance, df)
}

// Holm adjusts p-values for the number of comparisons (Holm 1979): if each adjusted value is rejected at a level, the
// probability of any false rejection stays below that level. The order is kept. NaN stays NaN and does not count.
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

// quantile interpolates linearly between the order statistics of sorted values, at index (n-1)q.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(math.Floor(at))
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// tQuantile returns the t with P(T <= t) = p >= 0.5 for Student's distribution. The degrees of freedom may be
// fractional.
func tQuantile(p, df float64) float64 {
	// With x = df/(df+t²) the upper tail is I_x(df/2, 1/2)/2. If x is close to 1, t² = df(1-x)/x loses digits, so the
	// mirrored function is solved for y = 1-x.
	tail := 2 * (1 - p)
	if y := mathext.InvRegIncBeta(0.5, df/2, 1-tail); y < 0.5 {
		return math.Sqrt(df * y / (1 - y))
	}
	x := mathext.InvRegIncBeta(df/2, 0.5, tail)
	return math.Sqrt(df * (1 - x) / x)
}

// regularizedBeta returns I_x(a, b); NaN if x is NaN.
func regularizedBeta(x, a, b float64) float64 {
	if math.IsNaN(x) {
		return x
	}
	return mathext.RegIncBeta(a, b, math.Max(0, math.Min(1, x)))
}

// Detectable returns the smallest effect that a two-sided test detects with a power, given an interval of an estimate
// with the same variance and df degrees of freedom (+Inf: normal). The test rejects at 1 - level. The standard error
// is half the width of the interval over its quantile. The effect is (quantile + quantile of the power) standard
// errors, which approximates the noncentral t-distribution. NaN for an unknown interval.
func Detectable(i Interval, df, level, power float64) float64 {
	quantile := func(p float64) float64 {
		if math.IsInf(df, 1) {
			return math.Sqrt2 * math.Erfinv(2*p-1)
		}
		return tQuantile(p, df)
	}
	q := quantile((1 + level) / 2)
	return (i.High - i.Low) / 2 * (q + quantile(power)) / q
}
