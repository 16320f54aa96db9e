package py

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// maxDigits limits the decimal precision of Logarithm, whose time grows faster than its digits: 5,000 take 0.1 s.
// Beyond it, where Python would compute on, Logarithm returns a MemoryError.
const maxDigits = 5_000

// maxExponent limits the decimal exponent of a text.
const maxExponent = 20_000

// bitsPerDigit is log2(10) as rounded by mpmath.
const bitsPerDigit = 3.3219280948873626

// mpf is mpmath's number: a binary fraction, an infinity, or NaN. There is no negative zero.
type mpf struct {
	nan bool
	f   *big.Float // finite or infinite; nil only with nan
}

var mpfNaN = mpf{nan: true}

func mpfInf(negative bool) mpf { return mpf{f: new(big.Float).SetInf(negative)} }

func (x mpf) sign() int    { return x.f.Sign() }
func (x mpf) isZero() bool { return !x.nan && x.f.Sign() == 0 }
func (x mpf) isInf() bool  { return !x.nan && x.f.IsInf() }

func (x mpf) neg() mpf {
	if x.nan {
		return x
	}
	return mpf{f: new(big.Float).Neg(x.f)}
}

// mul returns the exact product.
func (x mpf) mul(y mpf) mpf {
	if x.nan || y.nan || x.isZero() && y.isInf() || x.isInf() && y.isZero() {
		return mpfNaN
	}
	return mpf{f: new(big.Float).SetPrec(x.f.MinPrec()+y.f.MinPrec()+1).Mul(x.f, y.f)}
}

// add returns the sum truncated to prec bits.
func (x mpf) add(y mpf, prec uint) mpf {
	if x.nan || y.nan || x.isInf() && y.isInf() && x.sign() != y.sign() {
		return mpfNaN
	}
	return mpf{f: new(big.Float).SetPrec(prec).SetMode(big.ToZero).Add(x.f, y.f)}
}

// div returns the quotient rounded to prec bits, half to even. Division by zero is mpmath's
// ZeroDivisionError without text.
func (x mpf) div(y mpf, prec uint) (mpf, error) {
	switch {
	case y.isZero():
		return mpf{}, Raise("ZeroDivisionError", "")
	case x.nan || y.nan || x.isInf() && y.isInf():
		return mpfNaN, nil
	}
	return mpf{f: new(big.Float).SetPrec(prec).Quo(x.f, y.f)}, nil
}

// mpc is mpmath's complex number.
type mpc struct{ re, im mpf }

// div returns x/y. xReal and yReal mark plain mpf operands: for each combination mpmath uses
// another formula with other roundings.
func (x mpc) div(y mpc, xReal, yReal bool, prec uint) (q mpc, err error) {
	re, im, scale := x.re, x.im, y.re
	switch {
	case yReal:
	case xReal:
		scale = y.re.mul(y.re).add(y.im.mul(y.im), prec+10)
		re, im = y.re.mul(x.re), y.im.mul(x.re).neg()
	default:
		scale = y.re.mul(y.re).add(y.im.mul(y.im), prec+10)
		re = x.re.mul(y.re).add(x.im.mul(y.im), prec+10)
		im = x.im.mul(y.re).add(x.re.mul(y.im).neg(), prec+10)
	}
	if q.re, err = re.div(scale, prec); err != nil {
		return mpc{}, err
	}
	q.im, err = im.div(scale, prec)
	return q, err
}

// Logarithm returns ln(value)/ln(base) like mpmath at the decimal precision: each logarithm is
// rounded to the binary precision, then the quotient is. A negative argument makes the result
// complex. The result is an Opaque mpf or mpc with the digits of its own precision; mpmath would
// print it at the precision set last. Errors are *Exception with mpmath's texts.
func Logarithm(value, base, precision Value) (Value, error) {
	digits, bits, err := mpPrecision(precision)
	if err != nil {
		return nil, err
	}
	num, numReal, err := mpLog(value, bits)
	if err != nil {
		return nil, err
	}
	den, denReal, err := mpLog(base, bits)
	if err != nil {
		return nil, err
	}
	if numReal && denReal {
		q, err := num.re.div(den.re, bits)
		if err != nil {
			return nil, err
		}
		text := q.text(digits)
		return Opaque{Class: "mpf", Text: "mpf('" + text + "')", Plain: q.text(plainDigits(digits))}, nil
	}
	q, err := num.div(den, numReal, denReal, bits)
	if err != nil {
		return nil, err
	}
	text := "mpc(real='" + q.re.text(digits) + "', imag='" + q.im.text(digits) + "')"
	return Opaque{Class: "mpc", Text: text}, nil
}

