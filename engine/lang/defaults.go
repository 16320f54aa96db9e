package lang

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// layer is one origin of the settings of a stage.
type layer struct {
	name     string  // `defaults "grpo"`, `--set`; "" for the stage itself
	strength int     // a layer replaces settings of weaker layers
	optional bool    // a setting that the kind does not have, or that has no effect, is dropped
	each     bool    // expressions may use each
	key      *string // applies to the instance with this for_each key only; nil: to all
	settings body    // settings of the kind
	meta     body    // settings of every stage
	mentions []hcl.Traversal
	defaults *defaultsBlock // nil for other layers
}

// Strengths of layers; overrides begin at strengthSet.
const (
	strengthDefaults = iota
	strengthKind
	strengthStage
	strengthSet
)

// defaultsBlock is `defaults { … }`, or `defaults "KIND" … { … }` for these kinds.
type defaultsBlock struct {
	block   *hclsyntax.Block
	def     hcl.Range
	kinds   []string
	fits    map[string]bool   // paths of settings that some kind has
	misfits map[string]misfit // paths that some kind does not have
}

type misfit struct {
	at         hcl.Range
	candidates []string
}

func (b *defaultsBlock) misfit(at hcl.Range, path string, candidates []string) {
	m := b.misfits[path]
	b.misfits[path] = misfit{at, append(m.candidates, candidates...)}
}

// notInDefaults are settings of every stage that make sense for a single stage only.
var notInDefaults = []string{"for_each", "depends_on", "description"}

func (l *scope) addDefaults(bl *hclsyntax.Block) {
	for i, kind := range bl.Labels {
		if l.lookupKind(kind, bl.LabelRanges[i]) != nil && slices.Contains(bl.Labels[:i], kind) {
			l.errorf(bl.LabelRanges[i], "Duplicate kind", "Kind %q is named twice; remove one.", kind)
		}
	}
	for _, a := range attributes(bl.Body, func(name string) bool { return slices.Contains(notInDefaults, name) }) {
		l.errorf(a.NameRange, "Setting of one stage", "%s cannot have a default; write it in the stage.", a.Name)
	}
	l.defaults = append(l.defaults, &defaultsBlock{block: bl, def: bl.DefRange(), kinds: bl.Labels,
		fits: map[string]bool{}, misfits: map[string]misfit{}})
}

// lookupKind returns the kind with that name. It reports an unknown kind and returns nil.
func (l *loader) lookupKind(name string, at hcl.Range) *Kind {
	k := l.reg.Lookup(name)
	if k == nil {
		var names []string
		for _, k := range l.reg {
			names = append(names, k.Name)
		}
		l.errorf(at, "Unknown kind", "There is no kind %q%s `rcgrpo kinds` lists them.", name, didYouMean(name, names))
	}
	return k
}

// layersOf returns the origins of a stage's settings, weakest first: defaults of all kinds, defaults of its kind, the
// stage and the overrides.
func (l *scope) layersOf(s *stageBlock) []*layer {
	var layers []*layer
	if s.kind != nil && len(l.defaults) > 0 {
		names := slices.Concat(fieldNames(fieldsOf(reflect.TypeOf(s.kind.New()).Elem())), reserved)
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(notInDefaults, name) })
		for _, b := range l.defaults {
			if len(b.kinds) == 0 || slices.Contains(b.kinds, s.kindName) {
				layers = append(layers, newDefaultsLayer(b, s, names))
			}
		}
		slices.SortStableFunc(layers, func(a, b *layer) int { return a.strength - b.strength })
	}
	own := &layer{strength: strengthStage, each: s.keyed}
	own.setBodies(s.block.Body, s.kindName, s.def)
	layers = append(layers, own)
	return append(layers, l.overrideLayers(s)...)
}

// newDefaultsLayer returns the settings of defaults for a stage, whose settings have the given names.
func newDefaultsLayer(b *defaultsBlock, s *stageBlock, names []string) *layer {
	y := &layer{name: "defaults", strength: strengthDefaults, optional: len(b.kinds) == 0, defaults: b}
	for _, kind := range b.kinds {
		y.name, y.strength = y.name+fmt.Sprintf(" %q", kind), strengthKind
	}
	y.setBodies(b.block.Body, s.kindName, s.def)
	for _, a := range attributes(b.block.Body, func(name string) bool { return slices.Contains(names, name) }) {
		y.mentions = append(y.mentions, a.Expr.Variables()...)
	}
	for _, bl := range b.block.Body.Blocks {
		if slices.Contains(names, bl.Type) {
			y.mentions = append(y.mentions, mentions(bl.Body)...)
		}
	}
	return y
}

// isMeta reports whether every stage has the setting.
func isMeta(name string) bool { return slices.Contains(reserved, name) }

// setBodies splits a block into the settings of the kind and those of every stage.
func (y *layer) setBodies(b *hclsyntax.Body, kind string, def hcl.Range) {
	owner := fmt.Sprintf("stage %q", kind)
	y.settings = newBody(b, owner, def, func(name string) bool { return !isMeta(name) })
	y.meta = newBody(b, owner, def, func(name string) bool {
		return isMeta(name) && name != "for_each" && name != "depends_on"
	})
}

// checkDefaults reports settings that no kind of the file has, and defaults of kinds without a stage.
func (l *scope) checkDefaults() {
	for _, b := range l.defaults {
		for _, path := range slices.Sorted(maps.Keys(b.misfits)) {
			if m := b.misfits[path]; !b.fits[path] {
				name := path[strings.LastIndexByte(path, '.')+1:]
				l.errorf(m.at, "Unknown setting", "No stage of this file has a setting %s%s", path, didYouMean(name, m.candidates))
			}
		}
		used := func(kind string) bool { return len(l.stageNamed[kind]) > 0 }
		if len(b.kinds) > 0 && !slices.ContainsFunc(b.kinds, used) && !l.diags.HasErrors() {
			l.errorf(b.def, "Unused defaults", "This file has no stage of kind %s, so these defaults have no effect.",
				quoteAll(b.kinds)).Severity = hcl.DiagWarning
		}
	}
}
