//go:build libtorch

package checkpoint

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

const width = 8

func fresh(t *testing.T) *Policy {
	t.Helper()
	tokens := must.Get(token.Train([]string{"<|user|>look<|assistant|>ls()<|call|>None<|assistant|><|end|>"}, 275,
		slices.Concat(chat.DrillTokens, chat.RewardTokens)))(t)
	m := must.Get(lm.New(lm.Config{Decoder: "qwen2", Vocab: tokens.Size(), Hidden: width, Layers: 1, Heads: 1, KVHeads: 1,
		HeadDim: width, MLP: 8, RopeBase: 1000,
		NormEps: 1e-6, TiedEmbeddings: true, MaxPosition: 32}, rand.New(rand.NewPCG(1, 1))))(t)
	p := &Policy{Meta: Meta{Layout: Drill}, Model: m, Tokenizer: tokens}
	t.Cleanup(func() { p.Close() })
	return p
}

// table returns the embedding [vocabulary][width], which comes first in the buffer of all weights.
func table(t *testing.T, p *Policy) [][]float32 {
	t.Helper()
	weights := must.Get(p.Model.Weights())(t)
	return slices.Collect(slices.Chunk(weights[:p.Tokenizer.Size()*width], width))
}

func id(t *testing.T, p *Policy, name string) int {
	t.Helper()
	i, ok := p.Tokenizer.ID(name)
	if !ok {
		t.Fatalf("no token %s", name)
	}
	return int(i)
}

func TestRowsOfRewardTokensStartAsCopies(t *testing.T) {
	p := fresh(t)
	before := table(t, p)
	must.OK(t, p.UseTokens(rl.BeforeEachAction, "copy:<|assistant|>"))
	high, low, from := id(t, p, chat.HighReward), id(t, p, chat.LowReward), id(t, p, chat.AssistantToken)
	for i, row := range table(t, p) {
		want := before[i]
		if i == high || i == low {
			want = before[from]
		}
		if !slices.Equal(row, want) {
			t.Errorf("row %d: got %v, want %v", i, row, want)
		}
	}
	if p.Rows != "copy:<|assistant|>" || p.Position != rl.BeforeEachAction || p.Trained {
		t.Errorf("meta: %+v", p.Meta)
	}
}

func TestRowsOfRewardTokensStartAsTheMeanOfAllOthers(t *testing.T) {
	p := fresh(t)
	high, low := id(t, p, chat.HighReward), id(t, p, chat.LowReward)
	before := table(t, p)
	want := make([]float64, width)
	for i, row := range before {
		for d, x := range row {
			if i != high && i != low {
				want[d] += float64(x) / float64(len(before)-2)
			}
		}
	}
	must.OK(t, p.UseTokens(rl.FirstUser, "mean"))
	after := table(t, p)
	for d := range width {
		for _, row := range []int{high, low} {
			if math.Abs(float64(after[row][d])-want[d]) > 1e-6 {
				t.Errorf("row %d, column %d: got %v, want %v", row, d, after[row][d], want[d])
			}
		}
	}
	for i := range before {
		if i != high && i != low && !slices.Equal(before[i], after[i]) {
			t.Errorf("row %d changed", i)
		}
	}
}

func TestRewardTokenRowsAreInitializedOnce(t *testing.T) {
	must.Match(t, fresh(t).UseTokens(rl.FirstUser, "copy:<|nobody|>"), `no token "<|nobody|>"`)
	p := fresh(t)
	must.OK(t, p.UseTokens(rl.FirstUser, "mean"))
	before := table(t, p)
	// Not trained yet: the position may still change, the rows stay.
	must.OK(t, p.UseTokens(rl.BeforeEachAction, "copy:<|assistant|>"))
	p.Trained = true
	must.OK(t, p.UseTokens(rl.BeforeEachAction, "copy:<|user|>"))
	if !reflect.DeepEqual(table(t, p), before) {
		t.Error("rows that were there were made again")
	}
	must.Match(t, p.UseTokens(rl.FirstUser, "mean"), "trained at before_each_action; they cannot be used at first_user")
}

func TestCheckpointsRoundTrip(t *testing.T) {
	p := fresh(t)
	must.OK(t, p.UseTokens(rl.FirstUser, "mean"))
	p.Trained, p.Condition = true, rl.TokenHigh
	dir := t.TempDir()
	must.OK(t, p.Save(dir))
	got := must.Get(OpenFolder(dir, "cpu", lm.Use{Train: true}))(t)
	defer got.Close()
	if !reflect.DeepEqual(got.Meta, p.Meta) || !reflect.DeepEqual(table(t, got), table(t, p)) {
		t.Errorf("got %+v, want %+v with the same rows", got.Meta, p.Meta)
	}
	again := t.TempDir()
	must.OK(t, got.Save(again))
	a := must.Get(artifact.Digest(dir))(t)
	if b, err := artifact.Digest(again); err != nil || a != b {
		t.Errorf("written again it has other bytes (%v)", err)
	}
}

