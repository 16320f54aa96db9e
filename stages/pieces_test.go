package stages

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

func TestPiecesHaveTheMask(t *testing.T) {
	expert := &rl.Trajectory{Token: rl.TokenHigh, Messages: []rl.Message{
		{Role: rl.RoleUser, Text: "List it."},
		{Role: rl.RoleAssistant, Calls: []string{"ls()"}},
		{Role: rl.RoleTool, Text: "lamp"},
		{Role: rl.RoleAssistant},
	}}
	tokenizer := must.Get(token.Train([]string{chat.DrillText(expert)}, 300,
		append(slices.Clone(chat.DrillTokens), chat.RewardTokens...)))(t)
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, checkpoint.TokenizerFile), tokenizer.JSON(), 0o600))
	meta := checkpoint.Meta{Layout: checkpoint.Drill, Position: rl.BeforeEachAction, Condition: rl.TokenHigh,
		Trained: true}
	must.OK(t, meta.Write(dir))
	cut := must.Get(Pieces(dir, ""))(t)
	var texts []string
	for _, p := range cut(expert) {
		if p.Tokens < 1 {
			t.Errorf("%q has %d tokens", p.Text, p.Tokens)
		}
		if p.Mask {
			p.Text = "[[" + p.Text + "]]"
		}
		texts = append(texts, p.Text)
	}
	want := []string{"<|user|>List it.<|assistant|><|high_reward|>", "[[ls()<|call|>]]",
		"lamp<|assistant|><|high_reward|>", "[[<|end|>]]"}
	if !slices.Equal(texts, want) {
		t.Errorf("got %q\nwant %q", texts, want)
	}
	if _, err := Pieces(t.TempDir(), ""); err == nil {
		t.Error("a folder without a checkpoint was taken")
	}
}
