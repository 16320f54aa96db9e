package lang

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/artifact"
)

// settingsWalker flattens a decoded settings struct, in the order of its fields.
type settingsWalker struct {
	ranges   map[string]hcl.Range
	settings []Setting
	refs     []boundRef
	files    []artifact.File
}

func (w *settingsWalker) structure(v reflect.Value, prefix string, inKey bool) {
	for _, f := range fieldsOf(v.Type()) {
		value := v.FieldByIndex(f.index)
		switch f.role {
		case roleSetting, roleLabel:
			w.leaf(value, prefix+f.name, w.ranges[prefix+f.name], inKey && f.inKey)
		case roleBlock:
			w.block(value, prefix+f.name, inKey && f.inKey)
		}
	}
}

func (w *settingsWalker) block(v reflect.Value, path string, inKey bool) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			w.block(v.Index(i), fmt.Sprintf("%s[%d]", path, i), inKey)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			w.structure(v.Elem(), path+".", inKey)
		}
	default:
		w.structure(v, path+".", inKey)
	}
}

// leaf records one value: a reference as an edge, a file as its digest. Lists and maps that contain references or
// files are flattened; any other value is one setting.
func (w *settingsWalker) leaf(v reflect.Value, path string, at hcl.Range, inKey bool) {
	if v.Kind() == reflect.Interface && !v.IsNil() {
		v = v.Elem()
	}
	switch {
	case v.Type() == refGoType:
		if ref := v.Interface().(artifact.Ref); ref.Kind != "" {
			w.refs = append(w.refs, boundRef{setting: path, ref: ref, rng: at})
		}
	case v.Type() == fileGoType:
		if f := v.Interface().(artifact.File); f.Path != "" {
			w.files = append(w.files, f)
			w.settings = append(w.settings, Setting{Name: path, Value: JsonText(f.Digest), Range: at,
				InKey: inKey, Path: f.Path})
		}
	case v.Type() == dataGoType:
		data := v.Interface().(artifact.Data)
		w.leaf(reflect.ValueOf(data.Ref), path, at, inKey)
		w.leaf(reflect.ValueOf(data.File), path, at, inKey)
	case holdsData(v) && v.Kind() == reflect.Slice:
		for i := range v.Len() {
			w.leaf(v.Index(i), fmt.Sprintf("%s[%d]", path, i), at, inKey)
		}
	case holdsData(v) && v.Kind() == reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			w.leaf(v.MapIndex(k), path+"."+k.String(), at, inKey)
		}
	default:
		w.settings = append(w.settings, Setting{Name: path, Value: canonical(v), Range: at, InKey: inKey})
	}
}

// holdsData reports whether a list or map contains references or files, at any depth.
func holdsData(v reflect.Value) bool {
	if v.Kind() != reflect.Slice && v.Kind() != reflect.Map {
		return false
	}
	switch t := v.Type().Elem(); {
	case isData(t):
		return true
	case t.Kind() != reflect.Interface && t.Kind() != reflect.Slice && t.Kind() != reflect.Map:
		return false
	}
	holds := func(e reflect.Value) bool {
		if e.Kind() == reflect.Interface && !e.IsNil() {
			e = e.Elem()
		}
		return isData(e.Type()) || holdsData(e)
	}
	if v.Kind() == reflect.Slice {
		for i := range v.Len() {
			if holds(v.Index(i)) {
				return true
			}
		}
		return false
	}
	for _, k := range v.MapKeys() {
		if holds(v.MapIndex(k)) {
			return true
		}
	}
	return false
}

func isData(t reflect.Type) bool { return t == refGoType || t == fileGoType || t == dataGoType }

// Canonical is a setting with several equivalent spellings. Its key contains the value returned. A stage must
// produce identical bytes for all settings with the same canonical value.
type Canonical interface{ Canonical() any }

// canonical returns the JSON of a value: sorted keys, no HTML escapes, empty and missing lists alike, durations as
// text. Equal values have equal JSON.
func canonical(v reflect.Value) string {
	if c, ok := v.Interface().(Canonical); ok {
		return canonical(reflect.ValueOf(c.Canonical()))
	}
	switch v.Kind() {
	case reflect.Slice:
		items := make([]string, v.Len())
		for i := range items {
			items[i] = canonical(v.Index(i))
		}
		return "[" + strings.Join(items, ",") + "]"
	case reflect.Map:
		items := make([]string, 0, v.Len())
		for _, k := range v.MapKeys() {
			items = append(items, JsonText(k.String())+":"+canonical(v.MapIndex(k)))
		}
		slices.Sort(items)
		return "{" + strings.Join(items, ",") + "}"
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return "null"
		}
		return canonical(v.Elem())
	}
	if v.Type() == durationGoType {
		return JsonText(v.Interface().(time.Duration).String())
	}
	return JsonText(v.Interface())
}

func JsonText(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil { // no setting has a type that JSON cannot represent
		panic(fmt.Sprintf("engine: %T as JSON: %v", v, err))
	}
	return strings.TrimSuffix(b.String(), "\n")
}
