package reports

import (
	"fmt"
	"hash/fnv"
	"math"
	"strings"
)

// Paired compares two conditions on the same tasks: B minus A. Tasks of one seed are paired; seeds are never pooled
// in a test, because task × seed outcomes of one method are not independent.
type Paired struct {
	A, B  string
	Seeds []SeedPair
	Mean  float64 // of the seed differences

	OverSeeds  Interval  // paired t; unknown below two seeds
	OverSeedsP float64   // its p-value; NaN below two seeds
	Families   Bootstrap // families resampled with all their tasks and seeds
	Detectable float64   // smallest difference these data would find

	Source       Source // of the outcomes; By is for the cell to say
	rowsA, rowsB string
}

const byMcNemar = "McNemar's exact test, each seed by itself"

// SeedPair is one seed's part of a Paired.
type SeedPair struct {
	Name          string
	N, PassedA    int
	PassedB       int
	OnlyA, OnlyB  int
	Difference, P float64
}

// compareRuns pairs the runs of two arms by seed (a run without seed stands beside every seed of the other) and their
// tasks by id. Tasks that only one side has are left out. ok is false when nothing could be paired.
func compareRuns(nameA string, a []Run, tokenA, nameB string, b []Run, tokenB, set string) (Paired, bool) {
	p := Paired{A: nameA, B: nameB, OverSeedsP: math.NaN()}
	left, right := scoresOf(a, "", set, tokenA, "", true), scoresOf(b, "", set, tokenB, "", true)
	p.Source, p.rowsA, p.rowsB = together("", left.Rows, left, right), left.Rows, right.Rows
	if p.rowsB != p.rowsA {
		p.Source.Rows += "; " + p.rowsB
	}
	var perSeed, perTask []float64
	var families []string
	for i := range a {
		for j := range b {
			x, y := &a[i], &b[j]
			if x.Seed != nil && y.Seed != nil && *x.Seed != *y.Seed {
				continue
			}
			left, right := x.greedy(set, tokenA), y.greedy(set, tokenB)
			seed := SeedPair{Name: y.Name()}
			if seed.Name == "" {
				seed.Name = x.Name()
			}
			for _, id := range sortedKeys(left) {
				other, ok := right[id]
				if !ok {
					continue
				}
				one := left[id]
				seed.N++
				difference := 0.0
				if one.passed {
					seed.PassedA++
					difference--
				}
				if other.passed {
					seed.PassedB++
					difference++
				}
				switch {
				case one.passed && !other.passed:
					seed.OnlyA++
				case other.passed && !one.passed:
					seed.OnlyB++
				}
				perTask, families = append(perTask, difference), append(families, one.family)
			}
			if seed.N == 0 {
				continue
			}
			seed.Difference = float64(seed.PassedB-seed.PassedA) / float64(seed.N)
			seed.P, _ = McNemar(seed.OnlyA, seed.OnlyB)
			p.Seeds = append(p.Seeds, seed)
			perSeed = append(perSeed, seed.Difference)
		}
	}
	if len(p.Seeds) == 0 {
		return p, false
	}
	p.Mean = Mean(perSeed)
	p.OverSeeds, p.OverSeedsP = TInterval(perSeed, Level), tTest(perSeed)
	p.Families = ClusterBootstrap(perTask, families, nameSeed(nameA+"\x00"+nameB+"\x00"+set), Replicates, Level)
	if len(perSeed) >= methodSeeds {
		p.Detectable = DetectableOverSeeds(perSeed)
	} else {
		first := p.Seeds[0]
		p.Detectable = DetectablePaired(first.N, float64(first.OnlyA+first.OnlyB)/float64(first.N))
	}
	return p, true
}

// methodSeeds is the number of seeds from which a page speaks about the method instead of these checkpoints.
const methodSeeds = 3

// tTest is the two-sided p-value of a mean of zero.
func tTest(values []float64) float64 {
	n := float64(len(values))
	if n < 2 {
		return math.NaN()
	}
	mean, sd := Mean(values), StandardDeviation(values)
	switch {
	case sd > 0:
		return twoSidedT(mean/(sd/math.Sqrt(n)), n-1)
	case mean == 0:
		return 1
	}
	return 0
}

// nameSeed makes the bootstrap's seed from what is compared, so that a page is the same each time.
func nameSeed(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}

// ps are the p-values that decide the comparison: one over seeds, or one per seed.
func (p *Paired) ps() []float64 {
	if len(p.Seeds) >= methodSeeds {
		return []float64{p.OverSeedsP}
	}
	var all []float64
	for _, s := range p.Seeds {
		all = append(all, s.P)
	}
	return all
}

