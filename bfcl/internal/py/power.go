package py

import (
	"math"
	"math/big"
	"sync"
)

// pow is C's pow as glibc computes it on a processor with fused multiply-add, to the last bit. That is within 0.52 units
// of the last place, not always the nearest float: x**2 and x*x differ for one x in about 1,200.
func pow(x, y float64) float64 {
	ax, ay := math.Abs(x), math.Abs(y)
	if !(ax > 0) || math.IsInf(x, 0) || ax == 1 || !(ay >= 0x1p-65 && ay < 0x1p63) {
		return math.Pow(x, y) // exact, or 1, or out of range
	}
	f := powPositive(ax, y)
	if x < 0 && math.Mod(y, 2) != 0 { // y is a whole number here
		return -f
	}
	return f
}

const (
	powCells  = 128                // cells per power of two, in both tables
	powOrigin = 0x3fe6955500000000 // bits of the lower end of the first cell, about 0.706
	roundBias = 0x1.8p52           // added to a float it leaves the nearest whole number in the low bits
)

// powTable holds, for each cell of [0.706, 1.411), a point c near its middle whose inverse has few bits, and the
// powers of 2**(1/128).
type powTable struct {
	inverse      [powCells]float64 // 1/c, a multiple of 1/128 above 1 and of 1/256 below
	log, logTail [powCells]float64 // ln c as a multiple of 2**-43, and what is missing
	root         [powCells]uint64  // bits of 2**(k/128), with k/128 taken out of the exponent field
	rootTail     [powCells]float64 // what it lacks, relative to it
}

var powTables = sync.OnceValue(func() *powTable {
	const wp = 200
	t := &powTable{}
	root := new(big.Float).SetPrec(wp).SetInt64(2)
	for range 7 {
		root.Sqrt(root)
	}
	power := new(big.Float).SetPrec(wp).SetInt64(1)
	for i := range t.inverse {
		low := math.Float64frombits(powOrigin + uint64(i)<<45)
		high := math.Float64frombits(powOrigin + uint64(i+1)<<45)
		steps := 128.0
		if low >= 1 {
			steps = 256
		}
		t.inverse[i] = math.Round(steps*2/(low+high)) / steps

		log := logFixed(big.NewFloat(t.inverse[i]), wp)
		log.Neg(log)
		grid := new(big.Int).Lsh(big.NewInt(1), wp-44)
		head := new(big.Int).Rsh(grid.Add(grid, log), wp-43)
		t.log[i], _ = fromFixed(head, 43, 53).Float64()
		t.logTail[i], _ = fromFixed(log.Sub(log, head.Lsh(head, wp-43)), wp, 53).Float64()

		h, _ := power.Float64()
		t.root[i] = math.Float64bits(h) - uint64(i)<<45
		rest := new(big.Float).Quo(power, new(big.Float).SetPrec(wp).SetFloat64(h))
		t.rootTail[i], _ = rest.Sub(rest, big.NewFloat(1)).Float64()
		power.Mul(power, root)
	}
	return t
})

// powPositive is x**y for finite x > 0 and 2**-65 <= |y| < 2**63: the logarithm in two parts, times y, into the
// exponential. The order of operations and where they are fused decide the last bit.
func powPositive(x, y float64) float64 {
	t := powTables()
	bits := math.Float64bits(x)
	if bits>>52 == 0 { // subnormal: the exponent goes below zero
		bits = math.Float64bits(x*0x1p52) - 52<<52
	}
	log, logTail := t.logarithm(bits)
	product := float64(y * log)
	return t.exponential(product, math.FMA(y, logTail, math.FMA(y, log, -product)))
}

// logarithm gives ln x, the nearest float and some 15 bits more, for the x with these bits.
func (t *powTable) logarithm(bits uint64) (log, tail float64) {
	const (
		ln2, ln2Tail = 0x1.62e42fefa3800p-1, 0x1.ef35793c76730p-45
		// ln(1+r) = r - r*r/2 + r**3 (...), fitted to |r| < 0.0056; scaled by powers of -1/2
		c3, c4, c5 = -0x1.555555555556p-1, 0x1.0000000000006p-1, 0x1.999999959554ep-1
		c6, c7, c8 = -0x1.555555529a47ap-1, -0x1.2495b9b4845e9p0, 0x1.0002b8b263fc3p0
	)
	above := bits - powOrigin
	i := above >> 45 % powCells
	k := float64(int64(above) >> 52)
	z := math.Float64frombits(bits - above&(0xfff<<52)) // x = z * 2**k
	r := math.FMA(z, t.inverse[i], -1)                  // exact

	whole := math.FMA(k, ln2, t.log[i])
	a := whole + r
	rest := math.FMA(k, ln2Tail, t.logTail[i]) + (whole - a + r)
	half := float64(-0.5 * r)
	square := float64(r * half)
	b := a + square
	rest = rest + math.FMA(half, r, -square) + (a - b + square)
	series := math.FMA(square, math.FMA(r, c8, c7), math.FMA(r, c6, c5))
	series = math.FMA(square, series, math.FMA(r, c4, c3))
	rest = math.FMA(float64(r*square), series, rest)
	log = b + rest
	return log, b - log + rest
}

// exponential is e**(x+tail), where tail is below the last place of x.
func (t *powTable) exponential(x, tail float64) float64 {
	const (
		perLn2            = 0x1.71547652b82fep0 * powCells
		ln2, ln2Tail      = -0x1.62e42fefa0000p-8, -0x1.cf79abc9e3b3ap-47 // -ln(2)/128
		c2, c3, c4, c5    = 0x1.ffffffffffdbdp-2, 0x1.555555555543cp-3, 0x1.55555cf172b91p-5, 0x1.1111167a4d017p-7
		tiny, huge, large = 0x1p-54, 1024, 512
	)
	switch size := math.Abs(x); {
	case size < tiny:
		return 1 + x
	case size >= huge && x < 0:
		return 0
	case size >= huge:
		return math.Inf(1)
	}
	biased := math.FMA(perLn2, x, roundBias)
	n := math.Float64bits(biased) // its low bits are the nearest multiple of ln(2)/128
	k := biased - roundBias
	r := math.FMA(k, ln2Tail, math.FMA(k, ln2, x)) + tail
	square := float64(r * r)
	m := math.FMA(square, math.FMA(r, c3, c2), t.rootTail[n%powCells]+r)
	m = math.FMA(float64(square*square), math.FMA(r, c5, c4), m)
	scale := t.root[n%powCells] + n<<45
	if math.Abs(x) < large {
		s := math.Float64frombits(scale)
		return math.FMA(s, m, s)
	}
	if x > 0 { // the exponent field may have overflowed
		s := math.Float64frombits(scale - 1009<<52)
		return 0x1p1009 * math.FMA(s, m, s)
	}
	s := math.Float64frombits(scale + 1022<<52)
	gain := float64(s * m) // not fused here
	f := s + gain
	if f < 1 { // subnormal: round once, at the place where its last bit will be
		rest := s - f + gain
		up := 1 + f
		f = up + (1 - up + f + rest) - 1
	}
	return 0x1p-1022 * f
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
