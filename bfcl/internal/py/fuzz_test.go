package py

import (
	"strings"
	"testing"
)

var sources = []string{
	"f(a=1, b='x')", "f([1, 2.5, -3], {'a': None, 1: True})", "f(\"it's\", 'say \"hi\"')",
	"'a' 'b' r'\\d' u'x'", "b'x\\x00'", "f'{x}'", "'''a\nb'''", "1_000 + 0x1F - 0b1 ** -2",
	"a.b.c(*x, **y)[1:2, ::3]", "not a or b and c if d else e", "a < b <= c != d in e not in f is not g",
	"lambda x, *y, z=1: x", "[x for x in y if z]", "{1, 2}", "{**a, 'b': 2}",
	"(1,)", "()", "(x := 5)", "f(x for x in y)", "-+~1", "1e400 - 1e400", "0777", "1__0", "'\\ud800'",
	"'\\N{DASH}'", "\"\\\n\"", "f(a=1,)", "f(\n1,\n2)\n# end", "f(a==1)", "...", "1j",
	"f(a=1, a=2)", "f(1, a=2, 3)", "((((((", "]", "f(", "f)", "", " ", "f();", "é(a=1)", "f(a='é😀')",
	"f(a=-0.0, b=1e5, c=.5, d=5.)",
}

// FuzzParse checks that no text makes the parser panic, that errors have one of four classes, and
// that the repr of a literal's value parses to an equal value.
func FuzzParse(f *testing.F) {
	for _, s := range sources {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		e, err := Parse(src)
		if err != nil {
			if !IsException(err, "SyntaxError", "ValueError", "RecursionError", UnsupportedClass) {
				t.Errorf("%q: %v", src, err)
			}
			return
		}
		v, ok := Literal(e)
		text := Repr(v)
		// inf and nan are names, set() is a call, and an int beyond 4,300 digits has no text.
		if !ok || strings.Contains(text, "inf") || strings.Contains(text, "nan") || text == "set()" ||
			len(text) > 4300 {
			return
		}
		again, err := Parse(text)
		if err != nil {
			t.Fatalf("%q has the repr %q: %v", src, text, err)
		}
		if got, ok := Literal(again); !ok || !Equal(got, v) {
			t.Errorf("%q has the repr %q, which reads as %s", src, text, Repr(got))
		}
	})
}

// FuzzJSON checks that values of valid JSON survive a round trip.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a": [1, 2.0, null, true, "x\u00e9\ud83d\ude00"], "a": -0.0}`, `NaN`,
		`[1e400, -Infinity]`, `"\ud800"`, `01`, `{"a" 1}`, `[1,]`, "\"\x01\"", `12345678901234567890`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		v, err := FromJSON([]byte(src))
		if err != nil {
			return
		}
		text, err := JSON(v)
		if err != nil {
			t.Fatalf("%q was read, but cannot be written: %v", src, err)
		}
		again, err := FromJSON([]byte(text))
		if err != nil {
			t.Fatalf("%q was written as %q: %v", src, text, err)
		}
		if Repr(again) != Repr(v) {
			t.Errorf("%q: got %s, want %s", src, Repr(again), Repr(v))
		}
	})
}
