// Command gotest runs `go test` several times and prints one line of counts.
//
// usage: gotest [-check] [-slow] [--] [NAME=VALUE]... ARGS... [-- ARGS...]...
//
// Each list is the environment and the arguments of one `go test`; $GO is the go command. Flags of
// `go test` are written as -flag=value.
//
// It prints a line per package, the output of failed tests, the skip reasons, and finally
// "N passed, N failed, N skipped". A test or subtest that occurs in several runs counts once: as
// failed if it fails in any run, as skipped only if no run executes it. The exit status is 1 if
// anything failed.
//
// With -check, a second `go test` per list, without -short, runs the tests that must.Long skipped
// or must.Short shortened, unless an earlier list has run them.
// With -slow, the twenty slowest packages and tests precede the skip reasons.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"rcgrpo/internal/must"
)

func main() {
	check := flag.Bool("check", false, "run the long tests, too")
	slow := flag.Bool("slow", false, "print the slowest packages and tests")
	flag.Parse()
	s := newSummary(os.Stdout)
	s.slow = *slow
	for _, args := range lists(flag.Args()) {
		s.try(args)
		if rest := s.rest(args); *check && rest != nil {
			s.try(rest)
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
	slow    bool
	passed  map[test]bool
	failed  map[test]bool
	skipped map[test]string  // the reason
	seconds map[test]float64 // of packages and tests, over all runs

	output map[test][]byte // of running tests in this run
	long   map[test]bool   // skipped or shortened by must.Long or must.Short in this run
	whole  map[test]bool   // already run without -short
}

func newSummary(w io.Writer) *summary {
	return &summary{w: w, passed: map[test]bool{}, failed: map[test]bool{}, skipped: map[test]string{},
		seconds: map[test]float64{}, whole: map[test]bool{}}
}

// try is run with its error counted as a failure.
func (s *summary) try(args []string) {
	if err := s.run(args); err != nil {
		s.failed[test{pkg: "go test " + strings.Join(args, " "), name: err.Error()}] = true
	}
}

// rest returns the arguments that run the long tests of the run of args, or nil. It returns no test twice: the race
// detector needs no long tests.
func (s *summary) rest(args []string) []string {
	names, packages := map[string]bool{}, map[string]bool{}
	for t := range s.long {
		if !s.whole[t] {
			name, _, _ := strings.Cut(t.name, "/")
			names[name], packages[t.pkg], s.whole[t] = true, true, true
		}
	}
	if len(names) == 0 {
		return nil
	}
	var rest []string
	for _, a := range args {
		if a != "-short" && (strings.HasPrefix(a, "-") || strings.Contains(a, "=")) {
			rest = append(rest, a)
		}
	}
	rest = append(rest, "-run=^("+strings.Join(slices.Sorted(maps.Keys(names)), "|")+")$")
	return append(rest, slices.Sorted(maps.Keys(packages))...)
}

// run runs `go test -json` and reads its events. A failed test is not an error of run. The vet of
// `go test` is off: make vet runs all of it. More packages and parallel tests run than there are
// processors, because many wait.
func (s *summary) run(args []string) error {
	env := 0
	for env < len(args) && !strings.HasPrefix(args[env], "-") && strings.Contains(args[env], "=") {
		env++
	}
	cmd := exec.Command(cmp.Or(os.Getenv("GO"), "go"),
		append([]string{"test", "-json", "-vet=off", "-timeout=30m", fmt.Sprint("-p=", runtime.NumCPU()+1),
			fmt.Sprint("-parallel=", 2*runtime.NumCPU())}, args[env:]...)...)
	cmd.Env = append(os.Environ(), args[:env]...)
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
	s.output, s.long = map[test][]byte{}, map[test]bool{}
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
		if bytes.Contains(s.output[t], []byte(must.IsLong)) {
			s.long[t] = true
		}
		s.seconds[t] += e.Elapsed
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
	if s.slow {
		s.slowest("packages", func(t test) bool { return t.name == "" })
		s.slowest("tests", func(t test) bool { // the time of a test contains that of its subtests, unless they are parallel
			parent := test{t.pkg, t.name[:max(0, strings.LastIndex(t.name, "/"))]}
			return t.name != "" && (parent.name == "" || s.seconds[parent] < s.seconds[t])
		})
	}
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

// slowest prints the twenty slowest packages or tests of all runs. A cached test has the time of the run that was
// stored.
func (s *summary) slowest(what string, include func(test) bool) {
	all := maps.Clone(s.seconds)
	maps.DeleteFunc(all, func(t test, _ float64) bool { return !include(t) })
	order := slices.SortedFunc(maps.Keys(all), func(a, b test) int {
		return cmp.Or(cmp.Compare(all[b], all[a]), compare(a, b))
	})
	fmt.Fprintf(s.w, "the slowest %s, seconds:\n", what)
	for _, t := range order[:min(20, len(order))] {
		fmt.Fprintf(s.w, "%8.1f %s\n", all[t], strings.TrimSpace(t.pkg+" "+t.name))
	}
}

func compare(a, b test) int {
	return cmp.Or(strings.Compare(a.pkg, b.pkg), strings.Compare(a.name, b.name))
}
