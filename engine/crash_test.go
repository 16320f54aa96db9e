package engine

import (
	"bytes"
	"fmt"
	"maps"
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
)

// crashing has stages in their own process, stages in the engine's process, and programs.
const crashing = `
stage "toy" "a" {
  text  = "a"
  draw  = true
  count = "$dir/count"
}
stage "light" "program" {
  text  = "program"
  count = "$dir/count"
  shell = "sleep 0.05; echo done"
}
stage "light" "b" {
  from  = [stage.toy.a.out]
  text  = "b"
  count = "$dir/count"
}
stage "toy" "c" {
  from  = [stage.light.b.out, stage.light.program.out]
  text  = "c"
  count = "$dir/count"
}
stage "light" "command" {
  from  = [stage.light.b.out]
  text  = "command"
  count = "$dir/count"
  shell = "(sleep 0.04); sleep 0.02"
}
stage "light" "taken" {
  from  = [stage.light.command.out]
  count = "$dir/count"
  shell = "mkdir made; sleep 0.01; echo taken >made/out.txt"
  takes = true
}
stage "toy" "d" {
  from  = [stage.toy.a.out, stage.light.taken.out]
  text  = "d"
  count = "$dir/count"
}
stage "light" "e" {
  from  = [stage.toy.c.out, stage.toy.d.out]
  text  = "e"
  count = "$dir/count"
}
`

// TestKilledRunsConverge kills engines, stages or both at random moments and then repeats the run until it
// succeeds. The results must equal those of an undisturbed run, no committed stage may run again, and no
// process and no partial file may be left. $RCGRPO_CRASH is the number of kills, $RCGRPO_SEED repeats a run
// of this test.
func TestKilledRunsConverge(t *testing.T) {
	kills := 50
	if text := os.Getenv("RCGRPO_CRASH"); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatalf("RCGRPO_CRASH: %v", err)
		}
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("RCGRPO_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("RCGRPO_SEED: %v", err)
		}
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))

	undisturbed := newLab(t)
	undisturbed.write(crashing)
	began := time.Now()
	if err := undisturbed.crashEngine().Run(); err != nil {
		t.Fatal(err)
	}
	c := &crash{T: t, rng: rng, want: undisturbed.digests(), length: time.Since(began), kills: map[string]int{}}
	for told := 0; c.killed < kills && !t.Failed(); {
		c.trial()
		if c.killed >= told+100 && c.killed < kills {
			told = c.killed
			c.tell()
		}
	}
	c.tell()
}

// crash counts kills and their effects.
type crash struct {
	*testing.T
	rng    *rand.Rand
	want   map[string]string // digests of an undisturbed run
	length time.Duration     // of one

	kills                                                map[string]int // by target
	killed, trials, converged, repeats, orphans, adopted int
}

func (c *crash) tell() {
	c.Logf("%d kills (%s): %d convergences in %d experiments, %d repeats, %d orphans, %d adoptions", c.killed,
		c.targets(), c.converged, c.trials, c.repeats, c.orphans, c.adopted)
}

func (c *crash) targets() string {
	var parts []string
	for _, target := range slices.Sorted(maps.Keys(c.kills)) {
		parts = append(parts, fmt.Sprintf("%d %s", c.kills[target], target))
	}
	return strings.Join(parts, ", ")
}

// trial kills one experiment one to three times and then completes it. gc runs beside every second trial.
func (c *crash) trial() {
	c.trials++
	l := newLab(c.T)
	l.write(crashing)
	if c.trials%2 == 0 {
		defer l.collecting(0, true)()
	}
	before := c.kills["stage"] + c.kills["both"]
	made := map[string]int{} // starts of the stages committed at the last kill, by address
	for range 1 + c.rng.IntN(3) {
		engine := l.crashEngine()
		if err := engine.Start(); err != nil {
			c.Fatal(err)
		}
		time.Sleep(time.Duration(c.rng.Int64N(int64(c.length)*4/5 + 1)))
		c.kill(engine)
		c.repeated(l, made)
		c.status(l)
	}
	killedStages := c.kills["stage"] + c.kills["both"] - before
	for n := 0; ; n++ {
		out, err := l.crashEngine().Output()
		c.adopted += bytes.Count(out, []byte("adopted"))
		if err == nil {
			break
		}
		if n == 5 {
			c.Fatalf("no convergence after %d runs: %v\n%s", n, err, out)
		}
	}
	for address, n := range c.repeated(l, made) { // it survives its engine
		if strings.HasPrefix(address, "stage.toy.") && n > 1+killedStages {
			c.repeats++
			c.Errorf("%s started %d times, and only %d stages were killed", address, n, killedStages)
		}
	}
	if got := l.digests(); !maps.Equal(got, c.want) {
		c.Errorf("digests: got %v, want %v", got, c.want)
	} else {
		c.converged++
	}
	if left := l.processes(); len(left) > 0 {
		c.orphans += len(left)
		c.Errorf("processes left: %v", left)
	}
	l.tidy() // an idle run removes nothing
	for _, folder := range []string{"work", "staging"} {
		if left, _ := os.ReadDir(filepath.Join(l.storeDir, folder)); len(left) > 0 {
			c.Errorf("left in %s: %v", folder, left)
		}
	}
	if all, err := Orphans(l.store()); err != nil || len(all) > 0 {
		c.Errorf("survivors: got %v, %v, want none", all, err)
	}
}

