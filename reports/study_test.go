package reports

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
	"rcgrpo/reports/page"
	"rcgrpo/reports/stats"
	"rcgrpo/stages/rl"
)

// close12 compares with a value that is known to 15 digits.
func close12(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= 1e-12*math.Max(1, math.Abs(want))) {
		t.Errorf("%s: got %.16g, want %.16g", what, got, want)
	}
}

// equal reports a value that differs from the wanted one.
func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %q, want %q", what, fmt.Sprint(got), fmt.Sprint(want))
	}
}

// heads returns the names of the columns.
func heads(table *page.Table) (names []string) {
	for _, c := range table.Columns {
		names = append(names, c.Name)
	}
	return names
}

// scored makes a run whose tasks pass where the text has a 1; every two neighbours are a family.
func scored(seed int64, passes string) SeedRun {
	r := SeedRun{Seed: &seed}
	for i, c := range passes {
		r.Rows = append(r.Rows, Row{rl.Score{Task: fmt.Sprint(i), Family: fmt.Sprint(i / 2), Category: "base",
			Greedy: true, Reward: float64(c - '0'), Official: c == '1'}, fmt.Sprintf("stage.eval.x@%d.scores", seed)})
	}
	return r
}

// of is one side of a contrast.
func of(runs ...SeedRun) episodes { return (&Arm{Label: "arm", Runs: runs}).under("", "", true) }

func TestPairedDifferencesByHand(t *testing.T) {
	a := of(scored(1, "1100"), scored(2, "1000"))
	b := of(scored(1, "1011"), scored(2, "1111"), scored(3, "1111")) // seed 3 has no partner
	c := compareEvaluations(a, b, Comparison{})
	if c == nil || len(c.Pairs) != 2 {
		t.Fatalf("got %+v, want two pairs", c)
	}
	// Seed 1: 2 against 3 of 4, one task lost, two won. Seed 2: 1 against 4, three won.
	one, two := c.Pairs[0], c.Pairs[1]
	if one.OnlyA != 1 || one.OnlyB != 2 || one.Difference != 0.25 || one.P != 1 {
		t.Errorf("seed 1: got %+v", one)
	}
	if two.OnlyA != 0 || two.OnlyB != 3 || two.Difference != 0.75 || two.P != 0.25 { // 2/2³
		t.Errorf("seed 2: got %+v", two)
	}
	if c.Mean != 0.5 || c.Families.Mean != 0.5 || c.Families.Families != 2 {
		t.Errorf("got mean %v, over families %v of %d, want 0.5, 0.5 of 2", c.Mean, c.Families.Mean, c.Families.Families)
	}
}

func TestARunWithoutSeedMatchesEverySeed(t *testing.T) {
	base := scored(0, "1000")
	base.Seed = nil
	c := compareEvaluations(of(base), of(scored(1, "1100"), scored(2, "1110")), Comparison{})
	if c == nil || len(c.Pairs) != 2 || c.Mean != 0.375 || c.PoliciesA != 1 || c.PoliciesB != 2 {
		t.Errorf("got %+v", c)
	}
	if c.CellA.Of != 4 || c.CellB.Of != 8 { // the base's episodes count once
		t.Errorf("got %d and %d episodes, want 4 and 8", c.CellA.Of, c.CellB.Of)
	}
}

// trainedOnce makes runs that evaluate one policy with several seeds.
func trainedOnce(policy string, passes ...string) []SeedRun {
	var runs []SeedRun
	for i, p := range passes {
		run := scored(int64(i+1), p)
		run.Policy = policy
		runs = append(runs, run)
	}
	return runs
}

// renumbered moves the tasks and families of a run, so that each seed has a draw of its own.
func renumbered(r SeedRun, by int) SeedRun {
	r.Rows = slices.Clone(r.Rows)
	for i := range r.Rows {
		r.Rows[i].Task, r.Rows[i].Family = fmt.Sprint(by+i), fmt.Sprint((by+i)/2)
	}
	return r
}

