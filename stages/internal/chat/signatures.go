package chat

import (
	"encoding/json"
	"strings"

	"rcgrpo/bfcl"
	"rcgrpo/stages/internal/jinja"
)

// signaturesIntro precedes the signatures in the system message.
const signaturesIntro = "Functions:\n"

// signaturesRule follows the signatures in the system message.
const signaturesRule = "To call functions, reply with one call per line, such as f(x=1), and nothing else. " +
	"Otherwise reply with text."

// signaturesOf returns the part of the system message that offers tools: one signature per line. The names come from
// documents, so they are foreign.
func signaturesOf(tools jinja.List) jinja.Text {
	parts := []jinja.Text{jinja.Own(signaturesIntro)}
	for _, tool := range tools {
		parts = append(parts, jinja.Foreign(signature(tool)), jinja.Own("\n"))
	}
	return jinja.Join(append(parts, jinja.Own(signaturesRule))...)
}

// pythonTypes are the Python names of JSON schema types. A parameter of another type gets no type.
var pythonTypes = map[string]string{"string": "str", "integer": "int", "number": "float", "boolean": "bool",
	"array": "list", "object": "dict"}

// signature returns a tool's document as name(parameter: type, optional: type = default).
func signature(tool any) string {
	document, _ := tool.(jinja.Dict)
	f, ok := document.Get("function").(jinja.Dict)
	if !ok {
		f = document
	}
	schema, _ := f.Get("parameters").(jinja.Dict)
	properties, _ := schema.Get("properties").(jinja.Dict)
	required := map[string]bool{}
	list, _ := schema.Get("required").(jinja.List)
	for _, name := range list {
		required[plain(name)] = true
	}
	var parameters []string
	for _, p := range properties {
		name, about := p.Key.String(), jinja.Dict{}
		if d, ok := p.Value.(jinja.Dict); ok {
			about = d
		}
		if t := pythonTypes[plain(about.Get("type"))]; t != "" {
			name += ": " + t
		}
		if !required[p.Key.String()] {
			name += " = " + literal(about.Get("default"))
		}
		parameters = append(parameters, name)
	}
	return plain(f.Get("name")) + "(" + strings.Join(parameters, ", ") + ")"
}

// plain returns the text of a value; "" if the value is no text.
func plain(v any) string {
	t, _ := v.(jinja.Text)
	return t.String()
}

// literal returns a JSON value as Python writes it.
func literal(v any) string {
	arguments := jinja.JSON(jinja.Dict{own("x", v)}).String()
	call, err := bfcl.CallText("f", json.RawMessage(arguments))
	if err != nil {
		return "None"
	}
	return strings.TrimSuffix(strings.TrimPrefix(call, "f(x="), ")")
}
