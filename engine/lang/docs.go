package lang

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// SettingDoc describes one setting of a kind, for `rcgrpo kinds` and docs/language.md.
type SettingDoc struct {
	Name     string   `json:"name"` // "clip.low"; "compare.pairs" in a repeated block
	Type     string   `json:"type"` // "number", "list of strings", "checkpoint or dataset", "block", "block, repeated"
	Unit     string   `json:"unit,omitempty"`
	Default  string   `json:"default,omitempty"` // as HCL; "" for none
	Required bool     `json:"required,omitempty"`
	Choices  []string `json:"choices,omitempty"`
	Keyed    bool     `json:"in_key"`
	Doc      string   `json:"doc,omitempty"`
}

// KindDoc describes a kind.
type KindDoc struct {
	Name     string            `json:"name"`
	Summary  string            `json:"summary"`
	Version  int               `json:"version"`
	Ports    map[string]string `json:"ports"` // with default settings
	Draws    string            `json:"draws"` // "yes", "no", "depends" or "gathers"
	Settings []SettingDoc      `json:"settings"`
}

// Describe returns the documentation of a kind, derived from its settings struct and defaults.
func (k *Kind) Describe() KindDoc { return k.describe(k.New()) }

// Presets returns the presets of a kind, or nil.
func (k *Kind) Presets() []string {
	for _, f := range fieldsOf(reflect.TypeOf(k.New()).Elem()) {
		if f.preset {
			return f.choices
		}
	}
	return nil
}

// DescribePreset is Describe with the defaults of a preset.
func (k *Kind) DescribePreset(name string) KindDoc {
	stage := k.New()
	stage.(Preset).UsePreset(name)
	return k.describe(stage)
}

func (k *Kind) describe(stage Stage) KindDoc {
	d := KindDoc{Name: k.Name, Summary: k.Summary, Version: k.Version, Draws: "no", Ports: map[string]string{}}
	if k.Outputs != nil {
		d.Ports = k.Outputs(stage)
	}
	switch {
	case k.AcrossSeeds:
		d.Draws = "gathers"
	case k.Stochastic != nil && k.Stochastic(stage):
		d.Draws = "yes"
	case k.Stochastic != nil:
		d.Draws = "depends"
	}
	d.Settings = describeSettings(reflect.ValueOf(stage).Elem(), "", true)
	return d
}

// StageSettings describes the settings of every stage.
func StageSettings() []SettingDoc {
	head := []SettingDoc{
		{Name: "for_each", Type: "list, map or set", Doc: "one instance for each element; each.key and each.value"},
		{Name: "depends_on", Type: "list of references", Doc: "stages to wait for without reading them"},
	}
	all := append(head, describeSettings(reflect.ValueOf(meta{Enabled: true}), "", false)...)
	for i := range all {
		all[i].Keyed = all[i].Name == "seed"
	}
	return all
}

func describeSettings(v reflect.Value, prefix string, keyed bool) []SettingDoc {
	var docs []SettingDoc
	for _, f := range fieldsOf(v.Type()) {
		value := v.FieldByIndex(f.index)
		switch f.role {
		case roleSetting, roleLabel:
			typ := typeName(f.typ, f.ports)
			if f.role == roleLabel {
				typ = "label"
			}
			docs = append(docs, SettingDoc{Name: prefix + f.name, Type: typ, Unit: f.unit, Required: !f.optional,
				Default: defaultText(value, f.optional), Choices: f.choices, Keyed: keyed && f.inKey, Doc: f.doc})
		case roleBlock:
			docs = append(docs, describeBlock(value, f, prefix, keyed)...)
		}
	}
	return docs
}

func describeBlock(value reflect.Value, f field, prefix string, keyed bool) []SettingDoc {
	head := SettingDoc{Name: prefix + f.name, Type: "block", Keyed: keyed && f.inKey, Doc: f.doc}
	switch {
	case value.Kind() == reflect.Slice:
		head.Type = "block, repeated"
		value = newBlock(blockStruct(f.typ))
	case value.Kind() == reflect.Pointer && value.IsNil():
		head.Type = "block, absent by default"
		value = reflect.New(blockStruct(f.typ)).Elem()
	case value.Kind() == reflect.Pointer:
		value = value.Elem()
	}
	return append([]SettingDoc{head}, describeSettings(value, prefix+f.name+".", head.Keyed)...)
}

func typeName(t reflect.Type, ports []string) string {
	switch t {
	case refGoType:
		if len(ports) == 0 {
			return "reference"
		}
		return strings.Join(ports, " or ")
	case fileGoType:
		return "file or folder"
	case dataGoType:
		return "file, folder or " + cmp.Or(strings.Join(ports, " or "), "reference")
	case durationGoType:
		return "time"
	case bytesGoType:
		return "size"
	case anyGoType:
		return "any"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "bool"
	case reflect.String:
		return "string"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Slice:
		if t.Elem() == refGoType {
			return "references to " + strings.Join(ports, " or ")
		}
		return "list of " + pluralType(typeName(t.Elem(), ports))
	case reflect.Map:
		return "map of " + pluralType(typeName(t.Elem(), ports))
	case reflect.Pointer:
		return typeName(t.Elem(), ports)
	}
	if v := reflect.Zero(t); !v.CanInt() && !v.CanUint() {
		panic(fmt.Sprintf("lang: no setting can have the type %s", t))
	}
	return "whole number"
}

