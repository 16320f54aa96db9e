package bfcl

import (
	"encoding/json"
	"fmt"
	"strings"

	"rcgrpo/bfcl/internal/py"
)

// Names of the models whose official handlers NewHandlerChat implements, as in the official list of models.
const (
	QwenHandler  = "Qwen/Qwen3-8B-FC"                    // class QwenFCHandler
	LlamaHandler = "meta-llama/Llama-3.1-8B-Instruct-FC" // class LlamaHandler_3_1
)

// HandlerChat is a conversation as an official handler of local models stores it (bfcl-eval 2026.3.23). The handler
// writes the whole prompt again before each reply, with documents and calls in its own form.
type HandlerChat struct {
	handler   string
	documents []string // tool documents, as the handler writes them
	messages  []handlerMessage
}

// handlerMessage is a user message, the result of one call (role "tool"), or a reply of the model. Only a reply of the
// Qwen handler has reasoning and calls.
type handlerMessage struct {
	role, text string
	reasoning  string     // text between <think> and </think>
	calls      []py.Value // parsed tool calls; the prompt repeats them in place of the text
}

// Documents returns the documents of tools as the official driver passes them to the handlers of local models.
func (d *Data) Documents(names []string) ([]json.RawMessage, error) {
	var documents []json.RawMessage
	for _, name := range names {
		raw, err := d.Document(name)
		if err != nil {
			return nil, err
		}
		doc, err := readDocument(raw, false)
		if err != nil {
			return nil, err
		}
		text, err := py.JSON(doc)
		if err != nil {
			return nil, err
		}
		documents = append(documents, json.RawMessage(text))
	}
	return documents, nil
}

// NewHandlerChat starts a conversation with the documents of the tools on offer at its start (Data.Documents). An
// unknown handler and a document that is not JSON are errors.
func NewHandlerChat(handler string, documents []json.RawMessage) (*HandlerChat, error) {
	c := &HandlerChat{handler: handler}
	if handler != QwenHandler && handler != LlamaHandler {
		return nil, fmt.Errorf("the official handler %q is not implemented", handler)
	}
	write := py.JSON
	if handler == LlamaHandler {
		write = indentedJSON
	}
	for _, raw := range documents {
		text := ""
		v, err := py.FromJSON(raw)
		if err == nil {
			text, err = write(v)
		}
		if err != nil {
			return nil, fmt.Errorf("tool document: %w", err)
		}
		c.documents = append(c.documents, text)
	}
	return c, nil
}

// User adds a user message.
func (c *HandlerChat) User(text string) {
	c.messages = append(c.messages, handlerMessage{role: "user", text: text})
}

// Results adds the results of the calls of a reply.
func (c *HandlerChat) Results(results []string) {
	for _, text := range results {
		c.messages = append(c.messages, handlerMessage{role: "tool", text: text})
	}
}

// Reply adds a reply of the model and returns its calls. A reply that the handler cannot decode has none.
func (c *HandlerChat) Reply(text string) []string {
	m := handlerMessage{role: "assistant", text: text}
	decode := DecodeLlama31
	if c.handler == QwenHandler {
		decode = DecodeQwen
		m.calls = qwenItems(text) // also the calls within the reasoning
		if parts := strings.Split(text, "</think>"); len(parts) > 1 {
			opened := strings.Split(strings.TrimRight(parts[0], "\n"), "<think>")
			m.reasoning = strings.TrimLeft(opened[len(opened)-1], "\n")
			text = strings.TrimLeft(parts[len(parts)-1], "\n")
		}
		m.text = text
		if len(m.calls) > 0 {
			m.text = ""
		}
	}
	c.messages = append(c.messages, m)
	calls, err := decode(text)
	if err != nil {
		return nil
	}
	return calls
}

// Prompt returns the text before the next reply. An error is an exception of the handler, which ends the official
// episode without a result.
func (c *HandlerChat) Prompt() (string, error) {
	if c.handler == QwenHandler {
		return c.qwenPrompt()
	}
	return c.llamaPrompt(), nil
}

const handlerLlamaSystem = "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n" +
	"Environment: ipython\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|>"

