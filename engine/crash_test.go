package engine_test

import (
	"bytes"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

// crashing has stages in their own processes, stages inside the engine, and programs.
//
//go:embed testdata/toys/crashing.hcl
var crashing string

// TestKilledRunsConverge kills engines, stages or both at random moments and then runs until a run succeeds.
// Each time the results are those of an undisturbed run, no committed stage runs again, and no process and
// no partial file is left. $RCGRPO_CRASH is the number of kills, $RCGRPO_SEED repeats an earlier test.
func TestKilledRunsConverge(t *testing.T) {
	kills, seed := 50, uint64(time.Now().UnixNano())
	fmt.Sscan(os.Getenv("RCGRPO_CRASH"), &kills) // keeps the default if the variable is not set
	fmt.Sscan(os.Getenv("RCGRPO_SEED"), &seed)
	t.Logf("seed %d", seed)
	undisturbed := newLab(t, crashing)
	began := time.Now()
	must.OK(t, crashEngine(undisturbed).Run())
	c := &crash{T: t, rng: rand.New(rand.NewPCG(seed, 0)), length: time.Since(began), kills: map[string]int{}}
	c.want = undisturbed.Digests()
	for c.killed < kills && !t.Failed() {
		c.trial()
	}
	t.Logf("%d kills of %v in %d experiments, %d adoptions", c.killed, c.kills, c.trials, c.adopted)
}

type crash struct {
	*testing.T
	rng    *rand.Rand
	want   map[string]string // digests of an undisturbed run
	length time.Duration     // of an undisturbed run

	kills                   map[string]int // by target
	killed, trials, adopted int
}

// trial kills an experiment one to three times and then runs it to its end, beside gc in every second trial.
func (c *crash) trial() {
	c.trials++
	l := newLab(c.T, crashing)
	if c.trials%2 == 0 {
		defer collect(l, 0)()
	}
	before := c.kills["stage"] + c.kills["both"]
	made := map[string]int{} // starts of the stages that were committed at the last kill, by address
	for range 1 + c.rng.IntN(3) {
		cmd := crashEngine(l)
		must.OK(c, cmd.Start())
		time.Sleep(time.Duration(c.rng.Int64N(int64(c.length)*4/5 + 1)))
		c.kill(cmd)
		c.wantNoRepeats(l, made)
		c.wantNoLiveRun(l)
	}
	killedStages := c.kills["stage"] + c.kills["both"] - before
	for n := 0; ; n++ {
		out, err := crashEngine(l).Output()
		c.adopted += bytes.Count(out, []byte("adopted")) + bytes.Count(out, []byte("recovered: "))
		if err == nil {
			break
		}
		if n == 5 {
			c.Fatalf("no convergence after %d runs: %v\n%s", n, err, out)
		}
	}
	for address, n := range c.wantNoRepeats(l, made) { // a stage in its own process survives its engine
		if strings.HasPrefix(address, "stage.toy.") && n > 1+killedStages {
			c.Errorf("%s started %d times, and only %d stages were killed", address, n, killedStages)
		}
	}
	wantDigests(l, "after the kills", c.want)
	if left := processes(l); len(left) > 0 {
		c.Errorf("processes left: %v", left)
	}
	l.Tidy()
	if left, _ := os.ReadDir(filepath.Join(l.StoreDir, "work")); len(left) > 0 {
		c.Errorf("scratch folders left: %v", left)
	}
	if all, err := runs.Orphans(l.Store()); err != nil || len(all) > 0 {
		c.Errorf("stages without an engine: got %v, %v, want none", all, err)
	}
}

// kill ends the engine, one of its stages, or both, and waits for the engine.
func (c *crash) kill(cmd *exec.Cmd) {
	if !running(cmd.Process.Pid) {
		cmd.Wait()
		return
	}
	target := []string{"engine", "stage", "both"}[c.rng.IntN(3)]
	stages := children(cmd.Process.Pid)
	deadline := time.Now().Add(c.length / 4)
	for target != "engine" && len(stages) == 0 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
		stages = children(cmd.Process.Pid)
	}
	if len(stages) == 0 {
		target = "engine"
	}
	if target != "engine" {
		syscall.Kill(stages[c.rng.IntN(len(stages))], syscall.SIGKILL)
	}
	if target != "stage" {
		cmd.Process.Kill()
	}
	cmd.Wait() // ends by itself after a stage was killed
	c.kills[target]++
	c.killed++
}

