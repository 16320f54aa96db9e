package rl

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"rcgrpo/bfcl"
)

// Files of the artifacts with trajectories, scores and metrics, one row per line.
const (
	DatasetFile      = "dataset.jsonl.gz"      // dataset: Trajectory, Token set
	TrajectoriesFile = "trajectories.jsonl.gz" // trajectories: Trajectory
	ScoresFile       = "scores.jsonl"          // scores: Score
	MetricsFile      = "metrics.jsonl"         // metrics: Metric
	TimesFile        = "times.jsonl"           // metrics: Metric with seconds and rates, outside the digest
)

// Reward tokens as written in trajectories, settings and metrics.
const (
	TokenNone = ""
	TokenHigh = "high"
	TokenLow  = "low"
)

// Origins of a trajectory.
const (
	OriginPolicy = "policy" // sampled by a policy
	OriginExpert = "expert" // ground truth, executed
	OriginSpoilt = "spoilt" // ground truth with planned mistakes
)

// Trajectory is the record of one episode, from the first user message to its verdict. Messages is the
// conversation. If a policy with tokens produced it, IDs, Mask and Logp hold exactly the tokens that it read and
// sampled.
type Trajectory struct {
	Task     string `json:"task"`             // id of the task
	Family   string `json:"family"`           // unit of the split and of clustered statistics
	Category string `json:"category"`         // "base", "miss_param", ...
	Prompt   string `json:"prompt,omitempty"` // bfcl.PromptMerged; "" in turns
	Member   int    `json:"member"`           // as in Rollout
	Update   int    `json:"update,omitempty"`
	Token    string `json:"token,omitempty"` // reward token
	Origin   string `json:"origin"`

	System    string            `json:"system,omitempty"`    // system message of the environment; "": the layout's own
	Tools     []string          `json:"tools,omitempty"`     // names offered at the start, in order
	Documents []json.RawMessage `json:"documents,omitempty"` // Tools in OpenAI's form; none for the benchmark's tools
	Messages  []Message         `json:"messages"`

	IDs  []int32   `json:"ids,omitempty"`  // [T] the whole episode
	Mask []bool    `json:"mask,omitempty"` // [T] true where the policy sampled the token
	Logp []float32 `json:"logp,omitempty"` // [T] natural log, at sampling; 0 where Mask is false

	Segments []Segment `json:"segments,omitempty"` // further sequences of an agent

	Sampled int `json:"sampled,omitempty"` // tokens of replies that are not in IDs; see Reply.Given

	// Reward is R_state * R_action, 0 or 1, or the score of a program, of which 1 is success. It is missing where the
	// environment failed.
	Reward   Reward `json:"reward"`
	RState   Reward `json:"r_state"`  // final states equal; missing in tasks of a program
	RAction  Reward `json:"r_action"` // every ground-truth call made; missing in tasks of a program
	Official bool   `json:"official"` // verdict of the official checker; in tasks of a program, success
	Failure  string `json:"failure,omitempty"`
	Refusal  string `json:"refusal,omitempty"` // why the chat template or official handler read no further message
	Stop     string `json:"stop"`              // why the episode ended, one of the Stop constants
	Calls    int    `json:"calls"`
	Errors   int    `json:"errors"` // calls whose result was an execution error
	Spoilt   string `json:"spoilt,omitempty"`

	again bool // the environment failed, and the episode can be played again
}

// newTrajectory returns the record of an episode that has not begun.
func newTrajectory(task *bfcl.Task, origin string) *Trajectory {
	return &Trajectory{Task: task.ID, Family: task.Family, Category: task.Category, Prompt: task.Prompt, Origin: origin}
}

// open stores the system message and the tools that an environment offers at the start.
func (t *Trajectory) open(env Env) {
	t.System = env.System()
	for _, tool := range env.Tools() {
		t.Tools = append(t.Tools, tool.Name)
		if tool.JSON != nil {
			t.Documents = append(t.Documents, tool.JSON)
		}
	}
}

// Offered returns the tools on offer at the start.
func (t *Trajectory) Offered() []Tool {
	tools := ToolsNamed(t.Tools)
	for i := range t.Documents {
		tools[i].JSON = t.Documents[i]
	}
	return tools
}

