package api

import "rcgrpo/bfcl/internal/py"

// A scenario is free-form JSON, so nothing in a class's state has a sure type. The functions here do to a value what a
// method call or a subscript does in Python, with Python's exception when the value is of another kind.

// asDict is v for a call of its method name: AttributeError when v is not a dict.
func asDict(v py.Value, method string) (*py.Dict, error) {
	if d, ok := v.(*py.Dict); ok {
		return d, nil
	}
	return nil, py.AttributeError(v, method)
}

// asList is v for a call of its method name: AttributeError when v is not a list.
func asList(v py.Value, method string) (*py.List, error) {
	if l, ok := v.(*py.List); ok {
		return l, nil
	}
	return nil, py.AttributeError(v, method)
}

// lower is v.lower().
func lower(v py.Value) (string, error) {
	if s, ok := v.(string); ok {
		return py.Lower(s), nil
	}
	return "", py.AttributeError(v, "lower")
}

// field is v[name].
func field(v py.Value, name string) (py.Value, error) {
	if d, ok := v.(*py.Dict); ok {
		if val, ok := d.GetStr(name); ok {
			return val, nil
		}
	}
	return py.GetItem(v, name)
}

// setting is the scenario's value for key, or def when the scenario is nil or does not hold the key.
func setting(scenario *py.Dict, key string, def py.Value) py.Value {
	if scenario != nil {
		if v, ok := scenario.GetStr(key); ok {
			return v
		}
	}
	return def
}

// fault is the reply {"error": text}.
func fault(text string) py.Value { return py.NewDict("error", text) }

// fixed is a reply that is always the same: a dict of keys and values in turn, printed once.
func fixed(kv ...py.Value) *py.Frozen { return py.NewFrozen(py.NewDict(kv...)) }

// noMethod is what Call answers for a position outside the class's methods.
func noMethod(method int) error { return py.Raise("RuntimeError", "there is no method %d", method) }
