package py

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"rcgrpo/internal/must"
)

func TestEqualKeysOfDifferentTypesAreOneKey(t *testing.T) {
	huge := new(big.Int).Lsh(big.NewInt(1), 70)
	d := NewDict(int64(1), "one", "1", "text", huge, "huge", nil, "none", Tuple{int64(1), "a"}, "tuple", 0.5,
		"half")
	for i := range 100 {
		d.Set(fmt.Sprintf("filler %d", i), nil) // exceeds indexFrom
	}
	for name, tc := range map[string]struct {
		key  Value
		want Value
	}{
		"float":        {1.0, "one"},
		"bool":         {true, "one"},
		"text":         {"1", "text"},
		"huge float":   {math.Ldexp(1, 70), "huge"},
		"None":         {nil, "none"},
		"tuple":        {Tuple{1.0, "a"}, "tuple"},
		"half":         {0.5, "half"},
		"absent":       {int64(2), nil},
		"empty tuple":  {Tuple{}, nil},
		"not a number": {math.NaN(), nil},
	} {
		if got, _ := d.Get(tc.key); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
	d.Set(true, "changed")
	if k, v := d.At(0); k != int64(1) || v != "changed" {
		t.Errorf("got %v: %v, want the old key in its old place with the new value", k, v)
	}
	if !d.Delete(1.0) || d.Has(int64(1)) {
		t.Error("1.0 does not delete the key 1")
	}
	must.Match(t, d.SetErr(NewList(), 1), "TypeError: unhashable type: 'list'", "a list as a key")
}

func TestEqualityAsInPython(t *testing.T) {
	loop := NewList()
	loop.Append(loop)
	other := NewList()
	other.Append(other)
	for name, tc := range map[string]struct {
		a, b Value
		want bool
	}{
		"int and float":               {int64(1), 1.0, true},
		"int and bool":                {int64(1), true, true},
		"text and int":                {"1", int64(1), false},
		"2**53+1 is not its float":    {int64(1<<53 + 1), float64(1 << 53), false},
		"None and False":              {nil, false, false},
		"dicts in another order":      {NewDict("a", int64(1), "b", 2.0), NewDict("b", int64(2), "a", true), true},
		"dicts with another key":      {NewDict("a", nil), NewDict("b", nil), false},
		"lists in another order":      {NewList("a", "b"), NewList("b", "a"), false},
		"list and tuple":              {NewList("a"), Tuple{"a"}, false},
		"2**62 and its float":         {int64(1 << 62), float64(1 << 62), true},
		"2**64 and its float":         {new(big.Int).Lsh(big.NewInt(1), 64), float64(1 << 64), true},
		"-0.0":                        {math.Copysign(0, -1), false, true},
		"tuples as keys":              {NewDict(Tuple{int64(1)}, "a"), NewDict(Tuple{1.0}, "a"), true},
		"items of a text":             {NewList("a", "b"), NewList(`a", "b`), false},
		"sets in another order":       {NewSet("a", "b"), NewSet("b", "a"), true},
		"NaN":                         {math.NaN(), math.NaN(), false},
		"a list inside itself":        {loop, loop, true},
		"two lists inside themselves": {loop, other, false},
	} {
		if got := Equal(tc.a, tc.b); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
		if !strings.Contains(name, "inside") && (Key(tc.a) == Key(tc.b)) != tc.want {
			t.Errorf("%s: the keys are %s and %s", name, Key(tc.a), Key(tc.b))
		}
	}
	if _, err := EqualErr(loop, other); !IsException(err, "RecursionError") {
		t.Errorf("two lists inside themselves: got %v, want RecursionError", err)
	}
}

// A tuple of 8,000 floats, 197 tuples deep, took 0.7 s as a key, and a minute in a row of tasks; an integer of 131,000
// bits 1.3 ms, and hours.
func TestKeysTakeLittleTime(t *testing.T) {
	deep := Tuple(slices.Repeat([]Value{1e308}, 8000))
	for range 197 {
		deep = Tuple{deep}
	}
	begin := time.Now()
	for range 300 {
		must.OK(t, Hashable(deep))
	}
	long := new(big.Int).Lsh(big.NewInt(3), 131_000)
	one, other := NewDict(), NewDict()
	for i := range 8 {
		key := Tuple{new(big.Int).Add(long, big.NewInt(int64(i)))}
		one.Set(key, nil)
		other.Set(Tuple{new(big.Int).Set(key[0].(*big.Int))}, nil)
	}
	for range 20_000 {
		if must.OK(t, Hashable(long)); !Equal(one, other) {
			t.Fatal("equal dicts differ")
		}
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("the keys took %v", took)
	}
	must.Match(t, Hashable(Tuple{deep, Tuple{NewList()}}), "unhashable type: 'list'")
}

func TestTextsOfValues(t *testing.T) {
	loop := NewDict("a", int64(1))
	loop.Set("self", loop)
	for name, tc := range map[string]struct {
		v    Value
		repr string
		json string // "" where json.dumps raises
	}{
		"text with both quotes": {"it's \"x\"", `'it\'s "x"'`, `"it's \"x\""`},
		"text with one quote":   {"it's", `"it's"`, `"it's"`},
		"controls":              {"\x00\x7f\n\u0085\u2028", `'\x00\x7f\n\x85\u2028'`, `"\u0000\u007f\n\u0085\u2028"`},
		"beyond the BMP":        {"é😀\U000e0001", "'é😀\\U000e0001'", `"\u00e9\ud83d\ude00\udb40\udc01"`},
		"long run, then escape": {"0123456789abcdef0123456789\"'", `'0123456789abcdef0123456789"\''`,
			`"0123456789abcdef0123456789\"'"`},
		"numbers": {NewList(1e16, 1e-5, 100.0, math.Copysign(0, -1), int64(-7), math.Inf(1)),
			"[1e+16, 1e-05, 100.0, -0.0, -7, inf]", "[1e+16, 1e-05, 100.0, -0.0, -7, Infinity]"},
		"tuples": {Tuple{int64(1)}, "(1,)", "[1]"},
		"keys": {NewDict(int64(1), nil, true, nil, 1.5, false, nil, true),
			"{1: None, 1.5: False, None: True}", `{"1": null, "1.5": false, "null": true}`},
		"tuple as a key":     {NewDict(Tuple{int64(1), int64(2)}, nil), "{(1, 2): None}", ""},
		"set":                {NewDict("s", NewSet("a")), "{'s': {'a'}}", ""},
		"dict inside itself": {loop, "{'a': 1, 'self': {...}}", ""},
		"Ellipsis":           {NewList(Ellipsis), "[Ellipsis]", ""},
	} {
		if got := Repr(tc.v); got != tc.repr {
			t.Errorf("%s: repr is %s, want %s", name, got, tc.repr)
		}
		got, err := JSON(tc.v)
		if (err != nil) != (tc.json == "") || err == nil && got != tc.json {
			t.Errorf("%s: JSON is %s (%v), want %s", name, got, err, tc.json)
		}
	}
	for digits, refused := range map[int64]bool{4300: false, 4301: true} {
		v := must.Get(Pow(int64(10), digits-1))(t)
		if _, err := Result(NewDict("result", v)); (err != nil) != refused {
			t.Errorf("an int of %d digits: got %v, refused should be %v", digits, err, refused)
		}
	}
	if got, _ := Result(loop); got != "{'a': 1, 'self': {...}}" {
		t.Errorf("a dict that JSON cannot take: got %s, want its repr", got)
	}
}

func TestEvaluationOfExpressions(t *testing.T) {
	wants := map[string]string{
		"[1, 2][-1]": "2", "{'a': 1}['a']": "1", "-+-1": "1", "-True": "-1", "+True": "1", "{1, 1.0}": "{1}",
		"1, 'a',": "(1, 'a')",
		"'x' 'y'": "'xy'", "r'\\n'": `'\\n'`, "0x1f": "31", "1_000": "1000", "(1)": "1", "1e400": "inf",
		"max": "NameError: name 'max' is not defined", "max()": "NameError: name 'max' is not defined",

		"{}['k']": "KeyError: 'k'", "{1: 'one'}[1.0]": "'one'", "{}[[]]": "TypeError: unhashable type: 'list'",
		"['a', 'b', 'c'][-3]": "'a'", "['a', 'b'][True]": "'b'", "[][0]": "IndexError: list index out of range",
		"['a'][-2]":                      "IndexError: list index out of range",
		"[1][1208925819614629174706176]": "IndexError: cannot fit 'int' into an index-sized integer",
		"[1]['k']":                       "TypeError: list indices must be integers or slices, not str",
		"('a',)[0]":                      "'a'",
		"('a',)[1]":                      "IndexError: tuple index out of range",
		"'aé'[-1]":                       "'é'",
		"''[0]":                          "IndexError: string index out of range",
		"'abc'['k']":                     "TypeError: string indices must be integers, not 'str'",
		"5['k']":                         "TypeError: 'int' object is not subscriptable",
		"None[0]":                        "TypeError: 'NoneType' object is not subscriptable",
		"{'a'}[0]":                       "TypeError: 'set' object is not subscriptable",
		"{[]: 1}":                        "TypeError: unhashable type: 'list'",
		"-'a'":                           "TypeError: bad operand type for unary -: 'str'",

		"f(1":         "SyntaxError: '(' was never closed (<string>, line 1)",
		"f(a=1, a=2)": "SyntaxError: keyword argument repeated: a (<string>, line 1)",
		"":            "SyntaxError: invalid syntax (<string>, line 0)",
		"1;":          "SyntaxError: invalid syntax (<string>, line 1)",
		"x = 1":       "SyntaxError: invalid syntax (<string>, line 1)",
		"'a":          "SyntaxError: unterminated string literal (detected at line 1) (<string>, line 1)",
		"[1)":         "SyntaxError: closing parenthesis ')' does not match opening parenthesis '[' (<string>, line 1)",
	}
	for _, src := range []string{
		"1 + 2", "2 ** -1", "not 0", "1 < 2 < 3", "1 if 2 else 3", "'abc'[::-1]", "'abc'[1:]", "2 in [1]",
		"~5", "0 or 'x'", "[*[1]]", "{**{}}", "f(*a)", "f(**a)", "lambda x: x", "[x for x in y]", "f'{x}'",
		"b'x'", "1j", "...", "f(x := 1)", "x == 1",
	} {
		wants[src] = "UnsupportedExpression: unsupported expression"
	}
	for src, want := range wants {
		got := ""
		e, err := Parse(src)
		if err == nil {
			var v Value
			if v, err = Eval(e, nothing{}); err == nil {
				got = Repr(v)
			}
		}
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", src, got, want)
		}
	}
}

