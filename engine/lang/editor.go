package lang

import (
	"reflect"
	"slices"
	"strings"
)

// BlockDoc describes a block at the top level of a file, for editors.
type BlockDoc struct {
	Name     string
	Labels   []string // their meanings
	Doc      string
	Settings []SettingDoc // as in KindDoc; those of a stage depend on its kind
}

// FileBlocks describes the blocks of an experiment file.
var FileBlocks = []BlockDoc{
	{"experiment", nil, "question, expected outcome and seeds", []SettingDoc{
		{Name: "question", Type: "string", Doc: "research question"},
		{Name: "expect", Type: "string", Doc: "expected outcome, written down in advance"},
		{Name: "seeds", Type: "list of whole numbers", Default: "[1]", Doc: "every stochastic stage runs once per seed"},
	}},
	{"variable", []string{"NAME"}, "value from outside: --var, --var-file, RCGRPO_VAR_NAME or the default", []SettingDoc{
		{Name: "type", Type: "type", Default: "string", Doc: "such as number, list(string) or map(number)"},
		{Name: "default", Type: "any", Doc: "value without --var; a constant"},
		{Name: "description", Type: "string", Doc: "description for people"},
		{Name: "validation", Type: "block, repeated", Doc: "rule that the value must fulfil"},
		{Name: "validation.condition", Type: "bool", Required: true, Doc: "expression of variables"},
		{Name: "validation.message", Type: "string", Required: true, Doc: "error if the condition is false"},
	}},
	{"locals", nil, "named values, read as local.NAME", nil},
	{"stage", []string{"KIND", "NAME"}, "unit of work, read as stage.KIND.NAME.PORT", nil},
	{"defaults", []string{"KIND"}, "settings of every stage that has them, or of the named kinds", nil},
	{"module", []string{"NAME"}, "another experiment file, read as module.NAME.stage.KIND.NAME.PORT", []SettingDoc{
		{Name: "source", Type: "string", Required: true, Doc: "file or folder, relative to this file"},
		{Name: "for_each", Type: "list, map or set", Doc: "one instance for each element"},
	}},
}

// SiteSettings describes the settings and blocks of the site file, such as "store" and "store.path".
func SiteSettings() []SettingDoc {
	defaults := siteSettings{Store: &storeBlock{Path: defaultStore}, Data: &dataBlock{},
		Notify: &notifyBlock{}, Remote: defaultRemote(), Default: "local"}
	return describeSettings(reflect.ValueOf(defaults), "", false)
}

// Accepts describes the references that a setting of a kind accepts, by name, such as "compare.pairs": their artifact
// types (none: all), and whether it accepts several. ok is false if it accepts no reference.
func (k *Kind) Accepts(setting string) (types []string, several, ok bool) {
	t := reflect.TypeOf(k.New()).Elem()
	for {
		name, rest, nested := strings.Cut(setting, ".")
		fields := fieldsOf(t)
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name && f.role <= roleBlock })
		switch {
		case i < 0:
			return nil, false, false
		case fields[i].role == roleBlock && nested:
			t, setting = blockStruct(fields[i].typ), rest
			continue
		}
		t := fields[i].typ
		for t.Kind() == reflect.Slice || t.Kind() == reflect.Map || t.Kind() == reflect.Pointer {
			several = several || t.Kind() == reflect.Slice && t.Elem() == refGoType
			t = t.Elem()
		}
		return fields[i].ports, several, t == refGoType || t == dataGoType || t == anyGoType
	}
}

// FunctionDoc returns the call of a function with the names of its parameters, and its description, which may be "".
func FunctionDoc(name string) (call, doc string) {
	switch name {
	case "file":
		return "file(path)", "The content of a file, relative to the experiment's folder."
	case "dir":
		return "dir(path, left…)", "The content of a folder, relative to the experiment's folder, without the names in the " +
			"list left at any depth."
	}
	f, ok := pureFunctions()[name]
	if !ok {
		return name + "()", ""
	}
	var params []string
	for _, p := range f.Params() {
		params = append(params, p.Name)
	}
	if p := f.VarParam(); p != nil {
		params = append(params, p.Name+"…")
	}
	return name + "(" + strings.Join(params, ", ") + ")", f.Description()
}

// ExecutorTypes are the types of executors, which are the names of most.
var ExecutorTypes = []string{"local", "slurm"}
