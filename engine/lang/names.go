package lang

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// checkName reports the first names of a traversal if nothing is declared under them. It returns nil if they exist;
// suggestNames completes the errors about what follows: keys, ports, and stages of a module.
func (l *scope) checkName(t hcl.Traversal, each bool) *hcl.Diagnostic {
	name, hasName := stepName(t, 1)
	switch root := t.RootName(); root {
	case "var":
		return l.checkVariable(t.SourceRange(), name, hasName)
	case "local":
		if _, ok := l.localNamed[name]; hasName && !ok {
			return unknownName(t.SourceRange(), "local", name, slices.Sorted(maps.Keys(l.localNamed)),
				"No locals block defines")
		}
	case "each":
		switch {
		case !each:
			return mistake(t.SourceRange(), "No for_each here",
				"each.key and each.value exist only in a stage or module that has for_each.")
		case name != "key" && name != "value":
			return unknownName(t.SourceRange(), "each", name, []string{"key", "value"},
				"for_each defines each.key and each.value, not")
		}
	case "stage":
		return l.checkStage(t)
	case "module":
		if hasName && l.moduleNamed[name] == nil {
			return mistake(t.SourceRange(), "Reference to nothing", "There is no module %q%s", name,
				didYouMean(name, slices.Sorted(maps.Keys(l.moduleNamed))))
		}
	default:
		detail := fmt.Sprintf("There is no name %s%s An expression begins with var, local, stage, module or each; a "+
			"string needs quotes.", root, didYouMean(root, []string{"var", "local", "stage", "module", "each"}))
		switch {
		case slices.Contains([]string{"yes", "no", "on", "off", "True", "False", "TRUE", "FALSE"}, root):
			detail = fmt.Sprintf("There is no name %s; the booleans are true and false.", root)
		case slices.Contains([]string{"None", "nil", "NULL"}, root):
			detail = fmt.Sprintf("There is no name %s; a setting without a value is null.", root)
		case len(root) > 1 && root == strings.ToUpper(root):
			detail += fmt.Sprintf(" For a shell variable write $%s or $${%s}.", root, root)
		}
		if l.localNamed[root] != nil {
			detail = fmt.Sprintf("Write local.%s.", root)
		} else if slices.Contains(l.variableNames(), root) {
			detail = fmt.Sprintf("Write var.%s.", root)
		} else if l.stageNamed[root] != nil {
			detail = fmt.Sprintf("A reference to another stage begins with stage: write stage.%s.", traversalText(t))
		}
		return mistake(t.SourceRange(), "Unknown name", "%s", detail)
	}
	return nil
}

// checkVariable also marks the variable as used: all of them if the name is computed.
func (l *scope) checkVariable(at hcl.Range, name string, hasName bool) *hcl.Diagnostic {
	known := !hasName
	for _, v := range l.variables {
		if v.name == name || !hasName {
			v.used, known = true, true
		}
	}
	if known {
		return nil
	}
	return unknownName(at, "var", name, l.variableNames(), "No variable block declares")
}

// unknownName reports a wrong name under a root. A name like updates-1 gets a hint about the minus sign.
func unknownName(at hcl.Range, root, name string, names []string, sentence string) *hcl.Diagnostic {
	summary := "Unknown " + map[string]string{"var": "variable", "local": "local", "each": "name"}[root]
	for i := range len(name) {
		if name[i] == '-' && slices.Contains(names, name[:i]) {
			return mistake(at, summary, "In HCL a name may contain hyphens, so %s.%s is one name, and it is not "+
				"defined. To subtract, put spaces around the minus: %s.%s - %s.", root, name, root, name[:i], name[i+1:])
		}
	}
	end := "."
	if near := nearest(name, names); near != "" {
		end = "; did you mean " + root + "." + near + "?"
	} else if len(names) > 0 && len(names) <= 8 {
		end = ". There is " + root + "." + strings.Join(names, ", "+root+".") + "."
	}
	return mistake(at, summary, "%s %s.%s%s", sentence, root, name, end)
}

