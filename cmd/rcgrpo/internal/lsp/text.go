package lsp

import (
	"bytes"
	"net/url"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"rcgrpo/engine/lang"
)

// document is one version of a text. It is immutable; only the goroutine of the events uses its outline.
type document struct {
	uri     string
	path    string // "" if the URI names no file
	version int
	text    []byte
	lines   []int // first bytes
	lexer   *lexer
	outline func() *outline
}

func newDocument(uri string, version int, text []byte) *document {
	d := &document{lexer: &lexer{}, uri: uri, path: pathOf(uri), version: version, text: text}
	d.lines = appendLines([]int{0}, 0, text)
	d.outline = sync.OnceValue(func() *outline {
		if len(text) > lang.MaxSource { // its only diagnostic says so
			text = nil
		}
		return newOutline(text, d.lexer)
	})
	return d
}

// appendLines appends the first bytes of the lines that begin in a text at a byte.
func appendLines(lines []int, at int, text []byte) []int {
	for i, c := range text {
		if c == '\n' {
			lines = append(lines, at+i+1)
		}
	}
	return lines
}

// pathOf returns the path of a file: URI; "" for others.
func pathOf(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" || u.Path == "" {
		return ""
	}
	return filepath.Clean(u.Path)
}

func uriOf(path string) string { return (&url.URL{Scheme: "file", Path: path}).String() }

// offset returns the byte of a position. A position outside the text means the nearest one inside.
func (d *document) offset(p position) int {
	if p.Line < 0 {
		return 0
	}
	if p.Line >= len(d.lines) {
		return len(d.text)
	}
	at := d.lines[p.Line]
	line, _, _ := bytes.Cut(d.text[at:], []byte("\n"))
	for units := 0; len(line) > 0 && units < p.Character; {
		if line[0] < utf8.RuneSelf {
			units, at, line = units+1, at+1, line[1:]
			continue
		}
		r, size := utf8.DecodeRune(line)
		if units += utf16.RuneLen(r); units > p.Character { // inside a surrogate pair
			break
		}
		at, line = at+size, line[size:]
	}
	return at
}

// position returns the position of a byte.
func (d *document) position(offset int) position {
	offset = max(0, min(offset, len(d.text)))
	line := sort.SearchInts(d.lines, offset+1) - 1
	units := 0
	for _, r := range string(d.text[d.lines[line]:offset]) {
		units += utf16.RuneLen(r)
	}
	return position{line, units}
}

func (d *document) rangeOf(start, end int) textRange {
	return textRange{d.position(start), d.position(end)}
}

// edited returns the next version of a document. An edit moves the rest of the text and of its lines, because a message
// may have 100,000 of them.
func (d *document) edited(p params) *document {
	now := &document{text: slices.Clone(d.text), lines: slices.Clone(d.lines)}
	for _, c := range p.Changes {
		if c.Range == nil {
			now.text, now.lines = []byte(c.Text), appendLines([]int{0}, 0, []byte(c.Text))
			continue
		}
		start, end := now.offset(c.Range.Start), now.offset(c.Range.End)
		now.replace(start, max(start, end), []byte(c.Text))
	}
	next := newDocument(d.uri, p.TextDocument.Version, now.text)
	next.lexer = d.lexer
	return next
}

// replace replaces a part of the text.
func (d *document) replace(start, end int, by []byte) {
	from, to := sort.SearchInts(d.lines, start+1), sort.SearchInts(d.lines, end+1) // lines that begin in the part
	for i := to; i < len(d.lines); i++ {
		d.lines[i] += len(by) - (end - start)
	}
	d.lines = slices.Replace(d.lines, from, to, appendLines(nil, start, by)...)
	d.text = slices.Replace(d.text, start, end, by...)
}

// replacement returns the edit that turns the document into text. It leaves out equal lines at both ends, so that
// cursors and folds there stay.
func (d *document) replacement(text []byte) []textEdit {
	if bytes.Equal(d.text, text) {
		return []textEdit{}
	}
	start, end := 0, len(d.text)
	for {
		line := bytes.IndexByte(d.text[start:], '\n') + 1
		if line == 0 || !bytes.HasPrefix(text[start:], d.text[start:start+line]) {
			break
		}
		start += line
	}
	rest := text[start:]
	for end > start {
		line := bytes.LastIndexByte(d.text[start:end-1], '\n') + 1
		if line == 0 || !bytes.HasSuffix(rest, d.text[start+line:end]) {
			break
		}
		rest, end = rest[:len(rest)-(end-start-line)], start+line
	}
	return []textEdit{{d.rangeOf(start, end), string(rest)}}
}
