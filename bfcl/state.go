package bfcl

import (
	"math"

	"rcgrpo/bfcl/internal/api"
	"rcgrpo/bfcl/internal/py"
)

// decodeState reads the JSON encoding that fixtures and long_context.json use for values without a
// JSON type: {"$repr": ..., "$type": ...}, {"$float": ...}, {"$dict": ...}, {"$tuple": ...},
// {"$set": ...}.
func decodeState(v py.Value) py.Value {
	switch v := v.(type) {
	case *py.List:
		for i, item := range v.Items {
			v.Items[i] = decodeState(item)
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
			list, _ := pairs.(*py.List)
			for i := 0; list != nil && i < len(list.Items); i++ {
				if pair, ok := list.Items[i].(*py.List); ok && len(pair.Items) == 2 {
					d.Set(decodeState(pair.Items[0]), decodeState(pair.Items[1]))
				}
			}
			return d
		}
		if items, ok := v.Get("$tuple"); ok {
			if list, ok := decodeState(items).(*py.List); ok {
				return py.Tuple(list.Items)
			}
		}
		if items, ok := v.Get("$set"); ok {
			if list, ok := decodeState(items).(*py.List); ok {
				return py.NewSet(list.Items...)
			}
		}
		for k, item := range v.All() {
			v.Set(k, decodeState(item))
		}
	}
	return v
}

// encodeState converts a value of an instance into the encoding of decodeState; files and
// directories become {"$file": ...} and {"$dir": ...}. The result shares nothing with v.
func encodeState(v py.Value) py.Value { return (&stateEncoder{}).value(v) }

// stateEncoder tracks the objects that enclose the current one, because a directory may contain
// itself.
type stateEncoder struct{ path []any }

func (e *stateEncoder) within(object any, f func() py.Value) py.Value {
	for _, p := range e.path {
		if p == object {
			return py.NewDict("$cycle", true)
		}
	}
	e.path = append(e.path, object)
	defer func() { e.path = e.path[:len(e.path)-1] }()
	return f()
}

func (e *stateEncoder) items(items []py.Value) *py.List {
	out := make([]py.Value, len(items))
	for i, item := range items {
		out[i] = e.value(item)
	}
	return py.NewList(out...)
}

func (e *stateEncoder) value(v py.Value) py.Value {
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
	case py.Named:
		return py.NewDict("$repr", py.Repr(v), "$type", v.PyType())
	}
	return v
}

func (e *stateEncoder) dict(v *py.Dict) py.Value {
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

// stateJSON writes the public attributes of an instance in order, encoded by encodeState.
func stateJSON(attrs []api.Attr) (string, error) {
	d := py.MakeDict(len(attrs))
	for _, a := range attrs {
		d.Set(a.Name, encodeState(a.Value))
	}
	return py.JSON(d)
}
