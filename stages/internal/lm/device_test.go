//go:build libtorch

package lm

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/ranks"
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
var onCard = Config{Decoder: "qwen2", Vocab: 1000, Hidden: 256, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 128, MLP: 512,
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

// trainingCase is a training whose updates are measured. Its parts have sequences of one length, which fill a pass.
type trainingCase struct {
	name    string
	use     Use
	length  int
	updates int // after a first one, which finds its kernels and its memory
}

// complete returns the case for a model and a device.
func (tc trainingCase) complete(c Config, device torch.Device, memory int64) (trainingCase, Config) {
	u := &tc.use
	u.Train, u.Recompute, u.GPU, u.MicroBatch = true, true, device != torch.CPU, u.Pass
	u.Parts, u.Precision = max(1, u.Parts), cmp.Or(u.Precision, BF16)
	adapted := u.Adapter > 0
	size := func(c Config) int { return deviceLoRA.Parameters(c) }
	if adapted {
		u.Adapter = size(c)
	}
	c = layersThatFit(c, *u, memory)
	if adapted {
		u.Adapter = size(c)
	}
	return tc, c
}

// deviceLoRA is the adapter of these trainings.
var deviceLoRA = LoRA{Rank: 16, Alpha: 32, Targets: Projections}

// trainer returns the trainer of a case and the reference, or nil.
func (tc trainingCase) trainer(t *testing.T, c Config, device torch.Device, peers Peers) (tr *Trainer, ref *Model) {
	u := tc.use
	o := adamW(u.Pass)
	o.Host = u.Host
	m := must.Get(randomOn(c, device, u.Buffers()))(t)
	t.Cleanup(func() { m.Close() })
	if u.Adapter > 0 {
		a := must.Get(NewAdapter(m, deviceLoRA, rand.New(rand.NewPCG(5, 5))))(t)
		t.Cleanup(func() { a.Close() })
		tr = must.Get(a.Trainer(o, peers))(t)
		if u.Reference {
			ref = m
		}
	} else {
		tr = must.Get(NewTrainer(m, o, peers))(t)
		if u.Reference {
			ref = must.Get(m.Clone())(t)
			t.Cleanup(func() { ref.Close() })
		}
	}
	t.Cleanup(func() { tr.Close() })
	tr.SetRecompute(true)
	return tr, ref
}

// accumulate adds the partial gradients of an update; every token is learned.
func (tc trainingCase) accumulate(t *testing.T, tr *Trainer, ref *Model) {
	weigh := func(_, _ int, s TokenStats) (Weights, error) {
		w := Weights{Logp: slices.Repeat([]float64{-1}, len(s.Logp))}
		if ref != nil {
			w.KL = w.Logp
		}
		return w, nil
	}
	rank, parts := tr.peers.Rank, tc.use.Parts
	for round := range rank.Rounds(parts) {
		if part, ok := rank.Part(round, parts); ok {
			r := rand.New(rand.NewPCG(2, uint64(part)))
			var batch []Sequence
			for range tc.use.Pass / tc.length {
				batch = append(batch, learnAll(randomIDs(r, tc.length, tr.m.cfg.Vocab)))
			}
			must.Get(tr.Accumulate(t.Context(), batch, ref, 1, weigh))(t)
		}
		if parts > 1 {
			must.OK(t, tr.EndRound(min(rank.Count(), parts-round*rank.Count())))
		}
	}
}

// measure times updates. The step is timed from the norm on, for which the device has ended the passes.
func (tc trainingCase) measure(t *testing.T, c Config, device torch.Device, memory int64) (m measured) {
	tc, c = tc.complete(c, device, memory)
	torch.DevicePeak(device) // resets the peak
	tr, ref := tc.trainer(t, c, device, Peers{})
	var start time.Time
	step := 0.0
	for i := range tc.updates + 1 {
		if i == 1 {
			start, step = time.Now(), 0
		}
		tc.accumulate(t, tr, ref)
		must.Get(tr.Norm())(t)
		begin := time.Now()
		_, _, err := tr.Update(1e-6)
		must.OK(t, err)
		must.OK(t, tr.m.do(func(s *torch.Scope) { s.Float32s(s.As(s.Narrow(tr.m.flat, 0, 0, 1), torch.Float32)) }))
		step += time.Since(begin).Seconds()
	}
	rows := tc.use.Parts * (tc.use.Pass / tc.length) * tc.length
	step /= float64(tc.updates)
	moved := map[Host]float64{HostMoments: 16, HostAll: 24}[tc.use.Host] * float64(tr.n) / step
	peak, planned := torch.DevicePeak(device), TotalMemory(c.Memory(tc.use))
	m.what = fmt.Sprintf("update, %s, %s, %d layers, %d parts of %d × %d rows; step %.3g s, %.3g GB/s to and from the "+
		"host; peak %s of planned %s", tc.name, tc.use.Precision, c.Layers, tc.use.Parts, tc.use.Pass/tc.length, tc.length,
		step, moved/1e9, BytesText(peak), BytesText(planned))
	m.tokens = float64(tc.updates*rows) / time.Since(start).Seconds()
	m.limit = peakWork / (3 * c.forwardWork(tc.length))
	if ratio := float64(peak) / float64(planned); device != torch.CPU && (ratio < 0.95 || ratio > 1.05) {
		t.Errorf("%s: %.2f of the planned memory", m.what, ratio)
	}
	return m
}

// measureDecoding measures the prefill of several different prompts of one length, and then steps of all sequences.
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
		requests[i] = rl.Request{Slot: i, Feed: randomIDs(r, length-1, c.Vocab), Temperature: 1, U: 0.5}
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

// deviceMemory returns the bytes of the device's memory; 0 for the CPU.
func deviceMemory(t *testing.T, device torch.Device) (n int64) {
	t.Helper()
	if device == torch.CPU {
		return 0
	}
	n, err := strconv.ParseInt(os.Getenv(memoryVariable), 10, 64)
	if err != nil {
		t.Fatalf("%s is to be the device's bytes: %v", memoryVariable, err)
	}
	return n
}

// On a device that RCGRPO_DEVICE names, the shape of Qwen2.5-7B with as many layers as fit; else a tiny one
// through the same code, in the operations of a GPU.
func TestTrainingAndDecodingOnADevice(t *testing.T) {
	device, precision := onDevice(t)
	memory := deviceMemory(t, device)
	cfg, steps, slots, lengths := tiny(false), 4, []int{1, 3}, []int{8} // sequences; tokens
	cases := []trainingCase{{"weights and moments on the device", Use{Pass: 32, Precision: precision}, 16, 3}}
	pass, length := 32, 16 // of the rows of the memory table
	if device != torch.CPU {
		cfg, steps, slots, lengths = qwen7B, 65, []int{1, 64, 128, 256}, []int{2048, 8192, 16384}
		pass, length = 24576, 8192
		cases = nil
		for _, c := range [][2]int{{4096, 8192}, {16384, 16384}, {8192, 40960}} {
			cases = append(cases, trainingCase{"weights and moments on the device", Use{Pass: c[1]}, c[0], 3})
		}
	}
	cases = append(cases, trainingCase{"fine-tuning, moments on the host", Use{Pass: pass, Parts: 8, Host: HostMoments},
		length, 1},
		trainingCase{"RL of an adapter", Use{Pass: pass, Parts: 8, Reference: true, Adapter: 1}, length, 1},
		trainingCase{"RL, moments on the host", Use{Pass: pass, Reference: true, Host: HostMoments}, length, 1},
		trainingCase{"RL, moments and float32 weights on the host", Use{Pass: pass, Parts: 8, Reference: true,
			Host: HostAll}, length, 1})
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
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { // frees its model
			report(c.measure(t, cfg, device, memory))
		})
	}
	for _, length := range lengths {
		for _, n := range slots {
			prompts, decoding, err := measureDecoding(cfg, device, precision, n, length, steps, memory)
			must.OK(t, err)
			report(prompts, decoding)
		}
	}
}

