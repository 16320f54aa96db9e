package exec_test

import (
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
	"rcgrpo/stages/exec"
)

// lab is an experiment of exec stages with a store.
type lab struct {
	*testing.T
	dir   string
	store *artifact.Store
}

func newLab(t *testing.T) *lab {
	t.Helper()
	t.Setenv("RCGRPO_LEASES", filepath.Join(t.TempDir(), "leases"))
	dir := t.TempDir()
	store := must.Get(artifact.Open(filepath.Join(dir, "store")))(t)
	return &lab{T: t, dir: dir, store: store}
}

func (l *lab) put(name, text string) {
	l.Helper()
	path := filepath.Join(l.dir, name)
	must.OK(l, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)))
}

// run plans and runs the stages and returns the events.
func (l *lab) run(stages string, o plan.Options) (events []runs.Event, err error) {
	l.Helper()
	l.put("x.hcl", "experiment {\n}\n"+stages)
	x, diags := lang.Load(lang.Source{Path: filepath.Join(l.dir, "x.hcl"), Env: []string{"HOME=" + l.dir}},
		lang.Registry{exec.Kind()})
	if diags.HasErrors() {
		l.Fatal(diags)
	}
	p := must.Get(plan.New(x, l.store, o))(l)
	err = engine.Run(l.Context(), p, engine.Options{KeepGoing: true}, func(e runs.Event) { events = append(events, e) })
	return events, err
}

// find returns the event of a kind about a stage.
func find(events []runs.Event, kind runs.EventKind, address string) (runs.Event, bool) {
	for _, e := range events {
		if e.Kind == kind && e.Address == address {
			return e, true
		}
	}
	return runs.Event{}, false
}

// outputOf reads the only file of a port.
func (l *lab) outputOf(address, port string) (text string, m *artifact.Manifest) {
	l.Helper()
	manifests, _, err := l.store.Manifests()
	must.OK(l, err)
	for _, m := range manifests {
		if m.Address != address {
			continue
		}
		path, ok := must.Get(l.store.Open(m, port))(l).Only()
		if !ok {
			l.Fatalf("%s.%s does not hold one file", address, port)
		}
		return string(must.Get(os.ReadFile(path))(l)), m
	}
	l.Fatalf("%s has no result", address)
	return "", nil
}

