package lm

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// qwen7B is the shape of Qwen2.5-7B-Instruct.
var qwen7B = Config{Decoder: "qwen2", Vocab: 152064, Hidden: 3584, Layers: 28, Heads: 28, KVHeads: 4,
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
		"parameters, billions":               {float64(qwen7B.Parameters()) / 1e9, 7.616, 0.001},
		"outside the two embedding matrices": {float64(qwen7B.Parameters()-2*152064*3584) / 1e9, 6.526, 0.001},
		"weights that only sample":           {sample["weights"], 14.2, 0.1},
		"weights for products":               {train["weights"], 14.2, 0.1},
		"weights in float32":                 {train["float32 weights"], 28.4, 0.1},
		"gradient in float32":                {train["gradient"], 28.4, 0.1},
		"two moments":                        {train["two moments"], 56.7, 0.1},
		"reference":                          {train["reference"], 14.2, 0.1},
		"all that a fine-tuning keeps": {train["weights"] + train["float32 weights"] + train["gradient"] +
			train["two moments"], 127.7, 0.1},
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
	if more > 4*leastHeadRows*int64(qwen7B.Vocab) {
		t.Errorf("the vocabulary adds %s to a pass, want at most one chunk of logits", BytesText(more))
	}
}

func TestAMicroBatchCountsASharedPrefixOnce(t *testing.T) {
	learned := func(prompt, reply []int32) Sequence { // of a reply of n tokens, the last is predicted and has no row
		q := Sequence{IDs: slices.Concat(prompt, reply), Mask: make([]bool, len(prompt)+len(reply))}
		for i := range reply {
			q.Mask[len(prompt)+i] = true
		}
		return q
	}
	prompt, other := []int32{1, 2, 3, 4, 5, 6}, []int32{9, 2, 3, 4, 5, 6}
	var group []Sequence
	for _, reply := range [][]int32{{7, 8, 9}, {7, 5, 9}, {3, 3, 3}} {
		group = append(group, learned(prompt, reply))
	}
	late := Sequence{IDs: make([]int32, 5), Mask: []bool{false, true, false, false, false}}
	strangers := []Sequence{group[0], learned(other, []int32{7, 8, 9})}
	for name, tc := range map[string]struct {
		sequences []Sequence
		rows      int         // of one pass
		batches   map[int]int // micro-batches by micro_batch
	}{
		"a group":                     {group, 8 + 1 + 2, map[int]int{11: 1, 10: 2, 9: 2, 8: 3, 1: 3}},
		"the same trajectory twice":   {[]Sequence{group[0], group[0]}, 8, map[int]int{8: 1}},
		"different prompts":           {strangers, 16, map[int]int{16: 1, 15: 2}},
		"tokens after the last reply": {[]Sequence{late}, 1, nil},
		"nothing to learn":            {[]Sequence{{IDs: make([]int32, 5), Mask: make([]bool, 5)}}, 0, nil},
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
	c := Config{Decoder: "llama", Vocab: 20, Hidden: 8, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 4, MLP: 12,
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
	got := MemoryText([]MemoryPart{{"weights", 3 << 29, false}, {"two moments", 5 << 30, true},
		{"gradient", 5 << 18, false}})
	if want := "1.5 GiB: weights 1.5 GiB, gradient 1.2 MiB; and 5.0 GiB of the host: two moments 5.0 GiB"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

var llama8B = Config{Decoder: "llama", Vocab: 128256, Hidden: 4096, Layers: 32, Heads: 32, KVHeads: 8,
	HeadDim: 128, MLP: 14336, RopeBase: 5e5, NormEps: 1e-5, MaxPosition: 131072}

// The paper's experiments on cards of 141 GB: GiB on each card, computed by hand from the numbers of weights. "pass"
// and "KV" are what is left for them in training and in sampling; "rows" (thousands) and "slots" (of 16,384 and of
// 8,192 tokens) are what fits there. "host" is what all cards store on the host.
const papersModels = `
model kind ranks parts host    bf16 ref  grad sum  master m1+m2 pass  rows KV    slots slots8 host
qwen  sft  1     8     moments 14.2 0    28.4 28.4 28.4   0     37.1  37.0 0     0     0      56.7
qwen  sft  8     8     none    14.2 0    28.4 0    3.5    7.1   83.2  83.1 0     0     0      0
qwen  lora 1     8     none    14.2 14.2 0.2  0.2  0.2    0.3   107.2 106  104.7 119   239    0
qwen  rc   1     1     moments 14.2 14.2 28.4 0    28.4   0     51.3  50.8 76.8  87    175    56.7
qwen  rc   1     8     all     14.2 14.2 28.4 28.4 0      0     51.3  50.8 105.2 120   240    85.1
qwen  rc   8     8     none    14.2 14.2 28.4 0    3.5    7.1   69.0  68.4 94.5  108   216    0
llama sft  1     8     moments 15.0 0    29.9 29.9 29.9   0     31.6  30.3 0     0     0      59.8
llama sft  8     8     none    15.0 0    29.9 0    3.7    7.5   80.2  76.8 0     0     0      0
llama lora 1     8     none    15.0 15.0 0.2  0.2  0.2    0.3   105.6 100  103.4 51    103    0
llama rc   1     1     moments 15.0 15.0 29.9 0    29.9   0     46.5  44.2 74.0  36    73     59.8
llama rc   1     8     all     15.0 15.0 29.9 29.9 0      0     46.5  44.2 103.9 51    103    89.7
llama rc   8     8     none    15.0 15.0 29.9 0    3.7    7.5   65.2  61.9 92.7  46    92     0`

func TestPlanOfThePapersModelsOnOneAndEightCards(t *testing.T) {
	const gib = 1 << 30
	have := int64(143771)<<20 - 4*gib // of the driver, less the reserve
	for _, line := range strings.Split(papersModels, "\n")[2:] {
		var model, kind string
		u := Use{Train: true, Precision: BF16, GPU: true, Recompute: true, Pass: 24576, MicroBatch: 24576}
		var want [10]float64
		var slots, slots8 int
		if _, err := fmt.Sscan(line, &model, &kind, &u.Ranks, &u.Parts, &u.Host, &want[0], &want[1], &want[2], &want[3],
			&want[4], &want[5], &want[6], &want[7], &want[8], &slots, &slots8, &want[9]); err != nil {
			t.Fatal(line, err)
		}
		c := map[string]Config{"qwen": qwen7B, "llama": llama8B}[model]
		if kind != "sft" {
			u.Reference, u.Slots, u.Context = true, MaxSlots, 16384
		}
		if kind == "lora" {
			u.Adapter = LoRA{Rank: 16, Targets: Projections}.Parameters(c)
		}
		p := c.Plan(u)
		part := func(names ...string) (sum int64) {
			for _, m := range slices.Concat(p.Always, p.Training) {
				if slices.Contains(names, m.Name) && !m.Host {
					sum += m.Bytes
				}
			}
			return sum
		}
		always := TotalMemory(p.Always)
		pass, kv := have-always-part("gradient", "sum of partial gradients"), int64(0)
		if u.Slots > 0 {
			kv = have - always - c.samplingPass(u)
		}
		rows := 1000 * want[7] // of a pass with that many
		long := u
		long.Pass, long.MicroBatch = int(rows), 0
		got := []int64{part("weights"), part("reference", "merged weights"), part("gradient"),
			part("sum of partial gradients"), part("float32 weights", "adapter"), part("two moments"), pass,
			c.trainingPass(long), kv, HostMemory(p.Peak())}
		want[7] = want[6] // GiB
		for i, bytes := range got {
			tolerance := 0.1
			if i == 7 { // the table gives three digits
				tolerance = 0.005 * want[i]
			}
			if gib := float64(bytes) / gib; math.Abs(gib-want[i]) > tolerance {
				t.Errorf("%s: column %d: got %.2f, want %v", line, i+1, gib, want[i])
			}
		}
		if a, b := kv/c.kvToken(2)/16384, kv/c.kvToken(2)/8192; int(a) != slots || int(b) != slots8 {
			t.Errorf("%s: got %d and %d slots", line, a, b)
		}
		if u.Slots > 0 { // a layer of the shared cache exists twice while its tokens move
			u = c.FitSlots(u, have)
			if whole := u.Tokens / 16384; u.Slots != min(MaxSlots, 2*u.Tokens/16384) || whole < slots*97/100 || whole > slots {
				t.Errorf("%s: samples %d episodes with %d tokens, want room for 97 to 100 %% of %d of 16384", line, u.Slots,
					u.Tokens, slots)
			}
		}
		if need := TotalMemory(c.Memory(u)); need > have {
			t.Errorf("%s: with micro_batch = %d it takes %s of %s", line, u.Pass, BytesText(need), BytesText(have))
		}
	}
}

// Settings decide how many rows the head processes at once: 512 for RL of Qwen2.5-7B with micro_batch = 24576.
func TestHeadRowsFollowFromTheMicroBatch(t *testing.T) {
	gpu := Use{Precision: BF16, GPU: true, Reference: true}
	for name, tc := range map[string]struct {
		micro int
		edit  func(u *Use)
		want  int
	}{
		"RL":                  {24576, func(*Use) {}, 512},
		"fine-tuning":         {24576, func(u *Use) { u.Reference = false }, 1024},
		"a small micro-batch": {4096, func(*Use) {}, 128},
		"a smaller one":       {1, func(*Use) {}, 128},
		"at most":             {1 << 20, func(*Use) {}, 1024},
		"the CPU":             {24576, func(u *Use) { u.GPU = false }, 128},
	} {
		u := gpu
		u.MicroBatch = tc.micro
		tc.edit(&u)
		if got := qwen7B.headRows(u); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
		u.Pass = tc.micro
		if most := qwen7B.headRows(u); int64(most)*(qwen7B.logitRow(u)+qwen7B.headTemporaries(u)) > int64(tc.micro)*
			qwen7B.layerGradients(u) && most > leastHeadRows {
			t.Errorf("%s: %d rows take more than the gradients of a layer", name, most)
		}
	}
}
