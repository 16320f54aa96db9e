//go:build libtorch

package stages

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
	"rcgrpo/reports"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/rl"
)

// survivors is a small experiment whose trainings, sft.warm and rc-grpo.arm, are killed and started again. They
// train all weights, or the adapter that LORA becomes.
var survivors = drillStart(10, 2) + `
stage "sft" "warm" {
  policy = stage.model.random.checkpoint
  data   = [stage.curate.data.expert]
  epochs = 12
  batch  = 4
  lr     = 1e-2
  checkpoints { minutes = 0.0003 }
  LORA
}

stage "rc-grpo" "arm" {
  policy  = stage.sft.warm.checkpoint
  tasks   = stage.tasks.drills.train
  updates = 8
  batch   = 3
  group   = 4
  lr      = 1e-3
  keep    = 2
  minibatches = 2 # kills hit updates between their four optimizer steps too
  passes      = 2
` + armBlocks + `  checkpoints { minutes = 0.001 }
  LORA
}
`

// With this variable the test binary runs the trainings in the named folder.
const victimVariable = "RCGRPO_TEST_VICTIM"

// blocksVariable makes the processes of a test save their states as blocks.
const blocksVariable = "RCGRPO_TEST_BLOCKS"

func TestMain(m *testing.M) {
	if os.Getenv(blocksVariable) == "1" {
		lm.BlockStates = 0
	}
	plantMemory(os.Getenv(memoryVariable))
	if len(os.Args) == 6 && os.Args[1] == "node" { // started by the engine of another test
		plantFault(os.Getenv(faultVariable))
		os.Exit(engine.NodeMain(os.Args[3], os.Args[5], append(lang.Registry(Kinds()), reports.Kind()), os.Stderr, nil))
	}
	if dir := os.Getenv(engineVariable); dir != "" {
		os.Exit(rankedEngine(dir))
	}
	if dir, rank := os.Getenv(victimVariable), os.Getenv(rankVariable); dir != "" || rank != "" {
		err := error(nil)
		if rank != "" {
			err = runRank(rank)
		} else {
			err = train(dir)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// node returns the folder of a stage below dir; done returns the file that marks its end.
func nodeDir(dir string, n *lang.Node) string { return filepath.Join(dir, n.Kind.Name+"."+n.Name) }
func doneFile(dir string) string              { return filepath.Join(dir, "done") }

// runBeside runs a node in its folder below dir, as a rank of its stage, with its inputs from beside it. Like the
// engine, it deletes the ports of a killed attempt and keeps the scratch folder.
func runBeside(dir string, n *lang.Node, as engine.JobSetup) error {
	as.Dir, as.Seed, as.Log = nodeDir(dir, n), 1, os.Stderr
	as.Inputs = inputsOf(n, func(n *lang.Node) string { return nodeDir(dir, n) })
	for port := range n.Outputs {
		if as.Rank > 0 {
			continue // rank 0 writes it
		}
		if err := os.RemoveAll(filepath.Join(as.Dir, port)); err != nil {
			return err
		}
	}
	job, err := engine.NewJob(as)
	if err != nil {
		return err
	}
	return n.Stage.(engine.Runner).Run(context.Background(), job)
}

// portDigest returns the digest of the folder of a port, without times.
func portDigest(t *testing.T, folder string) string {
	t.Helper()
	if err := os.Remove(filepath.Join(folder, rl.TimesFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return must.Get(artifact.Digest(folder))(t)
}

// train runs the unfinished stages of the experiment survivors.
func train(dir string) error {
	x, diags := lang.Load(lang.Source{Path: filepath.Join(dir, "survivors.hcl")}, lang.Registry(Kinds()))
	if diags.HasErrors() {
		return diags
	}
	fmt.Println("started")
	for _, n := range x.Nodes {
		work := nodeDir(dir, n)
		if _, err := os.Stat(doneFile(work)); err == nil {
			continue
		}
		if err := runBeside(dir, n, engine.JobSetup{}); err != nil {
			return fmt.Errorf("%s: %w", n.Address, err)
		}
		if err := os.WriteFile(doneFile(work), nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// thisBinary returns a process of this test binary with a variable.
func thisBinary(t *testing.T, name, value string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), must.Get(os.Executable())(t))
	c.Env = append(os.Environ(), name+"="+value)
	return c
}

// victim starts the process of the trainings and waits until it has loaded everything.
func victim(t *testing.T, dir string) (cmd *exec.Cmd, said *bytes.Buffer) {
	t.Helper()
	cmd, said = thisBinary(t, victimVariable, dir), new(bytes.Buffer)
	cmd.Stderr = said
	out := must.Get(cmd.StdoutPipe())(t)
	must.OK(t, cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "started\n" {
		cmd.Wait()
		t.Fatalf("the process said %q, %v: %s", line, err, said)
	}
	return cmd, said
}

// trained returns the digests of the outputs of both trainings, without times.
func trained(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, port := range []string{"sft.warm/checkpoint", "sft.warm/metrics", "rc-grpo.arm/checkpoint",
		"rc-grpo.arm/metrics", "rc-grpo.arm/trajectories", "rc-grpo.arm/best"} {
		out[port] = portDigest(t, filepath.Join(dir, port))
	}
	return out
}

// undisturbed runs an experiment to its end and returns its folder and the digests of its outputs.
func undisturbed(t *testing.T, experiment string) (dir string, digests map[string]string) {
	t.Helper()
	dir = t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "survivors.hcl"), []byte(experiment), 0o600))
	must.OK(t, train(dir))
	return dir, trained(t, dir)
}

const insideGroup = "rc-grpo, inside a group of rollouts"

// where describes the state that a kill has interrupted.
func where(t *testing.T, dir string) string {
	t.Helper()
	if _, err := os.Stat(doneFile(filepath.Join(dir, "sft.warm"))); err != nil {
		return "sft"
	}
	if _, err := os.Stat(doneFile(filepath.Join(dir, "rc-grpo.arm"))); err == nil {
		return "after the end"
	}
	logs := must.Get(filepath.Glob(filepath.Join(dir, "rc-grpo.arm", "work", "log", "*")))(t)
	if len(logs) == 0 {
		return "rc-grpo, before the first rollout"
	}
	text := must.Get(os.ReadFile(slices.Max(logs)))(t)
	if lines := bytes.Count(text, []byte("\n")); lines%4 != 0 || !bytes.HasSuffix(text, []byte("\n")) && len(text) > 0 {
		return insideGroup
	}
	return "rc-grpo, elsewhere"
}

// logged returns the size of the log of trajectories.
func logged(dir string) (bytes int64) {
	logs, _ := filepath.Glob(filepath.Join(dir, "rc-grpo.arm", "work", "log*", "*"))
	for _, path := range logs {
		if info, err := os.Stat(path); err == nil {
			bytes += info.Size()
		}
	}
	return bytes
}

// kill kills a process after a time, or after so many further bytes of trajectories were logged, and reports
// whether it was still running. If the process failed, the test fails.
func kill(t *testing.T, dir string, after time.Duration, bytes int64) (killed bool) {
	t.Helper()
	cmd, said := victim(t, dir)
	ended := make(chan struct{})
	struck := make(chan bool, 1)
	go func() {
		deadline, tick := time.NewTimer(after), time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for had := logged(dir); ; {
			select {
			case <-ended:
				struck <- false
				return
			case <-tick.C:
				if bytes == 0 || logged(dir)-had < bytes {
					continue
				}
			case <-deadline.C:
			}
			cmd.Process.Kill()
			struck <- true
			return
		}
	}()
	err := cmd.Wait()
	close(ended)
	if !<-struck && err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	return err != nil
}

// TestKilledTrainingEndsInTheSameBytes kills SFT and RC-GRPO runs at random instants, each several times, and
// compares weights, metrics and trajectories with those of an undisturbed run. RCGRPO_CRASH is the number of kills.
func TestKilledTrainingEndsInTheSameBytes(t *testing.T) {
	for what, tc := range map[string]struct {
		lora  string
		kills int
	}{"all weights": {"", 10}, "an adapter": {"lora {\nrank = 2\nalpha = 4\n}", 5}} {
		t.Run(what, func(t *testing.T) {
			if tc.lora != "" {
				must.Long(t)
			}
			killTrainings(t, expand(strings.ReplaceAll(survivors, "LORA", tc.lora)), must.Short(t, 4, tc.kills))
		})
	}
}

func killTrainings(t *testing.T, experiment string, kills int) {
	perRun := 5
	if n, err := strconv.Atoi(os.Getenv("RCGRPO_CRASH")); err == nil {
		kills, perRun = n, 2
	}
	begin := time.Now()
	prepared, want := undisturbed(t, experiment)
	whole := time.Since(begin)
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	hit := map[string]int{}
	for extra := 20; kills > 0 || hit[insideGroup] == 0; { // at least one has to meet an open group
		if kills <= 0 {
			if extra--; extra == 0 {
				t.Fatalf("no kill hit an open group of rollouts: %v", hit)
			}
		}
		dir := t.TempDir()
		must.OK(t, os.CopyFS(dir, os.DirFS(prepared)))
		for _, stage := range []string{"sft.warm", "rc-grpo.arm"} {
			must.OK(t, os.RemoveAll(filepath.Join(dir, stage)))
		}
		var history []string
		for range perRun {
			after, bytes := time.Duration(r.Float64()*float64(whole)*2/float64(perRun)), int64(0)
			if kills%2 == 0 { // in the middle of a batch of rollouts, wherever that is
				after, bytes = time.Minute, 1+r.Int64N(40_000)
			}
			if !kill(t, dir, after, bytes) {
				break
			}
			kills--
			place := where(t, dir)
			hit[place]++
			history = append(history, place)
		}
		cmd, said := victim(t, dir)
		if err := cmd.Wait(); err != nil {
			t.Fatalf("killed at %q, then it failed: %v: %s", history, err, said)
		}
		for port, digest := range trained(t, dir) {
			if digest != want[port] {
				t.Errorf("%s has other bytes after kills at %q", port, history)
			}
		}
	}
	t.Logf("an undisturbed run takes %v; kills hit %v", whole.Round(time.Millisecond), hit)
}

// damages change the checkpoints in a scratch folder between two attempts.
var damages = map[string]func(t *testing.T, states []string){
	"a flipped bit in the newest": func(t *testing.T, states []string) { rewriteLargest(t, slices.Max(states), flipped) },
	"the newest is cut": func(t *testing.T, states []string) {
		rewriteLargest(t, slices.Max(states), func(b []byte) []byte { return b[:len(b)/2] })
	},
	"the newest is of another version": func(t *testing.T, states []string) {
		must.OK(t, os.WriteFile(filepath.Join(slices.Max(states), "state.json"), []byte(`{"format": 1}`),
			0o600))
	},
	"a flipped bit in each": func(t *testing.T, states []string) {
		for _, dir := range states {
			rewriteLargest(t, dir, flipped)
		}
	},
}

func flipped(b []byte) []byte {
	b[len(b)/2] ^= 1
	return b
}

// rewriteLargest changes the largest file of a folder.
func rewriteLargest(t *testing.T, dir string, change func([]byte) []byte) {
	t.Helper()
	var text []byte
	path := ""
	entries := must.Get(os.ReadDir(dir))(t)
	for _, e := range entries {
		b := must.Get(os.ReadFile(filepath.Join(dir, e.Name())))(t)
		if len(b) > len(text) {
			text, path = b, filepath.Join(dir, e.Name())
		}
	}
	must.OK(t, os.WriteFile(path, change(text), 0o600))
}

// TestTrainingWithDamagedCheckpointsEndsInTheSameBytes kills RC-GRPO runs until they have left checkpoints,
// damages these, and checks that the next attempt reports it and ends in the bytes of an undisturbed run. The
// checkpoints are blocks.
func TestTrainingWithDamagedCheckpointsEndsInTheSameBytes(t *testing.T) {
	// a checkpoint after every update
	prepared, want := undisturbed(t, expand(strings.NewReplacer("LORA", "", "minutes = 0.001",
		"minutes = 0").Replace(survivors)))
	t.Setenv(blocksVariable, "1")
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			if name != "a flipped bit in the newest" {
				must.Long(t)
			}
			dir := t.TempDir()
			must.OK(t, os.CopyFS(dir, os.DirFS(prepared)))
			must.OK(t, os.RemoveAll(filepath.Join(dir, "rc-grpo.arm")))
			var states []string
			for kills := 0; len(states) < 2; kills++ {
				if killed := kill(t, dir, time.Minute, 20_000); !killed || kills == 30 {
					t.Fatalf("after %d kills the training has left %d checkpoints, want 2 before its end", kills, len(states))
				}
				states = must.Get(filepath.Glob(filepath.Join(dir, "rc-grpo.arm", "work", "states", "0*")))(t)
			}
			damage(t, states)
			cmd, said := victim(t, dir)
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v: %s", err, said)
			}
			must.Contain(t, said.String(), "in the scratch folder cannot be used", "resuming from the")
			for port, digest := range trained(t, dir) {
				if digest != want[port] {
					t.Errorf("%s has other bytes", port)
				}
			}
		})
	}
}
