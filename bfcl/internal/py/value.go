package py

import (
	"math"
	"math/big"
	"sync"
)

// Value is one of the Go types listed in the package comment.
type Value = any

// List is a Python list, a mutable object shared by reference.
type List struct{ Items []Value }

// NewList returns a list that owns items.
func NewList(items ...Value) *List { return &List{Items: items} }

// makeList returns an empty list with capacity n; a small one is a single allocation.
func makeList(n int) *List {
	switch {
	case n == 0:
		return &List{}
	case n <= 2:
		l := &struct {
			List
			room [2]Value
		}{}
		l.Items = l.room[:0]
		return &l.List
	case n <= 4:
		l := &struct {
			List
			room [4]Value
		}{}
		l.Items = l.room[:0]
		return &l.List
	}
	return &List{Items: make([]Value, 0, n)}
}

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

// Frozen is a constant with prepared texts, so that printing it is one copy. A class may include it
// in a result but must not store it in an instance: the executor thaws results before another call
// can access them.
type Frozen struct {
	pairs []Value   // of a FrozenDict: alternating keys and values
	once  sync.Once // sets v
	v     prepared
}

type prepared struct {
	value      Value
	repr, json string
	jsonErr    error
}

// NewFrozen prepares v, which must not change afterwards.
func NewFrozen(v Value) *Frozen {
	f := &Frozen{}
	f.once.Do(func() { f.v = prepare(v) })
	return f
}

// FrozenDict returns a dict of alternating keys and values, prepared at its first use to keep
// program start fast.
func FrozenDict(kv ...Value) *Frozen { return &Frozen{pairs: kv} }

func prepare(v Value) prepared {
	p := prepared{value: v, repr: Repr(v)}
	p.json, p.jsonErr = JSON(v)
	return p
}

func (f *Frozen) prepared() *prepared {
	f.once.Do(func() { f.v = prepare(NewDict(f.pairs...)) })
	return &f.v
}

// Value returns the constant, which is read-only.
func (f *Frozen) Value() Value { return f.prepared().value }

// Thaw replaces every Frozen in v by a private copy. It changes containers of v in place.
func Thaw(v Value) Value { return thaw(v, 0) }

func thaw(v Value, depth int) Value {
	if depth > maxDepth {
		return v
	}
	switch v := v.(type) {
	case *Frozen:
		return Clone(v.Value(), nil)
	case *List:
		for i, item := range v.Items {
			if holdsFrozen(item) {
				v.Items[i] = thaw(item, depth+1)
			}
		}
	case *Dict:
		for i := range v.entries {
			if holdsFrozen(v.entries[i].val) {
				v.entries[i].val = thaw(v.entries[i].val, depth+1)
			}
		}
	}
	return v
}

// holdsFrozen reports whether a value may be or contain a Frozen.
func holdsFrozen(v Value) bool {
	switch v.(type) {
	case *Frozen, *List, *Dict:
		return true
	}
	return false
}

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
	case *Frozen:
		return TypeName(v.Value())
	case Named:
		return v.PyType()
	}
	return "object"
}

// Named is implemented by Go types of a class's state, such as directories; they print as "<Type
// object>" and compare with PyEqual.
type Named interface {
	PyType() string
	PyEqual(other Value) bool
	PyClone(m *Memo) Value
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
	case *Frozen:
		return Truthy(v.Value())
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

func errRecursion() error {
	return Raise("RecursionError", "maximum recursion depth exceeded in comparison")
}

func equal(a, b Value, depth int) (bool, error) {
	if depth > maxDepth {
		return false, errRecursion()
	}
	switch x := a.(type) {
	case string:
		y, ok := b.(string)
		if f, frozen := b.(*Frozen); frozen {
			return equal(a, f.Value(), depth)
		}
		return ok && x == y, nil
	case nil:
		return b == nil, nil
	case *List:
		y, ok := b.(*List)
		if !ok {
			if f, frozen := b.(*Frozen); frozen {
				return equal(a, f.Value(), depth)
			}
			return false, nil
		}
		if x == y {
			return true, nil
		}
		return equalItems(x.Items, y.Items, depth)
	case Tuple:
		y, ok := b.(Tuple)
		if !ok {
			return false, nil
		}
		return equalItems(x, y, depth)
	case *Dict:
		y, ok := b.(*Dict)
		if !ok {
			if f, frozen := b.(*Frozen); frozen {
				return equal(a, f.Value(), depth)
			}
			return false, nil
		}
		return x.equal(y, depth)
	case *Set:
		y, ok := b.(*Set)
		if !ok || x.Len() != y.Len() {
			return false, nil
		}
		for _, item := range x.Items() {
			if !y.Has(item) {
				return false, nil
			}
		}
		return true, nil
	case Opaque:
		y, ok := b.(Opaque)
		return ok && x.Class == y.Class && x.Text == y.Text, nil
	case *Frozen:
		return equal(x.Value(), b, depth)
	case Named:
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
	if x, ok := small(a); ok {
		if y, ok := small(b); ok {
			switch {
			case x < y:
				return -1, true
			case x > y:
				return 1, true
			}
			return 0, true
		}
	}
	x, xf := exactFloat(a)
	y, yf := exactFloat(b)
	if xf && yf {
		switch {
		case x < y:
			return -1, true
		case x > y:
			return 1, true
		}
		return 0, x == y
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

// exactFloat returns numbers that a float64 represents exactly.
func exactFloat(v Value) (float64, bool) {
	if f, ok := v.(float64); ok {
		return f, true
	}
	i, ok := small(v)
	return float64(i), ok && -1<<53 <= i && i <= 1<<53
}

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

// small returns ints and bools that fit into 64 bits.
func small(v Value) (int64, bool) {
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

func toBig(v Value) *big.Int {
	if b, ok := v.(*big.Int); ok {
		return b
	}
	i, _ := small(v)
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
		if memo != nil {
			if c, ok := memo.Get(v); ok {
				return c
			}
		}
		c := makeList(len(v.Items))
		memo.Put(v, c)
		for _, item := range v.Items {
			c.Items = append(c.Items, Clone(item, memo))
		}
		return c
	case *Dict:
		return v.Clone(memo)
	case *Set:
		if memo != nil {
			if c, ok := memo.Get(v); ok {
				return c
			}
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
	case Named:
		return v.PyClone(memo)
	}
	return v
}

func (l *List) Clone(memo *Memo) *List { return Clone(l, memo).(*List) }

// Remove removes the first item equal to v like list.remove; it returns false if there is none.
func (l *List) Remove(v Value) bool {
	for i, item := range l.Items {
		if Equal(item, v) {
			l.Items = append(l.Items[:i], l.Items[i+1:]...)
			return true
		}
	}
	return false
}

func (l *List) Append(v Value) { l.Items = append(l.Items, v) }
