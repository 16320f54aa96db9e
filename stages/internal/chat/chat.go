// Package chat turns conversations into token ids and back: one file per family of models, each an
// [rl.Codec]. Pieces are encoded one by one and concatenated, so what a policy sampled is never
// tokenised again; [Encode] lays out a whole trajectory that way, under any reward token.
//
// [Drill] is the small layout of the generated tasks. [Layout] holds the published layouts of
// instruct models: their texts are constants, and a model folder whose chat template is another one
// is refused ([Layout.CheckTemplate]). [FunctionsOf] gives the documents of the tools. Neighbours:
// token (ids of a text), rl (episodes).
package chat

import (
	"fmt"

	"rcgrpo/stages/rl"
)

// Reward tokens as they stand in a vocabulary: single entries.
const (
	HighReward = "<|high_reward|>"
	LowReward  = "<|low_reward|>"
)

// RewardTokens in the order in which they are added to a vocabulary.
var RewardTokens = []string{HighReward, LowReward}

// goal is what surrounds the reward token in the first user message (the paper's appendix).
const goalBefore, goalAfter = "\n[Reward Goal: ", "]"

// Encode lays out a trajectory under a reward token (rl.TokenNone for none): its ids [T], and a
// mask [T] that is true on the policy's own tokens, the end-of-reply id included. Where the
// trajectory kept what was sampled, exactly those ids stand in the replies; an expert's replies are
// encoded by the codec. For the token under which a trajectory was sampled the result equals its
// IDs and Mask. The trajectory is not changed.
func Encode(c rl.Codec, t *rl.Trajectory, token string) (ids []int32, mask []bool) {
	given := func(piece []int32) { ids = append(ids, piece...) }
	given(c.Begin(t.Tools))
	users := 0
	for i, m := range t.Messages {
		switch m.Role {
		case rl.RoleUser:
			given(c.User(m.Text, users == 0, token))
			users++
		case rl.RoleTool:
			given(c.Tool(m.Results()))
		case rl.RoleAssistant:
			given(c.Header(token))
			mask = pad(mask, len(ids), false)
			given(reply(c, t, m))
			mask = pad(mask, len(ids), true)
			if i+1 < len(t.Messages) {
				given(c.Between())
			}
		}
	}
	return ids, pad(mask, len(ids), false)
}

// reply is the policy's own part of a message.
func reply(c rl.Codec, t *rl.Trajectory, m rl.Message) []int32 {
	if m.To == 0 {
		return c.Reply(m.Calls)
	}
	var ids []int32
	for i := m.From; i < m.To; i++ {
		if t.Mask[i] {
			ids = append(ids, t.IDs[i])
		}
	}
	return ids
}

func pad(mask []bool, n int, value bool) []bool {
	for len(mask) < n {
		mask = append(mask, value)
	}
	return mask
}

// position checks the setting of that name.
func position(name string) error {
	switch name {
	case "", rl.FirstUser, rl.BeforeEachAction:
		return nil
	}
	return fmt.Errorf("token position %q is not known; known are %s and %s", name, rl.FirstUser, rl.BeforeEachAction)
}
