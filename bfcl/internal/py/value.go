package py

import (
	"cmp"
	"math"
	"math/big"
	"slices"
)

// Value is one of the Go types listed in the package comment.
type Value = any

// List is a Python list, a mutable object shared by reference.
type List struct {
	Items []Value
	json  string // JSON text of a constant (Freeze); "" for any other list
}

// NewList returns a list that owns items.
func NewList(items ...Value) *List { return &List{Items: items} }

// Tuple is a Python tuple. It is immutable.
type Tuple []Value

// Opaque is a value that the benchmark only prints: Ellipsis, Decimal, mpf, mpc, complex,
// functions.
type Opaque struct {
	Class string // Python type name: "Decimal", "mpf", "ellipsis"
	Text  string // repr
	Plain string // str if it differs from repr, else ""
}

// Ellipsis is Python's "...", which one long-context constant contains.
var Ellipsis Value = Opaque{Class: "ellipsis", Text: "Ellipsis"}

// maxDepth limits recursion into nested values. CPython's limit is near 1,000 frames; only values
// that contain themselves are deeper.
const maxDepth = 950

// TypeName returns type(v).__name__.
func TypeName(v Value) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case *List:
		return "list"
	case *Dict:
		return "dict"
	case *Set:
		return "set"
	case Tuple:
		return "tuple"
	case Opaque:
		return v.Class
	case Object:
		return v.PyType()
	}
	return "object"
}

// Object is a value of a class that is not Python's own: a Go type outside this package, such as a directory. It prints
// as "<Type object>".
type Object interface {
	PyType() string           // type(v).__name__
	PyEqual(other Value) bool // v == other
	PyClone(m *Memo) Value    // copy.deepcopy(v, memo)
}

// Truthy returns bool(v).
func Truthy(v Value) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case *big.Int:
		return v.Sign() != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case *List:
		return len(v.Items) > 0
	case *Dict:
		return v.Len() > 0
	case *Set:
		return v.Len() > 0
	case Tuple:
		return len(v) > 0
	}
	return true
}

// Equal returns a == b. Values beyond Python's recursion limit are unequal.
func Equal(a, b Value) bool {
	eq, _ := equal(a, b, 0)
	return eq
}

// EqualErr is Equal with a RecursionError for values that contain themselves.
func EqualErr(a, b Value) (bool, error) { return equal(a, b, 0) }

// errRecursion returns the exception of a comparison beyond maxDepth.
func errRecursion() error {
	return Raise("RecursionError", "maximum recursion depth exceeded in comparison")
}

func equal(a, b Value, depth int) (bool, error) {
	if depth > maxDepth {
		return false, errRecursion()
	}
	switch x := a.(type) {
	case nil, string:
		return a == b, nil
	case *List:
		y, ok := b.(*List)
		if !ok || x == y {
			return ok, nil
		}
		return equalItems(x.Items, y.Items, depth)
	case Tuple:
		if y, ok := b.(Tuple); ok {
			return equalItems(x, y, depth)
		}
		return false, nil
	case *Dict:
		if y, ok := b.(*Dict); ok {
			return x.equal(y, depth)
		}
		return false, nil
	case *Set:
		if y, ok := b.(*Set); ok {
			return x.d.equal(&y.d, depth)
		}
		return false, nil
	case Opaque:
		y, ok := b.(Opaque)
		return ok && x.Class == y.Class && x.Text == y.Text, nil
	case Object:
		return x.PyEqual(b), nil
	}
	if IsNumber(a) && IsNumber(b) {
		c, ordered := compareNumbers(a, b)
		return ordered && c == 0, nil
	}
	return false, nil
}

func equalItems(x, y []Value, depth int) (bool, error) {
	if len(x) != len(y) {
		return false, nil
	}
	for i := range x {
		if eq, err := equal(x[i], y[i], depth+1); !eq || err != nil {
			return false, err
		}
	}
	return true, nil
}

// IsNumber is isinstance(v, (int, float)); a bool is an int.
func IsNumber(v Value) bool {
	switch v.(type) {
	case int64, float64, bool, *big.Int:
		return true
	}
	return false
}

