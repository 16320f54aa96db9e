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

// mean draws as many families as there are with replacement and returns the mean of their values.
func (s *splitMix) mean(of Sums) float64 {
	sum, size := 0.0, 0.0
	for range of.Sums {
		i := s.below(len(of.Sums))
		sum += of.Sums[i]
		size += of.Sizes[i]
	}
	return sum / size
}

// Sums holds the sum and the number of some values for each family.
type Sums struct{ Sums, Sizes []float64 }

// ByFamily sums values by family, in ascending order of the families' names.
func ByFamily(values []float64, family []string) Sums {
	names := slices.Compact(slices.Sorted(slices.Values(family)))
	s := Sums{make([]float64, len(names)), make([]float64, len(names))}
	for i, v := range values {
		at, _ := slices.BinarySearch(names, family[i])
		s.Sums[at] += v
		s.Sizes[at]++
	}
	return s
}

func sumsOf(families []Family) Sums {
	var s Sums
	for _, f := range families {
		s.Sums, s.Sizes = append(s.Sums, float64(f.Passed)), append(s.Sizes, float64(f.Episodes))
	}
	return s
}

func (s Sums) mean() float64 { return total(s.Sums) / total(s.Sizes) }

// Variance returns the cluster-robust variance of the mean of all values, with the correction F/(F-1) for F families.
// NaN below two families.
func (s Sums) Variance() float64 {
	families, n := float64(len(s.Sums)), total(s.Sizes)
	if families < 2 {
		return math.NaN()
	}
	mean, square := s.mean(), 0.0
	for i := range s.Sums {
		deviation := s.Sums[i] - mean*s.Sizes[i]
		square += deviation * deviation
	}
	return families / (families - 1) * square / (n * n)
}

// Bootstrap is the result of resampling a mean or a difference of means.
type Bootstrap struct {
	Mean float64 // of the data
	Interval
	Error      float64   // sample standard deviation of the replicates
	Replicates []float64 // in the order of the draws
	Families   int       // that were drawn
}

// ClusterBootstrap resamples families with all their values, because tasks of one family pass and fail together. The
// result is unknown without values.
func ClusterBootstrap(values Sums, seed uint64, replicates int, level float64) Bootstrap {
	random := splitMix{state: seed}
	return bootstrap(values.mean(), len(values.Sums), replicates, level, func() float64 { return random.mean(values) })
}

// UnpairedBootstrap resamples the families of each side separately and returns mean b minus mean a. Families counts
// both sides. The result is unknown if a side has no episodes.
func UnpairedBootstrap(a, b []Family, seed uint64, replicates int, level float64) Bootstrap {
	left, right, families := sumsOf(a), sumsOf(b), len(a)+len(b)
	if len(a) == 0 || len(b) == 0 {
		families = 0
	}
	random := splitMix{state: seed}
	return bootstrap(right.mean()-left.mean(), families, replicates, level, func() float64 {
		ofA := random.mean(left)
		return random.mean(right) - ofA
	})
}

func bootstrap(mean float64, families, replicates int, level float64, draw func() float64) Bootstrap {
	b := Bootstrap{Mean: mean, Interval: Unknown, Error: math.NaN(), Families: families}
	if families == 0 {
		return b
	}
	b.Replicates = make([]float64, replicates)
	for r := range b.Replicates {
		b.Replicates[r] = draw()
	}
	sorted := slices.Sorted(slices.Values(b.Replicates))
	b.Interval = Interval{quantile(sorted, (1-level)/2), quantile(sorted, (1+level)/2)}
	b.Error = StandardDeviation(b.Replicates)
	return b
}

// UniformInterval returns the interval of a mean difference if all families have the same value, where resampling
// would give a point. By Clopper and Pearson's bound, at most a share 1 - ((1-level)/2)^(1/families) of all families
// has another value, which is between -1 and 1.
func UniformInterval(value float64, families int, level float64) Interval {
	if families == 0 {
		return Unknown
	}
	others := 1 - math.Pow((1-level)/2, 1/float64(families))
	return Interval{value - others*(value+1), value + others*(1-value)}
}