func TestPoliciesAreCountedByDigestAndNotBySeed(t *testing.T) {
	passes := []string{strings.Repeat("10", 20), strings.Repeat("11", 20), strings.Repeat("0111", 10)}
	failing := strings.Repeat("0", 40)
	once, thrice := trainedOnce("one digest", passes...),
		[]SeedRun{scored(1, failing), scored(2, failing), scored(3, "1"+failing[1:])}
	for i := range once {
		once[i], thrice[i] = renumbered(once[i], 100*i), renumbered(thrice[i], 100*i)
	}
	s := &Study{
		Arms:    []Arm{{Label: "thrice", Runs: thrice}, {Label: "once", Runs: once}},
		Compare: []Comparison{{Label: "x", Pairs: [][]string{{"thrice", "once"}}}},
	}
	table := s.mainTable("")
	if got := table.Rows[0].Cells[2].Text; got == "–" {
		t.Errorf("three policies have no mean over seeds")
	}
	equal(t, "one policy on three draws of tasks", table.Rows[1].Cells[2].Text, "–")
	if got := table.Rows[1].Cells[1]; got.Count != 90 || got.Of != 120 {
		t.Errorf("one policy on three draws of tasks: got %d/%d, want 90/120", got.Count, got.Of)
	}
	c := s.decided("")[0]
	if c.method() || c.OverSeeds.Known() || c.PoliciesB != 1 {
		t.Errorf("one policy against three: got the interval over seeds %v of %d policies, want none", c.OverSeeds,
			c.PoliciesB)
	}
	if c.Decided != 1 || c.about() != "these policies" {
		t.Errorf("got verdict %d about %s, want 1 about these policies", c.Decided, c.about())
	}
	if facts := strings.Join(s.limits(), " ") + s.runLine(); !strings.Contains(facts,
		"once (one policy, 3 evaluations)") ||
		!strings.Contains(facts, "40 test tasks per evaluation (120 different ones)") {
		t.Errorf("got facts %q", facts)
	}
	var rows []string
	for _, row := range s.seedTable("").Rows {
		rows = append(rows, row.Cells[0].Text+", "+row.Cells[1].Text)
	}
	equal(t, "rows", rows, []string{"thrice, seed 1", "thrice, seed 2", "thrice, seed 3", "thrice, mean",
		"once, seeds 1, 2, 3"})
	// The same digests on the other side make three policies, and then there is a claim about the method.
	for i := range once {
		s.Arms[1].Runs[i].Policy = fmt.Sprint("digest ", i)
	}
	if c := s.decided("")[0]; !c.method() || c.PoliciesB != 3 {
		t.Errorf("three policies on either side: got %d and no interval over seeds", c.PoliciesB)
	}
}

func TestGreedyEpisodesOfOnePolicyAndTaskCountOnce(t *testing.T) {
	s := &Study{Arms: []Arm{{Label: "once", Runs: trainedOnce("d", "1100", "1100", "1100")}}}
	if got := s.mainTable("").Rows[0].Cells[1]; got.Count != 2 || got.Of != 4 {
		t.Errorf("one policy on the same tasks with three seeds: got %d/%d, want 2/4", got.Count, got.Of)
	}
}

func TestDecisionsRequireEveryPairOrBothIntervals(t *testing.T) {
	won, lost := strings.Repeat("01", 20), strings.Repeat("00", 20)
	mixed := strings.Repeat("0010", 10)
	for name, tc := range map[string]struct {
		a, b   []string
		want   int
		method bool
	}{
		"one seed, twenty tasks won":           {[]string{lost}, []string{won}, 1, false},
		"one seed, twenty tasks lost":          {[]string{won}, []string{lost}, -1, false},
		"one seed, nothing differs":            {[]string{won}, []string{won}, 0, false},
		"two seeds, only one of them decided":  {[]string{lost, lost}, []string{won, lost}, 0, false},
		"two seeds, in opposite directions":    {[]string{lost, won}, []string{won, lost}, 0, false},
		"three seeds, always better":           {[]string{lost, lost, lost}, []string{won, won, mixed}, 1, true},
		"three seeds, the mean is one of them": {[]string{lost, lost, lost}, []string{won, lost, lost}, 0, true},
		// no spread: nothing about the method
		"three seeds, one difference": {[]string{lost, lost, lost}, []string{won, won, won}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			runs := func(all []string) (r []SeedRun) {
				for i, passes := range all {
					r = append(r, scored(int64(i), passes))
				}
				return r
			}
			c := compareEvaluations(of(runs(tc.a)...), of(runs(tc.b)...), Comparison{})
			judge([]*Contrast{c})
			if c.Decided != tc.want || c.method() != tc.method {
				t.Errorf("got verdict %d, method %v, want %d, %v (%+v, over seeds %v, over families %v)", c.Decided, c.method(),
					tc.want, tc.method, c.Pairs, c.OverSeeds, c.Families.Interval)
			}
		})
	}
}

