package api

import (
	"cmp"
	"strings"

	"rcgrpo/bfcl/internal/py"
)

// A scenario is free-form JSON, so no value in a class's state has a fixed type. These functions do
// what a method call or a subscript does in Python, with Python's exception for other types.
//
// Almost every call may raise an exception. The methods raise it as Python does: by a panic with a
// *py.Exception, which catch makes the error of Method.Call or Instance.Load. Any other panic continues.

// try returns v, or raises err.
func try[T any](v T, err error) T {
	check(err)
	return v
}

// check raises err unless it is nil.
func check(err error) {
	if err != nil {
		panic(py.AsException(err))
	}
}

// catch sets err to the exception that the deferring function raised.
func catch(err *error) {
	switch raised := recover().(type) {
	case nil:
	case *py.Exception:
		*err = raised
	default:
		panic(raised)
	}
}

// receiver returns v as the receiver of a method call, or raises an AttributeError if v has another
// type.
func receiver[T any](v py.Value, method string) T {
	t, ok := v.(T)
	if !ok {
		panic(py.AttributeError(v, method))
	}
	return t
}

// asDict, asList and lower are receiver for a dict, for a list, and for a string whose lower() they call.
func asDict(v py.Value, method string) *py.Dict { return receiver[*py.Dict](v, method) }

func asList(v py.Value, method string) *py.List { return receiver[*py.List](v, method) }

func lower(v py.Value) string { return py.Lower(receiver[string](v, "lower")) }

// get returns d.get(key), and whether the key is present.
func get(d *py.Dict, key py.Value) (v py.Value, known bool) {
	v, known, err := d.GetErr(key)
	check(err)
	return v, known
}

// field returns v[name].
func field(v py.Value, name string) py.Value { return try(py.GetItem(v, name)) }

// setting returns the scenario's value of key, or def if the scenario is nil or lacks the key.
func setting(scenario *py.Dict, key string, def py.Value) py.Value {
	if scenario != nil {
		if v, ok := scenario.Get(key); ok {
			return v
		}
	}
	return def
}

// errorReply returns the reply {"error": text}.
func errorReply(text string) py.Value { return py.NewDict("error", text) }

// seeded returns the random generator of an instance. classSeed is its seed unless the scenario has one.
func seeded(scenario *py.Dict, classSeed int64) *py.Random {
	seed, ok := setting(scenario, "random_seed", classSeed).(int64)
	if !ok {
		panic(py.Raise("TypeError", "random_seed must be an integer of at most 64 bits"))
	}
	return py.NewRandom(seed)
}

// join returns ", ".join(items).
func join(items []py.Value) string {
	texts := make([]string, len(items))
	for i, item := range items {
		text, ok := item.(string)
		if !ok {
			panic(py.Raise("TypeError", "sequence item %d: expected str instance, %s found", i, py.TypeName(item)))
		}
		texts[i] = text
	}
	return strings.Join(texts, ", ")
}

// replyFor returns the reply {name: table.get(key, missing)}. An unhashable key raises a TypeError.
func replyFor(name string, table map[string]string, key py.Value, missing string) py.Value {
	check(py.Hashable(key))
	text, _ := key.(string)
	return py.NewDict(name, cmp.Or(table[text], missing))
}

// inPlace returns the value of a += b ("+") or a -= b ("-"). Unlike those of py.Add and py.Sub, its error messages show
// the operator with the equals sign.
func inPlace(operator string, a, b py.Value) py.Value {
	do := py.Add
	if operator == "-" {
		do = py.Sub
	}
	v, err := do(a, b)
	if err != nil {
		e := py.AsException(err)
		panic(py.Raise(e.Class, "%s", strings.Replace(e.Message, "for "+operator+":", "for "+operator+"=:", 1)))
	}
	return v
}
