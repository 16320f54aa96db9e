package engine_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/runs"
)

// BenchmarkNullRun loads, plans and runs 1,000 stages that are all up to date.
func BenchmarkNullRun(b *testing.B) {
	const n = 1000
	dir := b.TempDir()
	var text strings.Builder
	text.WriteString("experiment {\n}\n")
	for i := range n {
		fmt.Fprintf(&text, "stage \"light\" \"s%d\" {\n  text = \"%d\"\n}\n", i, i)
	}
	file, store := filepath.Join(dir, "x.hcl"), filepath.Join(dir, "store")
	enginetest.WriteFile(b, file, text.String())
	enginetest.WriteFile(b, filepath.Join(dir, "site.hcl"), enginetest.Site)
	run := func() {
		p, err := enginetest.PlanToys(file, store)
		if err == nil {
			err = engine.Run(b.Context(), p, engine.Options{}, func(runs.Event) {})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	run()
	for b.Loop() {
		run()
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "stages/s")
}
