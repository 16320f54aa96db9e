package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/artifact"
)

// Key is the hash of all that decides what a node makes: kind and version, settings with their defaults, the seed if
// it draws, and for each input the content digest that digest gives for it. ok is false while one of them is unknown;
// the parts, which nobody may change, then lack that input. Names, comments, order, formatting and paths are in no key, except that a kind that
// gathers shows the addresses of what it reads, so they are in its.
func (n *Node) Key(digest func(from *Node, port string) (string, bool)) (key string, parts artifact.Parts, ok bool) {
	own := n.ownParts()
	if len(n.Inputs) == 0 {
		if n.ownKey == "" {
			n.ownKey = keyOf(own)
		}
		return n.ownKey, own, true
	}
	parts = make(artifact.Parts, len(own)+len(n.Inputs))
	maps.Copy(parts, own)
	ok = true
	for _, in := range n.Inputs {
		d, known := digest(in.From, in.Ref.Port)
		if !known {
			ok = false
			continue
		}
		parts[inputPart(in.Setting)] = n.inputValue(in, d)
	}
	if !ok {
		return "", parts, false
	}
	return keyOf(parts), parts, true
}

// keyOf hashes parts: SHA-256 of their canonical JSON, in hexadecimal.
func keyOf(parts artifact.Parts) string {
	b := []byte{'{'}
	for i, name := range slices.Sorted(maps.Keys(parts)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendText(b, name), ':')
		b = appendText(b, parts[name])
	}
	sum := sha256.Sum256(append(b, '}'))
	return hex.EncodeToString(sum[:])
}

func inputPart(setting string) string { return "input." + setting }

// inputValue is what an input contributes to the key.
func (n *Node) inputValue(in Input, digest string) string {
	if n.Kind.AcrossSeeds {
		return jsonText([]string{digest, in.From.Address, in.Ref.Port})
	}
	return jsonText(digest)
}

// ownParts are the parts that do not depend on inputs.
func (n *Node) ownParts() artifact.Parts {
	if n.own != nil {
		return n.own
	}
	n.own = artifact.Parts{"kind": jsonText(n.Kind.Name), "version": strconv.Itoa(n.Kind.Version)}
	for _, s := range n.Settings {
		if s.InKey {
			n.own["settings."+s.Name] = s.Value
		}
	}
	if n.Stochastic && n.Seed != nil {
		n.own["seed"] = strconv.FormatInt(*n.Seed, 10)
	}
	return n.own
}

// walker goes through a decoded settings struct in the order of its fields.
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

// leaf records one value. References become edges, files stand with their digests, lists and maps that hold any of
// them are taken apart; everything else is one setting.
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
			w.settings = append(w.settings, Setting{Name: path, Value: jsonText(f.Digest), Range: at, InKey: inKey, Path: f.Path})
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

// holdsData says whether a list or map holds references or files, at any depth.
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

// Canonical is a setting of which several spellings mean the same: the value it returns stands in the key instead. A
// stage must do the same, to the byte, for all settings with one canonical value.
type Canonical interface{ Canonical() any }

// canonical writes a value as JSON that is the same whenever the value is: keys sorted, no escapes for HTML, empty
// and missing lists alike, durations as text.
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
			items = append(items, jsonText(k.String())+":"+canonical(v.MapIndex(k)))
		}
		slices.Sort(items)
		return "{" + strings.Join(items, ",") + "}"
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return "null"
		}
		return canonical(v.Elem())
	}
	switch {
	case v.Type() == durationGoType:
		return jsonText(v.Interface().(time.Duration).String())
	case v.Type() == stringGoType: // one that writes itself in another form has a type of its own
		return string(appendText(nil, v.String()))
	}
	return jsonText(v.Interface())
}

// appendText appends a text as jsonText would write it.
func appendText(b []byte, text string) []byte {
	special := func(c rune) bool { return c < ' ' || c > '~' }
	if strings.ContainsFunc(text, special) {
		return append(b, jsonText(text)...)
	}
	b = append(b, '"')
	for _, c := range []byte(text) {
		if c == '"' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, c)
	}
	return append(b, '"')
}

func jsonText(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil { // no setting can hold what JSON cannot
		panic(fmt.Sprintf("engine: %T as JSON: %v", v, err))
	}
	return strings.TrimSuffix(b.String(), "\n")
}
