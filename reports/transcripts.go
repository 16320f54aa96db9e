package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"rcgrpo/reports/page"
	"rcgrpo/stages/rl"
)

// transcript returns the part of a trajectory that a page shows.
func transcript(t *rl.Trajectory, seed string) page.Transcript {
	kept := page.Transcript{Task: t.Task, Category: t.Category, Seed: seed, Token: t.Token, Origin: t.Origin,
		Reward: float64(t.Reward), Official: t.Official, Failure: t.Failure, Stop: t.Stop, Calls: t.Calls, Errors: t.Errors,
		Hash: hexSum(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%s", t.Task, seed, t.Member, t.Token))}
	for i, sequence := range t.Sequences() {
		if said := utterances(sequence); i == 0 {
			kept.Messages = said
		} else {
			kept.Further = append(kept.Further, said)
		}
	}
	return kept
}

// utterances returns the messages of a sequence.
func utterances(t *rl.Trajectory) (all []page.Utterance) {
	for _, m := range t.Messages {
		u := page.Utterance{Role: m.Role, Turn: m.Turn + 1, Text: m.Text, Calls: m.Calls}
		if m.Role == rl.RoleTool {
			u.Text, u.Results = "", m.Results()
		}
		mask, logp := tokensOf(t, m)
		u.Tokens, u.Strip = len(mask), TokenStrip(t, m)
		for i, sampled := range mask {
			if sampled {
				u.Sampled++
				u.Logp += float64(logp[i])
			}
		}
		u.Logp /= float64(max(1, u.Sampled))
		all = append(all, u)
	}
	return all
}

// tokensOf returns the mask and the logprobs of a message, or nil if its bounds are invalid.
func tokensOf(t *rl.Trajectory, m rl.Message) ([]bool, []float32) {
	if m.From < 0 || m.From >= m.To || m.To > min(len(t.Mask), len(t.Logp)) {
		return nil, nil
	}
	return t.Mask[m.From:m.To], t.Logp[m.From:m.To]
}

// TokenStrip returns a character for each token of a message: StripGiven for a given token, a block for a sampled one,
// the higher the less likely (half a nat per step). It is empty if no token was sampled.
func TokenStrip(t *rl.Trajectory, m rl.Message) string {
	mask, logp := tokensOf(t, m)
	if !slices.Contains(mask, true) {
		return ""
	}
	blocks, strip := []rune(page.StripBlocks), make([]rune, len(mask))
	for i, sampled := range mask {
		if strip[i] = page.StripGiven; sampled {
			strip[i] = blocks[min(len(blocks)-1, max(0, int(-2*logp[i])))]
		}
	}
	return string(strip)
}

// transcriptParts returns the transcripts of every arm, in the order of the arms.
func (s *Study) transcriptParts() []page.Part {
	sorted := slices.Clone(s.Transcripts)
	sortByLabel(sorted, s.labels(), func(t *page.Transcripts) string { return t.Label })
	var parts []page.Part
	for _, t := range sorted {
		if failed, passed := t.Chosen(); len(failed)+len(passed) > 0 {
			parts = append(parts, page.Part{Talks: &page.Talks{Label: t.Label, Summary: t.Summary(),
				Episodes: slices.Concat(failed, passed)}})
		}
	}
	return parts
}

// exampleTables show one expert and one failed trajectory of each data set with reward tokens as the policy reads them,
// a row for each line: the paper's examples. Only the first seed of a data set is shown.
func (s *Study) exampleTables() []page.Part {
	var parts []page.Part
	shown := map[string]bool{}
	for _, d := range s.DataSets {
		x := &d.Examples
		if len(x.Passed) == 0 || len(x.Failed) == 0 || shown[d.Label] {
			continue
		}
		shown[d.Label] = true
		parts = slices.Concat(parts, s.exampleTable(&d, "expert", &x.Passed[0], x.PassedOf).Parts(""),
			s.exampleTable(&d, "failed", &x.Failed[0], x.FailedOf).Parts(""))
	}
	return parts
}

func (s *Study) exampleTable(d *DataSet, kind string, x *page.Transcript, of int) *page.Table {
	t := &page.Table{ID: "example-" + kind + "-" + page.Slug(d.Label), Folded: true,
		Columns: page.Columns("<Role", "<Text"),
		Title: fmt.Sprintf("Example of %s: %s trajectory", d.Label, map[string]string{"expert": "an expert",
			"failed": "a failed"}[kind]),
		Lead: fmt.Sprintf("Task %s, category %s, origin %s, token %s: the one of %d with the smallest hash of its name.",
			x.Task, x.Category, x.Origin, cmp.Or(x.Token, "none"), of),
		Notes: []string{"The messages in the policy's order, with the reward token where fine-tuning puts it. The markers " +
			"with which the model's chat template surrounds each message are left out."}}
	position := s.tokenPosition()
	source := page.SourceOf(d.Source, fmt.Sprintf("the %s trajectory with the smallest hash", kind), "as recorded")
	add := func(role, text string) {
		for line := range strings.SplitSeq(text, "\n") {
			t.Add(page.NoArm, page.Text("%s", role).From(source), page.Text("%s", line).From(source))
		}
	}
	users := 0
	for _, u := range x.Messages {
		switch u.Role {
		case rl.RoleUser:
			if users++; users == 1 && position == rl.FirstUser && x.Token != rl.TokenNone {
				u.Text += rl.GoalBefore + rewardText[x.Token] + rl.GoalAfter
			}
			add(u.Role, u.Text)
		case rl.RoleTool:
			add(u.Role, strings.Join(u.Results, "\n"))
		default:
			text := strings.Join(u.Calls, "\n")
			if u.Sampled > 0 { // the policy's own words
				text = u.Text
			}
			if position == rl.BeforeEachAction {
				text = rewardText[x.Token] + text
			}
			add(u.Role, text)
		}
	}
	return t
}

// rewardText is the text of a reward token in the policy's prompt.
var rewardText = map[string]string{rl.TokenHigh: rl.HighReward, rl.TokenLow: rl.LowReward}

// tokenPosition returns where the fine-tuning stages of the study put the reward token; "" without such a stage, or if
// they differ.
func (s *Study) tokenPosition() string {
	position := ""
	for _, r := range s.Stages {
		text := strings.Trim(r.Settings["tokens.position"], `"`)
		if r.Kind != "rctp-ft" || text == position {
			continue
		}
		if position != "" {
			return ""
		}
		position = text
	}
	return position
}
