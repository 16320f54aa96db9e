package lang

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"rcgrpo/engine/internal/dag"
)

// scope is one namespace of variables, locals, stages and modules: the experiment itself or one instance of a module.
type scope struct {
	*loader
	address string // "" or `module.base`
	parent  *scope // nil for the experiment
	dir     string // of relative paths, absolute
	paths   []string

	experiments []*hclsyntax.Block
	variables   []*variable
	locals      []*localValue
	localNamed  map[string]*localValue
	defaults    []*defaultsBlock
	modules     []*moduleBlock
	moduleNamed map[string]*moduleBlock
	stages      []*stageBlock
	stageNamed  map[string]map[string]*stageBlock // by kind, then name
	declared    map[string]string                 // places of stages and modules, by address

	itemsOf       map[string][]int // indexes of items by the steps of their names: "stage", "stage.sft", "stage.sft.warm"
	global        *hcl.EvalContext // functions and var
	badExperiment bool             // the experiment block is malformed, and the error is reported
}

// declaration is a block with a name in expressions: a stage or a module.
type declaration struct {
	scope *scope
	block *hclsyntax.Block
	def   hcl.Range // header of the block
	name  string    // its last label
	keyed bool      // has for_each
	value cty.Value // value of `stage.KIND.NAME` or `module.NAME`; unknown after an error
}

// address returns the address of the block: `module.base.stage.sft.warm`.
func (d *declaration) address() string {
	a := d.block.Type + "." + strings.Join(d.block.Labels, ".")
	if d.scope.address != "" {
		a = d.scope.address + "." + a
	}
	return a
}

// addressOf returns the address of the instance with that key.
func (d *declaration) addressOf(key string) string {
	if !d.keyed {
		return d.address()
	}
	return d.address() + fmt.Sprintf("[%q]", key)
}

type stageBlock struct {
	declaration
	kindName  string
	kind      *Kind    // nil if the kind is unknown
	layers    []*layer // of its settings, weakest first
	instances []*instance
	byKey     map[string]*instance
}

type localValue struct {
	attr  *hclsyntax.Attribute
	value cty.Value
}

func (l *loader) newScope(address, dir string, parent *scope) *scope {
	s := &scope{loader: l, address: address, parent: parent, dir: dir, localNamed: map[string]*localValue{},
		moduleNamed: map[string]*moduleBlock{}, stageNamed: map[string]map[string]*stageBlock{},
		declared: map[string]string{}, global: &hcl.EvalContext{Functions: l.functions(dir)}}
	l.scopes[address] = s
	return s
}

// topLevel maps each block of a file to its labels. Block defaults has any number of labels.
var topLevel = map[string][]string{"experiment": {}, "variable": {"NAME"}, "locals": {}, "module": {"NAME"},
	"defaults": {}, "stage": {"KIND", "NAME"}}

// collect sorts the blocks of the files by their types.
func (l *scope) collect(bodies []*hclsyntax.Body) {
	for _, b := range bodies {
		l.checkTopLevel(b)
		for _, bl := range b.Blocks {
			l.collectBlock(bl)
		}
	}
}

// checkTopLevel reports settings outside a block.
func (l *scope) checkTopLevel(b *hclsyntax.Body) {
	for _, a := range attributes(b, nil) {
		if _, block := topLevel[a.Name]; block {
			l.errorf(a.NameRange, "Block expected", "The %s is a block: write %s without an equals sign.", a.Name,
				blockForm(a.Name))
			l.badExperiment = l.badExperiment || a.Name == "experiment"
			continue
		}
		d := l.errorf(a.NameRange, "Setting outside a block", "Settings must be inside a block; put your own value into a "+
			"locals block: locals { %s = … }.", a.Name)
		if len(b.Blocks) == 0 && len(l.paths) > 1 {
			d.Detail += fmt.Sprintf(" If these are values of variables, pass --var-file %s, or move or rename the file so "+
				"that it does not end in .hcl.", a.NameRange.Filename)
		}
	}
}

