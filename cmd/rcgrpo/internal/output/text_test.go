package output

import (
	"bytes"
	"io"
	"testing"

	"rcgrpo/internal/must"
)

func TestTextReplacesControlCharacters(t *testing.T) {
	for _, tc := range []struct {
		text, plain, coloured string
	}{
		{"a\tb\nü €\n", "a\tb\nü €\n", "a\tb\nü €\n"},
		{"\x1b[2K\recho harmless\x07\x00\x7f", "�[2K�echo harmless���", "�[2K�echo harmless���"},
		{"\x1b[31;1mred\x1b[0m", "�[31;1mred�[0m", "\x1b[31;1mred\x1b[0m"},
		{"\x1b[8mhidden\x1b]0;title", "�[8mhidden�]0;title", "�[8mhidden�]0;title"},
		{"\u009b31m\x9b31m\u202e", "�31m�31m�", "�31m�31m�"},
	} {
		for cut := range len(tc.text) {
			for colours, want := range map[bool]string{false: tc.plain, true: tc.coloured} {
				parts := []string{tc.text[:cut], tc.text[cut:]}
				if colours { // they are written whole
					parts = []string{tc.text}
				}
				var got bytes.Buffer
				w := &Text{w: &got, colours: colours}
				for _, part := range parts {
					must.Get(io.WriteString(w, part))(t)
				}
				if got.String() != want {
					t.Errorf("%q, colours %v, cut at %d: got %q, want %q", tc.text, colours, cut, got.String(), want)
				}
			}
		}
	}
}

func TestJSONIsNotChangedOnItsWayToAFile(t *testing.T) {
	var got bytes.Buffer
	must.OK(t, JSON(NewText(&got), "\u202e"))
	if want := "\"\u202e\"\n"; got.String() != want {
		t.Errorf("got %q, want %q", got.String(), want)
	}
}
