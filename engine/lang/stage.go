package lang

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/dustin/go-humanize/english"
	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// meta are the settings of every stage, except for_each and depends_on.
type meta struct {
	// runs the stage for this seed only
	Seed *int64 `hcl:"seed,optional"`
	// false disables the stage and all stages that read it
	Enabled bool `hcl:"enabled,optional"`
	// name of an executor of the site file
	Executor string `hcl:"executor,optional"`
	// time limit of one attempt
	Timeout time.Duration `hcl:"timeout,optional"`
	// description for people
	Description string `hcl:"description,optional"`
	// resources reserved while the stage runs
	Resources resourcesBlock `hcl:"resources,block"`
	// when a failed stage is started again; without --keep-going not after another one has failed for good
	Retry retryBlock `hcl:"retry,block"`

	At map[string]hcl.Range `hcl:",ranges"`
}

type resourcesBlock struct {
	// number of reserved devices. Several devices of a training, rollout or eval have a process each, as with
	// processes
	GPUs uint `hcl:"gpus,optional"`
	// processor slots; 0 counts as 1
	CPUs uint `hcl:"cpus,optional"`
	// main memory; a stage of tasks, curate, endpoint or report may use 1.75 GiB, or this if it is more
	Memory byteSize `hcl:"memory,optional"`
	// processes that share the stage's work, with identical results in float32; each has cpus / processes CPUs and
	// memory / processes. Trainings (at most gradient_parts processes), rollout and eval; without gpus
	Processes uint `hcl:"processes,optional"`
	// memory of each device
	GPUMemory byteSize `hcl:"gpu_memory,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

type retryBlock struct {
	// number of starts
	Attempts uint `hcl:"attempts,optional"`
	// oom, nan, preempted, timeout, or a pattern for the error and the end of the log
	On []string `hcl:"on,optional"`
	// wait before the next attempt, in which the stage has no CPUs and GPUs
	Backoff time.Duration `hcl:"backoff,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

func (l *scope) decodeStage(s *stageBlock, ctx *hcl.EvalContext) {
	s.value = l.instances(&s.declaration, ctx, func(key string, ctx *hcl.EvalContext) (cty.Value, bool) {
		in := l.decodeInstance(s, key, ctx)
		if in == nil {
			return cty.DynamicVal, false
		}
		in.index = len(s.instances)
		s.instances = append(s.instances, in)
		s.byKey[key] = in
		return in.value(), true
	})
	s.layers = nil // frees the memory
}

// maxInstances bounds the instances of stages and modules. It is checked while they are made: modules in modules
// multiply.
const maxInstances = 100_000

// maxAddress bounds the bytes of an address, which each instance, node and input repeats.
const maxAddress = 1000

// instances makes the instances of a stage or module, one for each element of for_each. It returns their value: that of
// the only one, or an object by key; unknown after an error.
func (l *scope) instances(d *declaration, ctx *hcl.EvalContext,
	instance func(key string, ctx *hcl.EvalContext) (value cty.Value, ok bool)) cty.Value {
	elements, ok := []element{{}}, true
	if d.keyed {
		elements, ok = l.forEach(d, ctx)
	}
	values := map[string]cty.Value{}
	for _, e := range elements {
		if n := len(d.addressOf(e.key)); n > maxAddress {
			l.errorf(d.def, "Name too long", "The address of a stage or module has at most %d bytes, with its key and the "+
				"modules around it; this one has %d. Shorten the names or keys.", maxAddress, n)
			return cty.DynamicVal
		}
		if l.made++; l.made > maxInstances || l.effort.spent > maxEffort {
			if l.made == maxInstances+1 {
				l.errorf(d.def, "Too many instances", "An experiment may have at most %d instances of stages and modules; this "+
					"block exceeds the limit.", maxInstances)
			}
			return cty.DynamicVal
		}
		value, made := instance(e.key, eachContext(ctx, d.keyed, e, ok))
		values[e.key], ok = value, ok && made
	}
	switch {
	case !ok:
		return cty.DynamicVal
	case d.keyed:
		return cty.ObjectVal(values)
	}
	return values[""]
}

// eachContext returns a context with each.key and each.value. After an error in for_each the key is unknown.
func eachContext(ctx *hcl.EvalContext, keyed bool, e element, known bool) *hcl.EvalContext {
	if !keyed {
		return ctx
	}
	key := cty.StringVal(e.key)
	if !known {
		key = cty.UnknownVal(cty.String)
	}
	scope := ctx.NewChild()
	scope.Variables = map[string]cty.Value{
		"each": cty.ObjectVal(map[string]cty.Value{"key": key, "value": e.value})}
	return scope
}

// forEach evaluates the for_each of a block. A list keeps its order; the keys of a map or set are sorted. After an
// error it returns one element with an unknown value, so that the rest of the block is still checked.
func (l *scope) forEach(d *declaration, ctx *hcl.EvalContext) ([]element, bool) {
	unknown := []element{{value: cty.DynamicVal}}
	expr := d.block.Body.Attributes["for_each"].Expr
	val := l.evalOrReport(expr, ctx, false)
	if !val.IsKnown() {
		return unknown, false
	}
	if t := val.Type(); val.IsNull() || !isList(t) && !isMap(t) || instanceOf(val) != nil {
		l.errorf(expr.Range(), "Wrong type", "for_each must be a list, a map or a set; got %s.", describe(val))
		return unknown, false
	}
	var found []element
	seen := map[string]bool{}
	for e := range elements(val, expr, "for_each") {
		if !isMap(val.Type()) {
			key, ok := elementKey(e.value)
			if !ok {
				l.errorf(e.expr.Range(), "Wrong type", "Each element of for_each must be a string, a number, a boolean or "+
					"an object with a string key, as from matrix(); got %s. For other elements write a map.", describe(e.value))
				return unknown, false
			}
			e.key = key
		}
		if wrong := badKey(e.key); wrong != "" {
			l.errorf(expr.Range(), "Bad key", "The key %q of for_each is part of addresses such as %s, so it %s.",
				e.key, d.addressOf("KEY"), wrong)
			return unknown, false
		}
		if seen[e.key] {
			l.errorf(e.expr.Range(), "Duplicate key", "for_each has the element %q twice; remove one.", e.key)
			return unknown, false
		}
		seen[e.key] = true
		found = append(found, e)
	}
	return found, true
}

// elementKey returns the for_each key of a list element: its text, or the attribute key of an object.
func elementKey(v cty.Value) (string, bool) {
	if isMap(v.Type()) && v.IsKnown() && !v.IsNull() && instanceOf(v) == nil {
		if t := v.Type(); t.IsObjectType() && t.HasAttribute("key") {
			v = v.GetAttr("key")
		}
	}
	if !v.IsKnown() || v.IsNull() || !v.Type().IsPrimitiveType() {
		return "", false
	}
	s, err := convert.Convert(v, cty.String)
	if err != nil {
		return "", false
	}
	return s.AsString(), true
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
func (l *scope) decodeInstance(s *stageBlock, key string, ctx *hcl.EvalContext) *instance {
	in := &instance{block: s, key: key, meta: meta{Enabled: true}, nodes: map[int64]*Node{}}
	m := l.decoder(ctx)
	if slices.ContainsFunc(s.layers, func(y *layer) bool { return len(y.meta.entries)+len(y.meta.blocks) > 0 }) {
		m.decodeLayers(s, key, func(y *layer) body { return y.meta }, reflect.ValueOf(&in.meta).Elem())
	}
	l.diags = append(l.diags, m.diags...)
	if !m.diags.HasErrors() {
		l.checkRetry(&in.meta.Retry)
	}
	l.checkMeta(in)
	in.meta.At = nil // frees the memory
	in.dependsOn = l.dependsOn(s, ctx)
	if s.kind == nil {
		for _, a := range attributes(s.block.Body, nil) { // report wrong names in them too
			if !isMeta(a.Name) {
				l.evalOrReport(a.Expr, ctx, s.keyed)
			}
		}
		return nil
	}
	drop := map[string]bool{} // settings of defaults without an effect in this stage
	for {
		d, failed := l.decodeKind(in, drop, ctx)
		if failed && len(in.outputs) == 0 {
			l.diags = append(l.diags, d.diags...)
			return nil
		}
		before := len(drop)
		l.bindInputs(in, d.origins)
		if !failed {
			d.diags = append(d.diags, in.markEffects(d.origins, drop)...)
		}
		if len(drop) == before {
			if !failed {
				l.checkRanks(in)
			}
			l.diags = append(l.diags, d.diags...)
			return in
		}
	}
}

// decodeKind decodes the settings of the kind, without those in drop. failed is true after an error.
func (l *scope) decodeKind(in *instance, drop map[string]bool, ctx *hcl.EvalContext) (d *decoder, failed bool) {
	s := in.block
	in.stage = s.kind.New()
	d = l.decoder(ctx)
	d.also, d.drop = reserved, drop
	if s.kind.AcrossSeeds {
		d.seeds = l.x.Seeds
		if in.meta.Seed != nil {
			d.seeds = []int64{*in.meta.Seed}
		}
	}
	d.usePreset(s, in)
	d.decodeLayers(s, in.key, func(y *layer) body { return y.settings }, reflect.ValueOf(in.stage).Elem())
	failed = d.diags.HasErrors() || d.doubt
	if !failed {
		d.diags = append(d.diags, in.stage.Check()...)
		failed = d.diags.HasErrors()
	}
	if s.kind.Outputs != nil {
		in.outputs = s.kind.Outputs(in.stage)
	}
	return d, failed
}

// decodeLayers decodes one part of all layers that apply to an instance.
func (d *decoder) decodeLayers(s *stageBlock, key string, part func(*layer) body, v reflect.Value) {
	for _, y := range s.layers {
		if y.key == nil || *y.key == key {
			d.layer = y
			d.fill(part(y), v, "")
		}
	}
	d.layer = &layer{}
	d.finish(fmt.Sprintf("stage %q", s.kindName), s.def, v, "")
}

// usePreset applies the preset that the strongest layer names. Other settings of every layer override it.
func (d *decoder) usePreset(s *stageBlock, in *instance) {
	v := reflect.ValueOf(in.stage).Elem()
	for _, f := range fieldsOf(v.Type()) {
		if !f.preset {
			continue
		}
		name := &decoder{eval: d.eval, origins: map[string]origin{}, given: map[string]bool{}}
		for _, y := range s.layers {
			if i := slices.IndexFunc(y.settings.entries, func(e entry) bool { return e.name == f.name }); i >= 0 &&
				(y.key == nil || *y.key == in.key) {
				name.layer = y
				name.fill(body{entries: y.settings.entries[i : i+1]}, v, "")
			}
		}
		if value := v.FieldByIndex(f.index).String(); value != "" && !name.diags.HasErrors() {
			in.stage.(Preset).UsePreset(value)
		}
	}
}

// bindInputs collects the edges and settings of a decoded stage and decides whether the instance is disabled and
// whether it has one node per seed.
func (l *loader) bindInputs(in *instance, origins map[string]origin) {
	kind := in.block.kind
	in.stochastic = kind.Stochastic != nil && kind.Stochastic(in.stage)
	in.multiplies = in.stochastic
	in.disabled = !in.meta.Enabled
	in.inputs = nil
	w := settingsWalker{origins: origins}
	w.structure(reflect.ValueOf(in.stage).Elem(), "", true)
	in.settings, in.files = w.settings, w.files
	if kind.AcrossSeeds {
		in.settings = append(in.settings, l.x.shownOnPages()...)
	}
	for _, r := range w.refs {
		from := l.scopes[r.ref.Module].stageNamed[r.ref.Kind][r.ref.Name].byKey[r.ref.Key]
		in.disabled = in.disabled || from.disabled
		in.multiplies = in.multiplies || from.multiplies
		r.from = from
		in.inputs = append(in.inputs, r)
	}
	in.multiplies = in.multiplies && in.meta.Seed == nil && !kind.AcrossSeeds
}

// shownOnPages returns what a page shows of the experiment itself, for the key of the page.
func (x *Experiment) shownOnPages() []Setting {
	shown := []Setting{{Name: "experiment.name", Value: JSONText(x.Name), InKey: true},
		{Name: "experiment.question", Value: JSONText(x.Question), InKey: true},
		{Name: "experiment.expect", Value: JSONText(x.Expect), InKey: true}}
	if len(x.Overrides) > 0 {
		shown = append(shown, Setting{Name: "overrides", Value: JSONText(x.Source.Sets), InKey: true, From: OverridesFile})
	}
	return shown
}

func (l *loader) checkMeta(in *instance) {
	if e := in.meta.Executor; e != "" {
		l.checkExecutor(in.meta.At["executor"], e)
	}
	r := &in.meta.Resources
	if r.GPUMemory > 0 && r.GPUs == 0 {
		l.errorf(r.At[""], "Memory without device",
			"resources.gpu_memory is the memory of each device, but gpus is 0; set gpus.")
	}
	_, remote := l.x.Site.Slurm[cmp.Or(in.meta.Executor, l.x.Site.Executor)]
	if !remote && !l.x.Site.AutoGPUs && l.x.Site.Path != "" && int(min(r.GPUs, math.MaxInt32)) > len(l.x.Site.GPUs) {
		l.errorf(r.At["gpus"], "More devices than there are", "The stage needs %s; %s has %d. The stage can be planned "+
			"on this machine but not run.", english.Plural(int(r.GPUs), "GPU", ""), l.x.Site.Path, len(l.x.Site.GPUs)).
			Severity = hcl.DiagWarning
	}
}

// checkRanks reports processes and devices that the stage cannot use.
func (l *loader) checkRanks(in *instance) {
	r, kind, most := &in.meta.Resources, in.block.kind, 1
	if kind.Ranks != nil {
		most = kind.Ranks(in.stage)
	}
	setting, at := "processes", r.At["processes"]
	if r.Processes <= 1 {
		setting, at = "gpus", r.At["gpus"]
	}
	switch n := int(min(max(r.Processes, r.GPUs), math.MaxInt32)); {
	case n <= 1 || kind.Ranks == nil && r.Processes <= 1:
	case kind.Ranks == nil:
		l.errorf(r.At["processes"], "One process", "A %s stage has one process; got processes = %d.", kind.Name, n)
	case most == 0:
		l.errorf(at, "One process", "The stage of kind %s has one process with these settings; got %s = %d.", kind.Name,
			setting, n)
	case r.Processes > 1 && r.GPUs > 0:
		l.errorf(r.At["processes"], "Processes beside devices", "Each device has a process, so gpus = %d is enough; got "+
			"processes = %d too. Remove it.", r.GPUs, r.Processes)
	case n > most:
		l.errorf(at, "More processes than parts", "At most %s can share the stage, because its gradient "+
			"has that many parts; got %s = %d. Set gradient_parts = %d: this changes rounding and the key.",
			english.Plural(most, "process", ""), setting, n, n)
	}
}

// resources returns the resources of a node. Each of several devices has a process.
func (in *instance) resources() Resources {
	r := &in.meta.Resources
	processes := r.Processes
	if in.block.kind.Ranks != nil && r.GPUs > 1 {
		processes = r.GPUs
	}
	return Resources{GPUs: int(r.GPUs), Processes: int(processes), CPUs: int(max(r.CPUs, processes)),
		Memory: int64(r.Memory), GPUMemory: int64(r.GPUMemory)}
}

// checkRetry reports a retry without effect and unknown causes.
func (l *loader) checkRetry(retry *retryBlock) {
	switch {
	case retry.Attempts > 1 && len(retry.On) == 0:
		l.errorf(retry.At[""], "Retry of nothing", "retry.attempts is %d, but retry.on is empty, so no "+
			"failure is retried; list causes, for example on = [\"oom\", \"preempted\"].", retry.Attempts)
	case retry.Attempts < 2 && (len(retry.On) > 0 || retry.Backoff > 0):
		l.errorf(retry.At[""], "Retry of nothing", "retry.attempts counts all starts, so with %d nothing is "+
			"retried; set the number of starts, for example attempts = 3.", retry.Attempts)
	}
	for _, on := range retry.On {
		isWord := !strings.ContainsFunc(on, func(r rune) bool { return !unicode.IsLetter(r) })
		if near := nearest(on, FailureCauses); near != "" && near != on && isWord {
			l.errorf(retry.At["on"], "Unknown cause", "retry.on: no failure has the cause %q; did you mean "+
				"%s? To match %s in the text of the error, write a pattern, \"(%s)\".", on, near, on, on)
			continue
		}
		if _, err := regexp.Compile(on); err != nil {
			l.errorf(retry.At["on"], "Bad pattern",
				"retry.on: %s. It takes oom, nan, preempted, timeout or a regular expression.", err)
		}
	}
}

// dependsOn evaluates depends_on: instances or ports, in lists and objects of any depth.
func (l *scope) dependsOn(s *stageBlock, ctx *hcl.EvalContext) []*instance {
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

// Publishes returns what a node publishes: nothing if it is a stage of a module.
func (x *Experiment) Publishes(n *Node) []Published {
	if p, ok := n.Stage.(Publisher); ok && !n.InModule() && !x.Unpublished {
		return p.Publishes(x.Name, n.Address)
	}
	return nil
}

// checkPublished reports files that two nodes publish, files outside the experiment's folder, and files that the
// experiment itself reads, also inside a published folder: its record, which may come from a remote store, names the
// files in it.
func (l *loader) checkPublished() {
	sources := map[string]bool{} // and the folders that contain them
	for _, path := range slices.Concat(l.parsed, slices.Collect(maps.Keys(l.x.Digests))) {
		path, _, _ = strings.Cut(path, "\x00") // see digestName
		for ; !sources[path]; path = filepath.Dir(path) {
			sources[path] = true
		}
	}
	taken := map[string]*Node{}
	for _, n := range l.x.Nodes {
		published := l.x.Publishes(n)
		slices.SortFunc(published, func(a, b Published) int { return strings.Compare(a.Name, b.Name) })
		short, _, _ := strings.Cut(n.Address, "@")
		for _, p := range published {
			name := path.Clean(p.Name)
			if name == "." || !filepath.IsLocal(filepath.FromSlash(p.Name)) {
				l.errorf(n.Range, "Published elsewhere", "%s publishes %q, which is not a path below the experiment's folder; "+
					"change the path.", short, p.Name)
				continue
			}
			if other := taken[name]; other != nil {
				first, _, _ := strings.Cut(other.Address, "@")
				relate(l.errorf(n.Range, "Published twice", "%s and %s both publish %s; change one of the paths.",
					first, short, name), "the other one", other.Range)
			}
			taken[name] = n
			if sources[absolute(filepath.Join(l.x.Dir, filepath.FromSlash(name)))] {
				l.errorf(n.Range, "Published over a source", "%s would publish %s, which is or contains a source of "+
					"the experiment; change the path of the output.", short, name)
			}
		}
	}
}

// noSeed is the index of the only node of an instance without one node per seed.
const noSeed = math.MinInt64

// expandSeeds creates the nodes in topological order: one per seed for stochastic instances and their readers, one
// for others, and nodes of further seeds that pinned stages read. Stages of modules have nodes if a stage of the
// experiment reads them or a target names them.
func (l *loader) expandSeeds() {
	for _, address := range slices.Sorted(maps.Keys(l.scopes)) { // the experiment first
		inModule := address != ""
		for _, s := range l.scopes[address].stages {
			for _, in := range s.instances {
				switch {
				case inModule && !l.targeted(in):
				case in.disabled:
					l.x.Disabled = append(l.x.Disabled, in.address())
				case inModule && s.kind.AfterFailures: // a report of a module shows the module's own experiment
				default:
					l.nodes(in)
				}
			}
		}
	}
}

// targeted reports whether a target means the instance.
func (l *loader) targeted(in *instance) bool {
	return slices.ContainsFunc(l.src.Targets, func(target string) bool {
		target, _, _ = strings.Cut(target, "@")
		return selects(target, in.address())
	})
}

// nodes creates the nodes of an instance.
func (l *loader) nodes(in *instance) {
	seeds := []int64{noSeed}
	if in.multiplies {
		seeds = l.x.Seeds
	}
	for _, seed := range seeds {
		if len(l.x.Nodes) >= maxInstances {
			l.errorf(in.block.def, "Too many instances", "An experiment may have at most %d stages, counting every seed; this "+
				"stage exceeds the limit.", maxInstances)
			return
		}
		l.node(in, seed)
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
		Resources: in.resources(),
		Retry:     Retry{Attempts: int(in.meta.Retry.Attempts), On: in.meta.Retry.On, Backoff: in.meta.Retry.Backoff},
	}
	n.Address, n.Seed = in.address(), in.meta.Seed
	if in.multiplies {
		n.Seed = &seed
		if l.seeded || seed != l.x.Seeds[0] { // without a list of seeds, only nodes for pinned readers show their seed
			n.Address += fmt.Sprintf("@%d", seed)
		}
	}
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
