package lang

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"rcgrpo/engine/internal/dag"
	"rcgrpo/engine/internal/stat"
)

// loader is the state of one call of Load.
type loader struct {
	reporter
	src     Source
	reg     Registry
	x       *Experiment
	digests stat.Digests
	parsed  []stat.File // HCL files

	allowance allowance // limits what expressions compute

	experiments []*hclsyntax.Block
	variables   []*variable
	locals      []*localValue
	localNamed  map[string]*localValue
	stages      []*stageBlock
	named       map[string]map[string]*stageBlock // by kind, then name

	global        *hcl.EvalContext // functions and var
	seeded        bool             // the experiment block has seeds, so addresses contain them
	badExperiment bool             // the experiment block is malformed, and the error is reported
}

type stageBlock struct {
	kindName, name string
	kind           *Kind // nil if the kind is unknown
	block          *hclsyntax.Block
	def            hcl.Range // header of the block
	keyed          bool      // has for_each
	index          int       // of its item
	instances      []*instance
	value          cty.Value // value of `stage.KIND.NAME`; unknown after an error
}

type localValue struct {
	attr  *hclsyntax.Attribute
	index int // of its item
	value cty.Value
}

// ReadSource reads a file of HCL. It rejects files that are not regular or exceed the size limit.
func ReadSource(path string) ([]byte, error) {
	text, _, err := stat.ReadSource(path)
	return text, err
}

// Load reads the experiment of src, decodes every stage with its kind and resolves the references. It reports every
// error that it finds, in the order of the files; a file with syntax errors is not checked further. The experiment is
// never nil, because its Files are needed to print the diagnostics. An experiment with errors cannot be planned.
//
// Load starts no process. It writes only the cache of digests of large files in the store.
func Load(src Source, reg Registry) (*Experiment, hcl.Diagnostics) {
	l := &loader{
		src: src, reg: reg,
		x: &Experiment{
			Source: src, Files: map[string]*hcl.File{}, Digests: map[string]string{}, Vars: map[string]string{},
			Seeds: []int64{1}, Site: &Site{}, byAddress: map[string]*Node{},
		},
		named: map[string]map[string]*stageBlock{}, localNamed: map[string]*localValue{},
	}
	l.load()
	l.digests.Save()
	l.x.VariableNames = l.variableNames()
	l.x.Sources = slices.AppendSeq(l.parsed, maps.Values(l.digests.Seen))
	slices.SortFunc(l.x.Sources, func(a, b stat.File) int { return strings.Compare(a.Path, b.Path) })
	l.x.evaluate = l.evaluate
	l.x.Invalid, l.x.Warned = l.diags.HasErrors(), len(l.diags) > 0
	return l.x, sortDiagnostics(l.diags)
}

func (l *loader) load() {
	bodies, ok := l.parse()
	if !ok {
		return
	}
	l.site()
	l.digests.Pinned = l.src.Digests
	if l.x.Site.StorePath != "" && !l.src.Paranoid {
		l.digests.Cache = filepath.Join(l.x.Site.StorePath, "digests.json")
	}
	l.global = &hcl.EvalContext{Functions: l.functions(l.x.Dir)}
	for _, b := range bodies {
		l.collectBlocks(b)
	}
	l.checkBlocks()
	l.evaluateVariables()
	l.evaluateAll()
	for _, step := range []func(){l.warnUnused, l.checkPublished, l.expandSeeds, l.checkInputs} {
		if l.diags.HasErrors() {
			return
		}
		step()
	}
}

func (l *loader) checkInputs() {
	for _, n := range l.x.Nodes {
		if linked, ok := n.Stage.(Linked); ok {
			l.diags = append(l.diags, linked.CheckInputs(n)...)
		}
	}
}

