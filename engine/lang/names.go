package lang

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// checkName reports unknown names in a traversal. It returns nil if they exist.
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
		return l.checkStage(t, 0)
	case "module":
		return l.checkModule(t, 0)
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
		} else if l.named[root] != nil {
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

// checkModule checks that `module.NAME[key].stage.…` exists, as checkStage does. The word module is step at of t.
func (l *scope) checkModule(t hcl.Traversal, at int) *hcl.Diagnostic {
	name, hasName := stepName(t, at+1)
	if !hasName {
		return nil
	}
	m := l.moduleNamed[name]
	if m == nil {
		return mistake(t.SourceRange(), "Reference to nothing", "There is no module %q%s", name,
			didYouMean(name, slices.Sorted(maps.Keys(l.moduleNamed))))
	}
	next, key := at+2, ""
	if m.keyed {
		if key, hasName = stepName(t, next); !hasName {
			return nil
		}
		next++
	}
	child := m.instances[key]
	switch step, ok := stepName(t, next); {
	case m.value == cty.DynamicVal: // has errors of its own
		return nil
	case child == nil:
		return m.unknownKey(t.SourceRange(), key, slices.Sorted(maps.Keys(m.instances)),
			key == "stage" || key == "module")
	case !ok:
		return nil
	case step == "stage":
		return child.checkStage(t, next)
	case step == "module":
		return child.checkModule(t, next)
	default:
		return relate(mistake(t.SourceRange(), "Unknown name", "%s contains stages: write %s.stage.KIND.NAME.PORT.",
			child.address, child.address), "the module", m.def)
	}
}

// unknownKey reports a reference to an instance that a for_each does not make. If the word in place of the key is a
// part of each instance, such as a port, the key itself is missing.
func (d *declaration) unknownKey(at hcl.Range, key string, keys []string, isPart bool) *hcl.Diagnostic {
	var diag *hcl.Diagnostic
	of := d.address()
	switch {
	case len(keys) == 0:
		diag = mistake(at, "Unknown key", "The for_each of %s is empty, so there is no instance %q.", of, key)
	case isPart:
		diag = mistake(at, "Several instances", "%s has for_each; write the key after the name, for example %s[%q].%s.", of,
			of, keys[0], key)
	default:
		diag = mistake(at, "Unknown key", "The for_each of %s has no key %q%s Its keys are %s.", of, key,
			didYouMean(key, keys), quoteAll(keys))
	}
	return relate(diag, "its for_each", d.block.Body.Attributes["for_each"].SrcRange)
}

// checkStage checks that `stage.KIND.NAME[key].PORT` exists, as far as it is written out. The word stage is step at of
// t. Keys and ports are known only after that stage is decoded; a stage with errors of its own is not checked.
func (l *scope) checkStage(t hcl.Traversal, at int) *hcl.Diagnostic {
	place := t.SourceRange()
	kind, hasKind := stepName(t, at+1)
	name, hasName := stepName(t, at+2)
	byName := l.named[kind]
	where := ""
	if l.address != "" {
		where = " in " + l.address
	}
	switch {
	case !hasKind || byName != nil && !hasName:
		return nil
	case byName == nil:
		return mistake(place, "Reference to nothing", "There is no stage of kind %s%s%s", kind, where,
			didYouMean(kind, slices.Sorted(maps.Keys(l.named))))
	}
	s := byName[name]
	if s == nil {
		names := slices.Sorted(maps.Keys(byName))
		hint := fmt.Sprintf(". The stages of this kind are %s.", strings.Join(names, ", "))
		if near := nearest(name, names); near != "" {
			hint = fmt.Sprintf("; did you mean %s?", byName[near].address())
		}
		return mistake(place, "Reference to nothing", "There is no stage %q %q%s%s", kind, name, where, hint)
	}
	key, hasKey := stepName(t, at+3)
	switch {
	case s.value == cty.DynamicVal || len(s.instances) == 0 && !s.keyed || s.keyed && !hasKey:
		return nil
	case s.keyed:
		if in := s.byKey[key]; in != nil {
			return in.checkPort(t, at+4)
		}
		var keys []string
		isPort := false
		for _, in := range s.instances {
			keys = append(keys, in.key)
			isPort = isPort || in.outputs[key] != ""
		}
		return s.unknownKey(place, key, keys, isPort)
	}
	if len(t) > at+3 {
		if _, isAttr := t[at+3].(hcl.TraverseAttr); !isAttr {
			return mistake(place, "No for_each there", "%s has no for_each, so it has no keys; write %s.PORT.",
				s.address(), s.address())
		}
	}
	return s.instances[0].checkPort(t, at+3)
}

func (in *instance) checkPort(t hcl.Traversal, step int) *hcl.Diagnostic {
	port, ok := stepName(t, step)
	if _, known := in.outputs[port]; !ok || known {
		return nil
	}
	return in.declared(mistake(t.SourceRange(), "Unknown port", "%s has no port %s%s Its ports are %s.", in.address(),
		port, didYouMean(port, slices.Sorted(maps.Keys(in.outputs))), listPorts(in.outputs)))
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
