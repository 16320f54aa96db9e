package api

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl/internal/py"
)

func TestMathMatchesUpstreamsVectors(t *testing.T) {
	p := start(t, "MathAPI", "")
	type vector struct {
		Kind string
		In   json.RawMessage
		Out  json.RawMessage
	}
	fixtures.Records(t, "bfcl/py_vectors.jsonl", func(v vector) {
		switch v.Kind {
		case "logarithm", "square_root", "mean", "standard_deviation", "power":
		default:
			return
		}
		var sources []json.RawMessage
		if json.Unmarshal(v.In, &sources) != nil {
			sources = []json.RawMessage{v.In}
		}
		args := make([]py.Value, len(sources))
		for i, raw := range sources {
			source := string(raw)
			_ = json.Unmarshal(raw, &source) // what is no string is a number and its own source
			e, err := py.Parse(source)
			if err == nil {
				args[i], err = py.Eval(e, nil)
			}
			if err != nil {
				t.Fatalf("%s: %v", source, err)
			}
		}
		var want string
		if err := json.Unmarshal(v.Out, &want); err != nil {
			t.Fatal(err)
		}
		got := p.call(v.Kind, args...)
		if text, failed := strings.CutPrefix(want, "EXC "); failed {
			_, message, _ := strings.Cut(got, ": ")
			got, want = message, text
		}
		if got != want {
			t.Errorf("%s%s: got %s, want %s", v.Kind, v.In, got, want)
		}
	})
}

func TestMathKeepsPythonsKinds(t *testing.T) {
	p := start(t, "MathAPI", "")
	if len(mathMethods) != len(mathBodies) {
		t.Fatalf("%d methods, %d bodies", len(mathMethods), len(mathBodies))
	}
	huge := new(big.Int).Lsh(big.NewInt(1), 2000)
	both := `{"error": "Both inputs must be numbers"}`
	for _, tc := range []struct {
		want, method string
		args         []py.Value
	}{
		{`{"result": 3}`, "add", []py.Value{int64(1), int64(2)}},
		{`{"result": 3.0}`, "add", []py.Value{1.0, int64(2)}},
		{`{"result": [1, 2]}`, "add", []py.Value{py.NewList(int64(1)), py.NewList(int64(2))}},
		{both, "subtract", []py.Value{"x", int64(1)}},
		{both, "multiply", []py.Value{"x", int64(3)}},
		{`{"result": Infinity}`, "multiply", []py.Value{1e308, int64(10)}},
		{`{"result": 2.0}`, "divide", []py.Value{int64(6), int64(3)}},
		{`{"error": "Cannot divide by zero"}`, "divide", []py.Value{"x", 0.0}},
		{`{"result": 0.5}`, "power", []py.Value{int64(2), int64(-1)}},
		{`ZeroDivisionError: 0.0 cannot be raised to a negative power`, "power", []py.Value{int64(0), int64(-1)}},
		{`{"result": 1}`, "absolute_value", []py.Value{true}},
		{`{"result": 20}`, "round_number", []py.Value{int64(25), int64(-1)}},
		{`{"result": 1}`, "round_number", []py.Value{1.0, nil}},
		{`{"error": "First input must be a number, second input must be an integer"}`, "round_number", []py.Value{1.0, 2.0}},
		{`{"result": 33.33333333333333}`, "percentage", []py.Value{int64(1), int64(3)}},
		{`{"result": 1}`, "max_value", []py.Value{py.NewList(int64(1), 1.0, true)}},
		{`{"result": "k"}`, "min_value", []py.Value{py.NewDict("k", int64(1))}},
		{`{"error": "All elements in the list must be numbers"}`, "min_value", []py.Value{int64(5)}},
		{`{"error": "Cannot find minimum of an empty list"}`, "min_value", []py.Value{nil}},
		{`{"result": 6}`, "sum_values", []py.Value{py.Tuple{int64(1), int64(2), int64(3)}}},
		{`{"error": "All elements in the list must be numbers"}`, "mean", []py.Value{"123"}},
		{`{"result": 1.5}`, "mean", []py.Value{py.NewList(int64(1), int64(2))}},
		{`OverflowError: int too large to convert to float`, "standard_deviation", []py.Value{py.NewList(0.5, huge)}},
		{`OverflowError: (34, 'Numerical result out of range')`, "standard_deviation", []py.Value{py.NewList(0.0, 1e308)}},
		{`{"result": 1.0}`, "standard_deviation", []py.Value{py.NewList(int64(1), int64(3))}},
		{`{"result": 2999999.9999999995}`, "si_unit_conversion", []py.Value{int64(3), "mm", "nm"}},
		{`{"result": 5.0}`, "si_unit_conversion", []py.Value{int64(5), "m", "m"}},
		{`{"error": "Value must be a number"}`, "si_unit_conversion", []py.Value{"5", "m", "m"}},
		{`{"error": "Conversion from 'm' to 'ft' is not supported"}`, "si_unit_conversion", []py.Value{int64(5), "m", "ft"}},
		{`TypeError: unhashable type: 'list'`, "si_unit_conversion", []py.Value{int64(5), py.NewList(), "m"}},
		{`{"error": "Conversion resulted in a value too large to represent"}`, "si_unit_conversion", []py.Value{huge, "cm", "m"}},
		{`{"result": 3}`, "imperial_si_conversion", []py.Value{int64(3), "x", "x"}},
		{`{"result": 212.0}`, "imperial_si_conversion", []py.Value{int64(100), "celsius", "fahrenheit"}},
		{`{"result": 37.77777777777778}`, "imperial_si_conversion", []py.Value{int64(100), "fahrenheit", "celsius"}},
		{`{"result": 0.9144000000000001}`, "imperial_si_conversion", []py.Value{int64(3), "ft", "m"}},
		{`{"error": "Conversion from 'm' to 'cm' is not supported"}`, "imperial_si_conversion", []py.Value{int64(3), "m", "cm"}},
		{`{'result': mpf('3.000000000029')}`, "logarithm", []py.Value{int64(8), int64(2), int64(10)}},
		{`{"error": ""}`, "logarithm", []py.Value{int64(8), int64(1), int64(10)}},
		{`{'result': Decimal('1.414213562')}`, "square_root", []py.Value{int64(2), int64(10)}},
		{`{"error": "Cannot calculate square root of a negative number"}`, "square_root", []py.Value{int64(-1), "x"}},
		{`{"error": "Input must be a number or computation resulted in an invalid operation"}`, "square_root", []py.Value{"4", int64(5)}},
		{`ValueError: valid range for prec is [1, MAX_PREC]`, "square_root", []py.Value{int64(2), int64(0)}},
	} {
		p.want(tc.want, tc.method, tc.args...)
	}
}
