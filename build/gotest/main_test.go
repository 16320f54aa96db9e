package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcgrpo/internal/must"
)

// module is a small module with packages that pass, fail, do not build, and exit during a test.
var module = map[string]string{
	"go.mod": "module m\n\ngo 1.24\n",
	"good/a_test.go": `package good
import "testing"
func TestA(t *testing.T) {
	t.Run("sub", func(t *testing.T) { t.Log("before"); t.Skip("no llama here") })
}
func TestB(t *testing.T) { t.Skip("no llama here") }
func TestC(t *testing.T) { t.SkipNow() }`,
	"tagged/a_test.go": `package tagged
import "testing"
func TestA(t *testing.T) {
	if !tagged {
		t.Skip("only with the tag")
	}
}`,
	"tagged/on.go":  "//go:build tag\n\npackage tagged\n\nconst tagged = true\n",
	"tagged/off.go": "//go:build !tag\n\npackage tagged\n\nconst tagged = false\n",
	"bad/a_test.go": `package bad
import "testing"
func TestA(t *testing.T) { t.Error("got 1, want 2") }
func TestB(t *testing.T) {}`,
	"broken/a_test.go": "package broken\nimport \"testing\"\nfunc TestA(t *testing.T) { undefined() }",
	"exits/a_test.go": `package exits
import ("os"; "testing")
func TestA(t *testing.T) { os.Exit(3) }`,
}

// runs executes gotest in the module and returns its output and whether all tests passed.
func runs(t *testing.T, lists ...string) (text string, ok bool) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range module {
		path := filepath.Join(dir, name)
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
	}
	t.Chdir(dir)
	var out bytes.Buffer
	s := newSummary(&out)
	for _, list := range lists {
		must.OK(t, s.run(strings.Fields(list)))
	}
	ok = s.end()
	return out.String(), ok
}

func TestReasonsPrecedeTheFinalCounts(t *testing.T) {
	text, ok := runs(t, "./good ./tagged", "-tags tag ./tagged")
	want := "\nskipped 2: no llama here (m/good TestA/sub, …)\n" +
		"skipped 1: no reason given (m/good TestC)\n2 passed, 0 failed, 3 skipped\n"
	if !ok || !strings.HasSuffix(text, want) {
		t.Errorf("got %v and\n%s\nwant the end\n%s", ok, text, want)
	}
	must.Contain(t, text, "ok   m/good ")
}

func TestOneFailureFailsAndOnlySkipsEverywhereSkip(t *testing.T) {
	var out bytes.Buffer
	s := newSummary(&out)
	event := func(action, test, output string) string {
		return fmt.Sprintf("{%q: %q, %q: %q, %q: %q, %q: %q}\n",
			"Action", action, "Package", "p", "Test", test, "Output", output)
	}
	for _, run := range []string{
		event("pass", "TestFails", "") + event("skip", "TestRuns", "") + event("run", "TestSkips", "") +
			event("output", "TestSkips", "    a_test.go:3: first\n") +
			event("output", "TestSkips", "    a_test.go:4: the reason\n") +
			event("skip", "TestSkips", "") + event("pass", "", ""),
		event("fail", "TestFails", "") + event("pass", "TestRuns", "") + event("fail", "", ""),
	} {
		must.OK(t, s.read(strings.NewReader(run)))
	}
	want := "\nfailed: p TestFails\nskipped 1: the reason (p TestSkips)\n1 passed, 1 failed, 1 skipped\n"
	if ok := s.end(); ok || !strings.HasSuffix(out.String(), want) {
		t.Errorf("got %v and\n%s\nwant the end\n%s", ok, out.String(), want)
	}
}

func TestFailuresOfEveryKindAreReportedAndCounted(t *testing.T) {
	text, ok := runs(t, "./good ./bad ./broken ./exits")
	if ok {
		t.Error("failures are reported as success")
	}
	must.Contain(t, text, "--- FAIL in m/bad\n", "a_test.go:3: got 1, want 2\n",
		"undefined: undefined\n", "FAIL m/broken ", "TestA did not end\n",
		"\nfailed: m/bad TestA\nfailed: m/broken\nfailed: m/exits", " passed, 3 failed, 3 skipped\n")
	if strings.Contains(text, "=== RUN") {
		t.Errorf("the failure contains the progress of its test:\n%s", text)
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

func TestCheckRunsTheLongTestsOnly(t *testing.T) {
	var out bytes.Buffer
	s := newSummary(&out)
	line := `{"Action":"%s","Package":"%s","Test":"%s","Output":"    a_test.go:3: %s\n"}` + "\n"
	skip := func(pkg, test, why string) string {
		return fmt.Sprintf(line+line, "output", pkg, test, why, "skip", pkg, test, "")
	}
	must.OK(t, s.read(strings.NewReader(skip("m/a", "TestA/kills", must.IsLong)+
		strings.Replace(skip("m/b", "TestB", must.IsLong), `"skip"`, `"pass"`, 1)+
		skip("m/c", "TestC", "no llama here"))))
	want := []string{"X=1", "-race", "-run=^(TestA|TestB)$", "m/a", "m/b"}
	if got := s.rest([]string{"X=1", "-short", "-race", "./..."}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	must.OK(t, s.read(strings.NewReader(skip("m/c", "TestC", "no llama here")+skip("m/b", "TestB", must.IsLong))))
	if got := s.rest([]string{"-race", "./..."}); got != nil {
		t.Errorf("got %q without another long test", got)
	}
}

func TestSlowTestsPrecedeTheSkipReasons(t *testing.T) {
	var out bytes.Buffer
	s := newSummary(&out)
	s.slow = true
	pass := func(pkg, test string, seconds float64) string {
		return fmt.Sprintf(`{"Action":"pass","Package":%q,"Test":%q,"Elapsed":%v}`+"\n", pkg, test, seconds)
	}
	for range 2 {
		must.OK(t, s.read(strings.NewReader(pass("p", "TestA/sub", 1)+pass("p", "TestA", 1)+
			pass("p", "TestB/parallel", 2.5)+pass("p", "TestB", 0)+pass("p", "", 4)+pass("q", "TestC", 1.5)+pass("q", "", 1.5))))
	}
	s.end()
	want := "\nthe slowest packages, seconds:\n     8.0 p\n     3.0 q\n" +
		"the slowest tests, seconds:\n     5.0 p TestB/parallel\n     3.0 q TestC\n     2.0 p TestA\n     0.0 p TestB\n"
	must.Contain(t, out.String(), want)
}
