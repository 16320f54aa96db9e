package reports

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"rcgrpo/reports/page"
	"rcgrpo/stages/rl"
)

func TestTranscriptDistinguishesSampledFromGivenText(t *testing.T) {
	got := transcript(&rl.Trajectory{Task: "drill_1", Token: rl.TokenLow, Reward: 1, Stop: rl.StopDone,
		Mask: []bool{false, false, true, true, false}, Logp: []float32{0, 0, -0.5, -1.5, 0},
		Messages: []rl.Message{
			{Role: rl.RoleUser, Text: "List.", From: 0, To: 2},
			{Role: rl.RoleAssistant, Text: "[ls()]", Calls: []string{"ls()"}, From: 2, To: 5},
			{Role: rl.RoleTool, Turn: 1, Text: "a\nb", Several: []string{"a", "b"}},
		}}, "seed 3")
	user, policy, tool := got.Messages[0], got.Messages[1], got.Messages[2]
	if user.Sampled != 0 || user.Tokens != 2 {
		t.Errorf("user: got %d of %d tokens sampled, want 0 of 2", user.Sampled, user.Tokens)
	}
	if policy.Sampled != 2 || policy.Tokens != 3 || math.Abs(policy.Logp+1) > 1e-6 { // float32 logprobs
		t.Errorf("policy: got %d of %d tokens, mean logprob %v, want 2 of 3 and -1", policy.Sampled, policy.Tokens,
			policy.Logp)
	}
	if tool.Turn != 2 || !slices.Equal(tool.Results, []string{"a", "b"}) || tool.Text != "" {
		t.Errorf("tool: got %+v", tool)
	}
	further := transcript(&rl.Trajectory{Segments: []rl.Segment{{Mask: []bool{false, true}, Logp: []float32{0, -2},
		Messages: []rl.Message{{Role: rl.RoleAssistant, Text: "[help()]", To: 2}}}}}, "").Further
	if len(further) != 1 || further[0][0].Sampled != 1 || further[0][0].Logp != -2 {
		t.Errorf("the further sequence of an agent: got %+v", further)
	}
}

func TestTranscriptsAreChosenByHashAndHalfOfThemFailed(t *testing.T) {
	for name, tc := range map[string]struct{ failed, passed, wantFailed, wantPassed int }{
		"plenty of both":     {100, 100, 20, 20},
		"few failures":       {3, 100, 3, 37},
		"few successes":      {100, 5, 35, 5},
		"few of both":        {4, 6, 4, 6},
		"failures only":      {100, 0, 40, 0},
		"nothing to show":    {0, 0, 0, 0},
		"exactly half, half": {20, 20, 20, 20},
	} {
		var forward, backward page.Transcripts
		var all []page.Transcript
		for i := range tc.failed + tc.passed {
			one := rl.Trajectory{Task: fmt.Sprint(i)}
			if i >= tc.failed {
				one.Reward = 1
			}
			all = append(all, transcript(&one, "seed 1"))
		}
		for i := range all {
			forward.Add(all[i])
			backward.Add(all[len(all)-1-i])
		}
		failed, passed := forward.Chosen()
		if forward.FailedOf != tc.failed || forward.PassedOf != tc.passed || len(failed) != tc.wantFailed ||
			len(passed) != tc.wantPassed {
			t.Errorf("%s: got %d of %d failed and %d of %d passed, want %d and %d", name, len(failed), forward.FailedOf,
				len(passed), forward.PassedOf, tc.wantFailed, tc.wantPassed)
		}
		failedBack, passedBack := backward.Chosen()
		equal(t, name+", read in another order", slices.Concat(failedBack, passedBack), slices.Concat(failed, passed))
	}
}

func TestPackedTextUnpacksAndRequiresNoEscape(t *testing.T) {
	text := strings.Repeat("</script>\"'&+", 99)
	p := page.Packed([]byte(text))
	if strings.ContainsAny(p, `+/="'&<>`) {
		t.Errorf("the attribute holds characters that need an escape: %s", p)
	}
	if got, err := page.Unpacked(p, int64(len(text))); err != nil || string(got) != text {
		t.Errorf("got %q (%v)", got, err)
	}
}

func TestTokenStripDistinguishesGivenFromSampledTokens(t *testing.T) {
	trajectory := &rl.Trajectory{Mask: []bool{false, true, true, true, true, false},
		Logp: []float32{0, 0, -0.49, -0.5, -40, 0}}
	if got, want := TokenStrip(trajectory, rl.Message{From: 0, To: 6}), "·▁▁▂█·"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, m := range []rl.Message{{From: 0, To: 1}, {From: 2, To: 2}, {From: 0, To: 7}, {From: -1, To: 2}} {
		equal(t, fmt.Sprintf("%d to %d", m.From, m.To), TokenStrip(trajectory, m), "")
	}
}
