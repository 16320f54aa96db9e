package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// The values a template sees: nil, bool, int, *big.Int, float64, string, list, object, undefined. They are what Python's
// json.loads gives, in the forms whose truth, length and membership the Jinja library judges as Python does.

// list is a Python list.
type list []any

// object is a Python dict with texts as keys: each value with its place. The library's own ordered type is always true,
// also when it is empty, so it does not do here.
type object map[string]member

type member struct {
	place int
	value any
}

// undefined is what a missing key or variable gives: false, empty, and an error as soon as something is asked of it.
type undefined bool

// newObject makes an object of keys and values in turn.
func newObject(keysAndValues ...any) object {
	o := make(object, len(keysAndValues)/2)
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		o.set(keysAndValues[i].(string), keysAndValues[i+1])
	}
	return o
}

// set appends a key, or gives it another value at its place.
func (o object) set(key string, value any) {
	if old, ok := o[key]; ok {
		o[key] = member{old.place, value}
		return
	}
	o[key] = member{len(o), value}
}

// keys are in order.
func (o object) keys() []string {
	keys := make([]string, 0, len(o))
	for k := range o {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool { return o[keys[i]].place < o[keys[j]].place })
	return keys
}

// GetAttribute and GetItem are how the library reads an object.
func (o object) GetAttribute(name string) (*exec.Value, bool) { return o.GetItem(name) }

// GetItem implements exec.ItemGetter.
func (o object) GetItem(key any) (*exec.Value, bool) {
	if name, ok := key.(string); ok {
		if m, ok := o[name]; ok {
			return exec.AsValue(m.value), true
		}
	}
	return exec.AsValue(undefined(false)), true
}

func (o object) String() string { return pyText(o) }

// GetAttribute implements exec.AttributeGetter: a list has methods only.
func (l list) GetAttribute(string) (*exec.Value, bool) { return exec.AsValue(undefined(false)), true }

// GetItem implements exec.ItemGetter; negative places count from the end.
func (l list) GetItem(key any) (*exec.Value, bool) {
	i, ok := key.(int)
	if i < 0 {
		i += len(l)
	}
	if !ok || i < 0 || i >= len(l) {
		return exec.AsValue(undefined(false)), true
	}
	return exec.AsValue(l[i]), true
}

func (l list) String() string { return pyText(l) }

var errUndefined = errors.New("a value that is not defined has no parts")

// GetAttribute implements exec.AttributeGetter: an undefined value has nothing.
func (undefined) GetAttribute(string) (*exec.Value, bool) { return exec.AsValue(errUndefined), false }

// GetItem implements exec.ItemGetter.
func (undefined) GetItem(any) (*exec.Value, bool) { return exec.AsValue(errUndefined), false }

func (undefined) String() string { return "" }

// parseJSON reads one JSON value; objects keep their order, the last of equal keys wins.
func parseJSON(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := readJSON(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows the JSON value")
	}
	return v, nil
}

func readJSON(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	switch t := t.(type) {
	case json.Number:
		return number(string(t))
	case json.Delim:
		if t == '[' {
			items := list{}
			for d.More() {
				v, err := readJSON(d)
				if err != nil {
					return nil, err
				}
				items = append(items, v)
			}
			_, err := d.Token()
			return items, err
		}
		o := object{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := readJSON(d)
			if err != nil {
				return nil, err
			}
			o.set(key.(string), v) // a JSON decoder gives texts as keys
		}
		_, err := d.Token()
		return o, err
	}
	return t, nil // text, bool or nil
}