func pluralType(name string) string {
	list, isList := strings.CutPrefix(name, "list of ")
	values, isMap := strings.CutPrefix(name, "map of ")
	switch {
	case isList:
		return "lists of " + list
	case isMap:
		return "maps of " + values
	case name == "file, folder or reference":
		return "files, folders or references"
	case name == "any" || strings.Contains(name, " or "):
		return name
	}
	return name + "s"
}

// defaultText formats the default of a field; "" for a value that means "not set".
func defaultText(v reflect.Value, optional bool) string {
	if !optional || v.Type() == refGoType || v.Type() == fileGoType || v.Type() == dataGoType {
		return ""
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return ""
		}
		return defaultText(v.Elem(), true)
	case reflect.Slice, reflect.Map, reflect.String:
		if v.Len() == 0 {
			return ""
		}
	}
	if v.Type() == durationGoType && v.IsZero() || v.Type() == bytesGoType && v.IsZero() {
		return ""
	}
	if v.Kind() == reflect.Float64 || v.Kind() == reflect.Float32 {
		return FormatValue(strconv.FormatFloat(v.Float(), 'g', -1, 64), true)
	}
	return strings.ReplaceAll(canonical(v), `","`, `", "`)
}

// WriteText prints the kind for a terminal.
func (d KindDoc) WriteText(w io.Writer) {
	fmt.Fprintf(w, "%s (version %d)\n  %s\n", d.Name, d.Version, d.Summary)
	fmt.Fprintf(w, "\nports: %s\ndraws: %s\n\n", listPorts(d.Ports), d.Draws)
	WriteSettings(w, d.Settings)
}

// WriteSettings prints settings as an aligned table.
func WriteSettings(w io.Writer, settings []SettingDoc) {
	var table strings.Builder
	columns := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	for _, s := range settings {
		indent := strings.Repeat("  ", 1+strings.Count(s.Name, "."))
		name := s.Name[strings.LastIndexByte(s.Name, '.')+1:]
		fmt.Fprintf(columns, "%s%s\t%s\t%s\t%s\n", indent, name, s.TypeText(), s.valueText(), s.note())
	}
	columns.Flush()
	for line := range strings.Lines(table.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

// TypeText returns the type and the unit.
func (s SettingDoc) TypeText() string {
	if s.Unit != "" && s.Unit != s.Name {
		return s.Type + ", " + s.Unit
	}
	return s.Type
}

func (s SettingDoc) valueText() string {
	if s.Required {
		return "required"
	}
	return s.Default
}

func (s SettingDoc) note() string {
	note := s.Doc
	if len(s.Choices) > 0 {
		note = strings.TrimPrefix(note+"; one of "+quoteAll(s.Choices), "; ")
	}
	return note
}

// WriteMarkdown writes the generated part of docs/language.md: the settings of every stage, then each kind with
// its ports and settings.
func (r Registry) WriteMarkdown(w io.Writer) {
	fmt.Fprintf(w, "## Settings of every stage\n\n")
	markdownSettings(w, StageSettings())
	for _, k := range r {
		d := k.Describe()
		fmt.Fprintf(w, "\n## Kind `%s`\n\n%s\n\n", d.Name, d.Summary)
		fmt.Fprintf(w, "Version %d. Ports: %s. Draws: %s.\n\n", d.Version, MarkdownPorts(d.Ports), d.Draws)
		markdownSettings(w, d.Settings)
	}
}

// MarkdownPorts returns ports with their types: "`train` (tasks), `test` (tasks)".
func MarkdownPorts(ports map[string]string) string {
	var all []string
	for _, p := range slices.Sorted(maps.Keys(ports)) {
		all = append(all, fmt.Sprintf("`%s` (%s)", p, ports[p]))
	}
	return cmp.Or(strings.Join(all, ", "), "as declared")
}

func markdownSettings(w io.Writer, settings []SettingDoc) {
	if len(settings) == 0 {
		fmt.Fprintln(w, "No settings.")
		return
	}
	fmt.Fprintln(w, "| setting | type | default | meaning |\n|---|---|---|---|")
	for _, s := range settings {
		value := s.valueText()
		if value != "" && !s.Required {
			value = "`" + value + "`"
		}
		note := s.note()
		if !s.Keyed && s.Type != "block" {
			note = strings.TrimPrefix(note+"; not in the key", "; ")
		}
		fmt.Fprintf(w, "| `%s` | %s | %s | %s |\n", s.Name, strings.ReplaceAll(s.TypeText(), "|", "\\|"),
			strings.ReplaceAll(value, "|", "\\|"), strings.ReplaceAll(note, "|", "\\|"))
	}
}
