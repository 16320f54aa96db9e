package lsp

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"rcgrpo/engine/lang"
)

// outline is the tree of blocks and settings of a text. It is built from tokens, because the syntax tree of a text that
// does not parse ends at the first error. A block at the left margin ends everything before it.
type outline struct {
	text   []byte
	tokens hclsyntax.Tokens
	root   *item
}

// word is a name in the text.
type word struct {
	text       string
	start, end int
}

// item is a block, a setting or the unfinished beginning of one.
type item struct {
	name       word
	labels     []word // without quotes
	parent     *item
	block      bool
	closed     bool // has its }
	setting    bool
	start, end int
	value      int              // byte after { or =
	tokens     hclsyntax.Tokens // of the value of a setting
	items      []*item          // of a block
}

func newOutline(text []byte, l *lexer) *outline {
	o := &outline{text: text, root: &item{block: true, end: len(text)}, tokens: l.lex(text)}
	o.scan()
	return o
}

// lexer lexes the versions of a document. It lexes each block at the left margin by itself, so that a mistake in one
// block does not affect the others, and only if the block has changed.
type lexer struct {
	blocks map[string]hclsyntax.Tokens
	count  int // of all tokens
}

func (l *lexer) lex(text []byte) (tokens hclsyntax.Tokens) {
	known := map[string]hclsyntax.Tokens{}
	tokens = make(hclsyntax.Tokens, 0, l.count+l.count/8)
	for at := 0; at < len(text); {
		end := at + 1
		for end < len(text) && !startsBlock(text, end) {
			end += len(firstLine(text[end:])) + 1
		}
		end = min(end, len(text))
		block := string(text[at:end])
		if known[block] = l.blocks[block]; known[block] == nil {
			known[block] = lexBlock([]byte(block))
		}
		for _, t := range known[block] {
			t.Range.Start.Byte += at
			t.Range.End.Byte += at
			tokens = append(tokens, t)
		}
		at = end
	}
	l.blocks, l.count = known, len(tokens)
	return tokens
}

// maxRestarted is the number of bytes that lexBlock lexes again: each open string has it lex the rest of the block.
const maxRestarted = 1 << 20

// lexBlock ends open strings at the end of their line.
func lexBlock(text []byte) (tokens hclsyntax.Tokens) {
	for at, restarted := 0, 0; at < len(text); {
		part, _ := hclsyntax.LexConfig(text[at:], "", hcl.Pos{Byte: at, Line: 1, Column: 1})
		part = part[:len(part)-1] // without the end of the file
		open := slices.IndexFunc(part, func(t hclsyntax.Token) bool { return t.Type == hclsyntax.TokenQuotedNewline })
		if restarted += len(text) - at; open < 0 || restarted > len(text)+maxRestarted {
			return append(tokens, part...)
		}
		t := part[open]
		closed := t
		closed.Type, closed.Bytes, closed.Range.End = hclsyntax.TokenCQuote, nil, t.Range.Start
		t.Type = hclsyntax.TokenNewline
		tokens = append(append(tokens, part[:open]...), closed, t)
		at = t.Range.End.Byte
	}
	return tokens
}

var blockStart = sync.OnceValue(func() *regexp.Regexp {
	var names []string
	for _, b := range lang.FileBlocks {
		names = append(names, b.Name)
	}
	return regexp.MustCompile(`^(?:` + strings.Join(names, "|") + `)[ \t]*["{]`)
})

// startsBlock reports whether a block at the left margin begins at a byte.
func startsBlock(text []byte, at int) bool {
	return (at == 0 || text[at-1] == '\n') && text[at] >= 'a' && blockStart().Match(firstLine(text[at:]))
}

func firstLine(text []byte) []byte {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	return line
}

// nesting is the change of depth by a token.
func nesting(t hclsyntax.TokenType) int {
	switch t {
	case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenTemplateInterp,
		hclsyntax.TokenTemplateControl, hclsyntax.TokenOQuote, hclsyntax.TokenOHeredoc:
		return 1
	case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenTemplateSeqEnd,
		hclsyntax.TokenCQuote, hclsyntax.TokenCHeredoc:
		return -1
	}
	return 0
}

// endsLine reports whether a token is a line break. A comment to the end of the line contains it.
func endsLine(t hclsyntax.Token) bool {
	return t.Type == hclsyntax.TokenNewline || t.Type == hclsyntax.TokenComment && bytes.HasSuffix(t.Bytes, []byte("\n"))
}

// maxDepth is the depth of nested blocks; no block of the language is that deep.
const maxDepth = 50