// The log-probabilities of sampled tokens and those that training computes of the same tokens.
func TestSamplerGapOnADevice(t *testing.T) {
	device, precision := onDevice(t)
	cfg, sequences, prompt, reply := onCard, 3, 20, 10
	if device != torch.CPU {
		cfg, sequences, prompt, reply = qwen7B, 64, 2048, 64
		cfg = layersThatFit(cfg, Use{Precision: precision, Slots: sequences, Context: prompt + reply, Pass: 8192, GPU: true},
			deviceMemory(t, device))
	}
	m := must.Get(randomOn(cfg, device, Buffers{precision, true}))(t)
	defer m.Close()
	d := must.Get(NewDecoder(m, sequences, prompt+reply))(t)
	r := rand.New(rand.NewPCG(4, 4))
	requests, all, sampled := make([]rl.Request, sequences), make([]Sequence, sequences), make([][]float64, sequences)
	for i := range requests {
		all[i] = Sequence{IDs: randomIDs(r, prompt, cfg.Vocab), Mask: make([]bool, prompt)}
		requests[i] = rl.Request{Slot: i, Feed: all[i].IDs, Temperature: 1}
	}
	for range reply {
		for i := range requests {
			requests[i].U = r.Float64()
		}
		for i, draw := range must.Get(d.Next(t.Context(), requests))(t) {
			requests[i].Feed = []int32{draw.Token}
			all[i].IDs, all[i].Mask = append(all[i].IDs, draw.Token), append(all[i].Mask, true)
			sampled[i] = append(sampled[i], float64(draw.Logp))
		}
	}
	must.OK(t, d.Release())
	gaps := allStats(t, m, all, nil, 1).Logp
	for i, logp := range slices.Concat(sampled...) {
		gaps[i] = math.Abs(gaps[i] - logp)
	}
	slices.Sort(gaps)
	at := func(share float64) float64 { return gaps[int(share*float64(len(gaps)-1))] }
	t.Logf("sampler_gap, %s, %d layers, %d tokens: %.2g at the median, %.2g and %.2g at 95 and 99 %%, %.2g at most",
		precision, cfg.Layers, len(gaps), at(0.5), at(0.95), at(0.99), at(1))
	if len(gaps) != sequences*reply || device == torch.CPU && at(1) > 1e-4 {
		t.Errorf("got %d gaps of at most %v, want %d below 1e-4", len(gaps), at(1), sequences*reply)
	}
}

