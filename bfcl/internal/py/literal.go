package py

import (
	"math/big"
	"strconv"
	"strings"
)

// stringPrefix reports whether a word may precede a quote.
func stringPrefix(word string) bool {
	if word == "" || len(word) > 2 {
		return false
	}
	switch strings.ToLower(word) {
	case "r", "u", "b", "f", "br", "rb", "fr", "rf":
		return true
	}
	return false
}

// strings reads adjacent string literals. Bytes and f-strings are unsupported.
func (p *parser) strings() Expr {
	var text strings.Builder
	for p.err == nil {
		prefix := p.word()
		if !stringPrefix(prefix) {
			prefix = ""
		}
		at := p.pos + len(prefix)
		if at >= len(p.src) || p.src[at] != '\'' && p.src[at] != '"' {
			break
		}
		p.pos = at
		body := p.quoted()
		switch lower := strings.ToLower(prefix); {
		case strings.ContainsAny(lower, "fb"):
			p.unsupported()
		case lower == "r":
			text.WriteString(body)
		default:
			s, complaint := unescape(body)
			if complaint != "" {
				p.fail("%s", complaint)
			}
			text.WriteString(s)
		}
		p.space()
	}
	return &Const{text.String()}
}

// quoted reads a literal and returns the text between its quotes, escapes included.
func (p *parser) quoted() string {
	q := p.src[p.pos]
	start := p.pos + 1
	closing := string(q)
	triple := strings.HasPrefix(p.src[p.pos:], strings.Repeat(closing, 3))
	if triple {
		start += 2
		closing = strings.Repeat(closing, 3)
	}
	for i := start; i < len(p.src); i++ {
		switch c := p.src[i]; {
		case c == '\\':
			i++
		case c == '\n' && !triple:
			p.fail("unterminated string literal (detected at line %d)", 1+strings.Count(p.src[:p.pos], "\n"))
			return ""
		case c == q && strings.HasPrefix(p.src[i:], closing):
			p.pos = i + len(closing)
			return p.src[start:i]
		}
	}
	if triple {
		p.fail("unterminated triple-quoted string literal (detected at line %d)", 1+strings.Count(p.src, "\n"))
	} else {
		p.fail("unterminated string literal (detected at line %d)", 1+strings.Count(p.src[:p.pos], "\n"))
	}
	return ""
}

// simpleEscapes maps the letter of an escape to its byte.
var simpleEscapes = [256]byte{'\\': '\\', '\'': '\'', '"': '"', 'a': 7, 'b': 8, 'f': 12, 'n': 10, 'r': 13,
	't': 9, 'v': 11}

// unescape resolves the escapes of a string literal; unknown ones keep their backslash. complaint
// is the text of a SyntaxError or empty. Lone surrogates and \N names are errors.
func unescape(s string) (text, complaint string) {
	i := strings.IndexByte(s, '\\')
	if i < 0 {
		return s, ""
	}
	var b strings.Builder
	b.Grow(len(s))
	for i >= 0 {
		b.WriteString(s[:i])
		s = s[i+1:]
		if s == "" {
			b.WriteByte('\\')
			break
		}
		c := s[0]
		n := 1
		switch {
		case simpleEscapes[c] != 0:
			b.WriteByte(simpleEscapes[c])
		case c == '\n':
		case c >= '0' && c <= '7':
			v := 0
			for n = 0; n < 3 && n < len(s) && s[n] >= '0' && s[n] <= '7'; n++ {
				v = v*8 + int(s[n]-'0')
			}
			b.WriteRune(rune(v))
		case c == 'x' || c == 'u' || c == 'U':
			width := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			n = 1 + width
			if len(s) < n || !allHex(s[1:n]) {
				return "", "(unicode error) 'unicodeescape' codec can't decode bytes: truncated \\" + string(c) +
					strings.Repeat("X", width) + " escape"
			}
			v, _ := strconv.ParseUint(s[1:n], 16, 32)
			if v > 0x10ffff {
				return "", "(unicode error) 'unicodeescape' codec can't decode bytes: illegal Unicode character"
			}
			if v >= 0xd800 && v < 0xe000 {
				return "", "(unicode error) surrogates are not supported here"
			}
			b.WriteRune(rune(v))
		case c == 'N':
			return "", "(unicode error) 'unicodeescape' codec can't decode bytes: unknown Unicode character name"
		default:
			b.WriteByte('\\')
			n = 0
		}
		s = s[n:]
		i = strings.IndexByte(s, '\\')
	}
	b.WriteString(s)
	return b.String(), ""
}

