package docs_test

import (
	"go/ast"
	"go/constant"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"rcgrpo/internal/must"
)

// The decoder fills a map with the range of each setting, and a wrong name would place a diagnostic nowhere.
func TestRangesNameSettingsOfTheirStruct(t *testing.T) {
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}",
		"rcgrpo/stages/...", "rcgrpo/reports/...", "rcgrpo/engine/lang", "rcgrpo/engine/enginetest")
	list.Stderr = os.Stderr
	out := must.Get(list.Output())(t)
	exported := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exported[name] = file
	}
	files, positions := packages(t)
	compiled := importer.ForCompiler(positions, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exported[path])
	})
	found := 0
	for dir := range files {
		if _, ok := exported["rcgrpo/"+dir]; ok {
			found += checkRanges(t, positions, files[dir], compiled)
		}
	}
	if found < 100 {
		t.Errorf("got %d ranges of settings in the sources, want more than 100", found)
	}
}

// checkRanges checks the expressions x.At["name"] of a package and returns their number.
func checkRanges(t *testing.T, positions *token.FileSet, files []*ast.File, compiled types.Importer) (found int) {
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	conf := types.Config{Importer: compiled, Error: func(error) {}} // files of all build tags are one package here
	conf.Check("", positions, files, info)
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			index, ok := n.(*ast.IndexExpr)
			if !ok {
				return true
			}
			at, ok := index.X.(*ast.SelectorExpr)
			if !ok || types.TypeString(info.TypeOf(at), nil) != "map[string]github.com/hashicorp/hcl/v2.Range" {
				return true
			}
			found++
			owner, value := info.TypeOf(at.X), info.Types[index.Index].Value
			if value == nil {
				t.Errorf("%s: the name of a setting must be a constant", positions.Position(n.Pos()))
			} else if name := constant.StringVal(value); name != "" && !slices.Contains(settingNames(owner), name) {
				t.Errorf("%s: %s has no setting %q", positions.Position(n.Pos()), owner, name)
			}
			return true
		})
	}
	return found
}

// settingNames returns the names in the tags of a struct, or of the struct that a pointer points to.
func settingNames(t types.Type) (names []string) {
	if pointer, ok := t.Underlying().(*types.Pointer); ok {
		t = pointer.Elem()
	}
	fields := t.Underlying().(*types.Struct)
	for i := range fields.NumFields() {
		tag, tagged := reflect.StructTag(fields.Tag(i)).Lookup("hcl")
		if name, _, _ := strings.Cut(tag, ","); tagged {
			names = append(names, name)
		} else if fields.Field(i).Embedded() {
			names = append(names, settingNames(fields.Field(i).Type())...)
		}
	}
	return names
}
