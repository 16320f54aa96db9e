//go:build libtorch

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// The files and commands of docs/tutorial.md, in its order, as a session. A command appears after the files above it.
func TestTutorial(t *testing.T) {
	page, err := os.ReadFile(rootFile(t, "docs/tutorial.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```(hcl|sh)\n(.*?)```").FindAllStringSubmatchIndex(string(page), -1)
	names := regexp.MustCompile("`(mine/[a-z_]+\\.hcl)`")
	var session, files strings.Builder
	session.WriteString("mkdir mine\n")
	commands := 0
	for n, at := range blocks {
		kind, text := string(page[at[2]:at[3]]), string(page[at[4]:at[5]])
		if kind == "hcl" {
			name := names.FindAllStringSubmatch(string(page[:at[0]]), -1)
			if name == nil {
				t.Fatalf("block %d belongs to no file", n+1)
			}
			fmt.Fprintf(&session, "cp file%d %s\n", n, name[len(name)-1][1])
			fmt.Fprintf(&files, "-- file%d --\n%s", n, text)
			continue
		}
		for line := range strings.Lines(text) {
			session.WriteString("exec " + line)
			commands++
		}
	}
	session.WriteString(`changes 200 dr_grpo.tar.gz
exec rcgrpo plan mine -detailed-exitcode
grep 'RCTP-FT . Dr. GRPO' mine/dr_grpo.html
grep 'href="#section-2">Training' mine/dr_grpo.html
`)
	dir := t.TempDir()
	site := "-- site.hcl --\nstore {\n  path = \"store\"\n}\n"
	if err := os.WriteFile(filepath.Join(dir, "tutorial.txtar"), []byte(session.String()+"\n"+site+files.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if commands < 12 {
		t.Errorf("only %d commands", commands)
	}
	testscript.Run(t, testscript.Params{Dir: dir, Cmds: map[string]func(*testscript.TestScript, bool, []string){"changes": changes}, Setup: func(e *testscript.Env) error {
		e.Setenv("HOME", e.WorkDir)
		e.Setenv("RCGRPO_SITE", filepath.Join(e.WorkDir, "site.hcl"))
		return nil
	}})
}

// changes is changeBytes in a session: changes N BUNDLE.
func changes(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	ts.Check(changeBytes(ts.MkAbs(args[1]), ts.MkAbs("unpacked"), n, ts.Logf))
}
