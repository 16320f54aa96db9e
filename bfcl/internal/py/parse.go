package py

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Parse reads one Python expression, as eval does: leading blanks, line breaks within brackets, trailing comments and
// line ends are fine. The error is an *Exception (SyntaxError, or ValueError for a NUL character).
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

// parser is a recursive descent over src. The first error stays in err and everything after it reads nothing.
type parser struct {
	src   string
	pos   int
	open  []byte // brackets not yet closed; inside them line breaks are blanks
	depth int
	err   error
}

// Limits of CPython: brackets by its tokenizer, the rest near its recursion limit.
const (
	maxBrackets = 200
	maxNesting  = 900
	maxChain    = 2500 // operators or trailers in one row
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

// op takes an operator when it comes next and no longer operator that begins with it does.
func (p *parser) op(s string, longer ...string) bool {
	if p.err != nil || !strings.HasPrefix(p.src[p.pos:], s) {
		return false
	}
	for _, l := range longer {
		if strings.HasPrefix(p.src[p.pos:], l) {
			return false
		}
	}
	p.pos += len(s)
	p.space()
	return true
}

// word is the identifier that comes next, without taking it.
func (p *parser) word() string {
	if p.err != nil {
		return ""
	}
	return identifierAt(p.src, p.pos)
}

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

// keyword takes a keyword when it comes next.
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

func (p *parser) push(c byte) {
	p.open = append(p.open, c)
	if len(p.open) > maxBrackets {
		p.fail("too many nested parentheses")
	}
	p.pos++
	p.space()
}

// close takes the bracket that closes the innermost open one.
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

// expressionList is "a" or the bare tuple "a, b".
func (p *parser) expressionList() Expr {
	first := p.starOrExpr()
	if p.peek() != ',' {
		if _, ok := first.(*Starred); ok {
			p.fail("can't use starred expression here")
		}
		return first
	}
	items := []Expr{first}
	for p.op(",") {
		if !p.startsExpr() {
			break
		}
		items = append(items, p.starOrExpr())
	}
	return &TupleExpr{items}
}

// startsExpr is false where an optional expression is left out: at the end and before a closing sign.
func (p *parser) startsExpr() bool {
	switch p.peek() {
	case 0, ')', ']', '}', ':', '=', ',', '\n', ';':
		return false
	}
	return true
}

func (p *parser) starOrExpr() Expr {
	if p.op("*", "**", "*=") {
		return &Starred{p.chain(0)}
	}
	return p.expr()
}

// expr is a conditional expression or a lambda.
func (p *parser) expr() Expr {
	p.depth++
	defer func() { p.depth-- }()
	if p.tooDeep() {
		return nil
	}
	if p.word() == "lambda" {
		return p.lambda()
	}
	e := p.or()
	if !p.keyword("if") {
		return e
	}
	cond := p.or()
	if !p.keyword("else") {
		p.fail("expected 'else' after 'if' expression")
		return nil
	}
	return &IfExp{Cond: cond, Then: e, Else: p.expr()}
}

func (p *parser) lambda() Expr {
	p.keyword("lambda")
	for p.err == nil && p.peek() != ':' {
		switch {
		case p.op("**") || p.op("*") || p.op(",") || p.op("/"):
		case p.op("="):
			p.expr()
		case p.word() != "" && !reserved[p.word()]:
			p.keyword(p.word())
		default:
			p.fail("invalid syntax")
		}
	}
	p.op(":")
	p.expr()
	return &Unsupported{"lambda"}
}

func (p *parser) or() Expr {
	first := p.and()
	if p.word() != "or" {
		return first
	}
	items := []Expr{first}
	for p.keyword("or") {
		items = append(items, p.and())
	}
	return &BoolOp{"or", items}
}

func (p *parser) and() Expr {
	first := p.not()
	if p.word() != "and" {
		return first
	}
	items := []Expr{first}
	for p.keyword("and") {
		items = append(items, p.not())
	}
	return &BoolOp{"and", items}
}

func (p *parser) not() Expr {
	if p.word() != "not" {
		return p.comparison()
	}
	p.depth++
	defer func() { p.depth-- }()
	if p.tooDeep() {
		return nil
	}
	p.keyword("not")
	return &Unary{"not", p.not()}
}

func (p *parser) comparison() Expr {
	first := p.chain(0)
	var c *Comparison
	for p.err == nil {
		op := p.comparisonOp()
		if op == "" {
			break
		}
		if c == nil {
			c = &Comparison{First: first}
		}
		c.Ops = append(c.Ops, op)
		c.Rest = append(c.Rest, p.chain(0))
	}
	if c == nil {
		return first
	}
	return c
}

func (p *parser) comparisonOp() string {
	for _, op := range [...]string{"==", "!=", "<=", ">="} {
		if p.op(op) {
			return op
		}
	}
	switch {
	case p.op("<", "<<"):
		return "<"
	case p.op(">", ">>"):
		return ">"
	case p.keyword("in"):
		return "in"
	case p.keyword("is"):
		if p.keyword("not") {
			return "is not"
		}
		return "is"
	case p.word() == "not":
		back := p.pos
		p.keyword("not")
		if p.keyword("in") {
			return "not in"
		}
		p.pos = back
	}
	return ""
}

// binaryOps lists the left-associative operators by level, loosest first, each with the longer ones it begins.
var binaryOps = [...][]struct {
	op     string
	longer []string
}{
	{{"|", []string{"|="}}},
	{{"^", []string{"^="}}},
	{{"&", []string{"&="}}},
	{{"<<", []string{"<<="}}, {">>", []string{">>="}}},
	{{"+", []string{"+="}}, {"-", []string{"-=", "->"}}},
	{{"*", []string{"**", "*="}}, {"//", []string{"//="}}, {"/", []string{"//", "/="}}, {"%", []string{"%="}}, {"@", []string{"@="}}},
}

func (p *parser) chain(level int) Expr {
	if level == len(binaryOps) {
		return p.unary()
	}
	left := p.chain(level + 1)
	for n := 0; p.err == nil; n++ {
		found := ""
		for _, o := range binaryOps[level] {
			if p.op(o.op, o.longer...) {
				found = o.op
				break
			}
		}
		if found == "" {
			break
		}
		if n > maxChain {
			p.err = Raise("RecursionError", "maximum recursion depth exceeded during compilation")
			return nil
		}
		left = &Binary{found, left, p.chain(level + 1)}
	}
	return left
}

func (p *parser) unary() Expr {
	for _, op := range [...]string{"-", "+", "~"} {
		if !p.op(op) {
			continue
		}
		p.depth++
		defer func() { p.depth-- }()
		if p.tooDeep() {
			return nil
		}
		return &Unary{op, p.unary()}
	}
	return p.power()
}

func (p *parser) power() Expr {
	base := p.primary()
	if !p.op("**", "**=") {
		return base
	}
	p.depth++
	defer func() { p.depth-- }()
	if p.tooDeep() {
		return nil
	}
	return &Binary{"**", base, p.unary()}
}

// primary is an atom with its attributes, calls and subscripts.
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
			p.push('[')
			index := p.subscripts()
			p.close(']')
			e = &Subscript{e, index}
		default:
			return e
		}
	}
	return nil
}