// decide says which side is better, given the adjusted p-values of ps: +1 for B, -1 for A, 0 for not decided. With at
// least three seeds, the interval over seeds and the bootstrap over families must both exclude 0; with fewer, the
// exact test must reject in every seed, in one direction, and the claim is about these checkpoints only.
func (p *Paired) decide(adjusted []float64) int {
	sign := 1
	if p.Mean < 0 {
		sign = -1
	}
	for _, v := range adjusted {
		if !(v < 1-Level) {
			return 0
		}
	}
	if len(p.Seeds) >= methodSeeds {
		if !p.OverSeeds.Excludes(0) || !p.Families.Excludes(0) {
			return 0
		}
		return sign
	}
	for _, s := range p.Seeds {
		if s.Difference*float64(sign) <= 0 {
			return 0
		}
	}
	return sign
}

// decideAll decides the comparisons of one table, their p-values adjusted together (Holm).
func decideAll(pairs []Paired) (verdicts []int, adjusted [][]float64) {
	var all []float64
	for i := range pairs {
		all = append(all, pairs[i].ps()...)
	}
	all = Holm(all)
	for i := range pairs {
		n := len(pairs[i].ps())
		adjusted = append(adjusted, all[:n])
		verdicts = append(verdicts, pairs[i].decide(all[:n]))
		all = all[n:]
	}
	return verdicts, adjusted
}

// interval is the one shown beside the difference: over seeds where there are enough, over families otherwise.
func (p *Paired) interval() (Interval, string) {
	if len(p.Seeds) >= methodSeeds {
		return p.OverSeeds, "over seeds"
	}
	return p.Families.Interval, "over task families"
}

// side is the success of A or B, pooled over the seeds.
func (p *Paired) side(b bool) Cell {
	var counts, sizes []int
	for _, s := range p.Seeds {
		passed := s.PassedA
		if b {
			passed = s.PassedB
		}
		counts, sizes = append(counts, passed), append(sizes, s.N)
	}
	rows := p.rowsA
	if b {
		rows = p.rowsB
	}
	return pooledShare(counts, sizes).From(Source{From: p.Source.From, Rows: rows + ", tasks that both have", By: byReward})
}

// sentence answers the question for one pair.
func (p *Paired) sentence(verdict int) string {
	interval, over := p.interval()
	a, b := p.side(false), p.side(true)
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s (%s) against %s (%s) for %s: paired difference %s points, 95 %% interval %s %s",
		p.B, b.Text, fraction(b), a.Text, fraction(a), p.A, points(p.Mean), interval.points(), over)
	if len(p.Seeds) >= methodSeeds {
		fmt.Fprintf(&text, ", %s over task families", p.Families.Interval.points())
	}
	n := p.Seeds[0].N
	switch scope := fmt.Sprintf("n = %d, %s", n, plural(len(p.Seeds), "seed")); {
	case verdict == 0:
		reason := ""
		if interval.Excludes(0) && p.Families.Excludes(0) {
			reason = " once several comparisons are allowed for"
		}
		fmt.Fprintf(&text, "; not decided at %s%s%s.", scope, reason, p.detectable())
	default:
		better, what := p.B, "these two checkpoints differ"
		if verdict < 0 {
			better = p.A
		}
		if len(p.Seeds) >= methodSeeds {
			what = "the methods differ"
		} else if len(p.Seeds) > 1 {
			what = "these checkpoints differ in both seeds"
		}
		fmt.Fprintf(&text, "; %s is better at %s (%s).", better, scope, what)
	}
	return text.String()
}

// detectable says how large a difference would have had to be, where none was found.
func (p *Paired) detectable() string {
	if math.IsInf(p.Detectable, 0) || math.IsNaN(p.Detectable) {
		return " (too few tasks differ to find any effect)"
	}
	return fmt.Sprintf(" (smallest detectable effect %.1f points)", 100*p.Detectable)
}

func fraction(c Cell) string { return fmt.Sprintf("%d/%d", c.Count, c.Of) }

func plural(n int, noun string) string {
	if n == 1 {
		return "one " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// pooledShare is the share of successes among the episodes of all seeds together, with the Wilson interval of that
// many independent episodes.
func pooledShare(counts, sizes []int) Cell { return Share(sum(counts), sum(sizes)) }

// seedMean is the mean over seeds of their shares with its t-interval, cut to what a share can be; a dash below two
// seeds.
func seedMean(counts, sizes []int) Cell {
	var shares []float64
	for i := range counts {
		if sizes[i] > 0 {
			shares = append(shares, float64(counts[i])/float64(sizes[i]))
		}
	}
	if len(shares) < 2 {
		return Words("–")
	}
	mean, i := Mean(shares), TInterval(shares, Level)
	i.Low, i.High = math.Max(0, i.Low), math.Min(1, i.High)
	return Cell{Text: percent(mean), Detail: "t\u00a0" + i.percent(), Value: &mean, Interval: &i}
}
