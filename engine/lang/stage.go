package lang

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"time"
	"unicode"

	"github.com/hashicorp/hcl/v2"

	"github.com/zclconf/go-cty/cty"

	"rcgrpo/engine/internal/stat"
)

// meta are the settings of every stage, except for_each and depends_on.
type meta struct {
	Seed          *int64         `hcl:"seed,optional" doc:"runs the stage for this seed only"`
	Enabled       bool           `hcl:"enabled,optional" doc:"false disables the stage and all stages that read it"`
	Executor      string         `hcl:"executor,optional" doc:"name of an executor of the site file"`
	ExecutorRange hcl.Range      `hcl:"executor,attr_range"`
	Timeout       time.Duration  `hcl:"timeout,optional" doc:"time limit of one attempt"`
	Description   string         `hcl:"description,optional" doc:"description for people"`
	Resources     resourcesBlock `hcl:"resources,block" doc:"resources reserved while the stage runs"`
	Retry         retryBlock     `hcl:"retry,block" doc:"when a failed stage is started again"`
}

type resourcesBlock struct {
	GPUs      uint      `hcl:"gpus,optional" doc:"number of reserved devices; only exec stages may have several"`
	CPUs      uint      `hcl:"cpus,optional" doc:"processor slots; 0 counts as 1"`
	Memory    byteSize  `hcl:"memory,optional" doc:"main memory"`
	GPUMemory byteSize  `hcl:"gpu_memory,optional" doc:"memory of each device"`
	GPUsRange hcl.Range `hcl:"gpus,attr_range"`
	Range     hcl.Range `hcl:"resources,def_range"`
}

type retryBlock struct {
	Attempts uint          `hcl:"attempts,optional" doc:"number of starts"`
	On       []string      `hcl:"on,optional" doc:"oom, nan, preempted, timeout, or a pattern for the error and the end of the log"`
	Backoff  time.Duration `hcl:"backoff,optional" doc:"wait before the next attempt"`
	OnRange  hcl.Range     `hcl:"on,attr_range"`
	Range    hcl.Range     `hcl:"retry,def_range"`
}

func (l *loader) decodeStage(s *stageBlock, ctx *hcl.EvalContext) {
	instances, ok := []element{{}}, true
	if s.keyed {
		instances, ok = l.forEach(s, ctx)
	}
	byKey := map[string]cty.Value{}
	for _, e := range instances {
		scope := ctx
		if s.keyed {
			scope = ctx.NewChild()
			key := cty.StringVal(e.key)
			if !ok {
				key = cty.UnknownVal(cty.String)
			}
			scope.Variables = map[string]cty.Value{
				"each": cty.ObjectVal(map[string]cty.Value{"key": key, "value": e.value})}
		}
		in := l.decodeInstance(s, e.key, scope)
		if in == nil {
			ok = false
			continue
		}
		s.instances = append(s.instances, in)
		byKey[e.key] = in.value()
	}
	switch {
	case !ok: // the value stays unknown
	case s.keyed:
		s.value = cty.ObjectVal(byKey)
	default:
		s.value = byKey[""]
	}
}

// forEach evaluates for_each. After an error it returns one element with an unknown value, so that the rest of the
// block is still checked.
func (l *loader) forEach(s *stageBlock, ctx *hcl.EvalContext) ([]element, bool) {
	unknown := []element{{value: cty.DynamicVal}}
	expr := s.block.Body.Attributes["for_each"].Expr
	val := l.evalOrReport(expr, ctx, false)
	if !val.IsKnown() {
		return unknown, false
	}
	t := val.Type()
	isSet := t.IsSetType() && (t.ElementType() == cty.String || val.LengthInt() == 0)
	if val.IsNull() || !isSet && !isMap(t) || instanceOf(val) != nil {
		hint := ""
		if t.IsTupleType() || t.IsListType() {
			hint = " Write toset([…]) around a list of strings."
		}
		l.errorf(expr.Range(), "Wrong type", "for_each must be a map or a set of strings; got %s.%s",
			describe(val), hint)
		return unknown, false
	}
	var found []element
	for it := val.ElementIterator(); it.Next(); {
		key, value := it.Element()
		if !key.IsKnown() || key.IsNull() {
			return unknown, false
		}
		if wrong := badKey(key.AsString()); wrong != "" {
			l.errorf(expr.Range(), "Bad key", "The key %q of for_each is part of addresses such as %s, so it %s.",
				key.AsString(), address(s.kindName, s.name, "KEY", true, nil), wrong)
			return unknown, false
		}
		found = append(found, element{key: key.AsString(), value: value})
	}
	slices.SortFunc(found, func(a, b element) int { return strings.Compare(a.key, b.key) })
	return found, true
}