// parse reads the files of the experiment and sets its name, folder and paths.
func (l *loader) parse() (bodies []*hclsyntax.Body, ok bool) {
	paths, name, dir, err := ExperimentFiles(l.src.Path, l.src.Besides())
	if err != nil {
		l.errorf(hcl.Range{}, "No experiment", "%s.", upperFirst(err.Error()))
		return nil, false
	}
	l.x.Paths, l.x.Name, l.x.Dir = paths, cmp.Or(l.src.Name, name), cmp.Or(l.src.Base, dir)
	for _, path := range paths {
		if b := l.parseFile(path); b != nil {
			bodies = append(bodies, b)
		}
	}
	if len(paths) > 1 && !l.diags.HasErrors() && !slices.ContainsFunc(bodies, hasExperiment) {
		l.errorf(hcl.Range{}, "No experiment", "No file in %s has an experiment block.", l.src.Path)
	}
	return bodies, !l.diags.HasErrors()
}

// parseFile reads one file. It returns nil after an error.
func (l *loader) parseFile(path string) *hclsyntax.Body {
	text, w, err := stat.ReadSource(path)
	if err != nil {
		l.errorf(hcl.Range{}, "Unreadable file", "%s.", err)
		return nil
	}
	l.parsed = append(l.parsed, w)
	file, diags := parseText(text, path)
	l.x.Files[path] = cmp.Or(file, &hcl.File{Bytes: text})
	l.diags = append(l.diags, diags...)
	if diags.HasErrors() {
		return nil
	}
	body := file.Body.(*hclsyntax.Body)
	l.diags = append(l.diags, l.allowance.bind(body)...)
	if l.diags.HasErrors() {
		return nil
	}
	l.diags = append(l.diags, hclsyntax.VisitAll(body, repeatedKeys)...)
	return body
}

// siteFile is never part of an experiment.
const siteFile = "site.hcl"

// Besides returns the files that belong to the source but not to the experiment.
func (s Source) Besides() []string {
	return append(slices.Clone(s.VarFiles), cmp.Or(s.Site, EnvValue(s.Env, "RCGRPO_SITE")))
}

// ExperimentFiles returns the files of the experiment at path, with its name and folder. Files in besides are
// excluded.
func ExperimentFiles(path string, besides []string) (paths []string, name, dir string, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "", "", fmt.Errorf("there is no file or folder %q", path)
	case err != nil:
		return nil, "", "", err
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, "", "", err
	}
	if !info.IsDir() {
		return []string{path}, strings.TrimSuffix(filepath.Base(abs), ".hcl"), filepath.Dir(abs), nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, "", "", err
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".hcl" && e.Name() != siteFile && !e.IsDir() {
			paths = append(paths, filepath.Join(path, e.Name()))
		}
	}
	if paths = without(paths, besides); len(paths) == 0 {
		return nil, "", "", fmt.Errorf("folder %q has no .hcl file of an experiment", path)
	}
	return paths, filepath.Base(abs), abs, nil
}

// without removes the paths that refer to one of the files, also under another name.
func without(paths, files []string) []string {
	var infos []fs.FileInfo
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
			infos = append(infos, info)
		}
	}
	return slices.DeleteFunc(paths, func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && slices.ContainsFunc(infos, func(file fs.FileInfo) bool { return os.SameFile(file, info) })
	})
}

// FindExperiment returns the path of the only experiment in a folder: the file with an experiment block, or the
// folder itself if it contains more files. The error lists the choices. It considers all files, so that commands
// with and without --var-file find the same experiment under the same name.
func FindExperiment(dir string) (string, error) {
	paths, _, _, err := ExperimentFiles(dir, nil)
	if err != nil {
		return "", fmt.Errorf("no experiment named, and %w", err)
	}
	experiment := regexp.MustCompile(`(?m)^\s*experiment\b`) // also a malformed block
	var with []string
	for _, path := range paths {
		text, err := ReadSource(path)
		if err != nil {
			return "", err
		}
		if experiment.Match(text) {
			with = append(with, path)
		}
	}
	switch {
	case len(with) == 0:
		return "", fmt.Errorf("no experiment named, and no file in %s has an experiment block", dir)
	case len(with) > 1:
		return "", fmt.Errorf("several experiments here: name one of %s", strings.Join(with, ", "))
	case len(paths) == 1:
		return paths[0], nil
	}
	return dir, nil
}

func hasExperiment(b *hclsyntax.Body) bool {
	return slices.ContainsFunc(b.Blocks, func(bl *hclsyntax.Block) bool { return bl.Type == "experiment" })
}

