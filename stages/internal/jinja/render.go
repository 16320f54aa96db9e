package jinja

import (
	"encoding/json"
	"fmt"
	"time"
)

// Limits of a rendering. MaxSteps take a second; templates need 300 for a message.
const (
	MaxSteps     = 5_000_000
	maxText      = 2 << 20 // bytes of one text, four for each token of a context of 500,000
	stepText     = 16      // bytes of text that count as one step
	stepsOfPass  = 4       // of a loop or a block, for its scope, or of an element of a new list
	stepsOfValue = 16      // of a namespace or a method, which may be kept
	stepScopes   = 8       // scopes that count as one step
	stepSearch   = 1 << 16 // bytes of a text times bytes of the searched text
)

// Work is what the renderings of a prompt may take together. The time is far longer than the steps take, and ends what
// they count too little.
type Work struct {
	Steps int
	Time  time.Duration
	calls int // of spend
}

// NewWork returns the work of some steps.
func NewWork(steps int) *Work { return &Work{Steps: steps, Time: 30 * time.Second} }

var errLong = fmt.Errorf("a text exceeds %d bytes", maxText)

// rendering is the state of one rendering. The first error ends it: all later results are discarded.
type rendering struct {
	left  *Work
	most  int // steps that were left
	until time.Time
	line  int // of the current tag
	out   *builder
	err   error
}

// Render returns the text for the variables. Beside them a template has the functions of Jinja that chat templates
// use; strftime_now returns 26 Jul 2024, because a prompt that changes daily can be neither cached nor compared.
// Undefined names are as in Jinja. Errors start with the line.
// More work than is left is an error.
func (p *Template) Render(variables map[string]any, left *Work) (Text, error) {
	begin := time.Now()
	r := &rendering{left: left, most: max(0, left.Steps), until: begin.Add(left.Time), out: &builder{}}
	defer func() { left.Time -= time.Since(begin) }()
	globals := &scope{values: variables, outer: &scope{values: functions()}}
	globals = &scope{outer: globals} // variables are the caller's
	r.block(p.body, globals)
	if r.err != nil {
		return Text{}, r.err
	}
	return r.out.text(), nil
}

func (r *rendering) fail(format string, values ...any) any {
	return r.stop(fmt.Errorf(format, values...))
}

func (r *rendering) stop(err error) any {
	if r.err == nil && err != nil {
		r.err = mistake(r.line, "%w", err)
	}
	return undefined{}
}

// spend counts steps and reports whether the rendering continues.
func (r *rendering) spend(n int) bool {
	w := r.left
	w.Steps -= n
	switch w.calls++; {
	case w.Steps < 0:
		r.fail("the rendering takes more than the %d steps that are left", r.most)
	case w.calls%1024 == 0 && time.Now().After(r.until):
		r.fail("the rendering takes longer than a prompt may")
	}
	return r.err == nil
}

// weight returns the steps of reading a text, or the digits of a large integer, beside the step of the operation.
func weight(v any) int {
	switch v := v.(type) {
	case Text:
		return len(v.s) / stepText
	case json.Number:
		return len(v)
	}
	return 0
}

// search returns the steps of searching in a text. strings.Index may compare all of x at each 17th byte.
func search(text, x string) int { return len(text)/stepText + len(text)*len(x)/stepSearch }

// find returns the value of a key. Each comparison may read the whole key.
func (r *rendering) find(d Dict, key string) (any, bool) {
	if !r.spend(len(d) * (1 + len(key)/stepText)) {
		return nil, false
	}
	return d.find(key)
}

// append adds a text to a new one, and reports whether the rendering continues. Its marks need memory before the whole
// is counted.
func (r *rendering) append(b *builder, t Text) bool {
	if b.Len()+len(t.s) > maxText {
		r.stop(errLong)
	}
	ok := r.spend(1 + len(t.s)/stepText + len(t.foreign))
	if ok {
		b.add(t)
	}
	return ok
}

// made counts a new text.
func (r *rendering) made(t Text) Text {
	if len(t.s) > maxText {
		r.stop(errLong)
	}
	r.spend(len(t.s)/stepText + len(t.foreign))
	return t
}

// scope is the variables of the template, of one pass of a loop, or of a block.
type scope struct {
	values map[string]any
	outer  *scope
}

// get returns the value of a name in the innermost scope that has it.
func (r *rendering) get(s *scope, name string) any {
	for n := 1; s != nil; n, s = n+1, s.outer {
		if v, ok := s.values[name]; ok {
			return v
		}
		if n%stepScopes == 0 {
			r.spend(1)
		}
	}
	return undefined{name}
}

func (s *scope) set(name string, v any) {
	if s.values == nil {
		s.values = map[string]any{}
	}
	s.values[name] = v
}

// jump is "", or the statement that leaves a pass of a loop.
type jump string

type node interface {
	run(r *rendering, s *scope) jump
}