func TestItemAssignment(t *testing.T) {
	list, dict := NewList("a", "b"), NewDict("k", "v")
	for name, tc := range map[string]struct {
		in, key Value
		err     string
	}{
		"dict":             {dict, "k", ""},
		"dict, unhashable": {dict, dict, "TypeError: unhashable type: 'dict'"},
		"list":             {list, int64(-1), ""},
		"list, outside":    {list, int64(2), "IndexError: list assignment index out of range"},
		"list, text":       {list, "k", "TypeError: list indices must be integers or slices, not str"},
		"text":             {"abc", int64(0), "TypeError: 'str' object does not support item assignment"},
		"None":             {nil, "k", "TypeError: 'NoneType' object does not support item assignment"},
	} {
		must.Match(t, SetItem(tc.in, tc.key, "new"), tc.err, name)
		if got, _ := GetItem(tc.in, tc.key); tc.err == "" && got != "new" {
			t.Errorf("%s: got %v after the assignment, want new", name, got)
		}
	}
}

type nothing struct{}

func (nothing) Lookup(name string) (Value, error) {
	return nil, Raise("NameError", "name '%s' is not defined", name)
}
func (nothing) Attribute(x Value, name string) (Value, error) { return nil, AttributeError(x, name) }
func (nothing) Call(f Value, _ []Value, _ []Argument) (Value, error) {
	return nil, Raise("TypeError", "'%s' object is not callable", TypeName(f))
}

