package py

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Parse reads one Python expression like eval: leading blanks, line breaks within brackets,
// trailing comments and line ends are allowed. The error is an *Exception: SyntaxError, ValueError
// for a NUL character, RecursionError for deep nesting, or Unsupported at the first construct
// outside the subset (operators, comprehensions, lambdas, slices, unpacking, other literals).
func Parse(src string) (Expr, error) {
	if strings.IndexByte(src, 0) >= 0 {
		return nil, Raise("ValueError", "source code string cannot contain null bytes")
	}
	if !utf8.ValidString(src) {
		return nil, Raise("SyntaxError", "(unicode error) 'utf-8' codec can't decode the text")
	}
	if strings.IndexByte(src, '\r') >= 0 {
		src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	}
	p := &parser{src: src}
	for p.pos < len(src) && (src[p.pos] == ' ' || src[p.pos] == '\t') {
		p.pos++
	}
	p.open = append(p.open, 0) // lines before the expression may be empty
	p.space()
	p.open = p.open[:0]
	if p.pos == len(src) {
		return nil, Raise("SyntaxError", "invalid syntax (<string>, line 0)")
	}
	e := p.expressionList()
	if p.err == nil {
		p.end()
	}
	if p.err != nil {
		return nil, p.err
	}
	return e, nil
}

// parser is a recursive descent parser. After the first error, all methods read nothing.
type parser struct {
	src   string
	pos   int
	open  []byte // open brackets; inside them line breaks are blanks
	depth int    // nested expressions
	err   error  // the first error
}

// Limits of CPython: brackets by its tokenizer, the others near its recursion limit.
const (
	maxBrackets = 200
	maxNesting  = 900
	maxChain    = 2500 // consecutive trailers
)

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		line := 1 + strings.Count(p.src[:min(p.pos, len(p.src))], "\n")
		p.err = Raise("SyntaxError", "%s (<string>, line %d)", fmt.Sprintf(format, args...), line)
	}
}

func (p *parser) tooDeep() bool {
	if p.depth > maxNesting && p.err == nil {
		p.err = Raise("RecursionError", "maximum recursion depth exceeded during compilation")
	}
	return p.err != nil
}

// space skips blanks, comments, joined lines and, inside brackets, line breaks.
func (p *parser) space() {
	for p.pos < len(p.src) {
		switch c := p.src[p.pos]; {
		case c == ' ' || c == '\t' || c == '\f':
			p.pos++
		case c == '\n' && len(p.open) > 0:
			p.pos++
		case c == '\\' && strings.HasPrefix(p.src[p.pos+1:], "\n"):
			p.pos += 2
		case c == '#':
			if i := strings.IndexByte(p.src[p.pos:], '\n'); i >= 0 {
				p.pos += i
			} else {
				p.pos = len(p.src)
			}
		default:
			return
		}
	}
}

// end accepts only line ends, blanks and comments up to the end of the text.
func (p *parser) end() {
	p.open = append(p.open[:0], 0)
	p.space()
	if p.pos == len(p.src) {
		return
	}
	switch c := p.src[p.pos]; c {
	case ')', ']', '}':
		p.fail("unmatched '%c'", c)
	default:
		p.fail("invalid syntax")
	}
}

func (p *parser) peek() byte {
	if p.pos < len(p.src) && p.err == nil {
		return p.src[p.pos]
	}
	return 0
}

// op consumes s if it is next.
func (p *parser) op(s string) bool {
	if p.err != nil || !strings.HasPrefix(p.src[p.pos:], s) {
		return false
	}
	p.pos += len(s)
	p.space()
	return true
}

// unsupported stops with the error for valid Python outside the subset.
func (p *parser) unsupported() {
	if p.err == nil {
		p.err = Unsupported()
	}
}

// word returns the next identifier without consuming it.
func (p *parser) word() string {
	if p.err != nil {
		return ""
	}
	return identifierAt(p.src, p.pos)
}

