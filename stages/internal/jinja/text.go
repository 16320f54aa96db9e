package jinja

import (
	"sort"
	"strings"
)

// Text is a string that records which of its bytes are foreign: written by users, tools or models, not by the
// template or its caller.
type Text struct {
	s       string
	foreign []span // ascending, not empty, with a gap between two
}

// span is a range of bytes.
type span struct{ from, to int }

// Run is a part of a Text with one origin.
type Run struct {
	Text    string
	Foreign bool
}

// Own returns a text of the template or its caller.
func Own(s string) Text { return Text{s: s} }

// Foreign returns a text of anyone else.
func Foreign(s string) Text {
	if s == "" {
		return Text{}
	}
	return Text{s, []span{{0, len(s)}}}
}

// String returns the text without its marks.
func (t Text) String() string { return t.s }

// Cut returns the bytes from..to.
func (t Text) Cut(from, to int) Text {
	c := Text{s: t.s[from:to]}
	i := sort.Search(len(t.foreign), func(i int) bool { return t.foreign[i].to > from })
	j := max(i, sort.Search(len(t.foreign), func(j int) bool { return t.foreign[j].from >= to }))
	if i < j {
		c.foreign = make([]span, 0, j-i) // many may be kept
	}
	for _, x := range t.foreign[i:j] {
		c.foreign = append(c.foreign, span{max(x.from, from) - from, min(x.to, to) - from})
	}
	return c
}

// Runs returns the parts of the text in order, none of them empty.
func (t Text) Runs() []Run {
	var runs []Run
	at := 0
	own := func(to int) {
		if at < to {
			runs = append(runs, Run{t.s[at:to], false})
		}
		at = to
	}
	for _, x := range t.foreign {
		own(x.from)
		runs = append(runs, Run{t.s[x.from:x.to], true})
		at = x.to
	}
	own(len(t.s))
	return runs
}

// Join returns the concatenation of texts.
func Join(texts ...Text) Text {
	var b builder
	for _, t := range texts {
		b.add(t)
	}
	return b.text()
}

// builder concatenates texts.
type builder struct {
	strings.Builder // own text may be written directly
	foreign         []span
}

func (b *builder) add(t Text) {
	at := b.Len()
	for i, x := range t.foreign {
		if last := len(b.foreign) - 1; i == 0 && last >= 0 && b.foreign[last].to == x.from+at {
			b.foreign[last].to = x.to + at
		} else {
			b.foreign = append(b.foreign, span{x.from + at, x.to + at})
		}
	}
	b.WriteString(t.s)
}

func (b *builder) text() Text { return Text{b.String(), b.foreign} }
