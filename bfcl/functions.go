package bfcl

import (
	"bytes"
	"encoding/json"
	"fmt"

	"rcgrpo/bfcl/internal/py"
)

// APIs whose tool documents Function writes.
const (
	OpenAIResponses = "openai"
	OpenAIChat      = "openai-chat"
	Anthropic       = "anthropic"
	Google          = "google"
)

// languageHint ends the description of a tool, except if a later turn reveals the tool.
const languageHint = " Note that the provided function is in Python 3 syntax."

// Function returns the document of a tool as the official handlers send it to an API (OpenAIChat, ...). revealed says
// that a later turn reveals the tool. An unknown tool and an unknown API are errors.
func (d *Data) Function(name, target string, revealed bool) (json.RawMessage, error) {
	doc, err := d.Document(name)
	if err != nil {
		return nil, err
	}
	return Function(doc, target, revealed)
}

// Function is Data.Function for a document in the benchmark's form. All its changes are official: the language hint,
// types renamed for JSON schemas (castTypes), and fields that the API refuses moved into descriptions. Chat templates
// read the document without these changes; Function of stages/internal/chat converts it for them.
func Function(doc json.RawMessage, target string, revealed bool) (json.RawMessage, error) {
	item, err := readDocument(doc, revealed)
	if err != nil {
		return nil, err
	}
	parameters := dictAt(item, "parameters")
	parameters.Set("type", "object")
	castTypes(dictAt(parameters, "properties"))
	switch target {
	case OpenAIResponses:
		item.Set("type", "function")
	case OpenAIChat:
		item = py.NewDict("type", "function", "function", item)
	case Anthropic:
		item.Set("input_schema", parameters)
		item.Delete("parameters")
		err = describeResponse(item)
	case Google:
		parameters.Delete("optional")
		for _, v := range dictAt(parameters, "properties").Values() {
			if p, ok := v.(*py.Dict); ok {
				describeFields(p)
			}
		}
		err = describeResponse(item)
	default:
		err = fmt.Errorf("there are no tool documents for the API %q", target)
	}
	if err != nil {
		return nil, err
	}
	text, err := py.JSON(item)
	return json.RawMessage(text), err
}

// doneDocument documents DoneTool in the benchmark's form.
const doneDocument = `{"name": "done", "description": "Call this once all steps of the request are done. It ends the ` +
	`conversation.", "parameters": {"type": "dict", "properties": {}, "required": []}}`

// Document returns the official document of a tool, or that of DoneTool.
func (d *Data) Document(name string) (json.RawMessage, error) {
	if name == DoneTool {
		return json.RawMessage(doneDocument), nil
	}
	t, ok := tools()[name]
	if !ok {
		return nil, fmt.Errorf("there is no tool %q", name)
	}
	for _, doc := range d.docs[t.class.Name] {
		if doc.Name == name {
			return doc.JSON, nil
		}
	}
	return nil, fmt.Errorf("tool %s has no document", name)
}

// readDocument reads the document of a tool and adds the language hint, unless a later turn reveals the tool.
func readDocument(doc json.RawMessage, revealed bool) (*py.Dict, error) {
	v, err := py.FromJSON(doc)
	if err != nil {
		return nil, fmt.Errorf("tool document: %w", err)
	}
	item, ok := v.(*py.Dict)
	if !ok {
		return nil, fmt.Errorf("tool document: got %s, want an object", py.TypeName(v))
	}
	if !revealed {
		extend(item, "description", languageHint)
	}
	return item, nil
}

// dictAt returns the dict at a key, an empty one if there is none.
func dictAt(d *py.Dict, key string) *py.Dict {
	v, _ := d.Get(key)
	if at, ok := v.(*py.Dict); ok {
		return at
	}
	return &py.Dict{}
}

// textAt returns the string at a key, "" if there is none.
func textAt(d *py.Dict, key string) string {
	v, _ := d.Get(key)
	text, _ := v.(string)
	return text
}

// extend appends to the string at a key.
func extend(d *py.Dict, key, text string) { d.Set(key, textAt(d, key)+text) }

// SchemaTypes maps the types in the benchmark's documents, which have Python's names, to their names in OpenAPI and in
// JSON schemas: "dict" to "object".
var SchemaTypes = map[string]string{"integer": "integer", "number": "number", "float": "number", "string": "string",
	"boolean": "boolean", "bool": "boolean", "array": "array", "list": "array", "dict": "object", "object": "object",
	"tuple": "array", "any": "string"}

