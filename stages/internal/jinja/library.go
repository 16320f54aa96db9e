package jinja

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// functions returns the global names of a template.
func functions() map[string]any {
	return map[string]any{"namespace": function{newNamespace}, "raise_exception": function{raise},
		"strftime_now": function{now}}
}

func newNamespace(r *rendering, a args) any {
	ns := &namespace{map[string]any{}}
	r.spend(stepsOfValue)
	if len(a.values) > 0 {
		return r.fail("namespace with an argument without a name is not supported")
	}
	for i, name := range a.names {
		ns.values[name] = a.named[i]
	}
	return ns
}

func raise(r *rendering, a args) any {
	return r.fail("the template refuses: %.1000s", r.str(a.bind(r, "raise_exception", 1, "message")[0]).s)
}

// now returns the date of the Llama models' examples.
func now(r *rendering, a args) any {
	r.spend(stepsOfValue)
	f := r.textOf("strftime_now", a.bind(r, "strftime_now", 1, "format")[0]).s
	date := strings.NewReplacer("%d", "26", "%m", "07", "%Y", "2024", "%b", "Jul", "%B", "July", "%A", "Friday").Replace(f)
	if strings.Contains(date, "%") {
		return r.fail("strftime_now(%.80q) is not supported; known are %%d %%m %%Y %%b %%B %%A", f)
	}
	return r.made(Own(date))
}

// method returns the attribute of a value in Python: a method, or a value of loop or a namespace. An unknown one of a
// value that is no dict is refused, because Python may define it.
func (r *rendering) method(of any, name string) (v any, ok bool) {
	if u, is := of.(undefined); is {
		return r.fail("%s has no attribute %s", typeName(u), name), true
	}
	if ns, is := of.(*namespace); is {
		v, ok = ns.values[name]
		return v, ok
	}
	if strings.HasPrefix(name, "_") {
		if d, is := of.(Dict); is {
			if _, ok := r.find(d, name); ok {
				return nil, false
			}
		}
		return r.fail("the attribute %.80s is not supported", name), true
	}
	switch of := of.(type) {
	case *loop:
		return of.attribute(r, name)
	case Text:
		if f := methodOfText(of, name); f != nil {
			r.spend(stepsOfValue)
			return function{func(r *rendering, a args) any { // which a template may keep and call often
				r.spend(weight(of))
				return f(r, a)
			}}, true
		}
	case Dict:
		if f := methodOfDict(of, name); f != nil {
			return function{f}, true
		}
		if !slices.Contains([]string{"copy", "fromkeys", "values"}, name) { // a method of Python that is not supported
			return nil, false
		}
	case nil:
		return nil, false
	}
	return r.fail("the attribute %.80s of %s is not supported", name, typeName(of)), true
}

func (l *loop) attribute(r *rendering, name string) (any, bool) {
	n := len(l.items)
	switch name {
	case "index":
		return int64(l.index + 1), true
	case "index0":
		return int64(l.index), true
	case "first":
		return l.index == 0, true
	case "last":
		return l.index == n-1, true
	case "length":
		return int64(n), true
	case "nextitem":
		if l.index+1 < n {
			return l.items[l.index+1], true
		}
		return undefined{"nextitem"}, true
	}
	return r.fail("loop.%s is not supported", name), true
}

// methodOfDict returns a method of a mapping, or nil.
func methodOfDict(d Dict, name string) func(*rendering, args) any {
	switch name {
	case "get":
		return func(r *rendering, a args) any {
			v := a.bind(r, "get", 1, "/key", "/default")
			if x, found := r.find(d, r.textOf("get", v[0]).s); found {
				return x
			}
			if v[1] == (absent{}) {
				return nil
			}
			return v[1]
		}
	case "keys":
		return func(r *rendering, a args) any {
			a.bind(r, "keys", 0)
			keys, _ := r.elements(d)
			return view(keys)
		}
	case "items":
		return func(r *rendering, a args) any {
			a.bind(r, "items", 0)
			return view(r.items(d))
		}
	}
	return nil
}

func (r *rendering) items(d Dict) (list []any) {
	if !r.spend(2 * stepsOfPass * len(d)) {
		return nil
	}
	list = make([]any, 0, len(d))
	for _, m := range d {
		list = append(list, tuple{m.Key, m.Value})
	}
	return list
}

// textOf returns a string. Another value is an error.
func (r *rendering) textOf(what string, v any) Text {
	t, ok := v.(Text)
	if !ok {
		r.fail("%s takes a string; %s is not supported", what, typeName(v))
	}
	return t
}

func (r *rendering) trim(t Text, chars any, left, right bool) any {
	in := Space
	if chars != nil && chars != (absent{}) {
		set := r.textOf("strip", chars).s
		in = func(c rune) bool { return r.spend(1+weight(chars)) && strings.ContainsRune(set, c) }
	}
	from, to := 0, len(t.s)
	if left {
		from = to - len(strings.TrimLeftFunc(t.s, in))
	}
	if right {
		to = from + len(strings.TrimRightFunc(t.s[from:], in))
	}
	return r.made(t.Cut(from, to))
}