func allHex(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(asciiDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			return false
		}
	}
	return true
}

// number reads an int in any base or a float. Imaginary numbers are unsupported.
func (p *parser) number() Expr {
	s := p.src[p.pos:]
	if len(s) > 1 && s[0] == '0' {
		base := map[byte]int{'x': 16, 'X': 16, 'o': 8, 'O': 8, 'b': 2, 'B': 2}[s[1]]
		if base > 0 {
			return p.based(base)
		}
	}
	n := digitsRun(s)
	floating := false
	if n < len(s) && s[n] == '.' {
		floating = true
		n++
		if n < len(s) && asciiDigit(s[n]) {
			n += digitsRun(s[n:])
		}
	}
	if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		m := n + 1
		if m < len(s) && (s[m] == '+' || s[m] == '-') {
			m++
		}
		if m < len(s) && asciiDigit(s[m]) {
			floating = true
			n = m + digitsRun(s[m:])
		}
	}
	text := strings.ReplaceAll(s[:n], "_", "")
	if n < len(s) && (s[n] == 'j' || s[n] == 'J') {
		p.unsupported()
		return nil
	}
	p.pos += n
	if !p.literalEnds("decimal") {
		return nil
	}
	switch {
	case floating:
		f, _ := strconv.ParseFloat(text, 64) // out of range is infinity, as in Python
		return &Const{f}
	case len(text) > 1 && text[0] == '0' && strings.Trim(text, "0") != "":
		p.fail("leading zeros in decimal integer literals are not permitted; use an 0o prefix for octal integers")
		return nil
	case len(text) > maxIntDigits:
		p.fail("Exceeds the limit (4300 digits) for integer string conversion: value has %d digits; use "+
			"sys.set_int_max_str_digits() to increase the limit - Consider hexadecimal for huge integer "+
			"literals to avoid decimal conversion limits.", len(text))
		return nil
	}
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return &Const{i}
	}
	b, ok := new(big.Int).SetString(text, 10)
	if !ok {
		p.fail("invalid decimal literal")
		return nil
	}
	return &Const{shrink(b)}
}

// digitsRun returns the length of digits with single underscores between them.
func digitsRun(s string) int {
	n := 0
	for n < len(s) && (asciiDigit(s[n]) || s[n] == '_' && n > 0 && s[n-1] != '_' && n+1 < len(s) && asciiDigit(s[n+1])) {
		n++
	}
	return n
}

// based reads an int after its prefix 0x, 0o or 0b.
func (p *parser) based(base int) Expr {
	s := p.src[p.pos+2:]
	n := 0
	for n < len(s) && (s[n] == '_' && (n == 0 || s[n-1] != '_') || allHex(s[n:n+1])) {
		n++
	}
	digits := strings.ReplaceAll(s[:n], "_", "")
	if len(digits) > maxIntBits/4 { // math/big takes minutes for more octal digits, CPython almost none
		p.fail("%s", AsException(errIntText()).Message)
		return nil
	}
	b, ok := new(big.Int).SetString(digits, base)
	p.pos += 2 + n
	if !ok || strings.HasSuffix(s[:n], "_") {
		p.fail("invalid number literal")
		return nil
	}
	if !p.literalEnds("number") {
		return nil
	}
	return &Const{shrink(b)}
}

// literalEnds rejects a name directly after a number, except a keyword.
func (p *parser) literalEnds(kind string) bool {
	if w := p.word(); w != "" {
		switch w {
		case "and", "or", "if", "else", "in", "is", "not", "for":
		default:
			p.fail("invalid %s literal", kind)
			return false
		}
	}
	if p.peek() == '_' {
		p.fail("invalid %s literal", kind)
		return false
	}
	p.space()
	return true
}
