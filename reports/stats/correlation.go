package stats

import "math"

// Correlation describes the correlation of two series of one run.
type Correlation struct {
	Pearson float64
	P       float64 // p-value of Pearson, as if the n steps were independent (as in the paper)

	// NEff is the number of independent steps that carry the same information as two series with the lag-one
	// autocorrelations a and b, n(1-ab)/(1+ab), at most n (Bartlett 1935). PEff is Pearson's p-value with it.
	NEff, PEff float64
}

// Correlate computes the correlation of x and y, which have the same length. Coefficients and p-values are NaN below
// three values and for a constant series.
func Correlate(x, y []float64) Correlation {
	n, r, ab := float64(len(x)), pearson(x, y), lagOne(x)*lagOne(y)
	effective := math.Min(n, n*(1-ab)/(1+ab))
	return Correlation{Pearson: r, P: correlationP(r, n), NEff: effective, PEff: correlationP(r, effective)}
}

func pearson(x, y []float64) float64 {
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

// correlationP returns the two-sided p-value of a correlation r of n independent pairs. n may be fractional. NaN if
// n <= 2.
func correlationP(r, n float64) float64 {
	if math.IsNaN(r) || !(n > 2) {
		return math.NaN()
	}
	return regularizedBeta((1-r)*(1+r), n/2-1, 0.5)
}

// lagOne returns the autocorrelation at lag one. Both sums are divided by n.
func lagOne(x []float64) float64 {
	mean := Mean(x)
	var square, product float64
	for i, v := range x {
		square += (v - mean) * (v - mean)
		if i > 0 {
			product += (v - mean) * (x[i-1] - mean)
		}
	}
	return product / square
}
