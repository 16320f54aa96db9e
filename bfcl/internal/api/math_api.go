package api

import (
	"math"

	"rcgrpo/bfcl/internal/py"
)

var mathMethods = []Method{
	{"logarithm", []Param{Required("value"), Required("base"), Required("precision")}},
	{"mean", []Param{Required("numbers")}},
	{"standard_deviation", []Param{Required("numbers")}},
	{"si_unit_conversion", []Param{Required("value"), Required("unit_in"), Required("unit_out")}},
	{"imperial_si_conversion", []Param{Required("value"), Required("unit_in"), Required("unit_out")}},
	{"add", []Param{Required("a"), Required("b")}},
	{"subtract", []Param{Required("a"), Required("b")}},
	{"multiply", []Param{Required("a"), Required("b")}},
	{"divide", []Param{Required("a"), Required("b")}},
	{"power", []Param{Required("base"), Required("exponent")}},
	{"square_root", []Param{Required("number"), Required("precision")}},
	{"absolute_value", []Param{Required("number")}},
	{"round_number", []Param{Required("number"), Optional("decimal_places", int64(0))}},
	{"percentage", []Param{Required("part"), Required("whole")}},
	{"min_value", []Param{Required("numbers")}},
	{"max_value", []Param{Required("numbers")}},
	{"sum_values", []Param{Required("numbers")}},
}

// mathBodies implements the methods in the order of mathMethods.
var mathBodies = []func(args []py.Value) (py.Value, error){
	mathLogarithm,
	mathMean,
	mathStandardDeviation,
	mathSI,
	mathImperial,
	mathAdd,
	mathSubtract,
	mathMultiply,
	mathDivide,
	mathPower,
	mathSquareRoot,
	mathAbsolute,
	mathRound,
	mathPercentage,
	mathMin,
	mathMax,
	mathSum,
}

// mathAPI implements MathAPI (bfcl/SPEC.md 13.2). It is stateless.
type mathAPI struct{}

func newMathAPI() Instance { return mathAPI{} }

func (mathAPI) Load(*py.Dict, *Shared, bool) error { return nil }
func (mathAPI) State() []Attr                      { return nil }
func (mathAPI) Private() []Attr                    { return nil }
func (mathAPI) Clone(*py.Memo) Instance            { return mathAPI{} }

func (mathAPI) Call(method int, args []py.Value) (py.Value, error) {
	if method < 0 || method >= len(mathBodies) {
		return nil, noMethod(method)
	}
	return mathBodies[method](args)
}

// mathResult returns the reply {"result": v}. A TypeError becomes the reply notNumber; other errors
// are returned.
func mathResult(v py.Value, err error, notNumber *py.Frozen) (py.Value, error) {
	if err == nil {
		return py.NewDict("result", v), nil
	}
	if py.IsException(err, "TypeError") {
		return notNumber, nil
	}
	return nil, err
}

var (
	mathBothNumbers  = fixed("error", "Both inputs must be numbers")
	mathAllNumbers   = fixed("error", "All elements in the list must be numbers")
	mathInputNumber  = fixed("error", "Input must be a number")
	mathValueNumber  = fixed("error", "Value must be a number")
	mathRoundInputs  = fixed("error", "First input must be a number, second input must be an integer")
	mathRootInput    = fixed("error", "Input must be a number or computation resulted in an invalid operation")
	mathNegativeRoot = fixed("error", "Cannot calculate square root of a negative number")
	mathTooLarge     = fixed("error", "Conversion resulted in a value too large to represent")
	mathByZero       = fixed("error", "Cannot divide by zero")
	mathZeroWhole    = fixed("error", "Whole value cannot be zero")
	mathNoMean       = fixed("error", "Cannot calculate mean of an empty list")
	mathNoDeviation  = fixed("error", "Cannot calculate standard deviation of an empty list")
	mathNoMin        = fixed("error", "Cannot find minimum of an empty list")
	mathNoMax        = fixed("error", "Cannot find maximum of an empty list")
	mathNoSum        = fixed("error", "Cannot calculate sum of an empty list")
)

