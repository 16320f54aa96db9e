package py

import (
	"math"
	"math/big"
)

// pow is C's pow, correctly rounded where that is cheap to know. Go's math.Pow differs from it in the last place for
// many arguments, so the result is checked against 200-bit arithmetic.
func pow(x, y float64) float64 {
	f := math.Pow(x, y)
	if f == 0 || math.IsInf(f, 0) || math.IsNaN(f) || x == 1 || y == 1 || y == 0 || math.IsInf(y, 0) || math.IsInf(x, 0) {
		return f
	}
	sign := 1.0
	if x < 0 { // y is a whole number here
		x = -x
		if math.Mod(y, 2) != 0 {
			sign = -1
		}
	}
	return sign * bigPow(x, y)
}

const powPrec = 200

// bigPow is x**y for x > 0 with 200 bits, rounded once.
func bigPow(x, y float64) float64 {
	l := bigLog(new(big.Float).SetPrec(powPrec).SetFloat64(x))
	l.Mul(l, new(big.Float).SetPrec(powPrec).SetFloat64(y))
	f, _ := bigExp(l).Float64()
	return f
}

var ln2 = func() *big.Float {
	// ln 2 = 2 * atanh(1/3)
	return new(big.Float).SetPrec(powPrec+40).Mul(big.NewFloat(2), atanhSeries(new(big.Float).SetPrec(powPrec+40).Quo(big.NewFloat(1).SetPrec(powPrec+40), big.NewFloat(3).SetPrec(powPrec+40))))
}()

// atanhSeries is z + z**3/3 + z**5/5 + ..., for |z| <= 1/3.
func atanhSeries(z *big.Float) *big.Float {
	prec := z.Prec()
	sum := new(big.Float).SetPrec(prec).Set(z)
	power := new(big.Float).SetPrec(prec).Set(z)
	square := new(big.Float).SetPrec(prec).Mul(z, z)
	if z.Sign() == 0 {
		return sum
	}
	for n := int64(3); ; n += 2 {
		power.Mul(power, square)
		term := new(big.Float).SetPrec(prec).Quo(power, new(big.Float).SetInt64(n))
		if term.MantExp(nil) < sum.MantExp(nil)-int(prec) {
			return sum
		}
		sum.Add(sum, term)
	}
}

// bigLog is the natural logarithm of x > 0.
func bigLog(x *big.Float) *big.Float {
	prec := uint(powPrec + 40)
	m := new(big.Float).SetPrec(prec)
	e := x.MantExp(m) // m in [0.5, 1)
	if m.Cmp(big.NewFloat(0.7071067811865476)) < 0 {
		m.Mul(m, big.NewFloat(2))
		e--
	}
	one := new(big.Float).SetPrec(prec).SetInt64(1)
	z := new(big.Float).SetPrec(prec).Sub(m, one)
	z.Quo(z, new(big.Float).SetPrec(prec).Add(m, one))
	s := atanhSeries(z)
	s.Mul(s, big.NewFloat(2))
	k := new(big.Float).SetPrec(prec).SetInt64(int64(e))
	return s.Add(s, k.Mul(k, ln2))
}

// bigExp is e**x.
func bigExp(x *big.Float) *big.Float {
	prec := uint(powPrec + 40)
	q := new(big.Float).SetPrec(prec).Quo(x, ln2)
	f, _ := q.Float64()
	k := math.Round(f)
	if math.Abs(k) > 1<<20 { // far beyond the range of a float
		k = math.Copysign(1<<20, k)
	}
	r := new(big.Float).SetPrec(prec).SetFloat64(k)
	r.Mul(r, ln2)
	r.Sub(new(big.Float).SetPrec(prec).Set(x), r)
	sum := new(big.Float).SetPrec(prec).SetInt64(1)
	term := new(big.Float).SetPrec(prec).SetInt64(1)
	for n := int64(1); n < 400; n++ {
		term.Mul(term, r)
		term.Quo(term, new(big.Float).SetInt64(n))
		if term.Sign() == 0 || term.MantExp(nil) < -int(prec) {
			break
		}
		sum.Add(sum, term)
	}
	return sum.SetMantExp(sum, int(k))
}

// complexPow is (x+0j)**y for x < 0, as CPython computes it: length and angle apart. It only prints.
func complexPow(x, y float64) Value {
	length := pow(-x, y)
	angle := math.Atan2(0, x) * y
	sin, cos := sinCos(angle)
	return Complex(length*cos, length*sin)
}

// Complex is a complex number as Python prints it.
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
