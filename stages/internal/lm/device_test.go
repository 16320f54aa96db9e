//go:build libtorch

package lm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl"
)

// What bench/gpu.sh sets beside deviceVariable: the bytes of memory that the device has.
const memoryVariable = "RCGRPO_DEVICE_MEMORY"

// H200 by docs/training.md 4: floating-point operations and bytes per second, as measured there.
const (
	peakWork  = 790e12
	peakBytes = 4.3e12
)

// measured is a line of the report: tokens per second, and what share of the device's limit that is.
type measured struct {
	what   string
	tokens float64 // per second
	limit  float64 // tokens per second at peak
}

func (m measured) String() string {
	return fmt.Sprintf("| %s | %.0f | %.0f | %.1f %% |", m.what, m.tokens, m.limit, 100*m.tokens/m.limit)
}

// randomOn makes a model on a device, its weights of the size that New gives them, from one block of random
// numbers again and again: what computes does not see the difference, and billions are not drawn on the host.
func randomOn(cfg Config, device torch.Device, b Buffers) (*Model, error) {
	r := rand.New(rand.NewPCG(1, 1))
	block := make([]float32, min(cfg.Parameters(), 1<<22))
	for i := range block {
		block[i] = float32(r.NormFloat64())
	}
	weights, _ := layout(cfg)
	return place(cfg, device, b, func(s *torch.Scope, m *Model) error {
		from := s.FromFloat32(block, int64(len(block)))
		for _, w := range weights {
			for at := 0; at < w.len(); at += len(block) {
				n := int64(min(len(block), w.len()-at))
				s.Nest(func(s *torch.Scope) {
					part := s.Full(torch.Float32, float64(w.start), n)
					if w.std > 0 {
						part = s.MulScalar(s.Narrow(from, 0, 0, n), w.std)
					}
					if m.master != nil {
						s.Copy_(s.Narrow(m.master, 0, int64(w.offset+at), n), part)
					}
					m.round(s, int64(w.offset+at), part)
				})
			}
		}
		return nil
	})
}

// products is how many weights take part in a product for each token.
func (c Config) products() float64 {
	q, kv := float64(c.Heads*c.HeadDim), float64(c.KVHeads*c.HeadDim)
	return float64(c.Layers)*float64(c.Hidden)*(2*q+2*kv+3*float64(c.MLP)) + float64(c.Vocab)*float64(c.Hidden)
}

// forwardWork is the floating-point operations of a forward pass per token of a sequence of so many.
func (c Config) forwardWork(length int) float64 {
	return 2*c.products() + 2*float64(c.Layers*c.Heads*c.HeadDim)*float64(length)
}

// layersThatFit is the deepest shape, up to its own, whose use takes at most nine tenths of the memory; 0 is
// unknown and leaves it as it is.
func layersThatFit(c Config, u Use, memory int64) Config {
	for memory > 0 && c.Layers > 1 && TotalMemory(c.Memory(u)) > memory/10*9 {
		c.Layers--
	}
	return c
}

// onDevice returns the device that RCGRPO_DEVICE names, in bfloat16, or the CPU with the operations of a GPU.
func onDevice(t *testing.T) (torch.Device, Precision) {
	t.Helper()
	if name := os.Getenv(deviceVariable); name != "" && name != "cpu" {
		return must.Get(torch.ParseDevice(name))(t), BF16
	}
	emulateFlash(t)
	return torch.CPU, Float32
}

// onCard is a shape of one layer's width of Qwen2.5-7B, small enough for tests.
var onCard = Config{Family: "qwen2", Vocab: 1000, Hidden: 256, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 128, MLP: 512,
	RopeBase: 1e6, NormEps: 1e-6, MaxPosition: 512}

