package checkpoint

import (
	"strings"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/lm"
)

// qwen7B is the shape of Qwen2.5-7B-Instruct.
var qwen7B = lm.Config{Decoder: "qwen2", Vocab: 152064, Hidden: 3584, Layers: 28, Heads: 28, KVHeads: 4,
	HeadDim: 128, MLP: 18944, RopeBase: 1e6, NormEps: 1e-6, MaxPosition: 32768}

// onGPU is RL of all weights in bfloat16.
func onGPU(edit func(u *lm.Use)) lm.Use {
	u := lm.Use{Train: true, Reference: true, Precision: lm.BF16, GPU: true, Recompute: true, Pass: 24576,
		MicroBatch: 24576, Slots: 16, Context: 16384}
	edit(&u)
	return u
}

// A refusal gives the numbers, and whatever it says would help does.
func TestMemoryErrorNamesSettingsThatFit(t *testing.T) {
	const gib = 1 << 30
	for name, tc := range map[string]struct {
		use        lm.Use
		have, host int64
		want       []string // that are offered beside more memory
	}{
		"sampling on one card": {lm.Use{Slots: 64, Context: 16384}, 139 * gib, 0,
			[]string{"limits { context = 8192 }", `precision = "bf16"`}},
		"fine-tuning on one card": {lm.Use{Train: true, Pass: 4096}, 139 * gib, 0,
			[]string{"recompute = true", "micro_batch = 2048"}},
		"one long trajectory": {lm.Use{Train: true, Pass: 16384, Alone: true, Recompute: true}, 120 * gib, 0,
			[]string{"context = 4096"}},
		"fine-tuning on a smaller": {lm.Use{Train: true, Pass: 4096}, 80 * gib, 0, nil},
		"all of it on two": {lm.Use{Train: true, Reference: true, Pass: 4096, Slots: 64, Context: 16384},
			150 * gib, 0, []string{"recompute = true and micro_batch = 16 and limits { context = 4096 }"}},
		"all of it on one": {lm.Use{Train: true, Reference: true, Pass: 4096, Slots: 64, Context: 16384},
			139 * gib, 0, nil},
		"RL on a GPU": {onGPU(func(u *lm.Use) {}), 136 * gib, 0,
			[]string{`optimizer { host = "moments" }`, `optimizer { host = "all" }`}},
		"RL with moments on the host of a smaller GPU": {onGPU(func(u *lm.Use) { u.Host = lm.HostMoments }), 100 * gib, 0,
			[]string{"micro_batch = 12288", `optimizer { host = "all" }`}},
		"RL on a GPU with little memory beside it": {onGPU(func(u *lm.Use) {}), 136 * gib, 60 * gib,
			[]string{`optimizer { host = "moments" }`}},
		"an adapter in float32": {onGPU(func(u *lm.Use) { u.Adapter, u.Precision = 40e6, lm.Float32 }), 75 * gib, 0,
			[]string{`precision = "bf16"`}},
		"eight GPUs": {onGPU(func(u *lm.Use) { u.Ranks, u.Pass, u.MicroBatch = 8, 1024, 1024 }), 64 * gib, 0,
			[]string{`optimizer { host = "moments" }`, `optimizer { host = "all" }`}},
		"far too small": {lm.Use{Train: true, Pass: 4096}, 8 * gib, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			err := RefuseMemory(qwen7B, tc.use, Memory{tc.have, tc.host})
			if err == nil {
				t.Fatal("it fits")
			}
			if err := RefuseMemory(qwen7B, tc.use, Memory{lm.TotalMemory(qwen7B.Memory(tc.use)), 0}); err != nil {
				t.Errorf("with the memory that it asks for: %v", err)
			}
			var offered []string
			for _, w := range waysToFit(qwen7B, tc.use, Memory{tc.have, tc.host}) {
				offered = append(offered, w.text)
				if err := RefuseMemory(qwen7B, w.use, Memory{tc.have, tc.host}); err != nil {
					t.Errorf("%s was offered: %v", w.text, err)
				}
			}
			if got, want := strings.Join(offered, "; "), strings.Join(tc.want, "; "); got != want {
				t.Errorf("offered %q, want %q", got, want)
			}
			must.Contain(t, err.Error(), append(tc.want, "it has "+lm.BytesText(tc.have), " and needs ", "weights ",
				" of memory, set by `resources { memory }`")...)
			if strings.Contains(err.Error(), "lora") {
				t.Errorf("%v offers another method as if it saved memory only", err)
			}
			if strings.Contains(err.Error(), "out of memory") { // or a retry on oom would start it again
				t.Errorf("%v reads like an allocation that failed", err)
			}
		})
	}
	if err := RefuseMemory(qwen7B, lm.Use{Train: true, Pass: 4096}, Memory{}); err != nil {
		t.Errorf("memory that nobody knows: %v", err)
	}
}
