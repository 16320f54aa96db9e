package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// call runs a command line in this process.
func callLine(stdin string, line ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(line, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

// exitFolder has a good experiment, a bad one, an ugly one and a site; the test stands in it.
func exitFolder(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("HOME", ".")
	for name, text := range map[string]string{
		"site.hcl":  "store {\n  path = \"store\"\n}\n",
		"good.hcl":  "experiment {\n}\n\nstage \"exec\" \"a\" {\n  command = [\"sh\", \"-c\", \"echo hello > $out\"]\n  outputs = { out = \"a.txt\" }\n}\n",
		"ports.hcl": "experiment {\n}\n\nstage \"exec\" \"two\" {\n  command = [\"true\"]\n  outputs = { left = \"l.txt\", right = \"r.txt\" }\n}\n",
		"fails.hcl": "experiment {\n}\n\nstage \"exec\" \"a\" {\n  command = [\"false\"]\n  outputs = { out = \"f.txt\" }\n}\n",
		"bad.hcl":   "experiment {\n}\n\nstage \"exce\" \"a\" {\n}\n",
		"ugly.hcl":  "experiment {\nseeds=[1]\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(".", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Every command says what it takes when asked (0), and complains of what it does not take (64) with one line that names the
// command and nothing on standard output.
func TestEveryCommandHasHelpAndKnowsMisuse(t *testing.T) {
	exitFolder(t)
	for _, c := range commands() {
		if c.summary == "" {
			continue
		}
		code, stdout, stderr := callLine("", c.name, "-h")
		if code != exitDone || stdout == "" || stderr != "" {
			t.Errorf("%s -h: got %d, %q, %q", c.name, code, stdout, stderr)
		}
		if usage, _, _ := strings.Cut(stdout, "\n"); c.name != "store" && c.name != "bfcl" && !strings.HasPrefix(usage, "usage: rcgrpo "+c.name+" [flags] "+c.args) {
			t.Errorf("%s -h: got %q, want what it takes, %s", c.name, usage, c.args)
		}
		if code, stdout, stderr := callLine("", c.name, "-nonsense"); code != exitMisuse || stdout != "" || !strings.Contains(stderr, "rcgrpo "+c.name) {
			t.Errorf("%s -nonsense: got %d, %q, %q", c.name, code, stdout, stderr)
		}
	}
}

// The exit codes of docs/language.md: 0 done, 1 failed, 2 changes, 64 misuse. 130, interrupted, is in run_interrupted.txtar.
func TestExitCodes(t *testing.T) {
	exitFolder(t)
	for _, tc := range []struct {
		line string
		want int
		says string // on either output
	}{
		{"", exitMisuse, "rcgrpo plan"},
		{"help", exitDone, "rcgrpo plan"},
		{"version", exitDone, "built by go"},
		{"--version", exitDone, "from sources "},
		{"paln", exitMisuse, "did you mean plan?"},
		{"plan good.hcl", exitDone, "1 to run"},
		{"plan -detailed-exitcode good.hcl", exitChanges, "1 to run"},
		{"plan good.hcl -detailed-exitcode -json", exitChanges, `"changes": true`},
		{"plan", exitMisuse, "several experiments here"},
		{"plan bad.hcl", exitFailed, "did you mean exec?"},
		{"plan -detailed-exitcode bad.hcl", exitFailed, "did you mean exec?"},
		{"plan nowhere.hcl", exitFailed, "nowhere.hcl"},
		{"plan good.hcl bad.hcl", exitMisuse, "one experiment at a time"},
		{"plan good.hcl -target exec.b", exitFailed, "did you mean exec.a?"},
		{"plan good.hcl -replace exec.b", exitFailed, "did you mean exec.a?"},
		{"plan good.hcl -targte exec.a", exitMisuse, "did you mean -target?"},
		{"plan good.hcl -var novalue", exitMisuse, "NAME=VALUE"},
		{"plan good.hcl -var n=1", exitFailed, "no variable n"},
		{"plan good.hcl -var-file nowhere.hcl", exitFailed, "nowhere.hcl"},
		{"plan good.hcl -site nowhere.hcl", exitFailed, "nowhere.hcl"},
		{"run bad.hcl", exitFailed, "did you mean exec?"},
		{"run fails.hcl", exitFailed, "exit"},
		{"run good.hcl", exitDone, "1 done"},
		{"run good.hcl", exitDone, "nothing to do"},
		{"plan -detailed-exitcode good.hcl", exitDone, "1 up to date"},
		{"run good.hcl extra", exitMisuse, "one experiment at a time"},
		{"check good.hcl", exitDone, "is valid"},
		{"check good.hcl bad.hcl", exitFailed, "Unknown kind"},
		{"check -json bad.hcl", exitFailed, `"severity": "error"`},
		{"fmt -check good.hcl", exitDone, ""},
		{"fmt -check ugly.hcl", exitFailed, "ugly.hcl"},
		{"fmt -diff ugly.hcl", exitDone, "+  seeds = [1]"},
		{"fmt nowhere.hcl", exitFailed, "nowhere.hcl"},
		{"graph good.hcl", exitDone, "digraph"},
		{"graph bad.hcl", exitFailed, "Unknown kind"},
		{"graph -format png good.hcl", exitMisuse, "dot or mermaid"},
		{"console good.hcl 1+1", exitDone, "2"},
		{"console good.hcl 1+", exitFailed, "Error"},
		{"kinds exec", exitDone, "command"},
		{"kinds exce", exitMisuse, "did you mean exec?"},
		{"why exec.a good.hcl", exitDone, "exec.a"},
		{"why exec.b good.hcl", exitFailed, "did you mean exec.a?"},
		{"why", exitMisuse, "want the address"},
		{"logs exec.a good.hcl", exitDone, ""},
		{"logs", exitMisuse, "want the address"},
		{"logs exec.a", exitMisuse, "several experiments here"},
		{"store ls -sort cost", exitMisuse, "there is no order cost, only address, age, seconds, size, worth"},
		{"show exec.a.out good.hcl", exitDone, "a.txt"},
		{"show", exitMisuse, "want the address"},
		{"show exec.a.uot good.hcl", exitFailed, "stage.exec.a has no port uot, only out"},
		{"show exec.two ports.hcl", exitFailed, "stage.exec.two has the ports left, right; name one: exec.two.left"},
		{"diff", exitMisuse, "want two runs"},
		{"diff nope nope", exitFailed, "nope"},
		{"status good.hcl", exitDone, "good"},
		{"status ugly.hcl", exitDone, "no runs of ugly in"},
		{"store ls", exitDone, "exec.a"},
		{"store check", exitDone, ""},
		{"store", exitMisuse, "rcgrpo store ls"},
		{"store burn", exitMisuse, "rcgrpo store ls"},
		{"store chekc", exitMisuse, "there is no chekc; did you mean check?"},
		{"store gc", exitDone, "results stay, since there is no limit"},
		{"store gc -limit 0B", exitMisuse, "would be no limit"},
		{"bfcl shwo", exitMisuse, "there is no shwo; did you mean show?"},
		{"lint", exitMisuse, "want one table"},
		{"completion fish", exitDone, "complete -c rcgrpo"},
		{"completion tcsh", exitMisuse, "bash, zsh or fish"},
		{"complete nonsense x", exitDone, ""},
	} {
		code, stdout, stderr := callLine("", strings.Fields(tc.line)...)
		if code != tc.want || !strings.Contains(stdout+stderr, tc.says) {
			t.Errorf("rcgrpo %s: got %d, want %d with %q\n%s%s", tc.line, code, tc.want, tc.says, stdout, stderr)
		}
		if code == exitMisuse && stdout != "" {
			t.Errorf("rcgrpo %s: misuse wrote to standard output: %s", tc.line, stdout)
		}
		if strings.Contains(stdout+stderr, "\x1b") {
			t.Errorf("rcgrpo %s: colours although nobody reads this on a terminal", tc.line)
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
	if !isTerminal(terminal) || !colored(terminal) {
		t.Error("a terminal gets no colours")
	}
	if colored(&bytes.Buffer{}) {
		t.Error("a pipe gets colours")
	}
	t.Setenv("NO_COLOR", "1")
	if colored(terminal) {
		t.Error("colours in spite of NO_COLOR")
	}
}

// helpLines are all commands and subcommands.
func helpLines() [][]string {
	var lines [][]string
	for _, c := range commands() {
		if c.summary != "" {
			lines = append(lines, []string{c.name})
		}
	}
	for command, subcommands := range map[string][]string{"store": {"ls", "check", "gc"}, "bfcl": {"check", "replay", "show", "chat"}} {
		for _, name := range subcommands {
			lines = append(lines, []string{command, name})
		}
	}
	return lines
}

// A call for help is answered on standard output with exit code 0, in every spelling, wherever it stands.
func TestHelpIsAnAnswer(t *testing.T) {
	exitFolder(t)
	for _, line := range helpLines() {
		calls := [][]string{append(slices.Clone(line), "-h"), append(slices.Clone(line), "--help"), append(slices.Clone(line), "-help")}
		if len(line) == 2 || line[0] != "store" && line[0] != "bfcl" {
			calls = append(calls, append(slices.Clone(line), "word", "--help"))
		}
		for _, call := range calls {
			code, stdout, stderr := callLine("", call...)
			if code != exitDone || !strings.HasPrefix(stdout, "usage:") || stderr != "" {
				t.Errorf("%v: got %d, %q, %q, want the usage on standard output", call, code, stdout, stderr)
			}
			if len(line) == 2 && !strings.Contains(stdout, "rcgrpo "+strings.Join(line, " ")) {
				t.Errorf("%v: got %q, want the usage of that command", call, stdout)
			}
		}
	}
}

// Flags may stand before, between and behind the words of a line, also before the command; behind -- all are words.
func TestFlagsMayStandAnywhere(t *testing.T) {
	exitFolder(t)
	if err := os.WriteFile("site2.hcl", []byte("store {\n  path = \"store2\"\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ line, same string }{
		{"plan -site site2.hcl good.hcl", "plan good.hcl -site site2.hcl"},
		{"plan -site=site2.hcl good.hcl", "-site site2.hcl plan good.hcl"},
		{"check good.hcl ports.hcl -site site2.hcl", "check good.hcl -site site2.hcl ports.hcl"},
		{"why -site site2.hcl exec.a good.hcl", "why exec.a good.hcl -site site2.hcl"},
		{"graph -format mermaid good.hcl", "graph good.hcl -format mermaid"},
		{"fmt -check good.hcl ugly.hcl", "fmt good.hcl -check ugly.hcl"},
		{"kinds -markdown exec", "kinds exec -markdown"},
		{"store ls -json -site site2.hcl", "store -site site2.hcl ls -json"},
		{"store gc -limit 1GB -site site2.hcl", "store -limit 1GB -site site2.hcl gc"},
		{"store check -site site2.hcl", "store -site site2.hcl check"},
		{"bfcl check -data nowhere", "bfcl -data nowhere check"},
		{"bfcl show -data nowhere -full TASK", "bfcl show TASK -data nowhere -full"},
		{"bfcl chat -data nowhere TASK", "bfcl chat TASK -data nowhere"},
		{"bfcl replay -data nowhere -in file -verify", "bfcl -verify -data nowhere replay -in file"},
		{"show -site site2.hcl exec.a.out good.hcl", "show exec.a.out good.hcl -site site2.hcl"},
		{"console -site site2.hcl good.hcl", "console good.hcl -site site2.hcl"},
		{"report -site site2.hcl good.hcl", "report good.hcl -site site2.hcl"},
		{"status -site site2.hcl good.hcl", "status good.hcl -site site2.hcl"},
		{"logs -site site2.hcl exec.a good.hcl", "logs exec.a good.hcl -site site2.hcl"},
		{"lint -n 10 nowhere.csv", "lint nowhere.csv -n 10"},
		{"diff -site site2.hcl a b", "diff a b -site site2.hcl"},
		{"verify -site site2.hcl page.html", "verify page.html -site site2.hcl"},
		{"reproduce -site site2.hcl page.html#c", "reproduce page.html#c -site site2.hcl"},
		{"replay -group 2 nowhere.jsonl good.hcl", "replay nowhere.jsonl good.hcl -group 2"},
		{"completion bash -site site2.hcl", "completion -site site2.hcl bash"},
		{"run -site site2.hcl fails.hcl -target exec.b", "run fails.hcl -target exec.b -site site2.hcl"},
	} {
		code, stdout, stderr := callLine("", strings.Fields(tc.line)...)
		again, stdoutAgain, stderrAgain := callLine("", strings.Fields(tc.same)...)
		if code != again || stdout != stdoutAgain || stderr != stderrAgain {
			t.Errorf("%s: got %d, %q, %q\n%s: got %d, %q, %q, want the same", tc.line, code, stdout, stderr, tc.same, again, stdoutAgain, stderrAgain)
		}
		if strings.Contains(stdout+stderr, "there is no flag") || code == exitMisuse && !strings.Contains(stderr, "word") {
			t.Errorf("%s: got %d, %s", tc.line, code, stderr)
		}
	}
	for _, line := range []string{"plan -- -site", "bfcl show -- -full", "store -- ls", "-- plan good.hcl"} {
		if code, stdout, _ := callLine("", strings.Fields(line)...); code == exitDone || stdout != "" {
			t.Errorf("%s: got %d, %q, want words and no flags behind --", line, code, stdout)
		}
	}
}