func (r *rendering) block(list []node, s *scope) jump {
	for _, n := range list {
		if !r.spend(1) {
			return ""
		}
		if j := n.run(r, s); j != "" {
			return j
		}
	}
	return ""
}

func (j jump) run(*rendering, *scope) jump { return j }

type literalText struct{ text Text }

func (n literalText) run(r *rendering, _ *scope) jump {
	r.append(r.out, n.text)
	return ""
}

type output struct {
	line  int
	value expr
}

func (n output) run(r *rendering, s *scope) jump {
	r.line = n.line
	v := r.eval(n.value, s)
	r.append(r.out, r.str(v))
	return ""
}

type block struct{ body []node }

func (n block) run(r *rendering, s *scope) jump {
	r.block(n.body, &scope{outer: s})
	return ""
}

type choice struct {
	line int
	test expr
	body []node
}

type ifElse struct {
	choices   []choice
	otherwise []node
}

func (n ifElse) run(r *rendering, s *scope) jump {
	for _, c := range n.choices {
		r.line = c.line
		v := truth(r.eval(c.test, s))
		if r.err != nil {
			return ""
		}
		if v {
			return r.block(c.body, s)
		}
	}
	return r.block(n.otherwise, s)
}

type forLoop struct {
	line            int
	target          target
	over, filter    expr
	body, otherwise []node
}

// loop is the variable of that name.
type loop struct {
	items []any
	index int
}

func (n *forLoop) run(r *rendering, s *scope) jump {
	r.line = n.line
	all, ok := r.elements(r.eval(n.over, s))
	if !ok {
		r.fail("the value after in cannot be iterated over")
	}
	if r.err != nil {
		return ""
	}
	kept := all
	if n.filter != nil {
		kept = nil
		for _, v := range all {
			inner := &scope{outer: s, values: map[string]any{"loop": undefined{"loop"}}} // the passes are not known yet
			n.target.assign(r, inner, v)
			if truth(r.eval(n.filter, inner)) {
				kept = append(kept, v)
			}
			if !r.spend(stepsOfPass) {
				return ""
			}
		}
	}
	if len(kept) == 0 {
		r.block(n.otherwise, &scope{outer: s})
		return ""
	}
	l := &loop{items: kept}
	for i, v := range kept {
		l.index = i
		if !r.spend(stepsOfPass) {
			return ""
		}
		inner := &scope{outer: s, values: map[string]any{"loop": l}}
		n.target.assign(r, inner, v)
		if r.err != nil || r.block(n.body, inner) == "break" || r.err != nil {
			return ""
		}
	}
	return ""
}

// target is the names on the left of an assignment.
type target struct {
	names   []assigned
	several bool
}

type assigned struct{ name, attribute string }

func (t target) assign(r *rendering, s *scope, v any) {
	values := []any{v}
	if t.several {
		var ok bool
		if values, ok = r.elements(v); !ok || len(values) != len(t.names) {
			r.fail("%s cannot be unpacked into %d names", typeName(v), len(t.names))
			return
		}
	}
	for i, n := range t.names {
		if n.attribute == "" {
			s.set(n.name, values[i])
		} else if ns, ok := r.get(s, n.name).(*namespace); ok {
			ns.values[n.attribute] = values[i]
		} else {
			r.fail("%s.%s: attributes can only be assigned to a namespace", n.name, n.attribute)
		}
	}
}

type setTo struct {
	line   int
	target target
	value  expr
}

func (n setTo) run(r *rendering, s *scope) jump {
	r.line = n.line
	if v := r.eval(n.value, s); r.err == nil {
		n.target.assign(r, s, v)
	}
	return ""
}

type setBlock struct {
	line   int
	target target
	value  expr // of the text
	body   []node
}

// blockText is the text of a set block in its filters.
type blockText struct{}

func (blockText) eval(r *rendering, s *scope) any { return r.get(s, "{% set %}") }

func (n setBlock) run(r *rendering, s *scope) jump {
	r.spend(2 * stepsOfPass)
	out := r.out
	r.out = &builder{}
	r.block(n.body, &scope{outer: s})
	made := r.out.text()
	r.out, r.line = out, n.line
	n.target.assign(r, s, r.eval(n.value, &scope{outer: s, values: map[string]any{"{% set %}": made}}))
	return ""
}

// str returns str(v) of Python.
func (r *rendering) str(v any) Text {
	switch v := v.(type) {
	case Text:
		return v
	case undefined:
		return Text{}
	case nil:
		return Own("None")
	case bool:
		if v {
			return Own("True")
		}
		return Own("False")
	case float64:
		return Own(pyFloat(v))
	case json.Number:
		return Own(string(v))
	case int64:
		return Own(fmt.Sprint(v))
	}
	r.fail("the text of %s is not supported, because it is Python's; use tojson or join", typeName(v))
	return Text{}
}
