package lang

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

// keysOfValue returns the sorted keys of an object or a map.
func keysOfValue(val cty.Value) []string {
	if val.Type().IsObjectType() {
		return slices.Sorted(maps.Keys(val.Type().AttributeTypes()))
	}
	return slices.Sorted(maps.Keys(val.AsValueMap()))
}

// decode fills the struct that settings points to from b.
func (l *loader) decode(b body, ctx *hcl.EvalContext, settings any) {
	d := decoder{ranges: map[string]hcl.Range{}, eval: func(e hclsyntax.Expression) (cty.Value,
		hcl.Diagnostics) {
		return l.eval(e, ctx, false)
	}}
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
			return &hcl.Diagnostic{Summary: "No for_each here", Detail: "each.key and each.value exist only " +
				"in a stage that has for_each."}
		case name != "key" && name != "value":
			return unknownName("each", name, []string{"key", "value"},
				"for_each gives each.key and each.value, not")
		}
	case "stage":
		return l.checkStage(t)
	default:
		roots := []string{"var", "local", "stage", "each"}
		detail := fmt.Sprintf("There is no name %s%s An expression begins with var, local, stage or each; a "+
			"string needs quotes.", root, didYouMean(root, roots))
		switch {
		case slices.Contains([]string{"yes", "no", "on", "off", "True", "False", "TRUE", "FALSE"}, root):
			detail = fmt.Sprintf("There is no name %s; the booleans are true and false.", root)
		case slices.Contains([]string{"None", "nil", "NULL"}, root):
			detail = fmt.Sprintf("There is no name %s; a setting without a value is null.", root)
		case shellName().MatchString(root):
			detail += fmt.Sprintf(" For a shell variable write $%s or $${%s}.", root, root)
		}
		if _, ok := l.localNamed[root]; ok {
			detail = fmt.Sprintf("Write local.%s.", root)
		} else if slices.ContainsFunc(l.variables, func(v *variable) bool { return v.name == root }) {
			detail = fmt.Sprintf("Write var.%s.", root)
		} else if l.named[root] != nil {
			detail = fmt.Sprintf("A reference to another stage begins with stage: write stage.%s.",
				traversalText(t))
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
	d := &hcl.Diagnostic{Summary: "Unknown " + map[string]string{"var": "variable", "local": "local",
		"each": "name"}[root]}
	for at := range len(name) {
		if name[at] == '-' && slices.Contains(names, name[:at]) {
			d.Detail = fmt.Sprintf("In HCL a name may contain hyphens, so %s.%s is one name, and it is not "+
				"defined. To subtract, put spaces around the minus: %s.%s - %s.", root, name, root, name[:at],
				name[at+1:])
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

// checkStage checks that `stage.KIND.NAME[key].PORT` exists, as far as it is written out. Keys and ports are known only
// after that stage is decoded; a stage with errors of its own is not checked.
func (l *loader) checkStage(t hcl.Traversal) *hcl.Diagnostic {
	kind, hasKind := stepName(t, 1)
	name, hasName := stepName(t, 2)
	if !hasKind {
		return nil
	}
	byName := l.named[kind]
	if byName == nil {
		return noReference("Reference to nothing", nil, "There is no stage of kind %s%s", kind,
			didYouMean(kind, slices.Sorted(maps.Keys(l.named))))
	}
	if !hasName {
		return nil
	}
	s := byName[name]
	if s == nil {
		names := slices.Sorted(maps.Keys(byName))
		hint := fmt.Sprintf(". The stages of this kind are %s.", strings.Join(names, ", "))
		if near := nearest(name, names); near != "" {
			hint = fmt.Sprintf("; did you mean stage.%s.%s?", kind, near)
		}
		return noReference("Reference to nothing", nil, "There is no stage %q %q%s", kind, name, hint)
	}
	if s.value == cty.DynamicVal || len(s.instances) == 0 && !s.keyed {
		return nil
	}
	if s.keyed {
		key, ok := stepName(t, 3)
		if !ok {
			return nil
		}
		if in := s.instance(key); in != nil {
			return in.checkPort(t, 4)
		}
		return s.unknownKey(key)
	}
	if len(t) > 3 {
		if _, isAttr := t[3].(hcl.TraverseAttr); !isAttr {
			return noReference("No for_each there", nil, "%s has no for_each, so it has no keys; write %s.PORT.",
				s.address(), s.address())
		}
	}
	return s.instances[0].checkPort(t, 3)
}

func noReference(summary string, extra any, format string, args ...any) *hcl.Diagnostic {
	return &hcl.Diagnostic{Summary: summary, Detail: fmt.Sprintf(format, args...), Extra: extra}
}

// unknownKey reports a reference to a key that for_each does not have.
func (s *stageBlock) unknownKey(key string) *hcl.Diagnostic {
	var keys []string
	for _, i := range s.instances {
		keys = append(keys, i.key)
	}
	forEach := Related{Text: "its for_each", Range: s.block.Body.Attributes["for_each"].SrcRange}
	if len(keys) == 0 {
		return noReference("Unknown key", forEach, "The for_each of %s is empty, so there is no instance %q.",
			s.address(), key)
	}
	if _, port := s.instances[0].outputs[key]; port {
		return noReference("Several instances", forEach,
			"%s has for_each; write the key before the port, for example %s.%s.", s.address(),
			s.instances[0].address(), key)
	}
	return noReference("Unknown key", forEach, "The for_each of %s has no key %q%s Its keys are %s.", s.address(), key,
		didYouMean(key, keys), quoteAll(keys))
}

// checkPort checks that the port at a step of a traversal exists.
func (in *instance) checkPort(t hcl.Traversal, step int) *hcl.Diagnostic {
	port, ok := stepName(t, step)
	if !ok {
		return nil
	}
	if _, ok := in.outputs[port]; ok {
		return nil
	}
	return noReference("Unknown port", declaredHere(in), "%s has no port %s%s Its ports are %s.", in.address(), port,
		didYouMean(port, slices.Sorted(maps.Keys(in.outputs))), listPorts(in.outputs))
}

// address returns the address of the block, without key and seed.
func (s *stageBlock) address() string { return address(s.kindName, s.name, "", false, nil) }

func (s *stageBlock) instance(key string) *instance {
	i, ok := slices.BinarySearchFunc(s.instances, key, func(in *instance,
		key string) int {
		return strings.Compare(in.key, key)
	})
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
