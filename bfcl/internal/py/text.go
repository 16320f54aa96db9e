package py

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// sinceUnicode15 contains the printable runes of Go's Unicode tables that Unicode 14, the version of
// Python 3.11, lacks.
var sinceUnicode15 = &unicode.RangeTable{
	R16: []unicode.Range16{{0x0cf3, 0x0cf3, 1}, {0x0ece, 0x0ece, 1}},
	R32: []unicode.Range32{
		{0x10efd, 0x10eff, 1}, {0x1123f, 0x11241, 1}, {0x11b00, 0x11b09, 1}, {0x11f00, 0x11f10, 1}, {0x11f12, 0x11f3a, 1},
		{0x11f3e, 0x11f59, 1}, {0x1342f, 0x1342f, 1}, {0x13440, 0x13455, 1}, {0x1b132, 0x1b132, 1}, {0x1b155, 0x1b155, 1},
		{0x1d2c0, 0x1d2d3, 1}, {0x1df25, 0x1df2a, 1}, {0x1e030, 0x1e06d, 1}, {0x1e08f, 0x1e08f, 1}, {0x1e4d0, 0x1e4f9, 1},
		{0x1f6dc, 0x1f6dc, 1}, {0x1f774, 0x1f776, 1}, {0x1f77b, 0x1f77f, 1}, {0x1f7d9, 0x1f7d9, 1}, {0x1fa75, 0x1fa77, 1},
		{0x1fa87, 0x1fa88, 1}, {0x1faad, 0x1faaf, 1}, {0x1fabb, 0x1fabd, 1}, {0x1fabf, 0x1fabf, 1}, {0x1face, 0x1facf, 1},
		{0x1fada, 0x1fadb, 1}, {0x1fae8, 0x1fae8, 1}, {0x1faf7, 0x1faf8, 1}, {0x2b739, 0x2b739, 1}, {0x31350, 0x323af, 1},
	},
}

// Printable is str.isprintable of one rune, by Unicode 14.
func Printable(r rune) bool {
	if r < 0x7f {
		return r >= 0x20
	}
	return unicode.IsPrint(r) && !unicode.Is(sinceUnicode15, r)
}

// digitsOnly are runes that isdigit accepts and int() rejects, such as superscripts.
var digitsOnly = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0xb2, 0xb3, 1}, {0xb9, 0xb9, 1}, {0x1369, 0x1371, 1}, {0x19da, 0x19da, 1}, {0x2070, 0x2070, 1}, {0x2074, 0x2079, 1},
		{0x2080, 0x2089, 1}, {0x2460, 0x2468, 1}, {0x2474, 0x247c, 1}, {0x2488, 0x2490, 1}, {0x24ea, 0x24ea, 1},
		{0x24f5, 0x24fd, 1}, {0x24ff, 0x24ff, 1}, {0x2776, 0x277e, 1}, {0x2780, 0x2788, 1}, {0x278a, 0x2792, 1},
	},
	R32: []unicode.Range32{{0x10a40, 0x10a43, 1}, {0x10e60, 0x10e68, 1}, {0x11052, 0x1105a, 1},
		{0x1f100, 0x1f10a, 1}},
	LatinOffset: 2,
}

// Decimal reports whether int() accepts a rune as a digit, in any script.
func Decimal(r rune) bool { return unicode.IsDigit(r) && !unicode.Is(sinceUnicode15, r) }

// IsDigit is str.isdigit: not empty, and digits only (including superscripts).
func IsDigit(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !Decimal(r) && !unicode.Is(digitsOnly, r) })
}

// DigitValue returns the value of a decimal digit. The digits of every script are ten consecutive
// runes.
func DigitValue(r rune) int {
	if r >= '0' && r <= '9' {
		return int(r - '0')
	}
	for _, t := range unicode.Digit.R16 {
		if rune(t.Lo) <= r && r <= rune(t.Hi) {
			return int(r-rune(t.Lo)) % 10
		}
	}
	for _, t := range unicode.Digit.R32 {
		if rune(t.Lo) <= r && r <= rune(t.Hi) {
			return int(r-rune(t.Lo)) % 10
		}
	}
	return 0
}

// Space is str.isspace of one rune: Unicode white space and the four separators 0x1c to 0x1f.
func Space(r rune) bool {
	return r >= 0x1c && r <= 0x1f || unicode.IsSpace(r)
}

// Strip is str.strip() without arguments.
func Strip(s string) string { return strings.TrimFunc(s, Space) }

// RuneLen is len(s), in code points.
func RuneLen(s string) int { return utf8.RuneCountInString(s) }

// SplitLines is str.splitlines(): all line breaks of Python, no empty last line.
func SplitLines(s string) []string {
	lines := []string{}
	start := 0
	for i := 0; i < len(s); {
		n := lineBreak(s, i)
		if n == 0 {
			i++
			continue
		}
		lines = append(lines, s[start:i])
		i += n
		start = i
	}
	if start < len(s) {
		lines = append(lines, s[start:])
	}
	return lines
}

// lineBreak returns the byte length of the line break at s[i], or 0.
func lineBreak(s string, i int) int {
	switch c := s[i]; {
	case c == '\r':
		if i+1 < len(s) && s[i+1] == '\n' {
			return 2
		}
		return 1
	case c >= '\n' && c <= '\f', c >= 0x1c && c <= 0x1e:
		return 1
	case c == 0xc2 && i+1 < len(s) && s[i+1] == 0x85:
		return 2
	case c == 0xe2 && i+2 < len(s) && s[i+1] == 0x80 && (s[i+2] == 0xa8 || s[i+2] == 0xa9):
		return 3
	}
	return 0
}

// Lower is str.lower(), with the final sigma and the dotted capital I.
func Lower(s string) string {
	runes := []rune(s)
	var b strings.Builder
	b.Grow(len(s))
	for i, r := range runes {
		switch {
		case r == 'Σ' && finalSigma(runes, i):
			b.WriteRune('ς')
		case r == 'İ':
			b.WriteString("i̇")
		default:
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}

// finalSigma is Unicode's Final_Sigma condition: a cased letter before, none after, case-ignorable
// runes skipped.
func finalSigma(runes []rune, i int) bool {
	j := i - 1
	for j >= 0 && caseIgnorable(runes[j]) {
		j--
	}
	if j < 0 || !cased(runes[j]) {
		return false
	}
	j = i + 1
	for j < len(runes) && caseIgnorable(runes[j]) {
		j++
	}
	return j == len(runes) || !cased(runes[j])
}

func cased(r rune) bool {
	return unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r) ||
		unicode.Is(unicode.Other_Lowercase, r) || unicode.Is(unicode.Other_Uppercase, r)
}

func caseIgnorable(r rune) bool {
	switch r {
	case '\'', '.', ':', 0xb7, 0x387, 0x55f, 0x5f4, 0x2018, 0x2019, 0x2024,
		0x2027, 0xfe13, 0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a:
		return true
	}
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk)
}
