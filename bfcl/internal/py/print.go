package py

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// Repr returns repr(v).
func Repr(v Value) string {
	p := printer{}
	p.repr(v)
	return string(p.buf)
}

// Str returns str(v).
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

// JSON returns json.dumps(v), or the *Exception that Python raises, except that an int may have any
// number of digits.
func JSON(v Value) (string, error) {
	p := printer{}
	if err := p.json(v); err != nil {
		return "", err
	}
	return string(p.buf), nil
}

// Result returns the benchmark's result string of a value (bfcl/SPEC.md 6): a string unchanged, a
// dict as JSON if possible, other values as Python text. The error is Python's exception for an int
// of more than 4,300 digits.
func Result(v Value) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case nil:
		return "None", nil
	case Opaque:
		return Str(v), nil
	}
	p := printers.Get().(*printer)
	defer printers.Put(p)
	p.buf, p.path, p.tooLong = p.buf[:0], p.path[:0], false
	_, isDict := v.(*Dict)
	if !isDict || p.json(v) != nil {
		p.buf, p.path, p.tooLong = p.buf[:0], p.path[:0], false
		p.repr(v)
	}
	if p.tooLong {
		return string(p.buf), errIntText()
	}
	return string(p.buf), nil
}

// maxIntDigits is CPython's limit for the text of an int.
const maxIntDigits = 4300

// errIntText returns the exception for the text of an int of more than maxIntDigits digits.
func errIntText() error {
	return Raise("ValueError",
		"Exceeds the limit (%d digits) for integer string conversion; use sys.set_int_max_str_digits() "+
			"to increase the limit", maxIntDigits)
}

// bigInt appends an int and records whether it exceeds the limit.
func (p *printer) bigInt(v *big.Int) {
	n := len(p.buf)
	p.buf = v.Append(p.buf, 10)
	digits := len(p.buf) - n
	if v.Sign() < 0 {
		digits--
	}
	p.tooLong = p.tooLong || digits > maxIntDigits
}

// printers reuses buffers.
var printers = sync.Pool{New: func() any { return &printer{buf: make([]byte, 0, 1024), path: make([]any, 0, 16)} }}

// printer appends texts to buf. path contains the enclosing containers.
type printer struct {
	buf     []byte
	path    []any
	tooLong bool // some int exceeds maxIntDigits
}

// enter returns false if v is one of the enclosing containers.
func (p *printer) enter(v any) bool {
	if slices.Contains(p.path, v) {
		return false
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
		p.bigInt(v)
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
		p.bigInt(v)
	case float64:
		p.buf = appendJSONFloat(p.buf, v)
	case *List:
		if v.json != "" {
			p.buf = append(p.buf, v.json...)
			return nil
		}
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
	default:
		return Raise("TypeError", "Object of type %s is not JSON serializable", TypeName(v))
	}
	return nil
}

// Freeze prepares a value that never changes again for many readers: the JSON text, if it has one, and the index of
// each list and dict. Replies of long tasks contain large constants.
func Freeze(v Value) {
	p := &printer{}
	var items []Value
	switch v := v.(type) {
	case *List:
		if p.json(v) == nil {
			v.json = string(p.buf)
		}
		items = v.Items
	case *Dict:
		if p.json(v) == nil {
			v.json = string(p.buf)
		}
		for _, e := range v.entries {
			items = append(items, e.val)
		}
		_, _ = v.find(nil) // makes the index
	}
	for _, item := range items {
		Freeze(item)
	}
}

// Thaw replaces the constants (Freeze) in the lists and dicts of a result by copies, and returns the result. It knows
// them by their JSON text; the result must not contain itself.
func Thaw(v Value) Value {
	switch v := v.(type) {
	case *List:
		if v.json != "" {
			return v.Clone(nil)
		}
		for i, item := range v.Items {
			v.Items[i] = Thaw(item)
		}
	case *Dict:
		if v.json != "" {
			return v.Clone(nil)
		}
		for i := range v.entries {
			v.entries[i].val = Thaw(v.entries[i].val)
		}
	}
	return v
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
	if v.json != "" {
		p.buf = append(p.buf, v.json...)
		return nil
	}
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

// FormatFloat returns Python's repr of a float: the shortest digits that round-trip.
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
	if slices.Contains(b[n:], '.') {
		return b
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

// AppendJSON appends s like json.dumps: quoted, with everything beyond ASCII escaped.
func AppendJSON(b []byte, s string) []byte {
	return appendQuoted(b, s, '"', "\n\r\t\b\f", appendJSONRune)
}

// AppendRepr appends the repr of a string: single quotes unless it contains ' and no ",
// non-printable runes escaped.
func AppendRepr(b []byte, s string) []byte {
	quote := byte('\'')
	if strings.IndexByte(s, '\'') >= 0 && strings.IndexByte(s, '"') < 0 {
		quote = '"'
	}
	return appendQuoted(b, s, quote, "\n\r\t", appendReprRune)
}

// appendQuoted appends s in quotes. Quotes, backslashes and the characters of short become a
// backslash and one character; long appends every other rune that is not plain.
func appendQuoted(b []byte, s string, quote byte, short string, long func([]byte, rune, string) []byte) []byte {
	b = append(b, quote)
	for {
		n := plainRun(s, quote)
		b = append(b, s[:n]...)
		if s = s[n:]; s == "" {
			return append(b, quote)
		}
		at := strings.IndexByte(short, s[0])
		switch n = 1; {
		case s[0] == quote || s[0] == '\\':
			b = append(b, '\\', s[0])
		case at >= 0:
			b = append(b, '\\', "nrtbf"[at])
		default:
			var r rune
			r, n = utf8.DecodeRuneInString(s)
			b = long(b, r, s[:n])
		}
		s = s[n:]
	}
}

// plainRun returns the length of the prefix of s that json.dumps and repr copy unchanged: printable
// ASCII without the quote and the backslash.
func plainRun(s string, quote byte) int {
	i := 0
	for i < len(s) && s[i] >= 0x20 && s[i] < 0x7f && s[i] != quote && s[i] != '\\' {
		i++
	}
	return i
}

// appendU appends \uXXXX.
func appendU(b []byte, r rune) []byte {
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

func appendJSONRune(b []byte, r rune, _ string) []byte {
	if r > 0xffff {
		r -= 0x10000
		b = appendU(b, 0xd800+r>>10)
		r = 0xdc00 + r&0x3ff
	}
	return appendU(b, r)
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
