package lang

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"rcgrpo/engine/artifact"
)

// refValue is a reference during evaluation: `stage.sft.warm.checkpoint`.
type refValue struct {
	artifact.Ref
	from *instance
}

func (r *refValue) String() string { return r.from.address() + "." + r.Port }

var (
	refType  = cty.Capsule("reference", reflect.TypeFor[refValue]())
	fileType = cty.Capsule("file", fileGoType) // the result of file() and dir()
)

// instance is one for_each element of a stage block, or the block itself.
type instance struct {
	block      *stageBlock
	index      int    // in block.instances
	key        string // "" without for_each
	stage      Stage
	outputs    map[string]string
	meta       meta
	dependsOn  []*instance
	inputs     []boundRef // references of the decoded value
	settings   []Setting
	files      []artifact.File
	stochastic bool
	// multiplies is true if there is one node per seed. Pinned stages and kinds across seeds have one node.
	multiplies bool
	disabled   bool
	nodes      map[int64]*Node // by seed, or noSeed
}

type boundRef struct {
	setting string
	ref     artifact.Ref
	from    *instance
	rng     hcl.Range
}

func (in *instance) address() string {
	return in.block.addressOf(in.key)
}

// value returns the object of the instance's ports, for expressions.
func (in *instance) value() cty.Value {
	ports := make(map[string]cty.Value, len(in.outputs))
	for port, typ := range in.outputs {
		ports[port] = cty.CapsuleVal(refType, &refValue{
			Ref: artifact.Ref{Module: in.block.scope.address, Kind: in.block.kindName, Name: in.block.name, Key: in.key,
				Port: port, Type: typ},
			from: in,
		})
	}
	return cty.ObjectVal(ports)
}

// instanceOf returns the instance whose ports a value has exactly, or nil.
func instanceOf(val cty.Value) *instance {
	// Ports of different instances in a conditional make a map, not an object.
	if !isMap(val.Type()) || !val.IsKnown() || val.IsNull() {
		return nil
	}
	var from *instance
	for it := val.ElementIterator(); it.Next(); {
		name, attr := it.Element()
		if attr.Type() != refType || !attr.IsKnown() || attr.IsNull() {
			return nil
		}
		r := attr.EncapsulatedValue().(*refValue)
		if r.Port != name.AsString() || from != nil && r.from != from {
			return nil
		}
		from = r.from
	}
	if from == nil || len(from.outputs) != val.LengthInt() {
		return nil
	}
	return from
}

// references returns the refs that val assigns to a setting. With many, it walks lists and objects in order
// (instances in that of for_each, other objects by key) and drops refs of disabled instances for a kind across seeds.
func (d *decoder) references(val cty.Value, f *field, expr hclsyntax.Expression, path string,
	many bool) []artifact.Ref {
	if !val.IsKnown() || val.IsNull() {
		d.doubt = d.doubt || !val.IsKnown()
		return nil
	}
	t := val.Type()
	if t == refType {
		return d.reference(val.EncapsulatedValue().(*refValue), f, expr, path, many)
	}
	if in := instanceOf(val); in != nil {
		if r := d.pickPort(in, f, expr, path); r != nil {
			return d.reference(r, f, expr, path, many)
		}
		return nil
	}
	switch {
	case !isList(t) && !isMap(t):
		d.wrongType(val, expr, path, wantRef(f))
		return nil
	case !many:
		d.severalInstances(val, f, expr, path)
		return nil
	}
	refs := []artifact.Ref{}
	for _, e := range inOrder(elements(val, expr, path)) {
		refs = append(refs, d.references(e.value, f, e.expr, path, true)...)
	}
	return refs
}

// inOrder returns the instances of an object such as stage.eval.arm in the order of for_each, other elements as they
// are.
func inOrder(all iter.Seq[element]) []element {
	list := slices.Collect(all)
	var block *stageBlock
	for _, e := range list {
		in := instanceOf(e.value)
		if in == nil || e.key != in.key || block != nil && in.block != block {
			return list
		}
		block = in.block
	}
	slices.SortStableFunc(list, func(a, b element) int {
		return instanceOf(a.value).index - instanceOf(b.value).index
	})
	return list
}

