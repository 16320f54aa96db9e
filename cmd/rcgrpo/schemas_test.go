package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/rogpeppe/go-internal/testscript"

	"rcgrpo/cmd/rcgrpo/internal/output"
	"rcgrpo/cmd/rcgrpo/internal/views"
	"rcgrpo/engine/plan"
	"rcgrpo/internal/must"
)

const schemaFolder = "../../docs/schemas"

// jsonTypes maps the commands with a schema to the type of their --json.
var jsonTypes = map[string]reflect.Type{
	"plan":   reflect.TypeFor[planJSON](),
	"status": reflect.TypeFor[statusJSON](),
	"show":   reflect.TypeFor[[]views.Exported](),
}

// schemaOf returns the schema of a command's --json. An exact schema allows no fields except those of the type; the
// published one does, because later versions may add fields.
func schemaOf(command string, exact bool) (*jsonschema.Schema, error) {
	cause, err := jsonschema.For[struct { // plan.Cause.MarshalJSON
		Reason plan.Reason `json:"reason,omitempty"`
		Text   string      `json:"text,omitempty"`
		File   string      `json:"file,omitempty"`
		Line   int         `json:"line,omitempty"`
	}](nil)
	if err != nil {
		return nil, err
	}
	verbs := []any{plan.UpToDate, plan.NotHere, plan.Fetch, plan.MustRun, plan.MayRun}
	s, err := jsonschema.ForType(jsonTypes[command], &jsonschema.ForOptions{
		TypeSchemas: map[reflect.Type]*jsonschema.Schema{
			reflect.TypeFor[plan.Cause]():      cause,
			reflect.TypeFor[plan.Verb]():       {Type: "string", Enum: verbs},
			reflect.TypeFor[time.Time]():       {Type: "string", Format: "date-time"},
			reflect.TypeFor[json.RawMessage](): {Type: "object"}, // a row
		},
	})
	if err != nil {
		return nil, err
	}
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.Title = "rcgrpo " + command + " --json"
	simplify(s, "", exact)
	return s, nil
}

// simplify removes null from the types of a schema, except rows: no other list is null, and an optional field is
// omitted instead. Unless the schema is exact, it allows more fields.
func simplify(s *jsonschema.Schema, name string, exact bool) {
	if s == nil {
		return
	}
	if len(s.Types) == 2 && s.Types[0] == "null" && name != "rows" {
		s.Type, s.Types = s.Types[1], nil
	}
	if more := s.AdditionalProperties; !exact && more != nil && more.Not != nil {
		s.AdditionalProperties = nil
	}
	for name, field := range s.Properties {
		simplify(field, name, exact)
	}
	simplify(s.Items, "", exact)
	simplify(s.AdditionalProperties, "", exact)
}

func TestSchemasAreThoseOfTheTypes(t *testing.T) {
	for command := range jsonTypes {
		s := must.Get(schemaOf(command, false))(t)
		var want bytes.Buffer
		must.OK(t, output.JSON(&want, s))
		path := filepath.Join(schemaFolder, command+".json")
		if *update {
			must.OK(t, os.WriteFile(path, want.Bytes(), 0o644))
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
