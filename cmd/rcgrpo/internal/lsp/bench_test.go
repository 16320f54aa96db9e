package lsp_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// thousand is an experiment of 1,000 stages that read each other.
func thousand() string {
	var text strings.Builder
	text.WriteString(strings.Replace(example, "[1, 2]", "[1]", 1))
	for i := range 331 {
		fmt.Fprintf(&text, `stage "sft" "s%d" {
  policy = stage.model.base.checkpoint
  data   = [stage.curate.data.expert]
  lr     = var.rate * %d
}
stage "eval" "e%d" {
  policy = stage.sft.s%d.checkpoint
  tasks  = [stage.tasks.drills.test]
}
stage "exec" "x%d" {
  command = ["sh", "-c", "wc -l < \"$scores\" > \"$n\""]
  inputs  = { scores = stage.eval.e%d.scores }
  outputs = { n = "out/n%d.txt" }
}
`, i, i+1, i, i, i, i, i)
	}
	return text.String()
}

// The bar is 100 ms from didOpen to the diagnostics.
func BenchmarkFirstDiagnosticsOf1000Stages(b *testing.B) {
	path := experimentFile(b)
	c := newClient(b, filepath.Dir(path))
	c.initialize()
	text := thousand()
	for b.Loop() {
		f := c.open(path, text)
		if found := f.diagnostics(); len(found) > 0 {
			b.Fatal(found)
		}
		b.StopTimer()
		f.forget()
		c.notify("textDocument/didClose", f.params())
		c.wait("the close", func() bool { return len(c.published[f.uri]) > 0 })
		f.forget()
		b.StartTimer()
	}
}

// forget removes the diagnostics that were published.
func (f *file) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.published, f.uri)
}

// The bar is 20 ms. Each completion follows a change in the middle of 1,000 stages.
func BenchmarkCompletionIn1000Stages(b *testing.B) {
	for name, typed := range map[string]string{
		"setting": "\n  ", "reference": "\n  policy = ", "half": "\n  policy = stage.sft.s3",
	} {
		b.Run(name, func(b *testing.B) {
			f := started(b, thousand())
			f.diagnostics()
			head, tail, _ := strings.Cut(f.text, `stage "eval" "e150" {`)
			head += `stage "eval" "e150" {`
			for b.Loop() {
				f.set(head + typed + tail)
				call[completions](f.client, "textDocument/completion", f.at(head+typed))
			}
		})
	}
}
