package engine

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// eval evaluates an expression. It checks the names first, so that a wrong name is reported with the nearest valid
// one. After an error the value is unknown.
func (l *loader) eval(expr hclsyntax.Expression, ctx *hcl.EvalContext, each bool) (cty.Value, hcl.Diagnostics) {
	var diags hcl.Diagnostics
	for _, t := range expr.Variables() {
		if d := l.checkName(t, each); d != nil {
			d.Severity = hcl.DiagError
			rng := t.SourceRange()
			d.Subject = &rng
			diags = append(diags, d)
		}
	}
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	val, diags := l.value(expr, ctx)
	if diags.HasErrors() {
		suggestFunctions(diags)
		suggestKeys(diags)
		return cty.DynamicVal, diags
	}
	return val, diags
}

// value evaluates expr within the allowance.
func (l *loader) value(expr hclsyntax.Expression, ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	val, diags := expr.Value(ctx)
	if spent := l.allowance.diagnostics(); spent != nil { // other errors follow from this one, or try() hides it
		return cty.DynamicVal, spent
	}
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	if excess := l.allowance.check(val, expr.Range(), true); excess != nil {
		return cty.DynamicVal, excess
	}
	return val, diags
}

// impure are functions of other languages that no expression may call.
var impure = []string{"env", "getenv", "timestamp", "plantimestamp", "now", "time", "uuid", "random", "rand", "http", "hostname", "exec", "shell"}

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
			d.Detail = fmt.Sprintf("There is no function %s: none reads the clock, the environment, the network or chance, so that the same files mean the same everywhere. What differs is a variable: -var or RCGRPO_VAR_NAME.", name)
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

// keysOfValue returns the sorted keys of an object or a map.
func keysOfValue(val cty.Value) []string {
	if val.Type().IsObjectType() {
		return slices.Sorted(maps.Keys(val.Type().AttributeTypes()))
	}
	return slices.Sorted(maps.Keys(val.AsValueMap()))
}

// decode fills the struct that settings points to from b.
func (l *loader) decode(b body, ctx *hcl.EvalContext, settings any) {
	d := decoder{ranges: map[string]hcl.Range{}, eval: func(e hclsyntax.Expression) (cty.Value, hcl.Diagnostics) { return l.eval(e, ctx, false) }}
	d.structure(b, reflect.ValueOf(settings).Elem(), "")
	l.diags = append(l.diags, d.diags...)
}

