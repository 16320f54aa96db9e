package py

import (
	"fmt"
	"iter"
	"math"
	"math/big"
	"slices"
	"sort"
	"strings"
)

// Dict is a Python dict: insertion order, keys compared by Python's ==. The zero Dict is empty.
type Dict struct {
	entries []entry
	index   map[any]int // position by hashKey; nil until find needs it
	json    string      // JSON text of a constant (Freeze); "" for any other dict
}

type entry struct {
	key, val Value
}

// indexFrom is the length from which a text is searched by the index; below it a scan is faster.
const indexFrom = 48

// NewDict takes alternating keys and values. It ignores unhashable keys; use SetErr for those.
func NewDict(kv ...Value) *Dict {
	d := MakeDict(len(kv) / 2)
	for i := 0; i+1 < len(kv); i += 2 {
		d.Set(kv[i], kv[i+1])
	}
	return d
}

// MakeDict returns an empty dict with capacity n.
func MakeDict(n int) *Dict { return &Dict{entries: make([]entry, 0, n)} }

func (d *Dict) Len() int { return len(d.entries) }

// At returns the i-th entry in insertion order.
func (d *Dict) At(i int) (key, val Value) { return d.entries[i].key, d.entries[i].val }

func (d *Dict) Keys() []Value {
	keys := make([]Value, len(d.entries))
	for i := range d.entries {
		keys[i] = d.entries[i].key
	}
	return keys
}

func (d *Dict) Values() []Value {
	vals := make([]Value, len(d.entries))
	for i := range d.entries {
		vals[i] = d.entries[i].val
	}
	return vals
}

// All iterates over the entries in insertion order.
func (d *Dict) All() iter.Seq2[Value, Value] {
	return func(yield func(key, val Value) bool) {
		for _, e := range d.entries {
			if !yield(e.key, e.val) {
				return
			}
		}
	}
}

// Get treats an unhashable key as absent.
func (d *Dict) Get(k Value) (Value, bool) {
	v, ok, _ := d.GetErr(k)
	return v, ok
}

// Has treats an unhashable key as absent.
func (d *Dict) Has(k Value) bool {
	_, ok := d.Get(k)
	return ok
}

// GetErr is Get with a TypeError for an unhashable key.
func (d *Dict) GetErr(k Value) (Value, bool, error) {
	i, err := d.find(k)
	if err != nil || i < 0 {
		return nil, false, err
	}
	return d.entries[i].val, true, nil
}

// Index returns d[k]: KeyError if the key is absent, TypeError if it is unhashable.
func (d *Dict) Index(k Value) (Value, error) {
	i, err := d.find(k)
	if err != nil {
		return nil, err
	}
	if i < 0 {
		return nil, KeyError(k)
	}
	return d.entries[i].val, nil
}

// KeyError returns the exception of a missing key; its text is the key's repr.
func KeyError(k Value) error { return &Exception{Class: "KeyError", Message: Repr(k)} }

// Set ignores an unhashable key.
func (d *Dict) Set(k, v Value) { _ = d.SetErr(k, v) }

// SetErr is Set with a TypeError for an unhashable key.
func (d *Dict) SetErr(k, v Value) error {
	i, err := d.find(k)
	if err != nil {
		return err
	}
	if i >= 0 {
		d.entries[i].val = v
		return nil
	}
	d.add(k, v)
	return nil
}

// Delete removes a key and reports whether it was present.
func (d *Dict) Delete(k Value) bool {
	i, err := d.find(k)
	if err != nil || i < 0 {
		return false
	}
	d.entries = append(d.entries[:i], d.entries[i+1:]...)
	d.index = nil
	return true
}

// add appends an entry whose key is hashable and absent.
func (d *Dict) add(k, v Value) {
	if d.index != nil {
		h, _ := hashKey(k)
		d.index[h] = len(d.entries)
	}
	d.entries = append(d.entries, entry{k, v})
}

// find returns the position of a key, or -1. An unhashable key is a TypeError.
func (d *Dict) find(k Value) (int, error) {
	if s, ok := k.(string); ok && len(d.entries) < indexFrom { // without an allocation
		return slices.IndexFunc(d.entries, func(e entry) bool { return isString(e.key, s) }), nil
	}
	h, err := hashKey(k)
	if err != nil {
		return -1, err
	}
	if d.index == nil {
		d.index = make(map[any]int, len(d.entries))
		for i := range d.entries {
			if g, err := hashKey(d.entries[i].key); err == nil {
				d.index[g] = i
			}
		}
	}
	if i, ok := d.index[h]; ok {
		return i, nil
	}
	return -1, nil
}

// isString reports whether k is s. It is faster than ==, which compares the dynamic types of two interfaces.
func isString(k Value, s string) bool {
	t, ok := k.(string)
	return ok && t == s
}