// A stage has the exit status, output and log of `sh -c TEXT` outside the engine, also if it sources a file that
// changes the shell. Its peak memory is recorded.
func TestCommandsExitAsInAPlainShell(t *testing.T) {
	rows := []struct{ name, sourced, text string }{
		{"nothing", ``, `echo 1 >"$out"`},
		{"failure", ``, `echo 1 >"$out"; exit 3`},
		{"trap_EXIT", `trap 'rm -f note.tmp' EXIT`, `echo 1 >"$out"`},
		{"trap_EXIT_fails", `trap 'exit 7' EXIT`, `echo 1 >"$out"`},
		{"trap_EXIT_saves", `trap 'echo late >>"$out"; exit 0' EXIT`, `echo 1 >"$out"; exit 3`},
		{"trap_TERM", `trap 'echo term; echo 1 >"$out"' TERM`, `kill -TERM $$; echo on`},
		{"no_trap_TERM", ``, `echo 1 >"$out"; kill -TERM $$; echo not here`},
		{"trap_HUP", `trap 'echo hup; echo 1 >"$out"' HUP`, `kill -HUP $$; echo on`},
		{"ignored_HUP_of_the_group", `trap '' HUP`, `kill -HUP 0; echo 1 >"$out"`},
		{"trap_USR1_of_the_group", `trap 'echo usr1; echo 1 >"$out"' USR1`, `kill -USR1 0; echo on`},
		{"trap_forgotten", `trap - EXIT TERM HUP`, `echo 1 >"$out"`},
		{"no_traps_before", ``, `trap >"$out"`},
		{"exec", `exec sh -c 'echo replaced >"$out"; exit 0'`, `echo not here >"$out"`},
		{"exec_fails", `exec sh -c 'exit 6'`, `echo 1 >"$out"`},
		{"exec_in_a_variable", `run=exec`, `$run sh -c 'echo replaced >"$out"'; exit 5`},
		{"eval_of_a_trap", `late="trap 'exit 9' EXIT"`, `eval "$late"; echo 1 >"$out"`},
		{"return", `return 0; exit 9`, `echo 1 >"$out"`},
		{"return_fails", `return 4`, `echo 1 >"$out"; exit $?`},
		{"return_outside", `echo 1 >"$out"`, `return 3; exit 4`},
		{"set_e", `set -e`, `echo 1 >"$out"; false; echo not here`},
		{"cd", `cd /`, `pwd >"$out"`},
		{"closes_3_and_4", `exec 3>&- 4>&- 5>&-`, `echo 1 >"$out"`},
		{"closes_all", `exec 0<&- 1>&- 2>&-`, `echo 1 >"$out"`},
		{"opens_3", `exec 3>"$out"`, `echo 1 >&3`},
		{"redirects", `exec >"$out" 2>&1`, `echo 1; echo 2 >&2`},
		{"background", `sleep 600 &`, `echo 1 >"$out"`},
		{"background_waited", `{ echo 1 >"$out"; } &`, `wait`},
		{"background_fails", `(exit 8) &`, `echo 1 >"$out"; wait $!`},
		{"writes_to_3", ``, `{ echo "exit 0" >&3; } 2>/dev/null; echo $? >"$out"`},
		{"writes_to_3_unguarded", ``, `echo 1 >"$out"; echo "exit 0" >&3`},
		{"writes_to_4", ``, `{ echo "{}" >&4; } 2>/dev/null; echo $? >"$out"`},
		{"killed", ``, `kill -9 $$`},
		{"descriptors", ``, `ls /proc/self/fd >"$out"`},
		{"name_and_arguments", ``, `echo "$0 $#" >"$out"`},
		{"syntax", ``, `if then`},
		{"unbalanced", ``, `echo 1 >"$out"; ) ; ( true`},
	}
	l := newLab(t)
	var stages strings.Builder
	for _, row := range rows {
		l.put("env/"+row.name+".sh", row.sourced+"\n")
		fmt.Fprintf(&stages, `
stage "exec" %q {
  command = ["sh", "-c", %q]
  inputs  = { env = file("env/%s.sh") }
  outputs = { out = "made/%s.txt" }
}
`, row.name, `. "$env"; `+row.text, row.name, row.name)
	}
	events, runErr := l.run(stages.String(), plan.Options{})
	var failed *engine.RunError
	if !errors.As(runErr, &failed) {
		t.Fatalf("got %v, want a run in which some stages fail", runErr)
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if strings.Contains(row.name, "trap_HUP") && signal.Ignored(syscall.SIGHUP) {
				t.Skip("SIGHUP is ignored, as below nohup, and a shell cannot trap it then")
			}
			l := &lab{T: t, dir: l.dir, store: l.store}
			address := "stage.exec." + row.name
			out := filepath.Join(t.TempDir(), "out")
			plain := osexec.Command("/bin/sh", "-c", `. "$env"; `+row.text)
			plain.Args[0] = "sh"
			plain.Dir = t.TempDir()
			plain.Env = []string{"PATH=" + os.Getenv("PATH"), "env=" + filepath.Join(l.dir, "env", row.name+".sh"), "out=" +
				out}
			plain.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			printed := must.Get(os.Create(filepath.Join(t.TempDir(), "printed")))(t)
			defer printed.Close()
			plain.Stdout, plain.Stderr = printed, printed
			must.OK(t, plain.Start())
			state := must.Get(plain.Process.Wait())(t)
			syscall.Kill(-plain.Process.Pid, syscall.SIGKILL)
			started, ok := find(events, runs.EventStarted, address)
			if !ok {
				t.Fatal("the stage did not start")
			}
			wantLog, _ := os.ReadFile(printed.Name())
			if log, err := os.ReadFile(started.Path); err != nil || !strings.HasPrefix(string(log), string(wantLog)) {
				t.Errorf("log: got %q, %v, want %q", log, err, wantLog)
			}
			if state.ExitCode() != 0 {
				want := fmt.Sprintf("exit code %d", state.ExitCode())
				if status := state.Sys().(syscall.WaitStatus); status.Signaled() {
					want = map[syscall.Signal]string{syscall.SIGKILL: "was killed",
						syscall.SIGTERM: "request to stop"}[status.Signal()]
				}
				if e, ok := find(events, runs.EventFailed, address); !ok || want == "" || !strings.Contains(e.Text, want) {
					t.Errorf("got %q, failed %v, want %q", e.Text, ok, want)
				}
				return
			}
			if note, found := find(events, runs.EventNote, address); found && row.name == "background" {
				t.Errorf("got the note %q about a process of the command's group, want none", note.Text)
			}
			if e, ok := find(events, runs.EventDone, address); !ok {
				e, _ = find(events, runs.EventFailed, address)
				t.Fatalf("got %q, want that the stage is done", e.Text)
			}
			want := must.Get(os.ReadFile(out))(t)
			got, m := l.outputOf(address, "out")
			if got != string(want) {
				t.Errorf("output: got %q, want %q", got, want)
			}
			if m.PeakBytes <= 0 || m.CPUSeconds <= 0 {
				t.Errorf("got a peak of %d bytes and %g processor seconds, want what was measured", m.PeakBytes, m.CPUSeconds)
			}
		})
	}
}

