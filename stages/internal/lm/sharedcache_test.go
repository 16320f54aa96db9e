//go:build libtorch

package lm

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl"
)

// emulateFlash makes the CPU compute as a GPU does in bfloat16, in float32 and without the kernel.
func emulateFlash(t *testing.T) {
	t.Helper()
	torch.Compose(true)
	torch.EmulateFlash(true)
	t.Cleanup(func() {
		torch.EmulateFlash(false)
		torch.Compose(false)
	})
}

// sampleEpisodes plays twelve conversations of four replies, which share the prompts of three groups, and returns the
// draws of each.
func sampleEpisodes(t *testing.T, d *Decoder) (draws [][]rl.Draw) {
	t.Helper()
	b, r := rl.NewBatcher(d), rand.New(rand.NewPCG(4, 4))
	ids := func(n int) []int32 { return randomIDs(r, n, d.m.cfg.Vocab) }
	prompts := [][]int32{ids(20), ids(30), ids(9)}
	draws = make([][]rl.Draw, 12)
	results := make([][]int32, len(draws))
	for i := range results {
		results[i] = ids(1 + i%5)
	}
	var episodes sync.WaitGroup
	for i := range draws {
		episodes.Go(func() {
			seat := &rl.Seat{}
			defer seat.Close()
			seq := slices.Clone(prompts[i%3])
			for reply := range 4 {
				q := rl.Query{IDs: slices.Clone(seq), Temperature: 1, Max: 6 + i%4, Stream: rl.Stream(i*10 + reply), Seat: seat}
				for _, draw := range must.Get(b.Sample(t.Context(), q))(t).Draws {
					draws[i], seq = append(draws[i], draw), append(seq, draw.Token)
				}
				seq = append(seq, results[i]...) // of a tool
			}
		})
	}
	episodes.Wait()
	must.OK(t, b.Release())
	return draws
}

// The tokens of episodes do not depend on the cache: slots of equal length, a shared cache with room for all, and one
// whose tokens suffice for a third of them, so that episodes are parked and continue later.
func TestParkedEpisodesAreTheSameEpisodes(t *testing.T) {
	m := shake(t, newModel(t, flashable, 3), 5, 0.3)
	const slots, longest = 12, 90
	plain := must.Get(NewDecoder(m, slots, longest))(t)
	want := sampleEpisodes(t, plain)
	emulateFlash(t)
	before := torch.Live()
	computed := map[int]int{}
	for _, tokens := range []int{0, 1300, 360} {
		d := must.Get(NewDecoder(m, slots, longest))(t)
		d.LimitTokens(tokens)
		got := sampleEpisodes(t, d)
		computed[tokens] = d.Computed()
		for i := range want {
			if len(got[i]) != len(want[i]) {
				t.Fatalf("%d tokens, episode %d: got %d draws, want %d", tokens, i, len(got[i]), len(want[i]))
			}
			for k := range want[i] {
				if got[i][k].Token != want[i][k].Token || math.Abs(float64(got[i][k].Logp-want[i][k].Logp)) > 1e-5 {
					t.Fatalf("%d tokens, episode %d: got %v, want %v", tokens, i, got[i][k], want[i][k])
				}
			}
		}
	}
	if torch.Live() != before {
		t.Errorf("%d tensors are left", torch.Live()-before)
	}
	if computed[360] <= computed[0]+100 {
		t.Errorf("processed %v tokens: no episode was parked", computed)
	}
}

// flashable is a tiny shape whose heads flash attention takes.
var flashable = Config{Decoder: "qwen2", Vocab: 40, Hidden: 16, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 8, MLP: 24,
	RopeBase: 1e4, NormEps: 1e-6, MaxPosition: 128, TiedEmbeddings: true}

func TestDecoderWithoutRoomIsUnchanged(t *testing.T) {
	emulateFlash(t)
	m := newModel(t, flashable, 3)
	d := newDecoder(t, m, 2, 64)
	d.LimitTokens(40)
	feed := func(slot, n int) rl.Request {
		return rl.Request{Slot: slot, Feed: slices.Repeat([]int32{3}, n), Temperature: 1, U: 0.4}
	}
	must.Get(d.Next(t.Context(), []rl.Request{feed(0, 20)}))(t)
	if _, err := d.Next(t.Context(), []rl.Request{feed(0, 1), feed(1, 30)}); !errors.Is(err, rl.ErrNoRoom) {
		t.Errorf("got %v, want %v", err, rl.ErrNoRoom)
	}
	if got := d.lengths(); !reflect.DeepEqual(got, []int{20, 0}) || d.Room() != 40-2-20 {
		t.Errorf("got %v tokens and room for %d, want 20 and 18", got, d.Room())
	}
	want := must.Get(d.Next(t.Context(), []rl.Request{feed(0, 1)}))(t)
	must.OK(t, d.Release())
	got := must.Get(d.Next(t.Context(), []rl.Request{feed(0, 21)}))(t)
	if got[0].Token != want[0].Token || math.Abs(float64(got[0].Logp-want[0].Logp)) > 1e-6 {
		t.Errorf("got %v, want %v", got[0], want[0])
	}
}
