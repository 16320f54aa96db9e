package lang

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// moduleBlock is `module "NAME" { source = …, VARIABLE = … }`. Each instance is a scope.
type moduleBlock struct {
	declaration
	instances map[string]*scope // by for_each key; "" without for_each
}

// ModuleSource is a file or folder that the experiment uses as a module.
type ModuleSource struct {
	Path   string   // absolute
	Folder bool     // Path is a folder
	Files  []string // as in Experiment.Files
}

// maxModuleDepth limits how deep modules may include each other.
const maxModuleDepth = 20

// notArguments are the settings of a module block that are no variables of the module.
var notArguments = []string{"source", "for_each"}

func (l *scope) addModule(bl *hclsyntax.Block) {
	d, ok := l.declareBlock(bl)
	m := &moduleBlock{declaration: d, instances: map[string]*scope{}}
	for _, nested := range bl.Body.Blocks {
		l.errorf(nested.TypeRange, "Unknown block", "A module block contains source, for_each and the module's variables; "+
			"write %s = { … }.", nested.Type)
	}
	if !ok {
		return
	}
	if bl.Body.Attributes["source"] == nil {
		l.errorf(m.def, "Missing setting",
			"A module needs the setting source, a file or folder with a path relative to this file.")
	}
	l.moduleNamed[m.name] = m
	l.modules = append(l.modules, m)
}

// evaluateModule loads the instances of a module.
func (l *scope) evaluateModule(m *moduleBlock, ctx *hcl.EvalContext) {
	m.value = l.instances(&m.declaration, ctx, func(key string, ctx *hcl.EvalContext) (cty.Value, bool) {
		child := l.moduleInstance(m, key, ctx)
		if child == nil {
			return cty.DynamicVal, false
		}
		m.instances[key] = child
		return child.asValue(), true
	})
}

// asValue returns the object of the scope's stages and modules, as in `module.NAME.stage.KIND.NAME`.
func (l *scope) asValue() cty.Value {
	stages, modules := map[string]cty.Value{}, map[string]cty.Value{}
	for kind, byName := range l.stageNamed {
		values := map[string]cty.Value{}
		for name, s := range byName {
			values[name] = s.value
		}
		stages[kind] = cty.ObjectVal(values)
	}
	for name, m := range l.moduleNamed {
		modules[name] = m.value
	}
	return cty.ObjectVal(map[string]cty.Value{"stage": cty.ObjectVal(stages), "module": cty.ObjectVal(modules)})
}

// moduleInstance loads a module for one element of for_each. It returns nil if its files cannot be read. Diagnostics
// of the module refer to its block, too.
func (l *scope) moduleInstance(m *moduleBlock, key string, ctx *hcl.EvalContext) *scope {
	arguments := l.arguments(m, ctx)
	source, ok := l.moduleFiles(m, ctx)
	if !ok {
		return nil
	}
	before := len(l.diags)
	bodies := l.parseFiles(source.Files)
	var child *scope
	if len(bodies) == len(source.Files) {
		dir := source.Path
		if !source.Folder {
			dir = filepath.Dir(dir)
		}
		child = l.newScope(m.addressOf(key), dir, l)
		child.paths = source.Files
		child.collect(bodies)
		child.evaluateArguments(m, arguments)
		child.evaluateAll()
	}
	for _, d := range l.diags[before:] {
		if d.Subject == nil || !m.contains(*d.Subject) && d.Subject.Filename != OverridesFile {
			relate(d, fmt.Sprintf("included as module %q", m.name), m.def)
		}
	}
	return child
}

// contains reports whether a range is in the module's block.
func (m *moduleBlock) contains(at hcl.Range) bool {
	return at.Filename == m.def.Filename && hcl.RangeBetween(m.def, m.block.Body.SrcRange).ContainsPos(at.Start)
}

// moduleFiles returns the file or folder that source names. In a run folder its files are copies. ok is false after an
// error.
func (l *scope) moduleFiles(m *moduleBlock, ctx *hcl.EvalContext) (source ModuleSource, ok bool) {
	attr := m.block.Body.Attributes["source"]
	if attr == nil { // already reported
		return source, false
	}
	at := attr.Expr.Range()
	val := l.evalOrReport(attr.Expr, ctx, m.keyed)
	switch {
	case !val.IsKnown():
		return source, false
	case text(val) == "":
		l.errorf(at, "Wrong type", "source must be the path of a file or folder; got %s.", describe(val))
		return source, false
	}
	original, err := l.resolve(l.dir, text(val))
	if err == nil {
		source.Path = original
		shown := cmp.Or(l.src.Modules[original], l.shownPath(original))
		source.Files, _, _, err = ExperimentFiles(shown, l.src.Besides())
		source.Folder = len(source.Files) > 0 && source.Files[0] != shown
	}
	if err != nil {
		l.errorf(at, "Unreadable module", "%s.", upperFirst(err.Error()))
		return source, false
	}
	depth := 0
	for up := l; up != nil; up = up.parent {
		if depth++; depth > maxModuleDepth || len(without(slices.Clone(source.Files), up.paths)) < len(source.Files) {
			l.errorf(at, "Module includes itself", "%s is a file of %s, which contains this module.", text(val),
				cmp.Or(up.address, "the experiment"))
			return source, false
		}
	}
	if !slices.ContainsFunc(l.x.Modules, func(s ModuleSource) bool { return s.Path == original }) {
		l.x.Modules = append(l.x.Modules, source)
	}
	return source, true
}

// shownPath returns an absolute path in the form in which the user named the experiment: relative, if possible.
func (l *loader) shownPath(path string) string {
	rel, err := filepath.Rel(l.x.Dir, path)
	if err != nil || filepath.IsAbs(l.x.Paths[0]) || len(rel) > len(path) {
		return path
	}
	return filepath.Join(filepath.Dir(l.x.Paths[0]), rel)
}

// moduleArgument is a value that a module block gives to a variable.
type moduleArgument struct {
	value cty.Value
	at    hcl.Range // of the name
	expr  hcl.Range
}

func (l *scope) arguments(m *moduleBlock, ctx *hcl.EvalContext) map[string]moduleArgument {
	found := map[string]moduleArgument{}
	isArgument := func(name string) bool { return !slices.Contains(notArguments, name) }
	for _, a := range attributes(m.block.Body, isArgument) {
		found[a.Name] = moduleArgument{l.evalOrReport(a.Expr, ctx, m.keyed), a.NameRange, a.Expr.Range()}
	}
	return found
}

// evaluateArguments decodes the variable blocks of a module. A value comes from the module block, else the default.
func (l *scope) evaluateArguments(m *moduleBlock, arguments map[string]moduleArgument) {
	byName := l.declareVariables()
	for name, a := range arguments {
		if byName[name] == nil {
			l.errorf(a.at, "Unknown variable", "%s has no variable %s%s", upperFirst("module "+m.name), name,
				didYouMean(name, l.variableNames()))
		}
	}
	for _, v := range l.variables {
		a, given := arguments[v.name]
		switch {
		case slices.Contains(notArguments, v.name):
			l.errorf(v.block.LabelRanges[0], "Bad name", "A module block has a setting %s of its own, so a module cannot have "+
				"a variable of that name; rename the variable.", v.name)
		case given && !(a.value.IsNull() && v.hasDefault):
			v.value = l.converted(v, a.value, a.expr, "Variable")
		case v.hasDefault:
			v.value = v.fallback
		default:
			relate(l.errorf(m.def, "Missing variable", "Module %s needs the variable %s; write %s = … in the block.",
				m.name, v.name, v.name), "its declaration", v.block.DefRange())
		}
	}
	l.bindVariables()
}
