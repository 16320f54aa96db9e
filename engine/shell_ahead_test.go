package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/engine/artifact"
)

// shellJob is a job with a log file, and with a shell that waits when ahead says so.
func shellJob(t *testing.T, ahead bool) (j *Job, log string) {
	t.Helper()
	dir := t.TempDir()
	j, err := NewJob(JobSetup{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := artifact.LockFile(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Unlock() })
	files := map[string]*os.File{"log": nil, "lease": nil}
	for name := range files {
		if files[name], err = os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { files[name].Close() })
	}
	j.lock, j.share, j.log = lock, files["lease"], files["log"]
	if ahead {
		if err := scriptLink(dir); err != nil {
			t.Fatal(err)
		}
		if j.shell, err = startShellAhead(dir, lock, &slot{file: files["lease"]}, &stageLog{file: files["log"]}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(j.shell.end)
	}
	return j, filepath.Join(dir, "log")
}

// What a text does, prints and ends with does not depend on when its shell was started.
func TestShellsAheadDoWhatOthersDo(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{
		"echo one; echo two >&2",
		"exit 3",
		"false",
		"no-such-program-anywhere",
		"echo first\necho second\nno-such-program-anywhere --here\necho last",
		"echo 'no end",
		"if true; then echo no end",
		"echo before\necho ) after",
		"echo $0 $# $-",
		"env | sort",
		"echo \"$plain|$quotes|$blank|$dollar\"",
		"cat; echo end of input",
		"pwd; pwd -P; cd ..; pwd -P; cd -",
		"umask",
		"ls /proc/self/fd",
		"cat <<E\n$plain\nE",
		"sleep 100 & echo started",
		"kill -TERM $$; sleep 100",
		"kill -SEGV $$",
		"[ \"$(cut -d' ' -f6 /proc/$$/stat)\" = $$ ] && echo leads its session",
		"echo $LINENO\necho $LINENO",
		"# nothing but a comment",
		"",
		"set -e; false; echo not here",
		"readlink /proc/self/fd/0 /proc/self/fd/3 | sed 's|.*/||'",
		"echo '" + strings.Repeat("long ", 5000) + "'",
	} {
		p := shell(text)
		p.Dir = dir
		p.Env = append(p.Env, "PWD="+dir, "plain=x", "quotes=a'b\"c", "blank=", "dollar=$HOME `date` \\")
		var ended, printed [2]string
		for i, ahead := range []bool{false, true} {
			j, log := shellJob(t, ahead)
			if err := j.Execute(t.Context(), p); err != nil {
				ended[i] = err.Error()
			}
			if ahead && !strings.Contains(text, "$$") && j.shell != nil {
				t.Errorf("%q was not given to the shell that waits", text)
			}
			b, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			printed[i] = string(b)
		}
		if ended[0] != ended[1] || printed[0] != printed[1] {
			t.Errorf("%.40q: started for it: %q, printed %.400q; started ahead: %q, printed %.400q", text, ended[0], printed[0], ended[1], printed[1])
		}
	}
}

func TestWhatShellsAheadAreNotFor(t *testing.T) {
	dir := t.TempDir()
	with := func(change func(p *Program)) Program {
		p := shell("echo done")
		p.Dir = dir
		change(&p)
		return p
	}
	for name, p := range map[string]Program{
		"another program":         with(func(p *Program) { p.Args = []string{"echo", "done"} }),
		"further arguments":       with(func(p *Program) { p.Args = append(p.Args, "name") }),
		"a text that replaces it": with(func(p *Program) { p.Args[2] = "exec echo done" }),
		"a secret":                with(func(p *Program) { p.Secret = []string{"x"} }),
		"a variable of the shell": with(func(p *Program) { p.Env = append(p.Env, "IFS=,") }),
		"a value of two lines":    with(func(p *Program) { p.Env = append(p.Env, "lines=a\nb") }),
		"more than a pipe holds":  with(func(p *Program) { p.Args[2] += strings.Repeat(" ", scriptAtMost) }),
		"no folder":               with(func(p *Program) { p.Dir = "" }),
	} {
		if script, ok := aheadScript(p); ok {
			t.Errorf("%s: got %q, want a shell of its own", name, script)
		}
		j, log := shellJob(t, true)
		if err := j.Execute(t.Context(), p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if b, _ := os.ReadFile(log); strings.TrimSpace(string(b)) != "done" {
			t.Errorf("%s: the log says %.100q, want done", name, b)
		}
	}
}

// A shell that waits is gone when nobody can write its script any more, and one that somebody has killed is replaced.
func TestShellsAheadEndWithTheirEngine(t *testing.T) {
	j, _ := shellJob(t, true)
	j.shell.script.Close()
	if state, err := j.shell.process.Wait(); err != nil || state.ExitCode() != 0 {
		t.Errorf("without a script: got %v, %v, want exit code 0", state, err)
	}
	j, log := shellJob(t, true)
	j.shell.process.Kill()
	awaitExit(j.shell.process.Pid)
	p := shell("echo done")
	p.Dir = j.Dir
	if err := j.Execute(t.Context(), p); err != nil {
		t.Error(err)
	}
	if b, _ := os.ReadFile(log); string(b) != "done\n" {
		t.Errorf("the log says %q, want done", b)
	}
}

// In a chain of small stages shells wait for their scripts, and the run leaves nothing of what it had ready: no process, no lock, no
// spare folder or log.
func TestChainsStartShellsAhead(t *testing.T) {
	l := newLab(t)
	var file strings.Builder
	const stages = 20
	for i := range stages {
		from := ""
		if i > 0 {
			from = fmt.Sprintf("from = [stage.light.s%d.out]", i-1)
		}
		fmt.Fprintf(&file, "stage \"light\" \"s%d\" {\n%s\ntext = \"%d\"\nshell = \"tr '\\\\000' ' ' </proc/$$/cmdline\"\n}\n", i, from, i)
	}
	l.write(file.String())
	r := l.mustRun()
	waited := 0
	for _, e := range r.events {
		if e.Kind != EventStarted {
			continue
		}
		b, err := os.ReadFile(e.Path)
		if err != nil {
			t.Fatal(err)
		}
		if string(b) == "sh sh " {
			waited++
		}
	}
	if waited == 0 {
		t.Error("no stage ran in a shell that was started before")
	}
	t.Logf("%d of %d stages ran in shells that waited", waited, stages)
	for _, pattern := range []string{"locks/*", "work/*", "runs/*/*/nodes/*", "runs/*/*/logs/.spare*"} {
		left, err := filepath.Glob(filepath.Join(l.storeDir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range left {
			if filepath.Base(path) != "store" {
				t.Errorf("left: %s", path)
			}
		}
	}
	if left := l.processes(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
