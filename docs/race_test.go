package docs_test

import (
	"go/ast"
	"os"
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