func badKey(key string) string {
	if key == "" {
		return "must not be empty"
	}
	for _, r := range key {
		if strings.ContainsRune("@[]\"\\", r) || !unicode.IsPrint(r) {
			return fmt.Sprintf("must not contain %q", r)
		}
	}
	return ""
}

// decodeInstance decodes a block for one element. It returns nil if its ports are unknown.
func (l *loader) decodeInstance(s *stageBlock, key string, ctx *hcl.EvalContext) *instance {
	in := &instance{block: s, key: key, meta: meta{Enabled: true}, nodes: map[int64]*Node{}}
	isMeta := func(name string) bool { return slices.Contains(reserved, name) }
	owner := fmt.Sprintf("stage %q", s.kindName)

	m := l.decoder(ctx, s.keyed)
	m.structure(newBody(s.block.Body, owner, s.def, func(name string) bool {
		return isMeta(name) && name != "for_each" && name != "depends_on"
	}), reflect.ValueOf(&in.meta).Elem(), "")
	l.diags = append(l.diags, m.diags...)
	if !m.diags.HasErrors() {
		l.checkRetry(&in.meta.Retry)
	}
	l.checkMeta(in)
	in.dependsOn = l.dependsOn(s, ctx)
	if s.kind == nil {
		for _, a := range newBody(s.block.Body, "", hcl.Range{}, nil).attrs { // report wrong names in them too
			if !isMeta(a.Name) {
				l.evalOrReport(a.Expr, ctx, s.keyed)
			}
		}
		return nil
	}

	in.stage = s.kind.New()
	d := l.decoder(ctx, s.keyed)
	d.also = reserved
	if s.kind.AcrossSeeds {
		d.seeds = l.x.Seeds
		if in.meta.Seed != nil {
			d.seeds = []int64{*in.meta.Seed}
		}
	}
	settings := reflect.ValueOf(in.stage).Elem()
	d.structure(newBody(s.block.Body, owner, s.def, func(name string) bool { return !isMeta(name) }), settings, "")
	failed := d.diags.HasErrors()
	if !failed && !d.doubt {
		d.diags = append(d.diags, in.stage.Check()...)
	}
	l.diags = append(l.diags, d.diags...)
	if s.kind.Outputs != nil {
		in.outputs = s.kind.Outputs(in.stage)
	}
	if (failed || d.doubt) && len(in.outputs) == 0 {
		return nil
	}
	l.bindInputs(in, settings, d.ranges)
	if !d.diags.HasErrors() && !d.doubt {
		l.diags = append(l.diags, in.markEffects(d.ranges)...)
	}
	return in
}

// bindInputs collects the edges and settings of a decoded value and decides whether the instance has one node per
// seed.
func (l *loader) bindInputs(in *instance, settings reflect.Value, ranges map[string]hcl.Range) {
	kind := in.block.kind
	in.stochastic = kind.Stochastic != nil && kind.Stochastic(in.stage)
	in.multiplies = in.stochastic
	in.disabled = !in.meta.Enabled
	w := settingsWalker{ranges: ranges}
	w.structure(settings, "", true)
	in.settings, in.files = w.settings, w.files
	for _, r := range w.refs {
		from := l.named[r.ref.Kind][r.ref.Name].instance(r.ref.Key)
		if from.disabled && kind.AcrossSeeds {
			continue
		}
		in.disabled = in.disabled || from.disabled
		in.multiplies = in.multiplies || from.multiplies
		r.from = from
		in.inputs = append(in.inputs, r)
	}
	in.multiplies = in.multiplies && in.meta.Seed == nil && !kind.AcrossSeeds
}