// mpPrecision converts a decimal precision to the number of digits printed and the binary precision
// (bfcl/SPEC.md 12).
func mpPrecision(precision Value) (digits int, bits uint, err error) {
	n, err := Int(precision)
	if err != nil {
		return 0, 0, err
	}
	p, ok := n.(int64)
	if !ok || p > maxDigits {
		return 0, 0, Raise("MemoryError", "")
	}
	b := max(1, math.RoundToEven(float64(max(p, -1)+1)*bitsPerDigit))
	d := max(1, int(math.RoundToEven(b/bitsPerDigit)-1))
	if d == 15 {
		return 17, uint(b), nil
	}
	return d + 3, uint(b), nil
}

// mpLog returns the natural logarithm of v at prec bits; real is false if it is complex.
func mpLog(v Value, prec uint) (z mpc, real bool, err error) {
	x, err := mpConvert(v, prec)
	if err != nil {
		return mpc{}, false, err
	}
	switch {
	case x.nan:
		return mpc{re: x, im: mpfZero()}, true, nil
	case x.isZero():
		return mpc{re: mpfInf(true), im: mpfZero()}, true, nil
	case x.isInf() && x.sign() > 0:
		return mpc{re: x, im: mpfZero()}, true, nil
	case x.sign() > 0:
		return mpc{re: mpf{f: logFloat(x.f, prec)}, im: mpfZero()}, true, nil
	}
	z.im = mpf{f: fromFixed(piFixed(prec+64), prec+64, prec)}
	z.re = x.neg()
	if !x.isInf() {
		z.re = mpf{f: logFloat(z.re.f, prec)}
	}
	return z, false, nil
}

func mpfZero() mpf { return mpf{f: new(big.Float)} }

// mpConvert converts numbers exactly, and strings as decimal numbers or fractions rounded to prec
// bits.
func mpConvert(v Value, prec uint) (mpf, error) {
	switch v := v.(type) {
	case bool, int64, *big.Int:
		i := toBig(v)
		return mpf{f: new(big.Float).SetPrec(uint(max(64, i.BitLen()))).SetInt(i)}, nil
	case float64:
		if math.IsNaN(v) {
			return mpfNaN, nil
		}
		return mpf{f: new(big.Float).SetFloat64(v + 0)}, nil
	case string:
		if x, ok, err := mpParse(v, prec); ok || err != nil {
			return x, err
		}
		if strings.ContainsAny(v, "jJ") {
			return mpf{}, AttributeError(nil, "group") // mpmath calls .group on a failed match of its complex pattern
		}
	}
	return mpf{}, Raise("TypeError", "cannot create mpf from %s", Repr(v))
}

// mpParse reads the strings that mpmath accepts as real numbers; ok is false for others.
func mpParse(s string, prec uint) (x mpf, ok bool, err error) {
	s = strings.TrimFunc(Lower(s), Space)
	switch s {
	case "inf", "+inf":
		return mpfInf(false), true, nil
	case "-inf":
		return mpfInf(true), true, nil
	case "nan":
		return mpfNaN, true, nil
	}
	if p, q, fraction := strings.Cut(s, "/"); fraction {
		num, err1 := Int(strings.TrimRight(p, "l"))
		den, err2 := Int(strings.TrimRight(q, "l"))
		if err1 != nil || err2 != nil {
			return mpf{}, false, nil
		}
		return mpRatio(toBig(num), toBig(den), prec)
	}
	s = strings.TrimRight(s, "l")
	if _, err := Float(s); err != nil {
		return mpf{}, false, nil
	}
	mantissa, exponent, hasExponent := strings.Cut(s, "e")
	exp := Value(int64(0))
	if hasExponent {
		if exp, err = Int(exponent); err != nil {
			return mpf{}, false, nil
		}
	}
	e, small := exp.(int64)
	if whole, fraction, ok := strings.Cut(mantissa, "."); ok {
		fraction = strings.TrimRight(fraction, "0")
		e -= int64(len([]rune(fraction)))
		mantissa = whole + fraction
	}
	man, err := Int(mantissa)
	if err != nil {
		return mpf{}, false, nil
	}
	if !small || e < -maxExponent || e > maxExponent {
		return mpf{}, true, Raise("MemoryError", "")
	}
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(max(e, -e)), nil)
	if e < 0 {
		return mpRatio(toBig(man), power, prec)
	}
	i := power.Mul(power, toBig(man))
	return mpf{f: new(big.Float).SetPrec(prec).SetInt(i)}, true, nil
}

