package token

import (
	"container/heap"
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
	NotSpecial                  // added tokens that are not special (Qwen's <tool_call>)
	Everything                  // all added tokens: for rendered templates
)

// Encode returns the ids of an ordinary text, without recognizing added tokens and without adding tokens.
func (t *Tokenizer) Encode(text string) []int32 { return t.EncodeAs(text, Nothing) }

// EncodeAs returns the ids of a text and recognizes some added tokens.
func (t *Tokenizer) EncodeAs(text string, see Recognise) []int32 {
	ids := make([]int32, 0, len(text)/3+1)
	token := func(a Added) { ids = append(ids, a.ID) }
	split(text, &t.raw, see, token, func(part string) {
		split(t.normal(part), &t.late, see, token, func(part string) {
			t.words(part, func(word string) { ids = t.word(ids, word) })
		})
	})
	return ids
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
		from, a := f.find(text, see == Everything)
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

func (t *Tokenizer) word(ids []int32, word string) []int32 {
	if own, known := t.ids[word]; known && t.ignoreMerges {
		return append(ids, own)
	}
	from := len(ids)
	for i := 0; i < len(word); i++ {
		ids = append(ids, t.single[word[i]])
	}
	if len(word) > 64 {
		return append(ids[:from], t.mergeLong(slices.Clone(ids[from:]))...)
	}
	parts := ids[from:]
	for len(parts) > 1 {
		best, at := merge{rank: 1<<31 - 1}, -1
		for i := 0; i+1 < len(parts); i++ {
			if m, ok := t.merges[pair{parts[i], parts[i+1]}]; ok && m.rank < best.rank {
				best, at = m, i
			}
		}
		if at < 0 {
			break
		}
		parts[at] = best.id
		parts = slices.Delete(parts, at+1, at+2)
	}
	return ids[:from+len(parts)]
}

// mergeLong merges with a heap of candidates in O(n log n) steps.
func (t *Tokenizer) mergeLong(parts []int32) []int32 {
	n := len(parts)
	prev, next := make([]int, n), make([]int, n)
	var queue candidates
	offer := func(i, j int) {
		if i >= 0 && j < n {
			if m, ok := t.merges[pair{parts[i], parts[j]}]; ok {
				heap.Push(&queue, candidate{m, i, pair{parts[i], parts[j]}})
			}
		}
	}
	for i := range n {
		prev[i], next[i] = i-1, i+1
	}
	for i := range n - 1 {
		offer(i, i+1)
	}
	for len(queue) > 0 {
		c := heap.Pop(&queue).(candidate)
		i := c.at
		j := next[i]
		if parts[i] != c.pair.left || j >= n || parts[j] != c.pair.right {
			continue // one side was merged meanwhile
		}
		parts[i], parts[j] = c.id, -1
		next[i] = next[j]
		if next[j] < n {
			prev[next[j]] = i
		}
		offer(prev[i], i)
		offer(i, next[i])
	}
	return slices.DeleteFunc(parts, func(id int32) bool { return id < 0 })
}

type candidate struct {
	merge
	at   int
	pair pair
}

type candidates []candidate

func (c candidates) Len() int { return len(c) }
func (c candidates) Less(i, j int) bool {
	return c[i].rank < c[j].rank || c[i].rank == c[j].rank && c[i].at < c[j].at
}
func (c candidates) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c *candidates) Push(x any)   { *c = append(*c, x.(candidate)) }
func (c *candidates) Pop() any {
	old := *c
	x := old[len(old)-1]
	*c = old[:len(old)-1]
	return x
}
