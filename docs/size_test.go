package docs_test

import (
	"go/scanner"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"rcgrpo/internal/must"
)

// maxTestShare is the largest ratio of lines of tests to lines of code.
const maxTestShare = 0.72

// The section "Size" of architecture.md has the limit of each tree, and of all.
func TestTreesKeepToTheirSize(t *testing.T) {
	lines, tests := map[string]int{}, 0
	for path, text := range tracked(t, "*.go") {
		n := linesOfCode(text)
		switch {
		case strings.Contains(path, "testdata/"):
		case strings.HasSuffix(path, "_test.go"):
			tests += n
		default:
			tree, _, _ := strings.Cut(path, "/")
			lines[tree] += n
			lines["all"] += n
		}
	}
	page := read(t, "docs/architecture.md")
	_, section, _ := strings.Cut(page, "\n## Size\n")
	section, _, _ = strings.Cut(section, "\n## ")
	limits := regexp.MustCompile("(?m)^\\| `([a-z]+)` \\| ([0-9,]+) \\|").FindAllStringSubmatch(section, -1)
	if len(limits) != 6 {
		t.Fatalf("architecture.md has limits of %d trees, want 6", len(limits))
	}
	for _, m := range limits {
		limit := must.Get(strconv.Atoi(strings.ReplaceAll(m[2], ",", "")))(t)
		if n := lines[m[1]]; n == 0 || n > limit {
			t.Errorf("%s has %d lines of code, want 1 to %d", m[1], n, limit)
		}
	}
	if share := float64(tests) / float64(lines["all"]); share > maxTestShare {
		t.Errorf("%d lines of tests are %.3f of %d lines of code, want at most %.2f", tests, share, lines["all"],
			maxTestShare)
	}
}

// linesOfCode counts the lines of Go with more than blanks and comments.
func linesOfCode(text string) (count int) {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(text))
	s.Init(file, []byte(text), nil, 0) // without comments
	lines, last := strings.Split(text, "\n"), 0
	for {
		pos, kind, literal := s.Scan()
		if kind == token.EOF {
			return count
		}
		if kind == token.SEMICOLON && literal == "\n" { // inserted at the end of a line
			continue
		}
		for i := range strings.Count(literal, "\n") + 1 { // a raw string may have several lines
			if line := file.Line(pos) + i; line > last {
				last = line
				if strings.TrimSpace(lines[line-1]) != "" {
					count++
				}
			}
		}
	}
}

func TestLinesOfCodeAreWithoutBlanksAndComments(t *testing.T) {
	const text = "// Package x.\npackage x\n\n/* a\nb */\nvar a = 1 // one\nvar b = `\n\n// in a string\n`\n"
	if got := linesOfCode(text); got != 5 {
		t.Errorf("got %d lines, want package, a, and three of b", got)
	}
}

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
