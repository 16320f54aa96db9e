package py

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// maxDecimalPrecision is the largest precision of Python's decimal contexts.
const maxDecimalPrecision = 999_999_999_999_999_999

// maxRootDigits limits the digits of an inexact SquareRoot.
const maxRootDigits = 20_000

// SquareRoot returns Decimal(number).sqrt() at the given context precision, as an Opaque Decimal:
// the number is converted exactly, an exact root keeps the ideal exponent, any other is rounded
// half to even to that many digits. number must be an int, a bool or a float that is not negative.
// A precision that is not an int is a TypeError, one out of range a ValueError, and a root of more
// than maxRootDigits digits a MemoryError.
func SquareRoot(number, precision Value) (Value, error) {
	prec, err := decimalPrecision(precision)
	if err != nil {
		return nil, err
	}
	var coefficient *big.Int
	exponent := 0
	switch n := number.(type) {
	case bool, int64, *big.Int:
		coefficient = toBig(n)
	case float64:
		switch {
		case math.IsNaN(n):
			return newDecimal("NaN"), nil
		case math.IsInf(n, 0):
			return newDecimal("Infinity"), nil
		case n == 0 && math.Signbit(n):
			return newDecimal("-0"), nil
		}
		coefficient, exponent = exactDecimal(n)
	default:
		return nil, Raise("TypeError", "conversion from %s to Decimal is not supported", TypeName(number))
	}
	if coefficient.Sign() < 0 {
		return nil, Raise("InvalidOperation", "[<class 'decimal.InvalidOperation'>]")
	}
	if exponent%2 != 0 {
		coefficient = new(big.Int).Mul(coefficient, big.NewInt(10))
		exponent--
	}
	root := new(big.Int).Sqrt(coefficient)
	if new(big.Int).Mul(root, root).Cmp(coefficient) == 0 {
		return decimalText(root.String(), exponent/2, prec, true), nil
	}
	if prec > maxRootDigits {
		return nil, Raise("MemoryError", "")
	}
	if missing := prec + 2 - len(root.String()); missing > 0 {
		scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(2*missing)), nil)
		root.Sqrt(scale.Mul(scale, coefficient))
		exponent -= 2 * missing
	}
	return decimalText(root.String(), exponent/2, prec, false), nil
}

func newDecimal(text string) Value {
	return Opaque{Class: "Decimal", Text: "Decimal('" + text + "')", Plain: text}
}

// decimalPrecision validates a precision like the decimal module. It saturates at the largest int.
func decimalPrecision(v Value) (int, error) {
	switch v.(type) {
	case bool, int64, *big.Int:
	default:
		return 0, Raise("TypeError", "an integer is required")
	}
	p := toBig(v)
	if !p.IsInt64() {
		return 0, Raise("OverflowError", "Python int too large to convert to C ssize_t")
	}
	n := p.Int64()
	if n < 1 || n > maxDecimalPrecision {
		return 0, Raise("ValueError", "valid range for prec is [1, MAX_PREC]")
	}
	return int(min(n, math.MaxInt32)), nil
}

// exactDecimal returns f >= 0 as coefficient times ten to the exponent, in the form of Decimal(f).
func exactDecimal(f float64) (coefficient *big.Int, exponent int) {
	r := new(big.Rat).SetFloat64(f)
	twos := r.Denom().BitLen() - 1 // the denominator is a power of two
	fives := new(big.Int).Exp(big.NewInt(5), big.NewInt(int64(twos)), nil)
	return fives.Mul(fives, r.Num()), -twos
}

// decimalText rounds digits times ten to the exponent to prec digits and prints it. If exact is
// false, the true value is slightly larger than the digits.
func decimalText(digits string, exponent, prec int, exact bool) Value {
	if extra := len(digits) - prec; extra > 0 {
		cut := digits[prec:]
		digits, exponent = digits[:prec], exponent+extra
		half := "5" + strings.Repeat("0", extra-1)
		if cut > half || cut == half && (!exact || (digits[prec-1]-'0')%2 == 1) {
			up, _ := new(big.Int).SetString(digits, 10)
			digits = up.Add(up, big.NewInt(1)).String()
			if len(digits) > prec {
				digits, exponent = digits[:prec], exponent+1
			}
		}
	}
	adjusted := exponent + len(digits) - 1
	switch point := len(digits) + exponent; {
	case exponent > 0 || adjusted < -6:
		if len(digits) > 1 {
			digits = digits[:1] + "." + digits[1:]
		}
		sign := "+"
		if adjusted < 0 {
			sign = "-"
		}
		digits += "E" + sign + strconv.Itoa(max(adjusted, -adjusted))
	case exponent < 0 && point <= 0:
		digits = "0." + strings.Repeat("0", -point) + digits
	case exponent < 0:
		digits = digits[:point] + "." + digits[point:]
	}
	return newDecimal(digits)
}
