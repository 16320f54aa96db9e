package page

import (
	"cmp"
	"fmt"
	"slices"
)

// transcriptsPerArm limits the episodes of an arm on a page. Half of them are failures if there are enough.
const transcriptsPerArm = 40

// Transcripts holds some episodes of one arm. A hash of their names selects them, independently of the author of the
// page and of the content of the episode.
type Transcripts struct {
	Label          string
	Passed, Failed []Transcript // candidates, sorted by hash
	PassedOf       int          // total number
	FailedOf       int
}

// Transcript is one episode for readers.
type Transcript struct {
	Task     string  `json:"task"`
	Category string  `json:"category"`
	Seed     string  `json:"seed,omitempty"` // "seed 3"
	Token    string  `json:"token,omitempty"`
	Origin   string  `json:"origin"`
	Reward   float64 `json:"reward"`
	Official bool    `json:"official"`
	Failure  string  `json:"failure,omitempty"`
	Stop     string  `json:"stop"`
	Calls    int     `json:"calls"`
	Errors   int     `json:"errors"`

	Messages []Utterance   `json:"messages"`
	Further  [][]Utterance `json:"further,omitempty"` // sequences of an agent that continue none before them

	Hash string `json:"-"` // selects the episodes
}

// Utterance is a message of a transcript.
type Utterance struct {
	Role    string   `json:"role"`
	Turn    int      `json:"turn"` // from 1
	Text    string   `json:"text,omitempty"`
	Calls   []string `json:"calls,omitempty"`
	Results []string `json:"results,omitempty"` // results in a tool message
	Sampled int      `json:"sampled,omitempty"` // tokens that the policy sampled; 0 for other text
	Tokens  int      `json:"tokens,omitempty"`  // number of tokens of the whole message
	Logp    float64  `json:"logp,omitempty"`    // mean natural logprob of the sampled tokens
	Strip   string   `json:"strip,omitempty"`   // a character for each token, see TokenStrip
}

// StripGiven is the character of a TokenStrip for a given token.
const StripGiven = '·'

const StripBlocks = "▁▂▃▄▅▆▇█"

// Add adds a transcript and drops candidates that cannot be chosen anymore.
func (t *Transcripts) Add(one Transcript) {
	list, of := &t.Failed, &t.FailedOf
	if one.Reward == 1 {
		list, of = &t.Passed, &t.PassedOf
	}
	*of++
	at, _ := slices.BinarySearchFunc(*list, one, func(a, b Transcript) int { return cmp.Compare(a.Hash, b.Hash) })
	*list = slices.Insert(*list, at, one)
	*list = (*list)[:min(len(*list), transcriptsPerArm)]
}

// Chosen returns the transcripts of the page: half of each kind if there are enough.
func (t *Transcripts) Chosen() (failed, passed []Transcript) {
	half := transcriptsPerArm / 2
	failures := min(len(t.Failed), max(half, transcriptsPerArm-len(t.Passed)))
	successes := min(len(t.Passed), transcriptsPerArm-failures)
	return t.Failed[:failures], t.Passed[:successes]
}

// Bytes returns about the bytes of the chosen transcripts.
func (t *Transcripts) Bytes() (n int) {
	failed, passed := t.Chosen()
	for _, one := range slices.Concat(failed, passed) {
		n += len(one.Task) + len(one.Category) + len(one.Token) + len(one.Origin) + len(one.Failure) + len(one.Stop)
		for _, u := range slices.Concat(slices.Concat(one.Further...), one.Messages) {
			n += 64 + len(u.Role) + len(u.Text) + len(u.Strip)
			for _, text := range slices.Concat(u.Calls, u.Results) {
				n += len(text)
			}
		}
	}
	return n
}

// Summary returns the line of the closed transcripts.
func (t *Transcripts) Summary() string {
	failed, passed := t.Chosen()
	return fmt.Sprintf("%s: %d of %d failed and %d of %d passed episodes",
		t.Label, len(failed), t.FailedOf, len(passed), t.PassedOf)
}
