package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rcgrpo/internal/must"
)

// place is a folder with an experiment, a store and the command.
type place struct {
	*testing.T
	dir, binary string
	env         []string
	user        uint32 // 0: the user of the test
}

// newPlace creates a place that other users can access.
func newPlace(t *testing.T) *place {
	t.Helper()
	dir := t.TempDir()
	must.OK(t, os.Chmod(filepath.Dir(dir), 0o755))
	p := &place{T: t, dir: dir, binary: commandBinary(t, dir)}
	p.env = append(os.Environ(), "HOME="+dir, "RCGRPO_LEASES="+filepath.Join(dir, "leases"), "LC_ALL=C")
	p.put("site.hcl", "store {\n  path = \"store\"\n}\n")
	return p
}

func (p *place) put(name, text string) {
	p.Helper()
	must.OK(p, os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o644))
}

// rcgrpo runs the command in the place and returns its output and exit code.
func (p *place) rcgrpo(args ...string) (text string, code int) {
	p.Helper()
	cmd := exec.Command(p.binary, args...)
	cmd.Dir, cmd.Env = p.dir, p.env
	if p.user != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: p.user, Gid: p.user}}
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// want runs the command and checks its exit code and parts of its output.
func (p *place) want(code int, parts []string, args ...string) {
	p.Helper()
	text, got := p.rcgrpo(args...)
	if got != code {
		p.Errorf("%v as user %d: got exit code %d, want %d: %s", args, p.user, got, code, text)
	}
	must.Contain(p, text, parts...)
}

// needs skips a test without its tools.
func needs(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s", tool)
		}
	}
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can do this")
	}
}

