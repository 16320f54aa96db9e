package jinja

import (
	"encoding/json"
	"math"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"
)

type expr interface {
	eval(r *rendering, s *scope) any
}

func runeLen(s string) int {
	_, n := utf8.DecodeRuneInString(s)
	return n
}

type constant struct{ value any }

func (e constant) eval(*rendering, *scope) any { return e.value }

type variable string

func (e variable) eval(r *rendering, s *scope) any {
	r.spend(1)
	return s.get(string(e))
}

type items struct {
	list  []expr
	tuple bool
}

func (e items) eval(r *rendering, s *scope) any {
	values := make([]any, len(e.list))
	for i, x := range e.list {
		values[i] = x.eval(r, s)
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
		key, ok := p.key.eval(r, s).(Text)
		if !ok {
			return r.fail("a key of a dict that is no string is not supported")
		}
		r.spend(1 + len(d)*(1+weight(key)))
		d = d.with(key, p.value.eval(r, s))
	}
	return d
}

type attribute struct {
	of   expr
	name string
}

func (e attribute) eval(r *rendering, s *scope) any { return r.attribute(e.of.eval(r, s), e.name) }

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

func (e item) eval(r *rendering, s *scope) any { return r.item(e.of.eval(r, s), e.at.eval(r, s)) }