// The same updates give the same weights each time, wherever the moments are and however the step is divided: neither
// the backward pass of flash attention nor AdamW's kernel depends on chance.
func TestUpdatesOnADeviceRepeat(t *testing.T) {
	device, precision := onDevice(t)
	before := hostPiece
	t.Cleanup(func() { hostPiece = before })
	train := func(host Host, piece int64) []float32 {
		hostPiece = piece
		m := must.Get(randomOn(onCard, device, Buffers{Precision: precision}))(t)
		defer m.Close()
		o := adamW(300)
		o.Host, o.Clip = host, 0.1
		tr := newTrainer(t, m, o)
		descendOn(t, tr, 3)
		return must.Get(m.Weights())(t)
	}
	want := train(HostNone, before)
	for name, got := range map[string][]float32{"again": train(HostNone, before),
		"moments on the host": train(HostMoments, before), "pieces of 1,600 numbers": train(HostMoments, 1600)} {
		if !slices.Equal(got, want) {
			t.Errorf("%s: other weights", name)
		}
	}
}

// Parked episodes continue on a device. In bfloat16 their draws are those of episodes with enough tokens up to
// rounding, so only their share is reported.
func TestParkedEpisodesOnADevice(t *testing.T) {
	device, precision := onDevice(t)
	m := must.Get(randomOn(onCard, device, Buffers{precision, true}))(t)
	defer m.Close()
	var all [2][][]rl.Draw
	for i, tokens := range []int{0, 360} {
		d := must.Get(NewDecoder(m, 12, 90))(t)
		d.LimitTokens(tokens)
		all[i] = sampleEpisodes(t, d)
	}
	equal, total := 0, 0
	for i, want := range all[0] {
		for k := range want {
			total++
			if k < len(all[1][i]) && all[1][i][k].Token == want[k].Token {
				equal++
			}
		}
	}
	t.Logf("%d of %d draws of parked episodes are equal", equal, total)
	if device == torch.CPU && equal != total {
		t.Errorf("got %d equal draws, want %d", equal, total)
	}
}

// measureTraining times updates on sequences of one length; every token is learned.
func measureTraining(c Config, device torch.Device, p Precision, length, pass, updates int, memory int64) (m measured,
	err error) {
	use := Use{Train: true, Precision: p, Recompute: true, Pass: pass, GPU: device != torch.CPU}
	c = layersThatFit(c, use, memory)
	torch.DevicePeak(device) // begins anew
	model, err := randomOn(c, device, Buffers{Precision: p})
	if err != nil {
		return m, err
	}
	defer model.Close()
	tr, err := NewTrainer(model, adamW(pass), Peers{})
	if err != nil {
		return m, err
	}
	defer tr.Close()
	tr.SetRecompute(true)
	r := rand.New(rand.NewPCG(2, 2))
	var batch []Sequence
	for range pass / length {
		ids := make([]int32, length)
		for i := range ids {
			ids[i] = r.Int32N(int32(c.Vocab))
		}
		batch = append(batch, learnAll(ids))
	}
	var start time.Time
	for i := range updates + 1 {
		if i == 1 { // the first finds its kernels and its memory
			start = time.Now()
		}
		if _, err := tr.Accumulate(context.Background(), batch, nil, 1, descend); err != nil {
			return m, err
		}
		if _, _, err := tr.Update(1e-6); err != nil { // reads the norm, so that the device is done
			return m, err
		}
	}
	tokens := float64(updates * len(batch) * length)
	m.what = fmt.Sprintf("update, %s, %d layers, %d × %d rows, recomputing, %s of planned %s", p, c.Layers, len(batch),
		length, BytesText(torch.DevicePeak(device)), BytesText(TotalMemory(c.Memory(use))))
	m.tokens, m.limit = tokens/time.Since(start).Seconds(), peakWork/(3*c.forwardWork(length))
	return m, nil
}

