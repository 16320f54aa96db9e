package reports

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rcgrpo/bfcl"
	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
	"rcgrpo/reports/page"
	"rcgrpo/stages/rl"
)

// equalRows reports rows of a table that differ from the wanted ones: texts, with " (detail)" in the first column.
func equalRows(t *testing.T, of *page.Table, want ...string) {
	t.Helper()
	var got []string
	for _, row := range of.Rows {
		cells := []string{row.Cells[0].Line()}
		for _, c := range row.Cells[1:] {
			cells = append(cells, strings.ReplaceAll(c.Text, "\u00a0", " "))
		}
		got = append(got, strings.Join(cells, " | "))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

func seedOf(n int64) *int64 { return &n }

func taskSet(label string, seed *int64, categories string) TaskSet {
	d := TaskSet{Label: label, Seed: seed, Source: "stage." + label}
	for i, c := range categories {
		d.Tasks = append(d.Tasks, &bfcl.Task{ID: fmt.Sprint(label, i), Family: fmt.Sprint(label, i/2),
			Category: map[rune]string{'b': "base", 'f': "miss_func"}[c]})
	}
	return d
}

func TestTheSplitHasTotalsByCategoryAndSet(t *testing.T) {
	s := &Study{TaskSets: []TaskSet{taskSet("tasks.x train", seedOf(1), "bbf"), taskSet("tasks.x test", seedOf(1), "bf"),
		taskSet("tasks.x train", seedOf(2), "bbf"), taskSet("tasks.x test", seedOf(2), "bf"),
		taskSet("tasks.y test", nil, "bb")}}
	equalRows(t, s.dataTable(),
		"tasks.x (seed 1, 2) | Base category | 2 | 1 | 3", "tasks.x (seed 1, 2) | Missing function | 1 | 1 | 2",
		"tasks.x (seed 1, 2) | total | 3 | 2 | 5", "tasks.x (seed 1, 2) | families | 2 | 1 | 3",
		"tasks.y | Base category |  | 2 | 2", "tasks.y | total |  | 2 | 2", "tasks.y | families |  | 1 | 1")
}

// mixed is a data set of two experts and two failures; the task of the last one is a test task.
func fineTuning() DataSet {
	m := DataSet{Label: "curate.data mixed", Source: "stage.curate.data.mixed"}
	for i, x := range []Member{{rl.OriginExpert, rl.TokenHigh, "tasks.x train0", "base", true},
		{rl.OriginExpert, rl.TokenHigh, "tasks.x train2", "miss_func", true},
		{rl.OriginPolicy, rl.TokenLow, "tasks.x train0", "base", false},
		{rl.OriginPolicy, rl.TokenLow, "tasks.x test0", "base", false}} {
		m.Members = append(m.Members, x)
		one := rl.Trajectory{Task: x.Task, Category: x.Category, Origin: x.Origin, Token: x.Token, Member: i,
			Messages: []rl.Message{{Role: rl.RoleUser, Text: "Step 1: List."}, {Role: rl.RoleAssistant, Calls: []string{"ls()"}},
				{Role: rl.RoleTool, Several: []string{"a", "b"}}, {Role: rl.RoleAssistant, Calls: []string{"done()"}}}}
		if x.Passed {
			one.Reward = 1
		}
		m.Examples.Add(transcript(&one, ""))
	}
	return m
}

func TestStatisticsOfTheDataCountSuccessesByCategoryAndSet(t *testing.T) {
	s := &Study{DataSets: []DataSet{fineTuning()}, TaskSets: []TaskSet{taskSet("tasks.x train", nil, "bbf"),
		taskSet("tasks.x test", nil, "bf")}}
	table := s.statisticsTable()
	equalRows(t, table,
		"curate.data mixed | success | 2 | 0 | 2 | 100.0 % | 1 | 1",
		"curate.data mixed | failure | 1 | 1 | 2 | 0.0 % | 2 | 0",
		"curate.data mixed | total | 3 | 1 | 4 | 50.0 % | 3 | 1")
	equal(t, "sources of a count of train tasks", table.Rows[0].Cells[2].Source.From,
		[]string{"stage.curate.data.mixed", "stage.tasks.x train", "stage.tasks.x test"})
	s.DataSets[0].Members = s.DataSets[0].Members[:2]
	equalRows(t, s.statisticsTable(), "curate.data mixed | success | 2 | 0 | 2 | 100.0 % | 1 | 1")
}

func TestExamplesHaveTheRewardTokenWhereFineTuningPutsIt(t *testing.T) {
	tuning := func(position string) Stage {
		return Stage{Kind: "rctp-ft", Settings: map[string]string{"tokens.position": `"` + position + `"`}}
	}
	for name, tc := range map[string]struct {
		records []Stage
		want    []string // of the failed trajectory
	}{
		"in the first user message": {[]Stage{tuning(rl.FirstUser)}, []string{"user | Step 1: List.",
			"user | [Reward Goal: <|low_reward|>]", "assistant | ls()", "tool | a", "tool | b", "assistant | done()"}},
		"before each action": {[]Stage{tuning(rl.BeforeEachAction)}, []string{"user | Step 1: List.",
			"assistant | <|low_reward|>ls()", "tool | a", "tool | b", "assistant | <|low_reward|>done()"}},
		"at several positions": {[]Stage{tuning(rl.FirstUser), tuning(rl.BeforeEachAction)}, []string{
			"user | Step 1: List.", "assistant | ls()", "tool | a", "tool | b", "assistant | done()"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Study{DataSets: []DataSet{fineTuning(), fineTuning()}, Stages: tc.records}
			parts := s.exampleTables()
			if len(parts) != 2 || !strings.Contains(parts[0].Table.Title, "an expert trajectory") ||
				!strings.Contains(parts[1].Table.Lead, "origin policy, token low: the one of 2 with the smallest hash") {
				t.Fatalf("got %d tables, want an expert and a failure of the data set, once for all seeds", len(parts))
			}
			equalRows(t, parts[1].Table, tc.want...)
		})
	}
	experts := page.Transcripts{Passed: make([]page.Transcript, 1)}
	s := &Study{DataSets: []DataSet{{Label: "experts", Examples: experts}}}
	if parts := s.exampleTables(); len(parts) != 0 {
		t.Errorf("a data set without failures: got %d tables, want none", len(parts))
	}
}

// The endpoint.json is one that the kind endpoint writes.
func TestVersionsOfModelsAndEndpointsComeFromTheirArtifacts(t *testing.T) {
	store := must.Get(artifact.Open(t.TempDir()))(t)
	stored := func(kind, port, artifactType, name, content string) *artifact.Manifest {
		sum := sha256.Sum256([]byte(content))
		m := &artifact.Manifest{Kind: kind, Started: time.Date(2026, 2, 3, 4, 0, 0, 0, time.UTC),
			Outputs: map[string]artifact.Output{port: {Type: artifactType, Digest: strings.Repeat("ab", 32),
				Files: []artifact.FileInfo{{Name: name, Bytes: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}}}}}
		path := must.Get(store.Open(m, port))(t).Path(name)
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.OK(t, os.WriteFile(path, []byte(content), 0o600))
		return m
	}
	s := &Study{}
	add := func(address string, m *artifact.Manifest) {
		text := must.Get(readCard(store, m))(t)
		if text != "" && !checkCard(m, text) || checkCard(m, text+" ") {
			t.Errorf("%s: the file of the artifact is refused, or a changed one is accepted", address)
		}
		s.Stages = append(s.Stages, Stage{Address: address, Kind: m.Kind, Manifest: m, Card: text})
	}
	add("stage.model.base", stored("model", "checkpoint", "checkpoint", "config.json", `{"model_type": "qwen2",
		"num_hidden_layers": 28, "hidden_size": 3584, "max_position_embeddings": 32768}`))
	add("stage.model.named", stored("model", "checkpoint", "checkpoint", "config.json",
		`{"_name_or_path": "/home/someone/Llama-3.1-8B-Instruct", "max_position_embeddings": 131072}`))
	add("stage.sft.warm", stored("sft", "checkpoint", "checkpoint", "config.json", `{"model_type": "qwen2"}`))
	add(`stage.endpoint.api["Opus-4.5"]`, stored("endpoint", "policy", "endpoint", "endpoint.json",
		`{"api": "anthropic", "model": "claude-opus-4-5-20251101", "mode": "fc", "key": "ANTHROPIC_API_KEY",
			"base_url": "https://api.anthropic.com", "temperature": 0.001}`))
	equalRows(t, s.versionsTable(),
		"model.base | qwen2, 28 layers of width 3584 | abababababababab | 2026-02-03 | 32768",
		"model.named | Llama-3.1-8B-Instruct | abababababababab | 2026-02-03 | 131072",
		`endpoint.api["Opus-4.5"] | anthropic: claude-opus-4-5-20251101 | abababababababab | 2026-02-03 | –`)
}

func TestSettingsOfAllModelsAreOneTableWithDeparturesMarked(t *testing.T) {
	s := &Study{}
	for _, x := range [][2]string{{"qwen", "1e-06"}, {"llama", "1e-06"}, {"small", "3e-06"}} {
		for _, stage := range []string{`stage.grpo.arm["sft"]@1`, `stage.grpo.arm["sft"]@2`} {
			s.Stages = append(s.Stages, Stage{Kind: "grpo", Address: fmt.Sprintf("module.model[%q].%s", x[0], stage),
				Settings: map[string]string{"lr": x[1], "group": "5"}})
		}
	}
	s.Stages = append(s.Stages, Stage{Kind: "sft", Address: "module.base.stage.sft.warm@1",
		Settings: map[string]string{"epochs": "2"}})
	table := s.settingsTable()
	equal(t, "columns", heads(table),
		[]string{"Setting", "grpo.arm (qwen, llama)", "grpo.arm (small)", "module.base.sft.warm"})
	equalRows(t, table, "epochs |  |  | 2", "group | 5 | 5 | ", "lr | 1e-06 | 3e-06 | ")
	same, departs := table.Rows[2].Cells[1], table.Rows[2].Cells[2]
	if same.Mark != page.MarkNone || departs.Mark != page.MarkDiffers || departs.Detail != "paper: 1e-06" {
		t.Errorf("got %+v and %+v, want the departure from the paper marked", same, departs)
	}
}
