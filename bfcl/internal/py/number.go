package py

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// maxIntBits limits integers made by **, * and literals, so that one call cannot take memory or
// minutes. CPython has no such limit, but cannot print an int beyond 4,300 digits (about 14,300
// bits); exceeding the limit raises the same error.
const maxIntBits = 1 << 17

// maxRepeated limits the items of a repeated sequence.
const maxRepeated = 1 << 20

// operandError returns the exception of a binary operator without a meaning for its operands.
func operandError(op string, a, b Value) error {
	return Raise("TypeError", "unsupported operand type(s) for %s: '%s' and '%s'", op, TypeName(a), TypeName(b))
}

// float returns a number as float64, or an OverflowError if an int is too large.
func float(v Value) (float64, error) {
	switch v := v.(type) {
	case float64:
		return v, nil
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		if math.IsInf(f, 0) {
			return 0, Raise("OverflowError", "int too large to convert to float")
		}
		return f, nil
	}
	i, _ := asInt64(v)
	return float64(i), nil
}

// floats returns two numbers as float64, with the error of float.
func floats(a, b Value) (x, y float64, err error) {
	if x, err = float(a); err != nil {
		return 0, 0, err
	}
	y, err = float(b)
	return x, y, err
}

func isFloat(v Value) bool {
	_, ok := v.(float64)
	return ok
}

// Add returns a + b.
func Add(a, b Value) (Value, error) {
	if IsNumber(a) && IsNumber(b) {
		if isFloat(a) || isFloat(b) {
			x, y, err := floats(a, b)
			return x + y, err
		}
		x, xs := asInt64(a)
		y, ys := asInt64(b)
		if s := x + y; xs && ys && (s > x) == (y > 0) {
			return s, nil
		}
		return shrink(new(big.Int).Add(toBig(a), toBig(b))), nil
	}
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			return x + y, nil
		}
		return nil, Raise("TypeError", `can only concatenate str (not "%s") to str`, TypeName(b))
	case *List:
		if y, ok := b.(*List); ok {
			items := make([]Value, 0, len(x.Items)+len(y.Items))
			return &List{Items: append(append(items, x.Items...), y.Items...)}, nil
		}
		return nil, Raise("TypeError", `can only concatenate list (not "%s") to list`, TypeName(b))
	case Tuple:
		if y, ok := b.(Tuple); ok {
			return append(append(Tuple{}, x...), y...), nil
		}
		return nil, Raise("TypeError", `can only concatenate tuple (not "%s") to tuple`, TypeName(b))
	}
	return nil, operandError("+", a, b)
}

// Sub returns a - b.
func Sub(a, b Value) (Value, error) {
	if !IsNumber(a) || !IsNumber(b) {
		if x, ok := a.(*Set); ok {
			if y, ok := b.(*Set); ok {
				d := &Set{}
				for _, item := range x.Items() {
					if !y.Has(item) {
						_ = d.Add(item)
					}
				}
				return d, nil
			}
		}
		return nil, operandError("-", a, b)
	}
	if isFloat(a) || isFloat(b) {
		x, y, err := floats(a, b)
		return x - y, err
	}
	x, xs := asInt64(a)
	y, ys := asInt64(b)
	if d := x - y; xs && ys && (d < x) == (y > 0) {
		return d, nil
	}
	return shrink(new(big.Int).Sub(toBig(a), toBig(b))), nil
}

// Mul returns a * b; the repetition of a sequence is limited to maxRepeated items.
func Mul(a, b Value) (Value, error) {
	if IsNumber(a) && IsNumber(b) {
		if isFloat(a) || isFloat(b) {
			x, y, err := floats(a, b)
			return float64(x * y), err
		}
		x, xs := asInt64(a)
		y, ys := asInt64(b)
		if xs && ys {
			if x == 0 || y == 0 {
				return int64(0), nil
			}
			if p := x * y; p/y == x && !(x == -1 && y == math.MinInt64) && !(y == -1 && x == math.MinInt64) {
				return p, nil
			}
		}
		if toBig(a).BitLen()+toBig(b).BitLen() > maxIntBits {
			return nil, errIntText()
		}
		return shrink(new(big.Int).Mul(toBig(a), toBig(b))), nil
	}
	if n, ok := asInt64(b); ok {
		return repeat(a, b, n)
	}
	if n, ok := asInt64(a); ok {
		return repeat(b, a, n)
	}
	switch a.(type) {
	case string, *List, Tuple:
		return nil, Raise("TypeError", "can't multiply sequence by non-int of type '%s'", TypeName(b))
	}
	switch b.(type) {
	case string, *List, Tuple:
		return nil, Raise("TypeError", "can't multiply sequence by non-int of type '%s'", TypeName(a))
	}
	return nil, operandError("*", a, b)
}

