package checkpoint

import (
	"fmt"

	"rcgrpo/bfcl"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// OpenCodec opens the chat layout of the checkpoint or Hugging Face folder in dir without loading weights. The
// layouts of instruct models contain the documents of the tools, which are read from the benchmark's data.
func OpenCodec(dir, benchmark string) (rl.Codec, error) {
	meta, tokenizer, err := readPolicy(dir)
	if err != nil {
		return nil, err
	}
	return codecOf(meta, tokenizer, dir, benchmark)
}

func codecOf(m Meta, tokenizer *token.Tokenizer, dir, benchmark string) (rl.Codec, error) {
	if m.Family == Drill {
		return talkOf(m, tokenizer, dir, nil)
	}
	if benchmark == "" {
		return nil, fmt.Errorf("the layout %q contains the documents of tools from the benchmark's data: name its "+
			"folder in the site file, data { bfcl = \"...\" }", m.Family)
	}
	data, err := bfcl.LoadData(benchmark)
	if err != nil {
		return nil, err
	}
	functions, err := chat.FunctionsOf(data)
	if err != nil {
		return nil, err
	}
	return talkOf(m, tokenizer, dir, functions)
}

// talkOf opens the chat layout of a checkpoint for conversations whose tools are the functions or have documents.
func talkOf(m Meta, tokenizer *token.Tokenizer, dir string, functions chat.Functions) (chat.Talk, error) {
	if err := checkTemplate(m, dir); err != nil {
		return nil, err
	}
	return newTalk(m, tokenizer, functions)
}

// checkTemplate returns an error unless the folder's chat template is a published one of the checkpoint's layout.
func checkTemplate(m Meta, dir string) error {
	if m.Family == Drill {
		return nil
	}
	layout, err := chat.LayoutNamed(m.Family)
	if err != nil {
		return err
	}
	return layout.CheckTemplate(dir)
}

// newTalk is talkOf for a folder whose template was checked.
func newTalk(m Meta, tokenizer *token.Tokenizer, functions chat.Functions) (chat.Talk, error) {
	if m.Family == Drill {
		return chat.NewDrill(tokenizer, m.Position)
	}
	layout, err := chat.LayoutNamed(m.Family)
	if err != nil {
		return nil, err
	}
	return layout.New(tokenizer, functions, m.Position)
}
