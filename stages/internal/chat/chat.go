// Package chat converts conversations to token ids and back: one file per model family, each an [rl.Codec].
// Pieces are encoded separately and concatenated, so sampled text is never tokenized again; [Encode] encodes a
// whole trajectory under any reward token.
//
// [Drill] is the small layout of the generated tasks. [Layout] contains the published layouts of instruct models
// as constants; a model folder with another chat template is refused ([Layout.CheckTemplate]). [FunctionsOf]
// returns the documents of the tools. [Memory] stores the ids of replies for prompts that continue them.
// Neighbours: token (ids of a text), rl (episodes).
package chat

import (
	"fmt"

	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// Reward tokens in a vocabulary: single entries.
const (
	HighReward = rl.HighReward
	LowReward  = rl.LowReward
)

// RewardTokens in the order in which they are added to a vocabulary.
var RewardTokens = []string{HighReward, LowReward}

// Encode returns the ids [T] of a trajectory under a reward token (rl.TokenNone for none), and a mask [T] that is
// true on the policy's own tokens, including the end-of-reply id. Sampled replies keep their ids; the codec
// encodes the replies of experts. Under the token of its sampling, a trajectory gives its own IDs and Mask. The
// trajectory is not changed.
func Encode(c rl.Codec, t *rl.Trajectory, token string) (ids []int32, mask []bool) {
	given := func(piece []int32) { ids = append(ids, piece...) }
	given(c.Begin(t.System, t.Offered()))
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

// reply returns the policy's own ids of a message.
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

// rewardIDs returns the ids of the reward tokens by name, none without a position.
func rewardIDs(tokens *token.Tokenizer, position string) (map[string]int32, error) {
	switch position {
	case "":
		return nil, nil
	case rl.FirstUser, rl.BeforeEachAction:
	default:
		return nil, fmt.Errorf("unknown token position %q; known are %s and %s", position, rl.FirstUser,
			rl.BeforeEachAction)
	}
	ids := map[string]int32{}
	for name, content := range map[string]string{rl.TokenHigh: HighReward, rl.TokenLow: LowReward} {
		id, ok := tokens.ID(content)
		if !ok {
			return nil, fmt.Errorf("token position %q needs %s in the vocabulary; add the reward tokens first", position,
				content)
		}
		ids[name] = id
	}
	return ids, nil
}
