package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcgrpo/internal/must"
)

// ladder lists the packages of this module, and the guarded libraries, that a package imports. "stages/*" is every
// kind. It contains no row entry without an import: an unused permission is deleted.
var ladder = map[string]string{
	"bench/fixtures":    "internal/must",
	"bfcl":              "bfcl/internal/api bfcl/internal/py",
	"bfcl/drill":        "bfcl",
	"bfcl/internal/api": "bfcl/internal/py",
	"bfcl/internal/py":  "",
	"build/gotest":      "internal/must",
	"build/settings":    "",
	"cmd/rcgrpo": "engine engine/artifact engine/lang engine/plan engine/remote engine/runs engine/slurm stages " +
		"stages/rl stages/rl/objective reports reports/live bfcl " +
		"cmd/rcgrpo/internal/display cmd/rcgrpo/internal/interrupt cmd/rcgrpo/internal/lsp " +
		"cmd/rcgrpo/internal/output cmd/rcgrpo/internal/views cobra",
	"cmd/rcgrpo/internal/display":   "engine/lang engine/plan engine/runs",
	"cmd/rcgrpo/internal/interrupt": "",
	"cmd/rcgrpo/internal/lsp":       "engine/lang",
	"cmd/rcgrpo/internal/output":    "cmd/rcgrpo/internal/display reports/page",
	"cmd/rcgrpo/internal/views": "cmd/rcgrpo/internal/output engine/artifact engine/lang engine/runs bfcl reports " +
		"reports/page stages stages/rl",
	"engine": "engine/artifact engine/internal/alive engine/internal/disk engine/journal engine/lang " +
		"engine/machine engine/plan engine/proc engine/remote engine/runs engine/sched",
	"engine/artifact":       "engine/internal/alive engine/internal/disk engine/journal internal/nesting",
	"engine/enginetest":     "engine engine/artifact engine/lang engine/plan engine/remote engine/runs internal/must",
	"engine/internal/alive": "engine/internal/disk engine/proc",
	"engine/internal/dag":   "",
	"engine/internal/disk":  "internal/nesting",
	"engine/journal":        "engine/internal/disk",
	"engine/lang":           "engine/artifact engine/internal/dag engine/internal/disk internal/nesting",
	"engine/machine": "engine/internal/alive engine/internal/disk engine/lang engine/proc engine/sched " +
		"internal/cpu",
	"engine/plan":   "engine/artifact engine/lang engine/machine engine/remote engine/sched",
	"engine/proc":   "engine/internal/disk",
	"engine/remote": "engine/artifact engine/internal/disk engine/lang engine/proc internal/dial minio-go",
	"engine/runs": "engine/artifact engine/internal/alive engine/internal/disk engine/journal engine/lang " +
		"engine/proc",
	"engine/sched": "",
	"engine/slurm": "engine engine/artifact engine/internal/alive engine/internal/disk engine/lang " +
		"engine/machine engine/proc engine/runs",
	"internal/browser":   "internal/must chromedp",
	"internal/cpu":       "",
	"internal/dial":      "",
	"internal/must":      "",
	"internal/nesting":   "",
	"internal/versitygw": "internal/must",
	"reports": "engine engine/artifact engine/lang engine/plan engine/remote engine/runs stages/rl " +
		"stages/rl/blocks stages/rl/objective bfcl reports/page reports/stats",
	"reports/live":  "engine/lang engine/plan engine/runs",
	"reports/page":  "reports/stats go-echarts tablewriter",
	"reports/stats": "",
	"stages": "bfcl engine/lang stages/* stages/rl stages/internal/chat stages/internal/checkpoint " +
		"stages/internal/lm stages/internal/provider stages/internal/serve",
	"stages/*": "engine engine/artifact engine/lang engine/proc engine/runs bfcl bfcl/drill stages/rl stages/rl/blocks " +
		"stages/rl/objective stages/internal/agent stages/internal/chat stages/internal/checkpoint " +
		"stages/internal/environment " +
		"stages/internal/lm stages/internal/provider stages/internal/ranks stages/internal/resume " +
		"stages/internal/sampling stages/internal/token stages/internal/train",
	"stages/internal/agent": "bfcl engine/artifact engine/lang stages/rl stages/rl/blocks stages/internal/chat " +
		"stages/internal/environment stages/internal/serve stages/internal/token",
	"stages/internal/chat": "bfcl stages/rl stages/internal/jinja stages/internal/token",
	"stages/internal/checkpoint": "engine engine/artifact engine/runs bfcl stages/rl stages/rl/blocks " +
		"stages/internal/chat stages/internal/gguf stages/internal/lm stages/internal/ranks stages/internal/resume " +
		"stages/internal/token stages/internal/torch",
	"stages/internal/sampling": "engine engine/artifact engine/runs bfcl stages/rl stages/rl/blocks " +
		"stages/internal/agent stages/internal/chat stages/internal/checkpoint stages/internal/environment " +
		"stages/internal/lm stages/internal/ranks",
	"stages/internal/environment": "bfcl engine/artifact engine/proc internal/dial internal/nesting stages/rl " +
		"stages/rl/blocks",
	"stages/internal/environment/faults": "engine/proc",
	"stages/internal/gguf":               "stages/internal/lm",
	"stages/internal/lm":                 "stages/internal/ranks stages/internal/token stages/internal/torch stages/rl",
	"stages/internal/provider": "engine engine/artifact engine/journal engine/proc bfcl stages/rl stages/rl/blocks " +
		"stages/internal/sampling internal/dial internal/nesting",
	"stages/internal/ranks":  "",
	"stages/internal/resume": "engine/artifact engine/journal",
	"stages/internal/jinja":  "stages/internal/token",
	"stages/internal/serve":  "internal/nesting stages/internal/chat stages/internal/token stages/rl stages/rl/blocks",
	"stages/internal/token":  "internal/nesting",
	"stages/internal/torch":  "gotch internal/cpu",
	"stages/internal/train": "engine engine/artifact engine/lang stages/rl stages/rl/blocks " +
		"stages/internal/checkpoint stages/internal/lm stages/internal/ranks stages/internal/resume stages/internal/torch",
	"stages/rl":           "bfcl stages/rl/blocks",
	"stages/rl/blocks":    "",
	"stages/rl/objective": "stages/rl stages/rl/blocks",
}

