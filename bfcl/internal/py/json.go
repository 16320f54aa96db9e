package py

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// FromJSON is json.loads: dicts keep the order of keys, the last value of a repeated key wins, ints
// and floats differ, NaN and Infinity are valid. Only white space may follow the value. The error
// is an *Exception with the byte offset; invalid UTF-8 and lone surrogates are errors.
func FromJSON(raw []byte) (Value, error) {
	r := jsonReader{src: string(raw)}
	if !utf8.ValidString(r.src) {
		return nil, Raise("JSONDecodeError", "the text is not UTF-8")
	}
	r.space()
	v := r.value(0)
	r.space()
	if r.err == nil && r.pos < len(r.src) {
		r.fail("Extra data")
	}
	return v, r.err
}

// jsonReader reads src from pos. It keeps the first error.
type jsonReader struct {
	src string
	pos int
	err error
}

func (r *jsonReader) fail(what string) {
	if r.err == nil {
		r.err = &Exception{"JSONDecodeError", fmt.Sprintf("%s at byte %d", what, r.pos)}
	}
}

func (r *jsonReader) space() {
	for r.pos < len(r.src) {
		switch r.src[r.pos] {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return
		}
	}
}

// take consumes c if it is next.
func (r *jsonReader) take(c byte) bool {
	if r.err == nil && r.pos < len(r.src) && r.src[r.pos] == c {
		r.pos++
		return true
	}
	return false
}

var jsonWords = []struct {
	text  string
	value Value
}{
	{"true", true}, {"false", false}, {"null", nil},
	{"NaN", math.NaN()}, {"Infinity", math.Inf(1)}, {"-Infinity", math.Inf(-1)},
}

func (r *jsonReader) value(depth int) Value {
	if depth > maxDepth {
		r.fail("nested too deeply")
	}
	if r.err != nil {
		return nil
	}
	if r.pos == len(r.src) {
		r.fail("Expecting value")
		return nil
	}
	switch c := r.src[r.pos]; {
	case c == '"':
		return r.text()
	case c == '{':
		r.pos++
		return r.object(depth)
	case c == '[':
		r.pos++
		return r.array(depth)
	}
	for _, w := range jsonWords {
		if strings.HasPrefix(r.src[r.pos:], w.text) {
			r.pos += len(w.text)
			return w.value
		}
	}
	return r.number()
}

func (r *jsonReader) array(depth int) Value {
	l := &List{}
	r.space()
	if r.take(']') {
		return l
	}
	for r.err == nil {
		r.space()
		l.Items = append(l.Items, r.value(depth+1))
		r.space()
		if r.take(']') {
			break
		}
		if !r.take(',') {
			r.fail("Expecting ',' delimiter")
		}
	}
	return l
}

func (r *jsonReader) object(depth int) Value {
	d := &Dict{}
	r.space()
	if r.take('}') {
		return d
	}
	for r.err == nil {
		r.space()
		if r.pos == len(r.src) || r.src[r.pos] != '"' {
			r.fail("Expecting property name enclosed in double quotes")
			break
		}
		key := r.text()
		r.space()
		if !r.take(':') {
			r.fail("Expecting ':' delimiter")
			break
		}
		r.space()
		d.Set(key, r.value(depth+1))
		r.space()
		if r.take('}') {
			break
		}
		if !r.take(',') {
			r.fail("Expecting ',' delimiter")
		}
	}
	return d
}

// text reads a string from its opening quote.
func (r *jsonReader) text() string {
	r.pos++
	start := r.pos
	for i := start; i < len(r.src); i++ {
		switch c := r.src[i]; {
		case c == '"':
			r.pos = i + 1
			return r.src[start:i]
		case c == '\\':
			return r.escaped(start, i)
		case c < 0x20:
			r.pos = i
			r.fail("Invalid control character")
			return ""
		}
	}
	r.fail("Unterminated string")
	return ""
}

// escaped reads the rest of a string whose first backslash is at i.
func (r *jsonReader) escaped(start, i int) string {
	b := []byte(r.src[start:i])
	for i < len(r.src) {
		c := r.src[i]
		switch {
		case c == '"':
			r.pos = i + 1
			return string(b)
		case c < 0x20:
			r.pos = i
			r.fail("Invalid control character")
			return ""
		case c != '\\':
			b = append(b, c)
			i++
			continue
		}
		r.pos = i
		if i+1 == len(r.src) {
			break
		}
		if at := strings.IndexByte(`"\/bfnrt`, r.src[i+1]); at >= 0 {
			b = append(b, "\"\\/\b\f\n\r\t"[at])
			i += 2
			continue
		}
		c1, ok := hex4(r.src, i)
		if !ok {
			r.fail(`Invalid \escape`)
			return ""
		}
		i += 6
		if utf16.IsSurrogate(c1) {
			c2, ok := hex4(r.src, i)
			if c1 = utf16.DecodeRune(c1, c2); !ok || c1 == utf8.RuneError {
				r.fail("Lone surrogate")
				return ""
			}
			i += 6
		}
		b = utf8.AppendRune(b, c1)
	}
	r.fail("Unterminated string")
	return ""
}

// hex4 reads \uXXXX at s[i].
func hex4(s string, i int) (rune, bool) {
	if i+6 > len(s) || s[i] != '\\' || s[i+1] != 'u' || !allHex(s[i+2:i+6]) {
		return 0, false
	}
	v, err := strconv.ParseUint(s[i+2:i+6], 16, 32)
	return rune(v), err == nil
}

func (r *jsonReader) number() Value {
	s := r.src[r.pos:]
	digits := func(n int) int {
		for n < len(s) && asciiDigit(s[n]) {
			n++
		}
		return n
	}
	n := 0
	if s[0] == '-' {
		n = 1
	}
	first := n
	n = digits(n)
	if n == first {
		r.fail("Expecting value")
		return nil
	}
	if s[first] == '0' {
		n = first + 1 // digits after a leading zero are not part of the number
	}
	whole := n
	if n+1 < len(s) && s[n] == '.' && asciiDigit(s[n+1]) {
		n = digits(n + 1)
	}
	if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		m := n + 1
		if m < len(s) && (s[m] == '+' || s[m] == '-') {
			m++
		}
		if end := digits(m); end > m {
			n = end
		}
	}
	r.pos += n
	if n > whole {
		f, _ := strconv.ParseFloat(s[:n], 64) // out of range is infinity, as in Python
		return f
	}
	if i, err := strconv.ParseInt(s[:n], 10, 64); err == nil {
		return i
	}
	if n > maxIntDigits {
		r.fail("Exceeds the limit (4300 digits) for integer string conversion")
		return nil
	}
	b, ok := new(big.Int).SetString(s[:n], 10)
	if !ok {
		r.fail("Expecting value")
		return nil
	}
	return shrink(b)
}
