package chat

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"strings"
	"sync"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// This file makes the Jinja library as strict as Python where it is easy-going. There, None and a missing variable are
// one thing that adds to a text as nothing; printing, iterating and the filters below go by Go's rules. The parsed
// template is therefore rewritten: each such operation becomes a filter of ours, whose name no template can spell.
const (
	filterName   = "$name"   // a variable: undefined where there is none
	filterAdd    = "$add"    // x + y
	filterConcat = "$concat" // x ~ y
	filterText   = "$text"   // {{ x }}
	filterEach   = "$each"   // for ... in x
	filterTimes  = "$times"  // x * y
)

// renderingName is the variable that holds the state of a rendering, with its first error: the library's own account of
// that names every node on the way.
const renderingName = "$rendering"

type filter = exec.FilterFunction

func fail(format string, args ...any) *exec.Value { return exec.AsValue(fmt.Errorf(format, args...)) }

// filters are the library's, with ours before them.
var filters = sync.OnceValue(func() map[string]filter {
	all := map[string]filter{}
	for _, name := range []string{"abs", "attr", "capitalize", "dictsort", "first", "float", "indent", "int", "join", "last",
		"list", "lower", "map", "max", "min", "reject", "rejectattr", "replace", "reverse", "round", "safe", "select",
		"selectattr", "sort", "sum", "title", "unique", "upper"} {
		if f, ok := builtins.Filters.Get(name); ok {
			all[name] = f
		}
	}
	maps.Copy(all, map[string]filter{
		filterName: func(e *exec.Evaluator, in *exec.Value, p *exec.VarArgs) *exec.Value {
			if in.IsNil() && !e.Environment.Context.Has(p.First().String()) {
				return exec.AsValue(undefined(false))
			}
			return in
		},
		filterAdd: func(_ *exec.Evaluator, in *exec.Value, p *exec.VarArgs) *exec.Value { return add(in, p.First()) },
		filterConcat: func(_ *exec.Evaluator, in *exec.Value, p *exec.VarArgs) *exec.Value {
			return exec.AsValue(text(in) + text(p.First()))
		},
		filterText:  func(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value { return exec.AsValue(text(in)) },
		filterEach:  func(e *exec.Evaluator, in *exec.Value, p *exec.VarArgs) *exec.Value { return eachCharged(e, in, p) },
		filterTimes: func(_ *exec.Evaluator, in *exec.Value, p *exec.VarArgs) *exec.Value { return times(in, p.First()) },
		"string":    func(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value { return exec.AsValue(text(in)) },
		"trim":      func(_ *exec.Evaluator, in *exec.Value, p *exec.VarArgs) *exec.Value { return trim(in, p) },
		"length":    func(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value { return length(in) },
		"count":     func(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value { return length(in) },
		"items":     func(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value { return items(in) },
		"tojson":    toJSON,
		"default":   orDefault,
		"d":         orDefault,
	})
	for name, f := range all {
		all[name] = limited(name, f)
	}
	return all
})

// text is what {{ x }} prints.
func text(v *exec.Value) string { return pyText(v.Interface()) }

func add(a, b *exec.Value) *exec.Value {
	x, y := plain(a.Interface()), plain(b.Interface())
	switch x := x.(type) {
	case string:
		if y, ok := y.(string); ok {
			return exec.AsValue(x + y)
		}
	case list:
		if y, ok := y.(list); ok {
			return exec.AsValue(append(append(list{}, x...), y...))
		}
	case int:
		switch y := y.(type) {
		case int:
			return exec.AsValue(x + y)
		case float64:
			return exec.AsValue(float64(x) + y)
		}
	case float64:
		switch y := y.(type) {
		case int:
			return exec.AsValue(x + float64(y))
		case float64:
			return exec.AsValue(x + y)
		}
	}
	return fail("%s + %s: Python does not add these", typeName(x), typeName(y))
}

// typeName is the Python type of a value.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case int, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case list:
		return "list"
	case object:
		return "dict"
	case undefined:
		return "an undefined value"
	}
	return fmt.Sprintf("%T", v)
}

// each lists what a loop runs over: an object's keys, a text's characters.
func each(v *exec.Value) *exec.Value {
	switch x := plain(v.Interface()).(type) {
	case object:
		keys := list{}
		for _, k := range x.keys() {
			keys = append(keys, k)
		}
		return exec.AsValue(keys)
	case string:
		var letters list
		for _, r := range x {
			letters = append(letters, string(r))
		}
		return exec.AsValue(letters)
	case list:
		return exec.AsValue(x)
	case undefined:
		return exec.AsValue(list{})
	case nil, bool, int, *big.Int, float64:
		return fail("a loop cannot run over %s", typeName(x))
	}
	return v
}

// eachCharged is each, charged with all passes of the loop, each of which writes the text that the argument counts.
func eachCharged(e *exec.Evaluator, in *exec.Value, p *exec.VarArgs) *exec.Value {
	out := each(in)
	if out.IsError() {
		return out
	}
	if err := renderingOf(e.Environment).charge(int64(out.Len()) * (perCall + int64(p.First().Integer()))); err != nil {
		return exec.AsValue(err)
	}
	return out
}

func items(v *exec.Value) *exec.Value {
	pairs := list{}
	switch x := plain(v.Interface()).(type) {
	case object:
		for _, k := range x.keys() {
			pairs = append(pairs, list{k, x[k].value})
		}
	case undefined:
	default:
		return fail("items: %s has none", typeName(x))
	}
	return exec.AsValue(pairs)
}

func length(v *exec.Value) *exec.Value {
	switch x := plain(v.Interface()).(type) {
	case nil, bool, int, *big.Int, float64:
		return fail("length: %s has none", typeName(x))
	}
	return exec.AsValue(v.Len())
}

func trim(v *exec.Value, p *exec.VarArgs) *exec.Value {
	if chars := p.First(); chars.IsString() {
		return exec.AsValue(strings.Trim(text(v), chars.String()))
	}
	return exec.AsValue(strings.TrimFunc(text(v), pySpace))
}

func orDefault(_ *exec.Evaluator, in *exec.Value, p *exec.VarArgs) *exec.Value {
	otherwise, falsy := p.GetKeywordArgument("default_value", ""), p.GetKeywordArgument("boolean", false)
	if len(p.Args) > 0 {
		otherwise = p.Args[0]
	}
	if len(p.Args) > 1 {
		falsy = p.Args[1]
	}
	if _, missing := in.Interface().(undefined); missing || falsy.IsTrue() && !in.IsTrue() {
		return otherwise
	}
	return in
}

// toJSON has the arguments of transformers' own filter: ensure_ascii, indent, separators, sort_keys.
func toJSON(_ *exec.Evaluator, in *exec.Value, p *exec.VarArgs) *exec.Value {
	arguments := map[string]any{}
	for i, name := range []string{"ensure_ascii", "indent", "separators", "sort_keys"} {
		if i < len(p.Args) {
			arguments[name] = plain(p.Args[i])
		}
		if v, ok := p.KwArgs[name]; ok {
			arguments[name] = plain(v)
		}
	}
	j := compactJSON
	j.ascii, _ = arguments["ensure_ascii"].(bool)
	j.sorted, _ = arguments["sort_keys"].(bool)
	switch indent := arguments["indent"].(type) {
	case int:
		j.lines, j.item, j.indent = true, ",", strings.Repeat(" ", max(indent, 0))
	case string:
		j.lines, j.item, j.indent = true, ",", indent
	}
	if separators, ok := arguments["separators"].(list); ok && len(separators) == 2 {
		j.item, j.key = pyText(separators[0]), pyText(separators[1])
	}
	s, err := j.text(in.Interface())
	if err != nil {
		return exec.AsValue(err)
	}
	return exec.AsValue(s)
}

// tests are the library's for comparisons, and ours for types.
var tests = sync.OnceValue(func() map[string]exec.TestFunction {
	all := map[string]exec.TestFunction{}
	for _, name := range []string{"divisibleby", "eq", "equalto", "==", "even", "ge", ">=", "gt", "greaterthan", ">", "in",
		"le", "<=", "lower", "lt", "lessthan", "<", "ne", "!=", "odd", "sameas", "upper", "callable"} {
		if f, ok := builtins.Tests.Get(name); ok {
			all[name] = f
		}
	}
	for name, is := range map[string]func(v any) bool{
		"defined":   func(v any) bool { _, missing := v.(undefined); return !missing },
		"undefined": func(v any) bool { _, missing := v.(undefined); return missing },
		"none":      func(v any) bool { return v == nil },
		"boolean":   func(v any) bool { _, ok := v.(bool); return ok },
		"true":      func(v any) bool { return v == true },
		"false":     func(v any) bool { return v == false },
		"string":    func(v any) bool { _, ok := v.(string); return ok },
		"integer":   func(v any) bool { return typeName(v) == "int" },
		"float":     func(v any) bool { _, ok := v.(float64); return ok },
		"number":    func(v any) bool { t := typeName(v); return t == "int" || t == "float" || t == "bool" },
		"mapping":   func(v any) bool { _, ok := v.(object); return ok },
		"sequence":  func(v any) bool { t := typeName(v); return t == "str" || t == "list" || t == "dict" },
		"iterable":  func(v any) bool { return !each(exec.AsValue(v)).IsError() },
	} {
		all[name] = func(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) (bool, error) {
			if in.IsError() {
				return false, errors.New(in.Error())
			}
			if _, err := sized(in); err != nil {
				return false, err
			}
			v := plain(in.Interface())
			if o, ok := v.(map[string]any); ok && o != nil { // a namespace
				return name == "defined", nil
			}
			return is(v), nil
		}
	}
	return all
})

// methods of texts and lists are the library's; those of dicts are ours, in order.
var methods = sync.OnceValue(func() exec.Methods {
	m := builtins.Methods
	m.Str = exec.NewMethodSet(textMethods())
	method := func(f func(o object, p *exec.VarArgs) (any, error)) exec.Method[map[string]any] {
		return func(_ map[string]any, self *exec.Value, p *exec.VarArgs) (any, error) {
			o, ok := plain(self.Interface()).(object)
			if !ok {
				return nil, errors.New("the value has no such method")
			}
			return f(o, p)
		}
	}
	m.Dict = exec.NewMethodSet(map[string]exec.Method[map[string]any]{
		"items": method(func(o object, _ *exec.VarArgs) (any, error) { return items(exec.AsValue(o)).Interface(), nil }),
		"keys":  method(func(o object, _ *exec.VarArgs) (any, error) { return each(exec.AsValue(o)).Interface(), nil }),
		"values": method(func(o object, _ *exec.VarArgs) (any, error) {
			values := list{}
			for _, k := range o.keys() {
				values = append(values, o[k].value)
			}
			return values, nil
		}),
		"get": method(func(o object, p *exec.VarArgs) (any, error) {
			if m, ok := o[p.First().String()]; ok {
				return m.value, nil
			}
			if len(p.Args) > 1 {
				return p.Args[1].Interface(), nil
			}
			return nil, nil
		}),
	})
	return m
})

// globals are the functions a template may call.
var globals = sync.OnceValue(func() map[string]any {
	all := map[string]any{
		"none": nil, "None": nil,
	}
	if namespace, ok := builtins.GlobalFunctions.Get("namespace"); ok {
		all["namespace"] = namespace
	}
	return all
})

// numbers is range(...), charged with what it makes.
func (r *rendering) numbers(p *exec.VarArgs) (any, error) {
	bounds := []int{0, 0, 1}
	for i, a := range p.Args {
		if n, ok := plain(a).(int); ok && i < 3 {
			bounds[i] = n
		} else {
			return nil, errors.New("range takes one to three whole numbers")
		}
	}
	if len(p.Args) == 1 {
		bounds[0], bounds[1] = 0, bounds[0]
	}
	from, to, step := bounds[0], bounds[1], bounds[2]
	if step == 0 || len(p.Args) == 0 || float64(to)-float64(from) > 1e6*max(1, float64(step)) || float64(from)-float64(to) > 1e6*max(1, -float64(step)) {
		return nil, errors.New("range: the step is 0, or there are more than a million numbers")
	}
	numbers := list{}
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		numbers = append(numbers, i)
	}
	return numbers, r.charge(int64(10 * len(numbers)))
}

// statements are those that chat templates use; any other is refused when the template is read.
var statements = sync.OnceValue(func() map[string]parser.ControlStructureParser {
	all := map[string]parser.ControlStructureParser{"set": parseSet, "generation": parseGeneration, "macro": parseMacro}
	for _, name := range []string{"if", "for", "break", "continue"} {
		if f, ok := builtins.ControlStructures.Get(name); ok {
			all[name] = f
		}
	}
	return all
})

// set is {% set x = value %} or {% set x %}...{% endset %}; x may be an attribute of a namespace.
type set struct {
	at        *tokens.Token
	target    nodes.Expression
	value     nodes.Expression
	condition nodes.Expression // value only if this holds ...
	otherwise nodes.Expression // ... else this
	body      *nodes.Wrapper
}

// Position implements nodes.Node.
func (s *set) Position() *tokens.Token { return s.at }

func (s *set) String() string { return fmt.Sprintf("set in line %d", s.at.Line) }

func parseSet(p, args *parser.Parser) (nodes.ControlStructure, error) {
	s := &set{at: args.Current()}
	var err error
	if s.target, err = args.ParseVariableOrLiteral(); err != nil {
		return nil, err
	}
	switch s.target.(type) {
	case *nodes.Name, *nodes.GetAttribute:
	default:
		return nil, args.Error("set needs a variable or an attribute of a namespace", s.at)
	}
	if args.Match(tokens.Assign) == nil {
		if !args.End() {
			return nil, args.Error("set needs = and a value, or a body", args.Current())
		}
		s.body, _, err = p.WrapUntil("endset")
		return s, err
	}
	if s.value, err = args.ParseExpression(); err != nil {
		return nil, err
	}
	if s.condition, s.otherwise, err = args.ParseCondition(); err != nil {
		return nil, err
	}
	if !args.End() {
		return nil, args.Error("set has more than one value", args.Current())
	}
	return s, nil
}

// Execute implements exec.ControlStructure.
func (s *set) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	value := exec.AsValue(undefined(false))
	switch {
	case s.body != nil:
		var b strings.Builder
		inner := r.Inherit()
		inner.Output = &b
		if err := inner.ExecuteWrapper(s.body); err != nil {
			return err
		}
		value = exec.AsValue(b.String())
	case s.condition == nil:
		value = r.Eval(s.value)
	default:
		holds := r.Eval(s.condition)
		switch {
		case holds.IsError():
			value = holds
		case holds.IsTrue():
			value = r.Eval(s.value)
		case s.otherwise != nil:
			value = r.Eval(s.otherwise)
		}
	}
	if value.IsError() {
		return value
	}
	size, err := sized(value)
	if state := renderingOf(r.Environment); state != nil {
		if err == nil {
			err = state.charge(size)
		}
		if err != nil {
			state.set(err)
			return err
		}
	}
	switch target := s.target.(type) {
	case *nodes.Name:
		r.Environment.Context.Set(target.Name.Val, value.Interface())
	case *nodes.GetAttribute:
		space := r.Eval(target.Node)
		if _, ok := space.Interface().(map[string]any); !ok {
			return fmt.Errorf("%s: only a namespace takes attributes", target)
		}
		return space.Set(exec.AsValue(target.Attribute), value)
	}
	return nil
}

// generation is {% generation %}...{% endgeneration %}, which marks what a model wrote and prints it.
type generation struct {
	at   *tokens.Token
	body *nodes.Wrapper
}

// Position implements nodes.Node.
func (g *generation) Position() *tokens.Token { return g.at }

func (g *generation) String() string { return "generation" }

func parseGeneration(p, args *parser.Parser) (nodes.ControlStructure, error) {
	body, _, err := p.WrapUntil("endgeneration")
	return &generation{p.Current(), body}, err
}

// Execute implements exec.ControlStructure.
func (g *generation) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	return r.ExecuteIfWrapper(g.body)
}