// number is an int where the text has neither fraction nor exponent, as in Python.
func number(text string) (any, error) {
	if !strings.ContainsAny(text, ".eE") {
		if i, err := strconv.Atoi(text); err == nil {
			return i, nil
		}
		if i, ok := new(big.Int).SetString(text, 10); ok {
			return i, nil
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // beyond the range it is an infinity
		return nil, err
	}
	return f, nil
}

// pyFloat is Python's repr of a float, and json.dumps' form of the values JSON does not know.
func pyFloat(f float64, forJSON bool) string {
	s := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exponent, ok := strings.Cut(s, "e")
	if !ok { // NaN, +Inf, -Inf
		special := map[string][2]string{"NaN": {"nan", "NaN"}, "+Inf": {"inf", "Infinity"}, "-Inf": {"-inf", "-Infinity"}}[s]
		if forJSON {
			return special[1]
		}
		return special[0]
	}
	if e, _ := strconv.Atoi(exponent); e < -4 || e >= 16 {
		return mantissa + "e" + exponent
	}
	if s = strconv.FormatFloat(f, 'f', -1, 64); !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// pyText is Python's str of a value.
func pyText(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return pyRepr(v)
}

func pyRepr(v any) string {
	switch v := plain(v).(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case undefined:
		return ""
	case int:
		return strconv.Itoa(v)
	case float64:
		return pyFloat(v, false)
	case string:
		return pyQuote(v)
	case list:
		items := make([]string, len(v))
		for i, x := range v {
			items[i] = pyRepr(x)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case object:
		items := make([]string, 0, len(v))
		for _, k := range v.keys() {
			items = append(items, pyQuote(k)+": "+pyRepr(v[k].value))
		}
		return "{" + strings.Join(items, ", ") + "}"
	default:
		return fmt.Sprint(v)
	}
}

// pyQuote is Python's repr of a text.
func pyQuote(s string) string {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b := []byte{quote}
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case unicode.IsPrint(r):
			b = utf8.AppendRune(b, r)
		case r < 0x100:
			b = fmt.Appendf(b, `\x%02x`, r)
		case r < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = fmt.Appendf(b, `\U%08x`, r)
		}
	}
	return string(append(b, quote))
}

// plain turns the library's own containers, which literals in a template are, into ours.
func plain(v any) any {
	switch v := v.(type) {
	case *exec.Value:
		return plain(v.Interface())
	case exec.ValuesList:
		items := make(list, len(v))
		for i, x := range v {
			items[i] = plain(x)
		}
		return items
	case []any:
		return list(v)
	case *exec.Dict:
		o := object{}
		for _, p := range v.Pairs {
			o.set(p.Key.String(), plain(p.Value))
		}
		return o
	}
	return v
}

// pyJSON is json.dumps of a value.
type pyJSON struct {
	indent    string // of one level; used where lines is true
	lines     bool
	item, key string // separators
	sorted    bool
	ascii     bool
}

// compactJSON is the form that chat templates get from a plain tojson.
var compactJSON = pyJSON{item: ", ", key: ": "}

// indentedJSON is tojson(indent=4).
var indentedJSON = pyJSON{item: ",", key: ": ", indent: "    ", lines: true}

func (j pyJSON) text(v any) (string, error) {
	b, err := j.append(nil, v, "\n")
	return string(b), err
}

// append appends a value; line is the line end and indentation of what encloses it.
func (j pyJSON) append(b []byte, v any, line string) ([]byte, error) {
	switch v := plain(v).(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case *big.Int:
		return v.Append(b, 10), nil
	case float64:
		return append(b, pyFloat(v, true)...), nil
	case string:
		return j.quote(b, v), nil
	case list:
		return j.container(b, '[', ']', len(v), line, func(b []byte, i int, line string) ([]byte, error) {
			return j.append(b, v[i], line)
		})
	case object:
		keys := v.keys()
		if j.sorted {
			sort.Strings(keys)
		}
		return j.container(b, '{', '}', len(keys), line, func(b []byte, i int, line string) ([]byte, error) {
			return j.append(append(j.quote(b, keys[i]), j.key...), v[keys[i]].value, line)
		})
	case undefined:
		return b, errors.New("tojson: the value is not defined")
	default:
		return b, fmt.Errorf("tojson: a value of type %T has no JSON", v)
	}
}

func (j pyJSON) container(b []byte, open, end byte, n int, line string, item func([]byte, int, string) ([]byte, error)) ([]byte, error) {
	b = append(b, open)
	inner := line + j.indent
	for i := range n {
		if i > 0 {
			b = append(b, j.item...)
		}
		if j.lines {
			b = append(b, inner...)
		}
		var err error
		if b, err = item(b, i, inner); err != nil {
			return b, err
		}
	}
	if j.lines && n > 0 {
		b = append(b, line...)
	}
	return append(b, end), nil
}

func (j pyJSON) quote(b []byte, s string) []byte {
	b = append(b, '"')
	for i, n := 0, 0; i < len(s); i += n {
		var r rune
		r, n = utf8.DecodeRuneInString(s[i:])
		short := strings.IndexRune("\"\\\n\r\t\b\f", r)
		switch {
		case short >= 0:
			b = append(b, '\\', `"\nrtbf`[short])
		case r < 0x20 || j.ascii && r > 0x7e && r < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, r)
		case j.ascii && r >= 0x10000:
			r -= 0x10000
			b = fmt.Appendf(b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			b = append(b, s[i:i+n]...)
		}
	}
	return append(b, '"')
}

// pySpace is Python's str.isspace of one character.
func pySpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
