package jinja

import (
	"slices"
	"strings"
	"unicode"
)

// functions are the global names of a template.
var functions = map[string]any{
	"namespace": function{"namespace", func(r *rendering, a args) any {
		ns := &namespace{map[string]any{}}
		if len(a.values) > 0 {
			return r.fail("namespace with an argument without a name is not supported")
		}
		for i, name := range a.names {
			ns.values[name] = a.named[i]
		}
		return ns
	}},
	"range": function{"range", func(r *rendering, a args) any {
		v := a.bind(r, "range", 1, "/start", "/stop", "/step")
		bounds := [3]int64{0, 0, 1}
		if v[1] == (absent{}) {
			v[0], v[1] = int64(0), v[0]
		}
		for i, x := range v {
			if x == (absent{}) {
				continue
			}
			n, ok := whole(x)
			if !ok {
				return r.fail("range takes integers, not %s", typeName(x))
			}
			bounds[i] = n
		}
		from, to, step := bounds[0], bounds[1], bounds[2]
		list := numbers{}
		for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
			if list = append(list, i); len(list) > 100_000 {
				return r.fail("range has more than 100000 numbers")
			}
			if next := i + step; (next > i) != (step > 0) {
				break // beyond int64
			}
		}
		if step == 0 {
			return r.fail("the step of range is 0")
		}
		r.spend(len(list))
		return list
	}},
	"raise_exception": function{"raise_exception", func(r *rendering, a args) any {
		v := a.bind(r, "raise_exception", 1, "message")
		return r.fail("the template refuses: %.1000s", r.str(v[0]).s)
	}},
	"strftime_now": function{"strftime_now", func(r *rendering, a args) any {
		f, ok := a.bind(r, "strftime_now", 1, "format")[0].(Text)
		if !ok {
			return r.fail("strftime_now takes a format as a string")
		}
		date := map[byte]string{'d': "26", 'm': "07", 'Y': "2024", 'y': "24", 'b': "Jul", 'B': "July", 'A': "Friday",
			'a': "Fri", 'H': "00", 'M': "00", 'S': "00", '%': "%"}
		var b strings.Builder
		for i := 0; i < len(f.s); i++ {
			if f.s[i] != '%' {
				b.WriteByte(f.s[i])
				continue
			}
			i++
			if i == len(f.s) || date[f.s[i]] == "" {
				return r.fail("strftime_now(%.80q) is not supported; known are %%d %%m %%Y %%y %%b %%B %%A %%a %%H %%M %%S", f.s)
			}
			b.WriteString(date[f.s[i]])
		}
		return r.made(Own(b.String()))
	}},
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
		return r.fail("the attribute %s is not supported", name), true
	}
	switch of := of.(type) {
	case *loop:
		return of.attribute(r, name)
	case Text:
		if f := methodsOfText[name]; f != nil {
			r.spend(weight(of))
			return function{name, func(r *rendering, a args) any { return f(r, of, a) }}, true
		}
	case Dict:
		if f := methodsOfDict[name]; f != nil {
			return function{name, func(r *rendering, a args) any { return f(r, of, a) }}, true
		}
		if name != "copy" && name != "fromkeys" {
			return nil, false
		}
	case nil:
		return nil, false
	}
	return r.fail("the attribute %s of %s is not supported", name, typeName(of)), true
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
	case "previtem":
		if l.index > 0 {
			return l.items[l.index-1], true
		}
		return undefined{"previtem"}, true
	case "nextitem":
		if l.index+1 < n {
			return l.items[l.index+1], true
		}
		return undefined{"nextitem"}, true
	}
	return r.fail("loop.%s is not supported", name), true
}

var methodsOfDict = map[string]func(*rendering, Dict, args) any{
	"get": func(r *rendering, d Dict, a args) any {
		v := a.bind(r, "get", 1, "/key", "/default")
		key, ok := v[0].(Text)
		if x, found := r.find(d, key.s); ok && found {
			return x
		}
		switch v[0].(type) {
		case List, Dict:
			return r.fail("%s is no key", typeName(v[0]))
		}
		if v[1] == (absent{}) {
			return nil
		}
		return v[1]
	},
	"keys": func(r *rendering, d Dict, a args) any {
		a.bind(r, "keys", 0)
		keys, _ := r.elements(d)
		return view(keys)
	},
	"values": func(r *rendering, d Dict, a args) any {
		a.bind(r, "values", 0)
		var values view
		for _, m := range d {
			values = append(values, m.Value)
		}
		r.spend(len(d))
		return values
	},
	"items": func(r *rendering, d Dict, a args) any {
		a.bind(r, "items", 0)
		return view(r.items(d))
	},
}

