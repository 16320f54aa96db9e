package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"rcgrpo/cmd/rcgrpo/internal/output"
	"rcgrpo/engine/lang"
	"rcgrpo/stages"
)

// isModel reports whether a path is a GGUF file, or the folder of a model and not of an experiment.
func isModel(path string) bool {
	if stages.IsModelFile(path) {
		return true
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return false
	}
	has := func(patterns ...string) bool {
		for _, pattern := range patterns {
			if found, _ := filepath.Glob(filepath.Join(path, pattern)); len(found) > 0 {
				return true
			}
		}
		return false
	}
	return !has("*.hcl") && has("config.json", "tokenizer.json", "*.safetensors", "*.gguf", "*.bin", "*.pt")
}

// checkModel prints the parts of a model folder, the memory that the model needs, and the unsupported parts.
func (c *command) checkModel(dir string, report stages.FolderReport) error {
	width, _ := output.TerminalSize(c.stdout())
	width = cmp.Or(width, output.DefaultWidth)
	parts := output.NewTable("", "part", "<found")
	refused := output.NewTable("", "part", "<why it is not supported, and what would work")
	for _, p := range report.Parts {
		if p.Refused == nil {
			parts.Row(p.Name, p.Found)
			continue
		}
		parts.Row(p.Name, "not supported")
		refused.Row(p.Name, p.Refused)
	}
	if err := parts.Write(c.stdout(), dir, width); err != nil {
		return err
	}
	if len(report.Memory) > 0 {
		memory := output.NewTable("", "use", "<device", "float32", "bf16")
		for _, m := range report.Memory {
			memory.Row(m.Use, m.Device, m.Float32, m.BF16)
		}
		if err := memory.Write(c.stdout(), "memory, at most", width); err != nil {
			return err
		}
	}
	if len(refused.Rows) > 0 {
		return refused.Write(c.stdout(), "not supported", width)
	}
	_, err := fmt.Fprintf(c.stdout(), "\n%s can be trained and served\n", dir)
	return err
}

// modelDiagnostics are the refusals of a report as diagnostics.
func modelDiagnostics(dir string, report stages.FolderReport) (all []lang.DiagnosticJSON) {
	for _, p := range report.Parts {
		if p.Refused != nil {
			all = append(all, lang.DiagnosticJSON{Severity: "error", Summary: "Not a model that can be used",
				Detail: fmt.Sprintf("%s: %s: %v", dir, p.Name, p.Refused)})
		}
	}
	return all
}
