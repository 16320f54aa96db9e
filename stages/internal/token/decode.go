package token

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Decode returns the text of ids. Invalid UTF-8 becomes U+FFFD, one per maximal invalid part; ids without a token
// are ignored. skipSpecial drops special tokens.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	var text []byte
	for _, id := range ids {
		if !skipSpecial || !t.Special(id) {
			text = append(text, t.Bytes(id)...)
		}
	}
	return Text(text)
}

// Text returns bytes as a text; see Decode for invalid UTF-8.
func Text(text []byte) string {
	if utf8.Valid(text) {
		return string(text)
	}
	return lossy(text)
}

// Special reports whether an id is a special token.
func (t *Tokenizer) Special(id int32) bool {
	i, ok := slices.BinarySearchFunc(t.added, id, func(a Added, id int32) int { return int(a.ID) - int(id) })
	return ok && t.added[i].Special
}

// lossy decodes bytes. Each maximal subpart of an ill-formed sequence becomes one U+FFFD (Unicode 15, section 3.9,
// like Rust's from_utf8_lossy).
func lossy(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			n = invalid(b)
		}
		out.WriteRune(r)
		b = b[n:]
	}
	return out.String()
}

// invalid returns the length of the maximal ill-formed subpart at the start of b: the longest prefix that could
// have become a character, at least one byte.
func invalid(b []byte) int {
	n := 1
	for n < len(b) && n < utf8.UTFMax && !utf8.FullRune(b[:n]) && b[n]&0xC0 == 0x80 {
		if utf8.FullRune(b[:n+1]) {
			break // byte n makes it invalid
		}
		n++
	}
	return n
}
