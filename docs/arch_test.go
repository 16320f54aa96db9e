package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ladder lists the packages of this module, and the guarded libraries, that a package may import: the table of
// docs/architecture.md. "stages/*" is every kind.
var ladder = map[string][]string{
	"bfcl/internal/py":           {},
	"stages/internal/token":      {},
	"engine/internal/dag":        {},
	"engine/internal/disk":       {},
	"engine/artifact":            {"engine/internal/disk"},
	"stages/internal/torch":      {"gotch"},
	"bfcl/internal/api":          {"bfcl/internal/py"},
	"bfcl":                       {"bfcl/internal/api", "bfcl/internal/py"},
	"bfcl/drill":                 {"bfcl"},
	"bfcl/golden":                {"bfcl", "bfcl/internal/py"},
	"bench/fixtures":             {},
	"build/gotest":               {},
	"engine":                     {"engine/artifact", "engine/internal/dag", "engine/internal/disk"},
	"engine/enginetest":          {"engine", "engine/artifact"},
	"stages/rl/blocks":           {},
	"stages/rl":                  {"bfcl", "stages/rl/blocks"},
	"stages/rl/objective":        {"stages/rl", "stages/rl/blocks"},
	"stages/internal/chat":       {"stages/rl", "stages/internal/token", "bfcl"},
	"internal/must":              {},
	"stages/internal/lm":         {"stages/internal/token", "stages/internal/torch", "stages/rl"},
	"stages/internal/resume":     {},
	"stages/internal/checkpoint": {"engine", "engine/artifact", "bfcl", "stages/rl", "stages/rl/blocks", "stages/internal/chat", "stages/internal/lm", "stages/internal/token", "stages/internal/torch"},
	"stages/internal/train":      {"engine", "engine/artifact", "stages/rl", "stages/rl/blocks", "stages/internal/checkpoint", "stages/internal/lm", "stages/internal/resume"},
	"stages/*":                   {"engine", "engine/artifact", "bfcl", "bfcl/drill", "stages/rl", "stages/rl/blocks", "stages/rl/objective", "stages/internal/chat", "stages/internal/lm", "stages/internal/token", "stages/internal/torch", "stages/internal/checkpoint", "stages/internal/resume", "stages/internal/train"},
	"reports":                    {"engine", "engine/artifact", "stages/rl", "stages/rl/blocks", "stages/rl/objective", "bfcl", "reports/stats", "go-echarts", "tablewriter"},
	"reports/stats":              {},
	"reports/lint":               {},
	"stages":                     {"engine", "stages/rl", "stages/*", "stages/internal/checkpoint", "stages/internal/chat", "stages/internal/lm"},
	"cmd/rcgrpo": {"engine", "engine/artifact", "stages", "stages/rl", "stages/rl/objective", "reports", "reports/lint",
		"bfcl", "bfcl/golden", "cmd/rcgrpo/internal/display", "cobra"},
	"cmd/rcgrpo/internal/display": {"engine"},
}

// guarded are the libraries that only some packages may import.
var guarded = []string{"gotch", "go-echarts", "tablewriter", "cobra"}

func TestImportsKeepToTheLadder(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			if err == nil {
				err = fs.SkipDir
			}
			return err
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		pkg := rung(filepath.ToSlash(filepath.Dir(path)))
		allowed, known := ladder[pkg]
		if !known {
			t.Errorf("%s: package %s has no row in the ladder; add one here and in docs/architecture.md", path, pkg)
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			name := strings.Trim(spec.Path.Value, `"`)
			seen, ours := strings.CutPrefix(name, "rcgrpo/")
			if ours {
				seen = rung(seen)
			} else if i := slices.IndexFunc(guarded, func(g string) bool { return strings.Contains("/"+name, "/"+g) }); i >= 0 {
				seen = guarded[i]
			} else {
				continue
			}
			if !slices.Contains(allowed, seen) {
				t.Errorf("%s imports %s; package %s must not", path, name, pkg)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// rung returns "stages/*" for the package of a kind, otherwise the package itself.
func rung(pkg string) string {
	if name, ok := strings.CutPrefix(pkg, "stages/"); ok && name != "rl" && !strings.Contains(name, "/") {
		return "stages/*"
	}
	return pkg
}

// The settings of the Go runtime belong to the process: a library must not override the choice of its caller.
func TestLibrariesLeaveTheRuntimeAlone(t *testing.T) {
	setters := map[string]bool{"debug.SetGCPercent": true, "debug.SetMemoryLimit": true, "debug.SetMaxThreads": true,
		"debug.SetMaxStack": true}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			if err == nil {
				err = fs.SkipDir
			}
			return err
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || path == "cmd/rcgrpo/main.go" {
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			of, ok := f.X.(*ast.Ident)
			if !ok {
				return true
			}
			name := of.Name + "." + f.Sel.Name
			asks := name == "runtime.GOMAXPROCS" && isZero(call.Args[0])
			if setters[name] || name == "runtime.GOMAXPROCS" && !asks {
				t.Errorf("%s: got a call of %s, want none outside cmd/rcgrpo/main.go", files.Position(call.Pos()), name)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func isZero(e ast.Expr) bool {
	literal, ok := e.(*ast.BasicLit)
	return ok && literal.Value == "0"
}
