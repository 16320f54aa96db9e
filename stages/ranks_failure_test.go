//go:build libtorch

package stages

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/torch"
)

// faultVariable plants a fault in one rank of the stages of an engine: "RANK FAULT".
const faultVariable = "RCGRPO_TEST_FAULT"

// faults are planted before a rank starts its work.
var faults = map[string]func(){
	"never starts":                func() { select {} },
	"another build":               func() { engine.SourceDigest = "other code" },
	"another kind of libtorch":    func() { os.Setenv("ATEN_CPU_CAPABILITY", "default") },
	"hangs":                       func() { atProduct(func() error { select {} }) },
	"has an error":                func() { atProduct(func() error { return errors.New("the device is broken") }) },
	"out of memory":               func() { plantMemory("0") },
	"its disk is full":            func() { limitFiles(50_000) }, // half of the weights
	"its disk is full for blocks": func() { limitFiles(2000) },
}

// limitFiles limits the size of the files that this process writes.
func limitFiles(bytes uint64) {
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: bytes, Max: bytes}); err != nil {
		panic(err)
	}
}

// atProduct calls f at each matrix product.
func atProduct(f func() error) {
	torch.PlantFailure(func(operation string, _ [][]int64) error {
		if operation != "mm" {
			return nil
		}
		return f()
	})
}

func plantFault(setting string) {
	rank, fault, planted := strings.Cut(setting, " ")
	if planted && rank == os.Getenv("RCGRPO_RANK") {
		faults[fault]()
	}
}

