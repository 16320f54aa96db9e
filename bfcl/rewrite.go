package bfcl

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"rcgrpo/bfcl/internal/py"
)

// rewrite replaces every identifier before a parenthesis (bfcl/SPEC.md 5.1), also inside string
// arguments, and removes blanks before the parenthesis. instanceOf returns the variable of the instance
// that has a tool of that name, which becomes a prefix of the name; it returns "" for other words.
func rewrite(call string, instanceOf func(name string) string) string {
	var b strings.Builder
	done := 0 // call[:done] is rewritten
	for at := 0; at < len(call); at++ {
		if call[at] != '(' {
			continue
		}
		start, end := wordBefore(call, at)
		if start == end || start < done {
			continue
		}
		word := call[start:end]
		b.WriteString(call[done:start])
		if instance := instanceOf(word); instance != "" {
			b.WriteString(instance)
			b.WriteByte('.')
		}
		b.WriteString(word)
		done = at
	}
	if done == 0 {
		return call
	}
	b.WriteString(call[done:])
	return b.String()
}

// wordBefore returns the range of the identifier that ends before call[at], ignoring blanks; an
// empty range if there is none.
func wordBefore(call string, at int) (start, end int) {
	end = at
	for end > 0 {
		r, n := utf8.DecodeLastRuneInString(call[:end])
		if !py.Space(r) {
			break
		}
		end -= n
	}
	start = end
	for start > 0 {
		r, n := utf8.DecodeLastRuneInString(call[:start])
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsNumber(r) {
			break
		}
		start -= n
	}
	if start < end {
		if c := call[start]; c != '_' && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return end, end
		}
	}
	return start, end
}

// rewritesText reports whether a parenthesis after the first follows a word, so that rewriting
// changes more than the name of the call.
func rewritesText(call string) bool {
	at := strings.IndexByte(call, '(')
	for at >= 0 {
		next := strings.IndexByte(call[at+1:], '(')
		if next < 0 {
			return false
		}
		at += 1 + next
		if start, end := wordBefore(call, at); start < end {
			return true
		}
	}
	return false
}

// banned are the names that the official executor does not call.
var banned = map[string]bool{
	"kill": true, "exit": true, "quit": true, "remove": true, "unlink": true, "popen": true, "Popen": true, "run": true,
}

// bannedName returns the banned name at the start of a rewritten call, or "" (bfcl/SPEC.md 5.2).
func bannedName(rewritten string) string {
	name, _, _ := strings.Cut(rewritten, "(")
	if pieces := strings.SplitN(name, ".", 3); len(pieces) > 1 {
		name = pieces[1]
	}
	if banned[name] {
		return name
	}
	return ""
}
