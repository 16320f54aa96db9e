package bfcl

import (
	"slices"
	"strings"

	"rcgrpo/bfcl/internal/py"
)

// DecodePrompt decodes a reply of a model without tool calls like the official decoder: a Python list of calls by
// name. Positional arguments are dropped, and a bare name becomes a string. Other text is an error, with which the
// policy yields the turn. Unlike the official decoder it refuses arithmetic, calls without keywords and subscripts
// among the arguments.
func DecodePrompt(text string) ([]string, error) {
	text = strings.Trim(text, "`\n ")
	if !strings.HasPrefix(text, "[") {
		text = "[" + text
	}
	if !strings.HasSuffix(text, "]") {
		text += "]"
	}
	e, err := py.Parse(strings.Trim(py.Strip(text), "'"))
	if err != nil {
		return nil, err
	}
	var items []py.Expr
	switch e := e.(type) {
	case *py.Call:
		items = []py.Expr{e}
	case *py.ListExpr:
		items = e.Items
	case *py.TupleExpr:
		items = e.Items
	case *py.SetExpr:
		items = e.Items
	default:
		return nil, py.Unsupported()
	}
	calls := []string{}
	for _, item := range items {
		call, ok := item.(*py.Call)
		if !ok {
			return nil, py.Raise("AssertionError", "an element is no call")
		}
		v, err := promptCall(call)
		if err != nil {
			return nil, err
		}
		name, args := v.At(0) // the only entry
		text, err := promptCallText(name, args)
		if err != nil {
			return nil, err
		}
		calls = append(calls, text)
	}
	return calls, nil
}

// promptCall returns a call as the dict {name: {parameter: value}}.
func promptCall(call *py.Call) (*py.Dict, error) {
	var parts []string
	f := call.Func
	for {
		a, ok := f.(*py.Attribute)
		if !ok {
			break
		}
		parts = append(parts, a.Name) // from the last name to the first
		f = a.X
	}
	if n, ok := f.(*py.Name); ok {
		parts = append(parts, n.ID)
	}
	slices.Reverse(parts)
	args := &py.Dict{}
	for _, k := range call.Keywords {
		v, err := promptValue(k.Value)
		if err != nil {
			return nil, err
		}
		args.Set(k.Name, v)
	}
	return py.NewDict(strings.Join(parts, "."), args), nil
}

// promptValue returns the value of an argument as the official decoder resolves it.
func promptValue(e py.Expr) (py.Value, error) {
	switch e := e.(type) {
	case *py.Const:
		return e.Value, nil
	case *py.Name:
		return e.ID, nil
	case *py.Sign: // the official code negates whatever the sign
		if c, ok := e.X.(*py.Const); ok {
			return py.Neg(c.Value)
		}
	case *py.ListExpr:
		items, err := promptValues(e.Items)
		return &py.List{Items: items}, err
	case *py.TupleExpr:
		items, err := promptValues(e.Items)
		return py.Tuple(items), err
	case *py.DictExpr:
		keys, err := promptValues(e.Keys)
		if err != nil {
			return nil, err
		}
		values, err := promptValues(e.Values)
		if err != nil {
			return nil, err
		}
		d := &py.Dict{}
		for i, k := range keys {
			if err := py.SetItem(d, k, values[i]); err != nil {
				return nil, err
			}
		}
		return d, nil
	case *py.Call:
		if len(e.Keywords) > 0 {
			return promptCall(e)
		}
	}
	return nil, py.Unsupported()
}

func promptValues(list []py.Expr) ([]py.Value, error) {
	values := make([]py.Value, len(list))
	for i, e := range list {
		var err error
		if values[i], err = promptValue(e); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// promptCallText writes a decoded call as name(k=v, ...), with nested calls among its values. callText, which writes
// the calls of the other decoders, separates arguments without a blank.
func promptCallText(name, arguments py.Value) (string, error) {
	args, ok := arguments.(*py.Dict)
	if !ok {
		return "", py.AttributeError(arguments, "items")
	}
	var list []string
	for k, v := range args.All() {
		text, err := nestedText(v)
		if err != nil {
			return "", err
		}
		list = append(list, py.Str(k)+"="+text)
	}
	return py.Str(name) + "(" + strings.Join(list, ", ") + ")", nil
}

// nestedText writes a value. The official code takes every dict whose values are all dicts for a call, even an
// empty dict.
func nestedText(v py.Value) (string, error) {
	d, ok := v.(*py.Dict)
	if !ok {
		return py.Repr(v), nil
	}
	call := true
	for _, value := range d.Values() {
		_, ok := value.(*py.Dict)
		call = call && ok
	}
	if call {
		if d.Len() == 0 {
			return "", py.Raise("IndexError", "list index out of range")
		}
		return promptCallText(d.At(0))
	}
	var list []string
	for k, v := range d.All() {
		text, err := nestedText(v)
		if err != nil {
			return "", err
		}
		list = append(list, "'"+py.Str(k)+"': "+text)
	}
	return "{" + strings.Join(list, ", ") + "}", nil
}

// PromptResults returns the user message with the results of decoded calls, as the official handlers write it for
// models without tool calls.
func PromptResults(calls, results []string) string {
	list := &py.List{}
	for i := range min(len(calls), len(results)) {
		list.Append(py.NewDict("role", "tool", "name", calls[i], "content", results[i]))
	}
	return py.Repr(list)
}