// checkStage checks that `stage.KIND.NAME` exists, as far as it is written out.
func (l *scope) checkStage(t hcl.Traversal) *hcl.Diagnostic {
	kind, hasKind := stepName(t, 1)
	name, hasName := stepName(t, 2)
	byName := l.stageNamed[kind]
	where := ""
	if l.address != "" {
		where = " in " + l.address
	}
	switch {
	case !hasKind || byName != nil && (!hasName || byName[name] != nil):
		return nil
	case byName == nil:
		return mistake(t.SourceRange(), "Reference to nothing", "There is no stage of kind %s%s%s", kind, where,
			didYouMean(kind, slices.Sorted(maps.Keys(l.stageNamed))))
	}
	names := slices.Sorted(maps.Keys(byName))
	hint := fmt.Sprintf(". The stages of this kind are %s.", strings.Join(names, ", "))
	if near := nearest(name, names); near != "" {
		hint = fmt.Sprintf("; did you mean %s?", byName[near].address())
	}
	return mistake(t.SourceRange(), "Reference to nothing", "There is no stage %q %q%s%s", kind, name, where, hint)
}

// suggestNames completes errors about a name that a value lacks, such as local.sizes.smal.
func suggestNames(diags hcl.Diagnostics) {
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
			_, isIndex := expr.Traversal[i].(hcl.TraverseIndex)
			if named && !diags.HasErrors() {
				suggestName(d, val, traversalText(expr.Traversal[:i]), name, isIndex)
			}
			break
		}
	}
}

// suggestName completes an error about a name that a value lacks; of is the text of the value.
func suggestName(d *hcl.Diagnostic, val cty.Value, of, name string, isIndex bool) {
	t := val.Type()
	in := instanceOf(val)
	switch {
	case t == refType:
		d.Detail = fmt.Sprintf("%s is a whole artifact and has no parts; write the reference without .%s.", of, name)
	case in != nil && isIndex && !in.block.keyed:
		d.Summary = "No for_each there"
		d.Detail = fmt.Sprintf("%s has no for_each, so it has no keys; write %s.PORT.", in.address(), in.address())
	case in != nil:
		d.Summary = "Unknown port"
		d.Detail = fmt.Sprintf("%s has no port %s%s Its ports are %s.", in.address(), name,
			didYouMean(name, slices.Sorted(maps.Keys(in.outputs))), listPorts(in.outputs))
		in.declared(d)
	case isMap(t) && val.IsKnown() && !val.IsNull():
		suggestKey(d, val.AsValueMap(), of, name)
	}
}

// suggestKey completes an error about a key that an object or a map lacks. If each of its elements has a part of this
// name, such as a port of an instance, the key itself is missing.
func suggestKey(d *hcl.Diagnostic, elements map[string]cty.Value, of, name string) {
	d.Summary = "Unknown key"
	keys := slices.Sorted(maps.Keys(elements))
	if len(keys) == 0 {
		d.Detail = fmt.Sprintf("%s is empty, so it has no %q.", of, name)
		return
	}
	first := elements[keys[0]]
	if t := first.Type(); t.IsObjectType() && t.HasAttribute(name) {
		d.Summary = "Several instances"
		d.Detail = fmt.Sprintf("%s has several elements; write the key after the name, for example %s[%q].%s.", of, of,
			keys[0], name)
	} else {
		d.Detail = fmt.Sprintf("%s has no key %q%s", of, name, didYouMean(name, keys))
		if near := nearest(name, keys); near == "" && len(keys) <= 12 {
			d.Detail += fmt.Sprintf(" It has %s.", strings.Join(keys, ", "))
		}
	}
	if in := instanceOf(first); in != nil && in.block.keyed {
		relate(d, "its for_each", in.block.block.Body.Attributes["for_each"].SrcRange)
	}
}

// traversalText formats a traversal of names as in the file.
func traversalText(t hcl.Traversal) string {
	text := t.RootName()
	for i := range t[1:] {
		name, ok := stepName(t, i+1)
		if !ok {
			break
		}
		if _, isIndex := t[i+1].(hcl.TraverseIndex); isIndex {
			text += fmt.Sprintf("[%q]", name)
		} else {
			text += "." + name
		}
	}
	return text
}
