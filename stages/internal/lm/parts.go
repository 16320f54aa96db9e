package lm

// PackedRows returns the number of rows that sequences need when they are packed together: tokens up to the last
// learned one, those of a common prefix once.
func PackedRows(sequences []Sequence) (rows int) {
	used := make([][]int32, len(sequences))
	for i, q := range sequences {
		end := len(q.IDs)
		for end > 0 && !q.Learn[end-1] {
			end--
		}
		used[i] = q.IDs[:max(0, end-1)]
		_, shared := longestPrefix(used[:i], used[i])
		rows += len(used[i]) - shared
	}
	return rows
}

// longestPrefix returns the sequence with the longest common prefix with ids, the first of equals, and its
// length.
func longestPrefix(others [][]int32, ids []int32) (like, shared int) {
	for i, other := range others {
		if n := common(ids, other); n > shared {
			like, shared = i, n
		}
	}
	return like, shared
}

func common(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
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
	pick := func(values []float64) []float64 {
		if values == nil {
			return nil
		}
		out := make([]float64, len(order))
		for i, from := range order {
			out[i] = values[from]
		}
		return out
	}
	return TokenStats{Logp: pick(s.Logp), Entropy: pick(s.Entropy), LogpRef: pick(s.LogpRef), KL: pick(s.KL)}
}
