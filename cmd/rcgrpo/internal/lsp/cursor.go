package lsp

import (
	"bytes"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"

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
	block    *item    // the innermost block around it, or the root
	item     *item    // the setting or the header, or nil
	label    int      // index
	path     string   // of the setting below the outermost block, through blocks and objects: "limits.reply"
	from, to int      // the text to complete: a name, the inside of a string, a traversal
	steps    []string // of a traversal
}

// cursorAt finds the role of byte at.
func (o *outline) cursorAt(at int) cursor {
	c := cursor{block: o.root, from: at, to: at}
	next := sort.Search(len(o.tokens), func(i int) bool { return o.tokens[i].Range.Start.Byte >= at })
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
		inner = nil
		if i >= 0 {
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
		o.inValue(&c, it.tokens, at)
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

// maxPath is the length of a path or name in bytes. No setting has a longer one.
const maxPath = 1000

func (f frame) inner() string {
	if f.object && f.key != "" && len(f.path)+len(f.key) < maxPath {
		return f.path + "." + f.key
	}
	return f.path
}

// inValue finds the role of a byte in the value of a setting.
func (o *outline) inValue(c *cursor, tokens hclsyntax.Tokens, at int) {
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
	f := frames[len(frames)-1]
	c.path = f.inner()
	switch {
	case f.start > at: // in the first line of a heredoc
	case f.text:
		c.syntax, c.from = quoted, f.start
		for _, t := range tokens[max(0, n-1):min(n+1, len(tokens))] { // the literal around the cursor or after it
			if t.Type == hclsyntax.TokenQuotedLit && t.Range.Start.Byte <= at {
				c.to = t.Range.End.Byte
			}
		}
		if open := f.start - len(`["`); open >= 0 && string(o.text[open:f.start]) == `["` {
			if _, end, steps := o.traversalAt(open); end == open && len(steps) > 0 {
				c.syntax, c.steps = index, steps
			}
		}
	case f.object && !f.valued:
		c.syntax, c.path = key, f.path
		c.from, c.to, _ = o.traversalAt(at)
	default:
		c.syntax = value
		c.from, c.to, c.steps = o.traversalAt(at)
	}
}

func (f *frame) setKey(name string) {
	if f.object && !f.valued {
		f.key = name
	}
}

// traversal matches a reference such as stage.eval.arm["a b"].scores, also one that ends in a dot.
const traversal = `[\pL_][\pL\pN_-]*(?:\.[\pL\pN_-]*|\[(?:"[^"\n]*"|[\pL\pN_.-]*)\])*`

var traversals = sync.OnceValue(func() (re struct{ before, from, step *regexp.Regexp }) {
	re.before = regexp.MustCompile(traversal + `$`)
	re.from = regexp.MustCompile(`^` + traversal)
	re.step = regexp.MustCompile(`[\pL\pN_-]+|"[^"]*"`)
	return re
})

// traversalAt returns the traversal around byte at: where it begins and ends, and its names and keys. It begins at at
// if there is none.
func (o *outline) traversalAt(at int) (from, to int, steps []string) {
	line := bytes.LastIndexByte(o.text[:at], '\n') + 1
	from, to = at, at
	if found := traversals().before.FindIndex(o.text[line:at]); found != nil {
		from = line + found[0]
	}
	if found := traversals().from.FindIndex(firstLine(o.text[from:])); found != nil {
		to = from + found[1]
	}
	for _, step := range traversals().step.FindAllString(string(o.text[from:to]), -1) {
		steps = append(steps, strings.Trim(step, `"`))
	}
	return from, to, steps
}

// textOf returns the text of a setting's value on one line.
func (o *outline) textOf(it *item) string {
	text := string(bytes.TrimSpace(o.text[it.value:it.end]))
	if first, _, more := strings.Cut(text, "\n"); more {
		return first + " …"
	}
	return text
}
