package lang

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// Limits of expressions. A short file can describe a value that does not fit into memory; the limits stop the
// evaluation before it is computed.
const (
	maxValue    = 8 << 20   // bytes of one value: its texts, and perPart for each element
	maxValues   = 256 << 20 // bytes of all values of one Load, and perPass for each pass of a for
	perPart     = 32
	perPass     = 256
	maxElements = 10_000 // of a list or map argument: finding the common type of its elements takes quadratic time
	maxNesting  = 200    // nested lists and maps
	maxExponent = 1100   // of 2, in a number: somewhat more than a float64 has
	maxNodes    = 500_000
)

// tooLarge is the summary of all diagnostics about limits.
const tooLarge = "Value too large"

// allowance counts the size of computed values. After the first excess nothing more is evaluated.
type allowance struct {
	used  int64
	spent hcl.Diagnostics // of the first excess
}

func (a *allowance) excess(at hcl.Range, detail string) hcl.Diagnostics {
	if a.spent == nil {
		a.spent = hcl.Diagnostics{mistake(at, tooLarge, "%s", detail)}
	}
	return a.spent
}

// check reports a value that is too large. If charged, the value counts towards the limit of all values.
func (a *allowance) check(v cty.Value, at hcl.Range, charged bool) hcl.Diagnostics {
	size := measure{}
	if !size.add(v, 0) {
		return a.excess(at, size.why)
	}
	if !charged {
		return nil
	}
	if a.used += size.n; a.used > maxValues {
		return a.excess(at, fmt.Sprintf("All values of an experiment together may take %d MiB; this value exceeds the "+
			"limit. Every part of a list or map counts %d bytes, every text its length, every pass of a for %d bytes.",
			maxValues>>20, perPart, perPass))
	}
	return nil
}

// measure sums up the size of values until the limit.
type measure struct {
	n   int64
	why string
}

// add returns false if the value is too large; why is then the reason.
func (m *measure) add(v cty.Value, depth int) bool {
	m.n += perPart
	t := v.Type()
	switch {
	case !v.IsKnown() || v.IsNull():
	case t == cty.String:
		m.n += length(v)
	case t == cty.Number:
		if e := v.AsBigFloat().MantExp(nil); e < -maxExponent || e > maxExponent { // 0 for zero and infinity
			m.why = "A number may have up to 308 digits before or after the decimal point, as in 1e308 and " +
				"1e-308; this number has more."
			return false
		}
	case depth > maxNesting:
		m.why = fmt.Sprintf("Lists and maps may be nested %d deep; this value is nested deeper.", maxNesting)
		return false
	case v.CanIterateElements():
		for it := v.ElementIterator(); it.Next(); {
			k, e := it.Element()
			m.n += length(k)
			if !m.add(e, depth+1) {
				return false
			}
		}
	}
	if m.n > maxValue {
		m.why = fmt.Sprintf("A value may take %d MiB; this value takes more. Every part of a list or map counts %d "+
			"bytes, every text its length. Put large data into files: file(), dir().", maxValue>>20, perPart)
		return false
	}
	return true
}

// bounded is an expression whose value is checked before the surrounding expression uses it.
type bounded struct {
	*hclsyntax.ParenthesesExpr // lets hclsyntax.Walk find the inner expression
	allowance                  *allowance
	role                       role
}

// role is how the surrounding expression uses the value of a bounded expression.
type role int

const (
	operand  role = iota
	argument      // of a function, which may convert it to a list or map with elements of one type
	pass          // of a for, which is evaluated many times
)

// UnwrapExpression is for code in HCL that inspects an expression without evaluating it, such as types of variables.
func (b *bounded) UnwrapExpression() hcl.Expression { return b.Expression }

