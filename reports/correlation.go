package reports

import (
	"cmp"
	"math"
	"slices"
)

// Correlation says how two series of one run go together.
type Correlation struct {
	N        int
	Pearson  float64
	P        float64 // of Pearson, as if the n steps were independent (the paper's way)
	Spearman float64
	// SpearmanP is its p-value by the t approximation.
	SpearmanP float64

	Lag1X, Lag1Y float64 // lag-one autocorrelations
	// NEff is the number of independent steps that two series with these lag-one autocorrelations are worth,
	// n(1-ab)/(1+ab), at most n (Bartlett 1935); PEff is Pearson's p-value with it.
	NEff, PEff float64
	// NEffSum uses all positive autocorrelations up to lag n/4 instead of the first; Lags is how many entered.
	NEffSum, PEffSum float64
	Lags             int
}

// Correlate computes the correlation of x and y, which have the same length. Below three values, and for a constant
// series, coefficients and p-values are NaN.
func Correlate(x, y []float64) Correlation {
	n := float64(len(x))
	c := Correlation{N: len(x), Pearson: pearson(x, y), Spearman: pearson(ranks(x), ranks(y))}
	c.P, c.SpearmanP = correlationP(c.Pearson, n), correlationP(c.Spearman, n)
	c.Lag1X, c.Lag1Y = autocorrelation(x, 1), autocorrelation(y, 1)
	ab := c.Lag1X * c.Lag1Y
	c.NEff = math.Min(n, n*(1-ab)/(1+ab))
	c.PEff = correlationP(c.Pearson, c.NEff)

	sum := 0.0
	for k := 1; k <= len(x)/4; k++ {
		a, b := autocorrelation(x, k), autocorrelation(y, k)
		if !(a > 0 && b > 0) {
			break
		}
		sum += (1 - float64(k)/n) * a * b
		c.Lags = k
	}
	c.NEffSum = n / (1 + 2*sum)
	c.PEffSum = correlationP(c.Pearson, c.NEffSum)
	return c
}

func pearson(x, y []float64) float64 {
	if len(x) < 2 {
		return math.NaN()
	}
	mx, my := Mean(x), Mean(y)
	var xx, yy, xy float64
	for i := range x {
		dx, dy := x[i]-mx, y[i]-my
		xx += dx * dx
		yy += dy * dy
		xy += dx * dy
	}
	if xx == 0 || yy == 0 {
		return math.NaN()
	}
	return math.Max(-1, math.Min(1, xy/math.Sqrt(xx*yy)))
}

// correlationP is the two-sided p-value of a correlation r of n independent pairs; n need not be whole. NaN where
// n <= 2 leaves nothing to test.
func correlationP(r, n float64) float64 {
	if math.IsNaN(r) || !(n > 2) {
		return math.NaN()
	}
	return betaCDF((1-r)*(1+r), n/2-1, 0.5)
}

// autocorrelation at a lag, both sums divided by n (so that the estimates fall towards 0 with the lag).
func autocorrelation(x []float64, lag int) float64 {
	mean := Mean(x)
	var square, product float64
	for i, v := range x {
		square += (v - mean) * (v - mean)
		if i >= lag {
			product += (v - mean) * (x[i-lag] - mean)
		}
	}
	return product / square
}

// ranks are 1-based; equal values share the mean of their ranks.
func ranks(values []float64) []float64 {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	result := make([]float64, len(values))
	for from := 0; from < len(order); {
		to := from + 1
		for to < len(order) && values[order[to]] == values[order[from]] {
			to++
		}
		for _, i := range order[from:to] {
			result[i] = float64(from+to+1) / 2
		}
		from = to
	}
	return result
}