// runTool runs a tool and returns what it prints.
func runTool(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

const twoStages = `
experiment {
}

stage "exec" "a" {
  command = ["sh", "-c", "echo 1 > $out"]
  outputs = { out = "a.txt" }
}

stage "exec" "b" {
  command = ["sh", "-c", "cat $a > $out; echo said"]
  inputs  = { a = stage.exec.a.out }
  outputs = { out = "b.txt" }
}
`

// ^Z in a terminal stops the run but not its stages, and status reports it. fg continues below the output of the shell.
func TestStoppedInATerminalAndContinued(t *testing.T) {
	needs(t, "tmux", "bash", "mkfifo")
	p := newPlace(t)
	gate := filepath.Join(p.dir, "gate")
	runTool(t, "mkfifo", gate)
	p.put("x.hcl", strings.Replace(twoStages, "echo 1 >", "read x < "+gate+"; echo 1 >", 1))
	socket := filepath.Join(p.dir, "tmux")
	tmux := func(args ...string) string {
		t.Helper()
		return runTool(t, append([]string{"tmux", "-S", socket, "-f", "/dev/null"}, args...)...)
	}
	start := exec.Command("tmux", "-S", socket, "-f", "/dev/null", "new-session", "-d", "-s", "s", "-x", "120", "-y",
		"40", "bash --norc --noprofile -i")
	start.Dir, start.Env = p.dir, append(p.env, "TERM=screen", "PS1=prompt> ", "HISTFILE=/dev/null")
	if out, err := start.CombinedOutput(); err != nil {
		t.Skipf("tmux does not start: %v: %s", err, out)
	}
	server := tmux("display-message", "-p", "#{pid}")
	defer func() {
		tmux("kill-server")
		for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(time.Millisecond) { // it has files here
			if _, err := os.Stat("/proc/" + server); err != nil {
				return
			}
		}
	}()
	screen := func() string { return tmux("capture-pane", "-p", "-t", "s") }
	await := func(what string) {
		t.Helper()
		for begin := time.Now(); !strings.Contains(screen(), what); time.Sleep(10 * time.Millisecond) {
			if time.Since(begin) > time.Minute {
				t.Fatalf("no %q on the screen after a minute:\n%s", what, screen())
			}
		}
	}
	tmux("send-keys", "-t", "s", "./rcgrpo run x.hcl", "Enter")
	await("1 running")
	in := must.Get(os.OpenFile(gate, os.O_WRONLY, 0))(t) // returns when the stage reads
	tmux("send-keys", "-t", "s", "C-z")
	await("Stopped")
	p.want(exitDone, []string{"its engine is stopped (process "}, "status", "x.hcl")
	must.Get(in.WriteString("go\n"))(t) // the stage ends while the run is stopped
	in.Close()
	tmux("send-keys", "-t", "s", "echo beside; fg; echo ended with $?", "Enter")
	await("ended with 0")
	_, after, _ := strings.Cut(screen(), "Stopped")
	lines := strings.Split(after, "\n")[1:]
	at := func(line string) int {
		t.Helper()
		for i, l := range lines {
			if strings.TrimSpace(l) == line || strings.HasPrefix(l, line) {
				return i
			}
		}
		t.Errorf("no line %q on the screen:\n%s", line, strings.Join(lines, "\n"))
		return -1
	}
	if beside, again, a := at("beside"), at("./rcgrpo run x.hcl"), at("done    exec.a"); beside > again || again > a {
		t.Errorf("the run has overwritten the output of the shell:\n%s", strings.Join(lines, "\n"))
	}
	p.want(exitDone, []string{"nothing to do"}, "run", "x.hcl")
}

// A store belongs to one user. Other users get an error that names the owner. Root can write everywhere, but creates no
// file that the owner cannot read.
func TestTwoUsersAndOneStore(t *testing.T) {
	needsRoot(t)
	p := newPlace(t)
	const owner, other = 54321, 54322
	for _, name := range []string{"", "store"} { // a folder for both
		dir := filepath.Join(p.dir, name)
		must.OK(t, errors.Join(os.MkdirAll(dir, 0o777), os.Chmod(dir, 0o777)))
	}
	p.put("x.hcl", twoStages)
	as := func(user uint32) {
		p.user = user
		p.env = append(p.env, fmt.Sprintf("RCGRPO_LEASES=%s", filepath.Join(p.dir, fmt.Sprint("leases-", user))))
	}
	as(owner)
	if text, code := p.rcgrpo("run", "x.hcl"); code == -1 || strings.Contains(text, "permission denied") &&
		strings.Contains(text, "exec") {
		t.Skipf("other users cannot reach %s: %s", p.dir, text)
	}
	p.want(exitDone, []string{"nothing to do"}, "run", "x.hcl")
	as(other)
	for _, args := range [][]string{{"run", "x.hcl"}, {"plan", "x.hcl"}, {"status", "x.hcl"}, {"store", "verify"},
		{"store", "du"}} {
		p.want(exitFailed, []string{"is private to user 54321", "store { path }"}, args...)
	}
	p.user = 0
	p.want(exitDone, []string{"2 up to date"}, "plan", "x.hcl")
	p.put("x.hcl", strings.Replace(twoStages, "echo 1", "echo 2", 1))
	p.want(exitFailed, []string{"belongs to user 54321", "user root", "store { path }"}, "run", "x.hcl")
	as(owner)
	p.want(exitDone, nil, "run", "x.hcl")
	p.want(exitDone, []string{"sound"}, "store", "verify")
}

// exFAT has no links, modes, unnamed files and sparse files, and its times have a resolution of 2 seconds.
func TestStoreOnAFileSystemWithoutLinksAndModes(t *testing.T) {
	needsRoot(t)
	needs(t, "mkfs.exfat", "mount.exfat-fuse", "losetup", "umount")
	p := newPlace(t)
	image, to := filepath.Join(p.dir, "image"), filepath.Join(p.dir, "mounted")
	must.OK(t, errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 64<<20), os.Mkdir(to, 0o755)))
	runTool(t, "mkfs.exfat", image)
	device, err := exec.Command("losetup", "-f", "--show", image).Output()
	if err != nil {
		t.Skipf("there is no loop device: %v", err)
	}
	loop := string(bytes.TrimSpace(device))
	defer runTool(t, "losetup", "-d", loop)
	if out, err := exec.Command("mount.exfat-fuse", loop, to).CombinedOutput(); err != nil {
		t.Skipf("exFAT cannot be mounted: %v: %s", err, out)
	}
	defer runTool(t, "umount", to)
	if os.Link(p.binary, filepath.Join(to, "link")) == nil {
		t.Fatal("this file system has hard links, so the test proves nothing")
	}
	p.dir = to
	p.put("site.hcl", "store {\n  path = \"store\"\n}\n")
	p.put("x.hcl", twoStages)
	p.want(exitDone, []string{"2 done"}, "run", "x.hcl")
	p.want(exitDone, []string{"nothing to do"}, "run", "x.hcl")
	p.want(exitDone, []string{"said"}, "logs", "exec.b", "x.hcl")
	p.want(exitDone, []string{"sound"}, "store", "verify")
	p.put("x.hcl", strings.Replace(twoStages, "echo 1", "sleep 0.2; echo 2", 1)) // long enough for its log to get a name
	p.want(exitDone, []string{"2 done"}, "run", "x.hcl")
	p.want(exitDone, nil, "store", "gc", "--limit", "1B", "--yes")
	p.want(exitDone, []string{"done"}, "run", "--replace", "exec.a", "x.hcl")
	p.want(exitDone, []string{"sound"}, "store", "verify")
	if b, err := os.ReadFile(filepath.Join(to, "b.txt")); err != nil || string(b) != "2\n" {
		t.Errorf("b.txt: got %q, %v, want 2", b, err)
	}
	p.env = append(p.env, "RCGRPO_LEASES="+filepath.Join(to, "leases"))
	p.want(exitFailed, []string{"RCGRPO_LEASES", "mode 0700"}, "run", "--replace", "exec.a", "x.hcl")
}

