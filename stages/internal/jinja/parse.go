package jinja

import (
	"fmt"
	"slices"
	"strconv"
)

// Limits of a template. A template may come from anyone.
const (
	maxSource = 1 << 20
	maxNested = 200  // depth of tags and expressions
	maxTerms  = 5000 // of one tag: the depth of a chain of operators
)

// parser makes a Template of lexemes by the grammar of Jinja 3.1.
type parser struct {
	lexemes []lexeme
	at      int
	depth   int
	terms   int // in this tag
	loops   int // around the current statement
	dated   bool
}

// stop is the private panic of the parser's errors, which Parse recovers.
type stop struct{ err error }

func (p *parser) fail(format string, values ...any) {
	panic(stop{mistake(p.peek().line, format, values...)})
}

// enter counts one level of nesting; the caller defers the result.
func (p *parser) enter() func() {
	if p.depth++; p.depth > maxNested {
		p.fail("the template is nested deeper than %d", maxNested)
	}
	return func() { p.depth-- }
}

// term counts an operator.
func (p *parser) term() {
	if p.terms++; p.terms > maxTerms {
		p.fail("the tag has more than %d operators", maxTerms)
	}
}

func (p *parser) peek() lexeme { return p.lexemes[p.at] }
func (p *parser) look() lexeme { return p.lexemes[min(p.at+1, len(p.lexemes)-1)] }

func (p *parser) next() lexeme {
	l := p.peek()
	if l.kind != endOfSource {
		p.at++
	}
	return l
}

func (l lexeme) is(k kind, texts ...string) bool {
	return l.kind == k && slices.Contains(texts, l.text)
}

func (p *parser) skip(k kind, text string) bool {
	if p.peek().is(k, text) {
		p.at++
		return true
	}
	return false
}

func (p *parser) expectOperator(text string) {
	if !p.skip(operator, text) {
		p.fail("expected %q, found %v", text, p.peek())
	}
}

func (p *parser) expectName() string {
	if p.peek().kind != name {
		p.fail("expected a name, found %v", p.peek())
	}
	return p.next().text
}

func (p *parser) endTag() {
	if p.peek().kind != blockEnd {
		p.fail("expected %%}, found %v", p.peek())
	}
	p.next()
	p.terms = 0
}

// body reads statements up to a tag with one of the names, and returns that name. Without names it reads to the end
// of the template.
func (p *parser) body(ends ...string) (list []node, end string) {
	defer p.enter()()
	for {
		p.terms = 0
		switch l := p.next(); l.kind {
		case endOfSource:
			if ends != nil {
				p.fail("expected {%% %s %%} before the end of the template", ends[len(ends)-1])
			}
			return list, ""
		case data:
			list = append(list, literalText{Own(l.text)})
		case outputBegin:
			list = append(list, output{l.line, p.tupleOr(p.expression)})
			if p.peek().kind != outputEnd {
				p.fail("expected }}, found %v", p.peek())
			}
			p.next()
		case blockBegin:
			if p.peek().kind == name && slices.Contains(ends, p.peek().text) {
				return list, p.next().text
			}
			list = append(list, p.statement(l.line))
		default:
			p.fail("unexpected %v", l)
		}
	}
}

func (p *parser) statement(line int) node {
	switch tag := p.expectName(); tag {
	case "for":
		return p.forStatement(line)
	case "if":
		return p.ifStatement(line)
	case "set":
		return p.setStatement(line)
	case "generation":
		p.endTag()
		loops := p.loops
		p.loops = 0 // break and continue do not leave the block
		body, _ := p.body("endgeneration")
		p.loops = loops
		p.endTag()
		return block{body}
	case "break", "continue":
		if p.loops == 0 {
			p.fail("%s is outside a loop", tag)
		}
		p.endTag()
		return jump(tag)
	default:
		p.fail("the tag %s is not supported", tag)
		return nil
	}
}

func (p *parser) ifStatement(line int) node {
	var s ifElse
	for {
		c := choice{line: line, test: p.tupleOr(p.or)}
		p.endTag()
		body, end := p.body("elif", "else", "endif")
		c.body = body
		s.choices = append(s.choices, c)
		line = p.peek().line
		switch end {
		case "elif":
			continue
		case "else":
			p.endTag()
			s.otherwise, _ = p.body("endif")
		}
		p.endTag()
		return s
	}
}

func (p *parser) forStatement(line int) node {
	f := &forLoop{line: line, target: p.target(false)}
	if !p.skip(name, "in") {
		p.fail(`expected "in", found %v`, p.peek())
	}
	f.over = p.tupleOr(p.or)
	if p.skip(name, "if") {
		f.filter = p.expression()
	}
	p.endTag()
	p.loops++
	body, end := p.body("else", "endfor")
	p.loops--
	f.body = body
	if end == "else" {
		p.endTag()
		f.otherwise, _ = p.body("endfor")
	}
	p.endTag()
	return f
}

