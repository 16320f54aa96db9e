package engine

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Eval evaluates an expression with the variables, locals and stages of the experiment and returns its value as an
// expression on one line; references and files stand as what names them. Parsing begins at the name <console>, which
// Files then holds for the diagnostics.
func (x *Experiment) Eval(expression string) (string, hcl.Diagnostics) {
	const name = "<console>"
	x.Files[name] = &hcl.File{Bytes: []byte(expression)}
	if d := checkNesting([]byte(expression), name); d != nil {
		return "", hcl.Diagnostics{d}
	}
	expr, diags := hclsyntax.ParseExpression([]byte(expression), name, hcl.InitialPos)
	if diags.HasErrors() {
		return "", diags
	}
	l := x.loader
	l.allowance.renew()
	if diags := l.allowance.bind(expr); diags.HasErrors() {
		return "", diags
	}
	items, byLocal, byStage := l.items()
	var needs []int
	for _, t := range expr.Variables() {
		needs = append(needs, l.dependenciesOf(t, byLocal, byStage)...)
	}
	val, diags := l.eval(expr, l.contextFor(items, needs), false)
	if diags.HasErrors() {
		return "", diags
	}
	return valueText(val), diags
}
