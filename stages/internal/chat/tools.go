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

// FunctionsOf converts the documents of all classes of the data's tasks to functions and adds that of done.
func FunctionsOf(data *bfcl.Data) (Functions, error) {
	all, seen := Functions{}, map[string]bool{}
	done, err := data.Document(bfcl.DoneTool)
	if err != nil {
		return nil, err
	}
	if all[bfcl.DoneTool], err = Function(done); err != nil {
		return nil, err
	}
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

// Function converts a tool document of the benchmark to OpenAI's format, in which chat templates read tools: types get
// their JSON schema names, and the description of the response is dropped.
//
// bfcl.Function makes other documents on purpose. It is the official conversion for APIs, which adds the hint about
// Python to the description and a sentence to numbers, renames unknown types to string and knows what each API
// refuses. Templates get the words of the document alone, in its order. Both share bfcl.SchemaTypes.
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
		if name, ok := bfcl.SchemaTypes[v.String()]; ok && key == "type" {
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
