package chat

import (
	"strings"

	"rcgrpo/bfcl"
	"rcgrpo/stages/internal/token"
)

// NewLlama makes the codec of a Llama-3.1-Instruct folder:
//
//	<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nPROMPT<|eot_id|>
//	<|start_header_id|>user<|end_header_id|>\n\nTOOLS AND TEXT<|eot_id|>
//	<|start_header_id|>assistant<|end_header_id|>\n\n{"name": NAME, "parameters": {...}}<|eot_id|>
//	<|start_header_id|>ipython<|end_header_id|>\n\n"RESULT AS JSON"<|eot_id|>...
//
// without line breaks between the messages. The tools stand in the first request, so Begin ends right before its text,
// and requests lose the spaces around them. The template allows one call per reply; several are separated by "; ", as
// the benchmark's decoder reads them. position is as for NewQwen. A template that lays out conversations otherwise is
// refused.
func NewLlama(tokens *token.Tokenizer, template *Template, functions Functions, position string) (*Chat, error) {
	return newChat(family{
		name:  "Llama 3.1",
		stops: []string{"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"},
		trims: true,
		function: func(f any) (string, error) {
			text, err := indentedJSON.text(f)
			return text + "\n\n", err
		},
		call: func(name string, arguments any) ([]token.Part, error) {
			text, err := compactJSON.text(arguments)
			return []token.Part{plainly(`{"name": "` + name + `", "parameters": ` + text + "}")}, err
		},
		between: "; ",
		results: func(results []string) []token.Part {
			var parts []token.Part
			for _, r := range results {
				parts = append(parts, all("<|start_header_id|>ipython<|end_header_id|>\n\n"),
					plainly(string(compactJSON.quote(nil, r))), all("<|eot_id|>"))
			}
			return parts
		},
		decode: decodeLlama,
	}, tokens, template, functions, position)
}

// decodeLlama is the benchmark's decoder and, where that fails, JSON. The official one evaluates a single object as
// Python, to which true, false and null are unknown names, although the model's own template writes them.
func decodeLlama(text string) ([]string, error) {
	calls, err := bfcl.DecodeLlama31(text)
	if err == nil {
		return calls, nil
	}
	v, jsonErr := parseJSON([]byte(strings.ReplaceAll(text, "<|python_tag|>", "")))
	call, ok := v.(object)
	if jsonErr != nil || !ok {
		return nil, err
	}
	same, jsonErr := compactJSON.text(newObject("name", call["name"].value, "arguments", call["parameters"].value))
	if jsonErr != nil {
		return nil, err
	}
	return bfcl.DecodeQwen("<tool_call>\n" + same + "\n</tool_call>")
}
