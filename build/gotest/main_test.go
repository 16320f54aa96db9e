package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module is a small module with packages that pass, fail, do not build, and exit during a test.
var module = map[string]string{
	"go.mod":           "module m\n\ngo 1.24\n",
	"good/a_test.go":   "package good\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) {\n\tt.Run(\"sub\", func(t *testing.T) { t.Log(\"before\"); t.Skip(\"no llama here\") })\n}\n\nfunc TestB(t *testing.T) { t.Skip(\"no llama here\") }\n\nfunc TestC(t *testing.T) { t.SkipNow() }\n",
	"tagged/a_test.go": "package tagged\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) {\n\tif !tagged {\n\t\tt.Skip(\"only with the tag\")\n\t}\n}\n",
	"tagged/on.go":     "//go:build tag\n\npackage tagged\n\nconst tagged = true\n",
	"tagged/off.go":    "//go:build !tag\n\npackage tagged\n\nconst tagged = false\n",
	"bad/a_test.go":    "package bad\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) { t.Error(\"got 1, want 2\") }\n\nfunc TestB(t *testing.T) {}\n",
	"broken/a_test.go": "package broken\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) { undefined() }\n",
	"exits/a_test.go":  "package exits\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestA(t *testing.T) { os.Exit(3) }\n",
}

// runs executes gotest in the module and returns its output and whether all tests passed.
func runs(t *testing.T, lists ...string) (text string, ok bool) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range module {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	var out bytes.Buffer
	s := newSummary(&out)
	for _, list := range lists {
		if err := s.run(strings.Fields(list)); err != nil {
			t.Fatal(err)
		}
	}
	ok = s.end()
	return out.String(), ok
}

func TestTheLastLineCountsAndReasonsStandBefore(t *testing.T) {
	text, ok := runs(t, "./good ./tagged", "-tags tag ./tagged")
	want := "\nskipped 2: no llama here (m/good TestA/sub, …)\nskipped 1: no reason given (m/good TestC)\n2 passed, 0 failed, 3 skipped\n"
	if !ok || !strings.HasSuffix(text, want) {
		t.Errorf("got %v and\n%s\nwant the end\n%s", ok, text, want)
	}
	if !strings.Contains(text, "ok   m/good ") {
		t.Errorf("no line for the package in\n%s", text)
	}
}

func TestATestThatFailsInOneRunOrSkipsInAllCountsSo(t *testing.T) {
	var out bytes.Buffer
	s := newSummary(&out)
	for _, run := range []string{
		`{"Action":"pass","Package":"p","Test":"TestFails"} {"Action":"skip","Package":"p","Test":"TestRuns"} {"Action":"run","Package":"p","Test":"TestSkips"}
		{"Action":"output","Package":"p","Test":"TestSkips","Output":"    a_test.go:3: first\n"} {"Action":"output","Package":"p","Test":"TestSkips","Output":"    a_test.go:4: the reason\n"}
		{"Action":"skip","Package":"p","Test":"TestSkips"} {"Action":"pass","Package":"p"}`,
		`{"Action":"fail","Package":"p","Test":"TestFails"} {"Action":"pass","Package":"p","Test":"TestRuns"} {"Action":"fail","Package":"p"}`,
	} {
		if err := s.read(strings.NewReader(strings.ReplaceAll(run, "} {", "}\n{"))); err != nil {
			t.Fatal(err)
		}
	}
	want := "\nfailed: p TestFails\nskipped 1: the reason (p TestSkips)\n1 passed, 1 failed, 1 skipped\n"
	if ok := s.end(); ok || !strings.HasSuffix(out.String(), want) {
		t.Errorf("got %v and\n%s\nwant the end\n%s", ok, out.String(), want)
	}
}

func TestFailuresOfEveryKindAreToldAndCounted(t *testing.T) {
	text, ok := runs(t, "./good ./bad ./broken ./exits")
	if ok {
		t.Error("failures are reported as success")
	}
	for _, want := range []string{"--- FAIL in m/bad\n", "a_test.go:5: got 1, want 2\n", "undefined: undefined\n", "FAIL m/broken ", "TestA did not end\n",
		"\nfailed: m/bad TestA\nfailed: m/broken\nfailed: m/exits", " passed, 3 failed, 3 skipped\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "=== RUN") {
		t.Errorf("the failure is told with the progress of its test:\n%s", text)
	}
}

func TestAGoCommandThatFailsWithoutATestIsAnError(t *testing.T) {
	t.Setenv("GO", "/nonexistent/go")
	if err := newSummary(new(bytes.Buffer)).run([]string{"./..."}); err == nil {
		t.Error("a missing go command is no error")
	}
}

func TestArgumentsAreSplitAtTheDoubleDash(t *testing.T) {
	if got := lists([]string{"-race", "./...", "--", "."}); len(got) != 2 || len(got[0]) != 2 || got[1][0] != "." {
		t.Errorf("got %q", got)
	}
}
