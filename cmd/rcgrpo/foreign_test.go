package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"unicode"

	"rcgrpo/internal/must"
)

// Everything that a command prints passes one writer, so each of these examples is for all commands.
func TestForeignTextOfCommandsCannotControlTheTerminal(t *testing.T) {
	t.Chdir(t.TempDir())
	const esc = "\x1b]0;title\x07\x1b[2J\u009b8m\u202e"
	write := func(name, text string) string {
		must.OK(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	site := write("site.hcl", "store {\n path = \"store\"\n}\n")
	faulty := write("faulty.hcl", "experiment {}\nstage \"tasks\" \"t\" {\n source = 1 # "+esc+"\n}\n")
	valid := "experiment {}\nstage \"tasks\" \"t\" {\n source = \"drills\"\n}\n"
	plain, named := write("plain.hcl", valid), write("name"+esc+".hcl", valid)
	for _, args := range [][]string{
		{"check", faulty, "--site", site},
		{"check", named, "--site", site},
		{"plan", named, "--site", site},
		{"plan", plain, "--site", site, "--target", esc},
		{"plan", plain, "--site", site, "--set", "tasks.t.take=" + esc},
		{"why", esc, plain, "--site", site},
		{"show", esc, plain, "--site", site},
		{"status", "--site", site, named},
		{"logs", esc, "--site", site, named},
		{"verify", esc},
		{"reproduce", esc + "#a"},
		{"open", esc},
		{esc},
	} {
		var stdout, stderr bytes.Buffer
		execute(args, strings.NewReader(""), &stdout, &stderr)
		got := stdout.String() + stderr.String()
		if !strings.Contains(got, "�") {
			t.Errorf("%q prints no foreign text: %q", args, got)
		}
		if i := strings.IndexFunc(got, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsGraphic(r) }); i >= 0 {
			t.Errorf("%q prints %q", args, got[i:min(len(got), i+40)])
		}
	}
}

// A script of completion evaluates the line again at the next Tab.
func TestCompletionOffersNoNameThatAShellExecutes(t *testing.T) {
	t.Chdir(t.TempDir())
	const stage = "stage \"tasks\" \"t\" {\n source = \"drills\"\n for_each = [\"$(x)\", \"`x`\", \"x --y\", \"a + B\"]\n}"
	for line, block := range map[string]string{"why": stage, "show": stage, "plan --target": stage,
		"run --var": "variable \"$(x)\" {}\nvariable \"a + B\" {}"} {
		must.OK(t, os.WriteFile("foreign.hcl", []byte("experiment {}\n"+block), 0o600))
		_, got, _ := callLine("", append(strings.Fields("__complete "+line), "")...)
		if strings.Contains(got, "x") || !strings.Contains(got, "a + B") {
			t.Errorf("%s: completion offers %q", line, got)
		}
	}
}