// upper and lower cases beyond ASCII differ between Python and Go.
func (r *rendering) cased(t Text, change func(string) string) any {
	var b builder
	for _, run := range t.Runs() {
		if strings.ContainsFunc(run.Text, func(c rune) bool { return c >= utf8.RuneSelf }) {
			return r.fail("upper and lower of characters beyond ASCII are not supported")
		}
		b.add(marked(change(run.Text), run.Foreign))
	}
	return r.made(b.text())
}

func (r *rendering) replace(t Text, a args) any {
	v := a.bind(r, "replace", 2, "old", "new")
	return r.join(r.split(t, v[0]), r.textOf("replace", v[1]))
}

// split returns the parts of a text between separators.
func (r *rendering) split(t Text, separator any) (list List) {
	sep := r.textOf("split", separator).s
	if sep == "" {
		r.fail("an empty text to split at or to replace is not supported")
	}
	r.spend(search(t.s, sep))
	for at := 0; r.spend(stepsOfPass); {
		i := strings.Index(t.s[at:], sep)
		if i < 0 {
			return append(list, r.made(t.Cut(at, len(t.s))))
		}
		list = append(list, r.made(t.Cut(at, at+i)))
		at += i + len(sep)
	}
	return list
}

// methodOfText returns a method of a string, or nil.
func methodOfText(t Text, name string) func(*rendering, args) any {
	strip := func(left, right bool) func(*rendering, args) any {
		return func(r *rendering, a args) any { return r.trim(t, a.bind(r, name, 0, "/chars")[0], left, right) }
	}
	affix := func(has func(s, x string) bool) func(*rendering, args) any {
		return func(r *rendering, a args) any {
			x := r.textOf(name, a.bind(r, name, 1, "/affix")[0])
			return has(t.s, x.s)
		}
	}
	switch name {
	case "strip":
		return strip(true, true)
	case "lstrip":
		return strip(true, false)
	case "rstrip":
		return strip(false, true)
	case "startswith":
		return affix(strings.HasPrefix)
	case "endswith":
		return affix(strings.HasSuffix)
	case "replace":
		return func(r *rendering, a args) any { return r.replace(t, a) }
	case "split":
		return func(r *rendering, a args) any { return r.split(t, a.bind(r, "split", 1, "sep")[0]) }
	case "upper", "lower":
		return func(r *rendering, a args) any { return filterNamed(name)(r, t, a) }
	}
	return nil
}

// operation is a filter or a test.
type operation func(r *rendering, v any, a args) any

// filterNamed returns a filter, or nil.
func filterNamed(name string) operation {
	switch name {
	case "tojson":
		return tojson
	case "trim":
		return func(r *rendering, v any, a args) any {
			return r.trim(r.str(v), a.bind(r, "trim", 0, "chars")[0], true, true)
		}
	case "length", "count":
		return length
	case "join":
		return join
	case "default":
		return fallback
	case "map":
		return mapped
	case "reject":
		return chosen(false, false)
	case "selectattr":
		return chosen(true, true)
	case "rejectattr":
		return chosen(false, true)
	case "replace":
		return func(r *rendering, v any, a args) any { return r.replace(r.str(v), a) }
	case "items", "list", "string", "upper", "lower", "first", "last": // without arguments
		return func(r *rendering, v any, a args) any {
			a.bind(r, name, 0)
			return r.plainFilter(name, v)
		}
	}
	return nil
}

func (r *rendering) plainFilter(name string, v any) any {
	switch name {
	case "items":
		switch v := v.(type) {
		case undefined:
			return &stream{}
		case Dict:
			return &stream{r.items(v)}
		}
		return r.fail("items takes a dict, not %s", typeName(v))
	case "list":
		return List(slices.Clip(r.list(v)))
	case "upper":
		return r.cased(r.str(v), strings.ToUpper)
	case "lower":
		return r.cased(r.str(v), strings.ToLower)
	case "string":
		return r.str(v)
	}
	if _, ok := v.(*stream); ok {
		return r.fail("the %s of a generator is not supported; use list first", name)
	}
	list := r.list(v)
	switch {
	case len(list) == 0:
		return undefined{name}
	case name == "first":
		return list[0]
	}
	return list[len(list)-1]
}

// testNamed returns a test, or nil.
func testNamed(name string) operation {
	operator := map[string]string{"in": "in", "equalto": "==", "eq": "==", "==": "==", "ne": "!=", "gt": ">",
		"lt": "<"}[name]
	if operator != "" {
		return func(r *rendering, v any, a args) any {
			return r.compare(operator, v, a.bind(r, name, 1, "/other")[0])
		}
	}
	var is func(v any) bool
	switch name {
	case "defined":
		is = func(v any) bool { return !isUndefined(v) }
	case "undefined":
		is = isUndefined
	case "none":
		is = func(v any) bool { return v == nil }
	case "true":
		is = func(v any) bool { return v == true }
	case "false":
		is = func(v any) bool { return v == false }
	case "boolean", "number", "integer", "float", "string", "mapping", "iterable", "sequence":
		is = func(v any) bool { return slices.Contains(classes(v), name) }
	default:
		return nil
	}
	return func(r *rendering, v any, a args) any {
		a.bind(r, name, 0)
		return is(v)
	}
}

