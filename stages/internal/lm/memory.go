package lm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"rcgrpo/stages/internal/torch"
)

// Use describes a stage's use of a model, as far as it affects memory.
type Use struct {
	Train      bool // gradients and moments of all weights, or of the adapter
	Adapter    int  // weights of that adapter; 0 without one
	Reference  bool // a second, frozen model
	Pass       int  // rows of a forward and backward pass; 0 makes none
	MicroBatch int  // rows of a full micro-batch; 0: Pass
	Alone      bool // the pass is one sequence, independent of micro_batch
	Host       Host // what the optimizer stores in the host's memory; "" is HostNone
	Ranks      int  // devices, each with a process, that share master and moments; 0 counts as 1
	Parts      int  // partial gradients of an update; 0 counts as 1

	Slots, Context int // sequences sampled at once and their maximal length; 0 for none
	Tokens         int // of these sequences together, where they share a cache; 0: Slots × Context
	Threads        int // CPU threads that sample; 0 counts as 1

	Precision Precision // of products; "" is float32
	GPU       bool      // libtorch's operations have more intermediates than the CPU's kernels
	Recompute bool      // a pass stores only each layer's input
}

// Buffers returns the buffers of the policy's model.
func (u Use) Buffers() Buffers { return Buffers{u.Precision, !u.Train || u.Adapter > 0} }

// bytes returns the size of an operand of products.
func (u Use) bytes() int64 {
	if u.Precision == BF16 {
		return 2
	}
	return 4
}

// MemoryPart is a part of the memory of a use.
type MemoryPart struct {
	Name  string
	Bytes int64
	Host  bool // in the host's memory, beside a GPU
}

// MemoryPlan is the memory of one rank. Training and sampling alternate, and each frees what the other needs.
type MemoryPlan struct {
	Always, Training, Sampling []MemoryPart
}

// Peak returns the permanent parts and those of the phase that needs more of the device.
func (p MemoryPlan) Peak() []MemoryPart {
	phase := p.Sampling
	if TotalMemory(p.Training) > TotalMemory(p.Sampling) {
		phase = p.Training
	}
	return slices.Concat(p.Always, phase)
}

// Memory returns the parts of Plan's peak.
func (c Config) Memory(u Use) []MemoryPart { return c.Plan(u).Peak() }

// Plan returns the memory of a use, part by part. It is an upper bound: every token has loss, and all sequences have
// the maximal length at once.
func (c Config) Plan(u Use) (p MemoryPlan) {
	add := func(parts *[]MemoryPart, name string, bytes int64, host bool) {
		if bytes > 0 {
			*parts = append(*parts, MemoryPart{name, bytes, host})
		}
	}
	ranks, all := int64(max(u.Ranks, 1)), 4*int64(c.Parameters())
	frozen := all + c.tables() // in float32, what passes read is the master
	if u.Precision == BF16 {
		frozen = all/2 + c.tables() + 4*int64(c.Parameters()-vectorsAt(c))
	}
	trained := all
	add(&p.Always, "weights", frozen, false)
	if u.Adapter > 0 {
		add(&p.Always, "merged weights", frozen, false) // the base is the reference at once
		trained = 4 * int64(u.Adapter)
		add(&p.Always, "adapter", trained, false)
	} else if u.Reference {
		add(&p.Always, "reference", frozen, false)
	}
	if u.Train {
		if u.Precision == BF16 && u.Adapter == 0 {
			add(&p.Always, "float32 weights", trained/ranks, u.GPU && u.Host == HostAll)
		}
		add(&p.Always, "two moments", 2*trained/ranks, u.GPU && u.moments())
		add(&p.Training, "gradient", trained, false)
		if int64(u.Parts) > ranks {
			add(&p.Training, "sum of partial gradients", trained/ranks, false)
		}
	}
	if pass, update := c.trainingPass(u), c.updatePeak(u, trained); pass >= update {
		add(&p.Training, fmt.Sprintf("a pass of %d tokens", u.Pass), pass, false)
	} else {
		add(&p.Training, "an update", update, false)
	}
	if u.Slots > 0 {
		name := fmt.Sprintf("KV cache of at most %d × %d tokens", u.Slots, u.Context)
		if u.Tokens > 0 {
			name = fmt.Sprintf("KV cache of at most %d sequences with %d tokens together", u.Slots, u.Tokens)
		}
		add(&p.Sampling, name, c.cachePeak(u), false)
		add(&p.Sampling, "a pass of the sampler", c.samplingPass(u), false)
	}
	return p
}

