package lm

import (
	"fmt"
	"slices"
	"strings"
)

// Use describes a stage's use of a model, as far as it affects memory.
type Use struct {
	Train     bool // gradients and moments of all weights, or of the adapter
	Adapter   int  // weights of that adapter; 0 without one
	Dropout   bool // on the adapter's inputs
	Reference bool // a second, frozen model
	Pass      int  // tokens of a forward and backward pass; 0 makes none
	Alone     bool // the pass is one sequence, independent of micro_batch

	Slots, Context int // sequences sampled at once and their maximal length; 0 for none
	Threads        int // CPU threads that sample; 0 counts as 1

	Precision Precision // of products; "" is float32
	GPU       bool      // libtorch's operations have more intermediates than the CPU's kernels
	Recompute bool      // a pass stores only each layer's input
	Parts     int       // partial gradients of an update; 0 counts as 1
}

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
}

// Memory returns the peak memory of a use, part by part: the permanent part, and the larger of training and
// sampling, which alternate. It is an upper bound: every token has loss, and all sequences have the maximal
// length at once.
func (c Config) Memory(u Use) []MemoryPart {
	weights := 4 * int64(c.Parameters())
	tables := int64(c.MaxPosition) * int64(c.HeadDim) * 4 // of rotary angles
	model, frozen := weights+tables, weights+tables
	if u.Precision == BF16 { // beside the weights in float32; a frozen model does without them
		model, frozen = weights+weights/2+tables, weights/2+tables
		if !u.Train {
			model = frozen
		}
	}
	var parts []MemoryPart
	add := func(name string, bytes int64) {
		if bytes > 0 {
			parts = append(parts, MemoryPart{name, bytes})
		}
	}
	add("weights", model)
	trained := weights
	if u.Adapter > 0 {
		add("merged weights", model) // the base is the reference at once
		trained = 4 * int64(u.Adapter)
		add("adapter", trained)
	} else if u.Reference {
		add("reference", frozen)
	}
	if u.Train {
		add("gradient", trained)
		add("two moments", 2*trained)
		if u.Parts > 1 {
			add("sum of partial gradients", trained)
		}
	}
	train, cache, sample := int64(0), int64(0), int64(0)
	if u.Pass > 0 {
		train = c.trainingPass(u)
	}
	if u.Slots > 0 {
		cache, sample = c.cachePeak(u), c.samplingPass(u)
	}
	if train > cache+sample {
		add(fmt.Sprintf("a pass of %d tokens", u.Pass), train)
	} else {
		add(fmt.Sprintf("KV cache of at most %d × %d tokens", u.Slots, u.Context), cache)
		add("a pass of the sampler", sample)
	}
	return parts
}

// TotalMemory returns the sum of parts.
func TotalMemory(parts []MemoryPart) (total int64) {
	for _, p := range parts {
		total += p.Bytes
	}
	return total
}

// cachePeak returns the peak memory of a decoder's caches. They grow one layer at a time, and the growing layer
// exists twice.
func (c Config) cachePeak(u Use) int64 {
	most := int64(u.Slots) * int64(cacheLength(u.Context)) * c.kvToken(u.bytes())
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
	return 4*(2*int64(c.Hidden)+int64(c.Heads)+2) + number*(2*int64(c.Hidden)+2*q+2*kv+3*int64(c.MLP))
}

func (c Config) trainingPass(u Use) int64 {
	n, number, hidden, q, kv := int64(u.Pass), u.bytes(), int64(c.Hidden), int64(c.Heads*c.HeadDim),
		int64(c.KVHeads*c.HeadDim)
	row := c.layerRow(number)
	layers := int64(c.Layers) * row
	if u.Recompute {
		// the inputs of all, the rest of one, and as much in holes that the next does not fit into
		layers = 4*int64(c.Layers)*hidden + 2*row
	}
	tape := n * (layers + 4*5*hidden) // with the last layer's selected rows and the head's input
	models := int64(1)
	if u.Reference {
		tape += n * hidden * number
		models = 2
	}
	chunk := min(n, headRows)
	rows := chunk
	if n*int64(c.Vocab) <= keptLogits {
		rows = n
	}
	logits := 4*models*rows*int64(c.Vocab) + number*n*hidden
	if u.Precision == BF16 { // the gradient of a chunk as it goes into products
		logits += number * chunk * int64(c.Vocab)
	}
	if u.GPU { // a chunk's scaled logits, log-probabilities, probabilities and what follows from them, of each model
		logits += 4 * (1 + 6*models) * chunk * int64(c.Vocab)
	}
	layer := 4 * n * (2*hidden + max(3*int64(c.MLP), 3*hidden+2*q+2*kv)) // gradients of the layer that goes backward
	// a mask, in both types, and what it leaves of the widest input
	if u.Dropout {
		layer += n * (4 + 2*number) * max(int64(c.MLP), hidden, q)
	}
	most := max(logits, layer)
	if u.Reference {
		most = max(most, n*row)
	}
	return tape + most
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
	return 4*min(int64(passRows+u.Slots), all)*row + logit*logits
}

// MemoryText formats parts in GiB or MiB, the total first.
func MemoryText(parts []MemoryPart) string {
	var names []string
	for _, p := range parts {
		names = append(names, p.Name+" "+BytesText(p.Bytes))
	}
	return BytesText(TotalMemory(parts)) + ": " + strings.Join(names, ", ")
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

// headRows is the number of positions that the head processes at once. Their logits stay in a core's cache, and
// those of a whole batch never exist at once.
const headRows = 128

// decodeRows is the number of rows that a thread of torch's Decode takes through the layers at once.
const decodeRows = 128

// keptLogits bounds the stored logits of a micro-batch; more are computed twice.
const keptLogits = 16 << 20

// passRows bounds the tokens of a decoder's pass beside the sampled ones, and so the memory of a call in which
// many episodes start. The bits of a row do not depend on its pass.
const passRows = 4096
