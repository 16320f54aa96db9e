package reports

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rcgrpo/bfcl"
	"rcgrpo/reports/page"
	"rcgrpo/stages/rl"
)

// The official checker compares turns; the verdict of an episode whose requests are merged is no failure but missing.
func TestOfficialVerdictsOfMergedPromptsAreADash(t *testing.T) {
	for prompt, want := range map[string]string{bfcl.PromptMerged: "–", bfcl.PromptTurns: "50.0"} {
		arm := Arm{Label: "A"}
		for seed := range int64(2) {
			r := SeedRun{Seed: &seed}
			for i := range 4 {
				r.Scores = append(r.Scores, rl.Score{Task: fmt.Sprint(i), Family: fmt.Sprint(i), Category: "base", Set: "s",
					Prompt: prompt, Greedy: true,
					Reward: float64(i % 2), Official: i%2 == 1 && prompt == bfcl.PromptTurns})
			}
			arm.Runs = append(arm.Runs, r)
		}
		s := &Study{Arms: []Arm{arm}}
		for _, table := range []*page.Table{s.mainTable("s"), s.seedTable("s")} {
			column := slices.IndexFunc(table.Columns, func(c page.Column) bool { return c.Name == "Official verdict" })
			if column < 0 {
				t.Fatalf("table %s has no column of official verdicts", table.ID)
			}
			for _, row := range table.Rows {
				if got := row.Cells[column].Text; !strings.HasPrefix(got, want) {
					t.Errorf("prompt %q, table %s: got verdict %q, want %q", prompt, table.ID, got, want)
				}
			}
		}
	}
}