// The second moment's decay of the settings is that of the optimizer.
func TestMomentDecayReachesTheOptimizer(t *testing.T) {
	one := func(beta2 float64) [][]float32 {
		p := fresh(t)
		o := blocks.Optimizer{Beta2: beta2, Eps: 1e-8, ClipNorm: 1}
		trainer := must.Get(p.Trainer(o, lm.DefaultMicroTokens, lm.Peers{}))(t)
		defer trainer.Close()
		for _, target := range []int32{3, 9} { // the second step shows what the moments remember
			must.Get(trainer.Accumulate(t.Context(), []lm.Sequence{{IDs: []int32{1, target}, Mask: []bool{false, true}}},
				nil, 1,
				func(_, _ int, s lm.TokenStats) (lm.Weights, error) { return lm.Weights{Logp: []float64{-1}}, nil }))(t)
			_, _, err := trainer.Update(0.01)
			must.OK(t, err)
		}
		return table(t, p)
	}
	want := one(0.9)
	if far := distance(want, one(0.9+1e-9)); far > 1e-6 {
		t.Errorf("beta2 = 0.9 and 0.9 + 1e-9 differ by %v", far)
	}
	if far := distance(want, one(0.5)); far < 1e-4 {
		t.Errorf("beta2 = 0.9 and 0.5 differ by %v only", far)
	}
}

func distance(a, b [][]float32) float64 {
	far := 0.0
	for i := range a {
		for d := range a[i] {
			far = max(far, math.Abs(float64(a[i][d]-b[i][d])))
		}
	}
	return far
}

// A model folder of the family Qwen2.5 or Llama 3.1 becomes a policy whose layout is its own template's, and
// which gets reward tokens where they are first used.
func TestPoliciesFromModelFolders(t *testing.T) {
	benchmark := fixtures.Benchmark(t)
	for name, family := range map[string]string{"qwen2-tiny": "qwen2.5", "llama31-tiny": "llama3.1"} {
		t.Run(name, func(t *testing.T) {
			from := fixtures.Dir(t, "hf/models/"+name)
			if family == "llama3.1" && !fixtures.Llama(t) {
				t.Skip(fixtures.NoLlama)
			}
			dir := t.TempDir()
			for _, file := range append([]string{lm.ConfigFile, TokenizerFile, "model.safetensors"}, Kept...) {
				text, err := os.ReadFile(filepath.Join(from, file))
				if err != nil {
					continue
				}
				must.OK(t, os.WriteFile(filepath.Join(dir, file), text, 0o600))
			}
			must.OK(t, (Meta{Layout: family}).Write(dir))
			p := reopen(t, dir)
			must.OK(t, p.UseTokens(rl.FirstUser, "mean"))
			if got := p.Model.Config().Vocab; got != 514 || p.Tokenizer.Size() != 514 {
				t.Errorf("got %d rows and %d tokens, want 514 of each", got, p.Tokenizer.Size())
			}
			saved := t.TempDir()
			must.OK(t, p.Save(saved))
			again := reopen(t, saved)
			twice := t.TempDir()
			must.OK(t, again.Save(twice))
			sameFiles(t, saved, twice)
			for _, file := range Kept { // what other programs read comes back as it was
				want, err := os.ReadFile(filepath.Join(from, file))
				if got, _ := os.ReadFile(filepath.Join(saved, file)); err == nil && !slices.Equal(got, want) {
					t.Errorf("%s has other bytes than the folder it came from", file)
				}
			}
			codec := must.Get(again.CodecFor(false, benchmark))(t)
			high := id(t, again, chat.HighReward)
			if ids := must.Get(codec.Begin("", nil, "Tell me.", rl.TokenHigh))(t); !slices.Contains(ids, int32(high)) {
				t.Errorf("the first request does not hold the reward token %d: %v", high, ids)
			}
			call := codec.Reply([]string{"ls(a=True)"})
			if p := codec.Parse(call); !slices.Equal(p.Calls, []rl.Call{{Text: "ls(a=True)"}}) {
				t.Errorf("%q is read back as %q", codec.Text(call), p.Calls)
			}
			begin := must.Get(codec.Begin("", rl.ToolsNamed([]string{"ls"}), "", ""))(t)
			must.Contain(t, codec.Text(begin), `"name": "ls"`) // its document
			_, err := again.CodecFor(false, "")
			must.Match(t, err, "data { bfcl = ")
		})
	}
}

// sameFiles compares two folders byte for byte.
func sameFiles(t *testing.T, a, b string) {
	t.Helper()
	files, err := os.ReadDir(a)
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files (%v)", len(files), err)
	}
	for _, f := range files {
		x := must.Get(os.ReadFile(filepath.Join(a, f.Name())))(t)
		if y, err := os.ReadFile(filepath.Join(b, f.Name())); err != nil || !slices.Equal(x, y) {
			t.Errorf("%s written again has other bytes (%v)", f.Name(), err)
		}
	}
}

func reopen(t *testing.T, dir string) *Policy {
	t.Helper()
	p := must.Get(OpenFolder(dir, "cpu", lm.Use{Train: true}))(t)
	t.Cleanup(func() { p.Close() })
	return p
}