// repeat returns seq * n; count is n as a Value, for the error. More than maxRepeated items are a MemoryError.
func repeat(seq, count Value, n int64) (Value, error) {
	n = max(n, 0)
	length := 0
	switch s := seq.(type) {
	case string:
		length = len(s)
	case *List:
		length = len(s.Items)
	case Tuple:
		length = len(s)
	default:
		return nil, operandError("*", seq, count)
	}
	switch {
	case length == 0:
		n = 0
	case n > maxRepeated/int64(length):
		return nil, Raise("MemoryError", "")
	}
	switch s := seq.(type) {
	case *List:
		return &List{Items: slices.Repeat(s.Items, int(n))}, nil
	case Tuple:
		return slices.Repeat(s, int(n)), nil
	}
	return strings.Repeat(seq.(string), int(n)), nil
}

// TrueDiv returns a / b as a float.
func TrueDiv(a, b Value) (Value, error) {
	if !IsNumber(a) || !IsNumber(b) {
		return nil, operandError("/", a, b)
	}
	if isFloat(a) || isFloat(b) {
		x, y, err := floats(a, b)
		if err != nil {
			return nil, err
		}
		if y == 0 {
			return nil, Raise("ZeroDivisionError", "float division by zero")
		}
		return x / y, nil
	}
	if !Truthy(b) {
		return nil, Raise("ZeroDivisionError", "division by zero")
	}
	const exact = 1 << 53
	x, xs := asInt64(a)
	y, ys := asInt64(b)
	if xs && ys && x > -exact && x < exact && y > -exact && y < exact {
		return float64(x) / float64(y), nil
	}
	f := quotient(toBig(a), toBig(b))
	if math.IsInf(f, 0) {
		return nil, Raise("OverflowError", "integer division result too large for a float")
	}
	return f, nil
}

// Mod returns a % b of numbers; the result has the sign of b. String formatting is unsupported.
func Mod(a, b Value) (Value, error) {
	if !IsNumber(a) || !IsNumber(b) {
		return nil, operandError("%", a, b)
	}
	if isFloat(a) || isFloat(b) {
		x, y, err := floats(a, b)
		if err != nil {
			return nil, err
		}
		if y == 0 {
			return nil, Raise("ZeroDivisionError", "float modulo")
		}
		m := math.Mod(x, y)
		switch {
		case m == 0:
			return math.Copysign(0, y), nil
		case (y < 0) != (m < 0):
			m += y
		}
		return m, nil
	}
	if !Truthy(b) {
		return nil, Raise("ZeroDivisionError", "integer modulo by zero")
	}
	y := toBig(b)
	m := new(big.Int).Rem(toBig(a), y)
	if m.Sign() != 0 && m.Sign() != y.Sign() {
		m.Add(m, y)
	}
	return shrink(m), nil
}

// Pow returns a ** b. A negative base with a fractional exponent gives an Opaque complex.
func Pow(a, b Value) (Value, error) {
	if !IsNumber(a) || !IsNumber(b) {
		return nil, operandError("** or pow()", a, b)
	}
	if !isFloat(a) && !isFloat(b) {
		e := toBig(b)
		if e.Sign() >= 0 {
			return powInt(toBig(a), e)
		}
	}
	x, y, err := floats(a, b)
	if err != nil {
		return nil, err
	}
	switch {
	case x == 0 && y < 0:
		return nil, Raise("ZeroDivisionError", "0.0 cannot be raised to a negative power")
	case x < 0 && y != math.Trunc(y) && !math.IsInf(x, 0) && !math.IsInf(y, 0) && !math.IsNaN(y):
		return complexPow(x, y), nil
	}
	f := pow(x, y)
	if math.IsInf(f, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		return nil, Raise("OverflowError", "(34, 'Numerical result out of range')")
	}
	return f, nil
}

func powInt(a, e *big.Int) (Value, error) {
	if a.BitLen() <= 1 { // -1, 0, 1
		if a.Sign() < 0 && e.Bit(0) == 0 || e.Sign() == 0 {
			return int64(1), nil
		}
		return a.Int64(), nil
	}
	if !e.IsInt64() || int64(a.BitLen())*e.Int64() > maxIntBits || e.Int64() > maxIntBits {
		return nil, errIntText()
	}
	return shrink(new(big.Int).Exp(a, e, nil)), nil
}