// Clone is the method form of the function Clone.
func (d *Dict) Clone(memo *Memo) *Dict {
	if c, ok := memo.Get(d); ok {
		return c.(*Dict)
	}
	c := MakeDict(len(d.entries))
	memo.Put(d, c)
	c.entries = c.entries[:len(d.entries)]
	for i := range d.entries {
		c.entries[i] = entry{d.entries[i].key, Clone(d.entries[i].val, memo)}
	}
	return c
}

// ShallowCopy returns dict(d): a new table with the same value objects.
func (d *Dict) ShallowCopy() *Dict {
	return &Dict{entries: append([]entry(nil), d.entries...)}
}

func (d *Dict) equal(o *Dict, depth int) (bool, error) {
	if d == o {
		return true, nil
	}
	if len(d.entries) != len(o.entries) {
		return false, nil
	}
	for i := range d.entries {
		j := i // Most equal dicts have their keys in the same order, so the search is often unnecessary.
		if s, ok := d.entries[i].key.(string); !ok || !isString(o.entries[i].key, s) {
			if j, _ = o.find(d.entries[i].key); j < 0 {
				return false, nil
			}
		}
		if eq, err := equal(d.entries[i].val, o.entries[j].val, depth+1); !eq || err != nil {
			return false, err
		}
	}
	return true, nil
}

// Hashable returns nil for a valid dict key or set member, else Python's TypeError.
func Hashable(v Value) error {
	_, err := hashKey(v)
	return err
}

// The types of hashKey for values whose Go form could equal that of another value.
type (
	bigKey   string
	tupleKey string
	noneKey  struct{}
	nanKey   struct{ p *byte }
)

// hashKey maps equal Python keys to one comparable Go value. The error is Python's TypeError for an unhashable key.
func hashKey(v Value) (any, error) {
	switch v := v.(type) {
	case nil:
		return noneKey{}, nil
	case string:
		return v, nil
	case int64:
		return v, nil
	case bool:
		i, _ := asInt64(v)
		return i, nil
	case float64:
		if math.IsNaN(v) {
			return nanKey{new(byte)}, nil // a NaN equals no other key
		}
		if v == math.Trunc(v) && !math.IsInf(v, 0) {
			if -1<<63 <= v && v < 1<<63 {
				return int64(v), nil
			}
			i, _ := new(big.Float).SetFloat64(v).Int(nil)
			return bigKey(i.String()), nil
		}
		return v, nil
	case *big.Int:
		return bigKey(v.String()), nil
	case Tuple:
		for _, item := range v {
			if err := Hashable(item); err != nil {
				return nil, err
			}
		}
		return tupleKey(Key(v)), nil
	case Opaque:
		return v, nil
	}
	return nil, Raise("TypeError", "unhashable type: '%s'", TypeName(v))
}

// Key returns a text that equal values have, and no others, so that many values are compared in little time. The value
// must be a literal, which does not contain itself.
func Key(v Value) string {
	var b strings.Builder
	writeKey(&b, v)
	return b.String()
}

func writeKey(b *strings.Builder, v Value) {
	items := func(open, end string, items []Value) {
		b.WriteString(open)
		for _, item := range items {
			writeKey(b, item)
		}
		b.WriteString(end)
	}
	sorted := func(open string, n int, key func(i int) string) {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = key(i)
		}
		slices.Sort(keys)
		b.WriteString(open + strings.Join(keys, "") + "}")
	}
	switch v := v.(type) {
	case *List:
		items("[", "]", v.Items)
	case Tuple:
		items("(", ")", v)
	case *Dict:
		sorted("{", v.Len(), func(i int) string { return Key(v.entries[i].key) + Key(v.entries[i].val) })
	case *Set:
		members := v.Items()
		sorted("set{", len(members), func(i int) string { return Key(members[i]) })
	default:
		h, _ := hashKey(v) // all but lists, dicts and sets have one
		fmt.Fprintf(b, "%T %#v,", h, h)
	}
}

// Set is a Python set in insertion order; Python's order is arbitrary.
type Set struct{ d Dict }

// NewSet ignores unhashable items.
func NewSet(items ...Value) *Set {
	s := &Set{}
	for _, item := range items {
		_ = s.Add(item)
	}
	return s
}

// Add inserts v; an unhashable v is a TypeError.
func (s *Set) Add(v Value) error {
	if i, err := s.d.find(v); err != nil || i >= 0 {
		return err
	}
	s.d.add(v, nil)
	return nil
}

func (s *Set) Has(v Value) bool { return s.d.Has(v) }

func (s *Set) Len() int { return s.d.Len() }

// Items returns the members in insertion order.
func (s *Set) Items() []Value { return s.d.Keys() }

// Sorted returns the members in Python's order; unordered members keep their insertion order.
func (s *Set) Sorted() []Value {
	items := s.Items()
	sort.SliceStable(items, func(i, j int) bool {
		less, err := Compare("<", items[i], items[j])
		return err == nil && less
	})
	return items
}

func (s *Set) clone() *Set { return &Set{d: *s.d.ShallowCopy()} }
