package lm

import "fmt"

// weight is one named tensor inside the flat buffer of all parameters.
type weight struct {
	name   string
	shape  []int
	offset int     // first element in the buffer
	std    float64 // of its random initialization; 0 for constants
	start  float32 // initial value if std is 0
}

func (w weight) len() int { return product(w.shape) }

// row returns the length of a row; a vector has rows of one element.
func (w weight) row() int { return product(w.shape[1:]) }

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// vectorsAt returns the offset of the biases and norms, which end the buffer.
func vectorsAt(c Config) int {
	weights, total := layout(c)
	for _, w := range weights {
		if len(w.shape) == 1 {
			return w.offset
		}
	}
	return total
}

// Names of tensors in Hugging Face's files.
const (
	embedName = "model.embed_tokens.weight"
	headName  = "lm_head.weight"
	normName  = "model.norm.weight"
)

func layerName(layer int, part string) string { return fmt.Sprintf("model.layers.%d.%s", layer, part) }

// layout lists all weights in their order in the flat buffer, and the length of the buffer. Queries, keys and
// values of a layer are adjacent, and so are gate and up, so that each of these is one product.
//
// The initialization is that of the drills (docs/training.md 5): the embedding has standard deviation 1/√width,
// matrices 0.7/√fan-in, those that write into the residual stream further divided by √(2·layers).
func layout(c Config) (weights []weight, total int) {
	add := func(name string, std float64, start float32, shape ...int) {
		w := weight{name: name, shape: shape, offset: total, std: std, start: start}
		weights = append(weights, w)
		total += w.len()
	}
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	std := func(fanIn int) float64 { return 0.7 / sqrt(fanIn) }
	out := 1 / sqrt(2*c.Layers)

	add(embedName, 1/sqrt(c.Hidden), 0, c.Vocab, c.Hidden)
	if !c.TiedEmbeddings {
		add(headName, 1/sqrt(c.Hidden), 0, c.Vocab, c.Hidden)
	}
	for l := range c.Layers {
		add(layerName(l, "self_attn.q_proj.weight"), std(c.Hidden), 0, q, c.Hidden)
		add(layerName(l, "self_attn.k_proj.weight"), std(c.Hidden), 0, kv, c.Hidden)
		add(layerName(l, "self_attn.v_proj.weight"), std(c.Hidden), 0, kv, c.Hidden)
		add(layerName(l, "self_attn.o_proj.weight"), std(q)*out, 0, c.Hidden, q)
		add(layerName(l, "mlp.gate_proj.weight"), std(c.Hidden), 0, c.MLP, c.Hidden)
		add(layerName(l, "mlp.up_proj.weight"), std(c.Hidden), 0, c.MLP, c.Hidden)
		add(layerName(l, "mlp.down_proj.weight"), std(c.MLP)*out, 0, c.Hidden, c.MLP)
	}
	for l := range c.Layers {
		if c.bias() {
			add(layerName(l, "self_attn.q_proj.bias"), 0, 0, q)
			add(layerName(l, "self_attn.k_proj.bias"), 0, 0, kv)
			add(layerName(l, "self_attn.v_proj.bias"), 0, 0, kv)
		}
		if c.headNorms() {
			add(layerName(l, "self_attn.q_norm.weight"), 0, 1, c.HeadDim)
			add(layerName(l, "self_attn.k_norm.weight"), 0, 1, c.HeadDim)
		}
		add(layerName(l, "input_layernorm.weight"), 0, 1, c.Hidden)
		add(layerName(l, "post_attention_layernorm.weight"), 0, 1, c.Hidden)
	}
	add(normName, 0, 1, c.Hidden)
	return weights, total
}