func (l *scope) collectBlock(bl *hclsyntax.Block) {
	switch labels, known := topLevel[bl.Type]; {
	case !known:
		hint := didYouMean(bl.Type, slices.Sorted(maps.Keys(topLevel)))
		if l.reg.Lookup(bl.Type) != nil {
			hint = fmt.Sprintf("; did you mean stage %q %q?", bl.Type, append(bl.Labels, "NAME")[0])
		} else if slices.Contains([]string{"store", "data", "executor"}, bl.Type) {
			hint = "; it belongs in the site file."
		}
		l.errorf(bl.TypeRange, "Unknown block", "A file has the blocks experiment, variable, locals, defaults, module and "+
			"stage, but no %s%s", bl.Type, hint)
	case bl.Type == "defaults":
		l.addDefaults(bl)
	case len(bl.Labels) != len(labels):
		l.errorf(bl.DefRange(), "Wrong labels", "Write %s: block %s takes %s, not %d.", blockForm(bl.Type), bl.Type,
			english.Plural(len(labels), "label", ""), len(bl.Labels))
		l.badExperiment = l.badExperiment || bl.Type == "experiment"
	case bl.Type == "experiment":
		l.experiments = append(l.experiments, bl)
	case bl.Type == "variable":
		l.variables = append(l.variables, &variable{block: bl, name: bl.Labels[0]})
	case bl.Type == "locals":
		l.addLocals(bl)
	case bl.Type == "module":
		l.addModule(bl)
	case bl.Type == "stage":
		l.addStage(bl)
	}
}

// blockForm returns the syntax of a block: `stage "KIND" "NAME" { … }`.
func blockForm(name string) string {
	for _, label := range topLevel[name] {
		name += ` "` + label + `"`
	}
	return name + " { … }"
}

func (l *scope) addLocals(bl *hclsyntax.Block) {
	for _, nested := range bl.Body.Blocks {
		l.errorf(nested.TypeRange, "Unknown block", "A locals block contains only values: write %s = { … }.",
			nested.Type)
	}
	for _, a := range attributes(bl.Body, nil) {
		if before := l.localNamed[a.Name]; before != nil {
			l.errorf(a.NameRange, "Duplicate local", "local.%s is already defined at %s.", a.Name,
				Place(before.attr.NameRange))
			continue
		}
		v := &localValue{attr: a, value: cty.DynamicVal}
		l.locals = append(l.locals, v)
		l.localNamed[a.Name] = v
	}
}

// declareBlock checks the name of a stage or module. ok is false if an earlier block has it.
func (l *scope) declareBlock(bl *hclsyntax.Block) (d declaration, ok bool) {
	last := len(bl.Labels) - 1
	d = declaration{scope: l, block: bl, def: bl.DefRange(), name: bl.Labels[last], value: cty.DynamicVal}
	_, d.keyed = bl.Body.Attributes["for_each"]
	if !hclsyntax.ValidIdentifier(d.name) {
		l.errorf(bl.LabelRanges[last], "Bad name", "The name of a %s is used in references, so it must begin with a letter "+
			"and contain only letters, digits, - and _; got %q.", bl.Type, d.name)
	}
	before, twice := l.declared[d.address()]
	if twice {
		l.errorf(d.def, "Duplicate "+bl.Type, "%s is already defined at %s; rename this %s.", d.address(), before, bl.Type)
		return d, false
	}
	l.declared[d.address()] = Place(d.def)
	return d, true
}

func (l *scope) addStage(bl *hclsyntax.Block) {
	d, ok := l.declareBlock(bl)
	s := &stageBlock{declaration: d, kindName: bl.Labels[0], byKey: map[string]*instance{}}
	s.kind = l.lookupKind(s.kindName, bl.LabelRanges[0])
	if !ok {
		return
	}
	if l.stageNamed[s.kindName] == nil {
		l.stageNamed[s.kindName] = map[string]*stageBlock{}
	}
	l.stageNamed[s.kindName][s.name] = s
	l.stages = append(l.stages, s)
}