// The locale changes no result and no plan. Pashto has other digits, another decimal separator and another collation.
func TestLocaleChangesNothing(t *testing.T) {
	needs(t, "localedef", "locale")
	p := newPlace(t)
	p.put("x.hcl", `
experiment {
}

stage "exec" "numbers" {
  command = ["sh", "-c", <<-EOT
    { /usr/bin/printf '%.2f\n' 1234.5; printf 'b\nA\na\nB\n' | sort; awk 'BEGIN { print 7 / 2 }'; } > $out
  EOT
  ]
  outputs = { out = "numbers.txt" }
}
`)
	locales := filepath.Join(p.dir, "locales")
	must.OK(t, os.Mkdir(locales, 0o755))
	const other = "ps_AF.UTF-8"
	if out, err := exec.Command("localedef", "-i", "ps_AF", "-f", "UTF-8",
		filepath.Join(locales, other)).CombinedOutput(); err != nil {
		t.Skipf("the locale %s cannot be made: %s", other, out)
	}
	outcome := func(locale, wantPoint string) (plan, file string) {
		p.env = append(p.env, "LOCPATH="+locales, "LC_ALL="+locale, "LANG="+locale, "LANGUAGE="+locale)
		point := exec.Command("locale", "decimal_point")
		point.Env = p.env
		if out, err := point.Output(); err != nil || strings.TrimSpace(string(out)) != wantPoint {
			t.Fatalf("%s: got the decimal point %q, %v, so the test proves nothing", locale, out, err)
		}
		must.OK(t, os.RemoveAll(filepath.Join(p.dir, "store")))
		plan, _ = p.rcgrpo("plan", "x.hcl")
		p.want(exitDone, []string{"1 done"}, "run", "--replace", "exec.numbers", "x.hcl")
		p.want(exitDone, []string{"nothing to do"}, "run", "x.hcl")
		b := must.Get(os.ReadFile(filepath.Join(p.dir, "numbers.txt")))(t)
		return plan, string(b)
	}
	wantPlan, wantFile := outcome("C", ".")
	if plan, file := outcome(other, "٫"); plan != wantPlan || file != wantFile {
		t.Errorf("got plan %q and file %q, want %q and %q as in C", plan, file, wantPlan, wantFile)
	}
}

// Sixteen concurrent runs, six under -short, share one store, half of them from a second checkout, beside status, plan,
// logs and store gc.
func TestSixteenRunsExecuteEachStageOnce(t *testing.T) {
	stages, runs := must.Short(t, 40, 200), must.Short(t, 6, 16)
	base := t.TempDir()
	log := filepath.Join(base, "log")
	var text strings.Builder
	text.WriteString("experiment {\n}\n")
	for i := range stages {
		input := "{}"
		if i >= stages/2 { // a second layer
			input = fmt.Sprintf("{ src = stage.exec.s%d.out }", i-stages/2)
		}
		fmt.Fprintf(&text, "stage \"exec\" \"s%d\" {\n"+
			"  command = [\"sh\", \"-c\", \"echo s%d >> %s; echo %d > \\\"$out\\\"\"]\n"+
			"  inputs  = %s\n  outputs = { out = \"made/s%d.txt\" }\n}\n",
			i, i, log, i, input, i)
	}
	site := fmt.Sprintf("store {\n  path = %q\n}\nexecutor \"local\" {\n  cpus = 4\n}\n", filepath.Join(base, "store"))
	checkouts := []string{filepath.Join(base, "one"), filepath.Join(base, "two")}
	for _, dir := range checkouts {
		must.OK(t, os.Mkdir(dir, 0o755))
		for name, content := range map[string]string{"x.hcl": text.String(), "site.hcl": site} {
			must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
		}
	}
	command := func(ctx context.Context, dir string, args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, "rcgrpo", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HOME="+base, "RCGRPO_LEASES="+filepath.Join(base, "leases"))
		return cmd.CombinedOutput()
	}

	ctx, over := context.WithCancel(t.Context())
	var looking, running sync.WaitGroup
	for i, args := range [][]string{{"status"}, {"plan"}, {"store", "gc"}, {"logs", "exec.s0"}} {
		looking.Go(func() {
			for ctx.Err() == nil {
				out, err := command(t.Context(), checkouts[i%2], args...)
				if early := bytes.Contains(out, []byte("has no runs")) || bytes.Contains(out, []byte("has no log")) ||
					bytes.Contains(out, []byte("has not started")); err != nil && !early {
					t.Errorf("%s during the runs: %v\n%s", strings.Join(args, " "), err, out)
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	for i := range runs {
		running.Go(func() {
			if out, err := command(t.Context(), checkouts[i%2], "run"); err != nil {
				t.Errorf("run %d: %v\n%s", i, err, out)
			}
		})
	}
	running.Wait()
	over()
	looking.Wait()

	b := must.Get(os.ReadFile(log))(t)
	lines := strings.Fields(string(b))
	slices.Sort(lines)
	if distinct := slices.Compact(slices.Clone(lines)); len(lines) != stages || len(distinct) != stages {
		t.Errorf("%d executions of %d stages, want each of %d once", len(lines), len(distinct), stages)
	}
	for _, dir := range checkouts {
		if made, err := os.ReadDir(filepath.Join(dir, "made")); err != nil || len(made) != stages {
			t.Errorf("%s has %d published files, %v, want %d", dir, len(made), err, stages)
		}
	}
	if left, _ := os.ReadDir(filepath.Join(base, "leases")); len(left) != 1 {
		t.Errorf("leases: %v are left, want the mutex alone", left)
	}
}
