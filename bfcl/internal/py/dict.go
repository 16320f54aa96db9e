package py

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
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

// indexFrom is the length from which a text is searched by the index; below it a scan is faster. For other keys, whose
// hashes take time, it is otherFrom.
const indexFrom, otherFrom = 48, 8

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
		d.index[hashKey(k)] = len(d.entries)
	}
	d.entries = append(d.entries, entry{k, v})
}

// find returns the position of a key, or -1. An unhashable key is a TypeError.
func (d *Dict) find(k Value) (int, error) {
	if s, ok := k.(string); ok && len(d.entries) < indexFrom { // without an allocation
		return slices.IndexFunc(d.entries, func(e entry) bool { return isString(e.key, s) }), nil
	}
	if err := Hashable(k); err != nil {
		return -1, err
	}
	if len(d.entries) < otherFrom {
		return slices.IndexFunc(d.entries, func(e entry) bool { return Equal(e.key, k) }), nil
	}
	if d.index == nil {
		d.index = make(map[any]int, len(d.entries))
		for i := range d.entries {
			d.index[hashKey(d.entries[i].key)] = i
		}
	}
	if i, ok := d.index[hashKey(k)]; ok {
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
		j, key := i, d.entries[i].key // Most equal dicts have their keys in one order, so the search is often unnecessary.
		if !Equal(key, o.entries[i].key) {
			if j, _ = o.find(key); j < 0 {
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
	switch v := v.(type) {
	case nil, string, int64, bool, float64, *big.Int, Opaque:
		return nil
	case Tuple:
		for _, item := range v {
			if err := Hashable(item); err != nil {
				return err
			}
		}
		return nil
	}
	return Raise("TypeError", "unhashable type: '%s'", TypeName(v))
}

// The types of hashKey for values whose Go form could equal that of another value.
type (
	bigKey  string
	noneKey struct{}
	nanKey  struct{ p *byte }
)

// hashKey maps equal Python keys, which are hashable, to one comparable Go value.
func hashKey(v Value) any {
	switch v := v.(type) {
	case nil:
		return noneKey{}
	case bool:
		i, _ := asInt64(v)
		return i
	case float64:
		switch {
		case math.IsNaN(v):
			return nanKey{new(byte)} // a NaN equals no other key
		case v == math.Trunc(v) && -1<<63 <= v && v < 1<<63:
			return int64(v)
		}
		return v
	case *big.Int:
		if f, accuracy := new(big.Float).SetInt(v).Float64(); accuracy == big.Exact {
			return f
		}
		return bigKey(string(v.Append(nil, 16))) // not decimal, whose work is the square of the length
	case Tuple:
		return Key(v)
	}
	return v // a text, an int64, an Opaque
}

// Digest is the SHA-256 of a value.
type Digest [sha256.Size]byte

// Key returns a digest that equal values have, and no others, so that values are compared in little time. The value
// must be a literal, which does not contain itself.
func Key(v Value) Digest {
	h := sha256.New()
	writeKey(h, v)
	return Digest(h.Sum(nil))
}

func writeKey(h hash.Hash, v Value) {
	write := func(kind byte, n uint64, text string) {
		h.Write(binary.LittleEndian.AppendUint64([]byte{kind}, n))
		io.WriteString(h, text)
	}
	items := func(kind byte, items []Value) {
		write(kind, uint64(len(items)), "")
		for _, item := range items {
			writeKey(h, item)
		}
	}
	unordered := func(kind byte, members int, member func(i int) Tuple) {
		digests := make([]string, members)
		for i := range digests {
			d := Key(member(i))
			digests[i] = string(d[:])
		}
		slices.Sort(digests)
		write(kind, uint64(members), strings.Join(digests, ""))
	}
	switch v := v.(type) {
	case Tuple:
		items('(', v)
		return
	case *List:
		items('[', v.Items)
		return
	case *Dict:
		unordered('{', v.Len(), func(i int) Tuple { return Tuple{v.entries[i].key, v.entries[i].val} })
		return
	case *Set:
		unordered('s', v.Len(), func(i int) Tuple { return Tuple{v.d.entries[i].key} })
		return
	}
	switch k := hashKey(v).(type) {
	case noneKey:
		write('n', 0, "")
	case string:
		write('t', uint64(len(k)), k)
	case int64:
		write('i', uint64(k), "")
	case float64:
		write('f', math.Float64bits(k), "")
	case bigKey:
		write('b', uint64(len(k)), string(k))
	case Opaque:
		write('o', uint64(len(k.Class)), k.Class+k.Text)
	case nanKey:
		write('x', 0, fmt.Sprintf("%p", k.p))
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
