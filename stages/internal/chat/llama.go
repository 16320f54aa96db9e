package chat

import (
	"strings"

	"rcgrpo/bfcl"
	"rcgrpo/stages/internal/token"
)

const llamaSystem = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|>" + llamaUser

const llamaUser = "<|start_header_id|>user<|end_header_id|>\n\n"

// llama is the layout of Llama-3.1-Instruct:
//
//	<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nPROMPT<|eot_id|>
//	<|start_header_id|>user<|end_header_id|>\n\nTOOLS AND TEXT<|eot_id|>
//	<|start_header_id|>assistant<|end_header_id|>\n\n{"name": NAME, "parameters": {...}}<|eot_id|>
//	<|start_header_id|>ipython<|end_header_id|>\n\n"RESULT AS JSON"<|eot_id|>...
//
// without line breaks between the messages. The tools are in the first request, so Begin ends right before its
// text. Requests lose the spaces around them. The template allows one call per reply; here several are separated
// by "; ", as the benchmark's decoder reads them. The date is the template's default.
var llama = Layout{
	Name:    "llama3.1",
	Decoder: "llama",
	handler: bfcl.LlamaHandler,
	stops:   []string{"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"},
	trims:   true,
	bare:    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n" + llamaSystem,
	head: "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nEnvironment: ipython\n" + llamaSystem +
		"Given the following functions, please respond with a JSON for a function call with its proper arguments " +
		"that best answers the given prompt.\n\nRespond in the format {\"name\": function name, \"parameters\": " +
		"dictionary of argument name and its value}.Do not use variables.\n\n",
	systemAfter: "26 Jul 2024\n\n",

	user:     llamaUser,
	userEnd:  "<|eot_id|>",
	header:   "<|start_header_id|>assistant<|end_header_id|>\n\n",
	between:  "; ",
	function: func(f any) string { return indented(f) + "\n\n" },
	call: func(name string, arguments any) []token.Part {
		return []token.Part{plainly(`{"name": "` + name + `", "parameters": ` + oneLine(arguments) + "}")}
	},
	results: func(results []string) []token.Part {
		var parts []token.Part
		for _, r := range results {
			parts = append(parts, all("<|start_header_id|>ipython<|end_header_id|>\n\n"),
				plainly(token.Quote(r)), all("<|eot_id|>"))
		}
		return parts
	},
	decode:    decodeLlama,
	written:   written{key: "parameters"},
	templates: []string{"93c0e9aa3629bbd77e68dbc0f5621f6e6b23aa8d74b932595cdb8d64684526d7"},
}

// decodeLlama decodes with the benchmark's decoder and, if that fails, as JSON. The official decoder evaluates a
// single object as Python, in which true, false and null are unknown names, although the model's template writes
// them.
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
	same := oneLine(object{{"name", call.get("name")}, {"arguments", call.get("parameters")}})
	return bfcl.DecodeQwen("<tool_call>\n" + same + "\n</tool_call>")
}