// compareNumbers orders two numbers exactly, as Python does for mixed types; ordered is false if
// one is NaN.
func compareNumbers(a, b Value) (c int, ordered bool) {
	if x, ok := asInt64(a); ok {
		if y, ok := asInt64(b); ok {
			return cmp.Compare(x, y), true
		}
	}
	x, xf := exactFloat(a)
	y, yf := exactFloat(b)
	if xf && yf {
		return cmp.Compare(x, y), x == x && y == y
	}
	x, xf = a.(float64)
	y, yf = b.(float64)
	switch {
	case xf:
		c, ordered = compareIntFloat(toBig(b), x)
		return -c, ordered
	case yf:
		return compareIntFloat(toBig(a), y)
	}
	return toBig(a).Cmp(toBig(b)), true
}

// exactFloat returns v as a float64; ok is false for an int that may not have an exact one, and for other types.
func exactFloat(v Value) (f float64, ok bool) {
	if f, ok := v.(float64); ok {
		return f, true
	}
	i, ok := asInt64(v)
	return float64(i), ok && -1<<53 <= i && i <= 1<<53
}

// compareIntFloat orders an int and a float exactly; it returns false if f is NaN.
func compareIntFloat(a *big.Int, f float64) (int, bool) {
	switch {
	case math.IsNaN(f):
		return 0, false
	case math.IsInf(f, 1):
		return -1, true
	case math.IsInf(f, -1):
		return 1, true
	}
	whole := math.Floor(f)
	i, _ := new(big.Float).SetFloat64(whole).Int(nil)
	if c := a.Cmp(i); c != 0 {
		return c, true
	}
	if f > whole {
		return -1, true
	}
	return 0, true
}

// asInt64 returns an int or a bool as int64; it returns false for an int that does not fit, and for other types.
func asInt64(v Value) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// toBig returns an int or a bool as big.Int.
func toBig(v Value) *big.Int {
	if b, ok := v.(*big.Int); ok {
		return b
	}
	i, _ := asInt64(v)
	return big.NewInt(i)
}

// shrink returns the canonical form of an int: int64 if it fits.
func shrink(b *big.Int) Value {
	if b.IsInt64() {
		return b.Int64()
	}
	return b
}

// Memo maps originals to copies within one deep copy, so that shared objects stay shared. The zero
// Memo is ready to use.
type Memo struct{ seen map[any]any }

// Get returns the copy of the pointer original.
func (m *Memo) Get(original any) (any, bool) {
	if m == nil || m.seen == nil {
		return nil, false
	}
	c, ok := m.seen[original]
	return c, ok
}

// Put records the copy of the pointer original. A nil Memo records nothing.
func (m *Memo) Put(original, copied any) {
	if m == nil {
		return
	}
	if m.seen == nil {
		m.seen = make(map[any]any)
	}
	m.seen[original] = copied
}

// Clone returns a deep copy of v. A nil memo is faster but does not preserve sharing, and v must
// not contain itself; it suits values read from JSON.
func Clone(v Value, memo *Memo) Value {
	switch v := v.(type) {
	case *List:
		if c, ok := memo.Get(v); ok {
			return c
		}
		c := &List{Items: make([]Value, 0, len(v.Items))}
		memo.Put(v, c)
		for _, item := range v.Items {
			c.Items = append(c.Items, Clone(item, memo))
		}
		return c
	case *Dict:
		return v.Clone(memo)
	case *Set:
		if c, ok := memo.Get(v); ok {
			return c
		}
		c := v.clone()
		memo.Put(v, c)
		return c
	case Tuple:
		c := make(Tuple, len(v))
		for i, item := range v {
			c[i] = Clone(item, memo)
		}
		return c
	case Object:
		return v.PyClone(memo)
	}
	return v
}

func (l *List) Clone(memo *Memo) *List { return Clone(l, memo).(*List) }

// Remove removes the first item equal to v like list.remove; it returns false if there is none.
func (l *List) Remove(v Value) bool {
	i := slices.IndexFunc(l.Items, func(item Value) bool { return Equal(item, v) })
	if i >= 0 {
		l.Items = slices.Delete(l.Items, i, i+1)
	}
	return i >= 0
}

func (l *List) Append(v Value) { l.Items = append(l.Items, v) }
