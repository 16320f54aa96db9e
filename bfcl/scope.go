package bfcl

import (
	"slices"
	"strings"

	"rcgrpo/bfcl/internal/api"
	"rcgrpo/bfcl/internal/py"
)

// scope is the executor's own: the instances by their names, and a few of Python's functions and of the executor's
// variables that a model may hit by chance.
type scope struct{ side *side }

// instanceValue is an instance as a value of an expression.
type instanceValue struct {
	class string
	index int
}

func (v *instanceValue) PyType() string              { return v.class }
func (v *instanceValue) PyEqual(o py.Value) bool     { return o == py.Value(v) }
func (v *instanceValue) PyClone(m *py.Memo) py.Value { return v }
func (v *methodValue) PyType() string                { return "method" }
func (v *methodValue) PyEqual(o py.Value) bool       { return o == py.Value(v) }
func (v *methodValue) PyClone(m *py.Memo) py.Value   { return v }
func (f *functionValue) PyType() string              { return "builtin_function_or_method" }
func (f *functionValue) PyEqual(o py.Value) bool     { return o == py.Value(f) }
func (f *functionValue) PyClone(m *py.Memo) py.Value { return f }

// methodValue is a tool bound to its instance.
type methodValue struct {
	tool     tool
	instance api.Instance
}

// functionValue is one of Python's own functions or methods, which take positional arguments only here.
type functionValue struct {
	name        string
	least, most int // how many arguments
	call        func(args []py.Value) (py.Value, error)
}

func one(name string, f func(v py.Value) (py.Value, error)) *functionValue {
	return &functionValue{name, 1, 1, func(args []py.Value) (py.Value, error) { return f(args[0]) }}
}

// functions are the few of Python's that models have been seen to write around tool calls.
var functions = map[string]*functionValue{
	"len":   one("len", func(v py.Value) (py.Value, error) { n, err := py.Len(v); return int64(n), err }),
	"str":   one("str", func(v py.Value) (py.Value, error) { return py.Str(v), nil }),
	"repr":  one("repr", func(v py.Value) (py.Value, error) { return py.Repr(v), nil }),
	"bool":  one("bool", func(v py.Value) (py.Value, error) { return py.Truthy(v), nil }),
	"int":   one("int", py.Int),
	"float": one("float", py.Float),
	"abs":   one("abs", py.Abs),
	"list": one("list", func(v py.Value) (py.Value, error) {
		items, err := py.Iterate(v)
		return py.NewList(slices.Clone(items)...), err
	}),
	"sum": one("sum", func(v py.Value) (py.Value, error) {
		items, err := py.Iterate(v)
		if err != nil {
			return nil, err
		}
		return py.Sum(items)
	}),
	"max": one("max", func(v py.Value) (py.Value, error) { return extreme("max", ">", v) }),
	"min": one("min", func(v py.Value) (py.Value, error) { return extreme("min", "<", v) }),
	"sorted": one("sorted", func(v py.Value) (py.Value, error) {
		items, err := py.Iterate(v)
		items = slices.Clone(items)
		slices.SortStableFunc(items, func(a, b py.Value) int {
			less, wrong := py.Compare("<", a, b)
			if wrong != nil {
				err = wrong
				return 0
			}
			if less {
				return -1
			}
			if more, _ := py.Compare("<", b, a); more {
				return 1
			}
			return 0
		})
		return py.NewList(items...), err
	}),
	"round": {"round", 1, 2, func(args []py.Value) (py.Value, error) {
		if len(args) == 1 {
			return py.Round(args[0], nil)
		}
		return py.Round(args[0], args[1])
	}},
	"print": {"print", 0, 1 << 20, func([]py.Value) (py.Value, error) { return nil, nil }},
}

// extreme is max or min of one iterable: the first extreme item.
func extreme(name, op string, v py.Value) (py.Value, error) {
	items, err := py.Iterate(v)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return nil, py.Raise("ValueError", "%s() arg is an empty sequence", name)
	}
	best := items[0]
	for _, item := range items[1:] {
		better, err := py.Compare(op, item, best)
		if err != nil {
			return nil, err
		}
		if better {
			best = item
		}
	}
	return best, nil
}

