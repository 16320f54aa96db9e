package py

import "math/big"

// Weigher is a Named with parts, which Weigh counts.
type Weigher interface{ PyParts() []Value }

// Weigh returns about the number of bytes that v takes as text, or a number above limit once it is clear that v
// takes more. A value that stands at several places counts at each of them: references cost a program little, but
// their text doubles with each level.
func Weigh(limit int, values ...Value) int { return weigh(limit, 0, values...) }

func weigh(limit, depth int, values ...Value) int {
	w := 0
	for _, v := range values {
		w += 8
		if w > limit || depth > maxDepth {
			return w
		}
		var parts []Value
		switch v := v.(type) {
		case string:
			w += len(v)
		case *big.Int:
			w += v.BitLen() / 3
		case Opaque:
			w += len(v.Text)
		case Tuple:
			parts = v
		case *Set:
			parts = v.Items()
		case *List:
			if parts = v.Items; v.json != "" {
				w, parts = w+len(v.json), nil
			}
		case *Dict:
			if v.json != "" {
				w += len(v.json)
				continue
			}
			for i := range v.entries {
				w += weigh(limit-w, depth+1, v.entries[i].key, v.entries[i].val)
				if w > limit {
					return w
				}
			}
		case Weigher:
			parts = v.PyParts()
		}
		w += weigh(limit-w, depth+1, parts...)
	}
	return w
}
