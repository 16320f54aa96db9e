package api

import (
	"math"

	"rcgrpo/bfcl/internal/py"
)

var mathMethods = []Method{
	on3("logarithm", mathAPI.logarithm, Required("value"), Required("base"), Required("precision")),
	on1("mean", mathAPI.mean, Required("numbers")),
	on1("standard_deviation", mathAPI.deviation, Required("numbers")),
	on3("si_unit_conversion", mathAPI.convertSI, Required("value"), Required("unit_in"), Required("unit_out")),
	on3("imperial_si_conversion", mathAPI.convertImperial, Required("value"), Required("unit_in"), Required("unit_out")),
	on2("add", mathAPI.add, Required("a"), Required("b")),
	on2("subtract", mathAPI.subtract, Required("a"), Required("b")),
	on2("multiply", mathAPI.multiply, Required("a"), Required("b")),
	on2("divide", mathAPI.divide, Required("a"), Required("b")),
	on2("power", mathAPI.power, Required("base"), Required("exponent")),
	on2("square_root", mathAPI.squareRoot, Required("number"), Required("precision")),
	on1("absolute_value", mathAPI.absolute, Required("number")),
	on2("round_number", mathAPI.round, Required("number"), Optional("decimal_places", int64(0))),
	on2("percentage", mathAPI.percentage, Required("part"), Required("whole")),
	on1("min_value", mathAPI.min, Required("numbers")),
	on1("max_value", mathAPI.max, Required("numbers")),
	on1("sum_values", mathAPI.sum, Required("numbers")),
}

// DigitsWork is the work of a call that computes as many digits as its last argument says, which grows with their
// square: a logarithm of 5,000 digits takes 0.1 s. It is 0 for other methods. The limits of digits are those of py.
func DigitsWork(method string, args []py.Value) int {
	if method != "logarithm" && method != "square_root" {
		return 0
	}
	precision, _ := py.Int(args[len(args)-1])
	n, _ := precision.(int64)
	n = min(max(n, 0), 20_000)
	if method == "square_root" {
		return int(n * n / 25)
	}
	if n > 5_000 { // py refuses them
		return 0
	}
	return int(n * n / 2)
}

// mathAPI implements MathAPI (bfcl/SPEC.md 13.2). It is stateless.
type mathAPI struct{}

func newMathAPI() Instance { return mathAPI{} }

func (mathAPI) Load(*py.Dict, *Shared, bool) error { return nil }
func (mathAPI) State() []Attr                      { return nil }
func (mathAPI) Private() []Attr                    { return nil }
func (mathAPI) Clone(*py.Memo) Instance            { return mathAPI{} }

// mathResult returns the reply {"result": v}. A TypeError becomes the reply {"error": notNumber}; other
// errors are raised.
func mathResult(v py.Value, err error, notNumber string) py.Value {
	if py.IsException(err, "TypeError") {
		return errorReply(notNumber)
	}
	check(err)
	return py.NewDict("result", v)
}

func bothNumbers(v py.Value, err error) py.Value {
	return mathResult(v, err, "Both inputs must be numbers")
}

func allNumbers(v py.Value, err error) py.Value {
	return mathResult(v, err, "All elements in the list must be numbers")
}

// logarithm replies with the text of any error.
func (mathAPI) logarithm(value, base, precision py.Value) py.Value {
	v, err := py.Logarithm(value, base, precision)
	if err != nil {
		return errorReply(py.AsException(err).Message)
	}
	return py.NewDict("result", v)
}

func sumOf(numbers py.Value) (py.Value, error) {
	items, err := py.Iterate(numbers)
	if err != nil {
		return nil, err
	}
	return py.Sum(items)
}

func meanOf(numbers py.Value) (py.Value, error) {
	sum, err := sumOf(numbers)
	if err != nil {
		return nil, err
	}
	n, err := py.Len(numbers)
	if err != nil {
		return nil, err
	}
	return py.TrueDiv(sum, int64(n))
}

func (mathAPI) mean(numbers py.Value) py.Value {
	if !py.Truthy(numbers) {
		return errorReply("Cannot calculate mean of an empty list")
	}
	return allNumbers(meanOf(numbers))
}

func (mathAPI) deviation(numbers py.Value) py.Value {
	if !py.Truthy(numbers) {
		return errorReply("Cannot calculate standard deviation of an empty list")
	}
	return allNumbers(standardDeviation(numbers))
}

// standardDeviation is that of the population, summed from left to right.
func standardDeviation(numbers py.Value) (py.Value, error) {
	mean, err := meanOf(numbers)
	if err != nil {
		return nil, err
	}
	items, err := py.Iterate(numbers)
	if err != nil {
		return nil, err
	}
	var sum py.Value = int64(0)
	for _, x := range items {
		d, err := py.Sub(x, mean)
		if err == nil {
			d, err = py.Pow(d, int64(2))
		}
		if err == nil {
			sum, err = py.Add(sum, d)
		}
		if err != nil {
			return nil, err
		}
	}
	variance, err := py.TrueDiv(sum, int64(len(items)))
	if err != nil {
		return nil, err
	}
	root, _ := variance.(float64) // a quotient is always a float
	return math.Sqrt(root), nil
}

// metres is the length of each unit in metres: an int where Python's table has one.
var metres = map[string]py.Value{"km": int64(1000), "m": int64(1), "cm": 0.01, "mm": 0.001, "um": 1e-6, "nm": 1e-9}

