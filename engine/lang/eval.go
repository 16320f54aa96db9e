package lang

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

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
	val, diags := expr.Value(ctx)
	diags = diags[:min(len(diags), mostErrors)]
	l.wrong += len(diags)
	if diags.HasErrors() {
		val = cty.DynamicVal
	}
	suggestFunctions(diags)
	suggestKeys(diags)
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

// suggestKeys adds the nearest key to errors about a missing key, such as local.sizes.smal.
func suggestKeys(diags hcl.Diagnostics) {
	for _, d := range diags {
		expr, ok := d.Expression.(*hclsyntax.ScopeTraversalExpr)
		if !ok || d.EvalContext == nil || d.Summary != "Unsupported attribute" && d.Summary != "Invalid index" {
			continue
		}
		for i := 1; i < len(expr.Traversal); i++ {
			if _, broken := expr.Traversal[:i+1].TraverseAbs(d.EvalContext); !broken.HasErrors() {
				continue
			}
			val, diags := expr.Traversal[:i].TraverseAbs(d.EvalContext)
			name, named := stepName(expr.Traversal, i)
			of := traversalText(expr.Traversal[:i])
			switch t := val.Type(); {
			case diags.HasErrors() || !named:
			case t == refType:
				d.Detail = fmt.Sprintf("%s is a whole artifact and has no parts; write the reference without .%s.", of, name)
			case t.IsObjectType() || t.IsMapType() && val.IsKnown() && !val.IsNull():
				keys := keysOfValue(val)
				d.Detail = fmt.Sprintf("%s has no key %q%s", of, name, didYouMean(name, keys))
				if near := nearest(name, keys); near == "" && len(keys) <= 12 {
					d.Detail += fmt.Sprintf(" It has %s.", cmp.Or(strings.Join(keys, ", "), "none"))
				}
			}
			break
		}
	}
}

func keysOfValue(val cty.Value) []string {
	if val.Type().IsObjectType() {
		return slices.Sorted(maps.Keys(val.Type().AttributeTypes()))
	}
	return slices.Sorted(maps.Keys(val.AsValueMap()))
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
