package lang

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

type variable struct {
	block      *hclsyntax.Block
	name       string
	typ        cty.Type // type of its values
	fallback   cty.Value
	hasDefault bool
	rules      []*hclsyntax.Block // validation
	value      cty.Value          // unknown after an error
	used       bool
}

// evaluateVariables decodes the variable blocks of the experiment. A value comes from --var, else --var-file, else the
// environment, else the default.
func (l *scope) evaluateVariables() {
	byName := l.declareVariables()
	fromFiles := l.variableFiles(byName)
	for name := range l.src.Vars {
		if byName[name] == nil {
			l.errorf(hcl.Range{}, "Unknown variable", "--var %s: the experiment has no variable %s%s", name, name,
				didYouMean(name, l.variableNames()))
		}
	}
	for _, v := range l.variables {
		v.value = l.valueOf(v, fromFiles)
	}
	l.bindVariables()
	for _, v := range l.variables {
		if v.value.IsWhollyKnown() {
			l.x.Vars[v.name] = variableText(v.value)
		}
	}
}

// declareVariables decodes the variable blocks and returns the variables by name.
func (l *scope) declareVariables() map[string]*variable {
	byName := map[string]*variable{}
	kept := l.variables[:0]
	for _, v := range l.variables {
		if before := byName[v.name]; before != nil {
			l.errorf(v.block.DefRange(), "Duplicate variable", "Variable %s is already declared at %s.", v.name,
				Place(before.block.DefRange()))
			continue
		}
		if !hclsyntax.ValidIdentifier(v.name) {
			l.errorf(v.block.LabelRanges[0], "Bad name", "The name of a variable must begin with a letter "+
				"and contain only letters, digits, - and _; got %q.", v.name)
		}
		byName[v.name] = v
		kept = append(kept, v)
		l.declare(v)
	}
	l.variables = kept
	return byName
}

// bindVariables makes the values available to expressions and checks the validations.
func (l *scope) bindVariables() {
	object := map[string]cty.Value{}
	for _, v := range l.variables {
		object[v.name] = v.value
	}
	l.global.Variables = map[string]cty.Value{"var": cty.ObjectVal(object)}
	for _, v := range l.variables {
		l.validate(v)
	}
}

func (l *scope) variableNames() []string {
	var names []string
	for _, v := range l.variables {
		names = append(names, v.name)
	}
	return names
}

// TypeWords are the words of a variable's type.
var TypeWords = []string{"string", "number", "bool", "any", "list", "set", "map", "object", "tuple"}

// declare decodes type, default and validation of a variable block.
func (l *scope) declare(v *variable) {
	v.typ, v.value = cty.String, cty.DynamicVal
	typed := false
	for _, a := range attributes(v.block.Body, nil) {
		switch a.Name {
		case "type":
			v.typ, typed = l.variableType(a), true
		case "default":
			v.hasDefault = true
			if len(a.Expr.Variables()) > 0 {
				l.errorf(a.Expr.Range(), "Variable in a default",
					"A default must be a constant; compute values from variables in a locals block.")
				v.fallback, v.typ = cty.DynamicVal, cty.DynamicPseudoType
				continue
			}
			v.fallback = l.evalOrReport(a.Expr, l.global, false)
		case "description":
			if val, diags := a.Expr.Value(nil); diags.HasErrors() || val.Type() != cty.String {
				l.errorf(a.Expr.Range(), "Wrong type", "description must be a string in quotes.")
			}
		default:
			l.errorf(a.NameRange, "Unknown setting",
				"A variable has the settings type, default and description, but no %s%s", a.Name,
				didYouMean(a.Name, []string{"type", "default", "description", "validation"}))
		}
	}
	for _, bl := range v.block.Body.Blocks {
		if bl.Type != "validation" {
			l.errorf(bl.TypeRange, "Unknown block", "A variable has validation blocks, but no %s%s", bl.Type,
				didYouMean(bl.Type, []string{"validation"}))
			continue
		}
		v.rules = append(v.rules, bl)
	}
	switch {
	case !v.hasDefault || !v.fallback.IsKnown():
	case typed:
		val, err := l.convert(v.fallback, v.typ)
		if err != nil {
			l.errorf(v.block.Body.Attributes["default"].Expr.Range(), "Wrong type",
				"The default of variable %s does not fit its type: %s.", v.name, err)
			val = cty.DynamicVal
		}
		v.fallback = val
	case !v.fallback.IsNull(): // so that 350 is a number
		v.typ = v.fallback.Type()
	}
}

func (l *scope) variableType(a *hclsyntax.Attribute) cty.Type {
	t, diags := typeexpr.TypeConstraint(a.Expr)
	for _, d := range diags {
		if word := hcl.ExprAsKeyword(a.Expr); word != "" {
			d.Detail = fmt.Sprintf("There is no type %s%s", word, didYouMean(word, TypeWords))
		}
		d.Detail += " A type is string, number, bool, any, or such as list(string), map(number), " +
			"object({ name = string })."
	}
	l.diags = append(l.diags, diags...)
	if diags.HasErrors() {
		return cty.DynamicPseudoType
	}
	return t
}

