package chat

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// expert is a two-turn episode of the drills' kind; r varies its names.
func expert(r *rand.Rand) *rl.Trajectory {
	a := []string{"school", "guitar", "lamp", "ferry_office"}[r.IntN(4)]
	b := fmt.Sprintf("%s%d", []string{"river", "naïve", "x y"}[r.IntN(3)], r.IntN(100))
	return &rl.Trajectory{Tools: []string{"ls", "mv"}, Origin: rl.OriginExpert, Messages: []rl.Message{
		{Role: rl.RoleUser, Text: "Please move '" + a + ".csv' into '" + b + "'."},
		{Role: rl.RoleAssistant, Calls: []string{"ls(a=True)"}},
		{Role: rl.RoleTool, Text: `{"current_directory_content": ["` + a + `.csv"]}`},
		{Role: rl.RoleAssistant, Calls: []string{"mv(source='" + a + ".csv', destination='" + b + "')"}},
		{Role: rl.RoleTool, Text: "None"},
		{Role: rl.RoleAssistant},
		{Role: rl.RoleUser, Turn: 1, Text: "Now <|end|> it."},
		{Role: rl.RoleAssistant, Turn: 1},
	}}
}

func vocabulary(t testing.TB) *token.Tokenizer {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 4))
	var texts []string
	for range 50 {
		texts = append(texts, DrillText(expert(r)))
	}
	return must.Get(token.Train(texts, 400, append(slices.Clone(DrillTokens), RewardTokens...)))(t)
}

func codec(t testing.TB, where string) *Drill {
	t.Helper()
	return must.Get(NewDrill(vocabulary(t), where))(t)
}

func TestLayoutOfADrill(t *testing.T) {
	e := &rl.Trajectory{Messages: []rl.Message{
		{Role: rl.RoleUser, Text: "Look."},
		{Role: rl.RoleAssistant, Calls: []string{"ls()"}},
		{Role: rl.RoleTool, Text: "None"},
		{Role: rl.RoleAssistant},
		{Role: rl.RoleUser, Text: "Bye."},
		{Role: rl.RoleAssistant},
	}}
	for _, c := range []struct{ where, token, want string }{
		{"", rl.TokenHigh,
			"<|user|>Look.<|assistant|>[ls()<|call|>]None<|assistant|>[<|end|>]<|user|>Bye.<|assistant|>[<|end|>]"},
		{rl.BeforeEachAction, rl.TokenNone,
			"<|user|>Look.<|assistant|>[ls()<|call|>]None<|assistant|>[<|end|>]<|user|>Bye.<|assistant|>[<|end|>]"},
		{rl.BeforeEachAction, rl.TokenHigh,
			"<|user|>Look.<|assistant|><|high_reward|>[ls()<|call|>]None<|assistant|>" +
				"<|high_reward|>[<|end|>]<|user|>Bye.<|assistant|><|high_reward|>[<|end|>]"},
		{rl.FirstUser, rl.TokenLow, "<|user|>Look.\n[Reward Goal: " +
			"<|low_reward|>]<|assistant|>[ls()<|call|>]None<|assistant|>[<|end|>]<|user|>Bye.<|assistant|>[<|end|>]"},
	} {
		d := codec(t, c.where)
		ids, mask := encode(t, d, e, c.token)
		if got := marked(d, ids, mask); got != c.want {
			t.Errorf("position %q, token %q:\n got %s\nwant %s", c.where, c.token, got, c.want)
		}
	}
}

// An agent may put a reply of its own into the conversation, such as an example, which no fine-tuning learns.
func TestAReplyOfTheAgentItselfIsGiven(t *testing.T) {
	d := codec(t, "")
	ids := append(d.tokens.Encode("pwd()"), d.call)
	e := &rl.Trajectory{IDs: ids, Mask: pad(nil, len(ids), true), Messages: []rl.Message{
		{Role: rl.RoleUser, Text: "Look."},
		{Role: rl.RoleAssistant, Calls: []string{"ls()"}},
		{Role: rl.RoleTool, Text: "None"},
		{Role: rl.RoleAssistant, Calls: []string{"pwd()"}, To: len(ids)},
	}}
	got, mask := encode(t, d, e, rl.TokenNone)
	if text := marked(d, got, mask); text != "<|user|>Look.<|assistant|>ls()<|call|>None<|assistant|>[pwd()<|call|>]" {
		t.Errorf("got %s", text)
	}
}

