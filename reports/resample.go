package reports

import (
	"math"
	"slices"
)

// Replicates is the number of resamplings behind every bootstrap interval on a page.
const Replicates = 2000

// splitMix is the SplitMix64 generator: its outputs depend on the seed and the position alone, so that every
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

// Bootstrap is the outcome of resampling a mean difference.
type Bootstrap struct {
	Mean float64 // of the data themselves
	Interval
	Error      float64   // sample standard deviation of the replicates
	Replicates []float64 // in the order drawn
	Units      int       // tasks or families that were drawn
}

// PairedBootstrap resamples tasks: differences holds one value per task, first policy minus second.
func PairedBootstrap(differences []float64, seed uint64, replicates int, level float64) Bootstrap {
	return resample(differences, ones(len(differences)), seed, replicates, level)
}

// ClusterBootstrap resamples families with all their members, because tasks of one family succeed and fail
// together: family names the cluster of each difference. Clusters are drawn in ascending order of their names.
func ClusterBootstrap(differences []float64, family []string, seed uint64, replicates int, level float64) Bootstrap {
	sums, sizes := byFamily(differences, family)
	return resample(sums, sizes, seed, replicates, level)
}

// byFamily sums values by family, in ascending order of the families' names.
func byFamily(values []float64, family []string) (sums, sizes []float64) {
	names := slices.Compact(slices.Sorted(slices.Values(family)))
	sums, sizes = make([]float64, len(names)), make([]float64, len(names))
	for i, v := range values {
		at, _ := slices.BinarySearch(names, family[i])
		sums[at] += v
		sizes[at]++
	}
	return sums, sizes
}

// sides are the sums of a value and the numbers of its observations by family, of two sets of tasks.
type sides struct{ sumsA, sizesA, sumsB, sizesB []float64 }

// UnpairedBootstrap resamples the families of each side by themselves and returns mean B minus mean A. Units counts the
// families of both sides.
func (s sides) UnpairedBootstrap(seed uint64, replicates int, level float64) Bootstrap {
	b := Bootstrap{Mean: math.NaN(), Interval: unknown, Error: math.NaN(), Units: len(s.sumsA) + len(s.sumsB)}
	if len(s.sumsA) == 0 || len(s.sumsB) == 0 {
		return b
	}
	b.Mean = total(s.sumsB)/total(s.sizesB) - total(s.sumsA)/total(s.sizesA)
	random := splitMix{state: seed}
	b.Replicates = make([]float64, replicates)
	for r := range b.Replicates {
		a := random.mean(s.sumsA, s.sizesA)
		b.Replicates[r] = random.mean(s.sumsB, s.sizesB) - a
	}
	b.summarise(level)
	return b
}

// uniform is the interval of a mean difference whose families all show the same value, where resampling would give a
// point. By Clopper and Pearson's bound at most a share 1 - ((1-level)/2)^(1/families) of all families shows another
// value, which lies between -1 and 1.
func uniform(value float64, families int, level float64) Interval {
	if families == 0 {
		return unknown
	}
	others := ClopperPearson(0, families, level).High
	return Interval{value - others*(value+1), value + others*(1-value)}
}

// resample draws len(sums) units with replacement per replicate; the statistic is the drawn sum over the drawn size.
func resample(sums, sizes []float64, seed uint64, replicates int, level float64) Bootstrap {
	n := len(sums)
	b := Bootstrap{Mean: math.NaN(), Interval: unknown, Error: math.NaN(), Units: n}
	if n == 0 {
		return b
	}
	b.Mean = total(sums) / total(sizes)
	random := splitMix{state: seed}
	b.Replicates = make([]float64, replicates)
	for r := range b.Replicates {
		b.Replicates[r] = random.mean(sums, sizes)
	}
	b.summarise(level)
	return b
}

// mean draws as many units as there are with replacement and returns their sum over their size.
func (s *splitMix) mean(sums, sizes []float64) float64 {
	sum, size := 0.0, 0.0
	for range sums {
		i := s.below(len(sums))
		sum += sums[i]
		size += sizes[i]
	}
	return sum / size
}

// summarise computes interval and error from the replicates.
func (b *Bootstrap) summarise(level float64) {
	sorted := slices.Sorted(slices.Values(b.Replicates))
	b.Interval = Interval{Quantile(sorted, (1-level)/2), Quantile(sorted, (1+level)/2)}
	b.Error = StandardDeviation(b.Replicates)
}

func total(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum
}

func ones(n int) []float64 {
	values := make([]float64, n)
	for i := range values {
		values[i] = 1
	}
	return values
}
