package engine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/machine"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
)

// mutexIsFree reports whether the mutex of a ledger is unlocked.
func mutexIsFree(t *testing.T, dir string) bool {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "mutex"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// The reader of a run's events may block for ever, as a terminal does after ^S; other runs must be able to lock the
// ledger during that time.
func TestNoEventIsReportedWhileTheLedgerIsLocked(t *testing.T) {
	for name, tc := range map[string]struct {
		held  machine.Lease
		stage string
		same  bool // another run makes the stage
		want  string
	}{
		"waiting for CPUs": {held: machine.Lease{CPUs: 3}, stage: "resources {\n cpus = 2\n }",
			want: "waiting for its share"},
		"waiting for a result":       {held: machine.Lease{CPUs: 1}, same: true, want: "another run is making it"},
		"the driver gives no answer": {held: machine.Lease{CPUs: 1}, stage: "resources {\n gpus = 1\n }", want: "cannot check"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := ownLedger(t)
			fakeDriver(t, "nothing of use\n", "")
			l := newLab(t)
			l.write("stage \"toy\" \"a\" {\n " + tc.stage + "\n}\n")
			plan, store := l.plan(), l.store()
			other := openTestLedger(t, "runs/y/1")
			other.Store = store.Dir()
			tc.held.Address = "stage.other.one"
			var unlock func() error
			if tc.same {
				tc.held.Key = plan.Nodes[0].Key
				lock, err := store.TryLock(tc.held.Key)
				if err != nil || lock == nil {
					t.Fatal(lock, err)
				}
				unlock = lock.Unlock
			}
			s := other.mustTake(t, tc.held)
			seen := false
			err := Run(plan, t.Context(), Options{}, func(e runs.Event) {
				if e.Kind != runs.EventNote || seen { // only the loop emits notes, and no other process uses the mutex
					return
				}
				seen = true
				if !strings.Contains(e.Text, tc.want) {
					t.Errorf("got the note %q, want %q in it", e.Text, tc.want)
				}
				if !mutexIsFree(t, dir) {
					t.Errorf("the ledger is locked while the run reports %q", e.Text)
				}
				if err := s.Free(); err != nil {
					t.Error(err)
				}
				if unlock != nil {
					if err := unlock(); err != nil {
						t.Error(err)
					}
				}
			})
			if err != nil || !seen {
				t.Errorf("got %v and a note: %v, want a run that ends well after a note", err, seen)
			}
			if err := other.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// holdMutex starts a process that holds the mutex of a ledger.
func holdMutex(t *testing.T, dir string) *os.Process {
	t.Helper()
	flock, err := exec.LookPath("flock")
	if err != nil {
		t.Skip("there is no flock(1)")
	}
	cmd := exec.Command(flock, "--no-fork", filepath.Join(dir, "mutex"), "sh", "-c", "echo locked; exec sleep 600")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatal(line, err)
	}
	return cmd.Process
}

func TestLedgerLockEndsWithTheContextOrNamesTheHolder(t *testing.T) {
	dir := ownLedger(t)
	l := openTestLedger(t, "runs/x/1")
	holder := holdMutex(t, dir)
	defer func(d time.Duration) { machine.ledgerTimeout = d }(machine.ledgerTimeout)

	machine.ledgerTimeout = time.Hour
	cause := errors.New("interrupted by the user")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := l.Lock(ctx); !errors.Is(err, cause) {
		t.Errorf("with a context that has ended: got %v, want its cause", err)
	}
	machine.ledgerTimeout = 20 * time.Millisecond
	if err := l.Lock(t.Context()); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("by process %d:",
		holder.Pid)) {
		t.Errorf("a process holds it: got %v, want an error that names process %d", err, holder.Pid)
	}
	stopProcess(t, holder.Pid)
	err := l.Lock(t.Context())
	for _, want := range []string{filepath.Join(dir, "mutex"), "stopped", fmt.Sprintf("kill -CONT %d", holder.Pid)} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a stopped process holds it: got %v, want %q in it", err, want)
		}
	}
	// A run beside that process fails its stage with this error instead of waiting for ever.
	e := newLab(t)
	e.write("stage \"toy\" \"a\" {\n}\n")
	r := e.run(Options{})
	if f, ok := r.find(runs.EventFailed, "toy.a"); !ok || !strings.Contains(f.Text,
		"share the machine with other runs") || !strings.Contains(f.Text, "stopped") {
		t.Errorf("a run beside it: got %s, want a failure with the reason", r.text())
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// stopProcess sends SIGSTOP and waits until the process is stopped.
func stopProcess(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until(t, "the process is stopped", func() bool { return proc.Stopped(pid) })
}

// until waits for a condition that another process fulfils.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after 30 s still not: %s", what)
		}
	}
}

