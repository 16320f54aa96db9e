//go:build libtorch

package lm

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/ranks"
	"rcgrpo/stages/internal/torch"
)

// inRank is the environment variable of a rank's process: its index, the number of ranks, and a folder.
const inRank = "RCGRPO_TEST_RANK"

// shardParts is the number of partial gradients of the updates that ranks share.
const shardParts = 4

// Five updates of every kind of trainer give identical weights, states, norms and statistics with 1 to 4 ranks.
func TestUpdatesOfSeveralRanksAreThoseOfOne(t *testing.T) {
	want := shardedUpdates(t, Peers{}, t.TempDir())
	for _, count := range []int{3, 2, shardParts}[:must.Short(t, 1, 3)] {
		dir := t.TempDir()
		var processes []*exec.Cmd
		var outputs []*strings.Builder
		for rank := range count {
			c, output := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRankOfATrainer$"), &strings.Builder{}
			c.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", inRank, rank, count, dir))
			c.Stdout, c.Stderr = output, output
			must.OK(t, c.Start())
			processes, outputs = append(processes, c), append(outputs, output)
		}
		for rank, c := range processes {
			if err := c.Wait(); err != nil {
				t.Fatalf("rank %d of %d: %v\n%s", rank, count, err, outputs[rank])
			}
			var got map[string]string
			must.OK(t, json.Unmarshal(must.Get(os.ReadFile(filepath.Join(dir, fmt.Sprint("result", rank))))(t), &got))
			for name, digest := range want {
				if rank > 0 && strings.HasSuffix(name, " state") {
					continue // rank 0 reads the files
				}
				if got[name] != digest {
					t.Errorf("rank %d of %d: %s differs from that of one rank", rank, count, name)
				}
			}
		}
	}
}

// TestRankOfATrainer is the process of one rank.
func TestRankOfATrainer(t *testing.T) {
	fields := strings.Fields(os.Getenv(inRank))
	if len(fields) == 0 {
		t.Skip("it runs in a process of its own")
	}
	rank, count, dir := must.Get(strconv.Atoi(fields[0]))(t), must.Get(strconv.Atoi(fields[1]))(t), fields[2]
	g := must.Get(torch.JoinFile(filepath.Join(dir, "store"), rank, count, torch.Loopback, time.Minute))(t)
	defer g.Close()
	if count == 3 {
		exchangeChunk = 100
	}
	result := shardedUpdates(t, Peers{ranks.New(rank, count, g), g}, dir)
	must.OK(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("result", rank)), must.Get(json.Marshal(result))(t), 0o600))
}

// shardedUpdates trains models as one rank and returns digests of weights, state and values by name.
func shardedUpdates(t *testing.T, peers Peers, dir string) map[string]string {
	before := pieceLen
	t.Cleanup(func() { pieceLen = before })
	pieceLen = 100 // so that each rank has pieces of the files
	digests := map[string]string{}
	device := must.Get(torch.ParseDevice(cmp.Or(os.Getenv(deviceVariable), "cpu")))(t) // all ranks share it
	initial := map[bool]string{true: t.TempDir(), false: t.TempDir()}
	for tied, dir := range initial {
		must.OK(t, newModel(t, tiny(tied), 1).Save(dir))
	}
	for _, precision := range []Precision{Float32, BF16} {
		for _, tied := range []bool{true, false} {
			for _, lora := range []bool{false, true} {
				name := fmt.Sprintf("%s, tied %v, lora %v", precision, tied, lora)
				base := must.Get(Load(initial[tied], device, Buffers{Precision: precision}))(t)
				t.Cleanup(func() { base.Close() })
				m := base
				o := adamW(40)
				o.Decay = 0.1
				if precision == BF16 && !lora && tied {
					o.Host = HostAll
				}
				var tr *Trainer
				if lora {
					a := must.Get(NewAdapter(m, LoRA{Rank: 2, Alpha: 4, Targets: Projections, Rows: []int32{7, 2}},
						rand.New(rand.NewPCG(1, 2))))(t)
					t.Cleanup(func() { a.Close() })
					m, tr = a.Model(), must.Get(a.Trainer(o, peers))(t)
				} else {
					tr = must.Get(NewTrainer(m, o, peers))(t)
				}
				t.Cleanup(func() { tr.Close() })
				values := shardedTraining(t, tr, 5)
				for _, form := range []string{"file", "blocks"} {
					state := filepath.Join(dir, name+", "+form)
					must.OK(t, os.MkdirAll(state, 0o700))
					saveAs(t, tr, state, form == "blocks")
					must.Get(peers.Rank.Sync(ranks.Point{Phase: "state is written"}))(t)
					if peers.Rank.Index() == 0 {
						digests[name+", "+form+" state"] = digestOf(t, state)
					}
					must.OK(t, tr.Restore(state))
					values = append(values, shardedTraining(t, tr, 1)...)
					if step := tr.step; step != 6 {
						t.Errorf("%s, %s: got %d updates, want 6", name, form, step)
					}
					must.OK(t, tr.Restore(filepath.Join(dir, name+", file")))
				}
				must.OK(t, m.Save(filepath.Join(dir, name)))
				if peers.Rank.Index() == 0 {
					digests[name+", checkpoint state"] = digestOf(t, filepath.Join(dir, name))
				}
				for _, w := range weightsOfPasses(t, m) {
					values = append(values, float64(w))
				}
				sum := must.Get(binary.Append(nil, binary.LittleEndian, values))(t)
				digests[name] = fmt.Sprintf("%x", sha256.Sum256(sum))
			}
		}
	}
	return digests
}