// Thirty families of ten tasks that pass and fail together: McNemar's test, which takes 300 tasks as independent,
// rejects, but three families were won and none was lost.
func TestAVerdictAboutCheckpointsRequiresTheFamilies(t *testing.T) {
	a, b := scored(1, strings.Repeat("0", 300)), scored(1, strings.Repeat("1", 30)+strings.Repeat("0", 270))
	for i := range a.Rows {
		a.Rows[i].Family, b.Rows[i].Family = fmt.Sprint(i/10), fmt.Sprint(i/10)
	}
	c := compareEvaluations(of(a), of(b), Comparison{})
	if judge([]*Contrast{c}); c.Pairs[0].P > 1e-8 || c.Decided != 0 {
		t.Errorf("got p = %v, families %v and verdict %d, want a tiny p, an interval that contains 0 and no verdict",
			c.Pairs[0].P, c.Families.Interval, c.Decided)
	}
}

// Sides of different tasks: 12 of 40 against 25 of 40. Fisher's p is scipy 1.17.1's, fisher_exact([[12, 28], [25,
// 15]]).
func TestDifferentTasksAreComparedUnpaired(t *testing.T) {
	a, b := scored(1, strings.Repeat("1", 12)+strings.Repeat("0", 28)),
		scored(1, strings.Repeat("1", 25)+strings.Repeat("0", 15))
	b = renumbered(b, 1000)
	b.Rows[0].Task = "0" // one task in common
	for i := range a.Rows {
		a.Rows[i].Family, b.Rows[i].Family = fmt.Sprint(i), fmt.Sprint(1000+i)
	}
	s := &Study{Arms: []Arm{{Label: "a", Runs: []SeedRun{a}}, {Label: "b", Runs: []SeedRun{b}}},
		Compare: []Comparison{{Label: "split", Pairs: [][]string{{"a", "b"}}}}}
	err := s.check()
	if err == nil {
		t.Fatal("a paired comparison that loses 39 of 40 tasks is no error")
	}
	must.Contain(t, err.Error(), `"split"`, "39 of 40 tasks", "unpaired = true", "more than a tenth")
	s.Compare[0].Unpaired = true
	if err := s.check(); err != nil {
		t.Errorf("an unpaired comparison: %v", err)
	}
	c := s.decided("")[0]
	close12(t, "Fisher", c.Pairs[0].P, 0.006745915282824635)
	close12(t, "difference", c.Mean, 13.0/40)
	want := stats.Newcombe(12.0/40, stats.Wilson(12, 40, stats.Level), 25.0/40, stats.Wilson(25, 40, stats.Level))
	close12(t, "Newcombe, low", c.Newcombe.Low, want.Low)
	close12(t, "Newcombe, high", c.Newcombe.High, want.High)
	if c.Decided != 1 || c.Families.Families != 80 || !c.Families.Excludes(0) ||
		!strings.Contains(c.about(), "policies") {
		t.Errorf("got verdict %d with families %v of %d", c.Decided, c.Families.Interval, c.Families.Families)
	}
	pairs := pairTable(s.claims(""), "")
	if row := pairs.Rows[0]; row.Cells[8].Text != "Fisher's exact test" || row.Cells[3].Text != "–" {
		t.Errorf("got %+v, want Fisher's test without paired tasks", row)
	}
	// Without compare blocks the report decides by the tasks.
	s.Compare = nil
	if got := s.comparisons(); len(got) != 1 || !got[0].Unpaired {
		t.Errorf("arms with different tasks and no compare block: got %+v, want them unpaired", got)
	}
}

func TestLosingATenthOfTheTasksIsNoError(t *testing.T) {
	ten := strings.Repeat("1", 10)
	for n, ok := range map[int]bool{10: true, 9: true, 8: false} {
		s := &Study{Arms: []Arm{{Label: "a", Runs: []SeedRun{scored(1, ten)}},
			{Label: "b", Runs: []SeedRun{scored(1, ten[:n])}}},
			Compare: []Comparison{{Label: "x", Pairs: [][]string{{"b", "a"}}}}}
		if err := s.check(); (err == nil) != ok {
			t.Errorf("%d of 10 tasks have a partner: got %v, want an error: %v", n, err, !ok)
		}
	}
}

func TestTokensOnDifferentTasksAreAnError(t *testing.T) {
	run := scored(1, "10")
	for i := range run.Rows {
		run.Rows[i].Token = []string{rl.TokenHigh, rl.TokenLow}[i]
	}
	s := &Study{Arms: []Arm{{Label: "a", Runs: []SeedRun{run}}}}
	must.Match(t, s.check(), "under the other token")
}