// guarded are the libraries that only some packages may import.
var guarded = []string{"gotch", "go-echarts", "tablewriter", "cobra", "chromedp", "minio-go"}

// packages returns the parsed files of every package without its tests, whatever their build tags.
func packages(t *testing.T) (files map[string][]*ast.File, positions *token.FileSet) {
	t.Helper()
	files, positions = map[string][]*ast.File{}, token.NewFileSet()
	eachFile(t, func(path string) error {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "testdata/") {
			return nil
		}
		file, err := parser.ParseFile(positions, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		pkg := filepath.ToSlash(filepath.Dir(path))
		files[pkg] = append(files[pkg], file)
		return err
	})
	return files, positions
}

// eachFile calls f with each file of the repository, except those in hidden folders, out and bin.
func eachFile(t *testing.T, f func(path string) error) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir():
			return f(path)
		case path != "." && strings.HasPrefix(d.Name(), ".") || d.Name() == "out" || d.Name() == "bin":
			return fs.SkipDir
		}
		return nil
	})
	must.OK(t, err)
}

func TestImportsKeepToTheLadder(t *testing.T) {
	files, positions := packages(t)
	unused := map[string]map[string]bool{}
	for pkg, row := range ladder {
		unused[pkg] = map[string]bool{}
		for _, name := range strings.Fields(row) {
			unused[pkg][name] = true
		}
	}
	for dir := range files {
		pkg := rung(dir)
		row, known := ladder[pkg]
		if !known {
			t.Errorf("package %s has no row in the ladder; add one here and in docs/architecture.md", dir)
			continue
		}
		for _, file := range files[dir] {
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
				if !slices.Contains(strings.Fields(row), seen) {
					t.Errorf("%s: package %s must not import %s", positions.Position(spec.Pos()), dir, name)
				}
				delete(unused[pkg], seen)
			}
		}
	}
	for pkg, names := range unused {
		for name := range names {
			t.Errorf("the ladder lets %s import %s, and it does not; delete the entry", pkg, name)
		}
	}
}

// rung returns "stages/*" for the package of a kind, otherwise the package itself.
func rung(pkg string) string {
	if name, ok := strings.CutPrefix(pkg, "stages/"); ok && name != "rl" && !strings.Contains(name, "/") {
		return "stages/*"
	}
	return pkg
}

func TestPackagesAreSmallAndHaveOneComment(t *testing.T) {
	const most = 25
	files, positions := packages(t)
	for _, pkg := range slices.Sorted(maps.Keys(files)) {
		if n := len(files[pkg]); n > most {
			t.Errorf("%s has %d files, want at most %d", pkg, n, most)
		}
		var commented []string
		for _, file := range files[pkg] {
			if file.Doc != nil {
				commented = append(commented, filepath.Base(positions.Position(file.Pos()).Filename))
			}
		}
		if len(commented) != 1 {
			t.Errorf("%s has a package comment in %q, want one file, such as doc.go", pkg, commented)
		}
	}
}

// The settings of the Go runtime belong to the process: a library must not override the choice of its caller.
func TestLibrariesLeaveTheRuntimeAlone(t *testing.T) {
	setters := []string{"debug.SetGCPercent", "debug.SetMemoryLimit", "debug.SetMaxThreads", "debug.SetMaxStack",
		"runtime.GOMAXPROCS"}
	files, positions := packages(t)
	for _, file := range slices.Concat(slices.Collect(maps.Values(files))...) {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			at := positions.Position(call.Pos())
			name := selected(call.Fun)
			query := name == "runtime.GOMAXPROCS" && isZero(call.Args[0])
			if slices.Contains(setters, name) && !query && at.Filename != "cmd/rcgrpo/main.go" {
				t.Errorf("%s: got a call of %s, want none outside cmd/rcgrpo/main.go", at, name)
			}
			return true
		})
	}
}

// selected returns "pkg.Name" for a function of a package.
func selected(e ast.Expr) string {
	if f, ok := e.(*ast.SelectorExpr); ok {
		if of, ok := f.X.(*ast.Ident); ok {
			return of.Name + "." + f.Sel.Name
		}
	}
	return ""
}

func isZero(e ast.Expr) bool {
	literal, ok := e.(*ast.BasicLit)
	return ok && literal.Value == "0"
}
