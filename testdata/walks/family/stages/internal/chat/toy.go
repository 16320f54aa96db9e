package chat

import (
	"rcgrpo/bfcl"
	"rcgrpo/stages/internal/token"
)

// NewToy makes the codec of a family that lays out conversations as Qwen2.5 does and ends replies by one token only.
func NewToy(tokens *token.Tokenizer, template *Template, functions Functions, position string) (*Chat, error) {
	return newChat(family{
		name:  "Toy",
		stops: []string{"<|im_end|>"},
		first: "<|im_start|>user\n",
		function: func(f any) (string, error) {
			text, err := compactJSON.text(f)
			return "\n" + text, err
		},
		call: func(name string, arguments any) ([]token.Part, error) {
			text, err := compactJSON.text(arguments)
			return []token.Part{all("<tool_call>"), plainly("\n{\"name\": \"" + name + "\", \"arguments\": " + text + "}\n"), all("</tool_call>")}, err
		},
		between: "\n",
		results: func(results []string) []token.Part {
			parts := []token.Part{all("<|im_start|>user")}
			for _, r := range results {
				parts = append(parts, all("\n<tool_response>\n"), plainly(r), all("\n</tool_response>"))
			}
			return append(parts, all("<|im_end|>\n"))
		},
		decode: bfcl.DecodeQwen,
	}, tokens, template, functions, position)
}
