package main

import (
	"bytes"
	"os"
	"path/filepath"
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
