package lsp

import (
	"bytes"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// syntax is the role of a place in the text.
type syntax int

const (
	nothing   syntax = iota // in a comment, or where only punctuation can follow
	statement               // name of a block or setting
	label                   // of a block
	key                     // of an object
	value
	quoted // in a string
	index  // in a string in brackets after a traversal: stage.eval.arm["
)

// cursor describes a place in the text.
type cursor struct {
	syntax   syntax
	block    *item  // the innermost block around it, or the root
	item     *item  // the setting or the header, or nil
	label    int    // index
	path     string // of the setting below the outermost block, through blocks and objects: "limits.reply"
	from, to int    // the text to complete
	steps    []word // of the traversal that ends here
}

// cursorAt finds the role of byte at.
func (o *outline) cursorAt(at int) cursor {
	c := cursor{block: o.root, from: at, to: at}
	next, _ := slices.BinarySearchFunc(o.tokens, at, func(t hclsyntax.Token, at int) int { return t.Range.Start.Byte - at })
	var last hclsyntax.Token // begins before at
	if next > 0 {
		last = o.tokens[next-1]
	}
	if end := last.Range.End.Byte; last.Type == hclsyntax.TokenComment && (at < end || at == end && !endsLine(last)) {
		return c
	}
	for inner := o.root; inner != nil; {
		c.block = inner
		i := slices.IndexFunc(inner.items, func(it *item) bool {
			return it.block && it.value <= at && (at < it.end || at == it.end && !it.closed)
		})
		if inner = nil; i >= 0 {
			inner = c.block.items[i]
		}
	}
	for _, it := range c.block.items {
		end := it.end
		if it.block {
			end = it.value - 1
		}
		if it.start <= at && at <= end {
			c.item = it
		}
	}
	switch it := c.item; {
	case it == nil:
		if next == 0 || endsLine(last) || last.Type == hclsyntax.TokenOBrace {
			c.syntax = statement
		}
	case at <= it.name.end:
		c.syntax, c.from, c.to = statement, it.name.start, it.name.end
	case it.setting && at >= it.value:
		c.path = it.path()
		c.inValue(it.tokens, at)
	case !it.setting:
		c.syntax, c.label = label, len(it.labels)
		for i, l := range it.labels {
			if l.start <= at && at <= l.end {
				c.label, c.from, c.to = i, l.start, l.end
			}
		}
	}
	return c
}

// frame is an open bracket or string of a value.
type frame struct {
	object, text bool
	valued       bool // in an object: after the key
	path, key    string
	start        int // of a string
}

func (f frame) inner() string {
	if f.object && f.key != "" {
		return f.path + "." + f.key
	}
	return f.path
}

// inValue finds the role of a byte in the value of a setting.
func (c *cursor) inValue(tokens hclsyntax.Tokens, at int) {
	frames := []frame{{path: c.path}}
	n := 0
	for ; n < len(tokens) && tokens[n].Range.Start.Byte < at; n++ {
		t, f := tokens[n], &frames[len(frames)-1]
		switch change := nesting(t.Type); {
		case change > 0:
			frames = append(frames, frame{path: f.inner(), object: t.Type == hclsyntax.TokenOBrace,
				text: t.Type == hclsyntax.TokenOQuote || t.Type == hclsyntax.TokenOHeredoc, start: t.Range.End.Byte})
		case change < 0 && len(frames) > 1:
			frames = frames[:len(frames)-1]
		case !f.object:
			if f.text && t.Type == hclsyntax.TokenQuotedLit && len(frames) > 1 {
				frames[len(frames)-2].setKey(string(t.Bytes))
			}
		case t.Type == hclsyntax.TokenIdent && string(t.Bytes) == "for" && f.key == "":
			f.object = false
		case t.Type == hclsyntax.TokenIdent:
			f.setKey(string(t.Bytes))
		case t.Type == hclsyntax.TokenEqual || t.Type == hclsyntax.TokenColon:
			f.valued = true
		case t.Type == hclsyntax.TokenComma || endsLine(t):
			f.valued, f.key = false, ""
		}
	}
	before := tokens[:n]
	f := frames[len(frames)-1]
	c.path = f.inner()
	switch {
	case f.text:
		c.syntax, c.from = quoted, f.start
		for _, t := range tokens[max(0, n-1):min(n+1, len(tokens))] { // the literal around the cursor or after it
			if t.Type == hclsyntax.TokenQuotedLit && t.Range.Start.Byte <= at {
				c.to = t.Range.End.Byte
			}
		}
		open := slices.IndexFunc(before, func(t hclsyntax.Token) bool { return t.Range.End.Byte == f.start })
		if open > 1 && before[open-1].Type == hclsyntax.TokenOBrack {
			if c.steps, _ = chain(before[:open-1], open-2); c.steps != nil {
				c.syntax = index
			}
		}
		return
	case f.object && !f.valued:
		c.syntax, c.path = key, f.path
	default:
		c.syntax = value
	}
	if n > 0 && at <= tokens[n-1].Range.End.Byte { // in a word or after a dot
		if c.steps, _ = chain(before, n-1); c.steps != nil {
			_, end := chain(tokens, n-1)
			c.from, c.to = c.steps[0].start, max(at, end)
		}
	}
}

func (f *frame) setKey(name string) {
	if f.object && !f.valued {
		f.key = name
	}
}

// chain returns the words of the traversal around token i: names, keys in brackets, and "" for another index or after a
// dot at the end. It is nil if there is none. end is the byte after it.
func chain(tokens hclsyntax.Tokens, i int) (words []word, end int) {
	adjacent := func(i int) bool { return i > 0 && tokens[i-1].Range.End.Byte == tokens[i].Range.Start.Byte }
	typ := func(i int) hclsyntax.TokenType {
		if i < 0 || i >= len(tokens) {
			return hclsyntax.TokenNil
		}
		return tokens[i].Type
	}
	for {
		switch t := typ(i); {
		case t == hclsyntax.TokenDot && adjacent(i), t == hclsyntax.TokenIdent && adjacent(i) && typ(i-1) == hclsyntax.TokenDot:
			i--
			continue
		case t == hclsyntax.TokenCBrack:
			for depth := 0; i >= 0; i-- {
				if depth += nesting(typ(i)); depth == 0 {
					break
				}
			}
			if i > 0 && adjacent(i) {
				i--
				continue
			}
			return nil, 0
		case t != hclsyntax.TokenIdent:
			return nil, 0
		}
		break
	}
	words, end = []word{wordOf(tokens[i])}, tokens[i].Range.End.Byte
	for i++; i < len(tokens) && adjacent(i); {
		switch typ(i) {
		case hclsyntax.TokenDot:
			end = tokens[i].Range.End.Byte
			if typ(i+1) != hclsyntax.TokenIdent || !adjacent(i+1) {
				return append(words, word{"", end, end}), end
			}
			words = append(words, wordOf(tokens[i+1]))
			end = tokens[i+1].Range.End.Byte
			i += 2
		case hclsyntax.TokenOBrack:
			w := word{start: tokens[i].Range.End.Byte}
			if typ(i+1) == hclsyntax.TokenOQuote && typ(i+3) == hclsyntax.TokenCQuote {
				w = wordOf(tokens[i+2])
			}
			for depth := 0; i < len(tokens); i++ {
				end = tokens[i].Range.End.Byte
				if depth += nesting(typ(i)); depth == 0 {
					w.end = max(w.end, tokens[i].Range.Start.Byte)
					i++
					break
				}
			}
			words = append(words, w)
		default:
			return words, end
		}
	}
	return words, end
}

// chainAt returns the traversal around byte at, anywhere in a value, and the setting that contains it.
func (o *outline) chainAt(at int) (words []word, in *item) {
	i := slices.IndexFunc(o.tokens, func(t hclsyntax.Token) bool {
		return t.Type == hclsyntax.TokenIdent && t.Range.Start.Byte <= at && at <= t.Range.End.Byte
	})
	c := o.cursorAt(at)
	if i < 0 || c.item == nil || !c.item.setting || at < c.item.value || c.syntax == nothing {
		return nil, c.item
	}
	words, _ = chain(o.tokens, i)
	return words, c.item
}

// textOf returns the text of a setting's value on one line.
func (o *outline) textOf(it *item) string {
	text := string(bytes.TrimSpace(o.text[it.value:it.end]))
	if first, _, more := strings.Cut(text, "\n"); more {
		return first + " …"
	}
	return text
}