func TestDeepNestingIsAnError(t *testing.T) {
	for name, src := range map[string]string{
		"brackets": repeated("[", 5000), "signs": repeated("-", 100000) + "1", "attributes": "a" +
			repeated(".a", 100000),
	} {
		if _, err := Parse(src); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func repeated(s string, n int) string { return string(slices.Repeat([]byte(s), n)) }

func TestCloneKeepsSharing(t *testing.T) {
	inner := NewList("x")
	outer := NewDict("a", inner, "b", inner)
	c := Clone(outer, &Memo{}).(*Dict)
	a, _ := c.Get("a")
	b, _ := c.Get("b")
	if a != b || a == Value(inner) {
		t.Error("two references to one list became two lists, or the list was not copied")
	}
	a.(*List).Append("y")
	if len(inner.Items) != 1 {
		t.Error("a change of the copy reached the original")
	}
}

// At each depth all that is below was compared.
func TestDeepListsAreComparedOnce(t *testing.T) {
	deep := func(last int64) Value {
		items := make([]Value, 20_000)
		for i := range items {
			items[i] = int64(i)
		}
		var v Value = NewList(append(items, last)...)
		for range 700 {
			v = Tuple{v}
		}
		return v
	}
	a, b, begin := deep(1), deep(2), time.Now()
	for range 40 {
		if less, err := Compare("<", a, b); !less || err != nil {
			t.Fatalf("got %v (%v)", less, err)
		}
	}
	if took := time.Since(begin); took > 4*time.Second {
		t.Errorf("40 comparisons took %v", took)
	}
}
