package bfcl

import (
	"math"

	"rcgrpo/bfcl/internal/api"
	"rcgrpo/bfcl/internal/py"
)

// decodeValue reads the encoding that fixtures and long_context.json use for values without a JSON type:
//
//	{"$float": "nan"}                   NaN; also "inf" and "-inf"
//	{"$dict": [[key, value], ...]}      a dict with keys that are not plain strings
//	{"$tuple": [...]}, {"$set": [...]}
//	{"$repr": text, "$type": class}     a value that only prints
//
// It changes lists and dicts in place.
func decodeValue(v py.Value) py.Value {
	switch v := v.(type) {
	case *py.List:
		for i, item := range v.Items {
			v.Items[i] = decodeValue(item)
		}
	case *py.Dict:
		if name, ok := v.Get("$repr"); ok {
			kind, _ := v.Get("$type")
			return py.Opaque{Class: py.Str(kind), Text: py.Str(name)}
		}
		if name, ok := v.Get("$float"); ok {
			return map[string]float64{"nan": math.NaN(), "inf": math.Inf(1), "-inf": math.Inf(-1)}[py.Str(name)]
		}
		if pairs, ok := v.Get("$dict"); ok {
			d := py.NewDict()
			items, _ := py.Iterate(pairs)
			for _, item := range items {
				if pair, ok := item.(*py.List); ok && len(pair.Items) == 2 {
					d.Set(decodeValue(pair.Items[0]), decodeValue(pair.Items[1]))
				}
			}
			return d
		}
		if items, ok := v.Get("$tuple"); ok {
			if list, ok := decodeValue(items).(*py.List); ok {
				return py.Tuple(list.Items)
			}
		}
		if items, ok := v.Get("$set"); ok {
			if list, ok := decodeValue(items).(*py.List); ok {
				return py.NewSet(list.Items...)
			}
		}
		for k, item := range v.All() {
			v.Set(k, decodeValue(item))
		}
	}
	return v
}

// encodeValue converts a value of an instance into the encoding of decodeValue; files and
// directories become {"$file": ...} and {"$dir": ...}. The result shares no list or dict with v.
func encodeValue(v py.Value) py.Value { return (&valueEncoder{}).value(v) }

// valueEncoder tracks the objects that enclose the current one, because a directory may contain
// itself.
type valueEncoder struct{ path []any }

// within returns f(), during which object encloses the values; {"$cycle": true} if it already does.
func (e *valueEncoder) within(object any, f func() py.Value) py.Value {
	for _, p := range e.path {
		if p == object {
			return py.NewDict("$cycle", true)
		}
	}
	e.path = append(e.path, object)
	defer func() { e.path = e.path[:len(e.path)-1] }()
	return f()
}

func (e *valueEncoder) items(items []py.Value) *py.List {
	out := make([]py.Value, len(items))
	for i, item := range items {
		out[i] = e.value(item)
	}
	return py.NewList(out...)
}

func (e *valueEncoder) value(v py.Value) py.Value {
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return py.NewDict("$float", py.FormatFloat(v))
		}
	case *py.List:
		return e.within(v, func() py.Value { return e.items(v.Items) })
	case py.Tuple:
		return py.NewDict("$tuple", e.items(v))
	case *py.Set:
		return py.NewDict("$set", e.items(v.Sorted()))
	case *py.Dict:
		return e.within(v, func() py.Value { return e.dict(v) })
	case py.Opaque:
		return py.NewDict("$repr", v.Text, "$type", v.Class)
	case *api.File:
		return py.NewDict("$file", e.value(v.Name), "content", e.value(v.Content))
	case *api.Directory:
		return e.within(v, func() py.Value {
			return py.NewDict("$dir", e.value(v.Name), "contents", e.value(v.Contents))
		})
	case py.Object:
		return py.NewDict("$repr", py.Repr(v), "$type", v.PyType())
	}
	return v
}

func (e *valueEncoder) dict(v *py.Dict) py.Value {
	plain := true
	for _, k := range v.Keys() {
		s, ok := k.(string)
		plain = plain && ok && (s == "" || s[0] != '$')
	}
	out := py.MakeDict(v.Len())
	if plain {
		for k, item := range v.All() {
			out.Set(k, e.value(item))
		}
		return out
	}
	pairs := py.NewList()
	for k, item := range v.All() {
		pairs.Append(py.NewList(e.value(k), e.value(item)))
	}
	return py.NewDict("$dict", pairs)
}

// attrsJSON writes attributes of an instance in order as a JSON object, with values encoded by encodeValue.
func attrsJSON(attrs []api.Attr) (string, error) {
	d := py.MakeDict(len(attrs))
	for _, a := range attrs {
		d.Set(a.Name, encodeValue(a.Value))
	}
	return py.JSON(d)
}