// first returns the message of a reply, at the start behind the system message.
func (t *Trajectory) first(news Message) []Message {
	if t.System == "" || len(t.Messages) > 0 {
		return []Message{news}
	}
	return []Message{{Role: RoleSystem, Text: t.System}, news}
}

// add appends a message and the reply to it. A message that did not fit is dropped.
func (t *Trajectory) add(news Message, r Reply) {
	if (r.Stop == StopLength || r.Stop == StopHandler) && r.Text == "" && len(r.IDs) == 0 {
		return
	}
	answer := Message{Role: RoleAssistant, Turn: news.Turn, Text: r.Text, Malformed: r.Malformed}
	for _, call := range r.Calls {
		answer.Calls = append(answer.Calls, call.Text)
	}
	if len(r.Given) > 0 { // between, the message, the header
		t.appendIDs(r.Given[0], nil)
		news.From = len(t.IDs)
		t.appendIDs(r.Given[1], nil)
		news.To = len(t.IDs)
		t.appendIDs(r.Given[2], nil)
		t.appendIDs(r.IDs, r.Logp)
		answer.From, answer.To = news.To, len(t.IDs)
	} else {
		t.Sampled += len(r.IDs)
	}
	t.Messages = append(t.Messages, news, answer)
}

// appendIDs appends ids with their logprobs, or without logprobs ids that the policy did not sample. Here the mask of
// an episode is made; the package comment of stages/grpo names where it is applied.
func (t *Trajectory) appendIDs(ids []int32, logp []float32) {
	sampled := logp != nil
	if !sampled {
		logp = make([]float32, len(ids))
	}
	t.IDs = append(t.IDs, ids...)
	t.Logp = append(t.Logp, logp...)
	for range ids {
		t.Mask = append(t.Mask, sampled)
	}
}

// fail ends an episode without a reward.
func (t *Trajectory) fail(err error) {
	t.Stop, t.Failure, t.again = StopError, err.Error(), errors.Is(err, ErrAgain)
	t.Reward, t.RState, t.RAction = MissingReward(), MissingReward(), MissingReward()
}

// judge stores the verdict of an ended episode. The official verdict also counts if the episode exceeded the turn
// limit. A reward is earned only if the policy ended the episode itself; bfcl/SPEC.md 11 would also compare the
// states of a truncated one.
func (t *Trajectory) judge(v bfcl.Verdict) {
	t.RState, t.RAction = Reward(v.RState), Reward(v.RAction)
	t.Failure = v.ErrorType
	switch t.Stop {
	case StopDone:
		t.Reward, t.Official = Reward(v.Reward), v.Official
	case StopTurnLimit:
		t.Official = v.Official
	default:
		t.Failure = t.Stop
	}
}

// Segment is a conversation of an agent that does not continue another one of its episode: of a helper, or after the
// agent has shortened its history.
type Segment struct {
	Messages []Message `json:"messages"`
	IDs      []int32   `json:"ids"`
	Mask     []bool    `json:"mask"`
	Logp     []float32 `json:"logp"`
}

// Check returns an error if a sequence has not one mark and one logprob for each id, or a message has ids that its
// sequence lacks. Readers use these as indices.
func (t *Trajectory) Check() error {
	if n := len(t.Documents); n > 0 && n != len(t.Tools) {
		return fmt.Errorf("the trajectory of task %q has %d tools and the documents of %d", t.Task, len(t.Tools), n)
	}
	for _, s := range t.Sequences() {
		n := len(s.IDs)
		if len(s.Mask) != n || len(s.Logp) != n {
			return fmt.Errorf("the trajectory of task %q has %d ids, %d marks and %d logprobs", t.Task, n, len(s.Mask),
				len(s.Logp))
		}
		for _, m := range s.Messages {
			if m.From < 0 || m.From > m.To || m.To > n {
				return fmt.Errorf("a message of task %q has the ids %d to %d of %d", t.Task, m.From, m.To, n)
			}
		}
	}
	return nil
}

// Sequences returns the conversations of an episode as trajectories of their own, the first as it is. The others have
// only what a Segment has.
func (t *Trajectory) Sequences() []*Trajectory {
	all := []*Trajectory{t}
	for _, s := range t.Segments {
		all = append(all, &Trajectory{Messages: s.Messages, IDs: s.IDs, Mask: s.Mask, Logp: s.Logp})
	}
	return all
}