// reference checks the type of one reference. For a kind across seeds it returns one ref per seed.
func (d *decoder) reference(r *refValue, f *field, expr hclsyntax.Expression, path string, many bool) []artifact.Ref {
	if len(f.ports) > 0 && !slices.Contains(f.ports, r.Type) {
		d.wrongArtifact(r, f, expr, path)
		return nil
	}
	switch {
	case many && d.seeds != nil && r.from.disabled:
		return nil
	case d.seeds == nil || !r.from.multiplies:
		return []artifact.Ref{r.Ref}
	case !many:
		d.errorf(expr.Range(), "Several seeds", "%s accepts one artifact, but %s exists once per seed. Pin "+
			"that stage with seed = …, or use a setting of this kind that accepts a list, if there is one.", path,
			r)
		return nil
	}
	var refs []artifact.Ref
	for _, s := range d.seeds {
		ref := r.Ref
		ref.Seed = &s
		refs = append(refs, ref)
	}
	return refs
}

// pickPort returns the port of an instance for a setting, where the file names none.
func (d *decoder) pickPort(in *instance, f *field, expr hclsyntax.Expression, path string) *refValue {
	fitting := in.portsOf(f)
	switch len(fitting) {
	case 1:
		return in.value().GetAttr(fitting[0]).EncapsulatedValue().(*refValue)
	case 0:
		in.declared(d.errorf(expr.Range(), "Wrong artifact type", "%s must be %s, and %s has none: its ports are %s.", path,
			f.artifactText(), in.address(), listPorts(in.outputs)))
	default:
		d.errorf(expr.Range(), "Ambiguous port", "%s is ambiguous: the ports %s of %s have a matching type; write "+
			"for example %s.%s.", path, strings.Join(fitting, ", "), in.address(), in.address(), fitting[0])
	}
	return nil
}

// portsOf returns the sorted ports with a type that a setting accepts.
func (in *instance) portsOf(f *field) []string {
	var fitting []string
	for port, typ := range in.outputs {
		if len(f.ports) == 0 || slices.Contains(f.ports, typ) {
			fitting = append(fitting, port)
		}
	}
	slices.Sort(fitting)
	return fitting
}

func (d *decoder) wrongArtifact(r *refValue, f *field, expr hclsyntax.Expression, path string) {
	in := r.from
	hint := fmt.Sprintf(" The ports of %s are %s.", in.address(), listPorts(in.outputs))
	if ports := in.portsOf(f); len(ports) > 0 {
		stem := in.address() + "."
		hint = " Did you mean " + stem + strings.Join(ports, " or "+stem) + "?"
	}
	in.declared(d.errorf(expr.Range(), "Wrong artifact type", "%s must be %s; %s is of type %s.%s", path,
		f.artifactText(), r, r.Type, hint))
}

func (d *decoder) severalInstances(val cty.Value, f *field, expr hclsyntax.Expression, path string) {
	if it := val.ElementIterator(); it.Next() {
		_, first := it.Element()
		if in := instanceOf(first); in != nil && in.block.keyed {
			d.errorf(expr.Range(), "Several instances", "%s accepts one artifact, but %s has for_each; refer to one "+
				"instance, for example %s.", path, in.block.address(), in.address())
			return
		}
	}
	d.wrongType(val, expr, path, wantRef(f))
}

func wantRef(f *field) string {
	if len(f.ports) == 0 {
		return "a reference such as stage.KIND.NAME.PORT"
	}
	return f.artifactText() + ", written as a reference such as stage.KIND.NAME.PORT"
}

// artifactText returns the artifact types of a setting with an article: "a checkpoint or dataset".
func (f *field) artifactText() string { return article(strings.Join(f.ports, " or ")) }

// listPorts returns "checkpoint, metrics"; a type that differs from the port's name follows in brackets: "train
// (tasks)".
func listPorts(outputs map[string]string) string {
	if len(outputs) == 0 {
		return "none"
	}
	var ports []string
	for port, typ := range outputs {
		if port != typ {
			port += " (" + typ + ")"
		}
		ports = append(ports, port)
	}
	slices.Sort(ports)
	return strings.Join(ports, ", ")
}

// declared adds the place of the stage with its ports to a diagnostic.
func (in *instance) declared(d *hcl.Diagnostic) *hcl.Diagnostic {
	return relate(d, fmt.Sprintf("%s has the ports %s", in.address(), listPorts(in.outputs)), in.block.def)
}