// Each row is a row of the table of failures in docs/architecture.md.
func TestFailuresOfRanks(t *testing.T) {
	kill := func(rank int) func(t *testing.T, dir string, _ context.CancelFunc) {
		return func(t *testing.T, dir string, _ context.CancelFunc) { killProcess(t, ranksOf(dir)[rank]) }
	}
	for name, tc := range map[string]struct {
		strike func(t *testing.T, dir string, cancel context.CancelFunc) // at the first progress; nil: the fault strikes
		fault  string
		limits string // variables of the environment
		want   string // pattern of the failure; "" for an interrupted run
		cause  string
		few    bool // in make test
	}{
		"a rank is killed": {few: true, strike: kill(1), want: `^rank 1 of 2: its process was killed \(SIGKILL\)$`,
			cause: lang.CauseKilled},
		"rank 0 is killed": {strike: kill(0), want: `^rank 0 of 2: its process was killed \(SIGKILL\)$`,
			cause: lang.CauseKilled},
		"the supervisor is killed": {strike: func(t *testing.T, dir string, _ context.CancelFunc) {
			killProcess(t, parentOf(t, ranksOf(dir)[0]))
		}, want: `^its process was killed \(SIGKILL\)$`, cause: lang.CauseKilled},
		"the run is stopped": {few: true, strike: func(_ *testing.T, _ string, cancel context.CancelFunc) { cancel() }},
		"a rank is stopped": {strike: func(t *testing.T, dir string, _ context.CancelFunc) {
			found := must.Get(filepath.Glob(filepath.Join(dir, "store", "runs", "*", "*", "nodes", "*.ranks")))(t)
			for runs.ReadRanks(found[0], 2)[1].Phase == "" { // its first report
				time.Sleep(time.Millisecond)
			}
			must.OK(t, syscall.Kill(ranksOf(dir)[1], syscall.SIGSTOP))
		}, limits: "RCGRPO_RANK_SILENCE=6s RCGRPO_RANK_WAITING=6s",
			want:  `^rank 1 of 2 works after "[^"]+" and has made no step for \d+s|^all 2 ranks wait for each other for 6s`,
			cause: lang.CauseTimeout},
		"a rank hangs": {few: true, fault: "1 hangs", limits: "RCGRPO_RANK_SILENCE=6s",
			want: `^rank 1 of 2 works after "update 1" and has made no step for \d+s`, cause: lang.CauseTimeout},
		"a rank never starts": {fault: "1 never starts", limits: "RCGRPO_RANK_ARRIVAL=4s",
			want: `^rank 0 of 2: join rank 0 of 2: of 2 ranks these did not arrive within 4.000 s: 1$`},
		"a rank is of another build": {fault: "1 another build",
			want: `^rank 1 of 2: this binary is built from other code \(other code\) than the engine that starts it`},
		"a rank has other kernels of libtorch": {fault: "1 another kind of libtorch",
			want: `^rank [01] of 2: the ranks differ: rank 1 has libtorch 2\.11\.0\S* \S+, and rank 0 has libtorch 2\.11\.0`},
		"a rank has an error": {few: true, fault: "1 has an error", want: `^rank 1 of 2: update 1: .*the device is broken$`},
		"a rank has no memory": {fault: "1 out of memory", want: `^rank 1 of 2: update 1: .*out of memory`,
			cause: lang.CauseOOM},
		"the disk of rank 0 is full": {fault: "0 its disk is full",
			want: `^rank 0 of 2: save the state after update 1: .*file too large`},
		"the disk of rank 1 is full": {fault: "1 its disk is full for blocks",
			want: `^rank 1 of 2: save the state after update 1: .*file too large`},
	} {
		t.Run(name, func(t *testing.T) {
			if !tc.few {
				must.Long(t)
			}
			dir, store := newRanked(t)
			t.Setenv(faultVariable, tc.fault)
			for _, v := range strings.Fields(tc.limits) {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, value)
			}
			minutes := 5.0
			if strings.Contains(tc.fault, "disk") {
				minutes = 0
			}
			if strings.Contains(tc.fault, "blocks") {
				t.Setenv(blocksVariable, "1")
			}
			r := runRanked(t, dir, store, rankedSettings{500, minutes, twoProcesses}, func(cancel context.CancelFunc) {
				if tc.strike != nil {
					tc.strike(t, dir, cancel)
				}
			})
			switch {
			case tc.want == "" && !errors.Is(r.err, engine.ErrInterrupted):
				t.Errorf("got %v, %v, want an interrupted run", r.err, r.failure)
			case tc.want != "" && (r.failure == nil || !regexp.MustCompile(tc.want).MatchString(r.failure.Text) ||
				r.failure.Cause != tc.cause):
				t.Errorf("got %v, %+v, want %q with the cause %q", r.err, r.failure, tc.want, tc.cause)
			}
			if r.took > time.Minute && tc.limits == "" { // half of the time after which a rank counts as hung
				t.Errorf("the run has ended after %v", r.took)
			}
			hung := tc.cause == lang.CauseTimeout
			if table := strings.Contains(r.log, "rank  phase"); table != hung {
				t.Errorf("hung %v: got the log %q", hung, r.log)
			}
			if strings.Contains(r.log, "stopped by a signal") != (name == "a rank is stopped") {
				t.Errorf("got the log %q", r.log)
			}
			noRankIsLeft(t, dir)
			states, _ := filepath.Glob(filepath.Join(dir, "store", "*", "*", "states", "0*"))
			if stopped := tc.want == ""; stopped != (len(states) > 0) {
				t.Errorf("stopped %v: got the states %v", stopped, states)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "store", "runs", "*", "*", "nodes", "*.ranks")); len(left) > 0 &&
				name != "the supervisor is killed" {
				t.Errorf("folders are left: %v", left)
			}
		})
	}
}

// engineVariable makes the test binary an engine that runs the experiment in a folder.
const engineVariable = "RCGRPO_TEST_ENGINE"

