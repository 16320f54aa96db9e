package token

import (
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Recognise selects the added tokens to recognize in a text.
type Recognise int

const (
	Nothing    Recognise = iota // none: for text of users and tools
	Everything                  // all added tokens: for rendered templates
)

// Encode returns the ids of an ordinary text, without recognizing added tokens and without adding tokens.
func (t *Tokenizer) Encode(text string) []int32 { return t.EncodeAs(text, Nothing) }

// EncodeAs returns the ids of a text and recognizes added tokens as see says.
func (t *Tokenizer) EncodeAs(text string, see Recognise) []int32 {
	return t.EncodeParts(Part{text, see})
}

// Part is a piece of a text with its own recognition of added tokens.
type Part struct {
	Text string
	See  Recognise
}

// EncodeParts returns the ids of a text made of parts. Added tokens are recognized within a part only; everything
// else is tokenized as one text, across the borders of parts.
func (t *Tokenizer) EncodeParts(parts ...Part) []int32 {
	var ids []int32
	var pending strings.Builder
	see := Everything // recognition common to the pending text
	flush := func() {
		split(t.normal(pending.String()), &t.late, see, func(a Added) { ids = append(ids, a.ID) }, func(part string) {
			t.words(part, func(word string) { ids = t.word(ids, word) })
		})
		pending.Reset()
		see = Everything
	}
	for _, p := range parts {
		token := func(a Added) {
			flush()
			ids = append(ids, a.ID)
		}
		split(p.Text, &t.raw, p.See, token, func(text string) {
			pending.WriteString(text)
			see = min(see, p.See)
		})
	}
	flush()
	return ids
}

// split calls token for the added tokens of a text and between for the text between them, in order.
func split(text string, f *finder, see Recognise, token func(Added), between func(string)) {
	for see != Nothing {
		from, a := f.find(text)
		if from < 0 {
			break
		}
		if from > 0 {
			between(text[:from])
		}
		token(a)
		text = text[from+len(a.Content):]
	}
	if text != "" {
		between(text)
	}
}

func (t *Tokenizer) normal(text string) string {
	if t.nfc && !norm.NFC.IsNormalString(text) {
		return norm.NFC.String(text)
	}
	return text
}

func (t *Tokenizer) words(text string, word func(string)) {
	for len(text) > 0 {
		n := preToken(text, t.maxDigits)
		word(text[:n])
		text = text[n:]
	}
}

// preToken returns the length in bytes of the first pre-token of a text that is not empty, by the pattern of both
// families (alternatives in this order, the first that matches wins):
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d) | [^\r\n\p{L}\p{N}]?\p{L}+ | \p{N}{1,maxDigits} |
//	 ?[^\s\p{L}\p{N}]+[\r\n]* | \s*[\r\n]+ | \s+(?!\S) | \s+
func preToken(s string, maxDigits int) int {
	r, n := utf8.DecodeRuneInString(s)
	if r == '\'' {
		if c := contraction(s); c > 0 {
			return c
		}
	}
	switch {
	case unicode.IsLetter(r):
		return n + run(s[n:], unicode.IsLetter)
	case r != '\r' && r != '\n' && !unicode.IsNumber(r):
		if letters := run(s[n:], unicode.IsLetter); letters > 0 {
			return n + letters
		}
	case unicode.IsNumber(r):
		end := n
		for range maxDigits - 1 {
			r, n := utf8.DecodeRuneInString(s[end:])
			if !unicode.IsNumber(r) || n == 0 {
				break
			}
			end += n
		}
		return end
	}
	start := 0
	if r == ' ' {
		start = 1
	}
	if marks := run(s[start:], isMark); marks > 0 {
		end := start + marks
		return end + run(s[end:], func(r rune) bool { return r == '\r' || r == '\n' })
	}
	space := run(s, unicode.IsSpace)
	if i := strings.LastIndexAny(s[:space], "\r\n"); i >= 0 {
		return i + 1
	}
	if space < len(s) {
		if _, last := utf8.DecodeLastRuneInString(s[:space]); last < space {
			return space - last
		}
	}
	return space
}

// isMark is [^\s\p{L}\p{N}].
func isMark(r rune) bool { return !unicode.IsSpace(r) && !unicode.IsLetter(r) && !unicode.IsNumber(r) }

// run returns the length of the longest prefix whose characters all satisfy is.
func run(s string, is func(rune) bool) int {
	for i, r := range s {
		if !is(r) {
			return i
		}
	}
	return len(s)
}

// contraction returns the length of an English contraction at the start of s, which starts with an apostrophe, or
// 0. Case is folded as in Unicode: U+017F is an s.
func contraction(s string) int {
	r, n := utf8.DecodeRuneInString(s[1:])
	switch unicode.ToLower(r) {
	case 's', 't', 'm', 'd', '\u017f':
		return 1 + n
	}
	if len(s) >= 3 {
		switch strings.ToLower(s[1:3]) {
		case "re", "ve", "ll":
			return 3
		}
	}
	return 0
}

// word appends the ids of a pre-token. Of all adjacent pairs, the one with the lowest rank is merged first, the
// leftmost of equals.
func (t *Tokenizer) word(ids []int32, word string) []int32 {
	if own, known := t.ids[word]; known && t.ignoreMerges {
		return append(ids, own)
	}
	from := len(ids)
	for i := range len(word) {
		ids = append(ids, t.single[word[i]])
	}
	parts := ids[from:]
	const never = math.MaxInt32
	rank := func(i int) int32 {
		if m, ok := t.merges[pair{parts[i], parts[i+1]}]; ok {
			return m.rank
		}
		return never
	}
	var buffer [64]int32
	ranks := buffer[:0] // of each pair
	for i := range len(parts) - 1 {
		ranks = append(ranks, rank(i))
	}
	for len(ranks) > 0 {
		best := 0
		for i, r := range ranks {
			if r < ranks[best] {
				best = i
			}
		}
		if ranks[best] == never {
			break
		}
		parts[best] = t.merges[pair{parts[best], parts[best+1]}].id
		parts = slices.Delete(parts, best+1, best+2)
		ranks = slices.Delete(ranks, best, best+1)
		if best > 0 {
			ranks[best-1] = rank(best - 1)
		}
		if best < len(ranks) {
			ranks[best] = rank(best)
		}
	}
	return ids[:from+len(parts)]
}