func TestThreePoliciesPerSideAreComparedByWelchWhereTasksDiffer(t *testing.T) {
	share := func(seed int64, passed, by int) SeedRun {
		return renumbered(scored(seed, strings.Repeat("1", passed)+strings.Repeat("0", 100-passed)), by)
	}
	a := of(share(1, 61, 0), share(2, 64, 0), share(3, 58, 0))
	b := of(share(1, 70, 1000), share(2, 72, 1000), share(3, 69, 1000), share(4, 75, 1000))
	c := compareEvaluations(a, b, Comparison{Unpaired: true})
	close12(t, "p", c.OverSeedsP, 0.00808931623218704) // as in TestWelchAndClusteredTEqualScipy
	close12(t, "low", c.OverSeeds.Low, 0.04499224384242018)
	close12(t, "mean", c.Mean, 0.105)
}

// Two comparisons of one set with two tests each, and one test that both make: three tests are adjusted together. By
// hand: only the seed with 9 against 0 tasks has p = 2/2⁹; Holm multiplies it by 3.
func TestAllTestsOfASetAreAdjustedTogether(t *testing.T) {
	none, nine, three := strings.Repeat("0", 40), strings.Repeat("10", 9)+strings.Repeat("0", 22),
		strings.Repeat("10", 3)+strings.Repeat("0", 34)
	arm := func(label, passes string) Arm { return Arm{Label: label, Runs: []SeedRun{scored(1, passes)}} }
	s := &Study{Arms: []Arm{arm("a", none), arm("b", nine), arm("c", three), arm("d", none)}, Compare: []Comparison{
		{Label: "one", Pairs: [][]string{{"a", "b"}, {"a", "c"}}},
		{Label: "two", Pairs: [][]string{{"a", "b"}, {"a", "d"}}},
	}}
	all := s.decided("")
	if len(all) != 3 || all[0].Tests != 3 {
		t.Fatalf("got %d contrasts adjusted over %d tests, want 3 over 3", len(all), all[0].Tests)
	}
	close12(t, "adjusted", all[0].Adjusted, 3*2/math.Pow(2, 9))
	answer := s.answers()[0].String()
	if !strings.HasPrefix(answer, "Success: Higher. b raises success: 22.5 points higher than a (") ||
		!strings.HasSuffix(answer, "). These two policies.") {
		t.Errorf("got the answer %q about one policy per side", answer)
	}
	claims := s.claims("")
	table := s.claimTable(claims, "")
	if len(table.Rows) != 3 || table.Rows[0].Cells[8].Text != "one; two" || table.Rows[0].Cells[7].Text != "0.012" {
		t.Errorf("got %+v, want three rows, the first of both comparisons with p = 0.012", table.Rows)
	}
	if notes := strings.Join(table.Notes, " "); !strings.Contains(notes, "all tested claims of this table (3)") {
		t.Errorf("got notes %q, want the number of claims", notes)
	}
	first := pairTable(claims, "").Rows[0].Cells
	if first[2].Text != "seed 1" || first[4].Text != "0" || first[5].Text != "9" || first[7].Text != "0.004" {
		t.Errorf("got %+v, want McNemar's test of 0 against 9 tasks, p = 2/2⁹", first)
	}
}

// logging makes a training that logs the values of a metric.
func logging(seed int64, metric string, values ...float64) SeedRun {
	r := SeedRun{Seed: &seed, CurveFrom: fmt.Sprintf("stage.grpo.x@%d.metrics", seed)}
	for i, v := range values {
		r.Curve = append(r.Curve, rl.Metric{Update: i + 1, Values: map[string]float64{metric: v}})
	}
	return r
}