// Processes that leave their stage's process group are killed and reported when the stage ends. They do not hold
// the lock of the key, so the stage can run again immediately.
func TestDaemonsEndWithTheirStage(t *testing.T) {
	for name, start := range map[string]string{
		"setsid":                  `setsid sh "$daemon" &`,
		"double fork":             `sh -c 'setsid sh "$daemon" &'`,
		"below another daemon":    `setsid sh -c 'sh "$daemon" & sleep 600' &`,
		"without the descriptors": `setsid sh "$daemon" 0<&- 1>&- 2>&- 3>&- 4>&- &`,
		"in another folder":       `(cd / && setsid sh "$daemon" &)`,
		"a group of its own":      `timeout 600 sh "$daemon" &`,
		"without the environment": `(env -i PATH="$PATH" ready="$ready" setsid sh "$daemon" &)`,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.put("daemon.sh", `echo $$ >"$ready"; exec sleep 600`)
			stages := fmt.Sprintf(`
stage "exec" "a" {
  command = ["sh", "-c", %q]
  inputs  = { daemon = file("daemon.sh") }
  outputs = { out = "a.txt" }
}
`, `export ready="$PWD/ready"; mkfifo "$ready"; `+start+"\n"+`read -r pid <"$ready"; echo "$pid" >"$out"`)
			for range 2 { // the second time is a replacement
				events, err := l.run(stages, plan.Options{Replace: []string{"exec.a"}})
				if err != nil {
					t.Fatal(err, events)
				}
				text, _ := l.outputOf("stage.exec.a", "out")
				pid := strings.TrimSpace(text)
				if stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat")); err == nil &&
					!strings.Contains(string(stat), ") Z ") {
					t.Errorf("process %s goes on: %s", pid, stat)
				}
				note, _ := find(events, runs.EventNote, "stage.exec.a")
				if !strings.Contains(note.Text, "(process "+pid+")") || !strings.HasSuffix(note.Text, "killed") {
					t.Errorf("got the note %q, want one that names process %s as killed", note.Text, pid)
				}
			}
		})
	}
}

// The value of a secret in the name of an output reaches no event, manifest, error or published file. A manifest cannot
// contain a name that is not UTF-8. The stage fails before the commit.
func TestNamesWithSecretsAndNamesThatAreNotUTF8AreRefused(t *testing.T) {
	t.Setenv("TOKEN", "geheim\nzweite")
	const secret = "contains the value of the secret TOKEN"
	for name, tc := range map[string]struct{ text, outputs, want string }{
		"a file":                  {`echo 1 >"$out/x-$first.txt"`, `out = "made/"`, secret},
		"a folder":                {`mkdir "$out/$first"; echo 1 >"$out/$first/x"`, `out = "made/"`, secret},
		"a link":                  {`echo 1 >"$out/x"; ln -s / "$out/$first"`, `out = "made/"`, secret},
		"its second line":         {`echo 1 >"$out/zweite"`, `out = "made/"`, secret},
		"the path in the setting": {`echo 1 >"$out"`, `out = "made/geheim.txt"`, secret},
		"a path that is not made": {`true`, `out = "made/geheim.txt"`, secret},
		"not UTF-8": {`echo 1 >"$out/$(printf 'a\377b')"`, `out = "made/"`,
			`"made/a\xffb": the name of a file in a result must be valid UTF-8`},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			events, err := l.run(fmt.Sprintf(`
stage "exec" "a" {
  command = ["sh", "-c", %q]
  secrets = ["TOKEN"]
  outputs = { %s }
}
`, `first=geheim; `+tc.text, tc.outputs), plan.Options{})
			failed, found := find(events, runs.EventFailed, "stage.exec.a")
			if err == nil || !found || !strings.Contains(failed.Text, tc.want) {
				t.Fatalf("got %v, %q, want that the name is refused", err, failed.Text)
			}
			if text := fmt.Sprintf("%+v", failed.Failure); strings.Contains(text, "geheim") ||
				strings.Contains(text, "zweite") {
				t.Errorf("got %s, want no secret in it", text)
			}
			if manifests, _, err := l.store.Manifests(); err != nil || len(manifests) > 0 {
				t.Errorf("got %d results, %v, want none", len(manifests), err)
			}
			if problems, err := l.store.Check(); err != nil || len(problems) > 0 {
				t.Errorf("got %v, %v, want a sound store", problems, err)
			}
			if _, err := os.Stat(filepath.Join(l.dir, "made")); err == nil {
				t.Error("something was published")
			}
		})
	}
}