func (r *rendering) item(of, at any) any {
	r.spend(1 + weight(at))
	switch of := of.(type) {
	case undefined:
		return r.fail("%s has no item", typeName(of))
	case *stream, view:
		return r.fail("an item of %s is not supported; use list first", typeName(of))
	}
	if i, ok := whole(at); ok {
		var list []any
		if _, isText := of.(Text); isText || isList(of) {
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

func isList(v any) bool {
	switch v.(type) {
	case List, tuple, numbers:
		return true
	}
	return false
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

type slice struct {
	of expr
	at [3]expr
}

func (e slice) eval(r *rendering, s *scope) any {
	of := e.of.eval(r, s)
	_, isText := of.(Text)
	if _, isRange := of.(numbers); !isText && !isList(of) || isRange {
		return r.fail("a slice of %s is not supported", typeName(of))
	}
	list, _ := r.elements(of)
	var at [3]*int64
	for i, x := range e.at {
		if x == nil {
			continue
		}
		v := x.eval(r, s)
		n, ok := whole(v)
		if v == nil {
			continue
		}
		if !ok {
			return r.fail("the bounds of a slice are integers, not %s", typeName(v))
		}
		at[i] = &n
	}
	step, n := int64(1), int64(len(list))
	if at[2] != nil {
		step = *at[2]
	}
	if step == 0 {
		return r.fail("the step of a slice is 0")
	}
	low, high := int64(0), n // bounds of indices as Python clamps them
	if step < 0 {
		low, high = -1, n-1
	}
	bound := func(x *int64, absent int64) int64 {
		if x == nil {
			return absent
		}
		i := *x
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	from, to := bound(at[0], low), bound(at[1], high)
	if step < 0 {
		from, to = bound(at[0], high), bound(at[1], low)
	}
	var kept []any
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		kept = append(kept, list[i])
		if step > n || step < -n {
			break
		}
	}
	r.spend(len(kept))
	switch of.(type) {
	case Text:
		var b builder
		for _, c := range kept {
			b.add(c.(Text))
		}
		return r.made(b.text())
	case tuple:
		return tuple(kept)
	}
	return List(kept)
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
	for _, x := range a.items {
		v.values = append(v.values, x.eval(r, s))
	}
	v.names = a.names
	for _, x := range a.named {
		v.named = append(v.named, x.eval(r, s))
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
		r.fail("%s has at most %d arguments", what, len(v))
		return v
	}
	copy(v, a.values)
	for i, name := range a.names {
		at := slices.Index(parameters, name)
		if at < 0 || v[at] != (absent{}) {
			r.fail("%s has no further argument %s", what, name)
			return v
		}
		v[at] = a.named[i]
	}
	for i := range required {
		if v[i] == (absent{}) {
			r.fail("%s needs %d arguments", what, required)
		}
	}
	return v
}

type call struct {
	of expr
	callArguments
}

func (e call) eval(r *rendering, s *scope) any {
	of := e.of.eval(r, s)
	a := e.callArguments.eval(r, s)
	f, ok := of.(function)
	if !ok {
		return r.fail("%s cannot be called", typeName(of))
	}
	if !r.spend(1) {
		return undefined{}
	}
	return f.call(r, a)
}

type filtered struct {
	value expr
	name  string
	callArgumentsField
}

type callArgumentsField struct{ arguments callArguments }

func (e filtered) eval(r *rendering, s *scope) any {
	v, a := e.value.eval(r, s), e.arguments.eval(r, s)
	if !r.spend(1 + weight(v)) {
		return undefined{}
	}
	return filters[e.name](r, v, a)
}

type tested struct {
	value expr
	name  string
	callArgumentsField
}

func (e tested) eval(r *rendering, s *scope) any {
	v, a := e.value.eval(r, s), e.arguments.eval(r, s)
	if !r.spend(1 + weight(v)) {
		return undefined{}
	}
	return tests[e.name](r, v, a)
}

type negation struct{ of expr }

func (e negation) eval(r *rendering, s *scope) any { return !truth(e.of.eval(r, s)) }

type logic struct {
	left, right expr
	or          bool
}

func (e logic) eval(r *rendering, s *scope) any {
	v := e.left.eval(r, s)
	if r.err != nil || truth(v) == e.or {
		return v
	}
	return e.right.eval(r, s)
}

type conditional struct{ then, test, otherwise expr }

func (e conditional) eval(r *rendering, s *scope) any {
	switch {
	case truth(e.test.eval(r, s)):
		return e.then.eval(r, s)
	case e.otherwise != nil:
		return e.otherwise.eval(r, s)
	}
	return undefined{"if without else"}
}

type concatenation struct{ items []expr }

func (e concatenation) eval(r *rendering, s *scope) any {
	var b builder
	for _, x := range e.items {
		v := x.eval(r, s)
		if _, ok := v.(safe); ok {
			return r.fail("~ with a string marked safe is not supported")
		}
		b.add(r.str(v))
		if b.Len() > maxText {
			return r.stop(errLong)
		}
	}
	return r.made(b.text())
}

type sign struct {
	minus bool
	of    expr
}

func (e sign) eval(r *rendering, s *scope) any {
	v := e.of.eval(r, s)
	if f, ok := v.(float64); ok {
		if e.minus {
			return -f
		}
		return f
	}
	i, ok := whole(v)
	switch {
	case !ok || i == math.MinInt64:
		return r.fail("the sign of %s is not supported", typeName(v))
	case e.minus:
		return -i
	}
	return i
}

type operand struct {
	operator string
	value    expr
}

type comparison struct {
	first expr
	rest  []operand
}

func (e comparison) eval(r *rendering, s *scope) any {
	left := e.first.eval(r, s)
	for _, o := range e.rest {
		right := o.value.eval(r, s)
		if !r.compare(o.operator, left, right) || r.err != nil {
			return false
		}
		left = right
	}
	return true
}

func (r *rendering) compare(operator string, a, b any) bool {
	switch operator {
	case "==":
		return r.equal(a, b, 0)
	case "!=":
		return !r.equal(a, b, 0)
	case "in":
		return r.in(a, b)
	case "not in":
		return !r.in(a, b)
	}
	c, ok := r.order(a, b)
	switch operator {
	case "<":
		return ok && c < 0
	case "<=":
		return ok && c <= 0
	case ">":
		return ok && c > 0
	}
	return ok && c >= 0
}

// real returns a number exactly; ok is false for another value, NaN and infinities.
func real(v any) (x *big.Float, ok bool) {
	if i, ok := whole(v); ok {
		return new(big.Float).SetInt64(i), true
	}
	switch v := v.(type) {
	case float64:
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			return big.NewFloat(v), true
		}
	case json.Number:
		if len(v) >= 1000 {
			return nil, false
		}
		if i, ok := new(big.Int).SetString(string(v), 10); ok {
			return new(big.Float).SetInt(i), true
		}
	}
	return nil, false
}

func (r *rendering) equal(a, b any, depth int) bool {
	if depth > maxDepth {
		r.stop(errDeep)
	}
	if !r.spend(1 + weight(a) + weight(b)) {
		return false
	}
	if x, ok := real(a); ok {
		y, ok := real(b)
		return ok && x.Cmp(y) == 0
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case float64: // NaN or an infinity
		b, ok := b.(float64)
		return ok && a == b
	case json.Number:
		return a == b
	case Text:
		b, ok := b.(Text)
		return ok && a.s == b.s
	case List:
		b, ok := b.(List)
		return ok && r.equalLists(a, b, depth)
	case tuple:
		b, ok := b.(tuple)
		return ok && r.equalLists(a, b, depth)
	case numbers:
		b, ok := b.(numbers)
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
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !r.equal(a[i], b[i], depth+1) {
			return false
		}
	}
	return true
}

// order compares numbers or strings. ok is false for NaN, which is below and above nothing, and after an error.
func (r *rendering) order(a, b any) (c int, ok bool) {
	r.spend(weight(a) + weight(b))
	if x, isText := a.(Text); isText {
		if y, isText := b.(Text); isText {
			return strings.Compare(x.s, y.s), true
		}
	}
	x, okA := real(a)
	y, okB := real(b)
	if okA && okB {
		return x.Cmp(y), true
	}
	f, isA := a.(float64)
	g, isB := b.(float64)
	switch {
	case isA && isB && (math.IsNaN(f) || math.IsNaN(g)), isA && math.IsNaN(f) && okB, okA && isB && math.IsNaN(g):
		return 0, false
	case isA && !okA && (okB || isB):
		if isB && f == g {
			return 0, true
		}
		return int(math.Copysign(1, f)), true
	case isB && !okB && okA:
		return -int(math.Copysign(1, g)), true
	}
	r.fail("the order of %s and %s is not supported", typeName(a), typeName(b))
	return 0, false
}

func (r *rendering) in(a, b any) bool {
	switch b := b.(type) {
	case Text:
		x, ok := a.(Text)
		if !ok {
			r.fail("only a string is in a string, not %s", typeName(a))
		}
		r.spend(len(b.s) / stepText)
		return ok && strings.Contains(b.s, x.s)
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
	for _, v := range list {
		if r.equal(a, v, 0) {
			return true
		}
	}
	return false
}

type arithmetic struct {
	operator    string
	left, right expr
}

func (e arithmetic) eval(r *rendering, s *scope) any {
	a, b := e.left.eval(r, s), e.right.eval(r, s)
	if !r.spend(1) {
		return undefined{}
	}
	switch x := a.(type) {
	case Text:
		switch y := b.(type) {
		case Text:
			if e.operator == "+" {
				return r.made(Join(x, y))
			}
		default:
			if n, ok := whole(b); ok && e.operator == "*" {
				return r.repeat(x, n)
			}
		}
	case List:
		if y, ok := b.(List); ok && e.operator == "+" {
			r.spend(len(x) + len(y))
			return slices.Concat(x, y)
		}
	case tuple:
		if y, ok := b.(tuple); ok && e.operator == "+" {
			r.spend(len(x) + len(y))
			return slices.Concat(x, y)
		}
	}
	if n, ok := whole(a); ok {
		if t, isText := b.(Text); isText && e.operator == "*" {
			return r.repeat(t, n)
		}
		if m, ok := whole(b); ok {
			return r.integers(e.operator, n, m)
		}
	}
	x, okA := float(a)
	y, okB := float(b)
	if okA && okB {
		return r.floats(e.operator, x, y)
	}
	return r.fail("%s %s %s is not supported", typeName(a), e.operator, typeName(b))
}

func (r *rendering) repeat(t Text, n int64) any {
	if n > 0 && int64(len(t.s)) > maxText/n {
		return r.stop(errLong)
	}
	var b builder
	if t.s == "" || n <= 0 || !r.spend(int(n)) {
		return Text{}
	}
	for range n {
		b.add(t)
	}
	return r.made(b.text())
}

func float(v any) (float64, bool) {
	if i, ok := whole(v); ok {
		return float64(i), true
	}
	f, ok := v.(float64)
	return f, ok
}

func (r *rendering) integers(operator string, n, m int64) any {
	x, y, z := big.NewInt(n), big.NewInt(m), new(big.Int)
	switch operator {
	case "+":
		z.Add(x, y)
	case "-":
		z.Sub(x, y)
	case "*":
		z.Mul(x, y)
	default:
		if m == 0 {
			return r.fail("division by zero")
		}
		if operator == "/" {
			f, _ := new(big.Rat).SetFrac(x, y).Float64()
			return f
		}
		rest := new(big.Int)
		z.DivMod(x, y, rest) // the remainder is not negative; Python's has the sign of the divisor
		if m < 0 && rest.Sign() != 0 {
			rest.Add(rest, y)
			z.Sub(z, big.NewInt(1))
		}
		if operator == "%" {
			z = rest
		}
	}
	if !z.IsInt64() {
		return r.fail("%d %s %d is too large", n, operator, m)
	}
	return z.Int64()
}

func (r *rendering) floats(operator string, x, y float64) any {
	if y == 0 && (operator == "/" || operator == "//" || operator == "%") {
		return r.fail("division by zero")
	}
	switch operator {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "/":
		return x / y
	}
	return r.fail("%s of floats is not supported", operator)
}