// inDevice is the environment variable of a rank with its own device: its index, the number of ranks, and a folder.
const inDevice = "RCGRPO_TEST_DEVICE_RANK"

// devicesVariable is set by bench/gpu.sh to the number of GPUs.
const devicesVariable = "RCGRPO_DEVICES"

// deviceResult is what a rank reports of its updates.
type deviceResult struct {
	Seconds float64 // of an update
	Norms   []float64
	Weights []float32 // the first and the last ones
	Backend string
	Layers  int
}

// The same updates on 1, 2, 4 and 8 devices, as far as there are any: their times, and whether the bytes are equal, as
// they are on the CPU.
func TestUpdatesOnSeveralDevices(t *testing.T) {
	device, _ := onDevice(t)
	devices := 2
	if device != torch.CPU {
		devices = must.Get(strconv.Atoi(os.Getenv(devicesVariable)))(t)
	}
	var one deviceResult
	t.Log("| devices | layers | backend | seconds of an update | times one device |")
	for count := 1; count <= min(devices, 8); count *= 2 {
		dir := t.TempDir()
		var processes []*exec.Cmd
		for rank := range count {
			c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRankOnADevice$")
			c.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", inDevice, rank, count, dir))
			if device != torch.CPU {
				c.Env = append(c.Env, fmt.Sprint("CUDA_VISIBLE_DEVICES=", rank))
			}
			c.Stdout, c.Stderr = os.Stderr, os.Stderr
			must.OK(t, c.Start())
			processes = append(processes, c)
		}
		for rank, c := range processes {
			if err := c.Wait(); err != nil {
				t.Fatalf("rank %d of %d: %v", rank, count, err)
			}
		}
		var got deviceResult
		must.OK(t, json.Unmarshal(must.Get(os.ReadFile(filepath.Join(dir, "result")))(t), &got))
		if count == 1 {
			one = got
		}
		t.Logf("| %d | %d | %s | %.3g | %.2f |", count, got.Layers, got.Backend, got.Seconds, one.Seconds/got.Seconds)
		if same := slices.Equal(got.Norms, one.Norms) && slices.Equal(got.Weights, one.Weights); !same {
			t.Logf("on %d devices, the bytes differ from those of one: norms %v and %v", count, got.Norms, one.Norms)
			if device == torch.CPU {
				t.Fail()
			}
		}
	}
}

// TestRankOnADevice is the process of one rank.
func TestRankOnADevice(t *testing.T) {
	fields := strings.Fields(os.Getenv(inDevice))
	if len(fields) == 0 {
		t.Skip("it runs in a process of its own")
	}
	device, precision := onDevice(t)
	rank, count := must.Get(strconv.Atoi(fields[0]))(t), must.Get(strconv.Atoi(fields[1]))(t)
	g := must.Get(torch.JoinFile(filepath.Join(fields[2], "store"), rank, count, torch.Loopback, time.Minute))(t)
	defer g.Close()
	cfg, tc := onCard, trainingCase{use: Use{Pass: 32, Parts: 4, Precision: precision}, length: 16}
	if device != torch.CPU {
		if err := g.UseNCCL(device, ""); err != nil {
			t.Log(err)
		}
		cfg, tc = qwen7B, trainingCase{use: Use{Pass: 16384, Parts: 8}, length: 8192}
	}
	tc, cfg = tc.complete(cfg, device, deviceMemory(t, device)) // with one device, so that all have the same layers
	tr, _ := tc.trainer(t, cfg, device, Peers{ranks.New(rank, count, g), g})
	result := deviceResult{Backend: g.Backend(), Layers: cfg.Layers}
	var start time.Time
	const updates = 2 // after the first
	for i := range updates + 1 {
		if i == 1 {
			start = time.Now()
		}
		tc.accumulate(t, tr, nil)
		norm, _, err := tr.Update(1e-6)
		must.OK(t, err)
		result.Norms = append(result.Norms, norm)
	}
	must.OK(t, tr.m.do(func(s *torch.Scope) {
		n := tr.m.flat.Size(0)
		for _, from := range []int64{0, n - min(n, 1<<16)} {
			part := s.Narrow(tr.m.flat, 0, from, min(n, 1<<16))
			result.Weights = append(result.Weights, s.Float32s(s.As(part, torch.Float32))...)
		}
	}))
	result.Seconds = time.Since(start).Seconds() / updates
	if rank == 0 {
		must.OK(t, os.WriteFile(filepath.Join(fields[2], "result"), must.Get(json.Marshal(result))(t), 0o600))
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