// moments reports whether the optimizer stores the moments in the host's memory.
func (u Use) moments() bool { return u.Host == HostMoments || u.Host == HostAll }

// tables returns the bytes of the rotary angles of a model.
func (c Config) tables() int64 { return int64(c.MaxPosition) * int64(c.HeadDim) * 4 }

// exchangeChunk is the number of gradients that a rank exchanges with each other rank at once; a variable for tests.
var exchangeChunk int64 = 1 << 24

// updatePeak returns the peak of an optimizer step beside gradient, weights and moments; trained is 4 bytes for each
// trained weight. It uses the memory of the pass.
func (c Config) updatePeak(u Use, trained int64) (bytes int64) {
	if !u.Train {
		return 0
	}
	ranks := int64(max(u.Ranks, 1))
	own := trained / ranks
	if u.moments() { // pieces of what the host stores
		copies := int64(2)
		if u.Host == HostAll {
			copies = 3
		}
		bytes += copies * min(own, 4*hostPiece)
	}
	if u.Precision == BF16 && u.Adapter > 0 { // the widest merged matrix before it is rounded
		bytes = max(bytes, 4*int64(c.Hidden)*int64(max(c.MLP, c.Heads*c.HeadDim)))
	}
	if ranks > 1 { // what it sends and receives before the step
		bytes = max(bytes, 2*ranks*min(own, 4*exchangeChunk))
	}
	return bytes
}

// hostPiece is the number of weights that a step copies from the host and back at once, a multiple of 16, the
// numbers that the CPU's AdamW takes at a time. Tests lower it.
var hostPiece int64 = 1 << 27

// TotalMemory returns the sum of the parts on the device.
func TotalMemory(parts []MemoryPart) (total int64) { return sumOf(parts, false) }

// HostMemory returns the sum of the parts in the host's memory.
func HostMemory(parts []MemoryPart) (total int64) { return sumOf(parts, true) }

func sumOf(parts []MemoryPart, host bool) (total int64) {
	for _, p := range parts {
		if p.Host == host {
			total += p.Bytes
		}
	}
	return total
}

// MaxSlots bounds the episodes that a GPU samples at once.
const MaxSlots = 256

// FitSlots completes a use for a device with so much memory: the episodes that it has room for beside the rest, at
// least one. Where they share a cache, they need half of their maximal length on average, and the cache takes what is
// left.
func (c Config) FitSlots(u Use, have int64) Use {
	u.Slots = min(u.Slots, MaxSlots)
	left := have - TotalMemory(c.Plan(u).Always) - c.samplingPass(u)
	one := u
	one.Slots = 1
	if !c.flashes(u) {
		u.Slots = int(min(int64(u.Slots), max(1, left/c.cachePeak(one))))
		return u
	}
	longest := cacheLength(u.Context)
	tokens := max(longest, int(left*int64(longest)/c.cachePeak(one)))
	u.Slots = min(u.Slots, max(1, 2*tokens/longest))
	u.Tokens = min(tokens, u.Slots*longest)
	return u
}

// cachePeak returns the peak memory of a decoder's caches. They grow, or move their tokens, one layer at a time, and
// that layer exists twice.
func (c Config) cachePeak(u Use) int64 {
	most := int64(u.Slots) * int64(cacheLength(u.Context))
	if u.Tokens > 0 {
		most = min(most, int64(u.Tokens))
	}
	most *= c.kvToken(u.bytes())
	return most + most/int64(2*c.Layers)
}

// kvToken returns the cache bytes of one token.
func (c Config) kvToken(number int64) int64 {
	return 2 * number * int64(c.Layers) * int64(c.KVHeads*c.HeadDim)
}

