package provider

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/internal/must"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// The digests are those of the official handlers (bench/api_requests.py). Each run checks a share of the tasks;
// RCGRPO_ALL=1 checks all.
func TestRequestsOfTheBenchmarkEqualThoseOfTheOfficialHandlers(t *testing.T) {
	data := must.Get(bfcl.LoadData(fixtures.Benchmark(t)))(t)
	models := map[string]string{"anthropic": "claude-opus-4-5-20251101", "openai": "gpt-5.2-2025-12-11",
		"google": "gemini-3-pro-preview", "glm": "glm-4.7", "openai-chat": "gpt-4.1-2025-04-14"}
	lines := strings.Split(strings.TrimSpace(string(must.Get(os.ReadFile("testdata/tasks.txt"))(t))), "\n")
	columns, differing := strings.Fields(lines[0])[1:], 0
	if len(lines) != 801 || len(columns) != 2*len(APIs) {
		t.Fatalf("got %d lines and %d columns, want a head, 800 tasks, and two modes of each API", len(lines), len(columns))
	}
	for i, line := range lines[1:] {
		if i%25 > 0 && os.Getenv("RCGRPO_ALL") == "" {
			continue
		}
		f := strings.Fields(line)
		task := data.Task(f[0])
		for at, column := range columns {
			api, mode, _ := strings.Cut(column, "/")
			s := serveReplies(t)
			s.replies = script(t, api, models[api], mode, task)
			collector := rl.Collector{Policy: s.open(t, Settings{API: api, Model: models[api], Mode: mode}, data),
				Environment: rl.Benchmark(bfcl.Settings{Data: data}, *blocks.DefaultLimits())}
			_, _, err := collector.Collect(t.Context(), []rl.Rollout{{Task: task}}, nil)
			must.OK(t, err)
			var bodies []string
			for _, body := range s.bodies {
				bodies = append(bodies, canonical(t, body))
			}
			s.Close()
			sum := sha256.Sum256([]byte(strings.Join(bodies, "\n")))
			if got := hex.EncodeToString(sum[:8]); got != f[1+at] {
				if differing++; differing < 5 {
					t.Errorf("%s, %s: got the digest %s, want %s; the last body is\n%.3000s", f[0], column, got, f[1+at],
						bodies[len(bodies)-1])
				}
			}
		}
	}
	if differing > 0 {
		t.Errorf("%d conversations differ", differing)
	}
}
