package lm

import (
	"math"
	"testing"
)

// qwen7B is the shape of Qwen2.5-7B-Instruct.
var qwen7B = Config{Family: "qwen2", Vocab: 152064, Hidden: 3584, Layers: 28, Heads: 28, KVHeads: 4,
	HeadDim: 128, MLP: 18944, RopeBase: 1e6, NormEps: 1e-6, MaxPosition: 32768}

// The figures of docs/training.md 4, which are of bfloat16 products beside float32 weights and moments.
func TestMemoryOfQwen7BIsThatOfTheTrainingPage(t *testing.T) {
	const gib = 1 << 30
	parts := func(u Use) map[string]float64 {
		by := map[string]float64{}
		for _, p := range qwen7B.Memory(u) {
			by[p.Name] = float64(p.Bytes) / gib
		}
		return by
	}
	train, sample := parts(Use{Train: true, Reference: true, Precision: BF16}), parts(Use{Slots: 1, Context: 16,
		Precision: BF16})
	kv := float64(qwen7B.kvToken(2))
	for name, tc := range map[string]struct{ got, want, digits float64 }{
		"parameters, billions":                {float64(qwen7B.Parameters()) / 1e9, 7.616, 0.001},
		"outside the two embedding matrices":  {float64(qwen7B.Parameters()-2*152064*3584) / 1e9, 6.526, 0.001},
		"weights that only sample":            {sample["weights"], 14.2, 0.1},
		"weights for products and in float32": {train["weights"], 14.2 + 28.4, 0.1},
		"gradient in float32":                 {train["gradient"], 28.4, 0.1},
		"two moments":                         {train["two moments"], 56.7, 0.1},
		"reference":                           {train["reference"], 14.2, 0.1},
		"all that a fine-tuning keeps": {train["weights"] + train["gradient"] + train["two moments"],
			127.7, 0.1},
		"KV of a token, KiB":                           {kv / 1024, 56, 0},
		"tokens of KV beside the weights on a card, M": {(139 - sample["weights"]) * gib / kv / 1e6, 2.2, 0.15},
		"logits of 8k tokens in float32":               {8192 * float64(qwen7B.Vocab) * 4 / gib, 4.6, 0.1},
		"logits of 8k tokens in bfloat16":              {8192 * float64(qwen7B.Vocab) * 2 / gib, 2.3, 0.1},
	} {
		if math.Abs(tc.got-tc.want) > tc.digits {
			t.Errorf("%s: got %.4f, want %v", name, tc.got, tc.want)
		}
	}
	// The whole vocabulary's logits of a pass never exist: a pass of 8k tokens has those of 128 at a time.
	withLogits, without := qwen7B, qwen7B
	without.Vocab = 1
	more := withLogits.trainingPass(Use{Pass: 8192}) - without.trainingPass(Use{Pass: 8192})
	if more > 4*headRows*int64(qwen7B.Vocab) {
		t.Errorf("the vocabulary adds %s to a pass, want at most one chunk of logits", BytesText(more))
	}
}

func TestParametersOfAnAdapter(t *testing.T) {
	c := Config{Family: "llama", Vocab: 20, Hidden: 8, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 4, MLP: 12,
		RopeBase: 1e4, NormEps: 1e-5, MaxPosition: 8}
	if got, want := (LoRA{Rank: 3, Targets: []string{"q_proj",
		"down_proj"}}).Parameters(c), 2*3*((8+8)+(8+12)); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
	if got, want := (LoRA{Rank: 3, Targets: []string{"k_proj"},
		Rows: []int32{1, 5}}).Parameters(c), 2*3*(8+4)+2*2*8; got != want {
		t.Errorf("with rows: got %d, want %d", got, want)
	}
}

func TestMemoryText(t *testing.T) {
	got := MemoryText([]MemoryPart{{"weights", 3 << 29}, {"gradient", 5 << 18}})
	if want := "1.5 GiB: weights 1.5 GiB, gradient 1.2 MiB"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