// Neg returns -a.
func Neg(a Value) (Value, error) {
	switch v := a.(type) {
	case float64:
		return -v, nil
	case int64:
		if v != math.MinInt64 {
			return -v, nil
		}
	}
	if !IsNumber(a) {
		return nil, Raise("TypeError", "bad operand type for unary -: '%s'", TypeName(a))
	}
	return shrink(new(big.Int).Neg(toBig(a))), nil
}

// Pos returns +a.
func Pos(a Value) (Value, error) {
	if b, ok := a.(bool); ok {
		i, _ := asInt64(b)
		return i, nil
	}
	if !IsNumber(a) {
		return nil, Raise("TypeError", "bad operand type for unary +: '%s'", TypeName(a))
	}
	return a, nil
}

// Abs returns abs(a).
func Abs(a Value) (Value, error) {
	if !IsNumber(a) {
		return nil, Raise("TypeError", "bad operand type for abs(): '%s'", TypeName(a))
	}
	if f, ok := a.(float64); ok {
		return math.Abs(f), nil
	}
	return shrink(new(big.Int).Abs(toBig(a))), nil
}

// Compare evaluates a op b for <, <=, >, >=, == and !=.
func Compare(op string, a, b Value) (bool, error) {
	switch op {
	case "==":
		return EqualErr(a, b)
	case "!=":
		eq, err := EqualErr(a, b)
		return !eq, err
	}
	if IsNumber(a) && IsNumber(b) {
		c, ordered := compareNumbers(a, b)
		return ordered && ordering(op, c), nil
	}
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			return ordering(op, strings.Compare(x, y)), nil
		}
	case *List:
		if y, ok := b.(*List); ok {
			_, holds, err := compareItems(op, x.Items, y.Items, 0)
			return holds, err
		}
	case Tuple:
		if y, ok := b.(Tuple); ok {
			_, holds, err := compareItems(op, x, y, 0)
			return holds, err
		}
	}
	return false, Raise("TypeError", "'%s' not supported between instances of '%s' and '%s'", op, TypeName(a), TypeName(b))
}

