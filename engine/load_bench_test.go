package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkLoad loads a chain of stages through locals; the time per stage should not grow with their number.
func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var text strings.Builder
			text.WriteString("experiment {}\n")
			for i := range n {
				before := `{}`
				if i > 0 {
					before = fmt.Sprintf("{ from = local.out%d }", i-1)
				}
				fmt.Fprintf(&text, "locals {\n  out%d = stage.exec.s%d.out\n}\nstage \"exec\" \"s%d\" {\n  "+
					"command = [\"sort\", \"-n\"]\n  inputs  = %s\n  outputs = { out = \"o%d\" }\n}\n", i, i, i,
					before, i)
			}
			path := filepath.Join(b.TempDir(), "x.hcl")
			if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				x, diags := Load(Source{Path: path}, paperKinds())
				if diags.HasErrors() || len(x.Nodes) != n {
					b.Fatal(diags)
				}
				keysOf(x)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "µs/stage")
		})
	}
}
