package bfcl

import (
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl/internal/py"
	"rcgrpo/internal/must"
)

// vector is one line of py_vectors: an input and the result of CPython or an official method.
type vector struct {
	Kind string
	In   json.RawMessage
	Out  json.RawMessage
	Str  string
	JSON *string
}

// infAndNaN resolves inf and nan, which reprs of floats contain.
type infAndNaN struct{}

func (infAndNaN) Lookup(name string) (py.Value, error) {
	switch name {
	case "inf":
		return math.Inf(1), nil
	case "nan":
		return math.NaN(), nil
	}
	return nil, py.Unsupported()
}
func (infAndNaN) Attribute(py.Value, string) (py.Value, error) { return nil, py.Unsupported() }
func (infAndNaN) Call(py.Value, []py.Value, []py.Argument) (py.Value, error) {
	return nil, py.Unsupported()
}

func evaluate(t *testing.T, source string) py.Value {
	t.Helper()
	e, err := py.Parse(source)
	if err == nil {
		var v py.Value
		if v, err = py.Eval(e, infAndNaN{}); err == nil {
			return v
		}
	}
	t.Fatalf("%s: %v", source, err)
	return nil
}

func read[T any](t *testing.T, raw json.RawMessage) T {
	t.Helper()
	var v T
	must.OK(t, json.Unmarshal(raw, &v))
	return v
}

// TestPythonVectors compares texts, numbers and random streams with CPython's.
func TestPythonVectors(t *testing.T) {
	seen := map[string]int{}
	fixtures.Records(t, "bfcl/py_vectors.jsonl", func(v vector) {
		seen[v.Kind]++
		got, want := "", ""
		switch {
		case strings.HasPrefix(v.Kind, "rng."):
			checkStream(t, v)
			return
		case v.Kind == "container":
			value := evaluate(t, read[string](t, v.In))
			got, want = py.Str(value), v.Str
			text, err := py.JSON(value)
			switch {
			case (err != nil) != (v.JSON == nil):
				t.Errorf("json of %s: got error %v", v.In, err)
			case err == nil && text != *v.JSON:
				t.Errorf("json of %s: got %s, want %s", v.In, text, *v.JSON)
			}
		case v.Kind == "logarithm" || v.Kind == "square_root" || v.Kind == "mean" ||
			v.Kind == "standard_deviation" || v.Kind == "power":
			got, want = throughMethod(t, v), read[string](t, v.Out)
			want = strings.Replace(want, "EXC ", "Error during execution: ", 1)
		default:
			got, want = throughFunction(t, v), text(t, v.Out)
		}
		if got != want && !(v.Kind == "power" && sameComplex(got, want)) {
			t.Errorf("%s of %s: got %s, want %s", v.Kind, v.In, got, want)
		}
	})
	t.Logf("vectors by kind: %v", seen)
}

// sameComplex reports whether two results are complex numbers whose parts agree to 14 digits. CPython's last digits are
// those of C's sine and cosine.
func sameComplex(got, want string) bool {
	parts := regexp.MustCompile(`[-+]?[0-9.]+(e[-+]?[0-9]+)?`)
	a, b := parts.FindAllString(got, -1), parts.FindAllString(want, -1)
	if len(a) != len(b) || !strings.Contains(got, "j)") || !strings.Contains(want, "j)") {
		return false
	}
	for i := range a {
		x, err := strconv.ParseFloat(a[i], 64)
		y, err2 := strconv.ParseFloat(b[i], 64)
		if err != nil || err2 != nil || math.Abs(x-y) > 1e-14*math.Abs(y) {
			return false
		}
	}
	return true
}

// text returns a recorded value: a JSON string decoded, other values as compact JSON.
func text(t *testing.T, raw json.RawMessage) string {
	if raw[0] == '"' {
		return read[string](t, raw)
	}
	v := read[any](t, raw)
	b, _ := json.Marshal(v)
	return string(b)
}

func hexFloat(t *testing.T, s string) float64 {
	t.Helper()
	return must.Get(strconv.ParseFloat(s, 64))(t)
}

func throughFunction(t *testing.T, v vector) string {
	t.Helper()
	switch v.Kind {
	case "float.repr":
		return py.FormatFloat(hexFloat(t, read[string](t, v.In)))
	case "fmt.2f":
		return py.Fixed(hexFloat(t, read[string](t, v.In)), 2)
	case "round", "round.int":
		in := read[[]json.RawMessage](t, v.In)
		var number, digits py.Value
		var err error
		if v.Kind == "round" {
			number = hexFloat(t, read[string](t, in[0]))
		} else if number, err = py.FromJSON(in[0]); err != nil {
			t.Fatal(err)
		}
		digits = must.Get(py.FromJSON(in[1]))(t)
		rounded, err := py.Round(number, digits)
		if err != nil {
			return "EXC " + py.AsException(err).Message
		}
		return py.Repr(rounded)
	}
	s := read[string](t, v.In)
	list := func(items []string) string {
		b, _ := json.Marshal(items)
		return string(b)
	}
	switch v.Kind {
	case "str.repr":
		return py.Repr(s)
	case "json.dumps":
		return must.Get(py.JSON(s))(t)
	case "str.splitlines":
		return list(py.SplitLines(s))
	case "str.split":
		return list(strings.FieldsFunc(s, py.Space))
	case "str.lower":
		return py.Lower(s)
	case "len":
		return strconv.Itoa(py.RuneLen(s))
	case "utf8len":
		return strconv.Itoa(len(s))
	case "sorted.lines":
		lines := py.SplitLines(s)
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	t.Fatalf("unknown kind of vector %q", v.Kind)
	return ""
}

// throughMethod calls the official method of that name with the arguments as source code.
func throughMethod(t *testing.T, v vector) string {
	t.Helper()
	var args string
	if v.In[0] == '"' {
		args = read[string](t, v.In)
	} else {
		var list []string
		for _, raw := range read[[]json.RawMessage](t, v.In) {
			if raw[0] == '"' {
				list = append(list, read[string](t, raw))
			} else {
				list = append(list, string(raw))
			}
		}
		args = strings.Join(list, ", ")
	}
	e := must.Get(mathTask().Start(Settings{}))(t)
	return e.policy.run(v.Kind + "(" + args + ")").Text
}

func mathTask() *Task {
	return &Task{ID: "math_0", Category: "base", Classes: []string{"MathAPI"}, Turns: []Turn{{}}}
}

func checkStream(t *testing.T, v vector) {
	t.Helper()
	in := read[struct {
		Seed     int64
		A, B     float64
		PerRound []string `json:"per_round"`
	}](t, v.In)
	r := py.NewRandom(in.Seed)
	draw := func(kind string, a, b float64) float64 {
		switch kind {
		case "random":
			return r.Random()
		case "getrandbits32":
			return float64(r.GetRandBits(32))
		case "randint":
			return float64(r.RandInt(int64(a), int64(b)))
		case "uniform":
			return r.Uniform(a, b)
		}
		t.Fatalf("unknown kind of stream %q", kind)
		return 0
	}
	for i, want := range read[[]float64](t, v.Out) {
		kind := strings.TrimPrefix(v.Kind, "rng.")
		if kind == "mixed" {
			f := strings.Fields(in.PerRound[i%len(in.PerRound)])
			kind, in.A, in.B = f[0], hexFloat(t, f[1]), hexFloat(t, f[2])
		}
		if got := draw(kind, in.A, in.B); got != want {
			t.Fatalf("%s %s, value %d: got %v, want %v", v.Kind, v.In, i, got, want)
		}
	}
}
