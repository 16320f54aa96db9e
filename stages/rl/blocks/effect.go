package blocks

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
)

// Effects maps the names of settings without effect to the reason.
type Effects map[string]string

// Add adds settings if the condition holds. A setting keeps its first reason.
func (e Effects) Add(when bool, why string, names ...string) {
	for _, name := range names {
		if when && e[name] == "" {
			e[name] = why
		}
	}
}

// WithoutEffect adds the settings of a schedule without effect.
func (s *Schedule) WithoutEffect(e Effects) {
	e.Add(s.Shape == "constant", "a constant rate does not fall", "schedule.final")
}

// Mistakes returns a function that adds an error with a formatted detail if the condition holds.
func Mistakes(diags *hcl.Diagnostics) func(when bool, summary string, at hcl.Range, detail string, args ...any) {
	return func(when bool, summary string, at hcl.Range, detail string, args ...any) {
		if when {
			*diags = append(*diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary,
				Detail: fmt.Sprintf(detail, args...), Subject: at.Ptr()})
		}
	}
}