func TestRemovedMutexIsCreatedAgain(t *testing.T) {
	for name, remove := range map[string]func(dir string) error{
		"the mutex is removed":  func(dir string) error { return os.Remove(filepath.Join(dir, "mutex")) },
		"the folder is removed": os.RemoveAll,
	} {
		t.Run(name, func(t *testing.T) {
			dir := ownLedger(t)
			a, b := openTestLedger(t, "runs/x/1"), openTestLedger(t, "runs/y/2")
			if err := remove(dir); err != nil {
				t.Fatal(err)
			}
			if err := a.Lock(t.Context()); err != nil {
				t.Fatal(err)
			}
			if locked, err := b.tryLock(); locked || err != nil {
				t.Errorf("b while a has the mutex: got %v, %v, want no lock", locked, err)
			}
			if !a.Partial() || !b.Partial() {
				t.Errorf("stages may start at once (a %v, b %v), before other runs have registered again", !a.Partial(),
					!b.Partial())
			}
			c := openTestLedger(t, "runs/z/3")
			if !c.Partial() {
				t.Error("a new run may start stages before other runs have registered again")
			}
			a.Unlock()
			if err := errors.Join(a.Close(), b.Close(), c.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// removals remove files of the ledger as cleaning tools do.
var removals = map[string]func(dir string) error{
	"emptied": func(dir string) error {
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
		return err
	},
	"removed": os.RemoveAll,
}

// The folder of the ledger is emptied while two runs share the machine. The second run continues to wait, and both
// succeed.
func TestRunsRegisterAgainInAnEmptiedLedger(t *testing.T) {
	for name, remove := range removals {
		t.Run(name, func(t *testing.T) {
			dir := ownLedger(t)
			defer func(d time.Duration) { machine.RenewEvery = d }(machine.RenewEvery)
			machine.RenewEvery = 100 * time.Millisecond
			l := newLab(t)
			g := l.gate()
			l.write("stage \"toy\" \"a\" {\n gate = \"$dir/gate\"\n resources {\n cpus = 3\n }\n}\n")
			ended := make(chan record, 1)
			go func() { ended <- l.run(Options{}) }()
			v := g.next()
			second := newLab(t)
			second.write("stage \"toy\" \"b\" {\n count = \"$dir/count\"\n resources {\n cpus = 2\n }\n}\n")
			waiting, secondEnded := make(chan string, 64), make(chan error, 1)
			go func() {
				secondEnded <- Run(second.plan(), t.Context(), Options{}, func(e runs.Event) {
					if e.Kind == runs.EventNote {
						waiting <- e.Text
					}
				})
			}()
			<-waiting
			if err := remove(dir); err != nil {
				t.Fatal(err)
			}
			// After both have registered again and the second has polled, it would have started.
			until(t, "lease and request exist again", func() bool {
				leases, _ := filepath.Glob(filepath.Join(dir, machine.leasePattern))
				wishes, _ := filepath.Glob(filepath.Join(dir, machine.requestPattern))
				return len(leases) > 0 && len(wishes) > 0
			})
			watcher := openTestLedger(t, "runs/z/1")
			written := time.Duration(0)
			for looks := 0; looks < 3; {
				until(t, "the second run polls again", func() bool {
					i := slices.IndexFunc(watcher.mustOthers(t), func(o machine.Lease) bool { return o.Waits })
					return i >= 0 && watcher.mustOthers(t)[i].Written > written
				})
				written = proc.SinceBoot()
				looks++
			}
			if got := second.counted(); len(got) > 0 {
				t.Errorf("the second run started %v while the first holds 3 of 4 CPUs", got)
			}
			v.pass()
			if r := <-ended; r.err != nil {
				t.Errorf("the first run: %v\n%s", r.err, r.text())
			} else if _, ok := r.find(runs.EventNote, ""); !ok {
				t.Errorf("the first run does not report it: %s", r.text())
			}
			if err := <-secondEnded; err != nil {
				t.Errorf("the second run: %v", err)
			}
			if got := second.counted(); len(got) != 1 {
				t.Errorf("starts: got %v, want one", got)
			}
			if err := watcher.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A run whose lease was removed succeeds.
func TestMissingLeaseAtTheEndIsNoError(t *testing.T) {
	for name, remove := range removals {
		t.Run(name, func(t *testing.T) {
			dir := ownLedger(t)
			l := newLab(t)
			g := l.gate()
			l.write("stage \"toy\" \"a\" {\n gate = \"$dir/gate\"\n}\n")
			ended := make(chan record, 1)
			go func() { ended <- l.run(Options{}) }()
			v := g.next()
			if err := remove(dir); err != nil {
				t.Fatal(err)
			}
			v.pass()
			if r := <-ended; r.err != nil {
				t.Errorf("got %v, want no error\n%s", r.err, r.text())
			}
		})
	}
}

// startEngine starts an engine as a process and returns it and its output.
func startEngine(t *testing.T, l *lab) (cmd *exec.Cmd, out *strings.Builder) {
	t.Helper()
	cmd, out = l.engine(), &strings.Builder{}
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGCONT)
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd, out
}

// The running stages of a stopped engine keep their reservations, which waiting runs report. Ended stages reserve
// nothing.
func TestEndedStageOfAStoppedRunReservesNothing(t *testing.T) {
	for name, stage := range map[string]string{
		"a process": "stage \"toy\" \"a\" {\n gate = \"$dir/gate\"\n",
		"a program": "stage \"light\" \"a\" {\n shell = \"read x < $dir/gate\"\n",
	} {
		t.Run(name, func(t *testing.T) {
			ownLedger(t)
			l := newLab(t)
			l.write(stage + " resources {\n cpus = 3\n }\n}\n")
			var pass func()
			var await func()
			if name == "a program" {
				path := filepath.Join(l.dir, "gate")
				if err := unix.Mkfifo(path, 0o600); err != nil {
					t.Fatal(err)
				}
				await = func() {
					f, err := os.OpenFile(path, os.O_WRONLY, 0) // returns once the program reads
					if err != nil {
						t.Fatal(err)
					}
					pass = func() {
						io.WriteString(f, "go\n")
						f.Close()
					}
				}
			} else {
				g := l.gate()
				await = func() { pass = g.next().pass }
			}
			engine, out := startEngine(t, l)
			await()
			stopProcess(t, engine.Process.Pid)
			second := newLab(t)
			second.write("stage \"toy\" \"b\" {\n resources {\n cpus = 2\n }\n}\n")
			notes, ended := make(chan string, 64), make(chan error, 1)
			go func() {
				ended <- Run(second.plan(), t.Context(), Options{}, func(e runs.Event) {
					if e.Kind == runs.EventNote {
						notes <- e.Text
					}
				})
			}()
			want := fmt.Sprintf("has 3 CPUs; its engine is stopped (process %d", engine.Process.Pid)
			if text := <-notes; !strings.Contains(text, want) {
				t.Errorf("got %q, want %q in it", text, want)
			}
			if s, err := runs.ReadStatus(newestRun(t, l)); err != nil || !strings.Contains(s.Text(), "stopped") {
				t.Errorf("status: got %q, %v, want that it is stopped", s.Text(), err)
			}
			pass()
			if err := <-ended; err != nil { // while the first is stopped
				t.Error(err)
			}
			if !proc.Stopped(engine.Process.Pid) {
				t.Error("the first run is not stopped, so the test proves nothing")
			}
			engine.Process.Signal(syscall.SIGCONT)
			if err := engine.Wait(); err != nil {
				t.Errorf("the first run, continued: %v\n%s", err, out)
			}
		})
	}
}

func newestRun(t *testing.T, l *lab) string {
	t.Helper()
	all, err := runs.Folders(l.store(), "x")
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	return all[0]
}

// A run that waits for the lock of a stopped run reports that it is stopped.
func TestWaitForAStageOfAStoppedRunReportsItsState(t *testing.T) {
	ownLedger(t)
	l := newLab(t)
	g := l.gate()
	l.write("stage \"toy\" \"a\" {\n gate = \"$dir/gate\"\n}\n")
	engine, out := startEngine(t, l)
	v := g.next()
	stopProcess(t, engine.Process.Pid)
	notes, ended := make(chan string, 64), make(chan error, 1)
	go func() {
		ended <- Run(l.plan(), t.Context(), Options{}, func(e runs.Event) {
			if e.Kind == runs.EventNote {
				notes <- e.Text
			}
		})
	}()
	if text := <-notes; !strings.Contains(text, "being made by") {
		t.Errorf("first: got %q, want the run that executes it", text)
	}
	if text := <-notes; !strings.Contains(text, fmt.Sprintf("stopped (process %d", engine.Process.Pid)) {
		t.Errorf("then: got %q, want that process %d is stopped", text, engine.Process.Pid)
	}
	v.pass()
	engine.Process.Signal(syscall.SIGCONT)
	if err := engine.Wait(); err != nil {
		t.Errorf("the first run, continued: %v\n%s", err, out)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestLedgerFolderIsNotCleanedByAge(t *testing.T) {
	home, state, leases := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "named")
	temporary := fmt.Sprintf("/tmp/rcgrpo-%d", os.Getuid())
	name := "leases-" + proc.HostName()
	for what, tc := range map[string]struct {
		env  map[string]string
		want []string
	}{
		"a home": {map[string]string{"HOME": home}, []string{filepath.Join(home, ".local/state/rcgrpo",
			name), temporary}},
		"a state folder": {map[string]string{"HOME": home, "XDG_STATE_HOME": state}, []string{filepath.Join(state,
			"rcgrpo", name), temporary}},
		"no home":         {map[string]string{"HOME": ""}, []string{temporary}},
		"a missing home":  {map[string]string{"HOME": "/nonexistent"}, []string{temporary}},
		"home of another": {map[string]string{"HOME": "/proc/sys"}, []string{temporary}},
		"a named folder":  {map[string]string{"HOME": home, machine.leasesVariable: leases}, []string{leases}},
	} {
		t.Run(what, func(t *testing.T) {
			if what == "home of another" && os.Getuid() == 0 {
				other := filepath.Join(t.TempDir(), "other")
				if err := errors.Join(os.Mkdir(other, 0o755), os.Chown(other, 12345, 12345)); err != nil {
					t.Fatal(err)
				}
				tc.env["HOME"] = other
			}
			for _, name := range []string{"HOME", "XDG_STATE_HOME", machine.leasesVariable} {
				t.Setenv(name, tc.env[name])
			}
			if got := machine.ledgerFolders(); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// A run changes nothing of the plan that its caller has, also when gc was there in between and it plans anew.
func TestRunDoesNotChangeThePlanOfItsCaller(t *testing.T) {
	for name, collect := range map[string]bool{"": false, "after gc": true} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.write(faultyRun)
			if collect {
				l.mustRun()
				l.write(strings.Replace(faultyRun, "text  = \"a\"", "text  = \"other\"", 1))
			}
			p := l.plan()
			before, nodes := snapshot(t, p), slices.Clone(p.Nodes)
			if collect {
				if _, err := l.store().Collect(0); err != nil {
					t.Fatal(err)
				}
			}
			if r := l.runPlan(t.Context(), p, Options{}); r.err != nil {
				t.Fatal(r.err, r.text())
			}
			if after := snapshot(t, p); after != before {
				t.Errorf("the plan after its run: got\n%s\nwant\n%s", after, before)
			}
			if !slices.Equal(p.Nodes, nodes) {
				t.Error("the run has put other nodes into the plan")
			}
		})
	}
}

// snapshot is what a plan says of its nodes.
func snapshot(t *testing.T, p *plan.Plan) string {
	t.Helper()
	var b strings.Builder
	for _, n := range p.Nodes {
		result, err := json.Marshal(n.Manifest)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, n.Address, n.Verb, n.Cause.Text, n.Key, n.DuplicateOf != nil, n.Estimate, string(result))
	}
	return b.String()
}

// In an emptied ledger nothing starts until all runs had time to register again.
func TestNothingStartsInAnEmptiedLedgerBeforeRunsRegisterAgain(t *testing.T) {
	dir := ownLedger(t)
	defer func(d time.Duration) { machine.RenewEvery = d }(machine.RenewEvery)
	machine.RenewEvery = 100 * time.Millisecond
	if err := os.Mkdir(dir, 0o700); err != nil { // without a mutex: it was emptied
		t.Fatal(err)
	}
	l := newLab(t)
	l.write("stage \"toy\" \"a\" {\n}\n")
	begun := proc.SinceBoot()
	var started time.Duration
	err := Run(l.plan(), t.Context(), Options{}, func(e runs.Event) {
		if e.Kind == runs.EventStarted {
			started = proc.SinceBoot()
		}
	})
	if waited := started - begun; err != nil || waited < machine.renewWithin() {
		t.Errorf("got %v, started after %v, want at least %v", err, waited, machine.renewWithin())
	}
}
