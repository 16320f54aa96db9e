package py

import (
	"math"
	"math/big"
)

// sinCos gives the correctly rounded sine and cosine of a finite x. C's functions nearly always are; Go's are some
// units off in the last places near multiples of pi/2, where the powers of negative numbers lie.
func sinCos(x float64) (sin, cos float64) {
	if x == 0 {
		return x, 1
	}
	_, exp := math.Frexp(x)
	wp := uint(200 + max(exp, -2*exp)) // bits after the point; a small x needs its own leading zeros and its square's
	r, _ := new(big.Float).SetMantExp(big.NewFloat(x), int(wp)).Int(nil)
	half := piFixed(wp - 1) // pi/2 at wp bits
	if exp > 0 {
		half = piFixed(wp + uint(exp) - 1)
		r.Lsh(r, uint(exp))
		wp += uint(exp)
	}
	quarter := new(big.Int).Rsh(half, 1)
	turns, rest := new(big.Int).DivMod(quarter.Add(quarter, r), half, new(big.Int)) // turns = floor(r/half + 1/2)
	r = rest.Sub(rest, new(big.Int).Rsh(half, 1))
	s, c := series(r, wp, 1), series(r, wp, 0)
	switch new(big.Int).And(turns, big.NewInt(3)).Int64() {
	case 1:
		s, c = c, -s
	case 2:
		s, c = -s, -c
	case 3:
		s, c = -c, s
	}
	return s, c
}

// series is the sine of r / 2^wp for first 1, the cosine for first 0, rounded once. |r / 2^wp| is below 1.
func series(r *big.Int, wp uint, first int64) float64 {
	term := new(big.Int).Lsh(big.NewInt(1), wp)
	if first == 1 {
		term.Set(r)
	}
	square := new(big.Int).Mul(r, r)
	square.Rsh(square, wp)
	sum := new(big.Int).Set(term)
	one := new(big.Int).Lsh(big.NewInt(1), wp)
	for k := first + 1; term.Sign() != 0; k += 2 {
		term.Mul(term, square)
		term.Quo(term, one)
		term.Quo(term, big.NewInt(-k*(k+1)))
		sum.Add(sum, term)
	}
	f := new(big.Float).SetPrec(53).SetInt(sum)
	v, _ := f.SetMantExp(f, -int(wp)).Float64()
	return v
}
