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

// ifKnown is the interval, or nil where it is unknown.
func (i Interval) ifKnown() *Interval {
	if !i.Known() {
		return nil
	}
	return &i
}

// unknown is the interval of something that cannot be estimated.
var unknown = Interval{math.NaN(), math.NaN()}

// Wilson is the score interval of a proportion (Wilson 1927), without continuity correction. Unknown for n = 0.
func Wilson(successes, n int, level float64) Interval {
	if n <= 0 {
		return unknown
	}
	i := scoreInterval(float64(successes)/float64(n), float64(n), level)
	if successes == 0 {
		i.Low = 0
	}
	if successes == n {
		i.High = 1
	}
	return i
}

// scoreInterval is Wilson's interval of a share p of size episodes; size need not be whole.
func scoreInterval(p, size, level float64) Interval {
	z := NormalQuantile(0.5 + level/2)
	centre := (p + z*z/(2*size)) / (1 + z*z/size)
	half := z / (1 + z*z/size) * math.Sqrt(p*(1-p)/size+z*z/(4*size*size))
	return Interval{centre - half, centre + half}
}

// Family counts the episodes of one task family.
type Family struct{ Passed, Episodes int }

// ClusteredWilson is Wilson's interval of the pooled share of episodes that come in families. Episodes of one family pass
// and fail together, so n of them carry less information than n independent ones: n is divided by the design effect, the
// cluster-robust variance of the share over that of independent episodes, and corrected for few families as Korn and
// Graubard (1998) do. The effective number is at most n; it is n where every family has one episode. Where all episodes
// pass or all fail, they do not show how alike families are, and a family counts as one episode.
//
// Unknown without episodes, and where a single family has both outcomes.
func ClusteredWilson(families []Family, level float64) Interval {
	var passed, n int
	for _, f := range families {
		passed, n = passed+f.Passed, n+f.Episodes
	}
	count := len(families)
	switch {
	case n == 0:
		return unknown
	case passed == 0:
		return Wilson(0, count, level)
	case passed == n:
		return Wilson(count, count, level)
	case count < 2:
		return unknown
	}
	share := float64(passed) / float64(n)
	independent := share * (1 - share) / float64(n-1)
	few := TQuantile(0.5+level/2, float64(n-1)) / TQuantile(0.5+level/2, float64(count-1))
	effective := float64(n) * independent / clusteredVariance(families) * few * few
	return scoreInterval(share, math.Min(effective, float64(n)), level)
}

// clusteredVariance is the cluster-robust variance of the pooled share, with the correction F/(F-1) for F families.
func clusteredVariance(families []Family) float64 {
	sums, sizes := make([]float64, len(families)), make([]float64, len(families))
	for i, f := range families {
		sums[i], sizes[i] = float64(f.Passed), float64(f.Episodes)
	}
	return meanVariance(sums, sizes)
}

// Newcombe is the hybrid score interval of the difference b - a of two independent shares (Newcombe 1998, method 10), from
// the interval of each.
func Newcombe(a float64, of Interval, b float64, with Interval) Interval {
	return Interval{
		b - a - math.Hypot(b-with.Low, of.High-a),
		b - a + math.Hypot(with.High-b, a-of.Low),
	}
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