// wantNoLiveRun checks that no run has status live. A process that was being started holds the files of its
// engine for an instant.
func (c *crash) wantNoLiveRun(l *enginetest.Lab) {
	until(c.T, "no run is live", func() bool {
		return !slices.ContainsFunc(l.Runs(), func(s *runs.Status) bool { return s.Live })
	})
}

// wantNoRepeats checks that the stages of made have not started again, returns the number of starts of
// every stage, and updates made.
func (c *crash) wantNoRepeats(l *enginetest.Lab, made map[string]int) (starts map[string]int) {
	starts = map[string]int{}
	for _, address := range l.Starts() {
		starts[address]++
	}
	for address, n := range made {
		if starts[address] > n {
			c.Errorf("%s was committed and started again", address)
		}
	}
	manifests, _, err := l.Store().Manifests()
	must.OK(c, err)
	for _, m := range manifests {
		made[m.Address] = starts[m.Address]
	}
	return starts
}

// crashEngine returns an engine whose processes all have the lab's folder in their environment.
func crashEngine(l *enginetest.Lab) *exec.Cmd {
	cmd := l.Engine()
	cmd.Env = append(os.Environ(), "LAB="+l.Dir)
	cmd.Stderr = nil
	return cmd
}

// In a chain of small stages, one stage is being committed while the next one starts.
func TestKilledChainsConverge(t *testing.T) {
	const stages, rounds = 30, 10
	var text strings.Builder
	from := ""
	for i := range stages {
		fmt.Fprintf(&text, `
stage "light" "s%d" {
  %s
  count = "$dir/count"
  shell = "mkdir made; echo %[1]d >made/out.txt"
  takes = true
}
`, i, from)
		from = fmt.Sprintf("from = [stage.light.s%d.out]", i)
	}
	for range rounds {
		l := newLab(t, text.String())
		cmd, kill := crashEngine(l), 1+rand.IntN(stages-1)
		must.OK(t, cmd.Start())
		until(t, "enough stages have started", func() bool { return len(l.Starts()) >= kill })
		cmd.Process.Kill()
		cmd.Wait()
		wantSuccess(t, l.Run(engine.Options{}))
		if got, want := l.Text(fmt.Sprintf("light.s%d", stages-1)), fmt.Sprintln(stages-1); got != want {
			t.Errorf("killed at stage %d: got last output %q, want %q", kill, got, want)
		}
		if left := processes(l); len(left) > 0 {
			t.Errorf("killed at stage %d: processes left: %v", kill, left)
		}
	}
}

// processes lists the processes of a lab, after up to 30 seconds for those that are about to end.
func processes(l *enginetest.Lab) (left []string) {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		left = nil
		folders, _ := filepath.Glob("/proc/[0-9]*")
		for _, folder := range folders {
			env, _ := os.ReadFile(filepath.Join(folder, "environ"))
			dir, _ := os.Readlink(filepath.Join(folder, "cwd"))
			if bytes.Contains(env, []byte("LAB="+l.Dir+"\x00")) || strings.HasPrefix(dir, l.Dir+"/") {
				line, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
				left = append(left, filepath.Base(folder)+" "+strings.ReplaceAll(string(line), "\x00", " "))
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// children returns the running processes whose parent is pid.
func children(pid int) (all []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, _ := os.ReadFile(path)
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // state, parent, …
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) && fields[0] != "Z" {
			all = append(all, child)
		}
	}
	return all
}
