package docs_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"rcgrpo/internal/must"
)

const maxColumns = 120

// longLines are the files that contain longer lines: in docs/language.md the summary of the kind model.
var longLines = []string{"docs/language.md"}

func TestNoLineOfCodeOrProseExceeds120Columns(t *testing.T) {
	tracked, err := exec.Command("git", "ls-files", "*.go", "*.md").Output()
	if err != nil {
		t.Skipf("git ls-files: %v", err)
	}
	for _, path := range strings.Fields(string(tracked)) {
		if strings.Contains(path, "testdata/") ||
			slices.ContainsFunc(longLines, func(p string) bool { return strings.HasPrefix(path, p) }) {
			continue
		}
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) { // deleted, not committed yet
			continue
		}
		must.OK(t, err)
		n := 0
		for line := range strings.Lines(string(text)) {
			n++
			row := strings.HasSuffix(path, ".md") && strings.HasPrefix(line, "|") // a table row cannot be wrapped
			if width := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width > maxColumns && !row {
				t.Errorf("%s:%d has %d columns, want at most %d", path, n, width, maxColumns)
			}
		}
	}
}
