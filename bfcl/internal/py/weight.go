package py

import "math/big"

// Weigher is a Named with two parts, which Weigh counts.
type Weigher interface{ PyParts() (Value, Value) }

// Weigh returns about the number of bytes that values take as text, or a number above limit once it is clear that they
// take more. A value that stands at several places counts at each of them: references cost a program little, but
// their text doubles with each level.
func Weigh(limit int, values ...Value) int { return weighAll(limit, 0, values) }

func weighAll(limit, depth int, values []Value) (w int) {
	for i := 0; i < len(values) && w <= limit; i++ {
		w += weigh(limit-w, depth, values[i])
	}
	return w
}

// weigh allocates nothing, because each call of an episode weighs the state.
func weigh(limit, depth int, v Value) int {
	w := 8
	if depth > maxDepth {
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
		w += weighAll(limit-w, depth+1, v)
	case *Set:
		w += weighAll(limit-w, depth+1, v.Items())
	case *List:
		if v.json != "" {
			return w + len(v.json)
		}
		w += weighAll(limit-w, depth+1, v.Items)
	case *Dict:
		if v.json != "" {
			return w + len(v.json)
		}
		for i := 0; i < len(v.entries) && w <= limit; i++ {
			w += weigh(limit-w, depth+1, v.entries[i].key) + weigh(limit-w, depth+1, v.entries[i].val)
		}
	case Weigher:
		a, b := v.PyParts()
		w += weigh(limit-w, depth+1, a) + weigh(limit-w, depth+1, b)
	}
	return w
}