func mpRatio(num, den *big.Int, prec uint) (mpf, bool, error) {
	exact := func(i *big.Int) mpf { return mpf{f: new(big.Float).SetPrec(uint(max(64, i.BitLen()))).SetInt(i)} }
	x, err := exact(num).div(exact(den), prec)
	return x, true, err
}

// plainDigits returns the number of digits of str for the number of digits of repr.
func plainDigits(digits int) int {
	if digits == 17 {
		return 15
	}
	return max(digits-3, 1)
}

// text prints x with at most digits significant digits like mpmath's repr: truncated slightly
// further out, rounded half up, trailing zeros removed; fixed notation near 1, else an unpadded
// exponent.
func (x mpf) text(digits int) string {
	switch {
	case x.nan:
		return "nan"
	case x.isInf() && x.sign() > 0:
		return "+inf"
	case x.isInf():
		return "-inf"
	case x.isZero():
		return "0.0"
	}
	ds, exponent := decimalDigits(x.f, digits)
	if ds[digits] >= '5' {
		i := digits - 1
		for i >= 0 && ds[i] == '9' {
			i--
		}
		if i < 0 {
			ds, exponent = "1", exponent+1
		} else {
			ds = ds[:i] + string(ds[i]+1)
		}
	} else {
		ds = ds[:digits]
	}
	point := 1
	fixed := min(-(digits/3), -5) < exponent && exponent < digits
	switch {
	case fixed && exponent < 0:
		ds = strings.Repeat("0", -exponent) + ds
	case fixed:
		point = exponent + 1
	}
	if len(ds) < point {
		ds += strings.Repeat("0", point-len(ds))
	}
	text := strings.TrimRight(ds[:point]+"."+ds[point:], "0")
	if strings.HasSuffix(text, ".") {
		text += "0"
	}
	if x.sign() < 0 {
		text = "-" + text
	}
	switch {
	case fixed:
		return text
	case exponent >= 0:
		return text + "e+" + strconv.Itoa(exponent)
	}
	return text + "e" + strconv.Itoa(exponent)
}

// decimalDigits returns at least n+1 leading decimal digits of |f|, truncated, and the decimal
// exponent of the first. f is finite and not zero.
func decimalDigits(f *big.Float, n int) (digits string, exponent int) {
	man := new(big.Float)
	exp := f.MantExp(man)
	prec := int(man.MinPrec())
	i, _ := man.SetMantExp(man, prec).Int(nil)
	i.Abs(i)
	exp -= prec // |f| = i * 2^exp
	shift := n + 3 - int(math.Floor(float64(exp+prec)/bitsPerDigit))
	ten := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(shift, -shift))), nil)
	num, den := i, big.NewInt(1)
	if shift >= 0 {
		num.Mul(num, ten)
	} else {
		den.Set(ten)
	}
	if exp >= 0 {
		num.Lsh(num, uint(exp))
	} else {
		den.Lsh(den, uint(-exp))
	}
	digits = num.Quo(num, den).String()
	return digits, len(digits) - 1 - shift
}

