package py

import (
	"math"
	"math/big"
)

// pow returns x**y correctly rounded. C's pow has an error of up to 0.52 units in the last place,
// so it differs for about one pair in fifty thousand.
func pow(x, y float64) float64 {
	ax, ay := math.Abs(x), math.Abs(y)
	if !(ax > 0) || math.IsInf(x, 0) || ax == 1 || !(ay >= 0x1p-65 && ay < 0x1p63) {
		return math.Pow(x, y) // exact, or 1, or out of range
	}
	if y == 2 {
		return x * x // the product is rounded once
	}
	const prec = 200
	exponent := new(big.Float).SetPrec(prec).SetFloat64(y)
	f := exponential(exponent.Mul(exponent, logFloat(big.NewFloat(ax), prec)))
	if x < 0 && math.Mod(y, 2) != 0 { // y is an integer here
		return -f
	}
	return f
}

// exponential returns e**t correctly rounded.
func exponential(t *big.Float) float64 {
	if t.Cmp(big.NewFloat(710)) > 0 {
		return math.Inf(1)
	}
	if t.Cmp(big.NewFloat(-746)) < 0 {
		return 0
	}
	const wp, halvings = 200, 12
	fixed, _ := new(big.Float).SetMantExp(t, wp).Int(nil)
	ln2 := ln2Fixed(wp)
	n, rest := new(big.Int).DivMod(fixed, ln2, new(big.Int)) // e**t = 2**n e**rest
	rest.Rsh(rest, halvings)
	one := new(big.Int).Lsh(big.NewInt(1), wp)
	sum, term := new(big.Int).Set(one), new(big.Int).Set(one)
	for k := int64(1); term.Sign() != 0; k++ {
		term.Rsh(term.Mul(term, rest), wp)
		term.Quo(term, big.NewInt(k))
		sum.Add(sum, term)
	}
	for range halvings {
		sum.Rsh(sum.Mul(sum, sum), wp)
	}
	e := new(big.Float).SetInt(sum)
	f, _ := e.SetMantExp(e, int(n.Int64())-wp).Float64()
	return f
}

// complexPow returns (x+0j)**y for x < 0. The last digits may differ from CPython's, which uses C's
// sine and cosine.
func complexPow(x, y float64) Value {
	length := pow(-x, y)
	sin, cos := math.Sincos(math.Atan2(0, x) * y)
	return Complex(length*cos, length*sin)
}

// Complex returns a complex number that prints like Python's.
func Complex(re, im float64) Value {
	part := func(f float64) string {
		b := appendFloat(nil, f)
		if n := len(b); n > 2 && b[n-1] == '0' && b[n-2] == '.' {
			b = b[:n-2]
		}
		return string(b)
	}
	text := part(im) + "j"
	if re != 0 || math.Signbit(re) {
		if text[0] != '-' {
			text = "+" + text
		}
		text = "(" + part(re) + text + ")"
	}
	return Opaque{Class: "complex", Text: text}
}
