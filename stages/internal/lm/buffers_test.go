//go:build libtorch

package lm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/torch"
)

// cutInto makes files be read and written in pieces of so many numbers.
func cutInto(t *testing.T, n int) {
	t.Helper()
	before := pieceLen
	pieceLen = n
	t.Cleanup(func() { pieceLen = before })
}

func bytesOf(t *testing.T, path ...string) string {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(path...)))(t)
	return string(text)
}

func TestFilesInPiecesEqualThoseInOne(t *testing.T) {
	for _, p := range []Precision{Float32, BF16} {
		m := use(t, shake(t, newModel(t, tiny(false), 1), 2, 0.1), p)
		tr := newTrainer(t, m, adamW(40))
		descendOn(t, tr, 1)
		want, dir := t.TempDir(), t.TempDir()
		must.OK(t, tr.Save(want))
		cutInto(t, 7) // shorter than the rows of a matrix
		again := must.Get(Load(want, torch.CPU, Buffers{Precision: p}))(t)
		defer again.Close()
		other := newTrainer(t, again, adamW(40))
		must.OK(t, other.LoadState(want))
		must.OK(t, other.Save(dir))
		for _, file := range []string{weightsFile, optimizerFile} {
			if bytesOf(t, want, file) != bytesOf(t, dir, file) {
				t.Errorf("%s: %s in pieces has other bytes", p, file)
			}
		}
		descendOn(t, tr, 1)
		descendOn(t, other, 1)
		if a, b := must.Get(m.Weights())(t), must.Get(again.Weights())(t); !slices.Equal(a, b) {
			t.Errorf("%s: an update after loading gives other weights", p)
		}
	}
}

// rounded is x in bfloat16: 8 digits, ties to even.
func rounded(x float32) float32 {
	bits := math.Float32bits(x)
	return math.Float32frombits((bits + 0x7fff + bits>>16&1) &^ 0xffff)
}

func TestFrozenBF16RoundsMatricesAndBiasesButNoNorm(t *testing.T) {
	m, dir := shake(t, newModel(t, tiny(false), 1), 2, 0.1), t.TempDir()
	must.OK(t, m.Save(dir))
	want := must.Get(m.Weights())(t)
	cutInto(t, 50)
	frozen := must.Get(Load(dir, torch.CPU, Buffers{BF16, true}))(t)
	defer frozen.Close()
	must.OK(t, frozen.AddRows(2))
	first := vectorsAt(m.cfg)
	got := must.Get(frozen.Weights())(t)
	more := 2 * 2 * m.cfg.Hidden // in the embedding and the head
	if frozen.master != nil || !slices.Equal(got[first+more:], want[first:]) {
		t.Error("the vectors of a frozen model are not those of the file")
	}
	vocab := m.cfg.Vocab * m.cfg.Hidden
	for i, x := range want[:vocab] {
		if got[i] != rounded(x) {
			t.Fatalf("weight %d: got %v, want %v in bfloat16, %v", i, got[i], x, rounded(x))
		}
	}
	if !slices.Equal(got[vocab:vocab+m.cfg.Hidden], got[:m.cfg.Hidden]) {
		t.Error("an added row is no copy of the first")
	}
}