// topLevel maps each block of a file to its labels.
var topLevel = map[string][]string{"experiment": {}, "variable": {"NAME"}, "locals": {}, "stage": {"KIND", "NAME"}}

// collectBlocks sorts the blocks of one file by their types.
func (l *loader) collectBlocks(b *hclsyntax.Body) {
	for _, a := range newBody(b, "", hcl.Range{}, nil).attrs {
		if _, block := topLevel[a.Name]; block {
			l.errorf(a.NameRange, "Block expected", "The %s is a block: write %s without an equals sign.", a.Name,
				blockForm(a.Name))
			l.badExperiment = l.badExperiment || a.Name == "experiment"
			continue
		}
		d := l.errorf(a.NameRange, "Setting outside a block", "Settings must be inside a block; put your own value into a "+
			"locals block: locals { %s = … }.", a.Name)
		if len(b.Blocks) == 0 && len(l.x.Paths) > 1 {
			d.Detail += fmt.Sprintf(" If these are values of variables, pass --var-file %s, or move or rename the file so "+
				"that it does not end in .hcl.", a.NameRange.Filename)
		}
	}
	for _, bl := range b.Blocks {
		switch labels, known := topLevel[bl.Type]; {
		case !known:
			hint := didYouMean(bl.Type, slices.Sorted(maps.Keys(topLevel)))
			if l.reg.Lookup(bl.Type) != nil {
				hint = fmt.Sprintf("; did you mean stage %q %q?", bl.Type, append(bl.Labels, "NAME")[0])
			} else if slices.Contains([]string{"store", "data", "executor"}, bl.Type) {
				hint = "; it belongs in the site file."
			}
			l.errorf(bl.TypeRange, "Unknown block",
				"A file has the blocks experiment, variable, locals and stage, but no %s%s", bl.Type, hint)
		case len(bl.Labels) != len(labels):
			l.errorf(bl.DefRange(), "Wrong labels", "Write %s: block %s takes %s, not %d.", blockForm(bl.Type), bl.Type,
				Plural(len(labels), "label"), len(bl.Labels))
			l.badExperiment = l.badExperiment || bl.Type == "experiment"
		case bl.Type == "experiment":
			l.experiments = append(l.experiments, bl)
		case bl.Type == "variable":
			l.variables = append(l.variables, &variable{block: bl, name: bl.Labels[0]})
		case bl.Type == "locals":
			l.addLocals(bl)
		case bl.Type == "stage":
			l.addStage(bl)
		}
	}
}

// blockForm returns the syntax of a block: `stage "KIND" "NAME" { … }`.
func blockForm(name string) string {
	for _, label := range topLevel[name] {
		name += ` "` + label + `"`
	}
	return name + " { … }"
}