const handlerLlamaTools = "Given the following functions, please respond with a JSON for a function call with its " +
	"proper arguments that best answers the given prompt.\n\nRespond in the format {\"name\": function name, " +
	"\"parameters\": dictionary of argument name and its value}.Do not use variables.\n\n"

// llamaPrompt reproduces LlamaHandler_3_1._format_prompt. The first user message contains the tool documents.
func (c *HandlerChat) llamaPrompt() string {
	var b strings.Builder
	b.WriteString(handlerLlamaSystem)
	first := true
	for _, m := range c.messages {
		role, text := m.role, py.Strip(m.text)
		if role == "tool" {
			role, text = "ipython", m.text
		}
		b.WriteString("<|start_header_id|>" + role + "<|end_header_id|>\n\n")
		if role == "user" && first {
			first = false
			b.WriteString(handlerLlamaTools)
			for _, doc := range c.documents {
				b.WriteString(doc + "\n\n")
			}
		}
		b.WriteString(text + "<|eot_id|>")
	}
	return b.String() + "<|start_header_id|>assistant<|end_header_id|>\n\n"
}

const handlerQwenHead = "<|im_start|>system\n# Tools\n\nYou may call one or more functions to assist with the user " +
	"query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>"

const handlerQwenTail = "\n</tools>\n\nFor each function call, return a json object with function name and arguments " +
	"within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": " +
	"<args-json-object>}\n</tool_call><|im_end|>\n"

// qwenPrompt reproduces QwenFCHandler._format_prompt. Reasoning before the last user message is omitted.
func (c *HandlerChat) qwenPrompt() (string, error) {
	var b strings.Builder
	if len(c.documents) > 0 {
		b.WriteString(handlerQwenHead)
		for _, doc := range c.documents {
			b.WriteString("\n" + doc)
		}
		b.WriteString(handlerQwenTail)
	}
	asked := 0 // index of the last user message
	for i, m := range c.messages {
		if m.role == "user" {
			asked = i
		}
	}
	for i, m := range c.messages {
		switch m.role {
		case "user":
			b.WriteString("<|im_start|>user\n" + m.text + "<|im_end|>\n")
		case "tool":
			if i == 0 || c.messages[i-1].role != "tool" {
				b.WriteString("<|im_start|>user")
			}
			b.WriteString("\n<tool_response>\n" + m.text + "\n</tool_response>")
			if i == len(c.messages)-1 || c.messages[i+1].role != "tool" {
				b.WriteString("<|im_end|>\n")
			}
		default:
			b.WriteString("<|im_start|>assistant\n")
			text := m.text
			if i > asked && m.reasoning != "" {
				b.WriteString("<think>\n" + strings.Trim(m.reasoning, "\n") + "\n</think>\n\n")
				text = strings.TrimLeft(text, "\n")
			}
			b.WriteString(text)
			if err := writeQwenCalls(&b, m.calls); err != nil {
				return "", err
			}
			b.WriteString("<|im_end|>\n")
		}
	}
	return b.String() + "<|im_start|>assistant\n", nil
}

// writeQwenCalls writes the calls of a reply. As in the handler, a later call that equals the first one does not begin
// on a new line.
func writeQwenCalls(b *strings.Builder, calls []py.Value) error {
	for _, call := range calls {
		if !py.Equal(call, calls[0]) {
			b.WriteByte('\n')
		}
		if d, ok := call.(*py.Dict); ok && d.Has("function") {
			call, _ = d.Get("function")
		}
		d, ok := call.(*py.Dict)
		if !ok {
			return py.Raise("TypeError", "a tool call is not an object")
		}
		v, err := py.GetItem(d, "name")
		if err != nil {
			return err
		}
		name, ok := v.(string)
		if !ok {
			return py.Raise("TypeError", "can only concatenate str (not %q) to str", py.TypeName(v))
		}
		if v, err = py.GetItem(d, "arguments"); err != nil {
			return err
		}
		arguments, ok := v.(string)
		if !ok {
			if arguments, err = py.JSON(v); err != nil {
				return err
			}
		}
		b.WriteString("<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>")
	}
	return nil
}