// scan builds the tree.
func (o *outline) scan() {
	block, depth := o.root, 0
	closeTo := func(parent *item, at int) {
		for ; block != parent; block = block.parent {
			block.end = at
			depth--
		}
	}
	for i := 0; i < len(o.tokens); {
		t := o.tokens[i]
		start := t.Range.Start.Byte
		switch t.Type {
		case hclsyntax.TokenCBrace:
			if block != o.root {
				block.closed = true
				closeTo(block.parent, t.Range.End.Byte)
			}
			i++
			continue
		case hclsyntax.TokenIdent:
		default:
			i++
			continue
		}
		if startsBlock(o.text, t.Range.Start.Byte) {
			closeTo(o.root, start)
		}
		it := &item{name: wordOf(t), parent: block, start: start, end: t.Range.End.Byte}
		block.items = append(block.items, it)
		i = o.header(it, i+1)
		switch {
		case it.block && depth < maxDepth:
			it.end = len(o.text)
			block = it
			depth++
		case it.setting:
			first := i
			i = o.endOfValue(first)
			it.tokens, it.end = o.tokens[first:i], o.startOf(i)
		default: // unfinished, up to the end of the line
			it.end = o.startOf(i)
		}
	}
	closeTo(o.root, len(o.text))
}

// header reads labels and { or =, from token i. It returns the index after them.
func (o *outline) header(it *item, i int) int {
	for ; i < len(o.tokens); i++ {
		t := o.tokens[i]
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenEqual:
			it.block, it.setting = t.Type == hclsyntax.TokenOBrace, t.Type == hclsyntax.TokenEqual
			it.value = t.Range.End.Byte
			return i + 1
		case hclsyntax.TokenIdent:
			it.labels = append(it.labels, wordOf(t))
		case hclsyntax.TokenOQuote:
			it.labels = append(it.labels, word{"", t.Range.End.Byte, t.Range.End.Byte})
		case hclsyntax.TokenQuotedLit: // after a quote
			label := &it.labels[len(it.labels)-1]
			label.text, label.end = label.text+string(t.Bytes), t.Range.End.Byte
		case hclsyntax.TokenCQuote:
		default:
			return i
		}
		it.end = t.Range.End.Byte
	}
	return i
}

// startOf returns the first byte of token i, or the end of the text.
func (o *outline) startOf(i int) int {
	if i < len(o.tokens) {
		return o.tokens[i].Range.Start.Byte
	}
	return len(o.text)
}

func wordOf(t hclsyntax.Token) word {
	return word{string(t.Bytes), t.Range.Start.Byte, t.Range.End.Byte}
}

// endOfValue returns the index of the token after the value that begins at token first. A value ends with its line
// unless a bracket is open. An open bracket ends where a setting or a block begins that cannot be inside it.
func (o *outline) endOfValue(first int) int {
	var open []hclsyntax.TokenType
	braces := 0 // in open
	for i := first; i < len(o.tokens); i++ {
		t := o.tokens[i]
		n := nesting(t.Type)
		switch {
		case n > 0:
			open = append(open, t.Type)
			if t.Type == hclsyntax.TokenOBrace {
				braces++
			}
		case n < 0 && (len(open) == 0 || t.Type == hclsyntax.TokenCBrace && braces == 0):
			return i
		case n < 0:
			if open[len(open)-1] == hclsyntax.TokenOBrace {
				braces--
			}
			open = open[:len(open)-1]
		case len(open) == 0 && endsLine(t):
			return i
		case endsLine(t) && slices.Contains(brackets, open[len(open)-1]) && o.startsSetting(i+1):
			return i
		case t.Type == hclsyntax.TokenIdent && i > first && len(open) > 0 && startsBlock(o.text, t.Range.Start.Byte):
			return i
		}
	}
	return len(o.tokens)
}

var brackets = []hclsyntax.TokenType{hclsyntax.TokenOBrack, hclsyntax.TokenOParen}

func (o *outline) startsSetting(i int) bool {
	return i+1 < len(o.tokens) && o.tokens[i].Type == hclsyntax.TokenIdent && o.tokens[i+1].Type == hclsyntax.TokenEqual
}

// top returns the outermost block around an item.
func (it *item) top() *item {
	for it.parent != nil && it.parent.parent != nil {
		it = it.parent
	}
	return it
}

// path returns the names of the blocks inside the outermost one and of the item: "clip.low".
func (it *item) path() string {
	switch {
	case it.parent == nil || it.block && it.parent.parent == nil:
		return ""
	case it.parent.parent == nil: // of a site file
		return it.name.text
	}
	return strings.TrimPrefix(it.parent.path()+"."+it.name.text, ".")
}

// find returns the first setting or block with that name in a block, or nil.
func (it *item) find(name string) *item {
	if i := slices.IndexFunc(it.items, func(in *item) bool { return in.name.text == name }); i >= 0 {
		return it.items[i]
	}
	return nil
}

// label returns a label of a block, or "".
func (it *item) label(i int) string {
	if i < len(it.labels) {
		return it.labels[i].text
	}
	return ""
}
