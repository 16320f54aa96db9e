package py

import (
	"math/big"
	"strings"
)

// Argument is one keyword argument of a call.
type Argument struct {
	Name  string
	Value Value
}

// Scope gives meaning to what an expression cannot know by itself.
type Scope interface {
	// Lookup is the value of a name; a NameError when there is none.
	Lookup(name string) (Value, error)
	// Attribute is x.name.
	Attribute(x Value, name string) (Value, error)
	// Call is f(*args, **keywords). It may keep neither slice.
	Call(f Value, args []Value, keywords []Argument) (Value, error)
}

// Compiles finds what Python's compiler refuses though its parser does not: a keyword argument given twice.
func Compiles(e Expr) error {
	var err error
	walk(e, func(e Expr) bool {
		c, ok := e.(*Call)
		if !ok {
			return err == nil
		}
		for i, k := range c.Keywords {
			for _, earlier := range c.Keywords[:i] {
				if k.Name != "" && k.Name == earlier.Name && err == nil {
					err = Raise("SyntaxError", "keyword argument repeated: %s (<string>, line 1)", k.Name)
				}
			}
		}
		return err == nil
	})
	return err
}

// walk visits e and everything below it until f returns false.
func walk(e Expr, f func(Expr) bool) {
	if e == nil || !f(e) {
		return
	}
	all := func(list []Expr) {
		for _, x := range list {
			walk(x, f)
		}
	}
	switch e := e.(type) {
	case *Call:
		walk(e.Func, f)
		all(e.Args)
		for _, k := range e.Keywords {
			walk(k.Value, f)
		}
	case *Attribute:
		walk(e.X, f)
	case *Subscript:
		walk(e.X, f)
		walk(e.Index, f)
	case *Slice:
		all([]Expr{e.Low, e.High, e.Step})
	case *ListExpr:
		all(e.Items)
	case *TupleExpr:
		all(e.Items)
	case *SetExpr:
		all(e.Items)
	case *DictExpr:
		all(e.Keys)
		all(e.Values)
	case *Unary:
		walk(e.X, f)
	case *Binary:
		walk(e.Left, f)
		walk(e.Right, f)
	case *BoolOp:
		all(e.Items)
	case *Comparison:
		walk(e.First, f)
		all(e.Rest)
	case *IfExp:
		all([]Expr{e.Cond, e.Then, e.Else})
	case *Starred:
		walk(e.X, f)
	}
}

// Eval gives the value of e. The error is an *Exception.
func Eval(e Expr, s Scope) (Value, error) {
	switch e := e.(type) {
	case *Const:
		return e.Value, nil
	case *Name:
		return s.Lookup(e.ID)
	case *Call:
		return evalCall(e, s)
	case *Attribute:
		x, err := Eval(e.X, s)
		if err != nil {
			return nil, err
		}
		return s.Attribute(x, e.Name)
	case *Subscript:
		return evalSubscript(e, s)
	case *ListExpr:
		items, err := evalItems(e.Items, s)
		return &List{Items: items}, err
	case *TupleExpr:
		items, err := evalItems(e.Items, s)
		return Tuple(items), err
	case *SetExpr:
		items, err := evalItems(e.Items, s)
		if err != nil {
			return nil, err
		}
		set := &Set{}
		for _, item := range items {
			if err := set.Add(item); err != nil {
				return nil, err
			}
		}
		return set, nil
	case *DictExpr:
		return evalDict(e, s)
	case *Unary:
		return evalUnary(e, s)
	case *Binary:
		l, err := Eval(e.Left, s)
		if err != nil {
			return nil, err
		}
		r, err := Eval(e.Right, s)
		if err != nil {
			return nil, err
		}
		return Operate(e.Op, l, r)
	case *BoolOp:
		var v Value
		for _, item := range e.Items {
			var err error
			if v, err = Eval(item, s); err != nil || Truthy(v) == (e.Op == "or") {
				return v, err
			}
		}
		return v, nil
	case *Comparison:
		return evalComparison(e, s)
	case *IfExp:
		c, err := Eval(e.Cond, s)
		if err != nil {
			return nil, err
		}
		if Truthy(c) {
			return Eval(e.Then, s)
		}
		return Eval(e.Else, s)
	case *Unsupported:
		return nil, Raise("NotImplementedError", "this environment does not evaluate a %s", e.Kind)
	case *Starred:
		return nil, Raise("SyntaxError", "can't use starred expression here (<string>, line 1)")
	}
	return nil, Raise("SyntaxError", "invalid syntax (<string>, line 1)")
}