// The late window of two updates is 0.5, 0.6 and 0.4 on the one side, 0.4, 0.45 and 0.28 on the other: differences
// −0.10, −0.15 and −0.12. Their t-interval is −0.1233 ± 4.30265·0.0251661/√3, p = 0.0135 (scipy 1.17.1, ttest_1samp).
func TestTheAnswerNamesEveryExpectation(t *testing.T) {
	plain := []SeedRun{logging(1, "zero_variance", 0.9, 0.5, 0.5), logging(2, "zero_variance", 0.9, 0.6, 0.6),
		logging(3, "zero_variance", 0.9, 0.4, 0.4)}
	token := []SeedRun{logging(1, "zero_variance", 0.1, 0.4, 0.4), logging(2, "zero_variance", 0.1, 0.45, 0.45),
		logging(3, "zero_variance", 0.1, 0.28, 0.28)}
	for i, passes := range [][2]string{{"11110000", "11000000"}, {"11111000", "11000000"}, {"11110000", "10000000"}} {
		for side, runs := range [][]SeedRun{plain, token} {
			runs[i].Rows = scored(int64(i+1), strings.Repeat(passes[side], 10)).Rows
		}
	}
	s := &Study{Windows: Windows{Early: 1, Late: 2}, Arms: []Arm{{Label: "SFT + GRPO", Runs: plain},
		{Label: "RCTP-FT + RC-GRPO", Runs: token}},
		Compare: []Comparison{
			{Label: "the method", Pairs: [][]string{{"SFT + GRPO", "RCTP-FT + RC-GRPO"}}, Expect: "higher"},
			{Label: "other", Pairs: [][]string{{"RCTP-FT + RC-GRPO", "SFT + GRPO"}}},
			{Label: "the method", Pairs: [][]string{{"SFT + GRPO", "RCTP-FT + RC-GRPO"}}, Outcome: "zero_variance",
				Expect: "lower"},
		}}
	want := []string{"Success: The opposite. RCTP-FT + RC-GRPO lowers success: 33.3 points lower than SFT + GRPO " +
		"(15.4 to 51.3). 3 seeds.",
		"Groups without variance: Yes. RCTP-FT + RC-GRPO lowers the share of groups without variance: 12.3 points lower " +
			"than SFT + GRPO (6.1 to 18.6). 3 seeds."}
	var got []string
	for _, a := range s.answers() {
		got = append(got, strings.ReplaceAll(a.String(), "\u00a0", " "))
	}
	equal(t, "one answer for each expectation", got, want)
	for _, c := range s.decided("") { // three claims: success twice, in both directions, and training
		if !c.ofTraining() {
			continue
		}
		if math.Abs(c.OverSeedsP-0.0135) > 5e-4 || c.Tests != 3 || c.Adjusted < c.OverSeedsP {
			t.Errorf("got p = %v, adjusted %v over %d claims, want 0.0135, adjusted over 3", c.OverSeedsP, c.Adjusted, c.Tests)
		}
	}
}

func TestTrainingsOfDifferentLengthsAreComparedAtTheSameUpdates(t *testing.T) {
	long, short := logging(1, "reward", 0.1, 0.2, 0.3, 0.4, 0.5, 0.6), logging(2, "reward", 0.7, 0.8, 0.9)
	short.Seed = long.Seed
	s := &Study{Windows: Windows{Early: 1, Late: 1}, Arms: []Arm{{Label: "long", Runs: []SeedRun{long}},
		{Label: "short", Runs: []SeedRun{short}}}}
	var got []string
	for _, row := range s.lateTable().Rows {
		got = append(got, row.Cells[0].Text+" "+row.Cells[1].Text+" "+row.Cells[2].Text)
	}
	equal(t, "rows", got, []string{"long 6 0.600", "long 3 0.300", "short 3 0.900"})
	c := compareTraining(&s.Arms[0], &s.Arms[1], s.Windows, Comparison{Outcome: "reward"})
	close12(t, "difference", c.Mean, 0.9-0.3)
	// The long arm's row of the short window depends on the short training.
	if from := s.lateTable().Rows[1].Cells[2].Source.From; !slices.Contains(from, short.CurveFrom) {
		t.Errorf("got sources %q, want the shorter training among them", from)
	}
}

// Gap 0.3 with standard error 0.1, p = 1/2 and G = 5: the bound is 0.2·(0.09 − 0.01) = 0.016 where the plain square
// gives 0.018. The log has σ² = 0.1 and prop2_excess = 0.1 − 0.016.
func TestProposition2IsDrawnWithoutTheNoiseOfTheGap(t *testing.T) {
	run := SeedRun{Seed: seedOf(1), CurveFrom: "x", Curve: []rl.Metric{{Update: 1,
		Values: map[string]float64{"sigma2": 0.1, "token_gap": 0.3, "token_gap_se": 0.1, "prop2_bound": 0.018,
			"prop2_excess": 0.084}}}}
	s := &Study{Arms: []Arm{{Label: "a", Runs: []SeedRun{run}}}}
	at := slices.IndexFunc(curveFigures, func(f curveFigure) bool { return f.id == "variance" })
	data := curveFigures[at].figure(s).CSV()
	if len(data) != 2 || data[1][1] != "0.1" || data[1][2] != "0.016" {
		t.Errorf("got %q, want measured 0.1 and bound 0.016", data)
	}
}