// ordering reports whether op holds for the result c of a comparison: negative, 0 or positive.
func ordering(op string, c int) bool {
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

// compareItems reports whether sequences are equal, and whether op holds for them: for their first items that differ,
// or else for their lengths. It looks at each item once, however deep it is.
func compareItems(op string, x, y []Value, depth int) (eq, holds bool, err error) {
	for i := 0; i < len(x) && i < len(y); i++ {
		if eq, holds, err = compareItem(op, x[i], y[i], depth); err != nil || !eq {
			return false, holds, err
		}
	}
	return len(x) == len(y), ordering(op, len(x)-len(y)), nil
}

func compareItem(op string, a, b Value, depth int) (eq, holds bool, err error) {
	x, isList := a.(*List)
	y, both := b.(*List)
	s, isTuple := a.(Tuple)
	t, bothTuples := b.(Tuple)
	switch {
	case depth > maxDepth:
		return false, false, errRecursion()
	case isList && both && x != y:
		return compareItems(op, x.Items, y.Items, depth+1)
	case isTuple && bothTuples:
		return compareItems(op, s, t, depth+1)
	}
	if eq, err = equal(a, b, depth); err != nil || eq {
		return eq, false, err
	}
	holds, err = Compare(op, a, b)
	return false, holds, err
}

// Contains evaluates "item in container".
func Contains(container, item Value) (bool, error) {
	switch c := container.(type) {
	case string:
		s, ok := item.(string)
		if !ok {
			return false, Raise("TypeError", "'in <string>' requires string as left operand, not %s", TypeName(item))
		}
		return strings.Contains(c, s), nil
	case *List:
		return containsItem(c.Items, item), nil
	case Tuple:
		return containsItem(c, item), nil
	case *Dict:
		_, ok, err := c.GetErr(item)
		return ok, err
	case *Set:
		i, err := c.d.find(item)
		return i >= 0, err
	}
	return false, Raise("TypeError", "argument of type '%s' is not iterable", TypeName(container))
}

func containsItem(items []Value, v Value) bool {
	return slices.ContainsFunc(items, func(item Value) bool { return Equal(item, v) })
}

// Len returns len(v).
func Len(v Value) (int, error) {
	switch v := v.(type) {
	case string:
		return RuneLen(v), nil
	case *List:
		return len(v.Items), nil
	case Tuple:
		return len(v), nil
	case *Dict:
		return v.Len(), nil
	case *Set:
		return v.Len(), nil
	}
	return 0, Raise("TypeError", "object of type '%s' has no len()", TypeName(v))
}

// Iterate returns the items of a for loop over v: items, keys of a dict, characters of a string.
func Iterate(v Value) ([]Value, error) {
	switch v := v.(type) {
	case *List:
		return v.Items, nil
	case Tuple:
		return v, nil
	case *Dict:
		return v.Keys(), nil
	case *Set:
		return v.Items(), nil
	case string:
		items := make([]Value, 0, len(v))
		for _, r := range v {
			items = append(items, string(r))
		}
		return items, nil
	}
	return nil, Raise("TypeError", "'%s' object is not iterable", TypeName(v))
}

// Int returns int(v).
func Int(v Value) (Value, error) {
	switch v := v.(type) {
	case int64, *big.Int:
		return v, nil
	case bool:
		i, _ := asInt64(v)
		return i, nil
	case float64:
		switch {
		case math.IsNaN(v):
			return nil, Raise("ValueError", "cannot convert float NaN to integer")
		case math.IsInf(v, 0):
			return nil, Raise("OverflowError", "cannot convert float infinity to integer")
		}
		return floatToInt(v), nil
	case string:
		return intFromText(v)
	}
	return nil, Raise("TypeError",
		"int() argument must be a string, a bytes-like object or a real number, not '%s'", TypeName(v))
}

func floatToInt(f float64) Value {
	if math.Abs(f) < 1<<62 {
		return int64(f)
	}
	i, _ := new(big.Float).SetFloat64(f).Int(nil)
	return shrink(i)
}

func intFromText(s string) (Value, error) {
	digits, ok := asciiDigits(Strip(s))
	body := strings.TrimLeft(digits, "+-")
	if !ok || len(digits)-len(body) > 1 || !underscoresFit(body) {
		return nil, Raise("ValueError", "invalid literal for int() with base 10: %s", Repr(s))
	}
	clean := strings.ReplaceAll(digits, "_", "")
	for _, c := range strings.TrimLeft(clean, "+-") {
		if c < '0' || c > '9' {
			return nil, Raise("ValueError", "invalid literal for int() with base 10: %s", Repr(s))
		}
	}
	if n := len(strings.TrimLeft(clean, "+-")); n > maxIntDigits {
		return nil, Raise("ValueError",
			"Exceeds the limit (4300 digits) for integer string conversion: value has %d digits; use "+
				"sys.set_int_max_str_digits() to increase the limit", n)
	}
	if i, err := strconv.ParseInt(clean, 10, 64); err == nil {
		return i, nil
	}
	b, ok := new(big.Int).SetString(clean, 10)
	if !ok {
		return nil, Raise("ValueError", "invalid literal for int() with base 10: %s", Repr(s))
	}
	return shrink(b), nil
}

// asciiDigits converts digits of other scripts to ASCII; it returns false for other non-ASCII
// runes.
func asciiDigits(s string) (string, bool) {
	plain := true
	for i := 0; i < len(s); i++ {
		plain = plain && s[i] < 0x80
	}
	if plain {
		return s, true
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r < 0x80:
			b.WriteRune(r)
		case Decimal(r):
			b.WriteByte(byte('0' + DigitValue(r)))
		default:
			return s, false
		}
	}
	return b.String(), true
}

// underscoresFit reports whether there is a digit and every underscore is between two digits.
func underscoresFit(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		if s[i] == '_' && (i == 0 || i == len(s)-1 || !asciiDigit(s[i-1]) || !asciiDigit(s[i+1])) {
			return false
		}
	}
	return true
}

func asciiDigit(c byte) bool { return c >= '0' && c <= '9' }

// Float returns float(v).
func Float(v Value) (Value, error) {
	switch v := v.(type) {
	case float64:
		return v, nil
	case int64, bool, *big.Int:
		return float(v)
	case string:
		return floatFromText(v)
	}
	return nil, Raise("TypeError", "float() argument must be a string or a real number, not '%s'", TypeName(v))
}