// logFloat returns ln x for finite x > 0, rounded to prec bits, half to even. It has 64 guard bits,
// so about one result in 2^60 is misrounded. mpmath has 20 guard bits; it occasionally differs for
// arguments within a few millionths of 1, whose logarithm is close to a rounding boundary.
func logFloat(x *big.Float, prec uint) *big.Float {
	m := new(big.Float)
	e := x.MantExp(m) // m in [0.5, 1)
	if m.Cmp(big.NewFloat(0.75)) < 0 {
		m.SetMantExp(m, 1)
		e--
	} // m in [0.75, 1.5), so e = 0 whenever x is near 1
	wp := prec + 64
	gap := new(big.Float).SetPrec(m.Prec()+2).Sub(m, big.NewFloat(1))
	if gap.Sign() == 0 && e == 0 {
		return new(big.Float).SetPrec(prec)
	}
	if e == 0 {
		if d := gap.MantExp(nil); d < 0 {
			wp += uint(-d) // the leading bits of m - 1 cancel
		}
	}
	sum := new(big.Int)
	if gap.Sign() != 0 {
		sum = logFixed(m, wp)
	}
	if e != 0 {
		wide := wp + 40
		l := new(big.Int).Mul(ln2Fixed(wide), big.NewInt(int64(e)))
		sum.Add(sum, l.Rsh(l, wide-wp))
	}
	return fromFixed(sum, wp, prec)
}

// fromFixed returns i / 2^wp rounded to prec bits.
func fromFixed(i *big.Int, wp, prec uint) *big.Float {
	f := new(big.Float).SetPrec(prec).SetInt(i)
	return f.SetMantExp(f, -int(wp))
}

// logFixed returns ln m times 2^wp for 0.75 <= m < 1.5. Square roots move m towards 1, where the
// series of artanh converges fast.
func logFixed(m *big.Float, wp uint) *big.Int {
	roots := uint(math.Sqrt(float64(wp)) / 2)
	w := wp + 2*roots + 32
	f, _ := new(big.Float).SetMantExp(m, int(w)).Int(nil) // m 2^w; bits of m below 2^-w are irrelevant
	for range roots {
		f.Sqrt(f.Lsh(f, w))
	}
	one := new(big.Int).Lsh(big.NewInt(1), w)
	y := new(big.Int).Sub(f, one)
	y.Quo(y.Lsh(y, w), f.Add(f, one)) // (m-1)/(m+1)
	square := new(big.Int).Mul(y, y)
	square.Rsh(square, w)
	sum, term, part := new(big.Int).Set(y), y, new(big.Int)
	for k := int64(3); ; k += 2 {
		term.Mul(term, square)
		term.Quo(term, one)
		if term.Sign() == 0 {
			break
		}
		sum.Add(sum, part.Quo(term, big.NewInt(k)))
	}
	sum.Lsh(sum, roots+1) // ln m = 2 artanh(y), and each root halved the logarithm
	return sum.Rsh(sum, w-wp)
}

// ln2Fixed returns ln 2 times 2^wp (18 artanh 1/26 - 2 artanh 1/4801 + 8 artanh 1/8749).
func ln2Fixed(wp uint) *big.Int {
	w := wp + 32
	sum := inverseSeries(26, w, false)
	sum.Mul(sum, big.NewInt(18))
	for _, t := range [...]struct{ factor, x int64 }{{-2, 4801}, {8, 8749}} {
		part := inverseSeries(t.x, w, false)
		sum.Add(sum, part.Mul(part, big.NewInt(t.factor)))
	}
	return sum.Rsh(sum, w-wp)
}

// piFixed returns pi times 2^wp (Machin: 16 arctan 1/5 - 4 arctan 1/239).
func piFixed(wp uint) *big.Int {
	w := wp + 32
	sum := inverseSeries(5, w, true)
	sum.Mul(sum, big.NewInt(16))
	part := inverseSeries(239, w, true)
	sum.Sub(sum, part.Mul(part, big.NewInt(4)))
	return sum.Rsh(sum, w-wp)
}

// inverseSeries returns artanh(1/x) times 2^w, or arctan(1/x) if alternating.
func inverseSeries(x int64, w uint, alternating bool) *big.Int {
	term := new(big.Int).Lsh(big.NewInt(1), w)
	term.Quo(term, big.NewInt(x))
	sum, part, square := new(big.Int).Set(term), new(big.Int), big.NewInt(x*x)
	for k, minus := int64(3), alternating; term.Sign() != 0; k += 2 {
		term.Quo(term, square)
		part.Quo(term, big.NewInt(k))
		if minus {
			sum.Sub(sum, part)
		} else {
			sum.Add(sum, part)
		}
		minus = alternating && !minus
	}
	return sum
}
