package docs_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const maxColumns = 120

// longLines are the files that contain longer lines: in docs/language.md the summary of the kind model.
var longLines = []string{"docs/language.md"}

func TestNoLineOfCodeOrProseExceeds120Columns(t *testing.T) {
	for path, text := range tracked(t, "*.go", "*.md") {
		if strings.Contains(path, "testdata/") ||
			slices.ContainsFunc(longLines, func(p string) bool { return strings.HasPrefix(path, p) }) {
			continue
		}
		n := 0
		for line := range strings.Lines(text) {
			n++
			row := strings.HasSuffix(path, ".md") && strings.HasPrefix(line, "|") // a table row cannot be wrapped
			if width := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width > maxColumns && !row {
				t.Errorf("%s:%d has %d columns, want at most %d", path, n, width, maxColumns)
			}
		}
	}
}
