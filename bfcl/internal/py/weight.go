package py

import "math/big"

// Weigher is an Object with two parts, whose sum is its weight.
type Weigher interface{ PyParts() (Value, Value) }

// A value takes some memory besides its text, a list or dict more.
const perValue, perContainer = 24, 256

// Weigh estimates the number of bytes of the text of values. It stops as soon as the sum exceeds limit, and then
// returns some number above limit. A value with several references counts once for each: another reference takes little
// memory, but a text repeats the value.
func Weigh(limit int, values ...Value) int { return weighAll(limit, 0, 0, values) }

func weighAll(limit, depth, objects int, values []Value) (w int) {
	for i := 0; i < len(values) && w <= limit; i++ {
		w += weigh(limit-w, depth, objects, values[i])
	}
	return w
}

// weigh is Weigh of one value, at a depth of nesting in the innermost of the objects that contain it. It allocates
// nothing, because each call of an episode weighs the state. Values nested deeper than maxDepth exceed the limit,
// because printing them needs the square of their depth. Objects may contain themselves, so they end at maxDepth, which
// no walk of them exceeds.
func weigh(limit, depth, objects int, v Value) int {
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
		w += weighAll(limit-w, depth+1, objects, v)
	case *Set:
		w += perContainer
		w += weighAll(limit-w, depth+1, objects, v.Items())
	case *List:
		if v.json != "" {
			return w + len(v.json)
		}
		w += perContainer
		w += weighAll(limit-w, depth+1, objects, v.Items)
	case *Dict:
		if v.json != "" {
			return w + len(v.json)
		}
		w += perContainer
		for i := 0; i < len(v.entries) && w <= limit; i++ {
			w += weigh(limit-w, depth+1, objects, v.entries[i].key) + weigh(limit-w, depth+1, objects, v.entries[i].val)
		}
	case Weigher:
		if objects < maxDepth {
			a, b := v.PyParts()
			w += weigh(limit-w, 0, objects+1, a) + weigh(limit-w, 0, objects+1, b)
		}
	}
	return w
}