// The checkpoint of an adapter in bfloat16 is base + scale·B·A in float32, of which passes read the rounded values.
func TestAdapterInBF16KeepsNoFloat32Weights(t *testing.T) {
	for name, pieces := range map[string]int{"whole": 1 << 20, "in pieces": 50} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must.OK(t, shake(t, newModel(t, tiny(false), 1), 2, 0.1).Save(dir))
			base := must.Get(Load(dir, torch.CPU, Buffers{BF16, true}))(t)
			defer base.Close()
			a, _ := drilled(t, base, 3)
			cutInto(t, pieces)
			if base.master != nil || a.model.master != nil {
				t.Error("an adapter in bfloat16 has float32 weights")
			}
			saved := t.TempDir()
			must.OK(t, a.Model().Save(saved))
			checkpoint := must.Get(Load(saved, torch.CPU, Buffers{}))(t)
			defer checkpoint.Close()
			plain, merged := must.Get(base.Weights())(t), must.Get(checkpoint.Weights())(t)
			var read []float32
			must.OK(t, base.do(func(s *torch.Scope) {
				read = slices.Clone(s.Float32s(s.As(a.model.flat, torch.Float32)))
			}))
			own := adapterWeights(t, a)
			changed := make([]bool, len(plain))
			for _, p := range a.parts {
				at := a.layout[p.name].offset
				for i := range p.out * p.in {
					sum := float64(plain[at+i])
					for k := range a.c.Rank {
						sum += a.c.scale() * float64(own[p.offset+a.c.Rank*p.in+i/p.in*a.c.Rank+k]) *
							float64(own[p.offset+k*p.in+i%p.in])
					}
					changed[at+i] = true
					near(t, p.name, float64(merged[at+i]), sum, 1e-6)
					near(t, p.name+" in bfloat16", float64(read[at+i]), sum, 0x1p-8*math.Abs(sum)+1e-6)
				}
			}
			for _, table := range a.tables {
				for k, id := range a.c.Rows {
					at, row := a.layout[table.name].offset+int(id)*base.cfg.Hidden, table.offset+k*base.cfg.Hidden
					for d := range base.cfg.Hidden {
						changed[at+d] = true
						if merged[at+d] != own[row+d] || read[at+d] != rounded(own[row+d]) {
							t.Fatalf("row %d of %s is not the adapter's", id, table.name)
						}
					}
				}
			}
			for i := range plain {
				if !changed[i] && merged[i] != plain[i] {
					t.Fatalf("weight %d, which the adapter does not change, is %v, want %v", i, merged[i], plain[i])
				}
			}
		})
	}
}

// The place of moments and master changes no byte, whatever the length of the pieces that a step copies.
func TestHostPlacementChangesNoByte(t *testing.T) {
	for name, tc := range map[string]struct {
		p    Precision
		lora bool
		host Host
	}{
		"moments":                {Float32, false, HostMoments},
		"moments, bf16":          {BF16, false, HostMoments},
		"all, bf16":              {BF16, false, HostAll},
		"moments of an adapter":  {Float32, true, HostMoments},
		"moments, adapter, bf16": {BF16, true, HostMoments},
	} {
		t.Run(name, func(t *testing.T) {
			before := hostPiece
			t.Cleanup(func() { hostPiece = before })
			train := func(host Host, piece int64) string {
				hostPiece = piece
				m := use(t, shake(t, newModel(t, tiny(false), 1), 2, 0.1), tc.p)
				o := OptimizerConfig{Beta1: 0.9, Beta2: 0.98, Eps: 1e-8, Clip: 0.1, Decay: 0.1, MicroTokens: 40, Host: host}
				var tr *Trainer
				if tc.lora {
					_, tr = adapterOn(t, m, LoRA{Rank: 3, Alpha: 6, Targets: Projections, Rows: []int32{7}}, o)
				} else {
					tr = newTrainer(t, m, o)
				}
				descendOn(t, tr, 3)
				stats := allStats(t, tr.m, someSequences(rand.New(rand.NewPCG(3, 3)), 4, 20, m.cfg.Vocab, 0.6), nil, 1)
				dir := t.TempDir()
				must.OK(t, tr.Save(dir))
				must.OK(t, tr.m.Save(dir))
				must.OK(t, tr.Restore(dir))
				descendOn(t, tr, 1)
				must.OK(t, tr.SaveState(t.TempDir()))
				return fmt.Sprint(stats.Logp) + bytesOf(t, dir, weightsFile) + bytesOf(t, dir, optimizerFile)
			}
			want := train(HostNone, 1<<20)
			for _, piece := range []int64{16, 160, 1 << 20} {
				if train(tc.host, piece) != want {
					t.Errorf("pieces of %d numbers: other bytes than without the host", piece)
				}
			}
		})
	}
}

func TestAnUnknownHostPlacementIsRefused(t *testing.T) {
	o := adamW(40)
	o.Host = "disk"
	_, err := NewTrainer(newModel(t, tiny(true), 1), o, Peers{})
	must.Match(t, err, `host = "disk"`)
	o.Host = HostAll
	_, err = NewTrainer(newModel(t, tiny(true), 1), o, Peers{})
	must.Match(t, err, "passes read the float32 weights")
}
