package py

import "math/big"

// Weigher is an Object with two parts, whose sum is its weight.
type Weigher interface{ PyParts() (Value, Value) }

// A value takes some memory besides its text, a list or dict more.
const perValue, perContainer = 24, 256

// Weigh estimates the bytes of values, in memory and as text. It stops as soon as the sum exceeds limit, and then
// returns some number above limit. A value with several references counts once for each: another reference takes little
// memory, but a text repeats the value.
func Weigh(limit int, values ...Value) int { return weighAll(limit, 0, nil, values) }

// objects are the objects that contain a value, from the innermost.
type objects struct {
	of    Weigher
	outer *objects
	depth int
}

// repeat reports whether an object is in itself.
func (in *objects) repeat() bool {
	for ; in != nil; in = in.outer {
		for o := in.outer; o != nil; o = o.outer {
			if o.of == in.of {
				return true
			}
		}
	}
	return false
}

// maxObjects limits the objects in each other. One that contains itself counts as often: a walk of it ends at its
// depth, but may visit the other entries of each level.
const maxObjects = 64

func weighAll(limit, depth int, in *objects, values []Value) (w int) {
	for i := 0; i < len(values) && w <= limit; i++ {
		w += weigh(limit-w, depth, in, values[i])
	}
	return w
}

// weigh is Weigh of one value, at a depth of nesting in the innermost object. It allocates nothing, because each call
// of an episode weighs the state. Values nested deeper than maxDepth exceed the limit, because printing them needs the
// square of their depth, and so do objects deeper than maxObjects.
func weigh(limit, depth int, in *objects, v Value) int {
	w := perValue
	if depth > maxDepth {
		switch v.(type) {
		case *List, *Dict, *Set, Tuple:
			return limit + 1
		}
		return w
	}
	switch v := v.(type) {
	case string:
		w += len(v)
	case *big.Int:
		w += v.BitLen() / 3
	case Opaque:
		w += len(v.Text)
	case Tuple:
		w += weighAll(limit-w, depth+1, in, v)
	case *Set:
		w += perContainer
		w += weighAll(limit-w, depth+1, in, v.Items())
	case *List:
		if v.json != "" {
			return w + len(v.json)
		}
		w += perContainer
		w += weighAll(limit-w, depth+1, in, v.Items)
	case *Dict:
		if v.json != "" {
			return w + len(v.json)
		}
		w += perContainer
		for i := 0; i < len(v.entries) && w <= limit; i++ {
			w += weigh(limit-w, depth+1, in, v.entries[i].key) + weigh(limit-w, depth+1, in, v.entries[i].val)
		}
	case Weigher:
		here := objects{of: v, outer: in}
		if in != nil {
			here.depth = in.depth + 1
		}
		if here.depth > maxObjects {
			if in.repeat() { // the object that contains itself was weighed at a smaller depth
				return w
			}
			return limit + 1
		}
		a, b := v.PyParts()
		w += weigh(limit-w, 0, &here, a) + weigh(limit-w, 0, &here, b)
	}
	return w
}
