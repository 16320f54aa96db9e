package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// JSON values with the distinctions of Python: nil, bool, int, *big.Int, float64, string, list, object. As
// json.loads does, they keep the order of keys and the difference between 1 and 1.0.

type list []any

// object is a JSON object; each value has the index of its key.
type object map[string]member

type member struct {
	index int
	value any
}

// newObject returns an object of alternating keys and values.
func newObject(keysAndValues ...any) object {
	o := make(object, len(keysAndValues)/2)
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		o.set(keysAndValues[i].(string), keysAndValues[i+1])
	}
	return o
}

func (o object) set(key string, value any) {
	if old, ok := o[key]; ok {
		o[key] = member{old.index, value}
		return
	}
	o[key] = member{len(o), value}
}

func (o object) keys() []string {
	return slices.SortedFunc(maps.Keys(o), func(a, b string) int { return o[a].index - o[b].index })
}

// parseJSON reads one JSON value. The last of equal keys wins.
func parseJSON(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := readJSON(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("text follows the JSON value")
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

// number returns an int if the text has neither fraction nor exponent, as Python does.
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
	if err != nil && !errors.Is(err, strconv.ErrRange) { // out of range: an infinity
		return nil, err
	}
	return f, nil
}

// pyFloat returns the text that json.dumps writes for a float.
func pyFloat(f float64) string {
	s := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exponent, ok := strings.Cut(s, "e")
	if !ok {
		return map[string]string{"NaN": "NaN", "+Inf": "Infinity", "-Inf": "-Infinity"}[s]
	}
	if e, _ := strconv.Atoi(exponent); e < -4 || e >= 16 {
		return mantissa + "e" + exponent
	}
	if s = strconv.FormatFloat(f, 'f', -1, 64); !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// pyJSON formats values like json.dumps.
type pyJSON struct {
	indent    string // of one level; used where lines is true
	lines     bool
	item, key string // separators
}

// compactJSON is the format of tojson in chat templates.
var compactJSON = pyJSON{item: ", ", key: ": "}

// indentedJSON is tojson(indent=4).
var indentedJSON = pyJSON{item: ",", key: ": ", indent: "    ", lines: true}

func (j pyJSON) text(v any) (string, error) {
	b, err := j.append(nil, v, "\n")
	return string(b), err
}

// append appends a value; line is the line end and indentation of its container.
func (j pyJSON) append(b []byte, v any, line string) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case *big.Int:
		return v.Append(b, 10), nil
	case float64:
		return append(b, pyFloat(v)...), nil
	case string:
		return j.quote(b, v), nil
	case list:
		return j.container(b, '[', ']', len(v), line, func(b []byte, i int, line string) ([]byte, error) {
			return j.append(b, v[i], line)
		})
	case object:
		keys := v.keys()
		return j.container(b, '{', '}', len(keys), line, func(b []byte, i int, line string) ([]byte, error) {
			return j.append(append(j.quote(b, keys[i]), j.key...), v[keys[i]].value, line)
		})
	default:
		return b, fmt.Errorf("a value of type %T has no JSON", v)
	}
}

func (j pyJSON) container(b []byte, open, end byte, n int, line string,
	item func([]byte, int, string) ([]byte, error)) ([]byte, error) {
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
		case r < 0x20:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = append(b, s[i:i+n]...)
		}
	}
	return append(b, '"')
}

// pySpace reports str.isspace of Python for one character.
func pySpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
