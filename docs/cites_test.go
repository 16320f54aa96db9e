package docs_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// cited is a page in a comment, with the number of the section behind its name, as in bfcl/SPEC.md 13.4.
var cited = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`([\w./$-]*\w\.md)\b(?:,? (?:section )?(\d+(?:\.\d+)*))?`)
})

// unnamed is a citation that leaves out which page it means.
var unnamed = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\(spec \d|training page`) })

// linked is the target of a link of Markdown inside the repository.
var linked = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\]\(([^)#:]+)\)`) })

// A reader of a clone can open every page that a comment cites, and finds the section there. A page is named from the
// root or from the folder of the file.
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
		if m := unnamed().FindString(text); m != "" {
			t.Errorf("%s: a comment says %q; name the page by its path", file, m)
		}
		for _, m := range cited().FindAllStringSubmatch(text, -1) {
			seen++
			path, ok := exists(file, m[1])
			if !ok {
				t.Errorf("%s cites %s, which is not in the repository", file, m[1])
				continue
			}
			page, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if heading := regexp.MustCompile(`(?m)^#+ ` + regexp.QuoteMeta(m[2]) + ` `); m[2] != "" && !heading.Match(page) {
				t.Errorf("%s cites section %s of %s, which has no heading of that number", file, m[2], m[1])
			}
		}
	}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != "." || slices.Contains([]string{"testdata", "out", "bin"}, d.Name())) {
			if err == nil {
				err = fs.SkipDir
			}
			return err
		}
		switch ext := filepath.Ext(path); {
		case ext == ".go":
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, c := range file.Comments {
				check(path, c.Text())
			}
		case slices.Contains([]string{".c", ".h", ".sh", ".py", ".hcl"}, ext) || d.Name() == "Makefile":
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			check(path, string(text))
		case ext == ".md":
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range linked().FindAllStringSubmatch(string(text), -1) {
				if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
					t.Errorf("%s links %s: %v", path, m[1], err)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 40 {
		t.Errorf("found %d cited pages only", seen)
	}
}
