package rl

// Codec converts messages to ids and back, in the chat layout of one policy. Pieces are encoded separately and
// concatenated, so sampled text is never tokenized again. Package stages/internal/chat has the implementations: Drill
// for the layout of the drills, Chat for the chat template of a model folder.
type Codec interface {
	// Begin returns the ids up to the end of the first request. system is the system message, "" for the layout's own;
	// tools are those on offer. The position "first_user" writes the reward token into the request. An error comes from
	// the model's chat template, which may refuse texts and documents.
	Begin(system string, tools []Tool, request, token string) ([]int32, error)
	// User encodes a later request.
	User(text string) ([]int32, error)
	// Tool encodes the results of one step's calls.
	Tool(results []string) ([]int32, error)
	// Header opens a reply of the policy, where the position "before_each_action" writes the reward token.
	Header(token string) []int32
	// Reply encodes a step of an expert: the ids that a policy would have sampled, including the end-of-step id.
	// Without calls it is the step that ends the turn.
	Reply(calls []string) []int32
	// Between returns the ids between a reply and the next message. They are given, not sampled.
	Between() []int32
	// Stop reports whether an id ends a reply.
	Stop(id int32) bool
	// Parse decodes a sampled reply. A reply without calls yields the turn.
	Parse(ids []int32) Parsed
	// Text decodes any ids for people, special tokens included.
	Text(ids []int32) string
}

// LongestReply limits the bytes of a reply, four for each of 65,536 tokens, and all replies of an episode have 32 for
// each token of its context, because a token of a stranger's vocabulary may have a kilobyte.
const LongestReply, BytesPerToken = 256 << 10, 32

// ReplyBytes are those that the replies of an episode may still have.
type ReplyBytes int

// ReplyBytesOf returns the bytes for an episode of at most context tokens.
func ReplyBytesOf(context int) ReplyBytes { return ReplyBytes(BytesPerToken * context) }

// EndOf returns a function that reports whether a reply ends with a token: with an id that ends a reply, or because it
// is too long.
func (b *ReplyBytes) EndOf(c Codec) func(Draw) bool {
	end := *b - min(*b, LongestReply)
	return func(d Draw) bool {
		*b -= ReplyBytes(len(c.Text([]int32{d.Token})))
		return c.Stop(d.Token) || *b < end
	}
}

// Parsed is a decoded reply.
type Parsed struct {
	Text      string
	Calls     []Call
	Malformed bool // it has no calls, but the beginning of one
}
