package chat

import (
	"rcgrpo/bfcl"
	"rcgrpo/stages/internal/token"
)

// NewQwen makes the codec of a Qwen2.5-Instruct folder:
//
//	<|im_start|>system\nPROMPT AND TOOLS<|im_end|>\n<|im_start|>user\nTEXT<|im_end|>\n<|im_start|>assistant\n
//	<tool_call>\n{"name": NAME, "arguments": {...}}\n</tool_call><|im_end|>\n
//	<|im_start|>user\n<tool_response>\nRESULT\n</tool_response><|im_end|>\n<|im_start|>assistant\n...
//
// where the newline behind the end of a reply is given, not sampled. Several calls of a reply stand on lines of their
// own. position is where reward tokens stand, or "" for a policy without them. A template that lays out conversations
// otherwise is refused.
func NewQwen(tokens *token.Tokenizer, template *Template, functions Functions, position string) (*Chat, error) {
	return newChat(family{
		name:  "Qwen",
		stops: []string{"<|im_end|>", "<|endoftext|>"},
		first: "<|im_start|>user\n",
		function: func(f any) (string, error) {
			text, err := compactJSON.text(f)
			return "\n" + text, err
		},
		call: func(name string, arguments any) ([]token.Part, error) {
			text, err := compactJSON.text(arguments)
			return []token.Part{all("<tool_call>"),
				plainly("\n{\"name\": \"" + name + "\", \"arguments\": " + text + "}\n"), all("</tool_call>")}, err
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