// kill kills the engine, one of its stages, or both, and waits for the engine.
func (c *crash) kill(engine *exec.Cmd) {
	if s, ok := processStat(engine.Process.Pid); !ok || s.ended { // it has ended before
		engine.Wait()
		return
	}
	target := []string{"engine", "stage", "both"}[c.rng.IntN(3)]
	stages := children(engine.Process.Pid)
	for deadline := time.Now().Add(c.length / 4); target != "engine" && len(stages) == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // for one to start
		stages = children(engine.Process.Pid)
	}
	if len(stages) == 0 {
		target = "engine"
	}
	if target != "engine" {
		syscall.Kill(stages[c.rng.IntN(len(stages))], syscall.SIGKILL)
	}
	if target != "stage" {
		engine.Process.Kill()
	}
	engine.Wait() // if only a stage was killed, the engine ends by itself
	c.kills[target]++
	c.killed++
}

// status checks that no run is live, apart from the instant in which a starting process has the files of its
// engine.
func (c *crash) status(l *lab) {
	folders, err := Runs(l.store(), "x")
	if err != nil {
		c.Fatal(err)
	}
	for _, folder := range folders {
		for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			s, err := Status(folder)
			if err != nil || s.Live && time.Now().After(deadline) {
				c.Errorf("status of %s after the kill: got %+v, %v, want one that is not live", RunName(folder), s, err)
			}
			if err != nil || !s.Live || time.Now().After(deadline) {
				break
			}
		}
	}
}

// repeated compares the number of starts of each committed stage with the last one, and returns the new numbers.
func (c *crash) repeated(l *lab, made map[string]int) (starts map[string]int) {
	starts = map[string]int{}
	for _, address := range l.counted() {
		starts[address]++
	}
	for address, n := range made {
		if starts[address] > n {
			c.repeats += starts[address] - n
			c.Errorf("%s was committed and started again", address)
		}
	}
	manifests, _, err := l.store().Manifests()
	if err != nil {
		c.Fatal(err)
	}
	for _, m := range manifests {
		made[m.Address] = starts[m.Address]
	}
	return starts
}

// crashEngine is an engine whose processes all carry the lab's name in their environment.
func (l *lab) crashEngine() *exec.Cmd {
	cmd := l.engine()
	cmd.Env = append(os.Environ(), "LAB="+l.dir)
	cmd.Stderr = nil
	return cmd
}

// A chain of small stages is killed while one result is committed and an earlier one is flushed.
func TestKilledChainsConverge(t *testing.T) {
	const stages, rounds = 30, 10
	var chain strings.Builder
	for i := range stages {
		from := ""
		if i > 0 {
			from = fmt.Sprintf("from = [stage.light.s%d.out]", i-1)
		}
		fmt.Fprintf(&chain, "stage \"light\" \"s%d\" {\n%s\ncount = \"$dir/count\"\n"+
			"shell = \"mkdir made; echo %d >made/out.txt\"\ntakes = true\n}\n", i, from, i)
	}
	for range rounds {
		l := newLab(t)
		l.write(chain.String())
		engine, kill := l.crashEngine(), 1+rand.IntN(stages-1)
		if err := engine.Start(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(20 * time.Second); len(l.counted()) < kill && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		engine.Process.Kill()
		engine.Wait()
		r := l.run(RunOptions{})
		if r.err != nil {
			t.Fatalf("killed at stage %d, the next run: %v\n%s", kill, r.err, r.text())
		}
		if got, want := l.text(fmt.Sprintf("light.s%d", stages-1)), fmt.Sprintln(stages-1); got != want {
			t.Errorf("the last stage made %q, want %q", got, want)
		}
		if left := l.processes(); len(left) > 0 {
			t.Errorf("killed at stage %d, left: %v", kill, left)
		}
		l.tidy() // of processes that were about to end when that run began
	}
}

// processes lists the processes of the lab, after a moment for those about to end.
func (l *lab) processes() (left []string) {
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		left = nil
		entries, _ := os.ReadDir("/proc")
		for _, e := range entries {
			env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
			if err != nil {
				continue
			}
			dir, _ := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
			if bytes.Contains(env, []byte("LAB="+l.dir+"\x00")) || strings.HasPrefix(dir, l.dir+"/") {
				line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
				left = append(left, e.Name()+" "+strings.ReplaceAll(string(line), "\x00", " "))
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// children lists the processes whose parent is pid.
func children(pid int) (all []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if parent, err := strconv.Atoi(fields[1]); err == nil && parent == pid && fields[0] != "Z" {
			all = append(all, child)
		}
	}
	return all
}
