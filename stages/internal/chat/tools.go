package chat

import (
	"encoding/json"
	"fmt"
	"slices"

	"rcgrpo/bfcl"
	"rcgrpo/stages/internal/jinja"
)

// Functions are tool documents in the format of chat APIs and templates, by tool name.
type Functions map[string]json.RawMessage

// doneFunction documents the tool that ends a merged episode.
const doneFunction = `{"type":"function","function":{"name":"done",` +
	`"description":"Call this once all steps of the request are done. It ends the conversation.",` +
	`"parameters":{"type":"object","properties":{},"required":[]}}}`

// FunctionsOf converts the documents of all classes of the data's tasks to functions and adds that of done.
func FunctionsOf(data *bfcl.Data) (Functions, error) {
	all, seen := Functions{bfcl.DoneTool: json.RawMessage(doneFunction)}, map[string]bool{}
	for _, task := range data.Tasks() {
		for _, class := range task.Classes {
			if seen[class] {
				continue
			}
			seen[class] = true
			for _, doc := range data.Docs(class) {
				f, err := Function(doc.JSON)
				if err != nil {
					return nil, fmt.Errorf("tool %s: %w", doc.Name, err)
				}
				all[doc.Name] = f
			}
		}
	}
	return all, nil
}

// jsonTypes are the JSON schema names of the types in the benchmark's documents; other names are unchanged.
var jsonTypes = map[string]string{"dict": "object", "float": "number", "tuple": "array", "any": "string"}

// Function converts a tool document of the benchmark to OpenAI's format: types get their JSON schema names, and
// the description of the response is dropped.
func Function(doc json.RawMessage) (json.RawMessage, error) {
	v, err := jinja.ParseJSON(doc, jinja.Own)
	if err != nil {
		return nil, err
	}
	o, ok := v.(jinja.Dict)
	if !ok {
		return nil, fmt.Errorf("a tool document is an object, not %T", v)
	}
	o = slices.DeleteFunc(o, func(m jinja.Member) bool { return m.Key.String() == "response" })
	function := jinja.Dict{own("type", jinja.Own("function")), own("function", renameTypes("", o))}
	return json.RawMessage(jinja.JSON(function).String()), nil
}

// renameTypes converts the value of a key recursively, in place.
func renameTypes(key string, v any) any {
	switch v := v.(type) {
	case jinja.Text:
		if name, ok := jsonTypes[v.String()]; ok && key == "type" {
			return jinja.Own(name)
		}
	case jinja.List:
		for i, x := range v {
			v[i] = renameTypes("", x)
		}
	case jinja.Dict:
		for i, m := range v {
			v[i].Value = renameTypes(m.Key.String(), m.Value)
		}
	}
	return v
}
