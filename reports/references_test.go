package reports

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
	"rcgrpo/reports/page"
	"rcgrpo/reports/stats"
)

func TestMistakesOfAReferenceNameTheirPlaceAndAWayOut(t *testing.T) {
	const right = `of = { overall = 40, base = 10 }`
	for name, tc := range map[string]struct{ block, want string }{
		"an arm that the page lacks": {right + `; counts = { "Non" = { overall = 1 } }`,
			`Unknown arm: No evaluation in scores is called "Non"; did you mean None?`},
		"an other arm that it has": {right + `; others = { "" = { "None" = { overall = 1 } } }`, "Arm of this page: "},
		"a category that does not exist": {`of = { overall = 4, bass = 2 }; counts = { "None" = { overall = 1 } }`,
			"Unknown category: No category is called \"bass\"; did you mean base?"},
		"a category without tasks": {right + `; counts = { "None" = { overall = 1, miss_func = 1 } }`,
			`Impossible counts: counts."None": miss_func is not in of; add its number of tasks there or remove it.`},
		"more passed tasks than tasks": {right + `; counts = { "None" = { overall = 41 } }`,
			`Impossible counts: counts."None": overall has 41 passed tasks of 40; write a count from 0 to 40.`},
		"a sum that is not the whole": {`of = { overall = 4, base = 2, miss_func = 2 }; ` +
			`counts = { "None" = { overall = 3, base = 1, miss_func = 1 } }`,
			`Impossible counts: counts."None": its categories add up to 2 passed tasks, but overall is 3;`},
		"no overall count": {right + `; counts = { "None" = { base = 1 } }`,
			"write its passed tasks of all tasks, overall = N."},
		"no overall number": {`of = { base = 10 }; counts = { "None" = { base = 1 } }`,
			"No number of tasks: Write of = { overall = N }"},
		"no tasks": {`of = { overall = 0 }; counts = { "None" = { overall = 0 } }`, "No tasks: "},
		"no arm":   {right, "Empty reference: "},
	} {
		t.Run(name, func(t *testing.T) {
			text := scriptedStages + "stage \"report\" \"page\" {\n  scores = [stage.eval.arm]\n" +
				"  reference \"paper\" {\n    " + strings.ReplaceAll(tc.block, "; ", "\n    ") + "\n  }\n}\n"
			_, diags := loaded(t, text)
			if len(diags) == 0 {
				t.Fatal("got no diagnostic")
			}
			if got := diags[0].Summary + ": " + diags[0].Detail; !strings.Contains(got, tc.want) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if line := strings.Split(text, "\n")[diags[0].Subject.Start.Line-1]; !strings.Contains(line, " = {") &&
				!strings.Contains(line, "reference") {
				t.Errorf("the diagnostic is at the line %q", line)
			}
		})
	}
}

// The paper's RCTP-FT arms on Qwen: 59 and 68 of 80 tasks. The Wilson intervals were computed outside of this project.
func TestAReferenceGivesSharesAndEffectsOfTheFirstTaskSet(t *testing.T) {
	s := &Study{Arms: []Arm{{Label: "ours", Runs: []SeedRun{scored(1, "1100")}}}, References: []Reference{{Name: "paper",
		Of:     map[string]int{"overall": 80, "base": 18},
		Counts: map[string]map[string]int{"GRPO": {"overall": 59}, "RC": {"overall": 68, "base": 14}}}}}
	share := func(arm, set string) *page.Cell { _, p := s.referenceOf(arm, set); return p }
	p := share("GRPO", "")
	if p == nil || p.Count != 59 || p.Of != 80 || math.Abs(p.Interval.Low-0.632) > 5e-4 ||
		math.Abs(p.Interval.High-0.821) > 5e-4 {
		t.Fatalf("got %+v, want 59 of 80, 63.2 … 82.1 %%", p)
	}
	for what, p := range map[string]*page.Cell{"another task set": share("GRPO", "test_new"),
		"a category that it does not report": s.References[0].published(s.References[0].Counts["GRPO"], "base"),
		"an arm of ours":                     share("ours", "")} {
		if p != nil {
			t.Errorf("%s: got %+v, want nothing", what, p)
		}
	}
	e := s.referenceEffect("GRPO", "RC", "")
	want := stats.Newcombe(59./80, stats.Wilson(59, 80, stats.Level), 68./80, stats.Wilson(68, 80, stats.Level))
	if e == nil || math.Abs(*e.Difference.Value-9./80) > 1e-15 || *e.Difference.Interval != want {
		t.Errorf("got %+v, want 11.25 points %v", e, want)
	}
	if e := s.referenceEffect("GRPO", "ours", ""); e != nil {
		t.Errorf("an effect of an arm that it does not report: got %+v", e)
	}
}

