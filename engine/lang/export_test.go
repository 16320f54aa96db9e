package lang

import "github.com/hashicorp/hcl/v2"

// Eval evaluates an expression with the variables, locals and stages of an experiment, which it loads again. It returns
// the value as an expression on one line, with references and files by their names.
func Eval(x *Experiment, reg Registry, expression string) (string, hcl.Diagnostics) {
	l := newLoader(x.Source)
	l.reg = reg
	root := l.load()
	expr, diags := parseExpression(expression, "<test>", hcl.InitialPos)
	if diags.HasErrors() {
		return "", diags
	}
	val, diags := root.eval(expr, root.contextFor(root.items(), root.dependenciesOf(expr.Variables())), false)
	if diags.HasErrors() {
		return "", diags
	}
	return valueText(val), diags
}
