package reports

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
	"rcgrpo/reports/page"
)

func TestCallsOfAPIModelsAreSummedAndAChangedModelIsMarked(t *testing.T) {
	g := &gathering{study: &Study{Arms: []Arm{{Label: "API models/A", Runs: []SeedRun{scored(1, "1100")}},
		{Label: "API models/B", Runs: []SeedRun{scored(1, "1000")}}, {Label: "C", Runs: []SeedRun{scored(1, "1110")}}}}}
	add := func(label, address, cost string) {
		dir := t.TempDir()
		must.OK(t, os.WriteFile(filepath.Join(dir, costFile), []byte(cost), 0o600))
		in := &Input{Label: label, Address: address, Ref: artifact.Ref{Port: "calls"}}
		must.OK(t, g.calls(in, &artifact.Artifact{Dir: dir}))
	}
	add("API models/A", "stage.eval.api[\"A\"]@1", `{"dollars": 1.5, "attempts": 12, "replies": 10, "input": 100,
		"output": 9, "models": ["a-2"], "first": "2026-01-05T00:00:00Z", "last": "2026-01-06T00:00:00Z"}`)
	add("API models/A", "stage.eval.api[\"A\"]@2", `{"dollars": 0.25, "attempts": 2, "replies": 1, "input": 1, "output": 1,
		"models": ["a-1", "a-2"], "first": "2026-01-04T23:00:00Z", "last": "2026-01-05T00:00:00Z"}`)
	add("API models/B", "stage.eval.api[\"B\"]@1", `{"dollars": 0.012, "attempts": 3, "replies": 3, "input": 5,
		"output": 6, "models": ["b"], "first": "2026-01-05T00:00:00Z", "last": "2026-01-05T09:00:00Z"}`)
	add("rollout.more", "stage.rollout.more", `{"attempts": 1, "models": []}`)
	table := g.study.callsTable()
	equalRows(t, table, "API models/A | $1.75 | 11 | 14 | 101 | 10 | 2026-01-04 | a-1, a-2",
		"API models/B | $0.012 | 3 | 3 | 5 | 6 | 2026-01-05 | b", "rollout.more | $0.00 | 0 | 1 | 0 | 0 |  | –")
	if last := len(table.Columns) - 1; table.Rows[0].Cells[last].Mark != page.MarkDiffers ||
		table.Rows[1].Cells[last].Mark != page.MarkNone || len(table.Notes) != 2 {
		t.Errorf("got %+v and the notes %q, want the model with two names marked", table.Rows[0].Cells[last], table.Notes)
	}
	for i := range g.study.Arms[:2] {
		policy := fmt.Sprint("model ", i)
		g.study.Arms[i].Runs[0].Policy = strconv.Quote(policy)
		g.study.Stages = append(g.study.Stages, Stage{Kind: "endpoint", Manifest: &artifact.Manifest{
			Outputs: map[string]artifact.Output{"policy": {Digest: policy}}}})
	}
	main := g.study.mainTable(g.study.sets()[0])
	if !strings.HasSuffix(main.Title, ", greedy decoding of checkpoints, sampling of the API models") {
		t.Errorf("the main table of API models and a checkpoint has the title %q", main.Title)
	}
	if got, want := main.Rows[0].Cells[0].Detail, "a-1, a-2 · 2026-01-04 to 2026-01-06 · $1.75"; got != want {
		t.Errorf("the name in the main table has %q, want %q", got, want)
	}
	equal(t, "detail of an arm without calls", main.Rows[2].Cells[0].Detail, "")
	g.study.Arms = g.study.Arms[:2]
	if main := g.study.mainTable(g.study.sets()[0]); !strings.HasSuffix(main.Title, ", sampling of the API models") ||
		!strings.Contains(strings.Join(main.Notes, " "), "at the temperature of its endpoint") {
		t.Errorf("the main table of API models has the title %q and the notes %q", main.Title, main.Notes)
	}
	g.study.Stages = nil
	if main := g.study.mainTable(g.study.sets()[0]); !strings.HasSuffix(main.Title, ", greedy decoding") {
		t.Errorf("the main table of checkpoints has the title %q", main.Title)
	}
}