// convertSI converts lengths in two rounded products: to metres, then by the inverse of the target
// unit.
func (mathAPI) convertSI(value, unitIn, unitOut py.Value) py.Value {
	if !py.IsNumber(value) {
		return errorReply("Value must be a number")
	}
	for _, unit := range []py.Value{unitIn, unitOut} {
		check(py.Hashable(unit))
		if name, _ := unit.(string); metres[name] == nil {
			return noConversion(unitIn, unitOut)
		}
	}
	inverse := try(py.TrueDiv(int64(1), metres[unitOut.(string)]))
	length, err := py.Mul(value, metres[unitIn.(string)])
	if err == nil {
		length, err = py.Mul(length, inverse)
	}
	return conversion(length, err)
}

func noConversion(in, out py.Value) py.Value {
	return errorReply("Conversion from '" + py.Str(in) + "' to '" + py.Str(out) + "' is not supported")
}

// conversion returns the reply {"result": v}. An OverflowError becomes an error reply; other errors are raised.
func conversion(v py.Value, err error) py.Value {
	if py.IsException(err, "OverflowError") {
		return errorReply("Conversion resulted in a value too large to represent")
	}
	check(err)
	return py.NewDict("result", v)
}

// imperial contains the factors by "from_to_to".
var imperial = map[string]float64{
	"cm_to_in": 0.393701, "in_to_cm": 2.54,
	"m_to_ft": 3.28084, "ft_to_m": 0.3048,
	"m_to_yd": 1.09361, "yd_to_m": 0.9144,
	"km_to_miles": 0.621371, "miles_to_km": 1.60934,
	"kg_to_lb": 2.20462, "lb_to_kg": 0.453592,
	"celsius_to_fahrenheit": 1.8, "fahrenheit_to_celsius": 5.0 / 9,
}

func (mathAPI) convertImperial(value, in, out py.Value) py.Value {
	if !py.IsNumber(value) {
		return errorReply("Value must be a number")
	}
	if try(py.EqualErr(in, out)) {
		return py.NewDict("result", value)
	}
	key := py.Str(in) + "_to_" + py.Str(out)
	factor, ok := imperial[key]
	if !ok {
		return noConversion(in, out)
	}
	// Python compares the units again here; a unit of another type with the same text gets the
	// plain product.
	switch {
	case in == "celsius" && out == "fahrenheit":
		f, err := py.Mul(value, factor)
		if err == nil {
			f, err = py.Add(f, int64(32))
		}
		return conversion(f, err)
	case in == "fahrenheit" && out == "celsius":
		f, err := py.Sub(value, int64(32))
		if err == nil {
			f, err = py.Mul(f, factor)
		}
		return conversion(f, err)
	}
	return conversion(py.Mul(value, factor))
}

func (mathAPI) add(a, b py.Value) py.Value { return bothNumbers(py.Add(a, b)) }

func (mathAPI) subtract(a, b py.Value) py.Value { return bothNumbers(py.Sub(a, b)) }

func (mathAPI) multiply(a, b py.Value) py.Value {
	if !py.IsNumber(a) || !py.IsNumber(b) {
		return errorReply("Both inputs must be numbers")
	}
	return bothNumbers(py.Mul(a, b))
}

func (mathAPI) divide(a, b py.Value) py.Value {
	if py.Equal(b, int64(0)) {
		return errorReply("Cannot divide by zero")
	}
	return bothNumbers(py.TrueDiv(a, b))
}

func (mathAPI) power(base, exponent py.Value) py.Value {
	return bothNumbers(py.Pow(base, exponent))
}

func (mathAPI) squareRoot(number, precision py.Value) py.Value {
	negative, err := py.Compare("<", number, int64(0))
	if negative {
		return errorReply("Cannot calculate square root of a negative number")
	}
	var root py.Value
	if err == nil {
		root, err = py.SquareRoot(number, precision)
	}
	return mathResult(root, err, "Input must be a number or computation resulted in an invalid operation")
}

func (mathAPI) absolute(number py.Value) py.Value {
	v, err := py.Abs(number)
	return mathResult(v, err, "Input must be a number")
}

func (mathAPI) round(number, places py.Value) py.Value {
	v, err := py.Round(number, places)
	return mathResult(v, err, "First input must be a number, second input must be an integer")
}

func (mathAPI) percentage(part, whole py.Value) py.Value {
	if py.Equal(whole, int64(0)) {
		return errorReply("Whole value cannot be zero")
	}
	v, err := py.TrueDiv(part, whole)
	if err == nil {
		v, err = py.Mul(v, int64(100))
	}
	return bothNumbers(v, err)
}

func (mathAPI) min(numbers py.Value) py.Value {
	return mathExtreme(numbers, "<", "Cannot find minimum of an empty list")
}

func (mathAPI) max(numbers py.Value) py.Value {
	return mathExtreme(numbers, ">", "Cannot find maximum of an empty list")
}

// mathExtreme returns the first minimum (op "<") or maximum (">").
func mathExtreme(numbers py.Value, op, empty string) py.Value {
	if !py.Truthy(numbers) {
		return errorReply(empty)
	}
	items, err := py.Iterate(numbers)
	if err != nil {
		return allNumbers(nil, err)
	}
	best := items[0]
	for _, item := range items[1:] {
		better, err := py.Compare(op, item, best)
		if err != nil {
			return allNumbers(nil, err)
		}
		if better {
			best = item
		}
	}
	return py.NewDict("result", best)
}

func (mathAPI) sum(numbers py.Value) py.Value {
	if !py.Truthy(numbers) {
		return errorReply("Cannot calculate sum of an empty list")
	}
	return allNumbers(sumOf(numbers))
}
