package reports

import (
	"math"
	"math/big"
)

// Interval is a range of plausible values at some confidence level.
type Interval struct{ Low, High float64 }

// Excludes says whether v lies outside the interval. An interval that is not a number excludes nothing.
func (i Interval) Excludes(v float64) bool { return v < i.Low || v > i.High }

// Known says whether the interval has two bounds.
func (i Interval) Known() bool { return !math.IsNaN(i.Low) && !math.IsNaN(i.High) }

// unknown is the interval of something that cannot be estimated.
var unknown = Interval{math.NaN(), math.NaN()}

// Wilson is the score interval of a proportion (Wilson 1927), without continuity correction. Unknown for n = 0.
func Wilson(successes, n int, level float64) Interval {
	if n <= 0 {
		return unknown
	}
	z := NormalQuantile(0.5 + level/2)
	size, p := float64(n), float64(successes)/float64(n)
	centre := (p + z*z/(2*size)) / (1 + z*z/size)
	half := z / (1 + z*z/size) * math.Sqrt(p*(1-p)/size+z*z/(4*size*size))
	i := Interval{centre - half, centre + half}
	if successes == 0 {
		i.Low = 0
	}
	if successes == n {
		i.High = 1
	}
	return i
}

// ClopperPearson is the exact interval of a proportion (Clopper and Pearson 1934). Unknown for n = 0.
func ClopperPearson(successes, n int, level float64) Interval {
	if n <= 0 {
		return unknown
	}
	tail := (1 - level) / 2
	k, size := float64(successes), float64(n)
	i := Interval{0, 1}
	if successes > 0 {
		i.Low = betaQuantile(tail, k, size-k+1)
	}
	if successes < n {
		// The mirrored tail keeps the digits of a bound close to 1.
		i.High = 1 - betaQuantile(tail, size-k, k+1)
	}
	return i
}

// McNemar compares two policies on the same tasks: onlyA tasks were passed by the first alone, onlyB by the second
// alone. It returns the two-sided exact p-value (both directions are equally likely under the null) and the mid-p
// variant, which counts the observed outcome half. Without discordant pairs both are 1.
func McNemar(onlyA, onlyB int) (p, midP float64) {
	n, k := onlyA+onlyB, min(onlyA, onlyB)
	if n == 0 {
		return 1, 1
	}
	// 2 Σ_{i<=k} C(n,i) / 2^n, exact until the last division.
	sum, term := new(big.Int), big.NewInt(1)
	for i := 0; ; i++ {
		sum.Add(sum, term)
		if i == k {
			break
		}
		term.Mul(term, big.NewInt(int64(n-i)))
		term.Quo(term, big.NewInt(int64(i+1)))
	}
	all := new(big.Int).Lsh(big.NewInt(1), uint(n))
	double := new(big.Int).Lsh(sum, 1)
	p = math.Min(1, quotient(double, all))
	midP = quotient(new(big.Int).Sub(double, term), all)
	return p, midP
}

// Fisher compares two independent proportions k1/n1 and k2/n2 by Fisher's exact test: two-sided (all tables that are
// no likelier than the one seen), and one-sided for k1/n1 being the smaller or the greater one.
func Fisher(k1, n1, k2, n2 int) (twoSided, less, greater float64) {
	total := k1 + k2
	low, high := max(0, total-n2), min(n1, total)
	weight := func(k int) *big.Int {
		a := new(big.Int).Binomial(int64(n1), int64(k))
		return a.Mul(a, new(big.Int).Binomial(int64(n2), int64(total-k)))
	}
	seen := weight(k1)
	all, both, below, above := new(big.Int), new(big.Int), new(big.Int), new(big.Int)
	for k := low; k <= high; k++ {
		w := weight(k)
		all.Add(all, w)
		if w.Cmp(seen) <= 0 {
			both.Add(both, w)
		}
		if k <= k1 {
			below.Add(below, w)
		}
		if k >= k1 {
			above.Add(above, w)
		}
	}
	return quotient(both, all), quotient(below, all), quotient(above, all)
}

func quotient(a, b *big.Int) float64 {
	f, _ := new(big.Rat).SetFrac(a, b).Float64()
	return f
}