// Tokens counts the tokens of an episode: those that the policy sampled, and those that it was given.
func (t *Trajectory) Tokens() (sampled, given int) {
	sampled = t.Sampled
	for _, s := range t.Sequences() {
		for _, inMask := range s.Mask {
			if inMask {
				sampled++
			} else {
				given++
			}
		}
	}
	return sampled, given
}

// Replies counts the replies of an episode, and those without calls that contain the beginning of one.
func (t *Trajectory) Replies() (all, malformed int) {
	for _, s := range t.Sequences() {
		for _, m := range s.Messages {
			if m.Role == RoleAssistant {
				all++
			}
			if m.Malformed {
				malformed++
			}
		}
	}
	return all, malformed
}

// Stop reasons of an episode.
const (
	StopDone      = "done"       // the policy yielded after the last turn
	StopTurnLimit = "turn_limit" // too many steps or calls in one turn
	StopLength    = "length"     // the context is full
	StopStep      = "step"       // one reply exceeded its token limit
	StopError     = "error"      // the environment failed
	StopHandler   = "handler"    // the chat template or the official handler refuses a message: see Refusal
)

// Roles of messages.
const (
	RoleSystem    = "system" // only in what a policy reads; Trajectory.System stores it
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleTool      = "tool"
)

// Message is one entry of the conversation. From and To bound its tokens in Trajectory.IDs, headers included;
// both are 0 without tokens.
type Message struct {
	Role  string   `json:"role"` // one of the Role constants
	Turn  int      `json:"turn"`
	Text  string   `json:"text"`
	Calls []string `json:"calls,omitempty"` // assistant: call strings decoded from Text
	// Malformed marks a sampled reply without calls that contains the beginning of one.
	Malformed bool     `json:"malformed,omitempty"`
	Several   []string `json:"several,omitempty"` // tool: the separate results if there are several; see Results
	From      int      `json:"from,omitempty"`
	To        int      `json:"to,omitempty"`
}

// Results returns the results in a tool message, one per call.
func (m Message) Results() []string {
	if len(m.Several) > 0 {
		return m.Several
	}
	return []string{m.Text}
}

// ToolMessage returns the message with the results of one step, at least one.
func ToolMessage(turn int, results []string) Message {
	m := Message{Role: RoleTool, Turn: turn, Text: strings.Join(results, "\n")}
	if len(results) > 1 {
		m.Several = results
	}
	return m
}

// Score is one evaluated episode with a reward: a row of a scores artifact.
type Score struct {
	Task     string  `json:"task"`
	Family   string  `json:"family"`
	Category string  `json:"category"`
	Set      string  `json:"set,omitempty"`    // port of its task: "test", "test_new"
	Prompt   string  `json:"prompt,omitempty"` // "merged", in which Official has no meaning; "" in turns
	Token    string  `json:"token,omitempty"`  // condition at evaluation
	Sample   int     `json:"sample"`           // 0 for greedy; 0..k-1 when sampled
	Greedy   bool    `json:"greedy"`
	Reward   float64 `json:"reward"`
	Official bool    `json:"official"`
	Failure  string  `json:"failure,omitempty"`
	Refusal  string  `json:"refusal,omitempty"`
	Stop     string  `json:"stop"`
	Calls    int     `json:"calls"`
	Tokens   int     `json:"tokens"` // sampled tokens

	Replies   int `json:"replies,omitempty"`
	Malformed int `json:"malformed,omitempty"` // replies without calls that contain the beginning of one
}

// Score returns the row of an evaluated episode of a set of tasks. The episode must have a reward.
func (t *Trajectory) Score(set string, greedy bool) Score {
	sampled, _ := t.Tokens()
	replies, malformed := t.Replies()
	return Score{
		Task: t.Task, Family: t.Family, Category: t.Category, Set: set, Prompt: t.Prompt, Token: t.Token,
		Sample: t.Member, Greedy: greedy, Reward: float64(t.Reward), Official: t.Official, Failure: t.Failure,
		Refusal: t.Refusal, Stop: t.Stop, Calls: t.Calls, Tokens: sampled, Replies: replies, Malformed: malformed,
	}
}

// Metric is one row of a metrics artifact: the values logged at one update, by the names of objective.Metrics.
// Times and rates are in a separate file, outside the digest.
type Metric struct {
	Update int                `json:"update"` // 1-based
	Values map[string]float64 `json:"values"`
}
