package chat

import (
	_ "embed"

	"rcgrpo/bfcl"
	"rcgrpo/stages/internal/token"
)

// qwenTemplate is the chat template of Qwen2.5-Instruct (Apache License 2.0, Alibaba Cloud).
//
//go:embed qwen2.5.jinja
var qwenTemplate string

const (
	qwenSystem  = "<|im_start|>system\n" + qwenDefault
	qwenDefault = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
)

// qwen is the layout of Qwen2.5-Instruct:
//
//	<|im_start|>system\nPROMPT AND TOOLS<|im_end|>\n<|im_start|>user\nTEXT<|im_end|>\n<|im_start|>assistant\n
//	<tool_call>\n{"name": NAME, "arguments": {...}}\n</tool_call><|im_end|>\n
//	<|im_start|>user\n<tool_response>\nRESULT\n</tool_response><|im_end|>\n<|im_start|>assistant\n...
//
// The newline after the end of a reply is given, not sampled. Several calls of a reply are on separate lines.
var qwen = Layout{
	Name:    "qwen2.5",
	Decoder: "qwen2",
	handler: bfcl.QwenHandler,
	stops:   []string{"<|im_end|>", "<|endoftext|>"},
	bare:    qwenSystem + "<|im_end|>\n<|im_start|>user\n",
	head: qwenSystem + "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n" +
		"You are provided with function signatures within <tools></tools> XML tags:\n<tools>",
	tail: "\n</tools>\n\nFor each function call, return a json object with function name and arguments within " +
		"<tool_call></tool_call> XML tags:\n<tool_call>\n" +
		`{"name": <function-name>, "arguments": <args-json-object>}` +
		"\n</tool_call><|im_end|>\n<|im_start|>user\n",
	systemAfter:   "<|im_start|>system\n",
	systemDefault: qwenDefault,

	first:    "<|im_start|>user\n",
	user:     "<|im_start|>user\n",
	userEnd:  "<|im_end|>\n",
	header:   "<|im_start|>assistant\n",
	after:    "\n",
	between:  "\n",
	function: func(f any) string { return "\n" + oneLine(f) },
	call: func(name string, arguments any) []token.Part {
		return []token.Part{all("<tool_call>"),
			plainly("\n{\"name\": \"" + name + "\", \"arguments\": " + oneLine(arguments) + "}\n"), all("</tool_call>")}
	},
	results: func(results []string) []token.Part {
		parts := []token.Part{all("<|im_start|>user")}
		for _, r := range results {
			parts = append(parts, all("\n<tool_response>\n"), plainly(r), all("\n</tool_response>"))
		}
		return append(parts, all("<|im_end|>\n"))
	},
	decode:    bfcl.DecodeQwen,
	written:   written{key: "arguments", open: "<tool_call>\n", close: "\n</tool_call>", marks: true},
	templates: []string{"55b2f4a26ac9ee719330a61a0c39d9e538b0e9322212f048326318cff4f8674a"},
	Template:  qwenTemplate,
}
