package lm

import (
	"fmt"
	"slices"
	"strings"
)

// Use is what a stage does with a model, as far as it takes memory.
type Use struct {
	Train     bool // gradients and moments of all weights, or of an adapter's alone
	Adapter   int  // weights of that adapter; 0 without one
	Dropout   bool // of the adapter's inputs
	Reference bool // a second model, frozen
	Pass      int  // tokens of a forward and backward pass; 0 makes none
	Alone     bool // the pass is one sequence, which micro_batch does not make smaller

	Slots, Context int // sequences that are sampled at once, and the longest; 0 samples none
	Threads        int // of the CPU that sample; 0 counts as 1

	Precision Precision // of products; "" is float32
	GPU       bool      // its operations are libtorch's, which make more intermediates than the CPU's kernels
	Recompute bool      // a pass keeps each layer's input only
}

// bytes is the size of a number that goes into products.
func (u Use) bytes() int64 {
	if u.Precision == BF16 {
		return 2
	}
	return 4
}

// MemoryPart is a part of the memory that a use takes.
type MemoryPart struct {
	Name  string
	Bytes int64
}

// Memory is what a use takes at its peak, part by part: what stays, and the larger of what training
// and sampling, which take turns, hold for a while. Activations count as if every token carried
// loss and the key-value cache as if all sequences grew to the longest that is allowed at once, so
// the figure is an upper one.
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

// TotalMemory adds parts up.
func TotalMemory(parts []MemoryPart) (total int64) {
	for _, p := range parts {
		total += p.Bytes
	}
	return total
}

// cachePeak is what a decoder's caches take at most. They grow as episodes do, a layer after the
// other, so that one layer is there twice, before and after, if they were not made at once as large
// as they can be.
func (c Config) cachePeak(u Use) int64 {
	most := c.kvBytes(u.Slots, u.Context, u.bytes())
	return most + most/int64(2*c.Layers)
}

// kvBytes is the size of a decoder's caches: keys and values of so many slots, of a multiple of 16
// tokens.
func (c Config) kvBytes(slots, context int, number int64) int64 {
	return int64(slots) * int64(cacheLength(context)) * c.kvToken(number)
}

// kvToken is what one token takes in a cache of numbers of so many bytes.
func (c Config) kvToken(number int64) int64 {
	return 2 * number * int64(c.Layers) * int64(c.KVHeads*c.HeadDim)
}

// cacheLength is the room of a slot for sequences of at most so many tokens: blocks as attention on
// a device takes them, so that its rounding depends on what the slots hold and not on the room.
func cacheLength(context int) int { return (context + 63) / 64 * 64 }

// layerRow is how many bytes of a layer a forward pass keeps per token for its gradient: the
// layer's input and its norm, queries, keys and values, attention, what follows it and its norm,
// gate, up and their product, and the statistics of each.
func (c Config) layerRow(number int64) int64 {
	q, kv := int64(c.Heads*c.HeadDim), int64(c.KVHeads*c.HeadDim)
	return 4*(2*int64(c.Hidden)+int64(c.Heads)+2) + number*(2*int64(c.Hidden)+2*q+2*kv+3*int64(c.MLP))
}

// trainingPass is what a forward and backward pass holds at most.
func (c Config) trainingPass(u Use) int64 {
	n, number, hidden, q, kv := int64(u.Pass), u.bytes(), int64(c.Hidden), int64(c.Heads*c.HeadDim), int64(c.KVHeads*c.HeadDim)
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

// samplingPass is what a pass of a decoder holds at most beside the logits of every slot: on the
// CPU in float32 what each thread needs for a block of rows, of which the largest input of a
// product twice; else one layer of its rows. A draw on a GPU makes of the logits three times as
// many numbers in float32, as many in eight bytes, and a flag.
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

// MemoryText writes parts in GiB or MiB, the total first.
func MemoryText(parts []MemoryPart) string {
	var names []string
	for _, p := range parts {
		names = append(names, p.Name+" "+BytesText(p.Bytes))
	}
	return BytesText(TotalMemory(parts)) + ": " + strings.Join(names, ", ")
}

// BytesText writes a number of bytes in GiB, or in MiB below one GiB.
func BytesText(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// moduleOf is the last part of a weight's module: "embed_tokens".
func moduleOf(name string) string {
	module := strings.TrimSuffix(name, ".weight")
	return module[strings.LastIndexByte(module, '.')+1:]
}

// Parameters is the number of weights that an adapter of a model has.
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

// headRows is how many positions the head handles at once, so that their logits stay in a core's
// cache and those over the whole vocabulary never exist for a whole batch when the vocabulary is
// large.
const headRows = 128

// decodeRows is how many rows a thread of package torch's Decode takes through the layers at once.
const decodeRows = 128

// keptLogits is the largest number of logits of a micro-batch that wait for their gradient; beyond
// it they are computed a second time.
const keptLogits = 16 << 20

// passRows is how many tokens of one pass a decoder takes at most beside those that are drawn from:
// what bounds the memory of a call in which many episodes begin. A row's bits do not depend on the
// pass it is in.
const passRows = 4096