func (p *parser) setStatement(line int) node {
	t := p.target(true)
	if p.skip(operator, "=") {
		s := setTo{line, t, p.tupleOr(p.expression)}
		p.endTag()
		return s
	}
	if len(t.names) != 1 || t.several {
		p.fail("expected =, found %v", p.peek())
	}
	s := setBlock{line: line, target: t}
	s.value = p.filters(blockText{})
	p.endTag()
	loops := p.loops
	p.loops = 0
	s.body, _ = p.body("endset")
	p.loops = loops
	p.endTag()
	return s
}

// target reads names to assign to. attributes allows those of a namespace.
func (p *parser) target(attributes bool) (t target) {
	for {
		n := assigned{name: p.expectName()}
		if slices.Contains([]string{"true", "false", "none", "True", "False", "None", "loop"}, n.name) {
			p.fail("nothing can be assigned to %s", n.name)
		}
		if attributes && p.skip(operator, ".") {
			n.attribute = p.expectName()
		}
		t.names = append(t.names, n)
		if !p.skip(operator, ",") {
			return t
		}
		t.several = true
	}
}

// tupleOr reads an expression, or a tuple of expressions without parentheses.
func (p *parser) tupleOr(item func() expr) expr {
	first := item()
	if !p.peek().is(operator, ",") {
		return first
	}
	items := items{list: []expr{first}, tuple: true}
	for p.skip(operator, ",") {
		if k := p.peek(); k.kind == outputEnd || k.kind == blockEnd || k.is(operator, ")") {
			break
		}
		items.list = append(items.list, item())
		p.term()
	}
	return items
}

func (p *parser) expression() expr {
	defer p.enter()()
	e := p.or()
	for p.skip(name, "if") {
		c := conditional{then: e, test: p.or()}
		if p.skip(name, "else") {
			c.otherwise = p.expression()
		}
		p.term()
		e = c
	}
	return e
}

func (p *parser) or() expr {
	e := p.and()
	for p.skip(name, "or") {
		p.term()
		e = logic{e, p.and(), true}
	}
	return e
}

func (p *parser) and() expr {
	e := p.not()
	for p.skip(name, "and") {
		p.term()
		e = logic{e, p.not(), false}
	}
	return e
}

func (p *parser) not() expr {
	defer p.enter()()
	if p.skip(name, "not") {
		return negation{p.not()}
	}
	return p.compare()
}

func (p *parser) compare() expr {
	e := p.sum()
	comparing := func() bool {
		return p.peek().is(operator, "==", "!=", "<", "<=", ">", ">=") || p.peek().is(name, "in")
	}
	switch {
	case comparing():
		e = comparison{p.next().text, e, p.sum()}
	case p.peek().is(name, "not") && p.look().is(name, "in"):
		p.at += 2
		e = negation{comparison{"in", e, p.sum()}}
	}
	if comparing() {
		p.fail("a chain of comparisons is not supported")
	}
	return e
}

// binary reads a chain of operators of one precedence.
func (p *parser) binary(item func() expr, operators ...string) expr {
	e := item()
	for p.peek().is(operator, operators...) {
		p.term()
		o := p.next().text
		e = arithmetic{o, e, item()}
	}
	return e
}

func (p *parser) sum() expr { return p.binary(p.concatenation, "+", "-") }

func (p *parser) concatenation() expr {
	e := p.product()
	if !p.peek().is(operator, "~") {
		return e
	}
	c := concatenation{[]expr{e}}
	for p.skip(operator, "~") {
		c.items = append(c.items, p.product())
	}
	return c
}

func (p *parser) product() expr {
	e := p.binary(p.unary, "%")
	if p.peek().is(operator, "*", "/", "//", "**") {
		p.fail("%s is not supported", p.peek())
	}
	return e
}

func (p *parser) unary() expr {
	defer p.enter()()
	minus := p.skip(operator, "-")
	e := p.postfix(p.primary())
	if minus {
		e = minusOf{e}
	}
	for {
		switch l := p.peek(); {
		case l.is(operator, "|"):
			e = p.filters(e)
		case l.is(name, "is"):
			e = p.test(e)
		default:
			return e
		}
		p.term()
	}
}

