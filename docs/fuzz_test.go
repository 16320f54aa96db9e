package docs_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"rcgrpo/internal/must"
)

// `go test -fuzz` passes if its package has no such target.
func TestFuzzTargetsOfTheMakefileExist(t *testing.T) {
	list := regexp.MustCompile(`(?m)^FUZZED := ((?:.*\\\n)*.*)`).FindSubmatch(must.Get(os.ReadFile("Makefile"))(t))
	if list == nil {
		t.Fatal("the Makefile has no list FUZZED")
	}
	target := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	exists := map[string]bool{}
	eachFile(t, func(file string) error {
		if !strings.HasSuffix(file, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(file)
		for _, name := range target.FindAllSubmatch(text, -1) {
			exists[path.Dir(filepath.ToSlash(file))+":"+string(name[1])] = true
		}
		return err
	})
	for _, entry := range strings.Fields(strings.ReplaceAll(string(list[1]), "\\", "")) {
		end := strings.LastIndex(entry, ":") // of PACKAGE:TARGET, before the number of inputs
		if end < 0 || !exists[entry[:end]] {
			t.Errorf("there is no %s", entry)
		}
	}
}
