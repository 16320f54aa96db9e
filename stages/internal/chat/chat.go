// Package chat converts conversations to token ids and back. Pieces are encoded separately and concatenated, so
// sampled text is never tokenized again; [Encode] encodes a whole trajectory under any reward token.
//
//	Template   the chat template of an instruct model, interpreted and probed; start with ReadTemplate
//	Chat       the codec of a Template with a tokenizer; start with Template.New
//	Drill      the codec of the small layout of the generated tasks, which has no template
//	Codec      an rl.Codec that also converts conversations in the form of chat APIs; Chat and Drill are both
//	Encode     a trajectory as ids and mask, for fine-tuning
//	Functions  the documents of the tools; start with FunctionsOf
//	Memory     the ids of replies for prompts that continue them
//	Official   a policy with the prompts of the benchmark's official handlers
//
// A layout is how conversations become ids: that of the drills, a chat template, or signatures, which write tools and
// calls as Python into any chat template. A piece is the difference of two renderings (template.go). Probes (probe.go)
// refuse a template whose pieces do not make up its renderings, or that drops a content. calls.go reads and names the
// formats of calls. Neighbours: jinja (renders templates), token (ids of a text), rl (episodes).
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

// rewardTokens are the reward tokens in a vocabulary, by their names in trajectories and settings.
var rewardTokens = map[string]string{rl.TokenHigh: HighReward, rl.TokenLow: LowReward}

// RewardTokens are the reward tokens in the order in which they are added to a vocabulary.
var RewardTokens = []string{HighReward, LowReward}

// Encode returns the ids [T] of a trajectory under a reward token (rl.TokenNone for none), and the mask [T]: true on
// the tokens of replies, including the end-of-reply id. Sampled replies keep their ids; the codec encodes the replies
// of experts and API models, which have none, as if the policy had sampled them. In a sampled trajectory a reply
// without ids is one that the agent wrote itself: it is given, with its calls and without its text. Otherwise a
// trajectory gives its own IDs and Mask under the token of its sampling. The trajectory is not changed. Errors are
// those of the chat template.
func Encode(c rl.Codec, t *rl.Trajectory, token string) (ids []int32, mask []bool, err error) {
	given := func(piece []int32) { ids = append(ids, piece...) }
	begun := false
	for i, m := range t.Messages {
		var piece []int32
		switch {
		case m.Role == rl.RoleUser && !begun:
			piece, err = c.Begin(t.System, t.Offered(), m.Text, token)
			begun = true
		case m.Role == rl.RoleUser:
			piece, err = c.User(m.Text)
		case m.Role == rl.RoleTool:
			piece, err = c.Tool(m.Results())
		}
		if err != nil {
			return nil, nil, err
		}
		given(piece)
		if m.Role == rl.RoleAssistant {
			given(c.Header(token))
			mask = pad(mask, len(ids), false)
			given(reply(c, t, m))
			mask = pad(mask, len(ids), m.To > 0 || len(t.IDs) == 0)
			if i+1 < len(t.Messages) {
				given(c.Between())
			}
		}
	}
	return ids, pad(mask, len(ids), false), nil
}

// reply returns the ids of a reply that the policy sampled, or the codec's for the reply of an expert.
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

// pad extends a mask with value to the length n.
func pad(mask []bool, n int, value bool) []bool {
	for len(mask) < n {
		mask = append(mask, value)
	}
	return mask
}

// rewardIDs returns the ids of the reward tokens by name; nil if position is "".
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
	for name, content := range rewardTokens {
		id, ok := tokens.ID(content)
		if !ok {
			return nil, fmt.Errorf("token position %q needs %s in the vocabulary; add the reward tokens first", position,
				content)
		}
		ids[name] = id
	}
	return ids, nil
}
