package py

import (
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"
)

// Repr is Python's repr(v).
func Repr(v Value) string {
	p := printer{buf: make([]byte, 0, textSize(v, 0))}
	p.repr(v)
	return string(p.buf)
}

// Str is Python's str(v).
func Str(v Value) string {
	switch v := v.(type) {
	case string:
		return v
	case Opaque:
		if v.Plain != "" {
			return v.Plain
		}
	}
	return Repr(v)
}

// JSON is json.dumps(v) with Python's defaults; an *Exception where Python raises one.
func JSON(v Value) (string, error) {
	p := printer{}
	if err := p.json(v); err != nil {
		return "", err
	}
	return string(p.buf), nil
}

// Result is the string the benchmark's executor makes of a value that a call returned (spec 6): text as it is, a dict
// as JSON or, when JSON cannot hold it, as Python text; anything else as Python text.
func Result(v Value) string {
	switch v := v.(type) {
	case string:
		return v
	case nil:
		return "None"
	case *Dict:
		var room [512]byte
		p := printer{buf: room[:0]}
		if n := textSize(v, 0); n > len(room) {
			p.buf = make([]byte, 0, n)
		}
		if p.json(v) == nil {
			return string(p.buf)
		}
		return Repr(v)
	case *Frozen:
		if _, ok := v.value.(*Dict); ok && v.jsonErr == nil {
			return v.json
		}
		return v.repr
	}
	return Str(v)
}

// textSize is about how many bytes the text of v takes, so that a long text need not move while it grows. Containers
// below the third level count as small: a value may contain itself.
func textSize(v Value, depth int) int {
	n := 8
	switch v := v.(type) {
	case string:
		n += len(v) + len(v)>>3 // some escapes
	case *Frozen:
		n += max(len(v.json), len(v.repr))
	case *List:
		for i := 0; i < len(v.Items) && depth < 3; i++ {
			n += textSize(v.Items[i], depth+1)
		}
	case *Dict:
		for i := 0; i < len(v.entries) && depth < 3; i++ {
			n += textSize(v.entries[i].key, depth+1) + textSize(v.entries[i].val, depth+1)
		}
	}
	return n
}

// printer appends texts to buf and knows the containers it is inside of.
type printer struct {
	buf  []byte
	path []any
}

// enter is false when v is one of the containers being printed.
func (p *printer) enter(v any) bool {
	for _, q := range p.path {
		if q == v {
			return false
		}
	}
	p.path = append(p.path, v)
	return true
}

func (p *printer) leave() { p.path = p.path[:len(p.path)-1] }

func (p *printer) repr(v Value) {
	switch v := v.(type) {
	case nil:
		p.buf = append(p.buf, "None"...)
	case bool:
		if v {
			p.buf = append(p.buf, "True"...)
		} else {
			p.buf = append(p.buf, "False"...)
		}
	case int64:
		p.buf = strconv.AppendInt(p.buf, v, 10)
	case *big.Int:
		p.buf = v.Append(p.buf, 10)
	case float64:
		p.buf = appendFloat(p.buf, v)
	case string:
		p.buf = AppendRepr(p.buf, v)
	case *List:
		if !p.enter(v) {
			p.buf = append(p.buf, "[...]"...)
			return
		}
		p.buf = append(p.buf, '[')
		p.items(v.Items)
		p.buf = append(p.buf, ']')
		p.leave()
	case Tuple:
		p.buf = append(p.buf, '(')
		p.items(v)
		if len(v) == 1 {
			p.buf = append(p.buf, ',')
		}
		p.buf = append(p.buf, ')')
	case *Dict:
		if !p.enter(v) {
			p.buf = append(p.buf, "{...}"...)
			return
		}
		p.buf = append(p.buf, '{')
		for i := range v.entries {
			if i > 0 {
				p.buf = append(p.buf, ", "...)
			}
			p.repr(v.entries[i].key)
			p.buf = append(p.buf, ": "...)
			p.repr(v.entries[i].val)
		}
		p.buf = append(p.buf, '}')
		p.leave()
	case *Set:
		if v.Len() == 0 {
			p.buf = append(p.buf, "set()"...)
			return
		}
		p.buf = append(p.buf, '{')
		p.items(v.Items())
		p.buf = append(p.buf, '}')
	case Opaque:
		p.buf = append(p.buf, v.Text...)
	case *Frozen:
		p.buf = append(p.buf, v.repr...)
	default:
		p.buf = append(p.buf, '<')
		p.buf = append(p.buf, TypeName(v)...)
		p.buf = append(p.buf, " object>"...)
	}
}

func (p *printer) items(items []Value) {
	for i, item := range items {
		if i > 0 {
			p.buf = append(p.buf, ", "...)
		}
		p.repr(item)
	}
}

