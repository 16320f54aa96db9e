package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/rogpeppe/go-internal/testscript"

	"rcgrpo/engine/plan"
)

const schemaFolder = "../../docs/schemas"

// jsonTypes maps the commands with a schema to the type of their --json.
var jsonTypes = map[string]reflect.Type{
	"plan":   reflect.TypeFor[planJSON](),
	"status": reflect.TypeFor[statusJSON](),
	"show":   reflect.TypeFor[[]exported](),
}

// schemaOf returns the schema of a command's --json. An exact schema allows no fields except those of the type; the
// published one does, because later versions may add fields.
func schemaOf(command string, exact bool) (*jsonschema.Schema, error) {
	cause := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{
		"reason": {Type: "string"}, "text": {Type: "string"}, "file": {Type: "string"}, "line": {Type: "integer"},
	}, PropertyOrder: []string{"reason", "text", "file", "line"}, AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}}}
	s, err := jsonschema.ForType(jsonTypes[command], &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[plan.Cause]():      cause,
		reflect.TypeFor[plan.Verb]():       {Type: "string", Enum: []any{plan.UpToDate, plan.Collected, plan.MustRun, plan.MayRun}},
		reflect.TypeFor[json.RawMessage](): {Type: "object"},
	}})
	if err == nil {
		s.Schema = "https://json-schema.org/draft/2020-12/schema"
		s.Title = "rcgrpo " + command + " --json"
		simplify(s, exact)
	}
	return s, err
}

// simplify removes null from the types of optional fields, which are omitted instead.
func simplify(s *jsonschema.Schema, exact bool) {
	if s == nil {
		return
	}
	if more := s.AdditionalProperties; !exact && more != nil && more.Not != nil {
		s.AdditionalProperties = nil
	}
	for name, field := range s.Properties {
		if len(field.Types) == 2 && field.Types[0] == "null" && !slices.Contains(s.Required, name) {
			field.Type, field.Types = field.Types[1], nil
		}
		simplify(field, exact)
	}
	simplify(s.Items, exact)
	simplify(s.AdditionalProperties, exact)
}

func TestSchemasAreThoseOfTheTypes(t *testing.T) {
	for command := range jsonTypes {
		s, err := schemaOf(command, false)
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		if err := printJSON(&want, s); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(schemaFolder, command+".json")
		if *update {
			if err := os.WriteFile(path, want.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%s is outdated (%v); run go test ./cmd/rcgrpo -run TestSchemas -update", path, err)
		}
	}
}

// fits checks in a script that the output of the last command fits a schema: fits plan|status|show.
func fits(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 || jsonTypes[args[0]] == nil {
		ts.Fatalf("usage: fits plan|status|show")
	}
	published := new(jsonschema.Schema)
	text, err := os.ReadFile(filepath.Join(schemaFolder, args[0]+".json"))
	ts.Check(err)
	ts.Check(json.Unmarshal(text, published))
	exact, err := schemaOf(args[0], true)
	ts.Check(err)
	var output any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &output))
	for _, s := range []*jsonschema.Schema{published, exact} {
		resolved, err := s.Resolve(nil)
		ts.Check(err)
		if err = resolved.Validate(output); (err != nil) != neg {
			ts.Fatalf("the output fits the schema of %s: %v, %v", args[0], err == nil, err)
		}
	}
}