func encode(t testing.TB, c rl.Codec, e *rl.Trajectory, token string) ([]int32, []bool) {
	t.Helper()
	ids, mask, err := Encode(c, e, token)
	must.OK(t, err)
	return ids, mask
}

// marked is the text of ids with the masked ones in brackets.
func marked(c rl.Codec, ids []int32, mask []bool) string {
	var b strings.Builder
	for from := 0; from < len(ids); {
		to := from
		for to < len(ids) && mask[to] == mask[from] {
			to++
		}
		text := c.Text(ids[from:to])
		if mask[from] {
			// Two replies never touch: a header stands between them.
			text = "[" + text + "]"
		}
		b.WriteString(text)
		from = to
	}
	return b.String()
}

// codecs returns the codecs of the drills and of the families at hand, at a position of reward tokens.
func codecs(t *testing.T, where string) map[string]rl.Codec {
	t.Helper()
	all := map[string]rl.Codec{"drill": codec(t, where)}
	for f := range present(t) {
		all[families[f]] = fixtureChat(t, f, where)
	}
	return all
}

// An episode differs under two reward tokens in the ids of these tokens only, and none of them counts as sampled.
func TestRewardTokensAreAtTheirPositionAndNotSampled(t *testing.T) {
	e := &rl.Trajectory{Tools: []string{"mv", "ls"}, Messages: wholeEpisode}
	for where, want := range map[string]int{"": 0, rl.FirstUser: 1, rl.BeforeEachAction: 6} {
		for name, c := range codecs(t, where) {
			high, mask := encode(t, c, e, rl.TokenHigh)
			low, maskLow := encode(t, c, e, rl.TokenLow)
			if !slices.Equal(mask, maskLow) || len(high) != len(low) {
				t.Fatalf("%s %q: the masks differ", name, where)
			}
			got := 0
			for i := range high {
				if high[i] != low[i] {
					got++
					if mask[i] || c.Text(high[i:i+1]) != HighReward || c.Text(low[i:i+1]) != LowReward {
						t.Errorf("%s %q: id %d differs: %d and %d, mask %t", name, where, i, high[i], low[i], mask[i])
					}
				}
				if c.Stop(high[i]) && mask[i] && i+1 < len(mask) && mask[i+1] {
					t.Errorf("%s: a reply continues after its end", name)
				}
			}
			none, _ := encode(t, c, e, rl.TokenNone)
			if text := c.Text(none); got != want || strings.Contains(text, HighReward) || strings.Contains(text, LowReward) {
				t.Errorf("%s %q: got %d reward tokens, want %d, and none in %q", name, where, got, want, text)
			}
		}
	}
}

func TestContextsArePrefixesOfTheEpisode(t *testing.T) {
	for _, where := range []string{"", rl.FirstUser, rl.BeforeEachAction} {
		for name, c := range codecs(t, where) {
			for _, reward := range []string{rl.TokenNone, rl.TokenHigh, rl.TokenLow} {
				e := rl.Trajectory{Tools: []string{"ls"}, Messages: wholeEpisode}
				whole, _ := encode(t, c, &e, reward)
				for n, m := range wholeEpisode {
					if m.Role != rl.RoleAssistant {
						continue
					}
					e.Messages = wholeEpisode[:n]
					prompt, mask := encode(t, c, &e, reward)
					prompt = append(prompt, c.Header(reward)...)
					if len(mask) > len(prompt) || len(prompt) > len(whole) || !slices.Equal(prompt, whole[:len(prompt)]) {
						t.Fatalf("%s %q %s: the prompt of message %d is no prefix of the episode", name, where, reward, n)
					}
				}
			}
		}
	}
}

