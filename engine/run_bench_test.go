package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkNullRun plans and "runs" 1,000 stages that are all up to date, from the file to the last line, without the
// start of a process.
func BenchmarkNullRun(b *testing.B) {
	const n = 1000
	dir := b.TempDir()
	var text strings.Builder
	text.WriteString("experiment {\n}\n")
	for i := range n {
		fmt.Fprintf(&text, "stage \"light\" \"s%d\" {\n  text = \"%d\"\n}\n", i, i)
	}
	file, store := filepath.Join(dir, "x.hcl"), filepath.Join(dir, "store")
	for path, content := range map[string]string{file: text.String(), filepath.Join(dir, "site.hcl"): labSite} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	run := func() {
		p, err := planToys(file, store)
		if err == nil {
			err = p.Run(b.Context(), RunOptions{}, func(Event) {})
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
