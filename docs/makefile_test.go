package docs_test

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"rcgrpo/internal/must"
)

// Make check runs the race detector on the packages of the Makefile's list RACED only.
func TestTheRaceDetectorRunsOnPackagesThatStartGoroutines(t *testing.T) {
	text := must.Get(os.ReadFile("Makefile"))(t)
	list := regexp.MustCompile(`(?m)^RACED := ((?:.*\\\n)*.*)`).FindSubmatch(text)
	if list == nil {
		t.Fatal("the Makefile has no list RACED")
	}
	raced := func(dir string) bool {
		for _, word := range strings.Fields(string(list[1])) {
			word = strings.TrimPrefix(word, "./")
			if tree, ok := strings.CutSuffix(word, "/..."); dir == word || ok && strings.HasPrefix(dir+"/", tree+"/") {
				return true
			}
		}
		return false
	}
	without := map[string]string{
		"engine/enginetest":                  "helpers of tests",
		"internal/browser":                   "helpers of tests",
		"stages/internal/environment/faults": "helpers of tests",
		"stages/internal/torch":              "libtorch",
	}
	all, positions := packages(t)
	for dir, files := range all {
		if raced(dir) || without[dir] != "" {
			continue
		}
		for _, f := range files {
			ast.Inspect(f, func(n ast.Node) bool {
				_, statement := n.(*ast.GoStmt)
				method, ok := n.(*ast.SelectorExpr) // of a sync.WaitGroup
				if statement || ok && method.Sel.Name == "Go" {
					t.Errorf("%s starts a goroutine, but the Makefile's list RACED has no ./%s",
						positions.Position(n.Pos()), dir)
				}
				return true
			})
		}
	}
}

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
