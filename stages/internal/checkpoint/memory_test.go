package checkpoint

import (
	"strings"
	"testing"

	"rcgrpo/stages/internal/lm"
)

// qwen7B is the shape of Qwen2.5-7B-Instruct.
var qwen7B = lm.Config{Family: "qwen2", Vocab: 152064, Hidden: 3584, Layers: 28, Heads: 28, KVHeads: 4,
	HeadDim: 128, MLP: 18944, RopeBase: 1e6, NormEps: 1e-6, MaxPosition: 32768}

// A refusal gives the numbers, and whatever it says would help does.
func TestMemoryErrorNamesSettingsThatFit(t *testing.T) {
	const gib = 1 << 30
	for name, tc := range map[string]struct {
		use  lm.Use
		have int64
		want []string // that are offered beside more memory
	}{
		"sampling on one card": {lm.Use{Slots: 64, Context: 16384}, 139 * gib,
			[]string{"limits { context = 8192 }", `precision = "bf16"`}},
		"fine-tuning on one card": {lm.Use{Train: true, Pass: 4096}, 139 * gib,
			[]string{"recompute = true", "micro_batch = 2048"}},
		"one long trajectory": {lm.Use{Train: true, Pass: 16384, Alone: true, Recompute: true}, 120 * gib,
			[]string{"context = 4096"}},
		"fine-tuning on a smaller": {lm.Use{Train: true, Pass: 4096}, 80 * gib, nil},
		"all of it on two": {lm.Use{Train: true, Reference: true, Pass: 4096, Slots: 64, Context: 16384},
			150 * gib, []string{"recompute = true and micro_batch = 16 and limits { context = 1024 }"}},
		"all of it on one": {lm.Use{Train: true, Reference: true, Pass: 4096, Slots: 64, Context: 16384},
			139 * gib, nil},
		"far too small": {lm.Use{Train: true, Pass: 4096}, 8 * gib, nil},
	} {
		t.Run(name, func(t *testing.T) {
			err := RefuseMemory(qwen7B, tc.use, tc.have)
			if err == nil {
				t.Fatal("it fits")
			}
			if err := RefuseMemory(qwen7B, tc.use, lm.TotalMemory(qwen7B.Memory(tc.use))); err != nil {
				t.Errorf("with the memory that it asks for: %v", err)
			}
			var offered []string
			for _, w := range waysToFit(qwen7B, tc.use, tc.have) {
				offered = append(offered, w.text)
				if err := RefuseMemory(qwen7B, w.use, tc.have); err != nil {
					t.Errorf("%s was offered: %v", w.text, err)
				}
			}
			if got, want := strings.Join(offered, "; "), strings.Join(tc.want, "; "); got != want {
				t.Errorf("offered %q, want %q", got, want)
			}
			for _, text := range append(tc.want, "it has "+lm.BytesText(tc.have)+" and needs ", "weights 28.4 GiB",
				" of memory, set by `resources { memory }`") {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%v lacks %q", err, text)
				}
			}
			if strings.Contains(err.Error(), "lora") {
				t.Errorf("%v offers another method as if it saved memory only", err)
			}
			if strings.Contains(err.Error(), "out of memory") { // or a retry on oom would start it again
				t.Errorf("%v reads like an allocation that failed", err)
			}
		})
	}
	if err := RefuseMemory(qwen7B, lm.Use{Train: true, Pass: 4096}, 0); err != nil {
		t.Errorf("memory that nobody knows: %v", err)
	}
}
