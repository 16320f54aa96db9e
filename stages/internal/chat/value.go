package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"rcgrpo/stages/internal/token"
)

// JSON values with the distinctions of Python: nil, bool, json.Number (an integer), float64, string, array, object.
// As json.loads does, they keep the order of keys and the difference between 1 and 1.0.

type array []any

type object []member

type member struct {
	key   string
	value any
}

// get returns the value of a key, nil if it is absent.
func (o object) get(key string) any {
	for _, m := range o {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

// maxDepth bounds the nesting of a value. It may come from anyone, and readers recurse.
const maxDepth = 100

// parseJSON reads one JSON value. The last of equal keys wins.
func parseJSON(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := readJSON(d, maxDepth)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("text follows the JSON value")
	}
	return v, nil
}

func readJSON(d *json.Decoder, depth int) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	if depth == 0 {
		return nil, fmt.Errorf("the JSON value is nested deeper than %d", maxDepth)
	}
	switch t {
	case json.Delim('['):
		items := array{}
		for d.More() {
			v, err := readJSON(d, depth-1)
			if err != nil {
				return nil, err
			}
			items = append(items, v)
		}
		_, err := d.Token()
		return items, err
	case json.Delim('{'):
		o, places := object{}, map[string]int{}
		for d.More() {
			key, err := readJSON(d, depth-1)
			if err != nil {
				return nil, err
			}
			v, err := readJSON(d, depth-1)
			if err != nil {
				return nil, err
			}
			m := member{key.(string), v} // a JSON decoder returns strings as keys
			if i, again := places[m.key]; again {
				o[i] = m
			} else {
				places[m.key] = len(o)
				o = append(o, m)
			}
		}
		_, err := d.Token()
		return o, err
	}
	if n, ok := t.(json.Number); ok {
		return number(n), nil
	}
	return t, nil // string, bool or nil
}

// number returns an integer if the text has neither fraction nor exponent, as Python does.
func number(n json.Number) any {
	if strings.ContainsAny(string(n), ".eE") {
		f, _ := n.Float64() // out of range: an infinity
		return f
	}
	if n == "-0" {
		return json.Number("0")
	}
	return n
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

// oneLine returns a value in the format of json.dumps, which is that of tojson in chat templates.
func oneLine(v any) string {
	var items []string
	switch v := v.(type) {
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return string(v)
	case float64:
		return pyFloat(v)
	case string:
		return token.Quote(v)
	case array:
		for _, x := range v {
			items = append(items, oneLine(x))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case object:
		for _, m := range v {
			items = append(items, token.Quote(m.key)+": "+oneLine(m.value))
		}
		return "{" + strings.Join(items, ", ") + "}"
	}
	return "null"
}

// indented returns a value in the format of tojson(indent=4). One with an infinity stays on one line.
func indented(v any) string {
	line := oneLine(v)
	var b bytes.Buffer
	if json.Indent(&b, []byte(line), "", "    ") != nil {
		return line
	}
	return b.String()
}

// pySpace reports str.isspace of Python for one character.
func pySpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