// maxUnpacked bounds the arguments and items that unpacking may add up to.
const maxUnpacked = 1 << 20

func evalItems(list []Expr, s Scope) ([]Value, error) {
	if len(list) == 0 {
		return nil, nil
	}
	items := make([]Value, 0, len(list))
	for _, e := range list {
		if star, ok := e.(*Starred); ok {
			v, err := Eval(star.X, s)
			if err != nil {
				return nil, err
			}
			more, err := Iterate(v)
			if err != nil {
				return nil, Raise("TypeError", "Value after * must be an iterable, not %s", TypeName(v))
			}
			if len(items)+len(more) > maxUnpacked {
				return nil, Raise("MemoryError", "")
			}
			items = append(items, more...)
			continue
		}
		v, err := Eval(e, s)
		if err != nil {
			return nil, err
		}
		items = append(items, v)
	}
	return items, nil
}

func evalCall(e *Call, s Scope) (Value, error) {
	f, err := Eval(e.Func, s)
	if err != nil {
		return nil, err
	}
	args, err := evalItems(e.Args, s)
	if err != nil {
		return nil, err
	}
	var keywords []Argument
	for _, k := range e.Keywords {
		v, err := Eval(k.Value, s)
		if err != nil {
			return nil, err
		}
		if k.Name != "" {
			keywords = append(keywords, Argument{k.Name, v})
			continue
		}
		d, ok := unfreeze(v).(*Dict)
		if !ok {
			return nil, Raise("TypeError", "argument after ** must be a mapping, not %s", TypeName(v))
		}
		for i := range d.Len() {
			key, val := d.At(i)
			name, ok := key.(string)
			if !ok {
				return nil, Raise("TypeError", "keywords must be strings")
			}
			for _, earlier := range keywords {
				if earlier.Name == name {
					return nil, Raise("TypeError", "got multiple values for keyword argument '%s'", name)
				}
			}
			keywords = append(keywords, Argument{name, val})
		}
	}
	return s.Call(f, args, keywords)
}