// identifierAt returns the identifier at s[at], or "".
func identifierAt(s string, at int) string {
	i := at
	for i < len(s) {
		c := s[i]
		if c < utf8.RuneSelf {
			if !(c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i > at && c >= '0' && c <= '9') {
				break
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if !unicode.IsLetter(r) && (i == at || !unicode.In(r, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc)) {
			break
		}
		i += n
	}
	return s[at:i]
}

// keyword consumes a keyword if it is next.
func (p *parser) keyword(k string) bool {
	if p.word() != k {
		return false
	}
	p.pos += len(k)
	p.space()
	return true
}

var reserved = map[string]bool{
	"and": true, "as": true, "assert": true, "async": true, "await": true, "break": true, "class": true, "continue": true,
	"def": true, "del": true, "elif": true, "else": true, "except": true, "finally": true, "for": true, "from": true,
	"global": true, "if": true, "import": true, "in": true, "is": true, "lambda": true, "nonlocal": true, "not": true,
	"or": true, "pass": true, "raise": true, "return": true, "try": true, "while": true, "with": true, "yield": true,
	"True": true, "False": true, "None": true,
}

// push consumes an opening bracket.
func (p *parser) push(c byte) {
	p.open = append(p.open, c)
	if len(p.open) > maxBrackets {
		p.fail("too many nested parentheses")
	}
	p.pos++
	p.space()
}

// close consumes the bracket that closes the innermost open one.
func (p *parser) close(c byte) {
	if p.err != nil {
		return
	}
	opened := p.open[len(p.open)-1]
	if p.pos == len(p.src) {
		p.fail("'%c' was never closed", opened)
		return
	}
	if p.src[p.pos] != c {
		if d := p.src[p.pos]; d == ')' || d == ']' || d == '}' {
			p.fail("closing parenthesis '%c' does not match opening parenthesis '%c'", d, opened)
		} else {
			p.fail("invalid syntax")
		}
		return
	}
	p.open = p.open[:len(p.open)-1]
	p.pos++
	p.space()
}

// expressionList reads "a" or the bare tuple "a, b".
func (p *parser) expressionList() Expr {
	first := p.expr()
	if p.peek() != ',' {
		return first
	}
	items := []Expr{first}
	for p.op(",") {
		if p.peek() == 0 || p.peek() == '\n' {
			break
		}
		items = append(items, p.expr())
	}
	return &TupleExpr{items}
}

// operatorWords are the words that continue an expression.
var operatorWords = map[string]bool{
	"and": true, "or": true, "not": true, "in": true, "is": true, "if": true, "for": true, "async": true,
}

// expr reads a signed primary. Other operators are unsupported.
func (p *parser) expr() Expr {
	p.depth++
	defer func() { p.depth-- }()
	if p.tooDeep() {
		return nil
	}
	switch p.peek() {
	case '-', '+':
		minus := p.src[p.pos] == '-'
		p.pos++
		p.space()
		return &Sign{minus, p.expr()}
	case '*', '~':
		p.unsupported()
		return nil
	}
	if w := p.word(); w == "not" || w == "lambda" || w == "await" {
		p.unsupported()
		return nil
	}
	e := p.primary()
	if p.operatorNext() {
		p.unsupported()
	}
	return e
}

// operatorNext reports whether the next token is an operator that continues the expression.
func (p *parser) operatorNext() bool {
	c := p.peek()
	if c == 0 || operatorWords[p.word()] {
		return c != 0
	}
	next := byte(0)
	if p.pos+1 < len(p.src) {
		next = p.src[p.pos+1]
	}
	switch c {
	case '+', '-', '*', '/', '%', '@', '&', '|', '^':
		return next != '=' && !(c == '-' && next == '>')
	case '<', '>':
		return true
	case '=', '!':
		return next == '='
	case ':':
		return next == '='
	}
	return false
}

// primary reads an atom with its attributes, calls and subscripts.
func (p *parser) primary() Expr {
	e := p.atom()
	for n := 0; p.err == nil; n++ {
		if n > maxChain {
			p.err = Raise("RecursionError", "maximum recursion depth exceeded during compilation")
			return nil
		}
		switch p.peek() {
		case '.':
			p.pos++
			p.space()
			name := p.word()
			if name == "" || reserved[name] {
				p.fail("invalid syntax")
				return nil
			}
			p.keyword(name)
			e = &Attribute{e, name}
		case '(':
			e = p.call(e)
		case '[':
			e = p.subscript(e)
		default:
			return e
		}
	}
	return nil
}

func (p *parser) call(f Expr) Expr {
	p.push('(')
	c, seen := &Call{Func: f}, map[string]bool{}
	for p.err == nil && p.peek() != ')' {
		if name := p.word(); name != "" && p.followedByAssign(name) {
			c.Keywords = append(c.Keywords, p.callKeyword(name))
			if seen[name] {
				p.fail("keyword argument repeated: %s", name)
			}
			seen[name] = true
		} else {
			arg := p.expr()
			if len(c.Keywords) > 0 {
				p.fail("positional argument follows keyword argument")
			}
			c.Args = append(c.Args, arg)
		}
		if !p.op(",") {
			break
		}
	}
	p.close(')')
	return c
}

func (p *parser) callKeyword(name string) Keyword {
	if reserved[name] {
		p.fail("expression cannot contain assignment, perhaps you meant \"==\"?")
	}
	p.keyword(name)
	p.op("=")
	return Keyword{name, p.expr()}
}

// followedByAssign reports whether the next word is followed by a single "=".
func (p *parser) followedByAssign(word string) bool {
	back := p.pos
	p.pos += len(word)
	p.space()
	rest := p.src[p.pos:]
	p.pos = back
	return strings.HasPrefix(rest, "=") && !strings.HasPrefix(rest, "==")
}

func (p *parser) subscript(x Expr) Expr {
	p.push('[')
	if p.peek() == ':' {
		p.unsupported()
		return nil
	}
	index := p.expr()
	if c := p.peek(); c == ':' || c == ',' {
		p.unsupported()
		return nil
	}
	p.close(']')
	return &Subscript{x, index}
}

func (p *parser) atom() Expr {
	switch c := p.peek(); {
	case c == '\'' || c == '"':
		return p.strings()
	case c == '(':
		return p.parenthesised()
	case c == '[':
		p.push('[')
		items := p.items(']')
		p.close(']')
		return &ListExpr{items}
	case c == '{':
		return p.braces()
	case asciiDigit(c), c == '.' && p.pos+1 < len(p.src) && asciiDigit(p.src[p.pos+1]):
		return p.number()
	}
	if p.op("...") {
		p.unsupported()
		return nil
	}
	word := p.word()
	if stringPrefix(word) && p.pos+len(word) < len(p.src) {
		if q := p.src[p.pos+len(word)]; q == '\'' || q == '"' {
			return p.strings()
		}
	}
	switch word {
	case "True":
		p.keyword(word)
		return &Const{true}
	case "False":
		p.keyword(word)
		return &Const{false}
	case "None":
		p.keyword(word)
		return &Const{nil}
	}
	if word == "" || reserved[word] {
		if p.err == nil && p.pos == len(p.src) && len(p.open) > 0 {
			p.fail("'%c' was never closed", p.open[len(p.open)-1])
		}
		p.fail("invalid syntax")
		return nil
	}
	p.keyword(word)
	return &Name{word}
}

// items reads a comma-separated list up to the closing bracket, which it does not consume.
func (p *parser) items(closing byte) []Expr {
	var items []Expr
	for p.err == nil && p.peek() != closing {
		items = append(items, p.expr())
		if !p.op(",") {
			break
		}
	}
	return items
}

func (p *parser) parenthesised() Expr {
	p.push('(')
	if p.peek() == ')' {
		p.close(')')
		return &TupleExpr{}
	}
	first := p.expr()
	if !p.op(",") {
		p.close(')')
		return first
	}
	items := append([]Expr{first}, p.items(')')...)
	p.close(')')
	return &TupleExpr{items}
}

// braces reads a dict or a set.
func (p *parser) braces() Expr {
	p.push('{')
	d := &DictExpr{}
	var set []Expr
	for p.err == nil && p.peek() != '}' {
		k := p.expr()
		if p.op(":") {
			d.Keys = append(d.Keys, k)
			d.Values = append(d.Values, p.expr())
		} else {
			set = append(set, k)
		}
		if len(set) > 0 && len(d.Keys) > 0 {
			p.fail("invalid syntax")
		}
		if !p.op(",") {
			break
		}
	}
	p.close('}')
	if len(set) > 0 {
		return &SetExpr{set}
	}
	return d
}
