package jinja

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
)

type expr interface {
	eval(r *rendering, s *scope) any
}

// eval returns the value of an expression, which is a step.
func (r *rendering) eval(x expr, s *scope) any {
	if !r.spend(1) {
		return undefined{}
	}
	return x.eval(r, s)
}

type constant struct{ value any }

func (e constant) eval(*rendering, *scope) any { return e.value }

type variable string

func (e variable) eval(r *rendering, s *scope) any { return r.get(s, string(e)) }

type items struct {
	list  []expr
	tuple bool
}

func (e items) eval(r *rendering, s *scope) any {
	values := make([]any, len(e.list))
	for i, x := range e.list {
		values[i] = r.eval(x, s)
	}
	r.spend(1 + len(values))
	if e.tuple {
		return tuple(values)
	}
	return List(values)
}

type pair struct{ key, value expr }

type pairs []pair

func (e pairs) eval(r *rendering, s *scope) any {
	d := Dict{}
	for _, p := range e {
		key, ok := r.eval(p.key, s).(Text)
		if !ok {
			return r.fail("a key of a dict that is no string is not supported")
		}
		r.spend(stepsOfPass + len(d)*(1+weight(key)))
		d = d.with(key, r.eval(p.value, s))
	}
	return d
}

type attribute struct {
	of   expr
	name string
}

func (e attribute) eval(r *rendering, s *scope) any { return r.attribute(r.eval(e.of, s), e.name) }

func (r *rendering) attribute(of any, name string) any {
	r.spend(1)
	if v, ok := r.method(of, name); ok {
		return v
	}
	if d, ok := of.(Dict); ok {
		if v, ok := r.find(d, name); ok {
			return v
		}
	}
	return undefined{name}
}

type item struct{ of, at expr }

func (e item) eval(r *rendering, s *scope) any { return r.item(r.eval(e.of, s), r.eval(e.at, s)) }

func (r *rendering) item(of, at any) any {
	r.spend(1 + weight(at))
	switch of := of.(type) {
	case undefined:
		return r.fail("%s has no item", typeName(of))
	case *stream:
		return r.fail("an item of %s is not supported; use list first", typeName(of))
	}
	if i, ok := whole(at); ok {
		var list []any
		switch of.(type) {
		case Text, List, tuple:
			list, _ = r.elements(of)
		}
		if i < 0 {
			i += int64(len(list))
		}
		if i >= 0 && i < int64(len(list)) {
			return list[i]
		}
		return undefined{"item"}
	}
	key, ok := at.(Text)
	if !ok {
		return undefined{"item"}
	}
	if d, ok := of.(Dict); ok {
		if v, ok := r.find(d, key.s); ok {
			return v
		}
	}
	if v, ok := r.method(of, key.s); ok {
		return v
	}
	return undefined{key.s}
}

// whole returns an integer; bool is one in Python.
func whole(v any) (int64, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case int64:
		return v, true
	}
	return 0, false
}

// reversed is of[::-1].
type reversed struct{ of expr }

func (e reversed) eval(r *rendering, s *scope) any {
	list, ok := r.sliced(r.eval(e.of, s))
	if !ok {
		return undefined{}
	}
	list = slices.Clone(list)
	slices.Reverse(list)
	r.spend(len(list))
	return List(list)
}

type slice struct{ of, from, to expr } // the bounds may be nil

func (e slice) eval(r *rendering, s *scope) any {
	of := r.eval(e.of, s)
	list, ok := r.sliced(of)
	if !ok {
		return undefined{}
	}
	bound := func(x expr, absent int) int {
		if x == nil {
			return absent
		}
		v := r.eval(x, s)
		i, ok := whole(v)
		if !ok {
			r.fail("the bounds of a slice are integers; %s is not supported", typeName(v))
		}
		if i < 0 {
			i += int64(len(list))
		}
		return int(min(max(i, 0), int64(len(list))))
	}
	from, to := bound(e.from, 0), bound(e.to, len(list))
	kept := list[from:max(from, to)]
	r.spend(len(kept))
	if _, isText := of.(Text); !isText {
		return List(slices.Clip(kept))
	}
	var b builder
	for _, c := range kept {
		b.add(c.(Text))
	}
	return r.made(b.text())
}