// The ids of an episode in the drills' layout, beside those of its whole text tokenised at once: equal, but for
// the cases listed, all of them on purpose.
func TestWhereADrillDiffersFromItsText(t *testing.T) {
	d := codec(t, "")
	turn := func(request string, calls ...string) *rl.Trajectory {
		e := &rl.Trajectory{Messages: []rl.Message{{Role: rl.RoleUser, Text: request},
			{Role: rl.RoleAssistant, Calls: calls}}}
		if len(calls) > 0 {
			e.Messages = append(e.Messages, rl.Message{Role: rl.RoleTool,
				Text: `{"current_directory_content": ["lamp.csv"]}`}, rl.Message{Role: rl.RoleAssistant})
		}
		return e
	}
	sampled := func(e *rl.Trajectory, reply []int32) *rl.Trajectory {
		e.IDs, e.Mask = reply, pad(nil, len(reply), true)
		e.Messages[1].To = len(reply)
		return e
	}
	var spelt []int32
	for _, letter := range "ls()" {
		spelt = append(spelt, d.tokens.Encode(string(letter))...)
	}
	for name, tc := range map[string]struct {
		episode      *rl.Trajectory
		ours, theirs string // the first ids that differ, as text; "" where they are equal
		why          string
	}{
		"an expert's episode": {turn("Please move 'lamp.csv'.", "ls(a=True)"), "", "", ""},
		"several calls":       {turn("Look.", "ls()", "pwd()"), "", "", ""},
		"no call":             {turn("Bye."), "", "", ""},
		"special token in a request": {turn("Now <|end|> it."), "<", "<|end|>",
			"text from outside never becomes an added token"},
		"special token in a call": {turn("Look.", "echo(content='<|call|>')"), "<", "<|call|>",
			"what a policy spells in letters is no added token"},
		"reply spelt letter by letter": {sampled(turn("Look.", "ls()"), append(slices.Clone(spelt), d.call)), "l", "ls",
			"what was sampled is never tokenised again"},
		"reply cut off": {sampled(turn("Look.", "ls()"), d.tokens.Encode("ls()")), "", "<|call|>",
			"no end token was sampled, so there is none"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.episode.IDs != nil {
				tc.episode.Messages = tc.episode.Messages[:2]
			}
			ours, _ := encode(t, d, tc.episode, rl.TokenNone)
			theirs := d.tokens.EncodeAs(DrillText(tc.episode), token.Everything)
			i := 0
			for i < min(len(ours), len(theirs)) && ours[i] == theirs[i] {
				i++
			}
			if a, b := d.Text(ours[i:min(i+1, len(ours))]), d.Text(theirs[i:min(i+1, len(theirs))]); a != tc.ours ||
				!strings.HasPrefix(b, tc.theirs) || (b == "") != (tc.theirs == "") {
				t.Errorf("the first ids that differ are %q and %q, want %q and %q (%s)", a, b, tc.ours, tc.theirs, tc.why)
			}
		})
	}
}

func textsOf(calls []rl.Call) (texts []string) {
	for _, call := range calls {
		texts = append(texts, call.Text)
	}
	return texts
}

func TestParsedRepliesHaveTheirCalls(t *testing.T) {
	d := codec(t, "")
	for _, calls := range [][]string{nil, {"ls()"}, {"echo(content='it is <|end|> 🙂', file_name='a')"},
		{"ls()", "pwd()"}} {
		got := d.Parse(d.Reply(calls))
		if !slices.Equal(textsOf(got.Calls), calls) || got.Text != strings.Join(calls, "\n") || got.Malformed {
			t.Errorf("calls %q: got %+v", calls, got)
		}
	}
	for name, ids := range map[string][]int32{
		"unfinished":         d.tokens.Encode("ls()"),
		"yields with a text": append(d.tokens.Encode("ls()"), d.end),
		"calls nothing":      {d.call},
		"empty":              nil,
	} {
		if got := d.Parse(ids); got.Calls != nil || got.Malformed != (name == "calls nothing") {
			t.Errorf("%s: got %+v, want no calls", name, got)
		}
	}
}

func TestCodecNeedsItsTokens(t *testing.T) {
	bare := must.Get(token.Train(nil, 261, DrillTokens))(t)
	for where, want := range map[string]string{"": "", rl.BeforeEachAction: "_reward|>", "everywhere": "unknown"} {
		_, err := NewDrill(bare, where)
		must.Match(t, err, want)
	}
}
