package py

import (
	"math"
	"strings"
	"testing"
)

func TestLogarithm(t *testing.T) {
	for name, tc := range map[string]struct {
		value, base, precision Value
		want                   string
	}{
		"not quite three, as upstream": {int64(8), int64(2), int64(10), "mpf('3.000000000029')"},
		"zero":                         {int64(0), int64(2), int64(10), "mpf('-inf')"},
		"a negative value": {int64(-1), int64(2), int64(10),
			"mpc(real='0.0', imag='4.532360141806')"},
		"a negative base": {519.8789615295993, int64(-2), int64(2),
			"mpc(real='0.41895', imag='-1.8984')"},
		"a text that is a number": {"100", "1e1", "5", "mpf('2.0')"},
		"a fraction":              {"1/4", int64(2), int64(15), "mpf('-2.0')"},
		"base one":                {int64(8), int64(1), int64(10), ""},
		"a text that is none":     {"x", int64(2), int64(10), "cannot create mpf from 'x'"},
		"no value":                {nil, int64(2), int64(10), "cannot create mpf from None"},
		"a precision that is none": {int64(8), int64(2), "x",
			"invalid literal for int() with base 10: 'x'"},
		"more digits than there is memory for": {int64(8), int64(3), int64(1 << 40), ""},
	} {
		got, err := Logarithm(tc.value, tc.base, tc.precision)
		text := Repr(got)
		if err != nil {
			text = AsException(err).Message
		}
		if text != tc.want {
			t.Errorf("%s: got %q, want %q", name, text, tc.want)
		}
	}
}

func TestSquareRoot(t *testing.T) {
	for name, tc := range map[string]struct {
		number, precision Value
		want              string
	}{
		"inexact, as many digits as asked": {int64(2), int64(10), "1.414213562"},
		"exact, fewer digits":              {int64(16), int64(999_999_999_999_999_999), "4"},
		"exact, too long":                  {1e10, int64(3), "1.00E+5"},
		"exact, half to even":              {6.25, int64(1), "2"},
		"all nines round up":               {int64(9651), int64(1), "1E+2"},
		"small":                            {1e-10, int64(5), "0.000010000"},
		"smaller":                          {1e-320, int64(5), "9.9999E-161"},
		"not a number":                     {math.NaN(), int64(5), "NaN"},
		"minus zero":                       {math.Copysign(0, -1), int64(5), "-0"},
		"precision zero":                   {int64(2), int64(0), "ValueError: valid range for prec is [1, MAX_PREC]"},
		"precision of another kind":        {int64(2), 2.5, "TypeError: an integer is required"},
		"a number of another kind": {"4", int64(5),
			"TypeError: conversion from str to Decimal is not supported"},
		"more digits than memory can hold": {int64(2), int64(1 << 50), "MemoryError: "},
	} {
		got, err := SquareRoot(tc.number, tc.precision)
		text := Str(got)
		if err != nil {
			text = err.Error()
		}
		if text != tc.want {
			t.Errorf("%s: got %q, want %q", name, text, tc.want)
		}
	}
}

func FuzzLogarithmText(f *testing.F) {
	for _, s := range []string{"1e5", "-1/3", "inf", "1_0", "0x1", "٣", "1e99999999999", "1/0",
		strings.Repeat("9", 5000)} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if _, err := Logarithm(a, b, int64(3)); err != nil && !IsException(err, AsException(err).Class) {
			t.Errorf("Logarithm(%q, %q): %v is no Exception", a, b, err)
		}
	})
}
