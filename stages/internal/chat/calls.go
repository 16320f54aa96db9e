package chat

import (
	"encoding/json"
	"regexp"
	"strings"

	"rcgrpo/bfcl"
	"rcgrpo/stages/internal/jinja"
)

// format is a form of calls in a reply.
type format struct {
	name        string
	open, close string // text before and after a call, or a list of calls; "": the whole reply is calls
	key         string // name of the member with the arguments
	list        bool   // the calls of a reply are one JSON list
	join        string // text between two calls; "" if a reply has one call at most
	// decode is the benchmark's decoder, which returns calls as Python text; nil: read is used
	decode func(text string) ([]string, error)
}

// formats are the forms of calls that a template may write. python is the form of the layout Signatures.
var (
	formats = []format{
		{name: "hermes", open: "<tool_call>\n", close: "\n</tool_call>", key: "arguments", join: "\n",
			decode: bfcl.DecodeQwen},
		{name: "list", open: "<tool_call>", close: "</tool_call>", key: "arguments", list: true},
		{name: "json", key: "parameters", join: "; ", decode: decodeLlama},
		{name: "jsonList", key: "arguments", list: true},
	}
	python = format{name: "python", join: "\n"}
)

// read returns the calls of a reply and the text outside them. Without readable calls, calls is nil, text the whole
// reply, and attempted reports whether the reply contains the beginning of a call.
func (f *format) read(text string) (outside string, calls []FunctionCall, attempted bool) {
	if f.name == python.name {
		return f.readPython(text)
	}
	if f.open == "" {
		trimmed := strings.TrimSpace(strings.ReplaceAll(text, "<|python_tag|>", ""))
		attempted = trimmed != text && strings.Contains(text, "<|python_tag|>") ||
			strings.HasPrefix(trimmed, map[bool]string{false: "{", true: "["}[f.list])
		pieces := [][]string{{trimmed}}
		if !f.list {
			pieces = append(pieces, strings.Split(trimmed, ";"))
		}
		for _, some := range pieces {
			if calls = f.objects(some); calls != nil {
				return "", calls, false
			}
		}
		return text, nil, attempted && trimmed != "[]"
	}
	var between, pieces []string
	for rest := text; ; {
		before, after, ok := strings.Cut(rest, f.open)
		call, next, closed := strings.Cut(after, f.close)
		if !ok || !closed {
			between = append(between, rest)
			break
		}
		between, pieces, rest = append(between, before), append(pieces, call), next
	}
	if calls = f.objects(pieces); calls == nil {
		empty := f.list && len(pieces) == 1 && strings.TrimSpace(pieces[0]) == "[]"
		return text, nil, !empty && strings.Contains(text, strings.TrimSpace(f.open))
	}
	return strings.TrimRightFunc(strings.Join(between, ""), jinja.Space), calls, false
}

// objects reads a JSON object per piece, or lists of them, or returns nil.
func (f *format) objects(pieces []string) (calls []FunctionCall) {
	for _, piece := range pieces {
		v, err := jinja.ParseJSON([]byte(piece), jinja.Foreign)
		if err != nil {
			return nil
		}
		items := []any{v}
		if f.list {
			list, ok := v.(jinja.List)
			if !ok {
				return nil
			}
			items = list
		}
		for _, item := range items {
			o, _ := item.(jinja.Dict)
			name, named := o.Get("name").(jinja.Text)
			arguments := o.Get(f.key)
			if text, ok := arguments.(jinja.Text); ok {
				arguments, _ = jinja.ParseJSON([]byte(text.String()), jinja.Foreign)
			}
			if _, ok := arguments.(jinja.Dict); !ok || !named {
				return nil
			}
			calls = append(calls, FunctionCall{name.String(), json.RawMessage(jinja.JSON(arguments).String())})
		}
	}
	return calls
}

const endOfThinking = "</think>"

// startOfCall matches a line that calls a function.
var startOfCall = regexp.MustCompile(`^\s*[A-Za-z_][A-Za-z0-9_.]*\(`)

// readPython reads one call per line after the thinking. Blank lines are skipped; another line makes the reply a text.
func (f *format) readPython(text string) (outside string, calls []FunctionCall, attempted bool) {
	lines := text
	if at := strings.LastIndex(text, endOfThinking); at >= 0 {
		outside, lines = text[:at+len(endOfThinking)], text[at+len(endOfThinking):]
	}
	attempted = startOfCall.MatchString(lines)
	for line := range strings.SplitSeq(lines, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, arguments, err := bfcl.CallJSON(line)
		if err != nil {
			return text, nil, attempted
		}
		calls = append(calls, FunctionCall{name, arguments})
	}
	if calls == nil {
		return text, nil, false
	}
	return outside, calls, false
}

// calls returns the calls of a reply as Python text, by the benchmark's decoder of the format if there is one.
func (f *format) calls(text string) (calls []string, malformed bool) {
	_, read, attempted := f.read(text)
	if f.decode == nil {
		for _, call := range read {
			calls = append(calls, call.Python())
		}
		return calls, attempted
	}
	if decoded, err := f.decode(text); err == nil && len(decoded) > 0 {
		return decoded, false
	}
	return nil, attempted || read != nil
}

// visible returns the length of the prefix of a reply's text that cannot belong to a call.
func (f *format) visible(text string) int {
	if f.open != "" {
		tag := strings.TrimSpace(f.open)
		if at := strings.Index(text, tag); at >= 0 {
			text = text[:at]
		} else {
			text = text[:len(text)-Partial(text, tag)]
		}
		return len(strings.TrimRightFunc(text, jinja.Space))
	}
	trimmed := strings.TrimLeftFunc(text, jinja.Space)
	switch {
	case trimmed == "":
		return 0
	case f.name == python.name: // a name that may still become a call, or a call
		if strings.Trim(trimmed, nameLetters) == "" || startOfCall.MatchString(trimmed) {
			return 0
		}
	case f.list:
		if trimmed[0] == '[' {
			return 0
		}
	case trimmed[0] == '{' || strings.HasPrefix("<|python_tag|>", trimmed[:min(len(trimmed), 14)]):
		return 0
	}
	return len(text)
}

const nameLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_."

// decodeLlama decodes with the benchmark's decoder and, if that fails, as JSON. The official decoder evaluates a
// single object as Python, in which true, false and null are unknown names, although the model's template writes
// them.
func decodeLlama(text string) ([]string, error) {
	calls, err := bfcl.DecodeLlama31(text)
	if err == nil {
		return calls, nil
	}
	v, jsonErr := jinja.ParseJSON([]byte(strings.ReplaceAll(text, "<|python_tag|>", "")), jinja.Foreign)
	call, ok := v.(jinja.Dict)
	if jsonErr != nil || !ok {
		return nil, err
	}
	same := jinja.JSON(jinja.Dict{own("name", call.Get("name")), own("arguments", call.Get("parameters"))})
	return bfcl.DecodeQwen("<tool_call>\n" + same.String() + "\n</tool_call>")
}
