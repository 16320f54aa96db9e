package lm

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"rcgrpo/stages/rl"
)

func sqrt(n int) float64 { return math.Sqrt(float64(n)) }

// Sequence is one sequence of token ids. Mask[t] is true where a loss reads the logprob of token t, given those before
// it: where the policy sampled the token. The first token cannot be in the mask.
type Sequence struct {
	IDs  []int32
	Mask []bool
}

// MaskTokens returns the number of tokens of the mask.
func (q Sequence) MaskTokens() int {
	n := 0
	for _, inMask := range q.Mask {
		if inMask {
			n++
		}
	}
	return n
}

// TokenStats contains statistics of the tokens of the mask of a batch, in order of sequences and positions. LogpRef
// and KL are nil without a reference.
type TokenStats struct {
	Logp    []float64 // logprob of the token at the temperature
	Entropy []float64 // of the policy's distribution at its position
	LogpRef []float64 // logprob under the reference
	KL      []float64 // exact KL(policy || reference) over the vocabulary
}

// Append adds the statistics of the next part of the same batch.
func (s *TokenStats) Append(t TokenStats) {
	s.Logp = append(s.Logp, t.Logp...)
	s.Entropy = append(s.Entropy, t.Entropy...)
	s.LogpRef = append(s.LogpRef, t.LogpRef...)
	s.KL = append(s.KL, t.KL...)
}

// Reorder returns the statistics in another order of tokens: token i is token order[i] of s.
func (s TokenStats) Reorder(order []int) TokenStats {
	return TokenStats{Logp: rl.Select(s.Logp, order), Entropy: rl.Select(s.Entropy, order),
		LogpRef: rl.Select(s.LogpRef, order), KL: rl.Select(s.KL, order)}
}

// Weights are the derivatives of a loss with respect to the statistics of the same tokens. A nil slice means
// zeros.
type Weights struct{ Logp, Entropy, KL []float64 }

// OptimizerConfig configures a Trainer.
type OptimizerConfig struct {
	Beta1, Beta2, Eps float64 // AdamW's
	Decay             float64 // decoupled weight decay of all weights
	Clip              float64 // maximal global gradient norm; 0 never clips
	Host              Host    // "" is HostNone
	MicroTokens       int     // rows per forward and backward pass, see PackedRows; a longer sequence has its own
}

// Host selects what an optimizer stores in the host's memory. A step copies it to the device piece by piece.
type Host string

// The places of an optimizer's buffers.
const (
	HostNone    Host = "none"
	HostMoments Host = "moments" // the two moments
	HostAll     Host = "all"     // the float32 master of bfloat16 weights too
)

// DefaultMicroTokens holds several groups at once, whose members share prefixes.
const DefaultMicroTokens = 4096

// used returns the tokens that a pass computes: those before the last one of the mask. The rest predicts nothing with
// loss.
func (q Sequence) used() []int32 {
	for t := min(len(q.IDs), len(q.Mask)) - 1; t >= 0; t-- {
		if q.Mask[t] {
			return q.IDs[:t]
		}
	}
	return nil
}

// fitting returns how many of the first sequences fit in a pass of so many rows, at least one, and their rows. A prefix
// that several sequences share is computed once.
func fitting(sequences []Sequence, microTokens int) (n, rows int) {
	var used [][]int32
	for n, q := range sequences {
		ids := q.used()
		_, shared := longestPrefix(used, ids)
		more := len(ids) - shared
		if n > 0 && rows+more > microTokens {
			return n, rows
		}
		used, rows = append(used, ids), rows+more
	}
	return len(sequences), rows
}

// PackedRows returns the number of rows of one pass over sequences.
func PackedRows(sequences []Sequence) int {
	_, rows := fitting(sequences, math.MaxInt)
	return rows
}

// MicroBatches returns the number of micro-batches of a batch.
func MicroBatches(sequences []Sequence, microTokens int) (n int) {
	for ; len(sequences) > 0; n++ {
		fit, _ := fitting(sequences, microTokens)
		sequences = sequences[fit:]
	}
	return n
}

// longestPrefix returns the sequence with the longest common prefix with ids, the first of equals, and its length.
func longestPrefix(others [][]int32, ids []int32) (like, shared int) {
	for i, other := range others {
		if n := rl.CommonPrefix(ids, other); n > shared {
			like, shared = i, n
		}
	}
	return like, shared
}

// Buffers selects the buffers of a model.
type Buffers struct {
	Precision Precision // of products; "" is float32
	Frozen    bool      // no update changes all weights, so bfloat16 needs no float32 master
}

// LoRA is the shape of a low-rank adapter: W + (Alpha/Rank)·B·A for the target projections of every layer (Hu et
// al. 2021, eq. 3), A of shape [Rank, in] and B of shape [out, Rank].
type LoRA struct {
	Rank    int
	Alpha   float64
	Targets []string // names of projections; Projections for all
	Rows    []int32  // vocabulary rows that are trained too, in the embedding and an untied head
}

// Projections are the matrices that an adapter may change, by their names in files.
var Projections = []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}

// Check reports the first value out of range.
func (c LoRA) Check() error {
	switch {
	case c.Rank < 1:
		return fmt.Errorf("lora: rank must be at least 1, got %d", c.Rank)
	case !(c.Alpha > 0):
		return fmt.Errorf("lora: alpha must be above 0, got %v", c.Alpha)
	case len(c.Targets) == 0:
		return errors.New("lora: it needs at least one target")
	}
	for _, name := range c.Targets {
		if !slices.Contains(Projections, name) {
			return fmt.Errorf("lora: unknown projection %q; known are %s", name, strings.Join(Projections, ", "))
		}
	}
	return nil
}
