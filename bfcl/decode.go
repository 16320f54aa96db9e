package bfcl

import (
	"strings"

	"rcgrpo/bfcl/internal/py"
)

// DecodeQwen decodes Qwen's function-calling format like the official decoder: JSON objects with
// name and arguments between <tool_call> and </tool_call>, each tag on its own line. It skips
// invalid JSON; other shapes are errors.
func DecodeQwen(text string) ([]string, error) {
	items := qwenItems(text)
	for _, item := range items {
		if _, ok := item.(*py.Dict); !ok {
			return nil, py.Raise("ValueError", "a tool call is not an object")
		}
	}
	calls := []string{}
	for _, item := range items {
		call, err := jsonCall(item, "arguments", true)
		if err != nil {
			return nil, err
		}
		calls = append(calls, call)
	}
	return calls, nil
}

// qwenItems returns the JSON values of the tool calls in a reply.
func qwenItems(text string) (items []py.Value) {
	const before, after = "<tool_call>\n", "\n</tool_call>"
	for {
		start := strings.Index(text, before)
		if start < 0 {
			return items
		}
		text = text[start+len(before):]
		end := strings.Index(text, after)
		if end < 0 {
			return items
		}
		if v, err := py.FromJSON([]byte(text[:end])); err == nil {
			items = append(items, v)
		}
		text = text[end+len(after):]
	}
}

// DecodeLlama31 decodes Llama 3.1's function-calling format like the official decoder: JSON objects
// with name and parameters, separated by semicolons, or one Python expression if the text has no
// semicolon.
func DecodeLlama31(text string) ([]string, error) {
	text = strings.ReplaceAll(text, "<|python_tag|>", "")
	var items []py.Value
	if strings.Contains(text, ";") {
		for piece := range strings.SplitSeq(text, ";") {
			v, err := py.FromJSON([]byte(piece))
			if err != nil {
				return nil, err
			}
			items = append(items, v)
		}
	} else {
		e, err := py.Parse(text)
		if err != nil {
			return nil, err
		}
		v, err := py.Eval(e, nil)
		if err != nil {
			return nil, err
		}
		if _, ok := v.(*py.Dict); ok {
			items = []py.Value{v}
		} else if items, err = py.Iterate(v); err != nil {
			return nil, err
		}
	}
	calls := []string{}
	for _, item := range items {
		call, err := jsonCall(item, "parameters", false)
		if err != nil {
			return nil, err
		}
		calls = append(calls, call)
	}
	return calls, nil
}

// jsonCall writes an object as name(k=repr(v),...). If textual is true, a string of arguments may
// itself be JSON.
func jsonCall(item py.Value, key string, textual bool) (string, error) {
	name, err := py.GetItem(item, "name")
	if err != nil {
		return "", err
	}
	v, err := py.GetItem(item, key)
	if err != nil {
		return "", err
	}
	if textual {
		if err := py.Hashable(name); err != nil {
			return "", err
		}
		if s, ok := v.(string); ok {
			if v, err = py.FromJSON([]byte(s)); err != nil {
				return "", err
			}
		}
	}
	args, ok := v.(*py.Dict)
	if !ok {
		return "", py.AttributeError(v, "items")
	}
	var list []string
	for k, v := range args.All() {
		list = append(list, py.Str(k)+"="+py.Repr(v))
	}
	return py.Str(name) + "(" + strings.Join(list, ",") + ")", nil
}