func (l *loader) checkMeta(in *instance) {
	if e := in.meta.Executor; e != "" {
		l.checkExecutor(in.meta.ExecutorRange, e, "")
	}
	r := &in.meta.Resources
	if r.GPUMemory > 0 && r.GPUs == 0 {
		l.errorf(r.Range, "Memory without device",
			"resources.gpu_memory is the memory of each device, but gpus is 0; set gpus.")
	}
	if !l.x.Site.AutoGPUs && l.x.Site.Path != "" && int(min(r.GPUs, math.MaxInt32)) > len(l.x.Site.GPUs) {
		l.errorf(r.GPUsRange, "More devices than there are", "The stage needs %s; %s has %d. The stage can be planned "+
			"on this machine but not run.", Plural(int(r.GPUs), "GPU"), l.x.Site.Path, len(l.x.Site.GPUs)).
			Severity = hcl.DiagWarning
	}
}

// causeLike matches patterns that may be a misspelt cause.
var causeLike = regexp.MustCompile(`^[a-zA-Z]+$`)

// checkRetry reports a retry without effect and unknown causes.
func (l *loader) checkRetry(retry *retryBlock) {
	switch {
	case retry.Attempts > 1 && len(retry.On) == 0:
		l.errorf(retry.Range, "Retry of nothing", "retry.attempts is %d, but retry.on is empty, so no "+
			"failure is retried; list causes, for example on = [\"oom\", \"preempted\"].", retry.Attempts)
	case retry.Attempts < 2 && (len(retry.On) > 0 || retry.Backoff > 0):
		l.errorf(retry.Range, "Retry of nothing", "retry.attempts counts all starts, so with %d nothing is "+
			"retried; set the number of starts, for example attempts = 3.", retry.Attempts)
	}
	for _, on := range retry.On {
		if near := nearest(on, FailureCauses); near != "" && near != on && causeLike.MatchString(on) {
			l.errorf(retry.OnRange, "Unknown cause", "retry.on: no failure has the cause %q; did you mean "+
				"%s? To match %s in the text of the error, write a pattern, \"(%s)\".", on, near, on, on)
			continue
		}
		if _, err := regexp.Compile(on); err != nil {
			l.errorf(retry.OnRange, "Bad pattern",
				"retry.on: %s. It takes oom, nan, preempted, timeout or a regular expression.", err)
		}
	}
}

// dependsOn evaluates depends_on: instances or ports, in lists and objects of any depth.
func (l *loader) dependsOn(s *stageBlock, ctx *hcl.EvalContext) []*instance {
	a := s.block.Body.Attributes["depends_on"]
	if a == nil {
		return nil
	}
	var found []*instance
	var gather func(v cty.Value)
	gather = func(v cty.Value) {
		t := v.Type()
		switch {
		case !v.IsKnown():
		case t == refType:
			found = append(found, v.EncapsulatedValue().(*refValue).from)
		case instanceOf(v) != nil:
			found = append(found, instanceOf(v))
		case !v.IsNull() && (isList(t) || isMap(t)):
			for it := v.ElementIterator(); it.Next(); {
				_, e := it.Element()
				gather(e)
			}
		default:
			l.errorf(a.Expr.Range(), "Wrong type",
				"depends_on must be a list of stages, such as [stage.sft.warm]; it contains %s.", describe(v))
		}
	}
	gather(l.evalOrReport(a.Expr, ctx, s.keyed))
	return found
}

// checkPublished reports files that two instances publish, and files that the experiment itself reads.
func (l *loader) checkPublished() {
	taken := map[string]*instance{}
	for _, s := range l.stages {
		for _, in := range s.instances {
			p, ok := in.stage.(Publisher)
			if !ok || in.disabled {
				continue
			}
			names := p.Publishes()
			slices.Sort(names)
			for _, name := range names {
				if other := taken[name]; other != nil {
					l.errorf(s.def, "Published twice", "%s and %s both publish %s; change one of the paths.",
						other.address(), in.address(), name).Extra = Related{"the other one", other.block.def}
				}
				taken[name] = in
				path := stat.Absolute(filepath.Join(l.x.Dir, filepath.FromSlash(name)))
				_, read := l.x.Digests[path]
				if read || slices.ContainsFunc(l.parsed, func(w stat.File) bool { return w.Path == path }) {
					l.errorf(s.def, "Published over a source", "%s would publish %s, which is a source of "+
						"the experiment; change the path of the output.", in.address(), name)
				}
			}
		}
	}
}