// Value evaluates the expression. The result is unknown if it, or an earlier value, is too large.
func (b *bounded) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	if b.allowance.spent != nil {
		return cty.DynamicVal, b.allowance.spent
	}
	if b.role == pass {
		b.allowance.used += perPass
	}
	v, diags := b.Expression.Value(ctx)
	if b.role == argument && (v.Type().IsTupleType() || v.Type().IsObjectType()) && parts(v) > maxElements {
		why := fmt.Sprintf("A list or map argument of a function may have %d elements; this one has %d.",
			maxElements, parts(v))
		return cty.DynamicVal, append(diags, b.allowance.excess(b.SrcRange, why)...)
	}
	if excess := b.allowance.check(v, b.SrcRange, b.role == pass); excess != nil {
		return cty.DynamicVal, append(diags, excess...)
	}
	return v, diags
}

// bind makes all expressions below a node use the allowance: each pass of a for is charged, and operands,
// arguments and parts of templates are checked. It reports literals that are too large.
func (a *allowance) bind(n hclsyntax.Node) hcl.Diagnostics {
	return hclsyntax.VisitAll(n, func(n hclsyntax.Node) hcl.Diagnostics {
		if b, ok := n.(*bounded); ok {
			n = b.Expression
		}
		switch e := n.(type) {
		case *hclsyntax.ForExpr:
			a.bound(&e.CollExpr, operand)
			a.bound(&e.KeyExpr, pass)
			a.bound(&e.ValExpr, pass)
			a.bound(&e.CondExpr, pass)
		case *hclsyntax.TemplateExpr:
			for i := range e.Parts {
				a.bound(&e.Parts[i], operand)
			}
		case *hclsyntax.FunctionCallExpr:
			for i := range e.Args {
				a.bound(&e.Args[i], argument)
			}
		case *hclsyntax.BinaryOpExpr:
			a.bound(&e.LHS, operand)
			a.bound(&e.RHS, operand)
		case *hclsyntax.ConditionalExpr:
			a.bound(&e.TrueResult, operand)
			a.bound(&e.FalseResult, operand)
		case *hclsyntax.SplatExpr:
			a.bound(&e.Source, operand)
		case *hclsyntax.LiteralValueExpr:
			return a.check(e.Val, e.SrcRange, false)
		}
		return nil
	})
}

// bound wraps an expression. A literal is wrapped only where each pass of a for is counted.
func (a *allowance) bound(e *hclsyntax.Expression, r role) {
	switch inner := (*e).(type) {
	case nil, *bounded:
		return
	case *hclsyntax.LiteralValueExpr:
		if r != pass {
			return
		}
	case *hclsyntax.TemplateExpr:
		if r != pass && inner.IsStringLiteral() {
			return
		}
	}
	*e = &bounded{&hclsyntax.ParenthesesExpr{Expression: *e, SrcRange: (*e).Range()}, a, r}
}

// estimates are upper bounds of the size or work of functions whose result can be much larger than their
// arguments, or whose time is not linear.
var estimates = map[string]func(args []cty.Value) int64{
	"csvdecode":  func(args []cty.Value) int64 { return product(perPart, count(args[0], ",")+count(args[0], "\n")) },
	"distinct":   func(args []cty.Value) int64 { return product(parts(args[0]), parts(args[0])) / 4 },
	"format":     func(args []cty.Value) int64 { return formatted(args, false) },
	"formatlist": func(args []cty.Value) int64 { return formatted(args, true) },
	"indent":     func(args []cty.Value) int64 { return product(integer(args[0]), 1+count(args[1], "\n")) },
	"join": func(args []cty.Value) int64 {
		n := int64(0)
		for _, list := range args[1:] {
			n += parts(list)
		}
		return product(n, length(args[0]))
	},
	"jsondecode": func(args []cty.Value) int64 { return product(perPart, count(args[0], ",")) },
	"parseint":   func(args []cty.Value) int64 { return product(length(args[0]), length(args[0])) / 64 },
	"regex":      func(args []cty.Value) int64 { return product(length(args[0]), length(args[1])) / 64 },
	"regexall":   func(args []cty.Value) int64 { return product(length(args[0])+perPart, length(args[1])) },
	"replace":    func(args []cty.Value) int64 { return product(count(args[0], text(args[1])), length(args[2])) },
	"setproduct": func(args []cty.Value) int64 {
		n := perPart * int64(len(args))
		for _, list := range args {
			n = product(n, parts(list))
		}
		return n
	},
	"split":    func(args []cty.Value) int64 { return product(perPart, count(args[1], text(args[0]))) },
	"tonumber": func(args []cty.Value) int64 { return product(length(args[0]), length(args[0])) / 64 },
}

