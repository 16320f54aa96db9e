package rl

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/stages/rl/blocks"
)

// Positions of the reward token.
const (
	FirstUser        = "first_user"         // at the end of the first user message (paper, appendix)
	BeforeEachAction = "before_each_action" // right after the header of every reply (paper, section 3.1)
)

// Reward tokens as the policy reads them. GoalBefore and GoalAfter surround the token in the first user message (paper,
// appendix).
const (
	HighReward = "<|high_reward|>"
	LowReward  = "<|low_reward|>"
	GoalBefore = "\n[Reward Goal: "
	GoalAfter  = "]"
)

// InitCopy returns TOKEN of a row initialization "copy:TOKEN"; ok is false for another one.
func InitCopy(init string) (token string, ok bool) {
	token, ok = strings.CutPrefix(init, "copy:")
	return token, ok && token != ""
}

// CheckInit reports a row initialization that is neither "mean" nor "copy:TOKEN".
func CheckInit(init string, at hcl.Range) (diags hcl.Diagnostics) {
	_, ok := InitCopy(init)
	blocks.Mistakes(&diags)(!ok && init != "mean", "Unknown initialization of reward tokens", at, "Rows of new tokens "+
		"start as the mean of all rows (\"mean\") or as a copy of one token's row (\"copy:<|assistant|>\"); got %q.", init)
	return diags
}

// Allocations of reward tokens to the members of a group.
const (
	AllocationIID        = "iid"        // each member draws for itself (paper, section 3.2)
	AllocationStratified = "stratified" // every group has round(pG) high tokens, at random members
)

// DrawTokens draws the reward tokens of a group [G]; p is the probability of high. task is the id of the task, or
// another name of the group. The tokens have their own stream, so arms with and without tokens share tasks and all
// other random numbers.
func DrawTokens(allocation string, p float64, group int, seed uint64, update int, task string) []string {
	s := newStream(forTokens, seed, uint64(update), hash(task))
	var high []int
	for i := range group {
		if allocation == AllocationStratified || s.At(i) < p {
			high = append(high, i)
		}
	}
	if allocation == AllocationStratified {
		slices.SortFunc(high, func(a, b int) int { return cmp.Compare(s.At(a), s.At(b)) })
		high = high[:int(math.Floor(p*float64(group)+0.5))]
	}
	tokens := slices.Repeat([]string{TokenLow}, group)
	for _, i := range high {
		tokens[i] = TokenHigh
	}
	return tokens
}
