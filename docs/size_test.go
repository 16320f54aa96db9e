package docs_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"rcgrpo/internal/must"
)

// maxTestShare is the largest ratio of lines of tests to lines of code.
const maxTestShare = 0.6

// The section "Size" of architecture.md has the limit of each tree.
func TestTreesKeepToTheirSize(t *testing.T) {
	lines, code, tests := map[string]int{}, 0, 0
	for path, text := range tracked(t, "*.go") {
		n := strings.Count(text, "\n")
		if strings.HasSuffix(path, "_test.go") {
			tests += n
			continue
		}
		tree, _, _ := strings.Cut(path, "/")
		lines[tree] += n
		code += n
	}
	page := read(t, "docs/architecture.md")
	_, section, _ := strings.Cut(page, "\n## Size\n")
	section, _, _ = strings.Cut(section, "\n## ")
	limits := regexp.MustCompile("(?m)^\\| `([a-z]+)` \\| ([0-9,]+) \\|").FindAllStringSubmatch(section, -1)
	if len(limits) != 5 {
		t.Fatalf("architecture.md has limits of %d trees, want 5", len(limits))
	}
	for _, m := range limits {
		limit := must.Get(strconv.Atoi(strings.ReplaceAll(m[2], ",", "")))(t)
		if n := lines[m[1]]; n == 0 || n > limit {
			t.Errorf("%s has %d lines of code, want 1 to %d", m[1], n, limit)
		}
	}
	if share := float64(tests) / float64(code); share > maxTestShare {
		t.Errorf("%d lines of tests are %.3f of %d lines of code, want at most %.1f", tests, share, code, maxTestShare)
	}
}
