package py

import (
	"strconv"
	"unicode/utf8"
)

// PlainCall is a call in its usual form: a name, with literals as arguments. Read reuses its
// slices.
type PlainCall struct {
	Name     string
	Args     []Value
	Keywords []Argument
}

// Read parses src without building a tree. It returns true only for calls that it parses
// completely; Parse handles all other texts and gives the same values.
func (c *PlainCall) Read(src string) bool {
	c.Args, c.Keywords = c.Args[:0], c.Keywords[:0]
	r := plainReader{src: src}
	for r.pos < len(src) && (src[r.pos] == ' ' || src[r.pos] == '\t') {
		r.pos++
	}
	if c.Name = r.name(); c.Name == "" || !r.take('(') {
		return false
	}
	r.blanks()
	for !r.take(')') {
		start := r.pos
		if name := r.name(); name != "" && r.take('=') {
			for i := range c.Keywords {
				if c.Keywords[i].Name == name {
					return false
				}
			}
			r.blanks()
			v, ok := r.literal(0)
			if !ok || reserved[name] {
				return false
			}
			c.Keywords = append(c.Keywords, Argument{name, v})
		} else {
			r.pos = start
			v, ok := r.literal(0)
			if !ok || len(c.Keywords) > 0 {
				return false
			}
			c.Args = append(c.Args, v)
		}
		r.blanks()
		if r.take(',') {
			r.blanks()
		} else if r.pos >= len(src) || src[r.pos] != ')' {
			return false
		}
	}
	for r.pos < len(src) && (src[r.pos] == ' ' || src[r.pos] == '\n') {
		r.pos++
	}
	return r.pos == len(src) && !reserved[c.Name]
}

type plainReader struct {
	src string
	pos int
}

func (r *plainReader) take(c byte) bool {
	if r.pos < len(r.src) && r.src[r.pos] == c {
		r.pos++
		return true
	}
	return false
}

func (r *plainReader) blanks() {
	for r.pos < len(r.src) && (r.src[r.pos] == ' ' || r.src[r.pos] == '\n') {
		r.pos++
	}
}

// name reads an ASCII identifier and the blanks after it.
func (r *plainReader) name() string {
	start := r.pos
	for r.pos < len(r.src) {
		c := r.src[r.pos]
		if c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || r.pos > start && c >= '0' && c <= '9' {
			r.pos++
			continue
		}
		break
	}
	name := r.src[start:r.pos]
	for r.pos < len(r.src) && r.src[r.pos] == ' ' {
		r.pos++
	}
	return name
}

const maxPlainDepth = 50

func (r *plainReader) literal(depth int) (Value, bool) {
	if r.pos >= len(r.src) || depth > maxPlainDepth {
		return nil, false
	}
	switch c := r.src[r.pos]; {
	case c == '\'' || c == '"':
		return r.text(c)
	case c >= '0' && c <= '9' || c == '-':
		return r.number()
	case c == '[':
		r.pos++
		return r.list(depth)
	case c == '{':
		r.pos++
		return r.dict(depth)
	}
	switch r.name() {
	case "True":
		return true, true
	case "False":
		return false, true
	case "None":
		return nil, true
	}
	return nil, false
}

func (r *plainReader) text(quote byte) (Value, bool) {
	start := r.pos + 1
	escaped, ascii := false, true
	for i := start; i < len(r.src); i++ {
		switch c := r.src[i]; {
		case c == quote:
			s := r.src[start:i]
			if r.pos = i + 1; r.pos < len(r.src) && (r.src[r.pos] == '\'' || r.src[r.pos] == '"') || !ascii &&
				!utf8.ValidString(s) {
				return nil, false
			}
			if escaped {
				var complaint string
				if s, complaint = unescape(s); complaint != "" {
					return nil, false
				}
			}
			r.blanks()
			if r.pos < len(r.src) && (r.src[r.pos] == '\'' || r.src[r.pos] == '"') {
				return nil, false // adjacent literals
			}
			return s, true
		case c == '\\':
			escaped = true
			i++
			if i < len(r.src) && (r.src[i] >= utf8.RuneSelf || r.src[i] < ' ') {
				return nil, false
			}
		case c < ' ' && c != '\t':
			return nil, false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return nil, false
}

func (r *plainReader) number() (Value, bool) {
	start := r.pos
	r.take('-')
	digits := r.pos
	for r.pos < len(r.src) && asciiDigit(r.src[r.pos]) {
		r.pos++
	}
	n := r.pos - digits
	if n == 0 || n > 1 && r.src[digits] == '0' {
		return nil, false
	}
	floating := false
	if r.take('.') {
		floating = true
		from := r.pos
		for r.pos < len(r.src) && asciiDigit(r.src[r.pos]) {
			r.pos++
		}
		if r.pos == from {
			return nil, false
		}
	}
	text := r.src[start:r.pos]
	r.blanks()
	if r.pos >= len(r.src) {
		return nil, false
	}
	switch r.src[r.pos] {
	case ',', ')', ']', '}', ':':
	default:
		return nil, false
	}
	if floating {
		f, err := strconv.ParseFloat(text, 64)
		return f, err == nil
	}
	i, err := strconv.ParseInt(text, 10, 64)
	return i, err == nil
}

// list reads the items after the opening bracket.
func (r *plainReader) list(depth int) (Value, bool) {
	l := &List{}
	r.blanks()
	for !r.take(']') {
		v, ok := r.literal(depth + 1)
		if !ok {
			return nil, false
		}
		l.Items = append(l.Items, v)
		r.blanks()
		if r.take(',') {
			r.blanks()
		} else if r.pos >= len(r.src) || r.src[r.pos] != ']' {
			return nil, false
		}
	}
	return l, true
}

func (r *plainReader) dict(depth int) (Value, bool) {
	d := &Dict{}
	r.blanks()
	for !r.take('}') {
		k, ok := r.literal(depth + 1)
		if !ok {
			return nil, false
		}
		r.blanks()
		if !r.take(':') {
			return nil, false
		}
		r.blanks()
		v, ok := r.literal(depth + 1)
		if !ok || d.SetErr(k, v) != nil {
			return nil, false
		}
		r.blanks()
		if r.take(',') {
			r.blanks()
		} else if r.pos >= len(r.src) || r.src[r.pos] != '}' {
			return nil, false
		}
	}
	return d, true
}
