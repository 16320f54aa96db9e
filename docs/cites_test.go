package docs_test

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// cited matches a page and the number of a section, as in bfcl/SPEC.md 13.4.
	cited = regexp.MustCompile(`([\w./$-]*\w\.md)\b(?:,? (?:section )?(\d+(?:\.\d+)*))?`)
	// unnamed matches a citation without the path of the page.
	unnamed = regexp.MustCompile(`\(spec \d|training page`)
	// linked matches the target of a Markdown link inside the repository.
	linked = regexp.MustCompile(`\]\(([^)#:]+)\)`)
)

// Comments cite only pages and sections of this repository. A path is relative to the root or to the citing file.
func TestEveryCitedPageAndSectionExists(t *testing.T) {
	seen := 0
	exists := func(file, page string) (path string, ok bool) {
		for _, path := range []string{page, filepath.Join(filepath.Dir(file), page)} {
			if _, err := os.Stat(path); err == nil {
				return path, true
			}
		}
		return "", false
	}
	check := func(file, text string) {
		if m := unnamed.FindString(text); m != "" {
			t.Errorf("%s: the comment %q needs the path of the page", file, m)
		}
		for _, m := range cited.FindAllStringSubmatch(text, -1) {
			seen++
			path, ok := exists(file, m[1])
			if !ok {
				t.Errorf("%s cites %s, which is not in the repository", file, m[1])
				continue
			}
			heading := regexp.MustCompile(`(?m)^#+ ` + regexp.QuoteMeta(m[2]) + ` `)
			if m[2] != "" && !heading.MatchString(read(t, path)) {
				t.Errorf("%s cites section %s of %s, which has no heading of that number", file, m[2], m[1])
			}
		}
	}
	eachFile(t, func(path string) error {
		switch ext := filepath.Ext(path); {
		case strings.Contains(path, "testdata/"):
		case ext == ".go":
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, c := range file.Comments {
				check(path, c.Text())
			}
		case slices.Contains([]string{".c", ".h", ".sh", ".py", ".hcl"}, ext) || path == "Makefile":
			check(path, read(t, path))
		case ext == ".md":
			for _, m := range linked.FindAllStringSubmatch(read(t, path), -1) {
				if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
					t.Errorf("%s links %s: %v", path, m[1], err)
				}
			}
		}
		return nil
	})
	if seen < 40 {
		t.Errorf("found %d cited pages, want at least 40", seen)
	}
}
