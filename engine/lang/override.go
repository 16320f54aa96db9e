package lang

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// Override is a setting from the command line: --set ADDRESS.SETTING=VALUE.
type Override struct {
	Address string // of the stage, as ShortAddress; without a key it means every instance
	Setting string // "limits.steps"
	Value   string // as typed
}

// String returns the override as typed.
func (o Override) String() string { return o.Address + "." + o.Setting + "=" + o.Value }

// override is an Override while Load applies it.
type override struct {
	stem  string  // address without key
	key   *string // nil: every instance
	entry entry
	used  bool // some stage has the address
}

// OverridesFile is the name of the file that Load pretends to read: one line for each override.
const OverridesFile = "--set"

// parseOverrides parses Source.Sets. Diagnostics refer to a file that contains them.
func (l *loader) parseOverrides() {
	if len(l.src.Sets) == 0 {
		return
	}
	l.x.Files[OverridesFile] = &hcl.File{Bytes: []byte(strings.Join(l.src.Sets, "\n"))}
	offset := 0
	for i, typed := range l.src.Sets {
		l.addOverride(typed, hcl.Pos{Line: i + 1, Column: 1, Byte: offset})
		offset += len(typed) + 1
	}
}

// rangeOn returns the range of bytes on the line of an override that begins at start.
func rangeOn(start hcl.Pos, from, to int) hcl.Range {
	at := func(n int) hcl.Pos { return hcl.Pos{Line: start.Line, Column: start.Column + n, Byte: start.Byte + n} }
	return hcl.Range{Filename: OverridesFile, Start: at(from), End: at(to)}
}

// overrideForm matches `module.base.sft.warm[key].limits.steps=4`: the address without key, the key in brackets, the
// setting and the value. Keys may contain an equals sign.
var overrideForm = sync.OnceValue(func() *regexp.Regexp {
	const module, stage = `(?:module\.[^.\[=]+(?:\[[^\]]*\])?\.)*`, `(?:stage\.)?[^.\[=]+\.[^.\[=]+`
	return regexp.MustCompile(`(?s)^\s*(` + module + stage + `)(\[[^\]]*\])?\.([^=]*[^=\s])\s*=(.*)$`)
})

// addOverride prepares an override as an entry, nested for a setting of a block. start is its position in the file of
// the overrides.
func (l *loader) addOverride(typed string, start hcl.Pos) {
	typed = strings.TrimRight(typed, " \t\n")
	whole := rangeOn(start, 0, len(typed))
	parts := overrideForm().FindStringSubmatch(typed)
	if parts == nil {
		l.errorf(whole, "Bad override",
			"Write --set ADDRESS.SETTING=VALUE, for example --set 'rc-grpo.arm[rctp].lr=3e-4'.")
		return
	}
	o := &override{stem: ShortAddress(parts[1])}
	address, setting, value := o.stem, parts[3], strings.TrimSpace(parts[4])
	if parts[2] != "" {
		key := strings.Trim(strings.ReplaceAll(parts[2], `"`, ""), "[]")
		o.key = &key
		address += "[" + key + "]"
	}
	begin := rangeOn(start, len(typed)-len(value), len(typed)).Start
	expr, diags := parseExpression(value, OverridesFile, begin)
	if diags.HasErrors() { // still valid for a setting of type string
		expr = &invalidExpr{hclsyntax.LiteralValueExpr{Val: cty.DynamicVal, SrcRange: whole}, diags}
	}
	names := strings.Split(setting, ".")
	last := len(names) - 1
	if names[0] == "for_each" || names[0] == "depends_on" {
		l.errorf(whole, "Bad override", "%s defines the graph and cannot be overridden; change the file.", names[0])
		return
	}
	e := entry{name: names[last], at: whole, whole: whole, expr: expr, typed: value}
	for i := last - 1; i >= 0; i-- {
		inside := body{entries: []entry{e}, owner: strings.Join(names[:i+1], "."), def: whole}
		e = entry{name: names[i], at: whole, whole: whole, inside: &inside}
	}
	o.entry = e
	l.overrides = append(l.overrides, o)
	l.x.Overrides = append(l.x.Overrides, Override{address, setting, value})
}

// invalidExpr is a value that is no expression. Its errors are reported when a setting needs one.
type invalidExpr struct {
	hclsyntax.LiteralValueExpr
	diags hcl.Diagnostics
}

func (e *invalidExpr) Value(*hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	return cty.DynamicVal, e.diags
}

// typedString returns the value of an override for a setting of type string: the text in quotes, or as typed.
func typedString(e entry) cty.Value {
	if strings.HasPrefix(e.typed, `"`) && len(e.expr.Variables()) == 0 {
		if val, diags := e.expr.Value(nil); !diags.HasErrors() && val.Type() == cty.String {
			return val
		}
	}
	return cty.StringVal(e.typed)
}

// overrideLayers returns a layer for each override of a stage. Later ones are stronger.
func (l *scope) overrideLayers(s *stageBlock) (layers []*layer) {
	for i, o := range l.overrides {
		if rest, ok := cutSteps(ShortAddress(s.address()), o.stem); !ok || len(rest) > 0 {
			continue
		}
		o.used = true
		y := &layer{name: OverridesFile, strength: strengthSet + i, each: s.keyed, key: o.key, mentions: o.entry.mentions()}
		b := body{entries: []entry{o.entry}, owner: s.address(), def: o.entry.whole}
		if isMeta(o.entry.name) {
			y.meta = b
		} else {
			y.settings = b
		}
		layers = append(layers, y)
	}
	return layers
}

// mentions returns the variables of an override.
func (e entry) mentions() []hcl.Traversal {
	if e.inside != nil {
		return e.inside.entries[0].mentions()
	}
	return e.expr.Variables()
}

// checkOverrides reports overrides of stages that do not exist.
func (l *loader) checkOverrides() {
	var addresses []string
	for _, scope := range l.scopes {
		for _, s := range scope.stages {
			for _, in := range s.instances {
				addresses = append(addresses, ShortAddress(in.address()))
			}
		}
	}
	slices.Sort(addresses)
	for i, o := range l.overrides {
		address := l.x.Overrides[i].Address
		exists := func(a string) bool { return selects(address, a) }
		if !o.used || o.key != nil && !slices.ContainsFunc(addresses, exists) {
			l.errorf(o.entry.whole, "Unknown stage", "The experiment has no stage %s%s", address,
				didYouMean(address, addresses))
		}
	}
}

// isTyped reports whether an override needs no quotes: for texts, times and sizes.
func isTyped(t reflect.Type) bool {
	return t.Kind() == reflect.String || t == durationGoType || t == bytesGoType
}