// shellName matches the usual names of environment variables.
var shellName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Z][A-Z0-9_]+$`) })

// checkName reports unknown names in a traversal. It returns nil if they exist.
func (l *loader) checkName(t hcl.Traversal, each bool) *hcl.Diagnostic {
	name, hasName := stepName(t, 1)
	switch root := t.RootName(); root {
	case "var":
		return l.checkVariable(name, hasName)
	case "local":
		if _, ok := l.localNamed[name]; hasName && !ok {
			return unknownName("local", name, slices.Sorted(maps.Keys(l.localNamed)), "No locals block gives")
		}
	case "each":
		switch {
		case !each:
			return &hcl.Diagnostic{Summary: "No for_each here", Detail: "each.key and each.value exist only in a stage that has for_each."}
		case name != "key" && name != "value":
			return unknownName("each", name, []string{"key", "value"}, "for_each gives each.key and each.value, not")
		}
	case "stage":
		return l.checkStage(t)
	default:
		roots := []string{"var", "local", "stage", "each"}
		detail := fmt.Sprintf("Nothing is called %s%s An expression begins with var, local, stage or each; text stands in quotes.", root, didYouMean(root, roots))
		switch {
		case slices.Contains([]string{"yes", "no", "on", "off", "True", "False", "TRUE", "FALSE"}, root):
			detail = fmt.Sprintf("Nothing is called %s; a yes or no is written true or false.", root)
		case slices.Contains([]string{"None", "nil", "NULL"}, root):
			detail = fmt.Sprintf("Nothing is called %s; a setting without a value is null.", root)
		case shellName().MatchString(root):
			detail += fmt.Sprintf(" For a variable of the shell write $%s or $${%s}.", root, root)
		}
		if _, ok := l.localNamed[root]; ok {
			detail = fmt.Sprintf("Write local.%s.", root)
		} else if slices.ContainsFunc(l.variables, func(v *variable) bool { return v.name == root }) {
			detail = fmt.Sprintf("Write var.%s.", root)
		} else if l.named[root] != nil {
			detail = fmt.Sprintf("A reference to another stage begins with stage: write stage.%s.", traversalText(t))
		}
		return &hcl.Diagnostic{Summary: "Unknown name", Detail: detail}
	}
	return nil
}

func (l *loader) checkVariable(name string, hasName bool) *hcl.Diagnostic {
	var names []string
	known := false
	for _, v := range l.variables {
		if v.name == name || !hasName {
			v.used = true
			known = true
		}
		names = append(names, v.name)
	}
	if !hasName || known {
		return nil
	}
	return unknownName("var", name, names, "No variable block declares")
}

// unknownName reports a wrong name under a root. A name like updates-1 gets a hint about the minus sign.
func unknownName(root, name string, names []string, sentence string) *hcl.Diagnostic {
	d := &hcl.Diagnostic{Summary: "Unknown " + map[string]string{"var": "variable", "local": "local", "each": "name"}[root]}
	for at := range len(name) {
		if name[at] == '-' && slices.Contains(names, name[:at]) {
			d.Detail = fmt.Sprintf("In HCL a name may hold hyphens, so %s.%s is one name, and nothing has it. To subtract, put spaces around the minus: %s.%s - %s.", root, name, root, name[:at], name[at+1:])
			return d
		}
	}
	end := "."
	if len(names) > 0 && len(names) <= 8 {
		end = ". There is " + root + "." + strings.Join(names, ", "+root+".") + "."
	}
	if near := nearest(name, names); near != "" {
		end = "; did you mean " + root + "." + near + "?"
	}
	d.Detail = fmt.Sprintf("%s %s.%s%s", sentence, root, name, end)
	return d
}

// checkStage checks that `stage.KIND.NAME[key].PORT` exists, as far as it is written out. Keys and ports are known
// only after that stage is decoded; a stage with errors of its own is not checked.
func (l *loader) checkStage(t hcl.Traversal) *hcl.Diagnostic {
	kind, hasKind := stepName(t, 1)
	name, hasName := stepName(t, 2)
	if !hasKind {
		return nil
	}
	byName := l.named[kind]
	if byName == nil {
		return &hcl.Diagnostic{Summary: "Reference to nothing", Detail: fmt.Sprintf("No stage here is of kind %s%s", kind, didYouMean(kind, slices.Sorted(maps.Keys(l.named))))}
	}
	if !hasName {
		return nil
	}
	s := byName[name]
	if s == nil {
		names := slices.Sorted(maps.Keys(byName))
		detail := fmt.Sprintf("There is no stage %q %q", kind, name)
		if near := nearest(name, names); near != "" {
			detail += fmt.Sprintf("; did you mean stage.%s.%s?", kind, near)
		} else {
			detail += fmt.Sprintf(". Of that kind there are %s.", strings.Join(names, ", "))
		}
		return &hcl.Diagnostic{Summary: "Reference to nothing", Detail: detail}
	}
	if s.value == cty.DynamicVal || len(s.instances) == 0 && !s.keyed {
		return nil
	}
	in, step := (*instance)(nil), 3
	if s.keyed {
		key, ok := stepName(t, 3)
		if !ok {
			return nil
		}
		if in = s.instance(key); in == nil {
			var keys []string
			for _, i := range s.instances {
				keys = append(keys, i.key)
			}
			its := Related{Text: "its for_each", Range: s.block.Body.Attributes["for_each"].SrcRange}
			if len(keys) == 0 {
				return &hcl.Diagnostic{Summary: "Unknown key", Detail: fmt.Sprintf("The for_each of stage.%s.%s is empty, so there is no instance %q.", kind, name, key), Extra: its}
			}
			if _, port := s.instances[0].outputs[key]; port {
				return &hcl.Diagnostic{Summary: "Several instances", Detail: fmt.Sprintf("stage.%s.%s has for_each; name the instance before its port, for example %s.%s.", kind, name, s.instances[0].address(), key), Extra: its}
			}
			return &hcl.Diagnostic{Summary: "Unknown key", Detail: fmt.Sprintf("The for_each of stage.%s.%s has no key %q%s Its keys are %s.", kind, name, key, didYouMean(key, keys), quoteAll(keys)), Extra: its}
		}
		step = 4
	} else {
		in = s.instances[0]
		if step < len(t) {
			if _, isAttr := t[step].(hcl.TraverseAttr); !isAttr {
				return &hcl.Diagnostic{Summary: "No for_each there", Detail: fmt.Sprintf("stage.%s.%s has no for_each, so it has no keys; write stage.%s.%s.PORT.", kind, name, kind, name)}
			}
		}
	}
	port, ok := stepName(t, step)
	if !ok {
		return nil
	}
	if _, ok := in.outputs[port]; !ok {
		return &hcl.Diagnostic{Summary: "Unknown port", Detail: fmt.Sprintf("%s has no port %s%s Its ports are %s.", in.address(), port, didYouMean(port, slices.Sorted(maps.Keys(in.outputs))), listPorts(in.outputs)), Extra: declaredHere(in)}
	}
	return nil
}

func (s *stageBlock) instance(key string) *instance {
	i, ok := slices.BinarySearchFunc(s.instances, key, func(in *instance, key string) int { return strings.Compare(in.key, key) })
	if !ok {
		return nil
	}
	return s.instances[i]
}

// traversalText formats a traversal of names as in the file.
func traversalText(t hcl.Traversal) string {
	text := t.RootName()
	for i := range t[1:] {
		name, ok := stepName(t, i+1)
		if !ok {
			break
		}
		text += "." + name
	}
	return text
}
