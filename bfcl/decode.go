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
	for _, item := range items { // before any of them is written
		if _, ok := item.(*py.Dict); !ok {
			return nil, py.Raise("ValueError", "a tool call is not an object")
		}
	}
	return callTexts(items, qwenCall)
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
	return callTexts(items, llamaCall)
}

// callTexts returns text(item) for each item, or the first error.
func callTexts(items []py.Value, text func(item py.Value) (string, error)) ([]string, error) {
	calls := []string{}
	for _, item := range items {
		call, err := text(item)
		if err != nil {
			return nil, err
		}
		calls = append(calls, call)
	}
	return calls, nil
}

// qwenCall writes an object with name and arguments as a call. The official decoder makes the name a key of a dict, and
// accepts a string with JSON as arguments.
func qwenCall(item py.Value) (string, error) {
	name, arguments, err := callParts(item, "arguments")
	if err == nil {
		err = py.Hashable(name)
	}
	if err != nil {
		return "", err
	}
	if s, ok := arguments.(string); ok {
		if arguments, err = py.FromJSON([]byte(s)); err != nil {
			return "", err
		}
	}
	return callText(name, arguments)
}

// llamaCall writes an object with name and parameters as a call.
func llamaCall(item py.Value) (string, error) {
	name, parameters, err := callParts(item, "parameters")
	if err != nil {
		return "", err
	}
	return callText(name, parameters)
}

// callParts returns item["name"] and item[key].
func callParts(item py.Value, key string) (name, arguments py.Value, err error) {
	if name, err = py.GetItem(item, "name"); err != nil {
		return nil, nil, err
	}
	arguments, err = py.GetItem(item, key)
	return name, arguments, err
}

// callText writes a call as name(k=repr(v),...). Arguments that are not a dict are an AttributeError.
func callText(name, arguments py.Value) (string, error) {
	args, ok := arguments.(*py.Dict)
	if !ok {
		return "", py.AttributeError(arguments, "items")
	}
	var list []string
	for k, v := range args.All() {
		list = append(list, py.Str(k)+"="+py.Repr(v))
	}
	return py.Str(name) + "(" + strings.Join(list, ",") + ")", nil
}