// measureDecoding times the prompts of so many sequences at a context, which differ, and then steps of all.
func measureDecoding(c Config, device torch.Device, p Precision, sequences, length, steps int,
	memory int64) (prompts, m measured, err error) {
	c = layersThatFit(c, Use{Precision: p, Slots: sequences, Context: length + steps, GPU: device != torch.CPU}, memory)
	model, err := randomOn(c, device, Buffers{p, true})
	if err != nil {
		return prompts, m, err
	}
	defer model.Close()
	d, err := NewDecoder(model, sequences, length+steps)
	if err != nil {
		return prompts, m, err
	}
	defer d.Release()
	r := rand.New(rand.NewPCG(3, 3))
	requests := make([]rl.Request, sequences)
	for i := range requests {
		feed := make([]int32, length-1)
		for k := range feed {
			feed[k] = r.Int32N(int32(c.Vocab))
		}
		requests[i] = rl.Request{Slot: i, Feed: feed, Temperature: 1, U: 0.5}
	}
	start := time.Now()
	for step := range steps {
		if step == 1 { // after the prompts
			prompts = measured{fmt.Sprintf("prompts, %s, %d layers, %d × %d tokens", p, c.Layers, sequences, length-1),
				float64(sequences*(length-1)) / time.Since(start).Seconds(), peakWork / c.forwardWork(length/2)}
			start = time.Now()
		}
		draws, err := d.Next(context.Background(), requests)
		if err != nil {
			return prompts, m, err
		}
		for i, draw := range draws {
			requests[i].Feed = []int32{draw.Token}
			requests[i].U = r.Float64()
		}
	}
	tokens := float64((steps - 1) * sequences)
	number := 4.0
	if p == BF16 {
		number = 2
	}
	bytes := number*c.products() + float64(sequences*length)*float64(c.kvToken(int64(number)))
	m.what = fmt.Sprintf("decoding, %s, %d layers, %d sequences at %d tokens", p, c.Layers, sequences, length)
	m.tokens, m.limit = tokens/time.Since(start).Seconds(), peakBytes/bytes*float64(sequences)
	return prompts, m, nil
}

// On a device that RCGRPO_DEVICE names, the shape of Qwen2.5-7B with as many layers as fit; else a tiny one
// through the same code, in the operations of a GPU.
func TestTrainingAndDecodingOnADevice(t *testing.T) {
	device, precision := onDevice(t)
	cfg, memory, steps := tiny(false), int64(0), 4
	passes, slots, lengths := [][2]int{{16, 32}}, []int{1, 3}, []int{8} // length and rows; sequences; tokens
	if device != torch.CPU {
		var err error
		if memory, err = strconv.ParseInt(os.Getenv(memoryVariable), 10, 64); err != nil {
			t.Fatalf("%s is to say the device's bytes: %v", memoryVariable, err)
		}
		cfg, steps = qwen7B, 65
		passes, slots = [][2]int{{4096, 8192}, {16384, 16384}, {8192, 40960}}, []int{1, 64, 128, 256}
		lengths = []int{2048, 8192, 16384}
	}
	t.Logf("device %s, %s; limits of an H200: %.0f TFLOP/s, %.1f TB/s", device, runtime.Version(), peakWork/1e12,
		peakBytes/1e12)
	t.Log("| what | tokens/s | at the limit | share |")
	report := func(lines ...measured) {
		for _, m := range lines {
			t.Log(m)
			if !(m.tokens > 0) || !(m.limit > 0) {
				t.Errorf("%v measures nothing", m)
			}
		}
	}
	for _, p := range slices.Compact([]Precision{precision, BF16}) {
		for _, pass := range passes {
			report(must.Get(measureTraining(cfg, device, p, pass[0], pass[1], 3, memory))(t))
		}
		for _, length := range lengths {
			for _, n := range slots {
				prompts, decoding, err := measureDecoding(cfg, device, p, n, length, steps, memory)
				must.OK(t, err)
				report(prompts, decoding)
			}
		}
	}
}

// docs/training.md 4: forward 14.96 GFLOP per token at 4k context, 7.070 B weights in products, decoding bound by
// 14.1 GB of weights and 56 KiB per token of context.
func TestLimitsAreThoseOfTheTrainingPage(t *testing.T) {
	near(t, "weights in products, billions", qwen7B.products()/1e9, 7.070, 0.0005)
	near(t, "forward at 4k, GFLOP per token", qwen7B.forwardWork(4096)/1e9, 14.96, 0.005)
	near(t, "training at 40 % of the peak", 0.4*peakWork/(3*qwen7B.forwardWork(4096)), 7040, 5)
	bytes := 2*qwen7B.products() + 64*4096*float64(qwen7B.kvToken(2))
	near(t, "decoding 64 at 4k", 64*peakBytes/bytes, 9433, 10)
	if got := layersThatFit(qwen7B, Use{Train: true, Precision: BF16, Recompute: true, Pass: 8192},
		139<<30).Layers; got < 20 || got > 28 {
		t.Errorf("%d layers fit a card of 139 GiB", got)
	}
}
