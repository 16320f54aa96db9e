package lm

import (
	"math"
	"slices"
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

func TestAMicroBatchCountsASharedPrefixOnce(t *testing.T) {
	learned := func(prompt, reply []int32) Sequence { // of a reply of n tokens, the last is predicted and has no row
		q := Sequence{IDs: slices.Concat(prompt, reply), Learn: make([]bool, len(prompt)+len(reply))}
		for i := range reply {
			q.Learn[len(prompt)+i] = true
		}
		return q
	}
	prompt, other := []int32{1, 2, 3, 4, 5, 6}, []int32{9, 2, 3, 4, 5, 6}
	group := []Sequence{learned(prompt, []int32{7, 8, 9}), learned(prompt, []int32{7, 5, 9}), learned(prompt, []int32{3, 3, 3})}
	for name, tc := range map[string]struct {
		sequences []Sequence
		rows      int         // of one pass
		batches   map[int]int // micro-batches by micro_batch
	}{
		"a group":                     {group, 8 + 1 + 2, map[int]int{11: 1, 10: 2, 9: 2, 8: 3, 1: 3}},
		"the same trajectory twice":   {[]Sequence{group[0], group[0]}, 8, map[int]int{8: 1}},
		"different prompts":           {[]Sequence{group[0], learned(other, []int32{7, 8, 9})}, 16, map[int]int{16: 1, 15: 2}},
		"tokens after the last reply": {[]Sequence{{IDs: make([]int32, 5), Learn: []bool{false, true, false, false, false}}}, 1, nil},
		"nothing to learn":            {[]Sequence{{IDs: make([]int32, 5), Learn: make([]bool, 5)}}, 0, nil},
		"no sequence":                 {nil, 0, map[int]int{1: 0}},
	} {
		if got := PackedRows(tc.sequences); got != tc.rows {
			t.Errorf("%s: got %d rows, want %d", name, got, tc.rows)
		}
		for micro, want := range tc.batches {
			if got := MicroBatches(tc.sequences, micro); got != want {
				t.Errorf("%s, micro_batch = %d: got %d micro-batches, want %d", name, micro, got, want)
			}
		}
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