// cacheLength rounds a slot's length up to blocks of attention on a device, so that rounding depends on the
// content of the slots and not on their allocated length.
func cacheLength(context int) int { return (context + 63) / 64 * 64 }

// layerRow returns the bytes per token that a layer's forward pass stores for its gradient: input and norm,
// queries, keys and values, attention, the residual and its norm, gate, up and their product, and the statistics.
func (c Config) layerRow(number int64) int64 {
	q, kv := int64(c.Heads*c.HeadDim), int64(c.KVHeads*c.HeadDim)
	row := 4*(2*int64(c.Hidden)+int64(c.Heads)+2) + number*(2*int64(c.Hidden)+2*q+2*kv+3*int64(c.MLP))
	if c.headNorms() { // queries and keys before their norm, and its statistics
		row += number*(q+kv) + 4*int64(c.Heads+c.KVHeads)
	}
	return row
}

// trainingPass returns the peak of a forward and backward pass.
func (c Config) trainingPass(u Use) int64 {
	n, number, hidden := int64(u.Pass), u.bytes(), int64(c.Hidden)
	row := c.layerRow(number)
	layers := int64(c.Layers) * row
	if u.Recompute {
		// the inputs of all, the rest of one, and as much in holes that the next does not fit into
		layers = 4*int64(c.Layers)*hidden + 2*row
	}
	tape := n * (layers + 4*5*hidden) // with the last layer's selected rows and the head's input
	if u.Reference {
		tape += n * hidden * number
	}
	layer := n * c.layerGradients(u)
	most := max(c.headPeak(u), layer)
	if u.Reference {
		most = max(most, n*row)
	}
	return tape + most
}

// layerGradients returns the bytes per row of the gradients of the layer that goes backward.
func (c Config) layerGradients(u Use) int64 {
	hidden, q, kv := int64(c.Hidden), int64(c.Heads*c.HeadDim), int64(c.KVHeads*c.HeadDim)
	attention := 3*hidden + 2*q + 2*kv
	if c.headNorms() {
		attention += max(0, 2*q-hidden) // while the gradient of the queries is that before the norm
	}
	if c.flashes(u) {
		// The sums of the queries' gradients, for each share of the multiprocessors that a head gets; the gradients; and for
		// each key of a path, of which a shared prefix is in several, those of all query heads.
		shares, keys := int64(1), int64(2)
		if u.Alone {
			shares, keys = (multiprocessors+int64(c.Heads)-1)/int64(c.Heads), 1
		}
		attention += shares*q + q/2 + keys*(q+2*kv)
	}
	return 4 * (2*hidden + max(3*int64(c.MLP), attention))
}

// multiprocessors is their number on an H100 and an H200.
const multiprocessors = 132

// flashes is torch.Flashes for a use.
func (c Config) flashes(u Use) bool {
	return u.GPU && u.Precision == BF16 && torch.FlashesHeads(int64(c.HeadDim))
}

// headPeak returns the peak of the loss head: logits of the stored rows, what is computed from those of a chunk, and
// the gradient of its input.
func (c Config) headPeak(u Use) int64 {
	n, vocab := int64(u.Pass), int64(c.Vocab)
	if n == 0 {
		return 0
	}
	chunk := min(n, int64(c.headRows(u)))
	rows := chunk
	if n*vocab <= keptLogits {
		rows = n
	}
	work := chunk * c.headTemporaries(u)
	if u.Precision == BF16 && u.Adapter == 0 { // the gradient of the head, which is added to a float32 sum
		product := u.bytes()
		if !u.GPU {
			product += 4 // the CPU converts it first
		}
		work = max(work, u.bytes()*chunk*vocab+product*vocab*int64(c.Hidden))
	}
	return rows*c.logitRow(u) + work + u.bytes()*n*int64(c.Hidden)
}

// logitRow returns the bytes of a position's logits of each model.
func (c Config) logitRow(u Use) int64 { return 4 * u.models() * int64(c.Vocab) }

// headTemporaries returns the bytes that the head computes from the logits of a position: in bfloat16 their gradient as
// it goes into products; on a GPU, of each model, the scaled logits, log-probabilities, probabilities and what follows
// from them.
func (c Config) headTemporaries(u Use) (bytes int64) {
	if u.Precision == BF16 {
		bytes += u.bytes()
	}
	if u.GPU {
		bytes += 4 * (1 + 6*u.models())
	}
	return bytes * int64(c.Vocab)
}

