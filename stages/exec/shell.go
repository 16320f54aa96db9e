package exec

import (
	"path"
	"slices"
	"strings"
)

// command is a program with its arguments. Two shell texts that differ only in blanks have the same key.
type command []string

// shells are programs that split words at blanks as POSIX specifies.
var shells = []string{"sh", "bash", "dash"}

// Canonical returns the command with normalized blanks in the text of `sh -c TEXT`.
func (c command) Canonical() any {
	words := slices.Clone([]string(c))
	if len(words) >= 3 && words[1] == "-c" && slices.Contains(shells, path.Base(words[0])) {
		words[2] = plain(words[2])
	}
	return words
}

// plain normalizes a shell text: single blanks between words, none at the ends of lines. Quoted and escaped text
// stays. A text in which blanks may have another meaning is returned unchanged: one with a here-document, $'…',
// an expansion ${…}, a command within double quotes, a comment, a changed IFS or unclosed quotes.
func plain(text string) string {
	for _, odd := range []string{"<<", "$'", "${", "IFS", "\r"} {
		if strings.Contains(text, odd) {
			return text
		}
	}
	var out strings.Builder
	var quote byte
	blank := false // seen and not yet written
	atStart := true
	for i := 0; i < len(text); i++ {
		c := text[i]
		if quote == 0 && (c == ' ' || c == '\t') {
			blank = true
			continue
		}
		if blank && c != '\n' && !atStart {
			out.WriteByte(' ')
		}
		blank = false
		atStart = quote == 0 && c == '\n'
		out.WriteByte(c)
		switch {
		case c == '\\' && quote != '\'':
			if i+1 < len(text) {
				i++
				out.WriteByte(text[i])
			}
		case quote == '"' && (c == '`' || c == '(' && text[i-1] == '$'): // commands within have quotes of their own
			return text
		case quote == c:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"' || c == '`'):
			quote = c
		case quote == 0 && c == '#': // an apostrophe in a comment opens no quotes
			return text
		}
	}
	if quote != 0 {
		return text
	}
	return out.String()
}
