//go:build libtorch

package stages

import (
	"bytes"
	"fmt"
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
	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl"
)

// armBlocks are blocks of an rc-grpo stage whose updates use everything that can be interrupted.
const armBlocks = `
  zero_variance = "resample"
  forecast {
    tasks   = 2
    samples = 5
  }
  evaluate {
    tasks = stage.tasks.drills.test
    every = 2
  }
  LIMITS 3 12 320
`

// shared is a small experiment with every kind that may have several ranks.
var shared = drillStart(10, 5) + `
defaults "sft" "rctp-ft" {
  epochs         = 2
  batch          = 5
  lr             = 1e-2
  gradient_parts = 4
  LORA
}

defaults "grpo" "rc-grpo" {
  tasks          = stage.tasks.drills.train
  lr             = 1e-3
  gradient_parts = 4
  checkpoints { minutes = 0 }
  LORA
}

defaults "grpo" "rc-grpo" "rollout" "eval" {
  LIMITS 3 12 320
}

stage "sft" "plain" {
  policy = stage.model.random.checkpoint
  data   = [stage.curate.data.expert]
}

stage "rctp-ft" "warm" {
  policy = stage.model.random.checkpoint
  data   = [stage.curate.data.mixed]
}

stage "grpo" "plain" {
  policy  = stage.sft.plain.checkpoint
  updates = 2
  batch   = 5
  group   = 3
}

stage "rc-grpo" "arm" {
  policy      = stage.rctp-ft.warm.checkpoint
  updates     = 4
  batch       = 6
  group       = 4
  minibatches = 4
  passes      = 2
` + armBlocks + `}

stage "rollout" "samples" {
  policy  = stage.rc-grpo.arm.checkpoint
  tasks   = stage.tasks.drills.train
  samples = 3
}

stage "eval" "score" {
  policy = stage.rc-grpo.arm.checkpoint
  tasks  = [stage.tasks.drills.test]
}
`

const anAdapter = "lora {\nrank = 2\nalpha = 4\n}"

// rankVariable holds the folder, address, rank, number of ranks and rendezvous of a process that runs one rank.
const rankVariable = "RCGRPO_TEST_RANK"

// runRank runs a stage in folder dir as one rank.
func runRank(text string) error {
	var dir, address string
	var as engine.JobSetup
	if _, err := fmt.Sscan(text, &dir, &address, &as.Rank, &as.Ranks, &as.Rendezvous); err != nil {
		return err
	}
	x, diags := lang.Load(lang.Source{Path: filepath.Join(dir, "shared.hcl")}, lang.Registry(Kinds()))
	if diags.HasErrors() {
		return diags
	}
	err := runBeside(dir, x.Node(address), as)
	if err == nil && as.Rank > 0 {
		fmt.Fprintf(os.Stderr, "rank %d has ended\n", as.Rank)
	}
	return err
}

// rankProcess is a started rank; said is its log.
type rankProcess struct {
	*exec.Cmd
	said *bytes.Buffer
}

// startRanks starts the processes of a stage.
func startRanks(t *testing.T, dir, address string, count int) (ranks []rankProcess) {
	t.Helper()
	meet := filepath.Join(t.TempDir(), "store")
	for rank := range count {
		r := rankProcess{thisBinary(t, rankVariable, fmt.Sprint(dir, " ", address, " ", rank, " ", count, " ", meet)),
			new(bytes.Buffer)}
		r.Stderr = r.said
		must.OK(t, r.Start())
		ranks = append(ranks, r)
	}
	return ranks
}

func runRanks(t *testing.T, dir, address string, count int) {
	t.Helper()
	failed := false
	ranks := startRanks(t, dir, address, count)
	for rank, r := range ranks {
		if err := r.Wait(); err != nil {
			t.Errorf("%s, rank %d of %d: %v: %s", address, rank, count, err, r.said)
			failed = true
		}
		if rank > 0 && !strings.Contains(r.said.String(), fmt.Sprintf("rank %d has ended", rank)) {
			t.Errorf("%s: the process of rank %d of %d did not run as a rank: %s", address, rank, count, r.said)
		}
	}
	if failed {
		t.FailNow()
	}
}

// portDigests returns the digests of a stage's ports, without times.
func portDigests(t *testing.T, dir string, n *lang.Node) map[string]string {
	t.Helper()
	out := map[string]string{}
	for port := range n.Outputs {
		out[port] = portDigest(t, filepath.Join(nodeDir(dir, n), port))
	}
	return out
}

// rankedStages writes the experiment into a folder, runs the stages that have one rank, and returns the others.
func rankedStages(t *testing.T, lora string) (dir string, ranked []*lang.Node) {
	t.Helper()
	dir = t.TempDir()
	text := expand(strings.ReplaceAll(shared, "LORA", lora))
	must.OK(t, os.WriteFile(filepath.Join(dir, "shared.hcl"), []byte(text), 0o600))
	x, diags := lang.Load(lang.Source{Path: filepath.Join(dir, "shared.hcl")}, lang.Registry(Kinds()))
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	for _, n := range x.Nodes {
		switch n.Kind.Name {
		case "tasks", "curate", "model":
			must.OK(t, runRank(fmt.Sprint(dir, " ", n.Address, " 0 1 none")))
		default:
			ranked = append(ranked, n)
		}
	}
	return dir, ranked
}

