package stats

import (
	"math"
	"math/big"

	"gonum.org/v1/gonum/mathext"
)

// Level is the confidence level of every interval on a page. Tests decide at 1 - Level.
const Level = 0.95

// Interval is a confidence interval.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Unknown is the interval of a value that cannot be estimated.
var Unknown = Interval{math.NaN(), math.NaN()}

// Excludes reports whether v is outside the interval. An unknown interval excludes nothing.
func (i Interval) Excludes(v float64) bool { return v < i.Low || v > i.High }

// Known reports whether the interval has two bounds.
func (i Interval) Known() bool { return !math.IsNaN(i.Low) && !math.IsNaN(i.High) }

// Wilson returns the score interval of a proportion (Wilson 1927), without continuity correction. Unknown for n = 0.
func Wilson(successes, n int, level float64) Interval {
	if n <= 0 {
		return Unknown
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

// scoreInterval returns Wilson's interval of a share p of size episodes. The size may be fractional.
func scoreInterval(p, size, level float64) Interval {
	z := mathext.NormalQuantile(0.5 + level/2)
	centre := (p + z*z/(2*size)) / (1 + z*z/size)
	half := z / (1 + z*z/size) * math.Sqrt(p*(1-p)/size+z*z/(4*size*size))
	return Interval{centre - half, centre + half}
}

// ClusteredWilson returns Wilson's interval of the pooled share of episodes that are grouped in families.
//
// Episodes of one family pass and fail together, so n of them carry less information than n independent episodes.
// Therefore n is divided by the design effect (the cluster-robust variance of the share over the variance of
// independent episodes) and corrected for few families as in Korn and Graubard (1998). The effective number is at most
// n, and it is n if every family has one episode. If all episodes pass or all fail, the similarity within a family is
// unknown, and each family counts as one episode.
//
// Unknown without episodes, and if a single family has both outcomes.
func ClusteredWilson(families []Family, level float64) Interval {
	all, count := Pooled(families), len(families)
	switch {
	case all.N == 0:
		return Unknown
	case all.Sum == 0:
		return Wilson(0, count, level)
	case all.Sum == all.N:
		return Wilson(count, count, level)
	case count < 2:
		return Unknown
	}
	share := all.Mean()
	independent := share * (1 - share) / (all.N - 1)
	few := tQuantile(0.5+level/2, all.N-1) / tQuantile(0.5+level/2, float64(count-1))
	effective := all.N * independent / Variance(families) * few * few
	return scoreInterval(share, math.Min(effective, all.N), level)
}

// Newcombe returns the hybrid score interval of the difference b - a of two independent shares (Newcombe 1998,
// method 10), given the interval of each share.
func Newcombe(a float64, ofA Interval, b float64, ofB Interval) Interval {
	return Interval{
		b - a - math.Hypot(b-ofB.Low, ofA.High-a),
		b - a + math.Hypot(ofB.High-b, a-ofA.Low),
	}
}

// McNemar returns the two-sided exact p-value of two policies on the same tasks: onlyA tasks were passed by the first
// policy alone, onlyB by the second alone. Without such tasks it is 1.
func McNemar(onlyA, onlyB int) float64 {
	n := onlyA + onlyB
	if n == 0 {
		return 1
	}
	// 2 Σ_{i<=k} C(n,i) / 2^n, exact until the division.
	sum := new(big.Int)
	for i := range min(onlyA, onlyB) + 1 {
		sum.Add(sum, new(big.Int).Binomial(int64(n), int64(i)))
	}
	return math.Min(1, quotient(sum, new(big.Int).Lsh(big.NewInt(1), uint(n-1))))
}

// Fisher returns the two-sided p-value of Fisher's exact test of two independent proportions k1/n1 and k2/n2: the
// probability of all tables that are at most as likely as the observed one.
func Fisher(k1, n1, k2, n2 int) float64 {
	total := k1 + k2
	weight := func(k int) *big.Int {
		a := new(big.Int).Binomial(int64(n1), int64(k))
		return a.Mul(a, new(big.Int).Binomial(int64(n2), int64(total-k)))
	}
	observed, all, unlikely := weight(k1), new(big.Int), new(big.Int)
	for k := max(0, total-n2); k <= min(n1, total); k++ {
		w := weight(k)
		all.Add(all, w)
		if w.Cmp(observed) <= 0 {
			unlikely.Add(unlikely, w)
		}
	}
	return quotient(unlikely, all)
}

func quotient(a, b *big.Int) float64 {
	f, _ := new(big.Rat).SetFrac(a, b).Float64()
	return f
}
