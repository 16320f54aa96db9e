package stages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/rl"
)

// The notes of paper.hcl count the tasks whose expert trajectory is longer than their `context`. All of
// them are of the category long_context: the others lack its long observations.
func TestExpertTrajectoriesBeyondTheContextOfThePapersFiles(t *testing.T) {
	benchmark := fixtures.Benchmark(t)
	data := must.Get(bfcl.LoadData(benchmark))(t)
	for _, family := range []struct{ fixture, template, layout, first string }{
		{"hf/tokenizers/qwen2_5.tokenizer.json", "hf/chat/qwen2_5.jinja", "qwen2.5", "<|endoftext|>"},
		{"hf/tokenizers/llama3_1.tokenizer.json", "hf/chat/llama3_1.jinja", "llama3.1", "<|begin_of_text|>"},
	} {
		t.Run(family.layout, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name string, text []byte, err error) {
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
				}
				must.OK(t, err)
			}
			write(checkpoint.TokenizerFile, fixtures.Read(t, family.fixture), nil)
			write(chat.TemplateFile, fixtures.Read(t, family.template), nil)
			write("tokenizer_config.json", []byte(`{"bos_token": "`+family.first+`"}`), nil)
			must.OK(t, (checkpoint.Meta{Layout: family.layout}).Write(dir))
			codec := must.Get(checkpoint.OpenCodec(dir, benchmark))(t)
			long := 0
			for _, task := range data.Tasks() {
				if !strings.Contains(task.ID, "long_context") {
					continue
				}
				e := must.Get(rl.Expert(task.Merged(), bfcl.Settings{Data: data, Today: bfcl.ReleaseDate}))(t)
				ids, _, err := chat.Encode(codec, e, rl.TokenNone)
				must.OK(t, err)
				if len(ids) > 16384 {
					long++
				}
			}
			text := must.Get(os.ReadFile(filepath.Join(fixtures.Root(t), "experiments", "paper.hcl")))(t)
			const said = "42 of the benchmark's 800 tasks have expert trajectories of more than 16,384 tokens"
			if long != 42 || !strings.Contains(string(text), said) {
				t.Errorf("%d expert trajectories have more than 16,384 tokens, want the 42 that the notes of paper.hcl name: %v",
					long, strings.Contains(string(text), said))
			}
		})
	}
}