func (l *loader) addLocals(bl *hclsyntax.Block) {
	for _, nested := range bl.Body.Blocks {
		l.errorf(nested.TypeRange, "Unknown block", "A locals block contains only values: write %s = { … }.",
			nested.Type)
	}
	for _, a := range newBody(bl.Body, "", hcl.Range{}, nil).attrs {
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

func (l *loader) addStage(bl *hclsyntax.Block) {
	s := &stageBlock{kindName: bl.Labels[0], name: bl.Labels[1], block: bl, def: bl.DefRange(),
		value: cty.DynamicVal}
	s.kind = l.reg.Lookup(s.kindName)
	_, s.keyed = bl.Body.Attributes["for_each"]
	if s.kind == nil {
		var kinds []string
		for _, k := range l.reg {
			kinds = append(kinds, k.Name)
		}
		l.errorf(bl.LabelRanges[0], "Unknown kind", "There is no kind %q%s `rcgrpo kinds` lists them.",
			s.kindName, didYouMean(s.kindName, kinds))
	}
	if !hclsyntax.ValidIdentifier(s.name) {
		l.errorf(bl.LabelRanges[1], "Bad name", "The name of a stage is used in references, so it must begin "+
			"with a letter and contain only letters, digits, - and _; got %q.", s.name)
	}
	if before := l.named[s.kindName][s.name]; before != nil {
		l.errorf(s.def, "Duplicate stage", "stage.%s.%s is already defined at %s; rename this stage.",
			s.kindName, s.name, Place(before.def))
		return
	}
	if l.named[s.kindName] == nil {
		l.named[s.kindName] = map[string]*stageBlock{}
	}
	l.named[s.kindName][s.name] = s
	l.stages = append(l.stages, s)
}

// checkBlocks checks that there is exactly one experiment block.
func (l *loader) checkBlocks() {
	switch {
	case l.badExperiment: // already reported
	case len(l.experiments) == 0 && len(l.x.Paths) == 1:
		at := hcl.Range{Filename: l.x.Paths[0], Start: hcl.InitialPos, End: hcl.InitialPos}
		l.errorf(at, "No experiment", "%s has no experiment block; begin with experiment { question = \"…\" }.",
			l.x.Paths[0])
	case len(l.experiments) > 1:
		for _, bl := range l.experiments[1:] {
			l.errorf(bl.DefRange(), "Duplicate experiment", "There is already an experiment block at %s; all files of a "+
				"folder belong to one experiment.", Place(l.experiments[0].DefRange()))
		}
	}
}

// item is a unit of evaluation: the experiment block, a local or a stage block.
type item struct {
	name     string
	at       hcl.Range
	mentions []hcl.Traversal
	evaluate func(ctx *hcl.EvalContext)
	local    *localValue // nil unless a local
	stage    *stageBlock // nil unless a stage
}

// evaluateAll evaluates locals and stages after their dependencies. It reports each cycle once, with its path.
func (l *loader) evaluateAll() {
	items := l.items()
	needs := make([][]int, len(items))
	for i, item := range items {
		if item.stage != nil && len(l.experiments) > 0 {
			needs[i] = []int{0} // the experiment block has the seeds
		}
		needs[i] = append(needs[i], l.dependenciesOf(item.mentions)...)
	}
	order, cycles := dag.Order(len(items), func(i int) []int { return needs[i] })
	for _, cycle := range cycles {
		var path []string
		for _, i := range append(cycle, cycle[0]) {
			path = append(path, items[i].name)
		}
		l.errorf(items[cycle[0]].at, "Dependency cycle", "These depend on each other: %s.", strings.Join(path, " → "))
	}
	for _, i := range order {
		items[i].evaluate(l.contextFor(items, needs[i]))
	}
}

// items returns the units of evaluation and sets the indexes of locals and stages.
func (l *loader) items() (items []item) {
	if len(l.experiments) > 0 {
		bl := l.experiments[0]
		items = append(items, item{name: "experiment", at: bl.DefRange(), mentions: mentions(bl.Body),
			evaluate: func(ctx *hcl.EvalContext) { l.decodeExperiment(bl, ctx) }})
	}
	for _, v := range l.locals {
		v.index = len(items)
		items = append(items, item{
			name: "local." + v.attr.Name, at: v.attr.SrcRange, mentions: v.attr.Expr.Variables(), local: v,
			evaluate: func(ctx *hcl.EvalContext) { v.value = l.evalOrReport(v.attr.Expr, ctx, false) },
		})
	}
	for _, s := range l.stages {
		s.index = len(items)
		items = append(items, item{name: s.address(), at: s.def, stage: s, mentions: mentions(s.block.Body),
			evaluate: func(ctx *hcl.EvalContext) { l.decodeStage(s, ctx) }})
	}
	return items
}

// mentions returns the variables of all expressions in a body, in the order of the file.
func mentions(b *hclsyntax.Body) []hcl.Traversal {
	var found []hcl.Traversal
	for _, a := range newBody(b, "", hcl.Range{}, nil).attrs {
		found = append(found, a.Expr.Variables()...)
	}
	for _, bl := range b.Blocks {
		found = append(found, mentions(bl.Body)...)
	}
	return found
}

// dependenciesOf returns the items that traversals refer to. Unknown names are reported during evaluation.
func (l *loader) dependenciesOf(traversals []hcl.Traversal) (found []int) {
	for _, t := range traversals {
		first, hasFirst := stepName(t, 1)
		second, hasSecond := stepName(t, 2)
		switch root := t.RootName(); {
		case root == "local" && hasFirst:
			if v := l.localNamed[first]; v != nil {
				found = append(found, v.index)
			}
		case root == "local":
			for _, v := range l.locals {
				found = append(found, v.index)
			}
		case root == "stage" && hasFirst && hasSecond:
			if s := l.named[first][second]; s != nil {
				found = append(found, s.index)
			}
		case root == "stage": // a computed name may mean any stage, or any of that kind
			for _, s := range l.stages {
				if !hasFirst || s.kindName == first {
					found = append(found, s.index)
				}
			}
		}
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
func (l *loader) contextFor(items []item, needs []int) *hcl.EvalContext {
	locals := map[string]cty.Value{}
	kinds := map[string]map[string]cty.Value{}
	for _, i := range needs {
		if s := items[i].stage; s != nil {
			if kinds[s.kindName] == nil {
				kinds[s.kindName] = map[string]cty.Value{}
			}
			kinds[s.kindName][s.name] = s.value
		} else if v := items[i].local; v != nil {
			locals[v.attr.Name] = v.value
		}
	}
	stages := map[string]cty.Value{}
	for kind, byName := range kinds {
		stages[kind] = cty.ObjectVal(byName)
	}
	ctx := l.global.NewChild()
	ctx.Variables = map[string]cty.Value{"local": cty.ObjectVal(locals), "stage": cty.ObjectVal(stages)}
	return ctx
}

func (l *loader) decodeExperiment(bl *hclsyntax.Block, ctx *hcl.EvalContext) {
	var settings struct {
		Question   string    `hcl:"question,optional" doc:"research question"`
		Expect     string    `hcl:"expect,optional" doc:"expected outcome, written down in advance"`
		Seeds      []int64   `hcl:"seeds,optional" doc:"seeds; every stochastic stage runs once per seed"`
		SeedsRange hcl.Range `hcl:"seeds,attr_range"`
	}
	settings.Seeds = l.x.Seeds
	l.decode(newBody(bl.Body, "an experiment", bl.DefRange(), nil), ctx, &settings)
	_, l.seeded = bl.Body.Attributes["seeds"]
	l.x.Question, l.x.Expect, l.x.Seeds = settings.Question, settings.Expect, settings.Seeds
	seen := map[int64]bool{}
	for _, s := range settings.Seeds {
		if seen[s] {
			l.errorf(settings.SeedsRange, "Duplicate seed", "Seed %d occurs twice in the list; remove one.", s)
		}
		seen[s] = true
	}
	if len(settings.Seeds) == 0 {
		l.errorf(settings.SeedsRange, "No seeds",
			"The list of seeds is empty; list at least one seed, or omit the setting for seed 1.")
	}
}

func (l *loader) warnUnused() {
	for _, v := range l.variables {
		if !v.used {

			l.errorf(v.block.DefRange(), "Unused variable", "No expression uses var.%s.", v.name).Severity = hcl.DiagWarning
		}
	}
}

// sortDiagnostics sorts by position and removes duplicates, which the instances of one stage produce.
func sortDiagnostics(diags hcl.Diagnostics) hcl.Diagnostics {
	type identity struct {
		summary, detail string
		at              hcl.Range
	}
	at := func(d *hcl.Diagnostic) hcl.Range { return *cmp.Or(d.Subject, &hcl.Range{}) }
	seen := map[identity]bool{}
	var out hcl.Diagnostics
	for _, d := range diags {
		if id := (identity{d.Summary, d.Detail, at(d)}); !seen[id] {
			seen[id] = true
			out = append(out, d)
		}
	}
	slices.SortStableFunc(out, func(a, b *hcl.Diagnostic) int {
		return cmp.Or(cmp.Compare(at(a).Filename, at(b).Filename), cmp.Compare(at(a).Start.Byte, at(b).Start.Byte))
	})
	return out
}

// Place formats a range as "file.hcl:14".
func Place(r hcl.Range) string { return fmt.Sprintf("%s:%d", r.Filename, r.Start.Line) }