// sliced returns the elements of a value that can be sliced.
func (r *rendering) sliced(of any) ([]any, bool) {
	switch of.(type) {
	case Text, List:
		list, _ := r.elements(of)
		return list, r.err == nil
	}
	r.fail("a slice of %s is not supported", typeName(of))
	return nil, false
}

// callArguments are the arguments of a call as written.
type callArguments struct {
	items []expr
	names []string
	named []expr
}

// args are the values of arguments.
type args struct {
	values []any
	names  []string
	named  []any
}

func (a callArguments) eval(r *rendering, s *scope) (v args) {
	r.spend(stepsOfPass * len(a.named)) // a namespace has an entry for each name
	for _, x := range a.items {
		v.values = append(v.values, r.eval(x, s))
	}
	v.names = a.names
	for _, x := range a.named {
		v.named = append(v.named, r.eval(x, s))
	}
	for _, x := range slices.Concat(v.values, v.named) {
		r.spend(weight(x))
	}
	return v
}

// absent is the value of a parameter without an argument.
type absent struct{}

// bind returns the values of parameters. The first required ones must be given; a parameter that starts with "/" has
// no name.
func (a args) bind(r *rendering, what string, required int, parameters ...string) []any {
	v := make([]any, len(parameters))
	for i := range v {
		v[i] = absent{}
	}
	if len(a.values) > len(v) {
		r.fail("%s with more than %d arguments is not supported", what, len(v))
		return v
	}
	copy(v, a.values)
	for i, name := range a.names {
		at := slices.Index(parameters, name)
		if at < 0 || v[at] != (absent{}) {
			r.fail("%s with the argument %s is not supported", what, name)
			return v
		}
		v[at] = a.named[i]
	}
	for i := range required {
		if v[i] == (absent{}) {
			r.fail("%s with fewer than %d arguments is not supported", what, required)
		}
	}
	return v
}

type call struct {
	of expr
	callArguments
}

func (e call) eval(r *rendering, s *scope) any {
	of := r.eval(e.of, s)
	a := e.callArguments.eval(r, s)
	f, ok := of.(function)
	if !ok {
		return r.fail("%s cannot be called; a function that chat templates rarely use is not supported", typeName(of))
	}
	if !r.spend(1) {
		return undefined{}
	}
	return f.call(r, a)
}

// applied is a filter or a test of a value.
type applied struct {
	value     expr
	apply     operation
	arguments callArguments
}

func (e applied) eval(r *rendering, s *scope) any {
	v, a := r.eval(e.value, s), e.arguments.eval(r, s)
	if !r.spend(1 + weight(v)) {
		return undefined{}
	}
	return e.apply(r, v, a)
}

type negation struct{ of expr }

func (e negation) eval(r *rendering, s *scope) any { return !truth(r.eval(e.of, s)) }

type logic struct {
	left, right expr
	or          bool
}

func (e logic) eval(r *rendering, s *scope) any {
	v := r.eval(e.left, s)
	if r.err != nil || truth(v) == e.or {
		return v
	}
	return r.eval(e.right, s)
}

type conditional struct{ then, test, otherwise expr }

func (e conditional) eval(r *rendering, s *scope) any {
	switch {
	case truth(r.eval(e.test, s)):
		return r.eval(e.then, s)
	case e.otherwise != nil:
		return r.eval(e.otherwise, s)
	}
	return undefined{"if without else"}
}

type concatenation struct{ items []expr }

func (e concatenation) eval(r *rendering, s *scope) any {
	var b builder
	for _, x := range e.items {
		if !r.append(&b, r.str(r.eval(x, s))) {
			return undefined{}
		}
	}
	return r.made(b.text())
}

type minusOf struct{ of expr }

func (e minusOf) eval(r *rendering, s *scope) any {
	v := r.eval(e.of, s)
	i, ok := v.(int64)
	if !ok || i == math.MinInt64 {
		return r.fail("minus %s is not supported", typeName(v))
	}
	return -i
}

type comparison struct {
	operator    string
	left, right expr
}

func (e comparison) eval(r *rendering, s *scope) any {
	return r.compare(e.operator, r.eval(e.left, s), r.eval(e.right, s))
}

func (r *rendering) compare(operator string, a, b any) bool {
	switch operator {
	case "==":
		return r.equal(a, b, 0)
	case "!=":
		return !r.equal(a, b, 0)
	case "in":
		return r.in(a, b)
	case "<":
		return r.order(a, b) < 0
	case "<=":
		return r.order(a, b) <= 0
	case ">":
		return r.order(a, b) > 0
	}
	return r.order(a, b) >= 0
}

