package lang

import (
	_ "embed"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"rcgrpo/engine/artifact"
)

// fieldRole is the meaning of the `hcl` tag of a settings field.
type fieldRole int

const (
	roleSetting fieldRole = iota // `name = expression`
	roleBlock                    // `name { … }`
	roleLabel                    // label of the block itself
	roleRanges                   // ranges of the struct's settings, by name
)

var roles = map[string]fieldRole{"": roleSetting, "optional": roleSetting, "block": roleBlock, "label": roleLabel,
	"ranges": roleRanges}

// field is one tagged field of a settings struct. The package comment lists the tags.
type field struct {
	name     string
	role     fieldRole
	optional bool
	index    []int // for reflect.Value.FieldByIndex, through embedded structs
	typ      reflect.Type
	ports    []string
	choices  []string
	doc      string
	unit     string
	inKey    bool
	preset   bool
}

var (
	refGoType      = reflect.TypeFor[artifact.Ref]()
	fileGoType     = reflect.TypeFor[artifact.File]()
	dataGoType     = reflect.TypeFor[artifact.Data]()
	durationGoType = reflect.TypeFor[time.Duration]()
	bytesGoType    = reflect.TypeFor[byteSize]()
	anyGoType      = reflect.TypeFor[any]()
)

// byteSize is a number of bytes, written "16GB" or "512MiB".
type byteSize int64

//go:generate go run ../../build/settings ../..

// settingsText has the comments of all settings' fields, a line for each.
//
//go:embed settings.txt
var settingsText string

// documentation returns the comments of the fields by PACKAGE.TYPE.FIELD.
var documentation = sync.OnceValue(func() map[string]string {
	comments := map[string]string{}
	for line := range strings.Lines(settingsText) {
		field, comment, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		comments[field] = comment
	}
	return comments
})

var fieldCache sync.Map // reflect.Type -> []field

// fieldsOf returns the settings of struct type t in the order of its fields.
func fieldsOf(t reflect.Type) []field {
	if known, ok := fieldCache.Load(t); ok {
		return known.([]field)
	}
	fields := readFields(t)
	fieldCache.Store(t, fields)
	return fields
}

func readFields(t reflect.Type) (fields []field) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("hcl")
		if !tagged {
			if f.Anonymous && f.Type.Kind() == reflect.Struct {
				for _, in := range readFields(f.Type) {
					in.index = append([]int{i}, in.index...)
					fields = append(fields, in)
				}
			}
			continue
		}
		name, suffix, _ := strings.Cut(tag, ",")
		role, known := roles[suffix]
		if !known {
			panic(fmt.Sprintf("lang: the hcl tag of %s.%s ends in %q", t, f.Name, suffix))
		}
		fields = append(fields, field{
			name: name, role: role, index: []int{i}, typ: f.Type,
			doc:  documentation()[fmt.Sprintf("%s.%s.%s", t.PkgPath(), t.Name(), f.Name)],
			unit: f.Tag.Get("unit"), inKey: f.Tag.Get("key") != "-",
			preset: f.Tag.Get("preset") != "", optional: suffix == "optional",
			ports: splitTag(f.Tag.Get("port")), choices: splitTag(f.Tag.Get("choices")),
		})
	}
	return fields
}

func splitTag(s string) []string { return strings.FieldsFunc(s, func(r rune) bool { return r == '|' }) }

// blockStruct returns the struct type of a block field.
func blockStruct(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// reserved are the names that every stage has. A kind may not redefine them.
var reserved = []string{"for_each", "seed", "depends_on", "enabled", "executor", "timeout", "description",
	"resources", "retry"}
