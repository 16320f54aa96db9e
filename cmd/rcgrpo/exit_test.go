package main

import (
	"bytes"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"rcgrpo/cmd/rcgrpo/internal/output"
	"rcgrpo/internal/must"
)

// callLine runs a command line in this process.
func callLine(stdin string, line ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = execute(line, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

// wantLine runs a command line in this process and checks its exit code and parts of its output.
func wantLine(t *testing.T, code int, stdin string, line []string, parts ...string) (stdout string) {
	t.Helper()
	got, stdout, stderr := callLine(stdin, line...)
	if got != code {
		t.Errorf("rcgrpo %s: got exit code %d, want %d", strings.Join(line, " "), got, code)
	}
	must.Contain(t, stdout+stderr, parts...)
	return stdout
}

func oneStage(name, command, outputs string) string {
	const text = "experiment {\n}\n\nstage \"exec\" %q {\n  command = [%s]\n  outputs = { %s }\n}\n"
	return fmt.Sprintf(text, name, command, outputs)
}

// exitFolder changes to a folder with valid, invalid and unformatted experiments and a site file.
func exitFolder(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("HOME", ".")
	for name, text := range map[string]string{
		"site.hcl":  "store {\n  path = \"store\"\n}\n",
		"good.hcl":  oneStage("a", `"sh", "-c", "echo hello > $out"`, `out = "a.txt"`),
		"ports.hcl": oneStage("two", `"true"`, `left = "l.txt", right = "r.txt"`),
		"fails.hcl": oneStage("a", `"false"`, `out = "f.txt"`),
		"bad.hcl":   "experiment {\n}\n\nstage \"exce\" \"a\" {\n}\n",
		"ugly.hcl":  "experiment {\nseeds=[1]\n}\n",
	} {
		must.OK(t, os.WriteFile(filepath.Join(".", name), []byte(text), 0o600))
	}
}

// walk calls f for every command that the help shows.
func walk(c *cobra.Command, f func(c *cobra.Command, line []string)) {
	for _, sub := range c.Commands() {
		if sub.Name() != "help" {
			f(sub, strings.Fields(sub.CommandPath())[1:])
			walk(sub, f)
		}
	}
}

// Help is printed on standard output, wherever the flag is. A wrong flag gives one line that names the command.
func TestEveryCommandHasHelpAndRejectsUnknownFlags(t *testing.T) {
	exitFolder(t)
	walk(newRoot(), func(c *cobra.Command, line []string) {
		for _, flags := range [][]string{{"-h"}, {"--help"}, {"word", "--help"}} {
			if c.HasSubCommands() && len(flags) > 1 {
				continue
			}
			code, stdout, stderr := callLine("", append(slices.Clone(line), flags...)...)
			if code != exitDone || !strings.Contains(stdout, "Usage:\n  rcgrpo "+strings.Join(line, " ")) || stderr != "" {
				t.Errorf("%v %v: got %d, %q, %q, want the usage on standard output", line, flags, code, stdout, stderr)
			}
			if strings.Contains(stdout, "(default )") {
				t.Errorf("%v: the help prints an empty default:\n%s", line, stdout)
			}
		}
		code, stdout, stderr := callLine("", append(slices.Clone(line), "--nonsense")...)
		if code != exitMisuse || stdout != "" || strings.Count(stderr, "\n") != 1 ||
			!strings.Contains(stderr, "rcgrpo "+line[0]) {
			t.Errorf("%v --nonsense: got %d, %q, %q", line, code, stdout, stderr)
		}
	})
}

// The exit codes are those of docs/language.md. Code 130, interrupted, is in run_interrupted.txtar.
func TestExitCodes(t *testing.T) {
	exitFolder(t)
	for _, tc := range []struct {
		line string
		want int
		says string // on either output
	}{
		{"", exitMisuse, "Run experiments:"},
		{"help", exitDone, "Run experiments:"},
		{"version", exitDone, "built by go"},
		{"--version", exitDone, "from sources "},
		{"paln", exitMisuse, "did you mean plan?"},
		{"plan good.hcl", exitDone, "1 to run"},
		{"plan --detailed-exitcode good.hcl", exitChanges, "1 to run"},
		{"plan good.hcl --detailed-exitcode --json", exitChanges, `"changes": true`},
		{"plan", exitMisuse, "several experiments here"},
		{"plan bad.hcl", exitFailed, "did you mean exec?"},
		{"plan --detailed-exitcode bad.hcl", exitFailed, "did you mean exec?"},
		{"plan nowhere.hcl", exitFailed, "nowhere.hcl"},
		{"plan good.hcl bad.hcl", exitMisuse, "one experiment at a time"},
		{"plan good.hcl --target exec.b", exitFailed, "did you mean exec.a?"},
		{"plan good.hcl --replace exec.b", exitFailed, "did you mean exec.a?"},
		{"plan good.hcl --targte exec.a", exitMisuse, "did you mean --target?"},
		{"plan good.hcl -target exec.a", exitMisuse, "did you mean --target?"},
		{"plan good.hcl --var novalue", exitMisuse, "NAME=VALUE"},
		{"plan good.hcl --var n=1", exitFailed, "no variable n"},
		{"plan good.hcl --var-file nowhere.hcl", exitFailed, "nowhere.hcl"},
		{"plan good.hcl --site nowhere.hcl", exitFailed, "nowhere.hcl"},
		{"run bad.hcl", exitFailed, "did you mean exec?"},
		{"run fails.hcl", exitFailed, "exit"},
		{"run good.hcl", exitDone, "1 done"},
		{"run good.hcl", exitDone, "nothing to do"},
		{"plan --detailed-exitcode good.hcl", exitDone, "1 up to date"},
		{"run good.hcl extra", exitMisuse, "one experiment at a time"},
		{"check good.hcl", exitDone, "is valid"},
		{"check good.hcl bad.hcl", exitFailed, "Unknown kind"},
		{"check --json bad.hcl", exitFailed, `"severity": "error"`},
		{"fmt --check good.hcl", exitDone, ""},
		{"fmt --check ugly.hcl", exitFailed, "ugly.hcl"},
		{"fmt --diff ugly.hcl", exitDone, "+  seeds = [1]"},
		{"fmt nowhere.hcl", exitFailed, "nowhere.hcl"},
		{"graph good.hcl", exitDone, "digraph"},
		{"graph bad.hcl", exitFailed, "Unknown kind"},
		{"graph --format png good.hcl", exitMisuse, "dot or mermaid"},
		{"kinds exec", exitDone, "command"},
		{"kinds exce", exitMisuse, "did you mean exec?"},
		{"why exec.a good.hcl", exitDone, "exec.a"},
		{"why exec.b good.hcl", exitFailed, "did you mean exec.a?"},
		{"why", exitMisuse, "want the address"},
		{"logs exec.a good.hcl", exitDone, ""},
		{"logs", exitMisuse, "want the address"},
		{"logs exec.a", exitMisuse, "several experiments here"},
		{"store du --sort cost", exitMisuse, "there is no order cost, only address, age, seconds, size, worth"},
		{"show exec.a.out good.hcl", exitDone, "a.txt"},
		{"show", exitMisuse, "want the address"},
		{"show exec.a.uot good.hcl", exitFailed, "stage.exec.a has no port uot, only out"},
		{"show exec.two ports.hcl", exitFailed, "stage.exec.two has the ports left, right; name one: exec.two.left"},
		{"diff", exitMisuse, "want two runs"},
		{"diff nope nope", exitFailed, "nope"},
		{"status good.hcl", exitDone, "good"},
		{"status ugly.hcl", exitDone, "no runs of ugly in"},
		{"store du", exitDone, "exec.a"},
		{"store verify", exitDone, ""},
		{"store", exitMisuse, "rcgrpo store [command]"},
		{"store burn", exitMisuse, "there is no command burn"},
		{"store verfiy", exitMisuse, "there is no command verfiy; did you mean verify?"},
		{"store gc", exitDone, "there is no limit, so results stay"},
		{"store gc --limit 0B", exitMisuse, "would mean no limit"},
		{"bfcl", exitMisuse, "Usage:"},
		{"bfcl shwo", exitMisuse, "there is no command shwo; did you mean show?"},
		{"bfcl show", exitMisuse, "want a task"},
		{"bfcl check a b", exitMisuse, "one folder"},
		{"bfcl show --fulll", exitMisuse, "did you mean --full?"},
		{"bfcl check nowhere", exitFailed, "make build"},
		{"completion fish", exitDone, "(string escape -- (commandline -opc))"},
		{"completion tcsh", exitMisuse, "bash, zsh or fish"},
		{"__complete logs -n 3 -", exitDone, "--follow"},
	} {
		code, stdout, stderr := callLine("", strings.Fields(tc.line)...)
		if code != tc.want || !strings.Contains(stdout+stderr, tc.says) {
			t.Errorf("rcgrpo %s: got %d, want %d with %q\n%s%s", tc.line, code, tc.want, tc.says, stdout, stderr)
		}
		if code == exitMisuse && stdout != "" {
			t.Errorf("rcgrpo %s: misuse wrote to standard output: %s", tc.line, stdout)
		}
		if strings.Contains(stdout+stderr, "\x1b") {
			t.Errorf("rcgrpo %s: got colours without a terminal", tc.line)
		}
	}
}

func TestColoursAreForTerminalsWithoutNoColor(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	defer terminal.Close()
	t.Setenv("NO_COLOR", "")
	if !output.IsTerminal(terminal) || !output.Colored(terminal) {
		t.Error("got no colours on a terminal")
	}
	if output.Colored(&bytes.Buffer{}) {
		t.Error("got colours in a pipe")
	}
	t.Setenv("NO_COLOR", "1")
	if output.Colored(terminal) {
		t.Error("got colours with NO_COLOR")
	}
}

// Flags may precede or follow each argument, and with a value also the command. All words after -- are arguments.
func TestFlagsMayStandAnywhere(t *testing.T) {
	exitFolder(t)
	must.OK(t, os.WriteFile("site2.hcl", []byte("store {\n  path = \"store2\"\n}\n"), 0o600))
	for _, tc := range []struct{ line, same string }{
		{"plan --site site2.hcl good.hcl", "plan good.hcl --site site2.hcl"},
		{"plan --site=site2.hcl good.hcl", "--site site2.hcl plan good.hcl"},
		{"check good.hcl ports.hcl --site site2.hcl", "check good.hcl --site site2.hcl ports.hcl"},
		{"fmt --check good.hcl ugly.hcl", "fmt good.hcl --check ugly.hcl"},
		{"kinds --markdown exec", "kinds exec --markdown"},
		{"store gc --limit 1GB --site site2.hcl", "store --limit 1GB --site site2.hcl gc"},
		{"bfcl show --full --data nowhere base_0", "bfcl --data nowhere show base_0 --full"},
		{"run --site site2.hcl fails.hcl --target exec.b", "run fails.hcl --target exec.b --site site2.hcl"},
	} {
		code, stdout, stderr := callLine("", strings.Fields(tc.line)...)
		again, stdoutAgain, stderrAgain := callLine("", strings.Fields(tc.same)...)
		if code != again || stdout != stdoutAgain || stderr != stderrAgain {
			t.Errorf("%s: got %d, %q, %q\n%s: got %d, %q, %q, want the same", tc.line, code, stdout, stderr, tc.same, again,
				stdoutAgain, stderrAgain)
		}
		if strings.Contains(stdout+stderr, "there is no flag") || code == exitMisuse && !strings.Contains(stderr, "word") {
			t.Errorf("%s: got %d, %s", tc.line, code, stderr)
		}
	}
	for _, line := range []string{"plan -- --site", "bfcl show -- --full", "store -- du", "-- plan good.hcl"} {
		if code, stdout, _ := callLine("", strings.Fields(line)...); code == exitDone || stdout != "" {
			t.Errorf("%s: got %d, %q, want no flags after --", line, code, stdout)
		}
	}
}

// A server that sends more than its reply, or a client that sends garbage, writes nothing to the terminal.
func TestTheLogOfNetHTTPIsNotPrinted(t *testing.T) {
	var printed bytes.Buffer
	log.SetOutput(httpLog{&printed})
	defer log.SetOutput(os.Stderr)
	log.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=%v", "sk-secret\x1b[2J", nil)
	log.Print("http: TLS handshake error from 127.0.0.1:1: \x1b[2J")
	if printed.Len() > 0 {
		t.Errorf("got %q", printed.String())
	}
	h := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a mistake\x1b[2J") }))
	if _, err := http.Get(h.URL); err == nil {
		t.Error("a handler that panics replies")
	}
	h.Close()
	if got := printed.String(); !strings.Contains(got, "a mistake") || strings.Contains(got, "\x1b") {
		t.Errorf("got %q, want the panic without control characters", got)
	}
}
