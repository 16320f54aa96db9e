package bfcl

import (
	"strings"

	"rcgrpo/bfcl/internal/py"
)

// DecodePrompting is the official decoder of prompted models (bfcl/SPEC.md 10): a call or a list of calls as Python text, taken
// apart and written anew. It is lossy where the official one is: positional arguments vanish, bare names become texts,
// every unary operator is a minus. An error ends the turn; so does an empty result.
func DecodePrompting(text string) ([]string, error) {
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
		return nil, py.Raise("AttributeError", "the text is not a call or a list of calls")
	}
	calls := []string{}
	for _, item := range items {
		c, ok := item.(*py.Call)
		if !ok {
			return nil, py.Raise("AssertionError", "an item of the list is not a call")
		}
		name, args, err := takeApart(c)
		if err != nil {
			return nil, err
		}
		text, err := writeCall(name, args)
		if err != nil {
			return nil, err
		}
		calls = append(calls, text)
	}
	return calls, nil
}

// takeApart gives the dotted name of a call and its keyword arguments; positional ones are dropped.
func takeApart(c *py.Call) (string, *py.Dict, error) {
	var parts []string
	f := c.Func
	for {
		a, ok := f.(*py.Attribute)
		if !ok {
			break
		}
		parts = append([]string{a.Name}, parts...)
		f = a.X
	}
	if n, ok := f.(*py.Name); ok {
		parts = append([]string{n.ID}, parts...)
	}
	args := py.NewDict()
	for _, k := range c.Keywords {
		v, err := resolve(k.Value)
		if err != nil {
			return "", nil, err
		}
		if k.Name == "" {
			args.Set(nil, v) // **x goes under the key None
		} else {
			args.SetStr(k.Name, v)
		}
	}
	return strings.Join(parts, "."), args, nil
}

// resolve turns an argument into a value the official way.
func resolve(e py.Expr) (py.Value, error) {
	switch e := e.(type) {
	case *py.Const:
		if e.Value == py.Ellipsis {
			return "...", nil
		}
		return e.Value, nil
	case *py.Unary:
		return resolveUnary(e)
	case *py.ListExpr:
		items, err := resolveAll(e.Items)
		return py.NewList(items...), err
	case *py.TupleExpr:
		items, err := resolveAll(e.Items)
		return py.Tuple(items), err
	case *py.DictExpr:
		d := py.NewDict()
		for i := range e.Keys {
			k, err := resolve(e.Keys[i])
			if err != nil {
				return nil, err
			}
			v, err := resolve(e.Values[i])
			if err != nil {
				return nil, err
			}
			if err := d.SetErr(k, v); err != nil {
				return nil, err
			}
		}
		return d, nil
	case *py.Binary:
		return py.Eval(e, noNames{})
	case *py.Name:
		return e.ID, nil
	case *py.Call:
		if len(e.Keywords) == 0 {
			return py.Unparse(e), nil
		}
		name, args, err := takeApart(e)
		return py.NewDict(name, args), err
	case *py.Subscript:
		var b strings.Builder
		py.UnparseIndex(&b, e.Index)
		return py.Unparse(e.X) + "[" + b.String() + "]", nil
	}
	return nil, py.Raise("Exception", "unsupported expression in an argument")
}

func resolveAll(list []py.Expr) ([]py.Value, error) {
	items := make([]py.Value, len(list))
	for i, e := range list {
		v, err := resolve(e)
		if err != nil {
			return nil, err
		}
		items[i] = v
	}
	return items, nil
}

// resolveUnary takes every operator for a minus.
func resolveUnary(e *py.Unary) (py.Value, error) {
	c, ok := e.X.(*py.Const)
	if !ok {
		return nil, py.Raise("AttributeError", "the operand of '%s' is not a constant", e.Op)
	}
	return py.Neg(c.Value)
}

// writeCall writes name(k=v, ...).
func writeCall(name string, args *py.Dict) (string, error) {
	var b strings.Builder
	b.WriteString(name + "(")
	for i := range args.Len() {
		k, v := args.At(i)
		if i > 0 {
			b.WriteString(", ")
		}
		text, err := writeValue(v)
		if err != nil {
			return "", err
		}
		b.WriteString(py.Str(k) + "=" + text)
	}
	return b.String() + ")", nil
}

// writeValue writes a value as source; a dict of dicts becomes a call, an empty dict cannot be written.
func writeValue(v py.Value) (string, error) {
	d, ok := v.(*py.Dict)
	if !ok {
		return py.Repr(v), nil
	}
	nested := true
	for _, item := range d.Values() {
		_, isDict := item.(*py.Dict)
		nested = nested && isDict
	}
	if nested {
		if d.Len() == 0 {
			return "", py.Raise("IndexError", "list index out of range")
		}
		name, args := d.At(0)
		return writeCall(py.Str(name), args.(*py.Dict))
	}
	var b strings.Builder
	b.WriteByte('{')
	for i := range d.Len() {
		k, item := d.At(i)
		if i > 0 {
			b.WriteString(", ")
		}
		text, err := writeValue(item)
		if err != nil {
			return "", err
		}
		b.WriteString("'" + py.Str(k) + "': " + text)
	}
	return b.String() + "}", nil
}

// noNames is a scope in which nothing is defined.
type noNames struct{}

func (noNames) Lookup(name string) (py.Value, error) {
	return nil, py.Raise("NameError", "name '%s' is not defined", name)
}

func (noNames) Attribute(x py.Value, name string) (py.Value, error) {
	return nil, py.AttributeError(x, name)
}

func (noNames) Call(f py.Value, _ []py.Value, _ []py.Argument) (py.Value, error) {
	return nil, py.Raise("TypeError", "'%s' object is not callable", py.TypeName(f))
}

// DecodeQwen is the official decoder of Qwen's function-calling format: JSON objects with name and arguments between
// <tool_call> and </tool_call>, each on lines of their own. What is not JSON is skipped; other shapes are errors.
func DecodeQwen(text string) ([]string, error) {
	const before, after = "<tool_call>\n", "\n</tool_call>"
	var items []py.Value
	for {
		start := strings.Index(text, before)
		if start < 0 {
			break
		}
		text = text[start+len(before):]
		end := strings.Index(text, after)
		if end < 0 {
			break
		}
		if v, err := py.FromJSON([]byte(text[:end])); err == nil {
			items = append(items, v)
		}
		text = text[end+len(after):]
	}
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

// DecodeLlama31 is the official decoder of Llama 3.1's function-calling format: JSON objects with name and parameters
// separated by semicolons or, without any semicolon, one Python expression.
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
		if err := py.Compiles(e); err != nil {
			return nil, err
		}
		v, err := py.Eval(e, noNames{})
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

// jsonCall writes name(k=repr(v),...) from an object; textual arguments may be JSON themselves.
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
	var b strings.Builder
	b.WriteString(py.Str(name) + "(")
	for i := range args.Len() {
		k, v := args.At(i)
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(py.Str(k) + "=" + py.Repr(v))
	}
	return b.String() + ")", nil
}
