package checkpoint

import (
	"fmt"

	"rcgrpo/bfcl"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// OpenCodec opens the codec of the checkpoint or Hugging Face folder in dir without loading weights. The prompts of
// instruct models contain the documents of the tools, which are read from the benchmark's data in the folder benchmark.
func OpenCodec(dir, benchmark string) (rl.Codec, error) {
	meta, tokenizer, err := readPolicy(dir)
	if err != nil {
		return nil, err
	}
	return codecOf(meta, tokenizer, dir, benchmark)
}

// codecOf returns the codec of a checkpoint's layout for the benchmark's tools, and for others that have documents.
func codecOf(m Meta, tokenizer *token.Tokenizer, dir, benchmark string) (rl.Codec, error) {
	if m.Layout == Drill {
		return chatCodec(m, tokenizer, dir, nil)
	}
	if benchmark == "" {
		return nil, fmt.Errorf("the layout %q contains the documents of tools from the benchmark's data: name its "+
			"folder in the site file, data { bfcl = \"...\" }", m.Layout)
	}
	data, err := bfcl.LoadData(benchmark)
	if err != nil {
		return nil, err
	}
	functions, err := chat.FunctionsOf(data)
	if err != nil {
		return nil, err
	}
	return chatCodec(m, tokenizer, dir, functions)
}

// chatCodec returns the codec of a checkpoint's layout for conversations whose tools are among functions or have
// documents of their own. Every layout but that of the drills is the chat template in the folder.
func chatCodec(m Meta, tokenizer *token.Tokenizer, dir string, functions chat.Functions) (chat.Codec, error) {
	if m.Layout == Drill {
		return chat.NewDrill(tokenizer, m.Position)
	}
	template, err := chat.ReadTemplate(dir, m.settings())
	if err != nil {
		return nil, err
	}
	return template.New(tokenizer, functions, m.Position)
}

// settings returns the settings with which the chat template of a checkpoint is read again.
func (m Meta) settings() chat.Settings {
	s := chat.Settings{Variables: m.Variables}
	if m.Layout == chat.Signatures {
		s.Layout = chat.Signatures
	}
	return s
}

// metaOf returns the Meta of a folder whose template was read with the settings.
func metaOf(s chat.Settings) Meta {
	m := Meta{Layout: FolderTemplate, Variables: s.Variables}
	if s.Layout == chat.Signatures {
		m.Layout = chat.Signatures
	}
	return m
}
