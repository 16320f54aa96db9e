package docs_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"rcgrpo/internal/must"
)

// A row of the page names functions and their file: `f` `g` (`path/file.go`).
var (
	functionsOfFile = regexp.MustCompile("((?:`[\\w.]+`[ ,]*)+)\\(`([\\w./-]+\\.go)`\\)")
	nameOfFunction  = regexp.MustCompile("`(?:\\w+\\.)?(\\w+)`")
)

// The page names the functions through which one exec stage passes. This test keeps the names true and the path short.
func TestPathOfOneExecStageIsShortAndExists(t *testing.T) {
	const page, mostFunctions, mostFiles = "docs/architecture.md", 45, 19
	text := read(t, page)
	at := regexp.MustCompile("(?m)^#+ Path of one `?exec`? stage").FindStringIndex(text)
	if at == nil {
		t.Fatalf("%s has no section \"Path of one exec stage\"", page)
	}
	section, _, _ := strings.Cut(text[at[1]:], "\n#")
	declared := declaredNames(t)
	functions, files := 0, map[string]bool{}
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		if rest := functionsOfFile.ReplaceAllString(line, ""); strings.Contains(rest, "`") {
			t.Errorf("the row %q has a name without a file: %s", strings.TrimSpace(line), strings.TrimSpace(rest))
		}
		for _, m := range functionsOfFile.FindAllStringSubmatch(line, -1) {
			path := m[2]
			if _, err := os.Stat(path); err != nil {
				path = "engine/" + path // the page may omit the folder of the engine
			}
			files[path] = true
			for _, f := range nameOfFunction.FindAllStringSubmatch(m[1], -1) {
				functions++
				if !declared[path+" "+f[1]] {
					t.Errorf("%s names %s, which %s does not declare", page, f[1], path)
				}
			}
		}
	}
	if functions == 0 || functions > mostFunctions || len(files) > mostFiles {
		t.Errorf("the path has %d functions in %d files, want 1 to %d in at most %d", functions, len(files), mostFunctions,
			mostFiles)
	}
}

// The page names the functions whose comments answer a question. A reader needs four files at most.
func TestQuestionsNameFunctionsThatExist(t *testing.T) {
	const mostFiles = 4
	_, section, _ := strings.Cut(read(t, "docs/architecture.md"), "\n## Order of reading\n")
	section, _, _ = strings.Cut(section, "\n## ")
	declared, rows := declaredNames(t), 0
	fileOfRow := regexp.MustCompile("[`(]([\\w./-]+\\.(?:go|md))[`)]")
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		rows++
		files := map[string]bool{}
		for _, m := range fileOfRow.FindAllStringSubmatch(line, -1) {
			files[m[1]] = true
			if _, err := os.Stat(filepath.Join("docs", m[1])); err != nil {
				_, err = os.Stat(m[1])
				must.OK(t, err)
			}
		}
		if len(files) > mostFiles {
			t.Errorf("the row %q has %d files, want at most %d", strings.TrimSpace(line), len(files), mostFiles)
		}
		for _, m := range functionsOfFile.FindAllStringSubmatch(line, -1) {
			for _, f := range nameOfFunction.FindAllStringSubmatch(m[1], -1) {
				if !declared[m[2]+" "+f[1]] {
					t.Errorf("the page names %s, which %s does not declare", f[1], m[2])
				}
			}
		}
	}
	if rows < 10 {
		t.Errorf("got %d rows, want at least 10", rows)
	}
}

// declaredNames returns "path name" of every function and method, and of every type and variable of a package.
func declaredNames(t *testing.T) map[string]bool {
	declared := map[string]bool{}
	files, positions := packages(t)
	for _, files := range files {
		for _, file := range files {
			path := positions.Position(file.Pos()).Filename
			add := func(name *ast.Ident) { declared[path+" "+name.Name] = true }
			for _, d := range file.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					add(d.Name)
				case *ast.GenDecl:
					for _, s := range d.Specs {
						switch s := s.(type) {
						case *ast.TypeSpec:
							add(s.Name)
						case *ast.ValueSpec:
							add(s.Names[0])
						}
					}
				}
			}
		}
	}
	return declared
}

// A page names tests as the proof of what it says.
func TestTestsThatThePagesNameExist(t *testing.T) {
	known, function := map[string]bool{}, regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	eachFile(t, func(path string) error {
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		for _, m := range function.FindAllStringSubmatch(read(t, path), -1) {
			known[m[1]] = true
		}
		return nil
	})
	named := 0
	for _, page := range append(pages(t), "README.md", "CONTRIBUTING.md") {
		for _, m := range regexp.MustCompile("`(Test[A-Z]\\w+)`").FindAllStringSubmatch(read(t, page), -1) {
			if named++; !known[m[1]] {
				t.Errorf("%s names %s, which does not exist", page, m[1])
			}
		}
	}
	if named == 0 {
		t.Error("no page names a test")
	}
}
