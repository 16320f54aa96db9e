package lang_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
)

// calls contains at least one call of every function, with its result.
var calls = [][2]string{
	{"abs(-2)", "2"}, {"ceil(1.2)", "2"}, {"floor(1.8)", "1"}, {"int(1.8)", "1"}, {"log(8, 2)", "3"},
	{"max(1, 3, 2)", "3"}, {"min(4, 3)", "3"}, {`parseint("ff", 16)`, "255"}, {"pow(2, 10)", "1024"},
	{"signum(-7)", "-1"}, {`chomp("a\n")`, `"a"`}, {`format("%03d %s", 7, "x")`, `"007 x"`},
	{`formatlist("n%d", [1, 2])`, `["n1", "n2"]`}, {`indent(2, "a\nb")`, `"a\n  b"`},
	{`join("-", ["a", "b"])`, `"a-b"`}, {`lower("AB")`, `"ab"`}, {`regex("[0-9]+", "ab12")`, `"12"`},
	{`regexall("[0-9]", "1a2")`, `["1", "2"]`}, {`replace("a.b", ".", "-")`, `"a-b"`},
	{`split(",", "a,b")`, `["a", "b"]`}, {`strlen("größe")`, "5"}, {`strrev("abc")`, `"cba"`},
	{`substr("hello", 1, 3)`, `"ell"`}, {`title("ab cd")`, `"Ab Cd"`}, {`trim("--a-", "-")`, `"a"`},
	{`trimprefix("abc", "a")`, `"bc"`}, {`trimspace(" a ")`, `"a"`}, {`trimsuffix("abc", "c")`, `"ab"`},
	{`upper("ab")`, `"AB"`}, {"chunklist([1, 2, 3], 2)", "[[1, 2], [3]]"}, {`coalesce(null, "a")`, `"a"`},
	{"coalescelist([], [1])", "[1]"}, {`compact(["a", "", "b"])`, `["a", "b"]`},
	{"concat([1], [2])", "[1, 2]"}, {`contains(["a"], "a")`, "true"}, {"distinct([1, 1, 2])", "[1, 2]"},
	{"element([1, 2], 3)", "2"}, {"flatten([[1], [[2]]])", "[1, 2]"}, {`index(["a", "b"], 1)`, `"b"`},
	{"keys({ b = 1, a = 2 })", `["a", "b"]`}, {"length([1, 2])", "2"}, {`lookup({ a = 1 }, "b", 7)`, "7"},
	{"merge({ a = 1 }, { b = 2 })", "{ a = 1, b = 2 }"}, {"range(1, 4)", "[1, 2, 3]"},
	{"reverse([1, 2])", "[2, 1]"}, {`setintersection(["a", "b"], ["b"])`, `["b"]`},
	{`setproduct(["a"], ["x", "y"])`, `[["a", "x"], ["a", "y"]]`},
	{`setsubtract(["a", "b"], ["b"])`, `["a"]`},
	{`setsymmetricdifference(["a", "b"], ["b", "c"])`, `["a", "c"]`},
	{`setunion(["a"], ["b"])`, `["a", "b"]`}, {"slice([1, 2, 3], 1, 3)", "[2, 3]"},
	{`sort(["b", "a"])`, `["a", "b"]`}, {"values({ b = 1, a = 2 })", "[2, 1]"},
	{`zipmap(["a"], [1])`, "{ a = 1 }"}, {`csvdecode("a,b\n1,2\n")`, `[{ a = "1", b = "2" }]`},
	{`jsondecode("{\"a\": [1]}")`, "{ a = [1] }"}, {"jsonencode({ a = [1] })", `"{\"a\":[1]}"`},
	{`tobool("true")`, "true"}, {"tolist(toset([2, 1, 2]))", "[1, 2]"}, {"tomap({ a = 1 })", "{ a = 1 }"},
	{`tonumber("1.5")`, "1.5"}, {`toset(["b", "a"])`, `["a", "b"]`}, {"tostring(1.5)", `"1.5"`},
	{"alltrue([true, false])", "false"}, {"alltrue([])", "true"}, {"anytrue([false, true])", "true"},
	{"anytrue([])", "false"}, {"sum([1, 2.5])", "3.5"}, {"sum([])", "0"}, {"one([7])", "7"},
	{"one([])", "null"}, {`startswith("grpo.arm", "grpo")`, "true"}, {`endswith("a.csv", ".hcl")`, "false"},
	{`strcontains("abc", "b")`, "true"}, {"can(1 + 1)", "true"}, {`can({ a = 1 }.b)`, "false"},
	{`try({ a = 1 }.b, 9)`, "9"},
	{`matrix({ init = { sft = 1 }, batch = [64, 256] })`,
		`[{ batch = 64, init = 1, key = "sft/64" }, { batch = 256, init = 1, key = "sft/256" }]`},
}

// values are expressions without functions.
var values = [][2]string{
	{"var.updates - 1", "349"}, {"stage.sft.warm", "stage.sft.warm"},
	{`stage.grpo.arm["sft"].checkpoint`, `stage.grpo.arm["sft"].checkpoint`},
	{"[for k, v in local.inits : upper(k)]", `["RCTP", "SFT"]`},
	{`{ a = true, "b c" = null, d = "${1}x"}`, `{ a = true, "b c" = null, d = "1x" }`},
}

func TestExpressionsReturnTheirValuesAsHCL(t *testing.T) {
	x := loadFile(t, paperFile)
	called := map[string]bool{"file": true, "dir": true} // tested in data_test.go
	for _, c := range slices.Concat(calls, values) {
		got, diags := lang.Eval(x, enginetest.PaperKinds(), c[0])
		if diags.HasErrors() || got != c[1] {
			t.Errorf("%s: got %s, %v, want %s", c[0], got, diags, c[1])
		}
		name, _, _ := strings.Cut(c[0], "(")
		called[name] = true
	}
	for _, name := range lang.Functions() {
		if !called[name] {
			t.Errorf("%s has no call in this test", name)
		}
	}
}

func TestWrongExpressionsAreReported(t *testing.T) {
	x := loadFile(t, paperFile)
	for expression, want := range map[string]string{
		`sum(["a"])`:                        "want every element to be a number",
		"sum(3)":                            "want a list or a set, got the number 3",
		"alltrue([1, 2])":                   "want every element to be a bool",
		"one([1, 2])":                       "want one element or none, got 2",
		"startswith(1, [])":                 "string required",
		"var.update":                        "did you mean var.updates?",
		"jsonencode([stage.model.base])":    "cannot be converted to a string",
		`format("%v", file("paper.hcl"))`:   "cannot be converted to a string",
		`"${stage.model.base.checkpoint}s"`: "string required",
	} {
		_, diags := lang.Eval(x, enginetest.PaperKinds(), expression)
		if !slices.ContainsFunc(diags, func(d *hcl.Diagnostic) bool { return strings.Contains(d.Detail, want) }) {
			t.Errorf("%s: got %v, want %q", expression, diags, want)
		}
	}
}
