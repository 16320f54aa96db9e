package lang

import (
	_ "embed"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/hcl/v2"

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
	rangesGoType   = reflect.TypeFor[map[string]hcl.Range]()
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

// fieldsOf returns the settings of struct type t in the order of its fields. It skips wrong tags, which
// Registry.Check reports in a test.
func fieldsOf(t reflect.Type) []field {
	if known, ok := fieldCache.Load(t); ok {
		return known.([]field)
	}
	fields, _ := readFields(t)
	fieldCache.Store(t, fields)
	return fields
}

// readFields also returns the mistakes in the tags of a struct and of its blocks.
func readFields(t reflect.Type) (fields []field, mistakes []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("hcl")
		if !tagged {
			if f.Anonymous && f.Type.Kind() == reflect.Struct {
				inner, wrong := readFields(f.Type)
				for _, in := range inner {
					in.index = append([]int{i}, in.index...)
					fields = append(fields, in)
				}
				mistakes = append(mistakes, wrong...)
			}
			continue
		}
		name, role, _ := strings.Cut(tag, ",")
		out := field{
			name: name, index: []int{i}, typ: f.Type,
			doc:  documentation()[fmt.Sprintf("%s.%s.%s", t.PkgPath(), t.Name(), f.Name)],
			unit: f.Tag.Get("unit"), inKey: f.Tag.Get("key") != "-",
			preset: f.Tag.Get("preset") != "", optional: role == "optional",
			ports: splitTag(f.Tag.Get("port")), choices: splitTag(f.Tag.Get("choices")),
		}
		var known bool
		if out.role, known = roles[role]; !known {
			mistakes = append(mistakes, fmt.Sprintf("%s.%s: hcl tag ends in %q", t, f.Name, role))
			continue
		}
		wrong := checkFieldType(out)
		if !f.IsExported() {
			wrong = "is not exported"
		}
		if wrong != "" {
			mistakes = append(mistakes, fmt.Sprintf("%s.%s %s", t, f.Name, wrong))
			continue
		}
		if out.role == roleBlock {
			_, inner := readFields(blockStruct(f.Type))
			mistakes = append(mistakes, inner...)
		}
		fields = append(fields, out)
	}
	return fields, mistakes
}

func splitTag(s string) []string { return strings.FieldsFunc(s, func(r rune) bool { return r == '|' }) }

// checkFieldType returns why the decoder cannot fill a field of type t, or "".
func checkFieldType(f field) string {
	switch f.role {
	case roleRanges:
		if f.typ != rangesGoType {
			return "must be a map[string]hcl.Range"
		}
	case roleLabel:
		if f.typ.Kind() != reflect.String {
			return "is a label and must be a string"
		}
	case roleBlock:
		if blockStruct(f.typ) == nil {
			return "is a block and must be a struct, a pointer to one or a slice of either"
		}
	default:
		if f.preset && f.typ.Kind() != reflect.String {
			return "names a preset and must be a string"
		}
		if !settable(f.typ, true) {
			return fmt.Sprintf("has type %s, which no setting can have", f.typ)
		}
	}
	return ""
}

// blockStruct returns the struct type of a block field, or nil.
func blockStruct(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	return t
}

func settable(t reflect.Type, outermost bool) bool {
	switch t {
	case refGoType, fileGoType, dataGoType, durationGoType, bytesGoType, anyGoType:
		return true
	}
	switch t.Kind() {
	case reflect.Bool, reflect.String, reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint32,
		reflect.Uint64, reflect.Float32, reflect.Float64:
		return true
	case reflect.Slice:
		return settable(t.Elem(), false)
	case reflect.Map:
		return t.Key().Kind() == reflect.String && settable(t.Elem(), false)
	case reflect.Pointer:
		return outermost && t.Elem() != refGoType && settable(t.Elem(), false)
	}
	return false
}

// reserved are the names that every stage has. A kind may not redefine them.
var reserved = []string{"for_each", "seed", "depends_on", "enabled", "executor", "timeout", "description",
	"resources", "retry"}

// Check reports errors in kinds: duplicate names, settings that collide with those of every stage, tags and field
// types that the decoder does not support, kinds without summary or version. A test of the literal list calls it.
func (r Registry) Check() []string {
	var mistakes []string
	seen := map[string]bool{}
	for _, k := range r {
		report := func(format string, args ...any) {
			mistakes = append(mistakes, "kind "+k.Name+": "+fmt.Sprintf(format, args...))
		}
		if seen[k.Name] {
			report("is twice in the list")
		}
		seen[k.Name] = true
		if k.Summary == "" {
			report("has no summary")
		}
		if k.Version < 1 {
			report("has version %d; versions begin at 1", k.Version)
		}
		if k.AfterFailures && !k.InProcess {
			report("has AfterFailures without InProcess")
		}
		stage := k.New()
		v := reflect.ValueOf(stage)
		if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
			report("New returns a %T, not a pointer to a struct", stage)
			continue
		}
		_, wrong := readFields(v.Elem().Type())
		for _, w := range wrong {
			report("%s", w)
		}
		for _, f := range fieldsOf(v.Elem().Type()) {
			if _, ok := stage.(Preset); f.preset && !ok {
				report("setting %s names a preset, and %T has no method UsePreset", f.name, stage)
			}
			if (f.role == roleSetting || f.role == roleBlock) && slices.Contains(reserved, f.name) {
				report("setting %s means something else in every stage", f.name)
			}
		}
	}
	return mistakes
}