// A folder on the way to an output may not be a link: its file would be moved out of the user's folder.
func TestOutputsBehindLinksAreRefused(t *testing.T) {
	l, outside := newLab(t), t.TempDir()
	key := filepath.Join(outside, "id")
	must.OK(t, os.WriteFile(key, []byte("private"), 0o600))
	events, err := l.run(`
stage "exec" "a" {
  command = ["sh", "-c", "rmdir $(dirname $out) && ln -s `+outside+` $(dirname $out)"]
  outputs = { out = "deep/ssh/id" }
}
`, plan.Options{})
	failed, _ := find(events, runs.EventFailed, "stage.exec.a")
	if err == nil || !strings.Contains(failed.Text, "deep/ssh is a symbolic link, and a result holds plain files only") {
		t.Errorf("got %v, %q, want a sentence about the link", err, failed.Text)
	}
	if text, err := os.ReadFile(key); string(text) != "private" {
		t.Errorf("got %q, %v, want that the file stays", text, err)
	}
}

// Publishing follows no symbolic link below the experiment's folder. A path that is no plain file is moved aside
// unread.
func TestPublishingDoesNotFollowLinks(t *testing.T) {
	const stages = `
stage "exec" "a" {
  command = ["sh", "-c", "echo made > $out"]
  outputs = { out = "deep/made/a.txt" }
}
`
	for name, tc := range map[string]struct {
		prepare func(l *lab, outside string) error
		stays   bool
	}{
		"the first folder": {prepare: func(l *lab, outside string) error {
			return os.Symlink(outside, filepath.Join(l.dir, "deep"))
		}},
		"the second folder": {prepare: func(l *lab, outside string) error {
			return errors.Join(os.Mkdir(filepath.Join(l.dir, "deep"), 0o700),
				os.Symlink(outside, filepath.Join(l.dir, "deep", "made")))
		}},
		"the file": {stays: true, prepare: func(l *lab, outside string) error {
			return errors.Join(os.MkdirAll(filepath.Join(l.dir, "deep", "made"), 0o700),
				os.WriteFile(filepath.Join(outside, "victim"), []byte("made\n"), 0o600),
				os.Symlink(filepath.Join(outside, "victim"), filepath.Join(l.dir, "deep", "made", "a.txt")))
		}},
		"a named pipe": {stays: true, prepare: func(l *lab, outside string) error {
			return errors.Join(os.MkdirAll(filepath.Join(l.dir, "deep", "made"), 0o700),
				syscall.Mkfifo(filepath.Join(l.dir, "deep", "made", "a.txt"), 0o600))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l, outside := newLab(t), t.TempDir()
			must.OK(t, tc.prepare(l, outside))
			before := must.Get(os.ReadDir(outside))(t)
			events, err := l.run(stages, plan.Options{Paranoid: true})
			if _, done := find(events, runs.EventDone, "stage.exec.a"); !done {
				t.Fatalf("got %v, want that the stage is done", err)
			}
			if !tc.stays && (err == nil || !strings.Contains(err.Error(),
				"is a symbolic link, and files are published into folders of the experiment only")) {
				t.Errorf("got %v, want a sentence about the link", err)
			}
			if after, err := os.ReadDir(outside); err != nil || len(after) != len(before) {
				t.Errorf("got %d files outside, %v, want the %d from before", len(after), err, len(before))
			}
			if !tc.stays {
				return
			}
			if err != nil {
				t.Error(err)
			}
			if info, err := os.Lstat(filepath.Join(l.dir, "deep", "made", "a.txt")); err != nil || info.Mode().IsRegular() {
				t.Errorf("got %v, %v, want what stood there before", info, err)
			}
			for range 2 { // a pipe put there later is noticed, and not read
				must.OK(t, errors.Join(os.Remove(filepath.Join(l.dir, "deep", "made", "a.txt")),
					syscall.Mkfifo(filepath.Join(l.dir, "deep", "made", "a.txt"), 0o600)))
				if _, err := l.run(stages, plan.Options{Paranoid: true}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