// High and low pass the same tasks for every seed: nothing differs in 20 families, which excludes gaps above
// 1 − 0.025^(1/20) = 16.8 points and nothing smaller.
func TestAGapOfZeroHasAnInterval(t *testing.T) {
	var runs []SeedRun
	for seed := range int64(3) {
		run := scored(seed, strings.Repeat("01", 20))
		for _, row := range run.Rows {
			row.Token = rl.TokenLow
			run.Rows = append(run.Rows, row)
		}
		for i := range 40 {
			run.Rows[i].Token = rl.TokenHigh
		}
		runs = append(runs, run)
	}
	s := &Study{Arms: []Arm{{Label: "a", Runs: runs}}}
	cell := s.gapTable("").Rows[0].Cells[4]
	got := strings.ReplaceAll(cell.Text, "\u00a0", " ")
	if got != "−16.8 to +16.8" || cell.Detail != "over task families" {
		t.Errorf("got %q %q, want −16.8 to +16.8 over task families", got, cell.Detail)
	}
}

// One sampled episode per task before and after training, three seeds: the contrast has a row and a test.
func TestSampledSuccessIsCompared(t *testing.T) {
	before, after := strings.Repeat("1000", 10), strings.Repeat("1101", 10)
	s := &Study{
		Arms: []Arm{{Label: "RCTP-FT", Runs: []SeedRun{scored(1, before), scored(2, before), scored(3, "0"+before[1:])}},
			{Label: "RCTP-FT + GRPO", Runs: []SeedRun{scored(1, after), scored(2, after), scored(3, after)}}},
		Compare: []Comparison{{Label: "RL", Pairs: [][]string{{"RCTP-FT", "RCTP-FT + GRPO"}}, Outcome: OutcomeSampled}},
	}
	for row := range s.scores {
		row.Greedy = false
	}
	c := s.decided("")[0]
	// Differences 20/40, 20/40 and 21/40: mean 61/120, sd 0.025/√3, t = 61/120 / (0.025/3) = 61 with two degrees of
	// freedom, whose p is 1 − 61/√(61² + 2).
	close12(t, "mean", c.Mean, 61.0/120)
	if math.Abs(c.OverSeedsP-(1-61/math.Sqrt(61*61+2))) > 1e-12 || c.Decided != 1 || !c.method() {
		t.Errorf("got p = %v and verdict %d, want %v and 1", c.OverSeedsP, c.Decided, 1-61/math.Sqrt(61*61+2))
	}
	if row := s.claimTable(s.claims(""), "").Rows[0]; row.Group != "sampled success, points" ||
		row.Cells[2].Text != string(page.Higher) {
		t.Errorf("got %+v, want a higher sampled success", row.Cells)
	}
}

func TestBestIsMarkedOnlyWhenEveryTestSupportsIt(t *testing.T) {
	study := func(texts ...string) *Study {
		s := &Study{}
		for i, passes := range texts {
			s.Arms = append(s.Arms, Arm{Label: fmt.Sprint("arm ", i), Runs: []SeedRun{scored(1, passes)}})
		}
		return s
	}
	all, half, none := strings.Repeat("1", 40), strings.Repeat("10", 20), strings.Repeat("0", 40)
	for name, tc := range map[string]struct {
		study *Study
		want  int // row, -1: none
	}{
		"clearly best":          {study(none, all, half), 1},
		"a tie":                 {study(none, all, all), -1},
		"ahead by one task":     {study(half, "11"+half[2:]), -1},
		"too few tasks":         {study(none[:20], all[:20]), -1},
		"the only arm":          {study(all), -1},
		"best of one kind only": {study(all, "0"+all[1:], none), -1},
	} {
		t.Run(name, func(t *testing.T) {
			table := tc.study.mainTable("")
			got := slices.IndexFunc(table.Rows, func(r page.Row) bool { return r.Cells[1].Mark == page.MarkBest })
			explained := strings.Contains(strings.Join(table.Notes, " "), "★")
			if got != tc.want || explained != (got >= 0) {
				t.Errorf("got a mark on row %d, explained: %v, want %d", got, explained, tc.want)
			}
		})
	}
}

// Seven tasks won and none lost against either of two arms: p = 2/2⁷ = 0.0156 each, 0.031 for two tests and 0.062 for
// four.
func TestTheBestMarkIsAdjustedForAllTestsOfTheSet(t *testing.T) {
	none, seven := strings.Repeat("0", 40), strings.Repeat("10", 7)+strings.Repeat("0", 26)
	s := &Study{Arms: []Arm{{Label: "a", Runs: []SeedRun{scored(1, none)}}, {Label: "b", Runs: []SeedRun{scored(1, none)}},
		{Label: "c", Runs: []SeedRun{scored(1, seven)}}}}
	for _, tc := range []struct {
		compare []Comparison
		want    page.Mark
	}{
		{[]Comparison{{Label: "x", Pairs: [][]string{{"c", "a"}}}}, page.MarkBest}, // a test that the mark requires
		{[]Comparison{{Label: "x", Pairs: [][]string{{"a", "b"}}},
			{Label: "y", Pairs: [][]string{{"a", "b"}}, Unpaired: true}}, page.MarkNone},
	} {
		s.Compare = tc.compare
		equal(t, fmt.Sprintf("mark, %+v", tc.compare), s.mainTable("").Rows[2].Cells[1].Mark, tc.want)
	}
}

