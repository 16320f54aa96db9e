// Command gotest runs `go test` several times and prints one line of counts.
//
// usage: gotest ARGS... [-- ARGS...]...   each list is the arguments of one `go test`; $GO is the go command
//
// It prints a line per package, the output of failed tests, the skip reasons, and finally
// "N passed, N failed, N skipped". A test or subtest that occurs in several runs counts once: as
// failed if it fails in any run, as skipped only if no run executes it. The exit status is 1 if
// anything failed.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

func main() {
	s := newSummary(os.Stdout)
	for _, args := range lists(os.Args[1:]) {
		if err := s.run(args); err != nil {
			s.failed[test{pkg: "go test " + strings.Join(args, " "), name: err.Error()}] = true
		}
	}
	if !s.end() {
		os.Exit(1)
	}
}

// lists splits arguments at "--".
func lists(args []string) [][]string {
	out := [][]string{nil}
	for _, a := range args {
		if a == "--" {
			out = append(out, nil)
		} else {
			out[len(out)-1] = append(out[len(out)-1], a)
		}
	}
	return out
}

// test names a test or subtest; name is "" for the package itself.
type test struct{ pkg, name string }

// event is a line of `go test -json` (go doc test2json and go help buildjson).
type event struct {
	Action, Package, Test, Output string
	ImportPath                    string
	Elapsed                       float64
}

type summary struct {
	w       io.Writer
	passed  map[test]bool
	failed  map[test]bool
	skipped map[test]string // the reason

	output map[test][]byte // of running tests in this run
}

func newSummary(w io.Writer) *summary {
	return &summary{w: w, passed: map[test]bool{}, failed: map[test]bool{}, skipped: map[test]string{}}
}

// run runs `go test -json` and reads its events. A failed test is not an error of run.
func (s *summary) run(args []string) error {
	cmd := exec.Command(cmp.Or(os.Getenv("GO"), "go"), append([]string{"test", "-json", "-timeout=30m"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	fmt.Fprintf(s.w, "go test %s\n", strings.Join(args, " "))
	if err := cmd.Start(); err != nil {
		return err
	}
	before := len(s.failed)
	readErr := s.read(out)
	if err := cmd.Wait(); err != nil && len(s.failed) == before {
		return err
	}
	return readErr
}

// read processes the events of one run.
func (s *summary) read(r io.Reader) error {
	s.output = map[test][]byte{}
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		var e event
		if len(line) > 0 && json.Unmarshal(line, &e) != nil {
			s.w.Write(line) // plain output of go
		} else if len(line) > 0 {
			s.take(e)
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// verdict matches go's line about a failed package.
var verdict = regexp.MustCompile(`(?m)^FAIL(\t.*)?\n`)

// chatter matches the lines of `go test -v` that only name the running test.
var chatter = regexp.MustCompile(`^=== (RUN|PAUSE|CONT|NAME|ATTR) `)

func (s *summary) take(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		io.WriteString(s.w, e.Output)
	case "run":
		s.output[t] = []byte{}
	case "output":
		if !chatter.MatchString(e.Output) {
			s.output[t] = append(s.output[t], e.Output...)
		}
	case "pass", "fail", "skip":
		switch {
		case e.Test == "":
			s.endPackage(e)
			return
		case e.Action == "pass":
			s.passed[t] = true
		case e.Action == "skip":
			s.skipped[t] = reason(s.output[t])
		default:
			s.failed[t] = true
			fmt.Fprintf(s.w, "--- FAIL in %s\n%s", e.Package, s.output[t])
		}
		delete(s.output, t)
	}
}

// endPackage prints the package's line. A package that failed without a failing test (build error,
// os.Exit) counts as one failure; its running tests failed with it.
func (s *summary) endPackage(e event) {
	whole := test{pkg: e.Package}
	text := s.output[whole]
	delete(s.output, whole)
	if e.Action != "fail" {
		if within(s.passed, e.Package)+within(s.skipped, e.Package) > 0 {
			fmt.Fprintf(s.w, "ok   %s %.1fs\n", e.Package, e.Elapsed)
		}
		return
	}
	for t, b := range s.output {
		if t.pkg == e.Package {
			s.failed[t] = true
			fmt.Fprintf(s.w, "--- FAIL in %s: %s did not end\n%s", e.Package, t.name, b)
			delete(s.output, t)
		}
	}
	if within(s.failed, e.Package) == 0 {
		s.failed[whole] = true
	}
	fmt.Fprintf(s.w, "%sFAIL %s %.1fs\n", verdict.ReplaceAll(text, nil), e.Package, e.Elapsed)
}

// within counts the tests of a package.
func within[V any](tests map[test]V, pkg string) int {
	n := 0
	for t := range tests {
		if t.pkg == pkg {
			n++
		}
	}
	return n
}

var logged = regexp.MustCompile(`(?m)^\s+\S+\.go:\d+: (.+)$`)

// reason returns the last message that a test logged before it skipped.
func reason(output []byte) string {
	lines := logged.FindAllSubmatch(output, -1)
	if len(lines) == 0 {
		return "no reason given"
	}
	return string(lines[len(lines)-1][1])
}

// end prints failures, skip reasons and counts, and reports whether all tests passed.
func (s *summary) end() bool {
	for t := range s.failed {
		delete(s.passed, t)
		delete(s.skipped, t)
	}
	reasons := map[string][]test{}
	for t, why := range s.skipped {
		if s.passed[t] {
			delete(s.skipped, t)
			continue
		}
		reasons[why] = append(reasons[why], t)
	}
	fmt.Fprintln(s.w)
	for _, t := range slices.SortedFunc(maps.Keys(s.failed), compare) {
		fmt.Fprintln(s.w, "failed:", strings.TrimSpace(t.pkg+" "+t.name))
	}
	for _, why := range slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		return cmp.Or(len(reasons[b])-len(reasons[a]), strings.Compare(a, b))
	}) {
		tests := reasons[why]
		slices.SortFunc(tests, compare)
		more := ""
		if len(tests) > 1 {
			more = ", …"
		}
		fmt.Fprintf(s.w, "skipped %d: %s (%s %s%s)\n", len(tests), why, tests[0].pkg, tests[0].name, more)
	}
	fmt.Fprintf(s.w, "%d passed, %d failed, %d skipped\n", len(s.passed), len(s.failed), len(s.skipped))
	return len(s.failed) == 0
}

func compare(a, b test) int {
	return cmp.Or(strings.Compare(a.pkg, b.pkg), strings.Compare(a.name, b.name))
}
