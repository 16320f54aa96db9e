package api

import (
	"cmp"
	"strings"

	"rcgrpo/bfcl/internal/py"
)

// A scenario is free-form JSON, so no value in a class's state has a fixed type. These functions do
// what a method call or a subscript does in Python, with Python's exception for other types.

// asDict returns v as the receiver of a method call, or an AttributeError if v is not a dict.
func asDict(v py.Value, method string) (*py.Dict, error) {
	if d, ok := v.(*py.Dict); ok {
		return d, nil
	}
	return nil, py.AttributeError(v, method)
}

// asList returns v as the receiver of a method call, or an AttributeError if v is not a list.
func asList(v py.Value, method string) (*py.List, error) {
	if l, ok := v.(*py.List); ok {
		return l, nil
	}
	return nil, py.AttributeError(v, method)
}

func lower(v py.Value) (string, error) {
	if s, ok := v.(string); ok {
		return py.Lower(s), nil
	}
	return "", py.AttributeError(v, "lower")
}

func field(v py.Value, name string) (py.Value, error) {
	if d, ok := v.(*py.Dict); ok {
		if val, ok := d.GetStr(name); ok {
			return val, nil
		}
	}
	return py.GetItem(v, name)
}

// setting returns the scenario's value of key, or def if the scenario is nil or lacks the key.
func setting(scenario *py.Dict, key string, def py.Value) py.Value {
	if scenario != nil {
		if v, ok := scenario.GetStr(key); ok {
			return v
		}
	}
	return def
}

// settingElse is setting with a lazy default.
func settingElse(scenario *py.Dict, key string, def func() py.Value) py.Value {
	if scenario != nil {
		if v, ok := scenario.GetStr(key); ok {
			return v
		}
	}
	return def()
}

// fault returns the reply {"error": text}.
func fault(text string) py.Value { return py.NewDict("error", text) }

// seeded returns the initial generator of a class; own is used if the scenario has no seed.
func seeded(scenario *py.Dict, own int64) (*py.Random, error) {
	seed, ok := setting(scenario, "random_seed", own).(int64)
	if !ok {
		return nil, py.Raise("TypeError", "random_seed must be an integer of at most 64 bits")
	}
	return py.NewRandom(seed), nil
}

// join returns ", ".join(items).
func join(items []py.Value) (string, error) {
	texts := make([]string, len(items))
	for i, item := range items {
		text, ok := item.(string)
		if !ok {
			return "", py.Raise("TypeError", "sequence item %d: expected str instance, %s found", i, py.TypeName(item))
		}
		texts[i] = text
	}
	return strings.Join(texts, ", "), nil
}

// replyFor returns the reply {name: table.get(key, missing)}, or a TypeError if the key is
// unhashable.
func replyFor(name string, table map[string]string, key py.Value, missing string) (py.Value, error) {
	if err := py.Hashable(key); err != nil {
		return nil, err
	}
	text, _ := key.(string)
	return py.NewDict(name, cmp.Or(table[text], missing)), nil
}

// inPlace returns a += b or a -= b; its error messages show the operator with its equals sign.
func inPlace(operator string, a, b py.Value) (py.Value, error) {
	do := py.Add
	if operator == "-" {
		do = py.Sub
	}
	v, err := do(a, b)
	if err != nil {
		e := py.AsException(err)
		return nil, py.Raise(e.Class, "%s", strings.Replace(e.Message, "for "+operator+":", "for "+operator+"=:", 1))
	}
	return v, nil
}