func (p *printer) json(v Value) error {
	switch v := v.(type) {
	case string:
		p.buf = AppendJSON(p.buf, v)
	case nil:
		p.buf = append(p.buf, "null"...)
	case bool:
		p.buf = strconv.AppendBool(p.buf, v)
	case int64:
		p.buf = strconv.AppendInt(p.buf, v, 10)
	case *big.Int:
		p.buf = v.Append(p.buf, 10)
	case float64:
		p.buf = appendJSONFloat(p.buf, v)
	case *List:
		if !p.enter(v) {
			return Raise("ValueError", "Circular reference detected")
		}
		if err := p.jsonItems(v.Items); err != nil {
			return err
		}
		p.leave()
	case Tuple:
		return p.jsonItems(v)
	case *Dict:
		return p.jsonDict(v)
	case *Frozen:
		if v.jsonErr != nil {
			return v.jsonErr
		}
		p.buf = append(p.buf, v.json...)
	default:
		return Raise("TypeError", "Object of type %s is not JSON serializable", TypeName(v))
	}
	return nil
}

func (p *printer) jsonItems(items []Value) error {
	p.buf = append(p.buf, '[')
	for i, item := range items {
		if i > 0 {
			p.buf = append(p.buf, ", "...)
		}
		if err := p.json(item); err != nil {
			return err
		}
	}
	p.buf = append(p.buf, ']')
	return nil
}

func (p *printer) jsonDict(v *Dict) error {
	if !p.enter(v) {
		return Raise("ValueError", "Circular reference detected")
	}
	p.buf = append(p.buf, '{')
	for i := range v.entries {
		if i > 0 {
			p.buf = append(p.buf, ", "...)
		}
		switch k := v.entries[i].key.(type) {
		case string:
			p.buf = AppendJSON(p.buf, k)
		case nil, bool, int64, float64, *big.Int:
			p.buf = append(p.buf, '"')
			_ = p.json(k) // numbers, booleans and null always have a text
			p.buf = append(p.buf, '"')
		default:
			return Raise("TypeError", "keys must be str, int, float, bool or None, not %s", TypeName(k))
		}
		p.buf = append(p.buf, ": "...)
		if err := p.json(v.entries[i].val); err != nil {
			return err
		}
	}
	p.buf = append(p.buf, '}')
	p.leave()
	return nil
}

// FormatFloat is Python's repr of a float: the shortest digits that read back the same.
func FormatFloat(f float64) string { return string(appendFloat(nil, f)) }

func appendFloat(b []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(b, "nan"...)
	case math.IsInf(f, 1):
		return append(b, "inf"...)
	case math.IsInf(f, -1):
		return append(b, "-inf"...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(b, f, 'e', -1, 64)
	}
	n := len(b)
	b = strconv.AppendFloat(b, f, 'f', -1, 64)
	for _, c := range b[n:] {
		if c == '.' {
			return b
		}
	}
	return append(b, ".0"...)
}

func appendJSONFloat(b []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(b, "NaN"...)
	case math.IsInf(f, 1):
		return append(b, "Infinity"...)
	case math.IsInf(f, -1):
		return append(b, "-Infinity"...)
	}
	return appendFloat(b, f)
}

const hexDigits = "0123456789abcdef"

// AppendJSON appends s as json.dumps writes it: in quotes, everything beyond ASCII escaped.
func AppendJSON(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < 0x7f && c != '"' && c != '\\' {
			i++
			continue
		}
		b = append(b, s[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
			i++
		case '\n':
			b = append(b, '\\', 'n')
			i++
		case '\r':
			b = append(b, '\\', 'r')
			i++
		case '\t':
			b = append(b, '\\', 't')
			i++
		case '\b':
			b = append(b, '\\', 'b')
			i++
		case '\f':
			b = append(b, '\\', 'f')
			i++
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			i += n
			if r > 0xffff {
				r -= 0x10000
				b = appendU(b, 0xd800+r>>10)
				r = 0xdc00 + r&0x3ff
			}
			b = appendU(b, r)
		}
		start = i
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

func appendU(b []byte, r rune) []byte {
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

// AppendRepr appends the repr of a string: single quotes unless it holds ' and no ", non-printable runes escaped.
func AppendRepr(b []byte, s string) []byte {
	quote := byte('\'')
	single, double := false, false
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\'':
			single = true
		case '"':
			double = true
		}
	}
	if single && !double {
		quote = '"'
	}
	b = append(b, quote)
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < 0x7f && c != quote && c != '\\' {
			i++
			continue
		}
		b = append(b, s[start:i]...)
		switch {
		case c == quote || c == '\\':
			b = append(b, '\\', c)
			i++
		case c == '\n':
			b = append(b, '\\', 'n')
			i++
		case c == '\r':
			b = append(b, '\\', 'r')
			i++
		case c == '\t':
			b = append(b, '\\', 't')
			i++
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			b = appendReprRune(b, r, s[i:i+n])
			i += n
		}
		start = i
	}
	b = append(b, s[start:]...)
	return append(b, quote)
}

func appendReprRune(b []byte, r rune, text string) []byte {
	switch {
	case Printable(r):
		return append(b, text...)
	case r < 0x100:
		return append(b, '\\', 'x', hexDigits[r>>4], hexDigits[r&15])
	case r < 0x10000:
		return appendU(b, r)
	}
	b = append(b, '\\', 'U', '0', '0')
	for shift := 20; shift >= 0; shift -= 4 {
		b = append(b, hexDigits[r>>shift&15])
	}
	return b
}