// mathLogarithm replies with the text of any error.
func mathLogarithm(args []py.Value) (py.Value, error) {
	v, err := py.Logarithm(args[0], args[1], args[2])
	if err != nil {
		return fault(py.AsException(err).Message), nil
	}
	return py.NewDict("result", v), nil
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

func mathMean(args []py.Value) (py.Value, error) {
	if !py.Truthy(args[0]) {
		return mathNoMean, nil
	}
	mean, err := meanOf(args[0])
	return mathResult(mean, err, mathAllNumbers)
}

func mathStandardDeviation(args []py.Value) (py.Value, error) {
	if !py.Truthy(args[0]) {
		return mathNoDeviation, nil
	}
	deviation, err := standardDeviation(args[0])
	return mathResult(deviation, err, mathAllNumbers)
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

// mathSI converts lengths in two rounded products: to metres, then by the inverse of the target
// unit.
func mathSI(args []py.Value) (py.Value, error) {
	if !py.IsNumber(args[0]) {
		return mathValueNumber, nil
	}
	in, known, err := siUnit(args[1])
	if err != nil {
		return nil, err
	}
	var out py.Value
	if known {
		if out, known, err = siUnit(args[2]); err != nil {
			return nil, err
		}
	}
	if !known {
		return noConversion(args[1], args[2]), nil
	}
	inverse, err := py.TrueDiv(int64(1), out)
	if err != nil {
		return nil, err
	}
	return converted(args[0], in, inverse)
}

func siUnit(unit py.Value) (py.Value, bool, error) {
	name, ok := unit.(string)
	if !ok {
		return nil, false, py.Hashable(unit)
	}
	factor, ok := metres[name]
	return factor, ok, nil
}

func noConversion(in, out py.Value) py.Value {
	return fault("Conversion from '" + py.Str(in) + "' to '" + py.Str(out) + "' is not supported")
}

// converted returns the reply with the product of value and factors, from left to right.
func converted(value py.Value, factors ...py.Value) (py.Value, error) {
	for _, f := range factors {
		var err error
		if value, err = py.Mul(value, f); err != nil {
			return conversionFault(err)
		}
	}
	return py.NewDict("result", value), nil
}

func conversionFault(err error) (py.Value, error) {
	if py.IsException(err, "OverflowError") {
		return mathTooLarge, nil
	}
	return nil, err
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

func mathImperial(args []py.Value) (py.Value, error) {
	value, in, out := args[0], args[1], args[2]
	if !py.IsNumber(value) {
		return mathValueNumber, nil
	}
	same, err := py.EqualErr(in, out)
	if err != nil {
		return nil, err
	}
	if same {
		return py.NewDict("result", value), nil
	}
	key := py.Str(in) + "_to_" + py.Str(out)
	factor, ok := imperial[key]
	if !ok {
		return noConversion(in, out), nil
	}
	// Python compares the units again here; a unit of another type with the same text gets the
	// plain product.
	switch {
	case in == "celsius" && out == "fahrenheit":
		f, err := py.Mul(value, factor)
		if err == nil {
			f, err = py.Add(f, int64(32))
		}
		if err != nil {
			return conversionFault(err)
		}
		return py.NewDict("result", f), nil
	case in == "fahrenheit" && out == "celsius":
		if value, err = py.Sub(value, int64(32)); err != nil {
			return conversionFault(err)
		}
	}
	return converted(value, factor)
}

func mathAdd(args []py.Value) (py.Value, error) {
	v, err := py.Add(args[0], args[1])
	return mathResult(v, err, mathBothNumbers)
}

func mathSubtract(args []py.Value) (py.Value, error) {
	v, err := py.Sub(args[0], args[1])
	return mathResult(v, err, mathBothNumbers)
}

func mathMultiply(args []py.Value) (py.Value, error) {
	if !py.IsNumber(args[0]) || !py.IsNumber(args[1]) {
		return mathBothNumbers, nil
	}
	v, err := py.Mul(args[0], args[1])
	return mathResult(v, err, mathBothNumbers)
}

func mathDivide(args []py.Value) (py.Value, error) {
	if py.Equal(args[1], int64(0)) {
		return mathByZero, nil
	}
	v, err := py.TrueDiv(args[0], args[1])
	return mathResult(v, err, mathBothNumbers)
}

func mathPower(args []py.Value) (py.Value, error) {
	v, err := py.Pow(args[0], args[1])
	return mathResult(v, err, mathBothNumbers)
}

func mathSquareRoot(args []py.Value) (py.Value, error) {
	negative, err := py.Compare("<", args[0], int64(0))
	if err == nil && negative {
		return mathNegativeRoot, nil
	}
	var root py.Value
	if err == nil {
		root, err = py.SquareRoot(args[0], args[1])
	}
	return mathResult(root, err, mathRootInput)
}

func mathAbsolute(args []py.Value) (py.Value, error) {
	v, err := py.Abs(args[0])
	return mathResult(v, err, mathInputNumber)
}

func mathRound(args []py.Value) (py.Value, error) {
	v, err := py.Round(args[0], args[1])
	return mathResult(v, err, mathRoundInputs)
}

func mathPercentage(args []py.Value) (py.Value, error) {
	if py.Equal(args[1], int64(0)) {
		return mathZeroWhole, nil
	}
	v, err := py.TrueDiv(args[0], args[1])
	if err == nil {
		v, err = py.Mul(v, int64(100))
	}
	return mathResult(v, err, mathBothNumbers)
}

func mathMin(args []py.Value) (py.Value, error) { return mathExtreme(args[0], "<", mathNoMin) }
func mathMax(args []py.Value) (py.Value, error) { return mathExtreme(args[0], ">", mathNoMax) }

// mathExtreme returns the first minimum (op "<") or maximum (">").
func mathExtreme(numbers py.Value, op string, empty *py.Frozen) (py.Value, error) {
	if !py.Truthy(numbers) {
		return empty, nil
	}
	items, err := py.Iterate(numbers)
	if err != nil {
		return mathResult(nil, err, mathAllNumbers)
	}
	best := items[0]
	for _, item := range items[1:] {
		better, err := py.Compare(op, item, best)
		if err != nil {
			return mathResult(nil, err, mathAllNumbers)
		}
		if better {
			best = item
		}
	}
	return py.NewDict("result", best), nil
}

func mathSum(args []py.Value) (py.Value, error) {
	if !py.Truthy(args[0]) {
		return mathNoSum, nil
	}
	v, err := sumOf(args[0])
	return mathResult(v, err, mathAllNumbers)
}
