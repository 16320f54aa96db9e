package stats

import (
	"math"
	"slices"
)

// Replicates is the number of resamplings behind every bootstrap interval on a page.
const Replicates = 2000

// splitMix is the SplitMix64 generator. Its outputs depend on the seed and the position alone, so that every
// implementation draws the same resamples.
type splitMix struct{ state uint64 }

func (s *splitMix) below(n int) int {
	s.state += 0x9E3779B97F4A7C15
	z := s.state
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	z ^= z >> 31
	return int((z >> 32) * uint64(n) >> 32)
}

// resample draws as many families as there are with replacement and returns the mean of their values.
func (s *splitMix) resample(families []Family) float64 {
	var drawn Family
	for range families {
		f := families[s.below(len(families))]
		drawn = Family{drawn.Sum + f.Sum, drawn.N + f.N}
	}
	return drawn.Mean()
}

// Family holds the sum and the number of the values of one task family: its passed episodes, or differences of tasks.
type Family struct{ Sum, N float64 }

// ByFamily sums values by family, in ascending order of the families' names.
func ByFamily(values []float64, family []string) []Family {
	names := slices.Compact(slices.Sorted(slices.Values(family)))
	families := make([]Family, len(names))
	for i, v := range values {
		at, _ := slices.BinarySearch(names, family[i])
		families[at].Sum += v
		families[at].N++
	}
	return families
}

// Pooled adds up the families.
func Pooled(families []Family) (all Family) {
	for _, f := range families {
		all = Family{all.Sum + f.Sum, all.N + f.N}
	}
	return all
}

// Mean returns the mean of the values, NaN without values.
func (f Family) Mean() float64 { return f.Sum / f.N }

// Variance returns the cluster-robust variance of the mean of all values, with the correction F/(F-1) for F families.
// NaN below two families.
func Variance(families []Family) float64 {
	count := float64(len(families))
	if count < 2 {
		return math.NaN()
	}
	all, square := Pooled(families), 0.0
	for _, f := range families {
		deviation := f.Sum - all.Mean()*f.N
		square += deviation * deviation
	}
	return count / (count - 1) * square / (all.N * all.N)
}

// Bootstrap is the result of resampling a mean or a difference of means.
type Bootstrap struct {
	Mean float64 // mean of the data
	Interval
	Replicates []float64 // results in the order of the draws
	Families   int       // number of families that were drawn
}

// ClusterBootstrap resamples families with all their values, because tasks of one family pass and fail together. The
// result is unknown without values.
func ClusterBootstrap(families []Family, seed uint64, replicates int, level float64) Bootstrap {
	b := Bootstrap{Mean: Pooled(families).Mean(), Interval: Unknown, Families: len(families)}
	random := splitMix{state: seed}
	if len(families) > 0 {
		b.draw(replicates, level, func() float64 { return random.resample(families) })
	}
	return b
}

// UnpairedBootstrap resamples the families of each side separately and returns mean b minus mean a. Families counts
// both sides. Both sides have episodes.
func UnpairedBootstrap(a, b []Family, seed uint64, replicates int, level float64) Bootstrap {
	both := Bootstrap{Mean: Pooled(b).Mean() - Pooled(a).Mean(), Families: len(a) + len(b)}
	random := splitMix{state: seed}
	both.draw(replicates, level, func() float64 {
		ofA := random.resample(a)
		return random.resample(b) - ofA
	})
	return both
}

func (b *Bootstrap) draw(replicates int, level float64, mean func() float64) {
	b.Replicates = make([]float64, replicates)
	for r := range b.Replicates {
		b.Replicates[r] = mean()
	}
	sorted := slices.Sorted(slices.Values(b.Replicates))
	b.Interval = Interval{quantile(sorted, (1-level)/2), quantile(sorted, (1+level)/2)}
}

// UniformInterval returns the interval of a mean difference if all families have the same value, where resampling
// would give a point. By Clopper and Pearson's bound, at most a share 1 - ((1-level)/2)^(1/families) of all families
// has another value, which is between -1 and 1.
func UniformInterval(value float64, families int, level float64) Interval {
	others := 1 - math.Pow((1-level)/2, 1/float64(families))
	return Interval{value - others*(value+1), value + others*(1-value)}
}
