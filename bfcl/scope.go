package bfcl

import (
	"strings"
	"sync"

	"rcgrpo/bfcl/internal/py"
)

// scope resolves instances by their variable names, and their tools. Everything else that the
// official executor's eval can access (builtins, attributes, methods of values) is unsupported.
type scope struct{ *instances }

// instanceValue is the value of an instance's variable.
type instanceValue struct {
	class string
	index int // index of the class in the task
}

// methodValue is a tool bound to its instance.
type methodValue struct {
	tool     tool
	instance int // index of its class in the task
}

func (v *instanceValue) PyType() string              { return v.class }
func (v *instanceValue) PyEqual(o py.Value) bool     { return o == py.Value(v) }
func (v *instanceValue) PyClone(m *py.Memo) py.Value { return v }
func (v *methodValue) PyType() string                { return "method" }
func (v *methodValue) PyEqual(o py.Value) bool       { return o == py.Value(v) }
func (v *methodValue) PyClone(m *py.Memo) py.Value   { return v }

// evalNames are the other names that the official executor's eval resolves: its own variables, and
// Python's builtin functions and types.
var evalNames = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	for _, name := range strings.Fields(`
		long_context is_evaL_run model_name test_entry_id involved_classes
		abs aiter all anext any ascii bin bool breakpoint bytearray bytes callable chr classmethod compile complex copyright
		credits delattr dict dir divmod enumerate eval exec exit filter float format frozenset getattr globals hasattr hash
		help hex id input int isinstance issubclass iter len license list locals map max memoryview min next object oct open
		ord pow print property quit range repr reversed round set setattr slice sorted staticmethod str sum super tuple type
		vars zip Ellipsis Exception NotImplemented`) {
		names[name] = true
	}
	return names
})

// Lookup returns an instance by its variable name.
func (s scope) Lookup(name string) (py.Value, error) {
	for i, class := range s.world.task.Classes {
		if name == s.instanceName(class) {
			return &instanceValue{class, i}, nil
		}
	}
	if evalNames()[name] {
		return nil, py.Unsupported()
	}
	return nil, py.Raise("NameError", "name '%s' is not defined", name)
}

// Attribute returns a tool of an instance.
func (s scope) Attribute(x py.Value, name string) (py.Value, error) {
	if in, ok := x.(*instanceValue); ok {
		if t, ok := tools()[name]; ok && t.class.Name == in.class {
			return &methodValue{t, in.index}, nil
		}
	}
	return nil, py.Unsupported()
}

// Call executes a tool. An expression may give its result to another tool, which may keep and change it, so constants
// in it are copied.
func (s scope) Call(f py.Value, args []py.Value, keywords []py.Argument) (py.Value, error) {
	m, ok := f.(*methodValue)
	if !ok {
		return nil, py.Raise("TypeError", "'%s' object is not callable", py.TypeName(f))
	}
	bound, err := bind(m.tool, args, keywords)
	if err != nil {
		return nil, err
	}
	v, err := s.call(m.tool, m.instance, bound)
	if err != nil {
		return nil, err
	}
	return py.Thaw(v), nil
}
