// Command settings writes engine/lang/settings.txt, the documentation of every setting of the language, from the Go
// comments of the settings' fields. Help, the schemas, docs/language.md and the editor read that file.
//
//	go generate ./engine/lang
//
// A line is the field and its comment: "rcgrpo/stages/grpo.settings.LR: learning rate (…)".
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	log.SetFlags(0)
	root := os.Args[1]
	text, err := documentation(root)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "engine", "lang", "settings.txt"), []byte(text), 0o644)
	}
	if err != nil {
		log.Fatal("settings: ", err)
	}
}

// documentation returns the lines of all packages below root that have settings.
func documentation(root string) (string, error) {
	var lines []string
	for _, tree := range []string{"engine", "stages", "reports"} {
		err := filepath.WalkDir(filepath.Join(root, tree), func(path string, d fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			folder, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			found, err := documentationOf(path, "rcgrpo/"+filepath.ToSlash(folder))
			lines = append(lines, found...)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n", nil
}

// documentationOf returns the lines of one file of a package.
func documentationOf(path, pkg string) (lines []string, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, decl := range file.Decls {
		types, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range types.Specs {
			named, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			settings, ok := named.Type.(*ast.StructType)
			if !ok {
				continue
			}
			for _, f := range settings.Fields.List {
				if f.Tag == nil || !strings.Contains(f.Tag.Value, `hcl:"`) || f.Doc == nil {
					continue
				}
				comment := strings.Join(strings.Fields(f.Doc.Text()), " ")
				for _, name := range f.Names {
					lines = append(lines, fmt.Sprintf("%s.%s.%s: %s", pkg, named.Name.Name, name.Name, comment))
				}
			}
		}
	}
	return lines, nil
}