func (r *rendering) items(d Dict) (list []any) {
	r.spend(len(d))
	for _, m := range d {
		list = append(list, tuple{m.Key, m.Value})
	}
	return list
}

// texts converts arguments to strings.
func (r *rendering) textOf(what string, v any) Text {
	t, ok := v.(Text)
	if !ok {
		r.fail("%s takes a string, not %s", what, typeName(v))
	}
	return t
}

func trimmed(left, right bool) func(*rendering, Text, args) any {
	return func(r *rendering, t Text, a args) any {
		return r.trim(t, a.bind(r, "strip", 0, "/chars")[0], left, right)
	}
}

func (r *rendering) trim(t Text, chars any, left, right bool) any {
	in := Space
	if chars != nil && chars != (absent{}) {
		set := r.textOf("strip", chars).s
		r.spend(weight(t) * weight(chars))
		in = func(c rune) bool { return strings.ContainsRune(set, c) }
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

func affix(has func(s, x string) bool) func(*rendering, Text, args) any {
	return func(r *rendering, t Text, a args) any {
		v := a.bind(r, "startswith", 1, "/prefix")[0]
		choices := []any{v}
		if several, ok := v.(tuple); ok {
			choices = several
		}
		for _, x := range choices {
			if r.spend(weight(x)) && has(t.s, r.textOf("startswith", x).s) {
				return true
			}
		}
		return false
	}
}

// changed maps characters to other characters. It refuses those that Python maps to several or by their place.
func (r *rendering) changed(t Text, lower bool) any {
	var b builder
	for _, run := range t.Runs() {
		b.add(marked(strings.Map(func(c rune) rune {
			if lower {
				if c == 0x130 || c == 0x3a3 {
					r.fail("the lower case of %q is not supported", c)
				}
				return unicode.ToLower(c)
			}
			u := unicode.ToUpper(c)
			if c >= 0x1f50 && c <= 0x1fff || c > 0x7f && unicode.IsLower(c) && u == c {
				r.fail("the upper case of %q is not supported", c)
			}
			return u
		}, run.Text), run.Foreign))
	}
	return r.made(b.text())
}

func (r *rendering) replace(t, old, fresh Text, count int64) any {
	var b builder
	at := 0
	for n := int64(0); count < 0 || n < count; n++ {
		i := strings.Index(t.s[at:], old.s)
		if old.s == "" && n > 0 { // between all characters
			if i = runeLen(t.s[at:]); i == 0 {
				break
			}
		}
		if i < 0 {
			break
		}
		b.add(t.Cut(at, at+i))
		b.add(fresh)
		at += i + len(old.s)
		if b.Len() > maxText || !r.spend(1) {
			return r.stop(errLong)
		}
	}
	b.add(t.Cut(at, len(t.s)))
	return r.made(b.text())
}

func (r *rendering) split(t Text, by any, most int64) any {
	list := List{}
	add := func(from, to int) bool {
		list = append(list, r.made(t.Cut(from, to)))
		return r.spend(1)
	}
	at := 0
	if by == nil || by == (absent{}) {
		for {
			at = len(t.s) - len(strings.TrimLeftFunc(t.s[at:], Space))
			if at == len(t.s) {
				return list
			}
			end := strings.IndexFunc(t.s[at:], Space)
			if most >= 0 && int64(len(list)) >= most || end < 0 {
				end = len(t.s) - at
			}
			if !add(at, at+end) {
				return list
			}
			at += end
		}
	}
	sep := r.textOf("split", by).s
	if sep == "" {
		return r.fail("split needs a separator that is not empty")
	}
	for {
		i := strings.Index(t.s[at:], sep)
		if i < 0 || most >= 0 && int64(len(list)) >= most {
			add(at, len(t.s))
			return list
		}
		if !add(at, at+i) {
			return list
		}
		at += i + len(sep)
	}
}

// count returns an integer argument, -1 if absent.
func (r *rendering) count(v any) int64 {
	if v == (absent{}) {
		return -1
	}
	n, ok := whole(v)
	if !ok {
		r.fail("a count is an integer, not %s", typeName(v))
	}
	return n
}

// methodsOfText are the supported methods of a string.
var methodsOfText = map[string]func(*rendering, Text, args) any{
	"strip": trimmed(true, true), "lstrip": trimmed(true, false), "rstrip": trimmed(false, true),
	"startswith": affix(strings.HasPrefix), "endswith": affix(strings.HasSuffix),
	"upper": func(r *rendering, t Text, a args) any {
		a.bind(r, "upper", 0)
		return r.changed(t, false)
	},
	"lower": func(r *rendering, t Text, a args) any {
		a.bind(r, "lower", 0)
		return r.changed(t, true)
	},
	"replace": func(r *rendering, t Text, a args) any {
		v := a.bind(r, "replace", 2, "/old", "/new", "/count")
		return r.replace(t, r.textOf("replace", v[0]), r.textOf("replace", v[1]), r.count(v[2]))
	},
	"split": func(r *rendering, t Text, a args) any {
		v := a.bind(r, "split", 0, "sep", "maxsplit")
		return r.split(t, v[0], r.count(v[1]))
	},
}

var (
	filters map[string]func(r *rendering, v any, a args) any
	tests   map[string]func(r *rendering, v any, a args) any
)

// The tables refer to functions that look into them, which a composite literal of a variable may not.
func init() {
	filters = map[string]func(r *rendering, v any, a args) any{
		"tojson": tojson,
		"trim": func(r *rendering, v any, a args) any {
			return r.trim(r.str(v), a.bind(r, "trim", 0, "chars")[0], true, true)
		},
		"length": length,
		"join":   join,
		"items": func(r *rendering, v any, a args) any {
			a.bind(r, "items", 0)
			switch v := v.(type) {
			case undefined:
				return &stream{}
			case Dict:
				return &stream{r.items(v)}
			}
			return r.fail("items takes a dict, not %s", typeName(v))
		},
		"first": func(r *rendering, v any, a args) any {
			a.bind(r, "first", 0)
			if s, ok := v.(*stream); ok && len(s.items) > 0 {
				x := s.items[0]
				s.items = s.items[1:]
				return x
			}
			if list := r.list(v); len(list) > 0 {
				return list[0]
			}
			return undefined{"first"}
		},
		"last": func(r *rendering, v any, a args) any {
			a.bind(r, "last", 0)
			if _, ok := v.(*stream); ok {
				return r.fail("the last of a generator is not supported; use list first")
			}
			if list := r.list(v); len(list) > 0 {
				return list[len(list)-1]
			}
			return undefined{"last"}
		},
		"default": fallback,
		"list": func(r *rendering, v any, a args) any {
			a.bind(r, "list", 0)
			return List(slices.Clip(r.list(v)))
		},
		"string": func(r *rendering, v any, a args) any {
			a.bind(r, "string", 0)
			return r.str(v)
		},
		"upper": func(r *rendering, v any, a args) any {
			a.bind(r, "upper", 0)
			return r.changed(r.str(v), false)
		},
		"lower": func(r *rendering, v any, a args) any {
			a.bind(r, "lower", 0)
			return r.changed(r.str(v), true)
		},
		"replace": func(r *rendering, v any, a args) any {
			x := a.bind(r, "replace", 2, "old", "new", "count")
			if x[2] == nil {
				x[2] = absent{}
			}
			return r.replace(r.str(v), r.str(x[0]), r.str(x[1]), r.count(x[2]))
		},
		"map":        mapped,
		"reject":     chosen(false, false),
		"selectattr": chosen(true, true),
		"rejectattr": chosen(false, true),
		"safe": func(r *rendering, v any, a args) any {
			a.bind(r, "safe", 0)
			return safe{r.str(v)}
		},
	}
	is := func(f func(v any) bool) func(*rendering, any, args) any {
		return func(r *rendering, v any, a args) any {
			a.bind(r, "a test", 0)
			return f(v)
		}
	}
	compare := func(operator string) func(*rendering, any, args) any {
		return func(r *rendering, v any, a args) any {
			return r.compare(operator, v, a.bind(r, "a test", 1, "/other")[0])
		}
	}
	tests = map[string]func(r *rendering, v any, a args) any{
		"defined":   is(func(v any) bool { _, no := v.(undefined); return !no }),
		"undefined": is(func(v any) bool { _, ok := v.(undefined); return ok }),
		"none":      is(func(v any) bool { return v == nil }),
		"boolean":   is(func(v any) bool { _, ok := v.(bool); return ok }),
		"true":      is(func(v any) bool { return v == true }),
		"false":     is(func(v any) bool { return v == false }),
		"integer":   is(func(v any) bool { _, no := v.(bool); return !no && isInteger(v) }),
		"float":     is(func(v any) bool { _, ok := v.(float64); return ok }),
		"number":    is(func(v any) bool { _, ok := v.(float64); return ok || isInteger(v) }),
		"string": is(func(v any) bool {
			_, a := v.(Text)
			_, b := v.(safe)
			return a || b
		}),
		"mapping": is(func(v any) bool { _, ok := v.(Dict); return ok }),
		"iterable": is(func(v any) bool {
			switch v.(type) {
			case Text, safe, List, Dict, tuple, numbers, view, *stream, undefined, *loop:
				return true
			}
			return false
		}),
		"sequence": is(func(v any) bool {
			switch v.(type) {
			case Text, safe, List, Dict, tuple, numbers, undefined:
				return true
			}
			return false
		}),
		"in": compare("in"),
		"==": compare("=="), "eq": compare("=="), "equalto": compare("=="), "ne": compare("!="), "lt": compare("<"),
		"le": compare("<="), "gt": compare(">"), "ge": compare(">="),
	}
}

func isInteger(v any) bool {
	_, big := v.(interface{ Int64() (int64, error) })
	_, ok := whole(v)
	return ok || big
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
	x := a.bind(r, "join", 0, "d", "attribute")
	var between Text
	if x[0] != (absent{}) {
		between = r.str(x[0])
	}
	var b builder
	for i, item := range r.list(v) {
		if i > 0 {
			b.add(between)
		}
		if x[1] != (absent{}) && x[1] != nil {
			item = r.path(item, x[1], absent{})
		}
		b.add(r.str(item))
		if b.Len() > maxText || !r.spend(1) {
			return r.stop(errLong)
		}
	}
	return r.made(b.text())
}

func tojson(r *rendering, v any, a args) any {
	x := a.bind(r, "tojson", 0, "ensure_ascii", "indent", "separators", "sort_keys")
	d := dump{item: ", ", key: ": ", indent: -1}
	if x[0] != (absent{}) && truth(x[0]) {
		return r.fail("tojson with ensure_ascii is not supported")
	}
	if x[1] != (absent{}) && x[1] != nil {
		n, ok := whole(x[1])
		if !ok || n < 0 || n > 16 {
			return r.fail("tojson takes an indent of 0 to 16 spaces")
		}
		d.indent, d.item = int(n), ","
	}
	if x[2] != (absent{}) && x[2] != nil {
		pair, _ := r.elements(x[2])
		if len(pair) != 2 {
			return r.fail("tojson takes two separators")
		}
		d.item, d.key = r.textOf("tojson", pair[0]).s, r.textOf("tojson", pair[1]).s
	}
	d.sorted = x[3] != (absent{}) && truth(x[3])
	d.spend = r.spend
	if s, ok := v.(safe); ok {
		v = s.text
	}
	r.stop(d.write(v, 0))
	return r.made(d.b.text())
}

// path returns the value of an attribute such as "function.name".
func (r *rendering) path(v, attribute, otherwise any) any {
	parts := []any{attribute}
	if t, ok := attribute.(Text); ok {
		parts = nil
		for _, part := range strings.Split(t.s, ".") {
			if i := int64(0); part != "" && strings.Trim(part, "0123456789") == "" && len(part) < 10 {
				for _, c := range part {
					i = 10*i + int64(c-'0')
				}
				parts = append(parts, i)
			} else {
				parts = append(parts, Own(part))
			}
		}
	}
	for _, part := range parts {
		v = r.item(v, part)
		if _, no := v.(undefined); no && otherwise != (absent{}) && otherwise != nil {
			v = otherwise
		}
	}
	return v
}

func mapped(r *rendering, v any, a args) any {
	if !truth(v) {
		return &stream{}
	}
	var f func(item any) any
	switch {
	case len(a.values) == 0:
		x := a.bind(r, "map", 0, "attribute", "default")
		if x[0] == (absent{}) {
			return r.fail("map needs a filter or an attribute")
		}
		f = func(item any) any { return r.path(item, x[0], x[1]) }
	default:
		name := r.textOf("map", a.values[0]).s
		filter := filters[name]
		if filter == nil {
			return r.fail("the filter %s is unknown or not supported", name)
		}
		a.values = a.values[1:]
		f = func(item any) any { return filter(r, item, a) }
	}
	out := &stream{}
	for _, item := range r.list(v) {
		if out.items = append(out.items, f(item)); !r.spend(1 + weight(item)) {
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
			attribute := a.values[0]
			get = func(item any) any { return r.path(item, attribute, absent{}) }
			a.values = a.values[1:]
		}
		test := func(_ *rendering, v any, _ args) any { return truth(v) }
		if len(a.values) > 0 {
			name := r.textOf("select", a.values[0]).s
			if test = tests[name]; test == nil {
				return r.fail("the test %s is unknown or not supported", name)
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
