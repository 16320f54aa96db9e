package bfcl

import (
	"encoding/json"
	"fmt"
	"strings"

	"rcgrpo/bfcl/internal/py"
)

// CallText writes a call with a JSON object of arguments like DecodeQwen: name(k=repr(v),...). Arguments that are not a
// JSON object, or a string with one, are an error.
func CallText(name string, arguments json.RawMessage) (string, error) {
	v, err := py.FromJSON(arguments)
	if err != nil {
		return "", fmt.Errorf("the arguments of %s: %w", name, err)
	}
	return qwenCall(py.NewDict("name", name, "arguments", v))
}

// CallJSON splits a call of the form name(k=v, ...) into the tool's name and its arguments as a
// JSON object in the order of the call. It is the inverse of CallText.
// Positional arguments get their names from the tool's signature. Text that is not one call by
// name, unnamed arguments and values that JSON cannot represent are errors.
func CallJSON(call string) (name string, arguments json.RawMessage, err error) {
	a, ok := readAction(call)
	if !ok {
		return "", nil, fmt.Errorf("call %q: not a call of a tool by name", call)
	}
	var b strings.Builder
	b.WriteByte('{')
	for i, arg := range a.args {
		switch {
		case arg.name == "":
			return "", nil, fmt.Errorf("call %q: argument %d exceeds the tool's parameters", call, i+1)
		case arg.expr != "":
			return "", nil, fmt.Errorf("call %q: argument %s is an expression, not a value", call, arg.name)
		}
		key, err := py.JSON(arg.name)
		if err != nil {
			return "", nil, fmt.Errorf("call %q: %w", call, err)
		}
		value, err := py.JSON(arg.value)
		if err != nil {
			return "", nil, fmt.Errorf("call %q: argument %s: %w", call, arg.name, err)
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(key + ": " + value)
	}
	b.WriteByte('}')
	if !json.Valid([]byte(b.String())) {
		return "", nil, fmt.Errorf("call %q: JSON cannot represent infinity and NaN", call)
	}
	return a.name, json.RawMessage(b.String()), nil
}