// TestWindowsAndCorrelationsOfLoggedSeries recomputes the series of the vectors through the page's tables.
func TestWindowsAndCorrelationsOfLoggedSeries(t *testing.T) {
	type record struct {
		ID, Kind string
		Inputs   struct{ Entropy, Reward, KL []float64 }
		Out      struct {
			Windows     map[string]map[string]float64
			Change      float64 `json:"entropy_change_percent_late_281_350"`
			Correlation struct{ Pearson float64 }
		}
	}
	fixtures.Records(t, "rl/diagnostics.jsonl", func(r record) {
		if r.Kind != "series" {
			return
		}
		run := SeedRun{CurveFrom: "x"}
		for i := range r.Inputs.Entropy {
			run.Curve = append(run.Curve, rl.Metric{Update: i + 1,
				Values: map[string]float64{"entropy": r.Inputs.Entropy[i], "reward": r.Inputs.Reward[i], "kl": r.Inputs.KL[i]}})
		}
		s := &Study{Arms: []Arm{{Label: "x", Runs: []SeedRun{run}}}, Windows: PaperWindows}
		row := s.entropyTable().Rows[0].Cells
		close12(t, r.ID+", early entropy", *row[2].Value, r.Out.Windows["early_1_70"]["entropy"])
		close12(t, r.ID+", late entropy", *row[3].Value, r.Out.Windows["last_70"]["entropy"])
		close12(t, r.ID+", change", 100**row[4].Value, r.Out.Change)
		close12(t, r.ID+", correlation", *row[5].Value, r.Out.Correlation.Pearson)
		close12(t, r.ID+", late KL", s.Arms[0].logged(s.Windows, "kl").means(true)[0], r.Out.Windows["last_70"]["kl"])
	})
}

// Three seeds of different sizes: 3 of 4, 1 of 2 and 4 of 4 tasks pass, so 8 of 10 pooled, and 75 % in the mean. The
// first family passes 5 of 6, the second 3 of 4.
func TestMainTablePoolsByFamilyAndShowsTheMeanOverSeedsBesideIt(t *testing.T) {
	s := &Study{Arms: []Arm{{Label: "a", Runs: []SeedRun{scored(1, "1110"), scored(2, "10"), scored(3, "1111")}},
		{Label: "b", Runs: []SeedRun{scored(1, "0000"), scored(2, "1000")}}}}
	table := s.mainTable("")
	equal(t, "columns", heads(table), []string{"Arm", "Overall", "95 % over seeds", "Official verdict",
		"Sampled"})
	overall, mean := table.Rows[0].Cells[1], table.Rows[0].Cells[2]
	if want := stats.ClusteredWilson([]stats.Family{{Sum: 5, N: 6}, {Sum: 3, N: 4}},
		stats.Level); overall.Count != 8 || overall.Of != 10 || *overall.Value != 0.8 || *overall.Interval != want {
		t.Errorf("overall: got %d/%d, %v, interval %v, want 8/10 and %v", overall.Count, overall.Of, *overall.Value,
			*overall.Interval, want)
	}
	// t with two degrees of freedom
	close12(t, "low of the mean", mean.Interval.Low, 0.75-4.302652729749464*0.25/math.Sqrt(3))
	if *mean.Value != 0.75 || mean.Counts != nil || mean.Interval.High != 1 { // cut to a share
		t.Errorf("mean: got %v in %v, want 0.75 in 0.129 to 1", *mean.Value, *mean.Interval)
	}
	if !strings.HasPrefix(mean.Detail, "mean 75.0") || !strings.Contains(mean.Detail, "cut from") {
		t.Errorf("got %q, want the mean, which is not the overall share, and the interval before the cut", mean.Detail)
	}
	equal(t, "mean over two seeds", table.Rows[1].Cells[2].Text, "–")
	equal(t, "each seed in the figure", s.categoryFigure("").Series[0].Points[0].Each, []float64{0.75, 0.5, 1})
}

