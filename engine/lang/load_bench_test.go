package lang_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
)

// BenchmarkLoad loads a chain of stages that are linked by locals. The time per stage must not grow with
// their number.
func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var text strings.Builder
			text.WriteString("experiment {}\n")
			inputs := "{}"
			for i := range n {
				fmt.Fprintf(&text, "locals {\n  out%d = stage.exec.s%d.out\n}\n", i, i)
				fmt.Fprintf(&text, "stage \"exec\" \"s%d\" {\n  command = [\"sort\", \"-n\"]\n", i)
				fmt.Fprintf(&text, "  inputs  = %s\n  outputs = { out = \"o%d\" }\n}\n", inputs, i)
				inputs = fmt.Sprintf("{ from = local.out%d }", i)
			}
			path := filepath.Join(b.TempDir(), "x.hcl")
			enginetest.WriteFile(b, path, text.String())
			for b.Loop() {
				x, diags := lang.Load(lang.Source{Path: path}, enginetest.PaperKinds())
				if diags.HasErrors() || len(x.Nodes) != n {
					b.Fatal(diags)
				}
				enginetest.Keys(x)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "µs/stage")
		})
	}
}