func (p *parser) primary() expr {
	switch l := p.next(); {
	case l.kind == name:
		switch l.text {
		case "true", "True":
			return constant{true}
		case "false", "False":
			return constant{false}
		case "none", "None":
			return constant{nil}
		case "strftime_now":
			p.dated = true
		}
		return variable(l.text)
	case l.kind == text:
		s := l.text
		for p.peek().kind == text {
			p.term()
			s += p.next().text
		}
		return constant{Own(s)}
	case l.kind == integer:
		i, _ := strconv.ParseInt(l.text, 10, 64) // the lexer bounds the digits
		return constant{i}
	case l.is(operator, "("):
		if p.skip(operator, ")") {
			return items{tuple: true}
		}
		e := p.tupleOr(p.expression)
		p.expectOperator(")")
		return e
	case l.is(operator, "["):
		var list items
		p.commas("]", func() { list.list = append(list.list, p.expression()) })
		return list
	case l.is(operator, "{"):
		var d pairs
		p.commas("}", func() {
			key := p.expression()
			p.expectOperator(":")
			d = append(d, pair{key, p.expression()})
		})
		return d
	default:
		p.at = max(0, p.at-1)
		p.fail("unexpected %v", l)
		return nil
	}
}

// commas reads items up to a closing bracket. A comma may follow the last one.
func (p *parser) commas(end string, item func()) {
	for first := true; !p.skip(operator, end); first = false {
		if !first {
			p.expectOperator(",")
			if p.skip(operator, end) {
				return
			}
		}
		item()
	}
}

func (p *parser) postfix(e expr) expr {
	for {
		switch l := p.peek(); {
		case l.is(operator, "."):
			p.next()
			e = attribute{e, p.expectName()}
		case l.is(operator, "["):
			p.next()
			e = p.subscript(e)
		case l.is(operator, "("):
			e = p.call(e)
		default:
			return e
		}
		p.term()
	}
}

// subscript reads an index, a slice or [::-1].
func (p *parser) subscript(e expr) expr {
	s := slice{of: e}
	if !p.peek().is(operator, ":") {
		s.from = p.expression()
		if p.skip(operator, "]") {
			return item{e, s.from}
		}
	}
	p.expectOperator(":")
	if s.from == nil && p.skip(operator, ":") {
		if !p.skip(operator, "-") || !p.skip(integer, "1") || !p.skip(operator, "]") {
			p.fail("a step other than [::-1] is not supported")
		}
		return reversed{e}
	}
	if !p.peek().is(operator, "]") {
		s.to = p.expression()
	}
	if !p.skip(operator, "]") {
		p.fail("a slice other than [from:to] and [::-1] is not supported")
	}
	return s
}

func (p *parser) arguments() (a callArguments) {
	p.expectOperator("(")
	p.commas(")", func() {
		switch {
		case p.peek().is(operator, "*", "**"):
			p.fail("%s before an argument is not supported", p.peek())
		case p.peek().kind == name && p.look().is(operator, "="):
			key := p.next().text
			p.next()
			a.names = append(a.names, key)
			a.named = append(a.named, p.expression())
		case a.named != nil:
			p.fail("an argument without a name follows one with a name")
		default:
			a.items = append(a.items, p.expression())
		}
	})
	return a
}

func (p *parser) call(e expr) expr { return call{e, p.arguments()} }

func (p *parser) filters(e expr) expr {
	for p.skip(operator, "|") {
		p.term()
		f := applied{value: e}
		word := p.expectName()
		if f.apply = filterNamed(word); f.apply == nil {
			p.fail("the filter %s is unknown or not supported", word)
		}
		if p.peek().is(operator, "(") {
			f.arguments = p.arguments()
		}
		e = f
	}
	return e
}

func (p *parser) test(e expr) expr {
	p.next()
	not := p.skip(name, "not")
	t := applied{value: e}
	word := p.expectName()
	if t.apply = testNamed(word); t.apply == nil {
		p.fail("the test %s is unknown or not supported", word)
	}
	if p.peek().is(operator, "(") {
		t.arguments = p.arguments()
	}
	switch l := p.peek(); {
	case l.is(name, "is"):
		p.fail("a test follows a test")
	case l.kind == text, l.kind == integer, l.is(operator, "[", "{"):
		p.fail("an argument of a test without parentheses is not supported")
	}
	if not {
		return negation{t}
	}
	return t
}

// Template is a parsed template. Goroutines may share it.
type Template struct {
	body  []node
	dated bool
}

// Dated reports whether the template mentions strftime_now, whose date is always that of [Template.Render].
func (p *Template) Dated() bool { return p.dated }

// Parse reads a template of at most 1 MiB. Errors start with the line.
func Parse(source string) (template *Template, err error) {
	if len(source) > maxSource {
		return nil, fmt.Errorf("the template has %d bytes; at most %d are supported", len(source), maxSource)
	}
	p := &parser{}
	if p.lexemes, err = lex(source); err != nil {
		return nil, err
	}
	defer func() {
		switch s := recover().(type) {
		case nil:
		case stop:
			template, err = nil, s.err
		default:
			panic(s)
		}
	}()
	body, _ := p.body()
	return &Template{body, p.dated}, nil
}