// checkExperiment checks that there is exactly one experiment block.
func (l *scope) checkExperiment() {
	switch {
	case l.badExperiment: // already reported
	case len(l.experiments) == 0 && len(l.paths) == 1:
		at := hcl.Range{Filename: l.paths[0], Start: hcl.InitialPos, End: hcl.InitialPos}
		l.errorf(at, "No experiment", "%s has no experiment block; begin with experiment { question = \"…\" }.",
			l.paths[0])
	case len(l.experiments) > 1:
		for _, bl := range l.experiments[1:] {
			l.errorf(bl.DefRange(), "Duplicate experiment", "There is already an experiment block at %s; all files of a "+
				"folder belong to one experiment.", Place(l.experiments[0].DefRange()))
		}
	}
}

// item is a unit of evaluation: the experiment block, a local, a module or a stage block.
type item struct {
	steps    []string // of its name in expressions: "stage", "sft", "warm"
	name     string
	at       hcl.Range
	mentions []hcl.Traversal
	seeds    bool // needs the seeds of the experiment
	evaluate func(ctx *hcl.EvalContext)
	value    *cty.Value // nil for the experiment
}

// evaluateAll evaluates the experiment block, locals, modules and stages after their dependencies. It reports each
// cycle once, with its path.
func (l *scope) evaluateAll() {
	items := l.items()
	needs := make([][]int, len(items))
	for i, item := range items {
		if item.seeds && l.evaluatesExperiment() {
			needs[i] = []int{0} // the experiment block
		}
		needs[i] = append(needs[i], l.dependenciesOf(item.mentions)...)
	}
	order, cycles := dag.Order(len(items), func(i int) []int { return needs[i] })
	for _, cycle := range cycles {
		var path []string
		for _, i := range append(cycle, cycle[0]) {
			path = append(path, items[i].name)
		}
		l.errorf(items[cycle[0]].at, "Dependency cycle", "These depend on each other: %s.%s", strings.Join(path, " → "),
			l.cycleHint(path))
	}
	for _, i := range order {
		items[i].evaluate(l.contextFor(items, needs[i]))
	}
	l.checkDefaults()
}

// cycleHint names the defaults that take part in a cycle, because the stages themselves do not show them.
func (l *scope) cycleHint(path []string) string {
	for _, s := range l.stages {
		for _, y := range s.layers {
			if slices.Contains(path, s.address()) && y.defaults != nil && len(l.dependenciesOf(y.mentions)) > 0 {
				return fmt.Sprintf(" The references in the defaults at %s are settings of %s, too.", Place(y.defaults.def),
					s.address())
			}
		}
	}
	return ""
}

// evaluatesExperiment reports whether the first item is the experiment block. That of a module has no effect.
func (l *scope) evaluatesExperiment() bool { return l.parent == nil && len(l.experiments) > 0 }

// items returns the units of evaluation and sets l.itemsOf.
func (l *scope) items() (items []item) {
	if l.evaluatesExperiment() {
		bl := l.experiments[0]
		items = append(items, item{name: "experiment", at: bl.DefRange(), mentions: mentions(bl.Body),
			evaluate: func(ctx *hcl.EvalContext) { l.decodeExperiment(bl, ctx) }})
	}
	for _, v := range l.locals {
		items = append(items, item{steps: []string{"local", v.attr.Name}, name: "local." + v.attr.Name, value: &v.value,
			at: v.attr.SrcRange, mentions: v.attr.Expr.Variables(),
			evaluate: func(ctx *hcl.EvalContext) { v.value = l.evalOrReport(v.attr.Expr, ctx, false) }})
	}
	for _, m := range l.modules {
		items = append(items, item{steps: []string{"module", m.name}, name: m.address(), value: &m.value,
			at: m.def, seeds: true, mentions: mentions(m.block.Body),
			evaluate: func(ctx *hcl.EvalContext) { l.evaluateModule(m, ctx) }})
	}
	for _, s := range l.stages {
		s.layers = l.layersOf(s)
		i := item{steps: []string{"stage", s.kindName, s.name}, name: s.address(), value: &s.value,
			at: s.def, seeds: true, mentions: mentions(s.block.Body),
			evaluate: func(ctx *hcl.EvalContext) { l.decodeStage(s, ctx) }}
		for _, y := range s.layers {
			i.mentions = append(i.mentions, y.mentions...)
		}
		items = append(items, i)
	}
	l.itemsOf = map[string][]int{}
	for i, item := range items {
		for n := range item.steps {
			name := strings.Join(item.steps[:n+1], ".")
			l.itemsOf[name] = append(l.itemsOf[name], i)
		}
	}
	return items
}