func TestArmsAreSortedByNameThenByComparison(t *testing.T) {
	for name, tc := range map[string]struct {
		named []string
		want  string
	}{
		"compared first":     {nil, "dbca"},
		"named before those": {[]string{"a"}, "adbc"},
	} {
		s := &Study{Arms: []Arm{{Label: "c"}, {Label: "a"}, {Label: "b"}, {Label: "d"}},
			Compare: []Comparison{{Label: "x", Pairs: [][]string{{"d", "b"}}}}}
		s.sortArms(tc.named)
		equal(t, name, strings.Join(s.labels(), ""), tc.want)
	}
}

// A default without effect in combination with the other settings, such as clip.low with one optimizer step, is marked.
// The position "checkpoint" is that of the stage that trained the tokens.
func TestDeparturesAreSeparateFromAllSettings(t *testing.T) {
	s := &Study{Stages: []Stage{{Address: "stage.sft.warm", Kind: "sft", NoEffect: []string{"batch"},
		Settings: map[string]string{"lr": "1e-3", "batch": "16", "keep": "1"}},
		{Address: "stage.rc-grpo.arm", Kind: "rc-grpo", Settings: map[string]string{"tokens.position": `"checkpoint"`,
			"tokens.init": `"copy:<|assistant|>"`, "schedule.warmup": "5"}}}}
	details := map[string]string{}
	for _, row := range s.settingsTable().Rows {
		details[row.Cells[0].Text] = row.Cells[1].Detail + row.Cells[2].Detail
	}
	equal(t, "details of all settings", details, map[string]string{"lr": "paper: 1e-05", "batch": "no effect here",
		"keep": "", "tokens.position": "", "tokens.init": "paper: mean", "schedule.warmup": "paper: 0"})
	equalRows(t, s.departuresTable().Trim(), "lr | 1e-3 | ", "schedule.warmup |  | 5",
		"tokens.init |  | copy:<|assistant|>")
	s.Stages[0].Settings["lr"] = "0.00001"
	s.Stages = s.Stages[:1]
	if departing := s.departuresTable().Trim(); departing != nil {
		t.Errorf("a stage set as in the paper: got %d departing rows, want none", len(departing.Rows))
	}
}

// TestFalseWinsAreRare measures on invented experiments that a claim about a method is false in at most 6.5 of 100
// cases although seeds differ by more than tasks alone explain.
func TestFalseWinsAreRare(t *testing.T) {
	const experiments = 1000
	r := rand.New(rand.NewPCG(7, 7))
	wins := 0
	for range experiments {
		runs := [2][]SeedRun{}
		for seed := range int64(3) {
			tasks := make([]float64, 60)
			for i := range tasks {
				tasks[i] = r.Float64()
			}
			for side := range runs {
				skill := 0.5 + 0.05*r.NormFloat64() // the seed's own luck in training
				var text strings.Builder
				for _, difficulty := range tasks {
					if skill+0.2*r.NormFloat64() > difficulty {
						text.WriteByte('1')
					} else {
						text.WriteByte('0')
					}
				}
				runs[side] = append(runs[side], scored(seed, text.String()))
			}
		}
		c := compareEvaluations(of(runs[0]...), of(runs[1]...), Comparison{})
		if judge([]*Contrast{c}); c.Decided != 0 {
			wins++
		}
	}
	if share := float64(wins) / experiments; share > 0.065 {
		t.Errorf("false wins with a seed effect: got %.1f %%, want at most 6.5", 100*share)
	}
}

// Success on tasks of a program is a reward of 1: there is no official verdict, and graded rewards are counted.
func TestMainTableOfOwnTasks(t *testing.T) {
	run := scored(1, "1110")
	run.Rows[3].Reward = 0.5
	s := &Study{Arms: []Arm{{Label: "a", Runs: []SeedRun{run}}},
		Stages: []Stage{{Kind: "tasks", Settings: map[string]string{"source": `"command"`}}}}
	notes := strings.Join(s.mainTable("").Notes, "\n")
	if !strings.Contains(notes, "Success on your own tasks is a reward of 1.") ||
		!strings.Contains(notes, "1 of 4 episodes have a reward between 0 and 1") || strings.Contains(notes, "official") {
		t.Errorf("got the notes %s", notes)
	}
	if columns := s.mainTable("").Columns; !columns[len(columns)-1].Omitted {
		t.Error("there is a column of official verdicts")
	}
	s.Stages = append(s.Stages, Stage{Kind: "tasks", Settings: map[string]string{"source": `"drills"`}})
	if notes := s.mainTable("").Notes; !strings.Contains(notes[0], "official") || !strings.Contains(notes[1], "your own") {
		t.Errorf("beside drills: got the notes %q", notes)
	}
}
