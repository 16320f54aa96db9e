package py

import (
	"math/big"
	"testing"
)

func TestSubscript(t *testing.T) {
	list := NewList("a", "b", "c")
	dict := NewDict("k", "v", int64(1), "one")
	huge := new(big.Int).Lsh(big.NewInt(1), 80)
	for name, tc := range map[string]struct {
		in, key Value
		want    Value
		err     string
	}{
		"dict":               {dict, "k", "v", ""},
		"dict, equal number": {dict, 1.0, "one", ""},
		"dict, missing":      {dict, "x", nil, "KeyError: 'x'"},
		"dict, unhashable":   {dict, list, nil, "TypeError: unhashable type: 'list'"},
		"list":               {list, int64(1), "b", ""},
		"list, from the end": {list, int64(-3), "a", ""},
		"list, bool":         {list, true, "b", ""},
		"list, outside":      {list, int64(3), nil, "IndexError: list index out of range"},
		"list, below":        {list, int64(-4), nil, "IndexError: list index out of range"},
		"list, huge":         {list, huge, nil, "IndexError: cannot fit 'int' into an index-sized integer"},
		"list, text":         {list, "k", nil, "TypeError: list indices must be integers or slices, not str"},
		"tuple":              {Tuple{"a"}, int64(0), "a", ""},
		"tuple, outside":     {Tuple{"a"}, int64(1), nil, "IndexError: tuple index out of range"},
		"text":               {"aé", int64(-1), "é", ""},
		"text, outside":      {"", int64(0), nil, "IndexError: string index out of range"},
		"text, text":         {"abc", "k", nil, "TypeError: string indices must be integers, not 'str'"},
		"int":                {int64(5), "k", nil, "TypeError: 'int' object is not subscriptable"},
		"None":               {nil, int64(0), nil, "TypeError: 'NoneType' object is not subscriptable"},
		"set":                {NewSet("a"), int64(0), nil, "TypeError: 'set' object is not subscriptable"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := GetItem(tc.in, tc.key)
			if errorText(err) != tc.err || !Equal(got, tc.want) {
				t.Errorf("%s[%s]: got %v, %q, want %v, %q", Repr(tc.in), Repr(tc.key), got, errorText(err), tc.want, tc.err)
			}
		})
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
		t.Run(name, func(t *testing.T) {
			err := SetItem(tc.in, tc.key, "new")
			if errorText(err) != tc.err {
				t.Fatalf("got %q, want %q", errorText(err), tc.err)
			}
			if err == nil {
				if got, _ := GetItem(tc.in, tc.key); got != "new" {
					t.Errorf("after the assignment: got %v, want new", got)
				}
			}
		})
	}
}
