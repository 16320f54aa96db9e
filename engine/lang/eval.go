package lang

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// eval evaluates an expression. It checks the names first, so that a wrong name is reported with the nearest valid
// one. After an error the value is unknown.
//
// After mostErrors nothing is evaluated, because an error that lists names costs much more than its expression.
func (l *scope) eval(expr hclsyntax.Expression, ctx *hcl.EvalContext, each bool) (cty.Value, hcl.Diagnostics) {
	if l.wrong >= mostErrors {
		return cty.DynamicVal, hcl.Diagnostics{tooManyErrors()}
	}
	var unknown hcl.Diagnostics
	for _, t := range expr.Variables() {
		if len(unknown) == mostErrors {
			break
		}
		if d := l.checkName(t, each); d != nil {
			unknown = append(unknown, d)
		}
	}
	if l.wrong += len(unknown); unknown != nil {
		return cty.DynamicVal, unknown
	}
	before := l.effort.spent
	val, diags := expr.Value(ctx)
	val, diags = l.effort.check(before, val, diags, expr.Range())
	diags = diags[:min(len(diags), mostErrors)]
	l.wrong += len(diags)
	if diags.HasErrors() {
		val = cty.DynamicVal
	}
	suggestFunctions(diags)
	suggestNames(diags)
	return val, diags
}

// text returns a known string, else "".
func text(v cty.Value) string {
	if v.Type() != cty.String || !v.IsKnown() || v.IsNull() {
		return ""
	}
	return v.AsString()
}

// evalOrReport is eval that reports the errors.
func (l *scope) evalOrReport(expr hclsyntax.Expression, ctx *hcl.EvalContext, each bool) cty.Value {
	val, diags := l.eval(expr, ctx, each)
	l.diags = append(l.diags, diags...)
	return val
}

// impure are functions of other languages that no expression may call.
var impure = []string{"env", "getenv", "timestamp", "plantimestamp", "now", "time", "uuid", "random", "rand",
	"http", "hostname", "exec", "shell"}

// suggestFunctions adds the nearest name to errors about unknown functions.
func suggestFunctions(diags hcl.Diagnostics) {
	for _, d := range diags {
		call, ok := hcl.DiagnosticExtra[hclsyntax.FunctionCallUnknownDiagExtra](d)
		if !ok {
			continue
		}
		name := call.CalledFunctionName()
		d.Detail = fmt.Sprintf("There is no function %s%s", name, didYouMean(name, Functions()))
		if slices.Contains(impure, name) {
			d.Detail = fmt.Sprintf("There is no function %s: no function reads the clock, the environment, "+
				"the network or random numbers, so that the same files give the same experiment everywhere. "+
				"Pass such a value as a variable: --var or RCGRPO_VAR_NAME.", name)
		}
	}
}

func (l *scope) decoder(ctx *hcl.EvalContext) *decoder {
	return &decoder{layer: &layer{}, origins: map[string]origin{}, given: map[string]bool{},
		eval: func(e hclsyntax.Expression, each bool) (cty.Value, hcl.Diagnostics) { return l.eval(e, ctx, each) }}
}

func (l *scope) decode(b body, ctx *hcl.EvalContext, settings any) {
	d := l.decoder(ctx)
	d.decode(b, reflect.ValueOf(settings).Elem())
	l.diags = append(l.diags, d.diags...)
}
