package lang

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/artifact"
)

// settingsWalker flattens a decoded settings struct, in the order of its fields.
type settingsWalker struct {
	origins  map[string]origin
	settings []Setting
	refs     []boundRef
	files    []artifact.File
}

func (w *settingsWalker) structure(v reflect.Value, prefix string, inKey bool) {
	for _, f := range fieldsOf(v.Type()) {
		value := v.FieldByIndex(f.index)
		switch f.role {
		case roleSetting, roleLabel:
			w.leaf(value, prefix+f.name, w.origins[prefix+f.name], inKey && f.inKey)
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
func (w *settingsWalker) leaf(v reflect.Value, path string, from origin, inKey bool) {
	if v.Kind() == reflect.Pointer && !v.IsNil() && isData(v.Type().Elem()) {
		v = v.Elem()
	}
	switch {
	case v.Type() == refGoType:
		if ref := v.Interface().(artifact.Ref); ref.Kind != "" {
			w.refs = append(w.refs, boundRef{setting: path, ref: ref, rng: from.at})
		}
	case v.Type() == fileGoType:
		if f := v.Interface().(artifact.File); f.Path != "" {
			w.files = append(w.files, f)
			w.add(Setting{Name: path, Value: JSONText(f.Digest), InKey: inKey, Path: f.Path}, from)
		}
	case v.Type() == dataGoType:
		data := v.Interface().(artifact.Data)
		w.leaf(reflect.ValueOf(data.Ref), path, from, inKey)
		w.leaf(reflect.ValueOf(data.File), path, from, inKey)
	case holdsData(v.Type()) && v.Kind() == reflect.Slice:
		for i := range v.Len() {
			w.leaf(v.Index(i), fmt.Sprintf("%s[%d]", path, i), from, inKey)
		}
	case holdsData(v.Type()) && v.Kind() == reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			w.leaf(v.MapIndex(k), path+"."+k.String(), from, inKey)
		}
	default:
		w.add(Setting{Name: path, Value: canonical(v), InKey: inKey}, from)
	}
}

func (w *settingsWalker) add(s Setting, from origin) {
	s.Range = from.at
	if from.layer != nil {
		s.From = from.layer.name
	}
	w.settings = append(w.settings, s)
}

// holdsData reports whether a list or map contains references or files, at any depth.
func holdsData(t reflect.Type) bool {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return isData(t)
}

func isData(t reflect.Type) bool { return t == refGoType || t == fileGoType || t == dataGoType }

// canonical returns the JSON of a value: sorted keys, no HTML escapes, empty and missing lists alike, durations as
// text. Equal values have equal JSON.
func canonical(v reflect.Value) string {
	switch v.Type() {
	case durationGoType:
		return JSONText(v.Interface().(time.Duration).String())
	case jsonGoType:
		return cmp.Or(string(v.Bytes()), "null")
	}
	switch v.Kind() {
	case reflect.Slice:
		var items []string
		for _, item := range v.Seq2() {
			items = append(items, canonical(item))
		}
		return "[" + strings.Join(items, ",") + "]"
	case reflect.Map:
		var items []string
		for k, item := range v.Seq2() {
			items = append(items, JSONText(k.String())+":"+canonical(item))
		}
		slices.Sort(items)
		return "{" + strings.Join(items, ",") + "}"
	case reflect.Pointer:
		if v.IsNil() {
			return "null"
		}
		return canonical(v.Elem())
	}
	return JSONText(v.Interface())
}

// JSONText returns the JSON of a value without HTML escapes.
func JSONText(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil { // no setting has a type that JSON cannot represent
		panic(fmt.Sprintf("lang: %T as JSON: %v", v, err))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// EffectChecker is a stage that knows which settings have no effect on its result, given the other settings. A
// file that sets such a setting to another value than the default is wrong, and the decoder reports it. Pages mark
// the defaults among them (Setting.NoEffect).
type EffectChecker interface {
	// WithoutEffect returns these settings by name ("clip.low", "reward_term[0].weight") with the reason, a clause such
	// as "a constant rate does not fall". It is called if Check reports nothing.
	WithoutEffect() map[string]string
}

// markEffects sets NoEffect of each setting of an instance and reports those that the file sets without effect. It adds
// those that come from defaults of all kinds to drop instead.
func (in *instance) markEffects(origins map[string]origin, drop map[string]bool) hcl.Diagnostics {
	checker, ok := in.stage.(EffectChecker)
	if !ok {
		return nil
	}
	reasons := checker.WithoutEffect()
	if len(reasons) == 0 {
		return nil
	}
	defaults := sync.OnceValue(func() map[string]string { // few stages need them
		var w settingsWalker
		w.structure(reflect.ValueOf(in.block.kind.defaults(in.stage)).Elem(), "", true)
		byName := map[string]string{}
		for _, s := range w.settings {
			byName[s.Name] = s.Value
		}
		return byName
	})
	var diags hcl.Diagnostics
	for i := range in.settings {
		s := &in.settings[i]
		s.NoEffect = reasons[s.Name]
		from, written := origins[s.Name]
		if s.NoEffect == "" || !written {
			continue
		}
		switch value, known := defaults()[s.Name]; {
		case known && value == s.Value:
		case from.layer.optional:
			drop[s.Name] = true
		default:
			diags = append(diags, mistake(from.at, "Setting without effect", "%s = %s has no effect: %s. Remove it.", s.Name,
				strings.ReplaceAll(s.Value, `","`, `", "`), s.NoEffect))
		}
	}
	return diags
}

// defaults returns a stage with the default settings and the preset of stage.
func (k *Kind) defaults(stage Stage) Stage {
	fresh := k.New()
	v := reflect.ValueOf(stage).Elem()
	for _, f := range fieldsOf(v.Type()) {
		if name := v.FieldByIndex(f.index); f.preset && name.String() != "" {
			fresh.(Preset).UsePreset(name.String())
		}
	}
	return fresh
}