// models returns the number of models in a pass.
func (u Use) models() int64 {
	if u.Reference {
		return 2
	}
	return 1
}

// samplingPass returns the peak memory of a decoder's pass beside the logits of every slot: on the CPU in float32
// each thread's block of rows with the largest input of a product twice, otherwise one layer of its rows. On a
// GPU, sampling needs three times the logits in float32, as many 8-byte numbers, and a flag.
func (c Config) samplingPass(u Use) int64 {
	hidden, q, kv, mlp := int64(c.Hidden), int64(c.Heads*c.HeadDim), int64(c.KVHeads*c.HeadDim), int64(c.MLP)
	all, logits := int64(u.Slots)*int64(u.Context), int64(u.Slots)*int64(c.Vocab)
	if !u.GPU && u.bytes() == 4 {
		row := 4*hidden + 3*q + 4*kv + 3*mlp + max(hidden, q, mlp)
		return 4 * (min(all, decodeRows)*row*int64(max(u.Threads, 1)) + logits)
	}
	logit := int64(4)
	if u.GPU {
		logit += 3*4 + 3*8 + 1
	}
	row := 5*hidden + 2*q + 2*kv + 3*mlp
	if c.headNorms() {
		row += q // before the norm
	}
	return 4*min(int64(passRows+u.Slots), all)*row + logit*logits
}

// MemoryText formats parts in GiB or MiB, the total of the device first.
func MemoryText(parts []MemoryPart) string {
	var device, host []string
	for _, p := range parts {
		text := p.Name + " " + BytesText(p.Bytes)
		if p.Host {
			host = append(host, text)
		} else {
			device = append(device, text)
		}
	}
	text := BytesText(TotalMemory(parts)) + ": " + strings.Join(device, ", ")
	if len(host) > 0 {
		text += "; and " + BytesText(HostMemory(parts)) + " of the host: " + strings.Join(host, ", ")
	}
	return text
}

// BytesText formats a number of bytes in GiB, or in MiB below one GiB.
func BytesText(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// moduleOf returns the last part of a weight's module: "embed_tokens".
func moduleOf(name string) string {
	module := strings.TrimSuffix(name, ".weight")
	return module[strings.LastIndexByte(module, '.')+1:]
}

// Parameters returns the number of weights of an adapter of a model.
func (l LoRA) Parameters(c Config) (n int) {
	weights, _ := layout(c)
	for _, w := range weights {
		if len(w.shape) == 2 && slices.Contains(l.Targets, moduleOf(w.name)) {
			n += l.Rank * (w.shape[0] + w.shape[1])
		}
		if w.name == embedName || w.name == headName {
			n += len(l.Rows) * c.Hidden
		}
	}
	return n
}

// leastHeadRows is the number of positions that the head processes at once on the CPU, whose logits stay in a core's
// cache. Those of a whole batch never exist at once.
const leastHeadRows = 128

// headRows returns the number of positions that the head processes at once: on a GPU, whose products need more rows,
// the largest power of two up to 1,024 whose logits and temporaries take no more memory than the gradients of a layer
// in a full micro-batch. It follows from settings, not from free memory, because it changes the rounding.
func (c Config) headRows(u Use) int {
	rows := leastHeadRows
	if !u.GPU {
		return rows
	}
	room := int64(cmp.Or(u.MicroBatch, u.Pass)) * c.layerGradients(u)
	for rows < 1024 && int64(2*rows)*(c.logitRow(u)+c.headTemporaries(u)) <= room {
		rows *= 2
	}
	return rows
}

// decodeRows is the number of rows that a thread of torch's Decode takes through the layers at once.
const decodeRows = 128

// keptLogits bounds the stored logits of a micro-batch; more are computed twice.
const keptLogits = 16 << 20

// passRows bounds the tokens of a decoder's pass beside the sampled ones, and so the memory of a call in which
// many episodes start. The bits of a row do not depend on its pass.
const passRows = 4096
