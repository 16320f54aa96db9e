package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"rcgrpo/stages/internal/token"
)

// Values have the distinctions of Python: nil, bool, int64, json.Number (an integer beyond int64, which can be
// written but not calculated with), float64, Text, List and Dict. As json.loads does, they keep the order of keys and
// the difference between 1 and 1.0. They are never changed, so values may share parts.

// List is a list.
type List []any

// Dict is a mapping with distinct keys, in their order.
type Dict []Member

// Member is a key with its value.
type Member struct {
	Key   Text
	Value any
}

// Get returns the value of a key, nil if it is absent.
func (d Dict) Get(key string) any {
	v, _ := d.find(key)
	return v
}

func (d Dict) find(key string) (any, bool) {
	for _, m := range d {
		if m.Key.s == key {
			return m.Value, true
		}
	}
	return nil, false
}

// with returns the mapping with a key set, which may change d.
func (d Dict) with(key Text, v any) Dict {
	for i, m := range d {
		if m.Key.s == key.s {
			d[i].Value = v
			return d
		}
	}
	return append(d, Member{key, v})
}

// maxDepth bounds the nesting of a value. It may come from anyone, and readers recurse.
const maxDepth = 100

// ParseJSON reads one JSON value. The last of equal keys wins. mark, Own or Foreign, marks its strings and keys.
func ParseJSON(raw []byte, mark func(string) Text) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := readJSON(d, mark, maxDepth)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("text follows the JSON value")
	}
	return v, nil
}

func readJSON(d *json.Decoder, mark func(string) Text, depth int) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	if depth == 0 {
		return nil, fmt.Errorf("the JSON value is nested deeper than %d", maxDepth)
	}
	switch t := t.(type) {
	case json.Delim:
		if t == '[' {
			return readList(d, mark, depth)
		}
		return readDict(d, mark, depth)
	case json.Number:
		return number(t), nil
	case string:
		return mark(t), nil
	}
	return t, nil // bool or nil
}

func readList(d *json.Decoder, mark func(string) Text, depth int) (any, error) {
	items := List{}
	for d.More() {
		v, err := readJSON(d, mark, depth-1)
		if err != nil {
			return nil, err
		}
		items = append(items, v)
	}
	_, err := d.Token()
	return items, err
}

func readDict(d *json.Decoder, mark func(string) Text, depth int) (any, error) {
	o, places := Dict{}, map[string]int{}
	for d.More() {
		key, err := readJSON(d, mark, depth-1)
		if err != nil {
			return nil, err
		}
		v, err := readJSON(d, mark, depth-1)
		if err != nil {
			return nil, err
		}
		m := Member{key.(Text), v} // a JSON decoder returns strings as keys
		if i, again := places[m.Key.s]; again {
			o[i] = m
		} else {
			places[m.Key.s] = len(o)
			o = append(o, m)
		}
	}
	_, err := d.Token()
	return o, err
}

// number returns an integer if the text has neither fraction nor exponent, as Python does.
func number(n json.Number) any {
	if strings.ContainsAny(string(n), ".eE") {
		f, _ := n.Float64() // out of range: an infinity
		return f
	}
	if i, err := n.Int64(); err == nil {
		return i
	}
	return n
}

// JSON returns a value in the format of json.dumps, which is that of tojson in chat templates.
func JSON(v any) Text {
	d := dump{item: ", ", indent: -1}
	if err := d.write(v, 0); err != nil {
		return Own("null") // no value of JSON
	}
	return d.b.text()
}

// dump writes JSON.
type dump struct {
	b      builder
	item   string // separator
	indent int    // spaces per level; -1: one line
	sorted bool
	spend  func(steps int) bool // nil: without a limit
}

var errDeep = fmt.Errorf("the value is nested deeper than %d", maxDepth)

func (d *dump) write(v any, level int) error {
	switch v := v.(type) {
	case nil:
		d.b.WriteString("null")
	case bool:
		d.b.WriteString(strconv.FormatBool(v))
	case int64, json.Number:
		fmt.Fprint(&d.b, v)
	case float64:
		d.b.WriteString(jsonFloat(v))
	case Text:
		d.quote(v)
	case List:
		return d.items('[', ']', len(v), level, func(i int) error { return d.write(v[i], level+1) })
	case tuple:
		return d.write(List(v), level)
	case Dict:
		if d.sorted {
			v = slices.Clone(v)
			slices.SortFunc(v, func(a, b Member) int { return strings.Compare(a.Key.s, b.Key.s) })
		}
		return d.items('{', '}', len(v), level, func(i int) error {
			d.quote(v[i].Key)
			d.b.WriteString(": ")
			return d.write(v[i].Value, level+1)
		})
	default:
		return fmt.Errorf("%s has no JSON form", typeName(v))
	}
	return nil
}