func floatFromText(s string) (Value, error) {
	bad := Raise("ValueError", "could not convert string to float: %s", Repr(s))
	text, ok := asciiDigits(Strip(s))
	if !ok || text == "" || !underscoresFit(text) {
		return nil, bad
	}
	switch strings.ToLower(strings.TrimLeft(text, "+-")) {
	case "inf", "infinity", "nan":
	default:
		for _, c := range text {
			if !strings.ContainsRune("0123456789+-.eE_", c) {
				return nil, bad
			}
		}
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
	if err != nil && !math.IsInf(f, 0) {
		return nil, bad
	}
	return f, nil
}

// Fixed returns f"{x:.nf}": half to even on the exact binary value.
func Fixed(f float64, n int) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	return strconv.FormatFloat(f, 'f', n, 64)
}

// Round returns round(v, digits), or round(v) if digits is nil.
func Round(v, digits Value) (Value, error) {
	if !IsNumber(v) {
		return nil, Raise("TypeError", "type %s doesn't define __round__ method", TypeName(v))
	}
	f, floating := v.(float64)
	if digits == nil {
		if !floating || math.IsNaN(f) || math.IsInf(f, 0) {
			return Int(v)
		}
		return floatToInt(math.RoundToEven(f)), nil
	}
	switch digits.(type) {
	case int64, bool, *big.Int:
	default:
		return nil, Raise("TypeError", "'%s' object cannot be interpreted as an integer", TypeName(digits))
	}
	n, fits := asInt64(digits)
	if !fits {
		if toBig(digits).Sign() > 0 {
			n = math.MaxInt32
		} else {
			n = math.MinInt32
		}
	}
	if floating {
		return roundFloat(f, n)
	}
	if n >= 0 {
		return Int(v)
	}
	return roundInt(toBig(v), -max(n, math.MinInt32)), nil
}

// roundFloat returns round(f, n).
func roundFloat(f float64, n int64) (Value, error) {
	switch {
	case math.IsNaN(f), math.IsInf(f, 0), f == 0, n > 323:
		return f, nil
	case n < -308:
		return math.Copysign(0, f), nil
	case n >= 0:
		r, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(n), 64), 64)
		if err != nil {
			return nil, Raise("OverflowError", "rounded value too large to represent")
		}
		return r, nil
	}
	// The integer part decides; a fraction only breaks ties.
	exact, _ := new(big.Float).SetPrec(2200).SetFloat64(f).Rat(nil)
	scale := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(-n), nil))
	q := new(big.Rat).Quo(exact, scale)
	i := toEven(q.Num(), q.Denom())
	r, _ := new(big.Rat).Mul(new(big.Rat).SetInt(i), scale).Float64()
	if math.IsInf(r, 0) {
		return nil, Raise("OverflowError", "rounded value too large to represent")
	}
	if r == 0 {
		return math.Copysign(0, f), nil
	}
	return r, nil
}

// quotient returns the float that is nearest to a / b, half to even; 0 without a sign. A big.Rat would be reduced
// first, whose work is the square of the length.
func quotient(a, b *big.Int) float64 {
	shift := max(0, 66+b.BitLen()-a.BitLen()) // of a, so that the whole part has 66 bits at least
	q, rest := new(big.Int).QuoRem(new(big.Int).Lsh(new(big.Int).Abs(a), uint(shift)), new(big.Int).Abs(b), new(big.Int))
	if rest.Sign() != 0 {
		q.SetBit(q, 0, 1) // it is no half between two floats
	}
	if a.Sign() != b.Sign() {
		q.Neg(q)
	}
	f, _ := new(big.Float).SetMantExp(new(big.Float).SetInt(q), -shift).Float64()
	return f
}

// toEven rounds num / den to an integer, half to even; den is positive.
func toEven(num, den *big.Int) *big.Int {
	two := big.NewInt(2)
	num = new(big.Int).Mul(num, two)
	num.Add(num, den)
	den = new(big.Int).Mul(den, two)
	floor, rem := new(big.Int).DivMod(num, den, new(big.Int)) // floor(q + 1/2)
	if rem.Sign() == 0 && floor.Bit(0) == 1 {
		floor.Sub(floor, big.NewInt(1))
	}
	return floor
}

// roundInt rounds to a multiple of 10**places, half to even.
func roundInt(v *big.Int, places int64) Value {
	if places > int64(v.BitLen()+1)/3 { // 10**places > 8**places > 2*|v|
		return int64(0)
	}
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(places), nil)
	i := toEven(v, scale)
	return shrink(i.Mul(i, scale))
}

// Sum is sum(items) of Python up to 3.11: from the integer 0, left to right.
func Sum(items []Value) (Value, error) {
	var total Value = int64(0)
	for _, item := range items {
		var err error
		if total, err = Add(total, item); err != nil {
			return nil, err
		}
	}
	return total, nil
}