// Every kind that trains or samples has identical ports with one process and with several ranks.
func TestStagesOfSeveralRanksAreThoseOfOne(t *testing.T) {
	for what, lora := range map[string]string{"all weights": "", "an adapter": anAdapter} {
		t.Run(what, func(t *testing.T) {
			if lora != "" {
				must.Long(t)
			}
			prepared, ranked := rankedStages(t, lora)
			want := map[string]map[string]string{}
			for count := 1; count <= must.Short(t, 2, 4); count++ {
				dir := t.TempDir()
				must.OK(t, os.CopyFS(dir, os.DirFS(prepared)))
				for _, n := range ranked {
					runRanks(t, dir, n.Address, count)
					got := portDigests(t, dir, n)
					if count == 1 {
						want[n.Address] = got
					}
					for port, digest := range got {
						if digest != want[n.Address][port] {
							t.Errorf("%s, %d ranks: port %s differs from that of one process", n.Address, count, port)
						}
					}
				}
			}
		})
	}
}

// In bf16, rollouts are equal up to rounding only, so nothing is compared with one process.
func TestTrainingsInBF16RunWithSeveralRanks(t *testing.T) {
	must.Long(t)
	dir, ranked := rankedStages(t, `precision = "bf16"`)
	for _, n := range ranked {
		if n.Kind.Name == "rctp-ft" || n.Kind.Name == "rc-grpo" {
			runRanks(t, dir, n.Address, 2)
		}
	}
	updates := rows[rl.Metric](t, filepath.Join(dir, "rc-grpo.arm", "metrics"), rl.MetricsFile)
	if len(updates) != 4 {
		t.Errorf("got %d updates, want 4", len(updates))
	}
	for _, row := range updates {
		_, evaluated := row.Values["eval_reward"]
		if evaluated != (row.Update%2 == 0) || row.Values["skipped"] != 0 {
			t.Errorf("update %d: evaluated %v, skipped %v", row.Update, evaluated, row.Values["skipped"])
		}
	}
}

// A training whose ranks are killed ends in the bytes of one process, also if it resumes with other numbers of ranks
// and from the other form of a state.
func TestKilledRanksEndInTheBytesOfOneProcess(t *testing.T) {
	prepared, ranked := rankedStages(t, "")
	for _, n := range ranked {
		if n.Kind.Name == "rctp-ft" {
			runRanks(t, prepared, n.Address, 1)
		}
	}
	i := slices.IndexFunc(ranked, func(n *lang.Node) bool { return n.Kind.Name == "rc-grpo" })
	dir, arm := t.TempDir(), ranked[i]
	must.OK(t, os.CopyFS(dir, os.DirFS(prepared)))
	runRanks(t, prepared, arm.Address, 1)
	want := portDigests(t, prepared, arm)

	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 2))
	states := func(since int) (n int) {
		found, _ := filepath.Glob(filepath.Join(nodeDir(dir, arm), "work", "states", "0*"))
		for _, path := range found {
			if update, err := strconv.Atoi(filepath.Base(path)); err == nil && update >= since {
				n++
			}
		}
		return n
	}
	for attempt, count := range []int{4, 2, 1}[:must.Short(t, 1, 3)] {
		t.Setenv(blocksVariable, strconv.Itoa(1-attempt%2))
		ranks, victim := startRanks(t, dir, arm.Address, count), r.IntN(count)
		ended, wait := make(chan struct{}), time.Duration(r.IntN(300))*time.Millisecond
		go func() { // kills a rank some time after the state of the next update
			for tick := time.NewTicker(time.Millisecond); ; {
				select {
				case <-ended:
					return
				case <-tick.C:
				}
				if states(attempt+1) > 0 {
					time.AfterFunc(wait, func() { ranks[victim].Process.Kill() })
					return
				}
			}
		}()
		for rank, process := range ranks {
			err := process.Wait()
			if said := process.said.String(); err != nil && rank != victim && !strings.Contains(said, torch.ErrPeer.Error()) {
				t.Errorf("rank %d after the end of rank %d: %v: %s", rank, victim, err, said)
			}
		}
		close(ended)
		if states(attempt+1) == 0 {
			t.Errorf("attempt %d has left no state from which the next one resumes", attempt+1)
		}
		blocks := must.Get(filepath.Glob(filepath.Join(nodeDir(dir, arm), "work", "states", "0*", "block.63.*")))(t)
		if attempt == 0 && len(blocks) == 0 {
			t.Error("the states have no blocks")
		}
	}
	runRanks(t, dir, arm.Address, must.Short(t, 2, 3))
	for port, digest := range portDigests(t, dir, arm) {
		if digest != want[port] {
			t.Errorf("port %s differs from that of one process", port)
		}
	}
}