// weightsOfPasses returns the weights that the passes of this rank read.
func weightsOfPasses(t *testing.T, m *Model) (all []float32) {
	must.OK(t, m.do(func(s *torch.Scope) {
		for _, x := range []*torch.Tensor{m.flat, m.vectors} {
			if x != nil {
				all = append(all, s.Float32s(s.As(x, torch.Float32))...)
			}
		}
	}))
	return all
}

// saveAs saves a state as blocks or as files of rank 0.
func saveAs(t *testing.T, tr *Trainer, dir string, blocks bool) {
	t.Helper()
	before := BlockStates
	defer func() { BlockStates = before }()
	if blocks {
		BlockStates = 0
	}
	must.OK(t, tr.Save(dir))
	for name, want := range map[string]bool{blockFile(dir, 63): blocks, filepath.Join(dir, optimizerFile): !blocks} {
		if _, err := os.Stat(name); tr.peers.Rank.Count() == 1 && (err == nil) != want {
			t.Errorf("blocks %v: got %v for %s", blocks, err, name)
		}
	}
}

// digestOf returns the digest of the files of a folder.
func digestOf(t *testing.T, dir string) string {
	t.Helper()
	h := sha256.New()
	for _, e := range must.Get(os.ReadDir(dir))(t) {
		fmt.Fprintln(h, e.Name(), bytesOf(t, dir, e.Name()))
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func TestBlocksOfAnotherModelAreRefused(t *testing.T) {
	dir := t.TempDir()
	saveAs(t, newTrainer(t, newModel(t, tiny(true), 1), adamW(40)), dir, true)
	other := newTrainer(t, newModel(t, tiny(false), 1), adamW(40))
	must.Match(t, other.Restore(dir), `block.00.safetensors is no state of this model: it is of `)
	must.OK(t, os.Remove(blockFile(dir, 7)))
	same := newTrainer(t, newModel(t, tiny(true), 2), adamW(40))
	must.Match(t, same.Restore(dir), "block.07.safetensors: no such file")
}

// shardedTraining makes updates and returns their norms and the logprobs of the rank's parts, those of all ranks in
// the order of parts.
func shardedTraining(t *testing.T, tr *Trainer, updates int) (values []float64) {
	all := someSequences(rand.New(rand.NewPCG(2, 2)), 10, 20, tr.m.cfg.Vocab, 0.5)
	rows := make([]int, len(all))
	for i, q := range all {
		rows[i] = PackedRows([]Sequence{q})
	}
	parts := ranks.Parts(rows, shardParts)
	r := tr.peers.Rank
	for range updates {
		for round := range r.Rounds(shardParts) {
			var stats TokenStats
			if part, ok := r.Part(round, shardParts); ok {
				var sequences []Sequence
				for _, i := range parts[part] {
					sequences = append(sequences, all[i])
				}
				stats = must.Get(tr.Accumulate(t.Context(), sequences, nil, 1, descend))(t)
			}
			must.OK(t, tr.EndRound(min(r.Count(), shardParts-round*r.Count())))
			lists := must.Get(ranks.ShareValues(r, stats.Logp))(t)
			for _, list := range lists {
				values = append(values, list...)
			}
		}
		norm, skipped, err := tr.Update(1e-2)
		if err != nil || skipped || norm == 0 || math.IsNaN(norm) {
			t.Fatalf("norm %v, skipped %v, %v", norm, skipped, err)
		}
		values = append(values, norm)
	}
	return values
}
