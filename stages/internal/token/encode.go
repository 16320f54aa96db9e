package token

import (
	"container/heap"
	"math"
	"slices"
	"strings"
	"sync"
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
		cut(t.normal(pending.String()), &t.late, see, func(a Added) { ids = append(ids, a.ID) }, func(part string) {
			t.words(part, func(word string) { ids = t.word(ids, word) })
		})
		pending.Reset()
		see = Everything
	}
	for _, p := range parts {
		cut(p.Text, &t.raw, p.See, func(a Added) {
			flush()
			ids = append(ids, a.ID)
		}, func(text string) {
			pending.WriteString(text)
			see = min(see, p.See)
		})
	}
	flush()
	return ids
}

// cut calls token for the added tokens of a text and between for the text between them, in order.
func cut(text string, f *finder, see Recognise, token func(Added), between func(string)) {
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

// words calls word with every pre-token of a text, in order.
func (t *Tokenizer) words(text string, word func(string)) {
	for len(text) > 0 {
		end := len(text)
		if t.split.digits {
			if end = run(text, notNumber); end == 0 {
				_, end = utf8.DecodeRuneInString(text)
			}
		}
		for piece := text[:end]; len(piece) > 0; {
			n := t.split.first(piece)
			word(piece[:n])
			piece = piece[n:]
		}
		text = text[end:]
	}
}

// split is a way to cut a text into pre-tokens.
type split struct {
	digits bool // every number is a piece of its own, and the text between two numbers is another
	spaced bool // pieces are cut by GPT-2's pattern, otherwise by that of Qwen and Llama 3
	most   int  // digits of a pre-token in the latter: 1 (Qwen), 3 (Llama 3)
}

// first returns the length in bytes of the first pre-token of a piece that is not empty.
func (c split) first(piece string) int {
	if c.spaced {
		return spacedToken(piece)
	}
	return preToken(piece, c.most)
}

// preToken is split.first by the pattern of Qwen and Llama 3 (alternatives in this order, the first that matches
// wins):
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
	return spaceToken(s, space)
}

// spaceToken returns the length of \s+(?!\S)|\s+ at the start of s, which starts with space bytes of white space:
// all of it at the end of s, otherwise all but its last character, which belongs to the word after it.
func spaceToken(s string, space int) int {
	if space < len(s) {
		if _, last := utf8.DecodeLastRuneInString(s[:space]); last < space {
			return space - last
		}
	}
	return space
}

// spacedToken is split.first by the pattern of GPT-2, whose contractions are in lower case:
//
//	's|'t|'re|'ve|'m|'ll|'d |  ?\p{L}+ |  ?\p{N}+ |  ?[^\s\p{L}\p{N}]+ | \s+(?!\S) | \s+
func spacedToken(s string) int {
	for _, c := range []string{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"} {
		if strings.HasPrefix(s, c) {
			return len(c)
		}
	}
	start := 0
	if s[0] == ' ' {
		start = 1
	}
	for _, is := range []func(rune) bool{unicode.IsLetter, unicode.IsNumber, isMark} {
		if n := run(s[start:], is); n > 0 {
			return start + n
		}
	}
	return spaceToken(s, run(s, unicode.IsSpace))
}

func notNumber(r rune) bool { return !unicode.IsNumber(r) }

// isMark is [^\s\p{L}\p{N}].
func isMark(r rune) bool { return !unicode.IsSpace(r) && !unicode.IsLetter(r) && !unicode.IsNumber(r) }

// run returns the length of the longest prefix whose characters all satisfy is.
func run(s string, is func(rune) bool) int {
	return len(s) - len(strings.TrimLeftFunc(s, is))
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

// word appends the ids of a pre-token. Bytes without a token are dropped. Of all adjacent pairs, the one with the
// lowest rank is merged first, the leftmost of equals.
func (t *Tokenizer) word(ids []int32, word string) []int32 {
	if own, known := t.ids[word]; known && t.ignoreMerges {
		return append(ids, own)
	}
	from := len(ids)
	for i := range len(word) {
		if id := t.single[word[i]]; id != noToken {
			ids = append(ids, id)
		}
	}
	parts := ids[from:]
	if len(parts) > longWord {
		return ids[:from+t.mergeLong(parts)]
	}
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

// longWord is the length in bytes from which on a heap finds the next pair sooner than a scan over all pairs. Text of
// strangers can be one word of megabytes.
const longWord = 256

// candidate is a pair of parts that may be merged: at and the part after it, which had these ids.
type candidate struct {
	rank, at int32
	pair
}

// candidates is a heap: the lowest rank first, the leftmost of equals.
type candidates []candidate

func (c candidates) Len() int { return len(c) }
func (c candidates) Less(i, j int) bool {
	return c[i].rank < c[j].rank || c[i].rank == c[j].rank && c[i].at < c[j].at
}
func (c candidates) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c *candidates) Push(any)     {} // mergeLong appends, because a value in an interface takes memory
func (c *candidates) Pop() any     { return nil }

// longWords is held while a word of over 64 KiB is merged, which takes 28 bytes of memory for each of its own: many
// episodes may have one at once.
var longWords sync.Mutex

// mergeLong merges parts in place, as word does, and returns how many are left.
func (t *Tokenizer) mergeLong(parts []int32) int {
	if len(parts) > 1<<16 {
		longWords.Lock()
		defer longWords.Unlock()
	}
	const gone = -1 // the id of a part that was merged into the one before it
	end := int32(len(parts))
	before, after := make([]int32, end), make([]int32, end)
	open := make(candidates, 0, end)
	add := func(at int32) {
		if at < 0 || after[at] == end {
			return
		}
		p := pair{parts[at], parts[after[at]]}
		if m, ok := t.merges[p]; ok {
			open = append(open, candidate{m.rank, at, p})
			heap.Fix(&open, len(open)-1)
		}
	}
	for i := range end {
		before[i], after[i] = i-1, i+1
	}
	for i := range end {
		add(i)
	}
	for len(open) > 0 {
		c, last := open[0], len(open)-1
		open[0], open = open[last], open[:last]
		heap.Fix(&open, 0)
		next := after[c.at]
		if next == end || c.pair != (pair{parts[c.at], parts[next]}) {
			continue // one of the two was merged with another
		}
		parts[c.at], parts[next] = t.merges[c.pair].id, gone
		after[c.at] = after[next]
		if after[next] < end {
			before[after[next]] = c.at
		}
		add(before[c.at])
		add(c.at)
	}
	return len(slices.DeleteFunc(parts, func(id int32) bool { return id == gone }))
}
