package provider

import (
	"fmt"

	"rcgrpo/bfcl"
)

// Price is the price of a million tokens in dollars.
type Price struct{ Input, Output float64 }

// prices are those of the multi-turn models in BFCL's table (release 2026.3.23, constants/model_config.py).
var prices = map[string]Price{
	"gpt-5.2-2025-12-11":         {1.75, 14},
	"gpt-5-mini-2025-08-07":      {0.25, 2},
	"gpt-5-nano-2025-08-07":      {0.05, 0.4},
	"gpt-4.1-2025-04-14":         {2, 8},
	"gpt-4.1-mini-2025-04-14":    {0.4, 1.6},
	"gpt-4.1-nano-2025-04-14":    {0.1, 0.4},
	"claude-opus-4-5-20251101":   {5, 25},
	"claude-sonnet-4-5-20250929": {3, 15},
	"claude-haiku-4-5-20251001":  {0.8, 4},
	"gemini-3-pro-preview":       {2, 12},
}

// PriceOf returns the price of a model: that of the site file, of BFCL's table, or 0 for a server on this machine.
func (s *Settings) PriceOf(site map[string][]float64) (Price, error) {
	if p := site[s.Model]; len(p) == 2 {
		return Price{p[0], p[1]}, nil
	}
	if s.local() {
		return Price{}, nil
	}
	if p, ok := prices[s.Model]; ok {
		return p, nil
	}
	return Price{}, fmt.Errorf("the price of %s is unknown, so no budget can be kept: write api %q { prices = { %q = "+
		"[INPUT, OUTPUT] } } into the site file, in dollars per million tokens", s.Model, s.Key, s.Model)
}

// Prices of Anthropic's cache, relative to that of input.
const (
	cacheReadPrice  = 0.1
	cacheWritePrice = 1.25
)

// cost returns the dollars of a call.
func (p Price) cost(u Usage) float64 {
	input := float64(u.Input) + cacheReadPrice*float64(u.CacheRead) + cacheWritePrice*float64(u.CacheWrite)
	return (input*p.Input + float64(u.Output)*p.Output) / 1e6
}

// unknown returns the expected cost of a request of that many bytes, for a reply that reports no usage.
func (p Price) unknown(bytes int) float64 {
	return p.cost(Usage{Input: bytes / bytesPerToken, Output: tokensPerReply})
}

// Assumptions of an expected cost.
const (
	bytesPerToken  = 4
	bytesPerResult = 200
	tokensPerReply = 300 // with hidden reasoning
)

// Expect returns the expected dollars of one episode of each task: each turn has a reply with its ground truth, if any,
// and a reply that yields, and every request repeats the conversation so far.
func (p Price) Expect(data *bfcl.Data, tasks []*bfcl.Task) (dollars float64) {
	for _, t := range tasks {
		bytes, input, replies := 0, 0, 0
		for _, class := range t.Classes {
			for _, doc := range data.Docs(class) {
				bytes += len(doc.JSON)
			}
		}
		for _, turn := range t.Turns {
			bytes += len(turn.User)
			input += bytes
			replies++
			for _, call := range turn.GroundTruth {
				bytes += len(call) + bytesPerResult
			}
			if len(turn.GroundTruth) > 0 {
				input += bytes
				replies++
			}
		}
		dollars += p.cost(Usage{Input: input / bytesPerToken, Output: replies * tokensPerReply})
	}
	return dollars
}
