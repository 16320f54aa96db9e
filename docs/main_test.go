// Package docs_test checks rules of the whole repository: imports, pages, citations, extensions. Its tests run in the
// root of the repository.
package docs_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
	"rcgrpo/reports"
	"rcgrpo/stages"
)

var update = flag.Bool("update", false, "rewrite the generated part of docs/language.md")

func TestMain(m *testing.M) {
	if err := os.Chdir(".."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// kinds returns the stage kinds of the command.
func kinds() lang.Registry {
	return append(lang.Registry(stages.Kinds()), reports.Kind())
}

// pages returns the paths of the documentation.
func pages(t *testing.T) []string {
	t.Helper()
	found := must.Get(filepath.Glob("docs/*.md"))(t)
	if len(found) == 0 {
		t.Fatal("no pages")
	}
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	return string(must.Get(os.ReadFile(path))(t))
}

// tracked returns the texts of the repository's files that match the patterns. Without git it skips the test.
func tracked(t *testing.T, patterns ...string) map[string]string {
	t.Helper()
	paths, err := exec.Command("git", append([]string{"ls-files"}, patterns...)...).Output()
	if err != nil {
		t.Skipf("git ls-files: %v", err)
	}
	texts := map[string]string{}
	for _, path := range strings.Fields(string(paths)) {
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) { // deleted, not committed yet
			continue
		}
		must.OK(t, err)
		texts[path] = string(text)
	}
	return texts
}
