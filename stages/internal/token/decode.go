package token

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Decode returns the text of ids. Invalid UTF-8 becomes U+FFFD, one per maximal invalid part; ids without a token
// are ignored. skipSpecial drops special tokens.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	s := Stream{t: t}
	var b strings.Builder
	for _, id := range ids {
		if skipSpecial && t.special(id) {
			continue
		}
		b.WriteString(s.Push(id))
	}
	b.WriteString(s.Flush())
	return b.String()
}

func (t *Tokenizer) special(id int32) bool {
	i, ok := slices.BinarySearchFunc(t.added, id, func(a Added, id int32) int { return int(a.ID) - int(id) })
	return ok && t.added[i].Special
}

// Stream decodes ids one by one. It holds back an incomplete character at the end, at most three bytes, so
// returned text is final.
type Stream struct {
	t    *Tokenizer
	held []byte
}

// Stream returns a new stream.
func (t *Tokenizer) Stream() *Stream { return &Stream{t: t} }

// Push returns the text that one more id completes; it may be empty.
func (s *Stream) Push(id int32) string {
	piece := s.t.Bytes(id)
	if len(s.held) == 0 && utf8.Valid(piece) {
		return string(piece)
	}
	text, rest := lossy(append(s.held, piece...))
	s.held = append(s.held[:0:0], rest...)
	return text
}

// Flush ends the stream: held-back bytes become one U+FFFD (two for the start of a surrogate).
func (s *Stream) Flush() string {
	n := min(len(s.held), 1)
	if halfSurrogate(s.held) {
		n = 2
	}
	s.held = nil
	return strings.Repeat("\uFFFD", n)
}

// halfSurrogate reports whether b is the first two of three bytes of an encoded surrogate. They are invalid
// already, but the reference decoder (Python's, incremental) waits for the third byte.
func halfSurrogate(b []byte) bool {
	return len(b) == 2 && b[0] == 0xED && b[1] >= 0xA0 && b[1] <= 0xBF
}

// lossy decodes bytes up to an incomplete character at their end, which it returns as rest. Each maximal subpart
// of an ill-formed sequence becomes one U+FFFD (Unicode 15, section 3.9, like Rust's from_utf8_lossy).
func lossy(b []byte) (text string, rest []byte) {
	var out strings.Builder
	for len(b) > 0 {
		if !utf8.FullRune(b) || halfSurrogate(b) {
			return out.String(), b
		}
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			out.WriteRune(utf8.RuneError)
			b = b[invalid(b):]
			continue
		}
		out.Write(b[:n])
		b = b[n:]
	}
	return out.String(), nil
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