// rankedEngine runs experiment.hcl of a folder with the store beside it, and returns an exit code.
func rankedEngine(dir string) int {
	os.Unsetenv(engineVariable)
	run := func() error {
		x, diags := lang.Load(lang.Source{Path: filepath.Join(dir, "experiment.hcl")}, lang.Registry(Kinds()))
		if diags.HasErrors() {
			return diags
		}
		store, err := artifact.Open(filepath.Join(dir, "store"))
		if err != nil {
			return err
		}
		p, err := plan.New(x, store, plan.Options{})
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		return engine.Run(ctx, p, engine.Options{}, func(e runs.Event) {
			if e.Kind == runs.EventAdopted || e.Failure != nil {
				fmt.Println(e.Kind, e.Address, e.Text, e.Failure)
			}
		})
	}
	if err := run(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// startEngine starts an engine in a process of its own.
func startEngine(t *testing.T, dir string) (c *exec.Cmd, said *strings.Builder) {
	t.Helper()
	c, said = thisBinary(t, engineVariable, dir), new(strings.Builder)
	c.Stdout = said
	must.OK(t, c.Start())
	return c, said
}

func TestRanksOutliveTheirEngine(t *testing.T) {
	dir, store := newRanked(t)
	g := rankedSettings{60, 5, twoProcesses}
	must.OK(t, os.WriteFile(filepath.Join(dir, "experiment.hcl"), []byte(g.text()), 0o600))
	c, _ := startEngine(t, dir)
	for len(ranksOf(dir)) < 2 {
		time.Sleep(time.Millisecond)
	}
	must.OK(t, c.Process.Kill())
	c.Wait()
	if left := ranksOf(dir); len(left) != 2 {
		t.Fatalf("got the ranks %v after the end of the engine, want both", left)
	}
	r := runRanked(t, dir, store, g, nil)
	if r.err != nil || !r.adopted {
		t.Fatalf("got %v, %v, adopted %v, want a run that adopts the training", r.err, r.failure, r.adopted)
	}
	one, keys := oneProcess(t, g.epochs)
	wantResults(t, store, one, keys)
	noRankIsLeft(t, dir)
}

// TestKilledRanksEndInTheSameBytes kills ranks, supervisors and engines at random instants, or interrupts an engine,
// and compares all results with those of one process. RCGRPO_CRASH is the number of kills.
func TestKilledRanksEndInTheSameBytes(t *testing.T) {
	kills, perRun, seed := must.Short(t, 1, 3), 3, uint64(time.Now().UnixNano())
	if n, err := strconv.Atoi(os.Getenv("RCGRPO_CRASH")); err == nil {
		kills = n
	}
	g := rankedSettings{12, 0, twoProcesses}
	dir, store := newRanked(t)
	begin := time.Now()
	must.OK(t, runRanked(t, dir, store, g, nil).err)
	whole := time.Since(begin)
	one, keys := oneProcess(t, g.epochs)
	rng, hit := rand.New(rand.NewPCG(seed, 3)), map[string]int{}
	for struck := 0; struck < kills && !t.Failed(); {
		dir := t.TempDir()
		t.Setenv(blocksVariable, strconv.Itoa(rng.IntN(2))) // the form of the states
		must.OK(t, os.WriteFile(filepath.Join(dir, "experiment.hcl"), []byte(g.text()), 0o600))
		var history []string
		for range perRun {
			c, _ := startEngine(t, dir)
			ended := make(chan struct{})
			go func() {
				c.Wait()
				close(ended)
			}()
			target, struckAt := killOneOf(rng, dir, c, ended, time.Duration(rng.Int64N(int64(whole)/2))), time.Now()
			<-ended
			took := time.Since(struckAt)
			if target == "interrupted engine" && !slices.Contains(history, "engine") { // whose ranks it may not have adopted
				if noRankIsLeft(t, dir); took > time.Minute {
					t.Errorf("an interrupted engine has ended after %v", took)
				}
			}
			hit[target]++
			history = append(history, target)
			if target == "nothing" {
				break
			}
			struck++
		}
		c, said := startEngine(t, dir)
		if err := c.Wait(); err != nil {
			t.Fatalf("after kills of %v: %v: %s", history, err, said)
		}
		wantResults(t, must.Get(artifact.Open(filepath.Join(dir, "store")))(t), one, keys)
		noRankIsLeft(t, dir)
	}
	t.Logf("seed %d: an undisturbed run takes %v; kills hit %v", seed, whole.Round(time.Millisecond), hit)
}

// killOneOf kills a rank, a supervisor or the engine, some time after there is a rank, and returns which; "nothing" if
// the engine has ended before.
func killOneOf(rng *rand.Rand, dir string, c *exec.Cmd, ended <-chan struct{}, after time.Duration) string {
	target, rank := []string{"rank", "supervisor", "engine", "interrupted engine"}[rng.IntN(4)], rng.IntN(2)
	awaitRank := func() (pid int) {
		for ; pid == 0; pid = ranksOf(dir)[rank] {
			select {
			case <-ended:
				return 0
			case <-time.After(time.Millisecond):
			}
		}
		return pid
	}
	awaitRank()
	time.Sleep(after)
	pid := awaitRank() // the evaluation has other ranks
	switch {
	case pid == 0:
		return "nothing"
	case target == "engine":
		c.Process.Kill() // an error: it has ended
	case target == "interrupted engine":
		c.Process.Signal(os.Interrupt) // an error: it has ended
	case target == "supervisor":
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
			pid, _ = strconv.Atoi(strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))[1])
		}
	}
	if pid > 1 && !strings.HasSuffix(target, "engine") {
		syscall.Kill(pid, syscall.SIGKILL) // an error: it has ended
	}
	return target
}
