package lm

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
