//go:build libtorch

package lm

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	"strconv"
	"testing"

	"rcgrpo/internal/must"
)

// passVariable has the test binary make the pass that it names and say its memory.
const passVariable = "RCGRPO_TEST_PASS"

// TestLongVocabulariesCostOneChunk measures in processes of their own what a pass over 1,000 tokens adds to
// resident memory at its peak: over a vocabulary of 152,064 rows, as Qwen2.5 has, at most one chunk of logits
// more than over one of 64. All logits at once would be 0.6 GB.
func TestLongVocabulariesCostOneChunk(t *testing.T) {
	if name := os.Getenv(passVariable); name != "" {
		peakOf(t, name)
		return
	}
	const long = 152064
	chunk := leastHeadRows * long * 4
	for _, pass := range []string{"log-probabilities", "log-probabilities and gradient"} {
		few, many := peakInChild(t, pass, 64), peakInChild(t, pass, long)
		added := many - few
		t.Logf("%s: peak %.1f MB over %d rows, %.1f MB over 64; one chunk of logits is %.1f MB, all of them %.0f MB",
			pass, float64(many)/1e6, long, float64(few)/1e6, float64(chunk)/1e6, float64(1000*long*4)/1e6)
		if slack := 4 << 20; added > chunk+slack || added < chunk/2 { // below: it measured nothing
			t.Errorf("%s: the long vocabulary costs %.1f MB at the peak, want one chunk of %.1f MB", pass,
				float64(added)/1e6, float64(chunk)/1e6)
		}
	}
}

// peakInChild is what a pass adds to the resident memory of a new process at its peak, in bytes.
func peakInChild(t *testing.T, pass string, vocab int) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), passVariable+"="+pass, "RCGRPO_TEST_VOCAB="+strconv.Itoa(vocab))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	found := regexp.MustCompile(`peak=(\d+)`).FindSubmatch(out)
	if found == nil {
		t.Skipf("the process did not say its memory: %s", out)
	}
	peak, _ := strconv.Atoi(string(found[1]))
	return peak
}

// peakOf makes a pass and prints what it added to resident memory at the peak.
func peakOf(t *testing.T, pass string) {
	vocab := must.Get(strconv.Atoi(os.Getenv("RCGRPO_TEST_VOCAB")))(t)
	m := newModel(t, Config{Family: "qwen2", Vocab: vocab, Hidden: 16, Layers: 2, Heads: 2, KVHeads: 1,
		HeadDim: 8, MLP: 32, RopeBase: 1000, NormEps: 1e-6, TiedEmbeddings: true, MaxPosition: 512}, 1)
	r := rand.New(rand.NewPCG(1, 1))
	var all []Sequence
	for range 2 {
		ids := make([]int32, 501)
		for i := range ids {
			ids[i] = int32(r.IntN(vocab))
		}
		all = append(all, learnAll(ids))
	}
	tr := newTrainer(t, m, adamW(DefaultMicroTokens))
	descendOnce := func(sequences []Sequence) {
		if pass == "log-probabilities" {
			allStats(t, m, sequences, nil, 1)
		} else {
			must.Get(tr.Accumulate(t.Context(), sequences, nil, 1, descend))(t)
		}
	}
	short := []Sequence{learnAll(all[0].IDs[:2])}
	descendOnce(short) // what is made once
	debug.FreeOSMemory()
	before, err := resident("VmRSS")
	if err != nil {
		t.Skip(err)
	}
	descendOnce(all)
	peak, err := resident("VmHWM")
	if err != nil {
		t.Skip(err)
	}
	fmt.Printf("peak=%d\n", peak-before)
}