// variableFiles reads the --var-file files; the last file with a variable wins.
func (l *scope) variableFiles(byName map[string]*variable) map[string]cty.Value {
	values := map[string]cty.Value{}
	for _, path := range l.src.VarFiles {
		b := l.parseFile(path)
		if b == nil {
			continue
		}
		for _, bl := range b.Blocks {
			l.errorf(bl.TypeRange, "Unknown block",
				"A file of variables contains only lines such as updates = 350, without blocks.")
		}
		for _, a := range attributes(b, nil) {
			v := byName[a.Name]
			if v == nil {
				l.errorf(a.NameRange, "Unknown variable", "The experiment has no variable %s%s", a.Name,
					didYouMean(a.Name, l.variableNames()))
				continue
			}
			val, diags := a.Expr.Value(&hcl.EvalContext{Functions: pureFunctions()})
			l.diags = append(l.diags, diags...)
			if diags.HasErrors() {
				values[a.Name] = cty.DynamicVal
				continue
			}
			values[a.Name] = l.converted(v, val, a.Expr.Range(), "Variable")
		}
	}
	return values
}

// valueOf returns the value of a variable; unknown after an error.
func (l *scope) valueOf(v *variable, fromFiles map[string]cty.Value) cty.Value {
	if text, ok := l.src.Vars[v.name]; ok {
		return l.parseVariable(v, text, "--var "+v.name)
	}
	if val, ok := fromFiles[v.name]; ok {
		return val
	}
	env := "RCGRPO_VAR_" + v.name
	if text, ok := lookupEnv(l.src.Env, env); ok {
		l.x.EnvVariables = append(l.x.EnvVariables, env)
		return l.parseVariable(v, text, env)
	}
	if v.hasDefault {
		return v.fallback
	}
	l.errorf(v.block.DefRange(), "Missing variable",
		"Variable %s has no default and no value: pass --var %s=…, set %s, or add a default.", v.name, v.name, env)
	return cty.DynamicVal
}

// parseVariable parses an external value: plain text for a string, an expression for any other type.
func (l *scope) parseVariable(v *variable, text, from string) cty.Value {
	if v.typ == cty.String {
		return cty.StringVal(text)
	}
	expr, diags := parseExpression(text, from, hcl.InitialPos)
	var val cty.Value
	if !diags.HasErrors() {
		val, diags = expr.Value(&hcl.EvalContext{Functions: pureFunctions()})
	}
	for _, d := range diags {
		if d.Summary == nestedTooDeeply {
			l.errorf(hcl.Range{}, d.Summary, "%s: %s", from, d.Detail)
			return cty.DynamicVal
		}
	}
	if diags.HasErrors() {
		l.errorf(hcl.Range{}, "Bad value", "%s: %q is not a value of type %s; strings inside lists and maps need quotes.",
			from, text, typeexpr.TypeString(v.typ))
		return cty.DynamicVal
	}
	return l.converted(v, val, hcl.Range{}, from+": variable")
}

// converted returns a value as the type of its variable; unknown after an error, whose text begins with subject.
func (l *scope) converted(v *variable, val cty.Value, at hcl.Range, subject string) cty.Value {
	val, err := l.convert(val, v.typ)
	if err != nil {
		l.errorf(at, "Wrong type", "%s %s is %s: %s.", subject, v.name, typeexpr.TypeString(v.typ), err)
		return cty.DynamicVal
	}
	return val
}

func (l *loader) convert(val cty.Value, to cty.Type) (cty.Value, error) {
	if err := l.effort.spend(conversion(val)); err != nil {
		return val, err
	}
	return convert.Convert(val, to)
}

func (l *scope) validate(v *variable) {
	if !v.value.IsWhollyKnown() {
		return
	}
	for _, bl := range v.rules {
		var rule struct {
			Condition bool   `hcl:"condition"`
			Message   string `hcl:"message"`

			At map[string]hcl.Range `hcl:",ranges"`
		}
		before := len(l.diags)
		for _, t := range mentions(bl.Body) {
			if t.RootName() != "var" {
				l.errorf(t.SourceRange(), "Only variables here", "A validation is evaluated before anything but "+
					"variables has a value, so it can use var.%s but not %s.", v.name, traversalText(t))
			}
		}
		if len(l.diags) > before {
			continue
		}
		l.decode(newBody(bl.Body, "a validation", bl.DefRange(), nil), l.global, &rule)
		if len(l.diags) > before || rule.Condition {
			continue
		}
		l.errorf(rule.At["condition"], "Invalid value", "%s Variable %s is %s.", rule.Message, v.name, valueText(v.value))
	}
}

// variableText formats a value for --var.
func variableText(v cty.Value) string {
	if v.Type() == cty.String && !v.IsNull() {
		return v.AsString()
	}
	return valueText(v)
}

// valueText formats a value as an HCL expression on one line, with references and files by their names.
func valueText(v cty.Value) string {
	t := v.Type()
	switch {
	case !v.IsKnown():
		return "(unknown)"
	case v.IsNull():
		return "null"
	case t == refType:
		return v.EncapsulatedValue().(*refValue).String()
	case t == fileType:
		return fileText(v)
	case instanceOf(v) != nil:
		return instanceOf(v).address()
	case isList(t):
		var parts []string
		for it := v.ElementIterator(); it.Next(); {
			_, e := it.Element()
			parts = append(parts, valueText(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case isMap(t):
		var parts []string
		for it := v.ElementIterator(); it.Next(); {
			k, e := it.Element()
			key := k.AsString()
			if !hclsyntax.ValidIdentifier(key) {
				key = string(hclwrite.TokensForValue(k).Bytes())
			}
			parts = append(parts, key+" = "+valueText(e))
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	}
	return string(hclwrite.TokensForValue(v).Bytes())
}