func evalDict(e *DictExpr, s Scope) (Value, error) {
	d := MakeDict(len(e.Keys))
	for i, k := range e.Keys {
		if k == nil {
			v, err := Eval(e.Values[i], s)
			if err != nil {
				return nil, err
			}
			other, ok := unfreeze(v).(*Dict)
			if !ok {
				return nil, Raise("TypeError", "'%s' object is not a mapping", TypeName(v))
			}
			for j := range other.Len() {
				d.Set(other.At(j))
			}
			continue
		}
		key, err := Eval(k, s)
		if err != nil {
			return nil, err
		}
		v, err := Eval(e.Values[i], s)
		if err != nil {
			return nil, err
		}
		if err := d.SetErr(key, v); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func evalUnary(e *Unary, s Scope) (Value, error) {
	v, err := Eval(e.X, s)
	if err != nil {
		return nil, err
	}
	switch e.Op {
	case "-":
		return Neg(v)
	case "+":
		return Pos(v)
	case "not":
		return !Truthy(v), nil
	}
	if i, ok := small(v); ok {
		return ^i, nil
	}
	if b, ok := v.(*big.Int); ok {
		return shrink(new(big.Int).Not(b)), nil
	}
	return nil, Raise("TypeError", "bad operand type for unary ~: '%s'", TypeName(v))
}

// Operate is a op b for the arithmetic and bit operators.
func Operate(op string, a, b Value) (Value, error) {
	switch op {
	case "+":
		return Add(a, b)
	case "-":
		return Sub(a, b)
	case "*":
		return Mul(a, b)
	case "/":
		return TrueDiv(a, b)
	case "//":
		return FloorDiv(a, b)
	case "%":
		return Mod(a, b)
	case "**":
		return Pow(a, b)
	}
	if isFloat(a) || isFloat(b) || !isNumber(a) || !isNumber(b) {
		return nil, operandError(op, a, b)
	}
	x, y := toBig(a), toBig(b)
	r := new(big.Int)
	_, boolA := a.(bool)
	_, boolB := b.(bool)
	switch op {
	case "&":
		r.And(x, y)
	case "|":
		r.Or(x, y)
	case "^":
		r.Xor(x, y)
	case "<<", ">>":
		return shift(op, x, y)
	default:
		return nil, operandError(op, a, b)
	}
	if boolA && boolB {
		return r.Sign() != 0, nil
	}
	return shrink(r), nil
}

func shift(op string, x, y *big.Int) (Value, error) {
	if y.Sign() < 0 {
		return nil, Raise("ValueError", "negative shift count")
	}
	if op == ">>" {
		if !y.IsInt64() || y.Int64() > maxIntBits {
			return int64(min(0, x.Sign())), nil
		}
		return shrink(new(big.Int).Rsh(x, uint(y.Int64()))), nil
	}
	if x.Sign() != 0 && (!y.IsInt64() || y.Int64() > maxIntBits) {
		return nil, Raise("MemoryError", "")
	}
	return shrink(new(big.Int).Lsh(x, uint(y.Int64()))), nil
}

func evalComparison(e *Comparison, s Scope) (Value, error) {
	left, err := Eval(e.First, s)
	if err != nil {
		return nil, err
	}
	for i, op := range e.Ops {
		right, err := Eval(e.Rest[i], s)
		if err != nil {
			return nil, err
		}
		holds, err := relation(op, left, right)
		if err != nil || !holds {
			return false, err
		}
		left = right
	}
	return true, nil
}

func relation(op string, a, b Value) (bool, error) {
	switch op {
	case "in":
		return Contains(b, a)
	case "not in":
		in, err := Contains(b, a)
		return !in, err
	case "is":
		return identical(a, b), nil
	case "is not":
		return !identical(a, b), nil
	}
	return Compare(op, a, b)
}

// identical is "a is b" as far as values have an identity: singletons, mutable objects, equal immutable values of one
// type.
func identical(a, b Value) bool {
	switch x := a.(type) {
	case *List, *Dict, *Set, nil, bool:
		return a == b
	case Tuple:
		return len(x) == 0 && TypeName(b) == "tuple" && Equal(a, b)
	}
	return TypeName(a) == TypeName(b) && Equal(a, b)
}

func evalSubscript(e *Subscript, s Scope) (Value, error) {
	x, err := Eval(e.X, s)
	if err != nil {
		return nil, err
	}
	cut, ok := e.Index.(*Slice)
	if !ok {
		key, err := Eval(e.Index, s)
		if err != nil {
			return nil, err
		}
		return GetItem(x, key)
	}
	var bound [3]Value
	for i, part := range []Expr{cut.Low, cut.High, cut.Step} {
		if part != nil {
			if bound[i], err = Eval(part, s); err != nil {
				return nil, err
			}
		}
	}
	return slice(x, bound[0], bound[1], bound[2])
}

// slice is x[low:high:step].
func slice(x, low, high, step Value) (Value, error) {
	n := 0
	var runes []rune
	switch c := unfreeze(x).(type) {
	case string:
		runes = []rune(c)
		n = len(runes)
	case *List:
		n = len(c.Items)
	case Tuple:
		n = len(c)
	default:
		return nil, Raise("TypeError", "'%s' object is not subscriptable", TypeName(x))
	}
	at, err := slicePositions(n, low, high, step)
	if err != nil {
		return nil, err
	}
	switch c := unfreeze(x).(type) {
	case *List:
		return &List{Items: pick(c.Items, at)}, nil
	case Tuple:
		return Tuple(pick(c, at)), nil
	}
	var b strings.Builder
	for _, i := range at {
		b.WriteRune(runes[i])
	}
	return b.String(), nil
}

func pick(items []Value, at []int) []Value {
	out := make([]Value, len(at))
	for i, j := range at {
		out[i] = items[j]
	}
	return out
}

func slicePositions(n int, low, high, step Value) ([]int, error) {
	bound := func(v Value, def int64) (int64, error) {
		if v == nil {
			return def, nil
		}
		if i, ok := small(v); ok {
			return i, nil
		}
		if b, ok := v.(*big.Int); ok {
			return int64(b.Sign()) << 40, nil
		}
		return 0, Raise("TypeError", "slice indices must be integers or None or have an __index__ method")
	}
	by, err := bound(step, 1)
	if err != nil {
		return nil, err
	}
	if by == 0 {
		return nil, Raise("ValueError", "slice step cannot be zero")
	}
	size := int64(n)
	first, last, from, to := int64(0), size, int64(0), size
	if by < 0 {
		first, last, from, to = -1, size-1, size-1, -1-size
	}
	clamp := func(i int64) int64 {
		if i < 0 {
			i += size
		}
		return max(first, min(last, i))
	}
	if from, err = bound(low, from); err != nil {
		return nil, err
	}
	if to, err = bound(high, to); err != nil {
		return nil, err
	}
	from, to = clamp(from), clamp(to)
	var at []int
	for i := from; by > 0 && i < to || by < 0 && i > to; i += by {
		at = append(at, int(i))
		if by > size || by < -size {
			break
		}
	}
	return at, nil
}