func isUndefined(v any) bool {
	_, is := v.(undefined)
	return is
}

// classes returns the names of the tests of types that a value passes.
func classes(v any) []string {
	switch v.(type) {
	case bool: // also a number in Python
		return []string{"boolean", "number"}
	case int64, json.Number:
		return []string{"number", "integer"}
	case float64:
		return []string{"number", "float"}
	case Text:
		return []string{"string", "iterable", "sequence"}
	case Dict:
		return []string{"mapping", "iterable", "sequence"}
	case List, tuple, undefined:
		return []string{"iterable", "sequence"}
	case view, *stream, *loop:
		return []string{"iterable"}
	}
	return nil
}

// list returns the elements of a value.
func (r *rendering) list(v any) []any {
	list, ok := r.elements(v)
	if !ok {
		r.fail("%s cannot be iterated over", typeName(v))
	}
	return list
}

func length(r *rendering, v any, a args) any {
	a.bind(r, "length", 0)
	n, ok := r.length(v)
	if !ok {
		return r.fail("%s has no length", typeName(v))
	}
	return int64(n)
}

func fallback(r *rendering, v any, a args) any {
	x := a.bind(r, "default", 0, "default_value", "boolean")
	_, no := v.(undefined)
	if !no && (x[1] == (absent{}) || !truth(x[1]) || truth(v)) {
		return v
	}
	if x[0] == (absent{}) {
		return Text{}
	}
	return x[0]
}

func join(r *rendering, v any, a args) any {
	var between Text
	if x := a.bind(r, "join", 0, "d")[0]; x != (absent{}) {
		between = r.str(x)
	}
	return r.join(r.list(v), between)
}

func (r *rendering) join(list []any, between Text) any {
	var b builder
	for i, item := range list {
		if i > 0 {
			r.append(&b, between)
		}
		if !r.append(&b, r.str(item)) {
			return undefined{}
		}
	}
	return r.made(b.text())
}

func tojson(r *rendering, v any, a args) any {
	x := a.bind(r, "tojson", 0, "/ensure_ascii", "indent", "ensure_ascii", "sort_keys")
	d := dump{item: ", ", indent: -1}
	if x[0] != (absent{}) || x[2] != (absent{}) && truth(x[2]) {
		return r.fail("tojson with ensure_ascii is not supported")
	}
	if x[1] != (absent{}) && x[1] != nil {
		n, ok := whole(x[1])
		if !ok || n < 0 || n > 16 {
			return r.fail("tojson takes an indent of 0 to 16 spaces")
		}
		d.indent, d.item = int(n), ","
	}
	d.sorted = x[3] != (absent{}) && truth(x[3])
	d.spend = r.spend
	r.stop(d.write(v, 0))
	return r.made(d.b.text())
}

// attributeOf returns a function for the value of an attribute such as "function.name".
func (r *rendering) attributeOf(name any) func(v any) any {
	path := strings.Split(r.textOf("an attribute", name).s, ".")
	return func(v any) any {
		for _, part := range path {
			v = r.item(v, Own(part))
		}
		return v
	}
}

func mapped(r *rendering, v any, a args) any {
	if len(a.values) > 0 {
		return r.fail("map with a filter is not supported; use map(attribute=...)")
	}
	get := r.attributeOf(a.bind(r, "map", 1, "attribute")[0])
	out := &stream{}
	if !truth(v) {
		return out
	}
	for _, item := range r.list(v) {
		if out.items = append(out.items, get(item)); !r.spend(1 + weight(item)) {
			break
		}
	}
	return out
}

func chosen(keep, byAttribute bool) func(*rendering, any, args) any {
	return func(r *rendering, v any, a args) any {
		out := &stream{}
		if !truth(v) {
			return out
		}
		get := func(item any) any { return item }
		if byAttribute {
			if len(a.values) == 0 {
				return r.fail("selectattr needs an attribute")
			}
			get = r.attributeOf(a.values[0])
			a.values = a.values[1:]
		}
		test := operation(func(_ *rendering, v any, _ args) any { return truth(v) })
		if len(a.values) > 0 {
			name := r.textOf("select", a.values[0]).s
			if test = testNamed(name); test == nil {
				return r.fail("the test %.100s is unknown or not supported", name)
			}
			a.values = a.values[1:]
		} else if len(a.names) > 0 {
			return r.fail("select has no argument %s", a.names[0])
		}
		for _, item := range r.list(v) {
			v := get(item)
			if truth(test(r, v, a)) == keep {
				out.items = append(out.items, item)
			}
			if !r.spend(1 + weight(v)) {
				break
			}
		}
		return out
	}
}