// float returns a number that a float64 has exactly.
func float(v any) (float64, bool) {
	if i, ok := whole(v); ok {
		return float64(i), -1<<53 <= i && i <= 1<<53
	}
	f, ok := v.(float64)
	return f, ok
}

func (r *rendering) equal(a, b any, depth int) bool {
	if depth > maxDepth {
		r.stop(errDeep)
	}
	if !r.spend(1 + weight(a) + weight(b)) {
		return false
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case bool, int64, float64, json.Number:
		switch b.(type) {
		case bool, int64, float64, json.Number:
			if n, ok := whole(a); ok {
				if m, ok := whole(b); ok {
					return n == m
				}
			}
			x, okA := float(a)
			y, okB := float(b)
			if !okA || !okB {
				r.fail("comparing integers above 2^53 is not supported")
			}
			return x == y
		}
		return false
	case Text:
		b, ok := b.(Text)
		return ok && a.s == b.s
	case List:
		b, ok := b.(List)
		return ok && r.equalLists(a, b, depth)
	case tuple:
		b, ok := b.(tuple)
		return ok && r.equalLists(a, b, depth)
	case Dict:
		b, ok := b.(Dict)
		if !ok || len(a) != len(b) {
			return false
		}
		for _, m := range a {
			if v, ok := r.find(b, m.Key.s); !ok || !r.equal(m.Value, v, depth+1) {
				return false
			}
		}
		return true
	case undefined:
		_, ok := b.(undefined)
		return ok
	}
	if _, ok := b.(undefined); ok {
		return false
	}
	r.fail("comparing %s is not supported", typeName(a))
	return false
}

func (r *rendering) equalLists(a, b []any, depth int) bool {
	return slices.EqualFunc(a, b, func(x, y any) bool { return r.equal(x, y, depth+1) })
}

// order compares integers or strings.
func (r *rendering) order(a, b any) int {
	r.spend(weight(a) + weight(b))
	x, isText := a.(Text)
	if y, ok := b.(Text); ok && isText {
		return strings.Compare(x.s, y.s)
	}
	n, okA := whole(a)
	m, okB := whole(b)
	if !okA || !okB {
		r.fail("the order of %s and %s is not supported", typeName(a), typeName(b))
	}
	return cmp.Compare(n, m)
}

func (r *rendering) in(a, b any) bool {
	switch b := b.(type) {
	case Text:
		x, ok := a.(Text)
		if !ok {
			r.fail("only a string is in a string, not %s", typeName(a))
		}
		return ok && r.spend(search(b.s, x.s)) && strings.Contains(b.s, x.s)
	case Dict:
		switch x := a.(type) {
		case Text:
			_, ok := r.find(b, x.s)
			return ok
		case List, Dict:
			r.fail("%s is no key", typeName(a))
		}
		return false
	}
	list, ok := r.elements(b)
	if !ok {
		r.fail("nothing is in %s", typeName(b))
	}
	return slices.ContainsFunc(list, func(v any) bool { return r.equal(a, v, 0) })
}

type arithmetic struct {
	operator    string
	left, right expr
}

func (e arithmetic) eval(r *rendering, s *scope) any {
	a, b := r.eval(e.left, s), r.eval(e.right, s)
	if !r.spend(1) {
		return undefined{}
	}
	switch x := a.(type) {
	case Text:
		if y, ok := b.(Text); ok && e.operator == "+" {
			return r.made(Join(x, y))
		}
	case List:
		if y, ok := b.(List); ok && e.operator == "+" {
			r.spend(len(x) + len(y))
			return slices.Concat(x, y)
		}
	}
	n, okA := whole(a)
	m, okB := whole(b)
	const most = 1 << 62 // sums of two fit
	switch {
	case !okA || !okB || max(n, -n, m, -m) > most || min(n, m) < -most:
		return r.fail("%s %s %s is not supported", typeName(a), e.operator, typeName(b))
	case e.operator == "+":
		return n + m
	case e.operator == "-":
		return n - m
	case m <= 0:
		return r.fail("%% by %d is not supported", m)
	}
	return (n%m + m) % m // Python's remainder has the sign of the divisor
}