// estimated wraps function f, so that it rejects arguments with a result that is too large.
func estimated(name string, f function.Function) function.Function {
	estimate := estimates[name]
	return guarded(f, func(args []cty.Value) error {
		if len(args) < len(f.Params()) {
			return nil // reported by the function itself
		}
		if name == "indent" && integer(args[0]) < 0 {
			return function.NewArgErrorf(0, "a text cannot be indented by %d spaces", integer(args[0]))
		}
		if name == "jsondecode" && tooNested(text(args[0])) {
			return function.NewArgErrorf(0, "lists and objects may be nested %d deep; this text is nested deeper",
				maxNesting)
		}
		if estimate(args) > maxValue {
			return fmt.Errorf("its result could take more than the %d MiB that a value may have, or too long "+
				"to compute", maxValue>>20)
		}
		return nil
	})
}

// product multiplies counts; on overflow it returns math.MaxInt64.
func product(a, b int64) int64 {
	if a > 0 && b > math.MaxInt64/a {
		return math.MaxInt64
	}
	return a * b
}

func text(v cty.Value) string {
	if v.Type() != cty.String || !v.IsKnown() || v.IsNull() {
		return ""
	}
	return v.AsString()
}

func length(v cty.Value) int64 { return int64(len(text(v))) }

func count(v cty.Value, part string) int64 { return int64(strings.Count(text(v), part)) }

// parts returns the number of elements of a list, set, tuple, map or object, else 0.
func parts(v cty.Value) int64 {
	if !v.CanIterateElements() {
		return 0
	}
	return int64(v.LengthInt())
}

// integer returns a known number truncated to an int64, else 0.
func integer(v cty.Value) int64 {
	if v.Type() != cty.Number || !v.IsKnown() || v.IsNull() {
		return 0
	}
	n, _ := v.AsBigFloat().Int64()
	return n
}

// formatted returns an upper bound of the text of format, or of all texts of formatlist.
func formatted(args []cty.Value, list bool) int64 {
	verbs, width := int64(0), int64(0)
	for _, directive := range strings.Split(text(args[0]), "%")[1:] {
		verbs++
		number := int64(0)
		for i := range len(directive) {
			if d := directive[i]; d >= '0' && d <= '9' {
				number = min(number*10+int64(d-'0'), maxValue+1)
			} else if d >= 'A' && d <= 'Z' || d >= 'a' && d <= 'z' {
				break
			} else {
				width, number = width+number, 0
			}
		}
		width += number
	}
	times := int64(1)
	for _, arg := range args[1:] {
		if list {
			times = max(times, parts(arg))
		}
	}
	total := product(times, length(args[0])+width)
	for _, arg := range args[1:] {
		size := measure{}
		size.add(arg, 0)
		if !list || parts(arg) == 0 {
			size.n = product(size.n, times)
		}
		if total += product(verbs, size.n); total > maxValue {
			return math.MaxInt64
		}
	}
	return total
}

// tooNested reports whether JSON is nested deeper than maxNesting. An invalid text is reported by jsondecode.
func tooNested(text string) bool {
	d := json.NewDecoder(strings.NewReader(text))
	for depth := 0; depth <= maxNesting; {
		switch token, err := d.Token(); {
		case err != nil:
			return false
		case token == json.Delim('[') || token == json.Delim('{'):
			depth++
		case token == json.Delim(']') || token == json.Delim('}'):
			depth--
		}
	}
	return true
}
