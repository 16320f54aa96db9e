package lang

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Eval evaluates an expression with the variables, locals and stages of the experiment. It returns the value as an
// expression on one line, with references and files by their names. Diagnostics name the file <console>, which Files
// contains afterwards.
func (x *Experiment) Eval(expression string) (string, hcl.Diagnostics) { return x.evaluate(expression) }

func (l *loader) evaluate(expression string) (string, hcl.Diagnostics) {
	const name = "<console>"
	l.x.Files[name] = &hcl.File{Bytes: []byte(expression)}
	if d := checkNesting([]byte(expression), name); d != nil {
		return "", hcl.Diagnostics{d}
	}
	expr, diags := hclsyntax.ParseExpression([]byte(expression), name, hcl.InitialPos)
	if diags.HasErrors() {
		return "", diags
	}
	l.allowance = allowance{}
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