// The arms pass 2 and 6 of 8 tasks, in four families of two. Fisher's p-values come from a sum of exact binomial
// fractions in Python: 0.0093 for 59 of 80 against 2 of 8, 0.6080 for 68 of 80 against 6 of 8.
func TestAReferenceStandsBesideThePageAndIsNoArm(t *testing.T) {
	s := &Study{Arms: []Arm{{Label: "qwen/GRPO", Design: Design{Model: "qwen"}, Runs: []SeedRun{scored(1, "11000000")}},
		{Label: "qwen/RC", Design: Design{Model: "qwen"}, Runs: []SeedRun{scored(1, "11110101")}}},
		Compare: []Comparison{{Label: "conditioning", Pairs: [][]string{{"qwen/GRPO", "qwen/RC"}}}},
		References: []Reference{{Name: "The paper", URL: "x.org", Of: map[string]int{"overall": 80, "base": 18},
			Counts: map[string]map[string]int{"qwen/GRPO": {"overall": 59}, "qwen/RC": {"overall": 68, "base": 14}},
			Others: map[string]map[string]map[string]int{"qwen": {"Base": {"overall": 9}},
				"API models": {"Opus-4.5": {"overall": 49}}}}}}
	tables := s.referenceParts()
	equalRows(t, tables[0].Table, "Opus-4.5 | 61.3 % | – | – | –", "Base | 11.2 % | – | – | –",
		"qwen/GRPO | 73.8 % | 25.0 % | yes | 0.009",
		"qwen/RC | 85.0 % | 75.0 % | yes | 0.608")
	equalRows(t, tables[1].Table, "qwen/RC | Base category | 77.8 % | 75.0 % | yes | 1")
	equalRows(t, s.ablationTables()[0].Table,
		"qwen/GRPO → qwen/RC | 73.8 % | 85.0 % | +11.2 | 25.0 % | 75.0 % | +50.0 | no")
	if got := s.labels(); len(got) != 2 {
		t.Errorf("got arms %q, want those of the page", got)
	}
	s.References[0].Counts = map[string]map[string]int{"qwen/GRPO": {"overall": 59}}
	if parts := s.ablationTables(); len(parts) != 0 {
		t.Errorf("a reference with one side of a comparison: got %d tables, want none", len(parts))
	}
}

// The page with a reference, a data set, a model and an endpoint: everything is recomputed, published counts from the
// evidence and the rest from the artifacts; only published numbers have no source.
func TestThePapersTablesAreVerifiedAndReproduced(t *testing.T) {
	dir := t.TempDir()
	text, _, _, err := runText(t, dir, paperExperiment, "none")
	must.OK(t, err)
	html, store := []byte(text), must.Get(artifact.Open(filepath.Join(dir, "store")))(t)
	if v := verified(t, html, store); !v.OK() {
		t.Errorf("got %+v", v)
	}
	tables := []string{"calls", "main-test", "reference-the-paper", "reference-the-paper-categories",
		"ablation-more-training", "versions", "statistics", "mixtures", "data",
		"example-expert-curate-data-mixed", "example-failed-curate-data-mixed"}
	if checked, _ := followFromTheirSources(t, html, store, tables...); checked < 60 {
		t.Errorf("only %d cells have a source", checked)
	}
	ev := must.Get(ReadEvidence(html))(t)
	seen, paper := map[string]bool{}, map[string]int{} // column of published numbers
	for v := range ev.Document.Values {
		seen[v.In] = true
		switch {
		case !strings.HasPrefix(v.In, "reference-"):
		case v.Row == 0 && v.Text == "Paper":
			paper[v.In] = v.Column
		case v.Row > 0 && (v.Source.By != "") != (v.Column > paper[v.In] && v.Text != "–"):
			t.Errorf("%s, %s: has the source %q", v.ID(), v.Name(), v.Source)
		}
	}
	for _, id := range tables {
		if !seen[id] {
			t.Errorf("the page has no table %s", id)
		}
	}
	for name, change := range map[string]func(string) string{ // of the evidence; the page is made again by its owner
		"a count above its tasks": func(s string) string { return strings.Replace(s, `"overall":68`, `"overall":98`, 1) },
		"another configuration":   func(s string) string { return strings.Replace(s, `qwen2`, `llama`, 1) },
	} {
		start, rest, _ := strings.Cut(text, `id="`+evidenceID+`">`)
		content, end, _ := strings.Cut(rest, "</script>")
		text := string(must.Get(page.Unpacked(content, maxEvidenceBytes))(t))
		if change(text) == text {
			t.Fatalf("%s: the evidence lacks it", name)
		}
		forged := start + `id="` + evidenceID + `">` + page.Packed([]byte(change(text))) + "</script>" + end
		if v, err := Verify([]byte(forged), store, nil, nil); err == nil && v.OK() {
			t.Errorf("%s: the page is verified", name)
		}
	}
}

func TestTheMainTableHasGroupsOfModelsAndAPIModelsFirst(t *testing.T) {
	s := &Study{}
	for _, label := range []string{"qwen/Base", "qwen/SFT + GRPO", "llama/Base", "llama/SFT + GRPO", "API models/GPT"} {
		model, name, _ := strings.Cut(label, "/")
		design := designNamed(name)
		design.Model = model
		s.Arms = append(s.Arms, Arm{Label: label, Design: design, Runs: []SeedRun{scored(1, "1100")}})
	}
	s.groupArms()
	var got []string
	for _, row := range s.complete().Sections[1].Parts[0].Table.Rows {
		got = append(got, row.Group+" | "+row.Cells[0].Text)
	}
	equal(t, "rows", got, []string{"API models | API models/GPT", "qwen: baselines | qwen/Base",
		"qwen: arms | qwen/SFT + GRPO", "llama: baselines | llama/Base", "llama: arms | llama/SFT + GRPO"})
}