func (p *parser) call(f Expr) Expr {
	p.push('(')
	c := &Call{Func: f}
	unpacked := false
	for p.err == nil && p.peek() != ')' {
		switch name := p.word(); {
		case p.op("**"):
			c.Keywords = append(c.Keywords, Keyword{"", p.expr()})
			unpacked = true
		case p.op("*"):
			c.Args = append(c.Args, &Starred{p.expr()})
			if unpacked {
				p.fail("iterable argument unpacking follows keyword argument unpacking")
			}
		case name != "" && p.followedByAssign(name):
			if reserved[name] {
				p.fail("expression cannot contain assignment, perhaps you meant \"==\"?")
				return nil
			}
			p.keyword(name)
			p.op("=")
			c.Keywords = append(c.Keywords, Keyword{name, p.expr()})
		default:
			arg := p.namedExpr()
			if p.comprehension() {
				arg = &Unsupported{"generator"}
				if len(c.Args)+len(c.Keywords) > 0 {
					p.fail("Generator expression must be parenthesized")
				}
			}
			switch {
			case unpacked:
				p.fail("positional argument follows keyword argument unpacking")
			case len(c.Keywords) > 0:
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

// followedByAssign is true when the word that comes next stands before a single "=".
func (p *parser) followedByAssign(word string) bool {
	back := p.pos
	p.pos += len(word)
	p.space()
	rest := p.src[p.pos:]
	p.pos = back
	return strings.HasPrefix(rest, "=") && !strings.HasPrefix(rest, "==")
}

// namedExpr is an expression or, inside brackets, an assignment expression.
func (p *parser) namedExpr() Expr {
	e := p.expr()
	if p.op(":=") {
		if _, ok := e.(*Name); !ok {
			p.fail("cannot use assignment expressions with this target")
			return nil
		}
		p.expr()
		return &Unsupported{"assignment"}
	}
	return e
}

// comprehension takes "for x in y if z" clauses, if there are any.
func (p *parser) comprehension() bool {
	found := false
	for p.err == nil && (p.word() == "for" || p.word() == "async") {
		found = true
		p.keyword("async")
		if !p.keyword("for") {
			p.fail("invalid syntax")
			return true
		}
		for p.err == nil {
			p.op("*")
			p.chain(0)
			if !p.op(",") || p.word() == "in" {
				break
			}
		}
		if !p.keyword("in") {
			p.fail("invalid syntax")
			return true
		}
		p.or()
		for p.keyword("if") {
			p.or()
		}
	}
	return found
}

func (p *parser) subscripts() Expr {
	first := p.subscript()
	if p.peek() != ',' {
		return first
	}
	items := []Expr{first}
	for p.op(",") {
		if p.peek() == ']' {
			break
		}
		items = append(items, p.subscript())
	}
	return &TupleExpr{items}
}

func (p *parser) subscript() Expr {
	var s Slice
	if p.peek() != ':' {
		if s.Low = p.namedExpr(); p.peek() != ':' {
			return s.Low
		}
	}
	p.op(":")
	if p.startsExpr() {
		s.High = p.expr()
	}
	if p.op(":") && p.startsExpr() {
		s.Step = p.expr()
	}
	return &s
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
		if len(items) == 1 && p.comprehension() {
			p.close(']')
			return &Unsupported{"comprehension"}
		}
		p.close(']')
		return &ListExpr{items}
	case c == '{':
		return p.braces()
	case asciiDigit(c), c == '.' && p.pos+1 < len(p.src) && asciiDigit(p.src[p.pos+1]):
		return p.number()
	}
	if p.op("...") {
		return &Const{Ellipsis}
	}
	word := p.word()
	if n := stringPrefix(word); n && p.pos+len(word) < len(p.src) {
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

// items reads a comma-separated list up to, not including, the closing sign.
func (p *parser) items(closing byte) []Expr {
	var items []Expr
	for p.err == nil && p.peek() != closing {
		if p.op("*", "**") {
			items = append(items, &Starred{p.chain(0)})
		} else {
			items = append(items, p.namedExpr())
		}
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
	var first Expr
	if p.op("*", "**") {
		first = &Starred{p.chain(0)}
	} else {
		first = p.namedExpr()
	}
	if p.comprehension() {
		p.close(')')
		return &Unsupported{"generator"}
	}
	if !p.op(",") {
		p.close(')')
		if _, ok := first.(*Starred); ok {
			p.fail("cannot use starred expression here")
		}
		return first
	}
	items := append([]Expr{first}, p.items(')')...)
	p.close(')')
	return &TupleExpr{items}
}

// braces is a dict or a set.
func (p *parser) braces() Expr {
	p.push('{')
	d := &DictExpr{}
	var set []Expr
	for p.err == nil && p.peek() != '}' {
		switch {
		case p.op("**"):
			d.Keys = append(d.Keys, nil)
			d.Values = append(d.Values, p.chain(0))
		case p.op("*"):
			set = append(set, &Starred{p.chain(0)})
		default:
			k := p.namedExpr()
			if p.op(":", ":=") {
				d.Keys = append(d.Keys, k)
				d.Values = append(d.Values, p.expr())
			} else {
				set = append(set, k)
			}
		}
		if len(set) > 0 && len(d.Keys) > 0 {
			p.fail("invalid syntax")
		}
		if len(set)+len(d.Keys) == 1 && p.comprehension() {
			p.close('}')
			return &Unsupported{"comprehension"}
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