func (d *dump) items(open, end byte, n, level int, item func(i int) error) error {
	if level >= maxDepth {
		return errDeep
	}
	d.b.WriteByte(open)
	for i := range n {
		if i > 0 {
			d.b.WriteString(d.item)
		}
		d.newline(level + 1)
		if err := item(i); err != nil {
			return err
		}
		if d.b.Len() > maxText || d.spend != nil && !d.spend(1) {
			return errLong
		}
	}
	if n > 0 {
		d.newline(level)
	}
	return d.b.WriteByte(end)
}

func (d *dump) newline(level int) {
	if d.indent >= 0 {
		d.b.WriteString("\n" + strings.Repeat(" ", d.indent*level))
	}
}

func (d *dump) quote(t Text) {
	d.b.WriteByte('"')
	for _, r := range t.Runs() {
		q := token.Quote(r.Text)
		d.b.add(marked(q[1:len(q)-1], r.Foreign))
	}
	d.b.WriteByte('"')
}

func marked(s string, foreign bool) Text {
	if foreign {
		return Foreign(s)
	}
	return Own(s)
}

// pyFloat returns the text of a float in Python.
func pyFloat(f float64) string {
	s := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exponent, ok := strings.Cut(s, "e")
	if !ok {
		return map[string]string{"NaN": "nan", "+Inf": "inf", "-Inf": "-inf"}[s]
	}
	if e, _ := strconv.Atoi(exponent); e < -4 || e >= 16 {
		return mantissa + "e" + exponent
	}
	if s = strconv.FormatFloat(f, 'f', -1, 64); !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// jsonFloat returns the text that json.dumps writes for a float.
func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return pyFloat(f)
}

// Space reports str.isspace of Python for one character.
func Space(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// Values that only templates make.
type (
	tuple  []any
	view   []any // keys, values or items of a mapping
	stream struct{ items []any }
	// undefined is the value of an absent name, attribute or item. It is false, empty, and no operand.
	undefined struct{ name string }
	namespace struct{ values map[string]any }
	function  struct {
		call func(r *rendering, a args) any
	}
)

func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "a bool"
	case int64, json.Number:
		return "an integer"
	case float64:
		return "a float"
	case Text:
		return "a string"
	case List:
		return "a list"
	case Dict:
		return "a dict"
	case tuple:
		return "a tuple"
	case view:
		return "a view of a dict"
	case *stream:
		return "a generator"
	case undefined:
		return fmt.Sprintf("the undefined value %.80q", v.name)
	case *namespace:
		return "a namespace"
	case *loop:
		return "loop"
	}
	return "a function"
}

// truth returns bool(v) of Python.
func truth(v any) bool {
	switch v := v.(type) {
	case nil, undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case Text: // its characters need not be counted
		return v.s != ""
	}
	n, sized := size(v)
	return !sized || n > 0
}

// length returns len(v) of Python, and spends the steps of counting characters.
func (r *rendering) length(v any) (n int, ok bool) {
	if t, isText := v.(Text); isText {
		r.spend(len(t.s) / stepText)
		return utf8.RuneCountInString(t.s), true
	}
	return size(v)
}

// size returns len(v) of Python except for texts. ok is false for a value without one.
func size(v any) (n int, ok bool) {
	switch v := v.(type) {
	case undefined:
		return 0, true
	case List:
		return len(v), true
	case tuple:
		return len(v), true
	case view:
		return len(v), true
	case Dict:
		return len(v), true
	}
	return 0, false
}

// elements returns the items that iterating over v gives. It exhausts a generator. The steps are spent before a list is
// made.
func (r *rendering) elements(v any) (items []any, ok bool) {
	n, _ := size(v)
	switch v := v.(type) {
	case Text:
		n = stepsOfPass * len(v.s)
	case Dict:
		n *= stepsOfPass
	}
	if !r.spend(n) {
		return nil, true
	}
	switch v := v.(type) {
	case undefined:
		return nil, true
	case Text:
		items = make([]any, 0, len(v.s))
		for i := 0; i < len(v.s); {
			_, n := utf8.DecodeRuneInString(v.s[i:])
			items = append(items, v.Cut(i, i+n))
			i += n
		}
		return items, true
	case List:
		return v, true
	case tuple:
		return v, true
	case view:
		return v, true
	case Dict:
		items = make([]any, 0, len(v))
		for _, m := range v {
			items = append(items, m.Key)
		}
		return items, true
	case *stream:
		items, v.items = v.items, nil
		return items, true
	}
	return nil, false
}