// noSeed is the index of the only node of an instance without one node per seed.
const noSeed = math.MinInt64

// expandSeeds creates the nodes in topological order: one per seed for stochastic instances and their readers, one
// for others, and nodes of further seeds that pinned stages read.
func (l *loader) expandSeeds() {
	for _, s := range l.stages {
		for _, in := range s.instances {
			seeds := []int64{noSeed}
			if in.multiplies {
				seeds = l.x.Seeds
			}
			if in.disabled {
				l.x.Disabled = append(l.x.Disabled, in.address())
				continue
			}
			for _, seed := range seeds {
				if len(l.x.Nodes) >= maxNodes {
					l.errorf(s.def, "Too many stages", "An experiment may have at most %d stages, counting every key of "+
						"a for_each and every seed; this stage exceeds the limit.", maxNodes)
					return
				}
				l.node(in, seed)
			}
		}
	}
}

// node returns the node of an instance for a seed. It creates the nodes of its inputs first.
func (l *loader) node(in *instance, seed int64) *Node {
	if !in.multiplies {
		seed = noSeed
	}
	if n := in.nodes[seed]; n != nil {
		return n
	}
	n := &Node{
		Kind: in.block.kind, Name: in.block.name, EachKey: in.key, Stage: in.stage, Stochastic: in.stochastic,
		Files: in.files, Outputs: in.outputs, Settings: in.settings, Executor: in.meta.Executor,
		Timeout: in.meta.Timeout, Doc: in.meta.Description, Range: in.block.def,
		Resources: Resources{
			GPUs: int(in.meta.Resources.GPUs), CPUs: int(in.meta.Resources.CPUs),
			Memory: int64(in.meta.Resources.Memory), GPUMemory: int64(in.meta.Resources.GPUMemory),
		},
		Retry: Retry{Attempts: int(in.meta.Retry.Attempts), On: in.meta.Retry.On, Backoff: in.meta.Retry.Backoff},
	}
	var at *int64 // nil: the address has no seed
	if in.multiplies {
		n.Seed = &seed
		if l.seeded || seed != l.x.Seeds[0] { // without a list of seeds, only nodes for pinned readers show their seed
			at = &seed
		}
	} else {
		n.Seed = in.meta.Seed
	}
	n.Address = address(in.block.kindName, in.block.name, in.key, in.block.keyed, at)
	in.nodes[seed] = n
	for _, r := range in.inputs {
		input := Input{Setting: r.setting, Ref: r.ref, Range: r.rng}
		from := int64(noSeed)
		if r.from.multiplies {
			input.Ref.Seed = cmp.Or(r.ref.Seed, n.Seed) // a kind that reads all seeds names each
			from = *input.Ref.Seed
		}
		input.From = l.node(r.from, from)
		n.Inputs = append(n.Inputs, input)
	}
	for _, from := range in.dependsOn {
		n.DependsOn = append(n.DependsOn, l.afterNodes(from, n.Seed)...)
	}
	l.x.Nodes = append(l.x.Nodes, n)
	l.x.byAddress[n.Address] = n
	return n
}

// afterNodes returns the nodes of a depends_on: those of the same seed, or of all seeds if the reader has none.
func (l *loader) afterNodes(from *instance, seed *int64) []*Node {
	seeds := l.x.Seeds
	switch {
	case from.disabled:
		return nil
	case !from.multiplies:
		seeds = []int64{noSeed}
	case seed != nil:
		seeds = []int64{*seed}
	}
	var nodes []*Node
	for _, s := range seeds {
		nodes = append(nodes, l.node(from, s))
	}
	return nodes
}