// mentions returns the references in a body: those of its attributes, then those of its blocks.
func mentions(b *hclsyntax.Body) []hcl.Traversal {
	var found []hcl.Traversal
	for _, a := range attributes(b, nil) {
		found = append(found, a.Expr.Variables()...)
	}
	for _, bl := range b.Blocks {
		found = append(found, mentions(bl.Body)...)
	}
	return found
}

// dependenciesOf returns the items that traversals refer to. A computed name may mean any item of its type. Unknown
// names are reported during evaluation.
func (l *scope) dependenciesOf(traversals []hcl.Traversal) (found []int) {
	for _, t := range traversals {
		name, steps := t.RootName(), 1
		if name == "stage" {
			steps = 2
		}
		for i := range steps {
			step, ok := stepName(t, i+1)
			if !ok {
				break
			}
			name += "." + step
		}
		found = append(found, l.itemsOf[name]...)
	}
	return found
}

// stepName returns the name at step i of a traversal, written as .name or ["name"].
func stepName(t hcl.Traversal, i int) (string, bool) {
	if i >= len(t) {
		return "", false
	}
	switch step := t[i].(type) {
	case hcl.TraverseAttr:
		return step.Name, true
	case hcl.TraverseIndex:
		if step.Key.Type() == cty.String && step.Key.IsKnown() && !step.Key.IsNull() {
			return step.Key.AsString(), true
		}
	}
	return "", false
}

// contextFor returns a context with only the needed values, so that evaluation is linear in the references.
func (l *scope) contextFor(items []item, needs []int) *hcl.EvalContext {
	values := map[string]map[string]cty.Value{"local": {}, "module": {}, "stage": {}}
	kinds := map[string]map[string]cty.Value{}
	for _, i := range needs {
		switch item := items[i]; len(item.steps) {
		case 2:
			values[item.steps[0]][item.steps[1]] = *item.value
		case 3:
			kind, name := item.steps[1], item.steps[2]
			if kinds[kind] == nil {
				kinds[kind] = map[string]cty.Value{}
			}
			kinds[kind][name] = *item.value
		}
	}
	for kind, byName := range kinds {
		values["stage"][kind] = cty.ObjectVal(byName)
	}
	ctx := l.global.NewChild()
	ctx.Variables = map[string]cty.Value{}
	for root, byName := range values {
		ctx.Variables[root] = cty.ObjectVal(byName)
	}
	return ctx
}

// experimentBlock has the settings of the block experiment.
type experimentBlock struct {
	// research question
	Question string `hcl:"question,optional"`
	// expected outcome, written down in advance
	Expect string `hcl:"expect,optional"`
	// seeds; every stochastic stage runs once per seed
	Seeds []int64 `hcl:"seeds,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

func (l *scope) decodeExperiment(bl *hclsyntax.Block, ctx *hcl.EvalContext) {
	var settings experimentBlock
	settings.Seeds = l.x.Seeds
	l.decode(newBody(bl.Body, "an experiment", bl.DefRange(), nil), ctx, &settings)
	_, l.seeded = bl.Body.Attributes["seeds"]
	l.x.Question, l.x.Expect, l.x.Seeds = settings.Question, settings.Expect, settings.Seeds
	seen := map[int64]bool{}
	for _, s := range settings.Seeds {
		if seen[s] {
			l.errorf(settings.At["seeds"], "Duplicate seed", "Seed %d occurs twice in the list; remove one.", s)
		}
		seen[s] = true
	}
	if len(settings.Seeds) == 0 {
		l.errorf(settings.At["seeds"], "No seeds",
			"The list of seeds is empty; list at least one seed, or omit the setting for seed 1.")
	}
}