// castTypes renames the types of properties, as the official _cast_to_openai_type does.
func castTypes(properties *py.Dict) {
	for _, v := range properties.Values() {
		p, ok := v.(*py.Dict)
		if !ok {
			continue
		}
		name := textAt(p, "type")
		if name == "float" {
			p.Set("format", "float")
			extend(p, "description", " This is a float type value.")
		}
		schema, known := SchemaTypes[name]
		if !known {
			schema = "string"
		}
		p.Set("type", schema)
		switch {
		case schema != "array" && schema != "object":
		case p.Has("properties"):
			castTypes(dictAt(p, "properties"))
		case p.Has("items"):
			castItems(dictAt(p, "items"))
		}
	}
}

// castItems renames the type of the items of an array. Like the official code it goes one array deeper, and no further.
// Unlike in castTypes, an unknown type becomes "".
func castItems(items *py.Dict) {
	schema := SchemaTypes[textAt(items, "type")]
	items.Set("type", schema)
	switch {
	case schema == "array" && items.Has("items"):
		inner := dictAt(items, "items")
		inner.Set("type", SchemaTypes[textAt(inner, "type")])
	case schema == "object" && items.Has("properties"):
		castTypes(dictAt(items, "properties"))
	}
}

// describeResponse moves the schema of the response into the description.
func describeResponse(item *py.Dict) error {
	response, ok := item.Get("response")
	if !ok {
		return nil
	}
	text, err := py.JSON(response)
	if err != nil {
		return err
	}
	extend(item, "description", " The response field has the following schema: "+text)
	item.Delete("response")
	return nil
}

// describeFields moves the fields of a property that Gemini does not accept into its description.
func describeFields(p *py.Dict) {
	if !p.Has("description") {
		p.Set("description", "")
	}
	kind, _ := p.Get("type")
	for _, f := range []struct {
		key, text string // text introduces the value in the description
		moved     bool
	}{
		{"default", "Default is", true}, {"optional", "Optional", true}, {"required", "Required", true},
		{"maximum", "Maximum value", true}, {"minItems", "Minimum number of items", true},
		{"maxItems", "Maximum number of items", true}, {"additionalProperties", "Additional properties", true},
		{"enum", "Enum values", kind != "string"}, {"format", "Format", kind == "string"},
	} {
		if v, ok := p.Get(f.key); ok && f.moved {
			extend(p, "description", " "+f.text+": "+py.Str(v)+".")
			p.Delete(f.key)
		}
	}
}

// promptBefore and promptAfter surround the documents in the official system prompt for models without tool calls.
const promptBefore = "You are an expert in composing functions.You are " +
	"given a question and a set of possible functions. " +
	"Based on the question, you will need to make one or more function/tool calls to achieve the purpose. If " +
	"none of the functions can be used, point it out. If the given question lacks the parameters required by " +
	"the function, also point it out.\n\nYou should only return the function calls in your response.\n\nIf " +
	"you decide to invoke any of the function(s), you MUST put it in the format of " +
	"[func_name1(params_name1=params_value1, params_name2=params_value2...), func_name2(params)].  You " +
	"SHOULD NOT include any other text in the response.\n\nAt each turn, you should try your best to " +
	"complete the tasks requested by the user within the current turn. Continue to output functions to call " +
	"until you have fulfilled the user's request to the best of your ability. Once you have no more " +
	"functions to call, the system will consider the current turn complete and proceed to the next turn or " +
	"task.\n\nHere is a list of functions in json format that you can invoke.\n"

const promptAfter = "\n"

// SystemPrompt returns the official system prompt for models without tool calls, which contains the documents of the
// tools on offer at the start.
func (d *Data) SystemPrompt(names []string) (string, error) {
	docs := make([]json.RawMessage, len(names))
	for i, name := range names {
		var err error
		if docs[i], err = d.Document(name); err != nil {
			return "", err
		}
	}
	return SystemPrompt(docs)
}

// SystemPrompt is Data.SystemPrompt for documents in the benchmark's form.
func SystemPrompt(docs []json.RawMessage) (string, error) {
	documents := &py.List{}
	for _, doc := range docs {
		item, err := readDocument(doc, false)
		if err != nil {
			return "", err
		}
		documents.Items = append(documents.Items, item)
	}
	text, err := indentedJSON(documents)
	if err != nil {
		return "", err
	}
	return promptBefore + text + promptAfter, nil
}

// indentedJSON is json.dumps(v, indent=4).
func indentedJSON(v py.Value) (string, error) {
	text, err := py.JSON(v)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	err = json.Indent(&b, []byte(text), "", "    ")
	return b.String(), err
}
