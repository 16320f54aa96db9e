package jinja

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxName bounds the bytes of a name, which each use reads.
const maxName = 256

type kind int

const (
	endOfSource kind = iota
	data             // text between tags
	blockBegin
	blockEnd
	outputBegin
	outputEnd
	name
	text // a string literal, unescaped
	integer
	operator
)

type lexeme struct {
	kind kind
	text string
	line int
}

func (l lexeme) String() string {
	switch l.kind {
	case endOfSource:
		return "the end of the template"
	case data:
		return "text"
	case text:
		return "the string " + strconv.Quote(l.text)
	}
	return l.text
}

// mistake is an error at a line of a template.
func mistake(line int, format string, values ...any) error {
	return fmt.Errorf("line %d: %w", line, fmt.Errorf(format, values...))
}

// lexer divides a template into lexemes. White space is treated as with trim_blocks and lstrip_blocks.
type lexer struct {
	source    string
	at, line  int
	lineStart bool // the lexeme before ends a line
	found     []lexeme
}

func lex(source string) ([]lexeme, error) {
	if !utf8.ValidString(source) {
		return nil, errors.New("the template is not UTF-8")
	}
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source)
	l := &lexer{source: strings.TrimSuffix(source, "\n"), line: 1, lineStart: true}
	for l.at < len(l.source) {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	l.add(endOfSource, "")
	return l.found, nil
}

func (l *lexer) add(k kind, text string) { l.found = append(l.found, lexeme{k, text, l.line}) }

// skip moves over n bytes and returns them.
func (l *lexer) skip(n int) string {
	s := l.source[l.at : l.at+n]
	l.at += n
	l.line += strings.Count(s, "\n")
	return s
}

func (l *lexer) skipSpace() string {
	rest := l.source[l.at:]
	return l.skip(len(rest) - len(strings.TrimLeftFunc(rest, Space)))
}

func (l *lexer) has(prefix string) bool { return strings.HasPrefix(l.source[l.at:], prefix) }

// next reads the text up to a tag, and the tag.
func (l *lexer) next() error {
	rest := l.source[l.at:]
	n := 0
	for {
		i := strings.IndexByte(rest[n:], '{')
		if i < 0 || n+i+1 >= len(rest) {
			l.add(data, l.skip(len(rest)))
			return nil
		}
		if n += i; strings.IndexByte("{%#", rest[n+1]) >= 0 {
			break
		}
		n++
	}
	tag := rest[n+1]
	var sign byte
	if n+2 < len(rest) && (rest[n+2] == '-' || rest[n+2] == '+') {
		sign = rest[n+2]
	}
	before := rest[:n]
	switch {
	case sign == '-':
		before = strings.TrimRightFunc(before, Space)
	case sign == 0 && tag != '{':
		line := strings.LastIndexByte(before, '\n') + 1
		if (line > 0 || l.lineStart) && strings.TrimLeftFunc(before[line:], Space) == "" {
			before = before[:line]
		}
	}
	if before != "" {
		l.add(data, before)
	}
	l.skip(n + 2)
	if sign != 0 {
		l.skip(1)
	}
	l.lineStart = false
	if tag == '#' {
		return l.comment()
	}
	if tag == '%' {
		l.add(blockBegin, "{%")
	} else {
		l.add(outputBegin, "{{")
	}
	return l.tag(tag == '%')
}

func (l *lexer) comment() error {
	line := l.line
	n := strings.Index(l.source[l.at:], "#}")
	if n < 0 {
		return mistake(line, "the comment has no end #}")
	}
	body := l.skip(n)
	l.skip(2)
	var sign byte
	if n > 0 {
		sign = body[n-1]
	}
	l.after(sign, true)
	return nil
}

// after skips the white space behind a tag and notes whether a line ends there.
func (l *lexer) after(sign byte, block bool) {
	var skipped string
	switch {
	case sign == '-':
		skipped = l.skipSpace()
	case sign != '+' && block && l.has("\n"):
		skipped = l.skip(1)
	}
	l.lineStart = strings.HasSuffix(skipped, "\n")
}

// tag reads the inside of a tag and its end.
func (l *lexer) tag(block bool) error {
	start, end, endKind := l.line, "}}", outputEnd
	if block {
		end, endKind = "%}", blockEnd
	}
	var open []byte
	for {
		l.skipSpace()
		if l.at == len(l.source) {
			return mistake(start, "the tag has no end %s", end)
		}
		c := l.source[l.at]
		signed := (c == '-' || c == '+' && block) && strings.HasPrefix(l.source[l.at+1:], end)
		if len(open) == 0 && (signed || l.has(end)) {
			l.add(endKind, end)
			if !signed {
				c = 0
			} else {
				l.skip(1)
			}
			l.skip(2)
			l.after(c, block)
			return nil
		}
		switch {
		case c >= '0' && c <= '9':
			if err := l.number(); err != nil {
				return err
			}
		case c == '_' || letter(c):
			n := 1
			for l.at+n < len(l.source) && (l.source[l.at+n] == '_' || letter(l.source[l.at+n]) || digit(l.source[l.at+n])) {
				n++
			}
			if n > maxName {
				return mistake(l.line, "the name %.40s… has %d bytes; at most %d are supported", l.source[l.at:], n, maxName)
			}
			l.add(name, l.skip(n))
		case c == '\'' || c == '"':
			if err := l.literal(c); err != nil {
				return err
			}
		default:
			n := 1
			for _, two := range []string{"//", "**", "==", "!=", ">=", "<="} {
				if l.has(two) {
					n = 2
				}
			}
			if n == 1 && strings.IndexByte("+-/*%~[](){}><=.:|,", c) < 0 {
				r, _ := utf8.DecodeRuneInString(l.source[l.at:])
				return mistake(l.line, "the character %q is not supported outside strings", r)
			}
			switch c {
			case '(', '[', '{':
				open = append(open, c)
			case ')', ']', '}':
				want := map[byte]byte{')': '(', ']': '[', '}': '{'}[c]
				if len(open) == 0 || open[len(open)-1] != want {
					return mistake(l.line, "%c closes nothing", c)
				}
				open = open[:len(open)-1]
			}
			l.add(operator, l.skip(n))
		}
	}
}

func digit(c byte) bool  { return c >= '0' && c <= '9' }
func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

func (l *lexer) number() error {
	n := 1
	for l.at+n < len(l.source) && digit(l.source[l.at+n]) {
		n++
	}
	end := byte(' ')
	if l.at+n < len(l.source) {
		end = l.source[l.at+n]
	}
	if end == '.' || end == '_' || letter(end) || l.has("0") && n > 1 || n > 18 {
		return mistake(l.line, "the number %.40s%c is not supported: write at most 18 digits", l.source[l.at:l.at+n], end)
	}
	l.add(integer, l.skip(n))
	return nil
}

// literal reads a string.
func (l *lexer) literal(quote byte) error {
	line := l.line
	var b strings.Builder
	for i := l.at + 1; i < len(l.source); {
		c := l.source[i]
		if c == quote {
			l.add(text, b.String())
			l.skip(i + 1 - l.at)
			return nil
		}
		if c != '\\' {
			b.WriteByte(c)
			i++
			continue
		}
		escape := l.source[i:min(i+2, len(l.source))]
		at := strings.IndexByte("ntr\\'\"", escape[len(escape)-1])
		if at < 0 || len(escape) < 2 {
			return mistake(line, "the escape %q is not supported; write the character itself", escape)
		}
		b.WriteByte("\n\t\r\\'\""[at])
		i += 2
	}
	return mistake(line, "the string has no end")
}