// methods are those of Python's own types, by "type.name"; the first argument is the object.
var methods = map[string]struct {
	least, most int
	call        func(args []py.Value) (py.Value, error)
}{
	"dict.keys": {0, 0, func(args []py.Value) (py.Value, error) {
		return view("dict_keys", args[0].(*py.Dict).Keys()), nil
	}},
	"dict.values": {0, 0, func(args []py.Value) (py.Value, error) {
		return view("dict_values", args[0].(*py.Dict).Values()), nil
	}},
	"dict.items": {0, 0, func(args []py.Value) (py.Value, error) {
		var pairs []py.Value
		args[0].(*py.Dict).Each(func(k, v py.Value) bool {
			pairs = append(pairs, py.Tuple{k, v})
			return true
		})
		return view("dict_items", pairs), nil
	}},
	"dict.get": {1, 2, func(args []py.Value) (py.Value, error) {
		v, ok, err := args[0].(*py.Dict).GetErr(args[1])
		if !ok && len(args) == 3 {
			v = args[2]
		}
		return v, err
	}},
	"str.lower": {0, 0, func(args []py.Value) (py.Value, error) { return py.Lower(args[0].(string)), nil }},
	"str.strip": {0, 0, func(args []py.Value) (py.Value, error) { return py.Strip(args[0].(string)), nil }},
	"str.split": {0, 0, func(args []py.Value) (py.Value, error) {
		l := py.NewList()
		for _, w := range py.SplitWhitespace(args[0].(string)) {
			l.Append(w)
		}
		return l, nil
	}},
	"str.join": {1, 1, func(args []py.Value) (py.Value, error) {
		items, err := py.Iterate(args[1])
		if err != nil {
			return nil, py.Raise("TypeError", "can only join an iterable")
		}
		parts := make([]string, len(items))
		for i, item := range items {
			s, ok := item.(string)
			if !ok {
				return nil, py.Raise("TypeError", "sequence item %d: expected str instance, %s found", i, py.TypeName(item))
			}
			parts[i] = s
		}
		return strings.Join(parts, args[0].(string)), nil
	}},
}

// view is a dictionary view, which only prints here.
func view(class string, items []py.Value) py.Value {
	return py.Opaque{Class: class, Text: class + "(" + py.Repr(py.NewList(items...)) + ")"}
}

// Lookup finds instances, functions and the executor's variables.
func (s scope) Lookup(name string) (py.Value, error) {
	for i, class := range s.side.scene.task.Classes {
		if name == s.side.instanceName(class) {
			return &instanceValue{class, i}, nil
		}
	}
	if f, ok := functions[name]; ok {
		return f, nil
	}
	switch name {
	case "long_context":
		return s.side.scene.task.longContext(), nil
	case "is_evaL_run":
		return true, nil
	case "model_name":
		return s.side.name + "_eval", nil
	case "test_entry_id":
		return s.side.scene.task.ID, nil
	case "involved_classes":
		l := py.NewList()
		for _, class := range s.side.scene.task.Classes {
			l.Append(class)
		}
		return l, nil
	}
	return nil, py.Raise("NameError", "name '%s' is not defined", name)
}

// Attribute finds tools and public attributes of instances; other values have no attributes here.
func (s scope) Attribute(x py.Value, name string) (py.Value, error) {
	x = py.Thaw(x)
	in, ok := x.(*instanceValue)
	if !ok {
		if m, ok := methods[py.TypeName(x)+"."+name]; ok {
			return &functionValue{name, m.least, m.most, func(args []py.Value) (py.Value, error) {
				return m.call(append([]py.Value{x}, args...))
			}}, nil
		}
		return nil, py.AttributeError(x, name)
	}
	instance := s.side.instances[in.index]
	if t, ok := tools()[name]; ok && t.class.Name == in.class {
		return &methodValue{t, instance}, nil
	}
	for _, a := range instance.State() {
		if a.Name == name {
			return a.Value, nil
		}
	}
	return nil, py.AttributeError(x, name)
}

// Call runs a tool, or one of Python's functions on one value.
func (s scope) Call(f py.Value, args []py.Value, keywords []py.Argument) (py.Value, error) {
	switch f := f.(type) {
	case *methodValue:
		bound, err := bind(f.tool, nil, args, keywords)
		if err != nil {
			return nil, err
		}
		v, err := f.instance.Call(f.tool.index, bound)
		if err != nil {
			return nil, err
		}
		return py.Thaw(v), nil
	case *functionValue:
		if len(args) < f.least || len(args) > f.most || len(keywords) > 0 && f.name != "print" {
			return nil, py.Raise("TypeError", "%s() does not take %d arguments here", f.name, len(args)+len(keywords))
		}
		return f.call(args)
	}
	return nil, py.Raise("TypeError", "'%s' object is not callable", py.TypeName(f))
}
