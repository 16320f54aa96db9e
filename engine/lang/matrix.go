package lang

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/customdecode"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// matrixFunction is `matrix({ init = local.inits, batch = [64, 256] })`: the list of all combinations for a for_each. A
// dimension is a list of strings, numbers or booleans, or a map. Each combination is an object with a value for each
// dimension and its key, "sft/64". The first dimension of a literal object varies slowest; a computed object has the
// order of its names.
var matrixFunction = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "dimensions", Type: customdecode.ExpressionClosureType}},
	Type: func(args []cty.Value) (cty.Type, error) {
		val, err := matrix(args[0])
		return val.Type(), err
	},
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return matrix(args[0]) },
})

type dimension struct {
	name   string
	keys   []string
	values []cty.Value
}

func matrix(arg cty.Value) (cty.Value, error) {
	dimensions, err := dimensionsOf(customdecode.ExpressionClosureFromVal(arg))
	if err != nil || dimensions == nil {
		return cty.DynamicVal, err
	}
	size := int64(1)
	for _, d := range dimensions {
		if size *= int64(len(d.keys)); size > maxInstances {
			return cty.DynamicVal, function.NewArgErrorf(0, "a matrix may have %d combinations; this one has more",
				maxInstances)
		}
	}
	all := make([]cty.Value, size)
	for i := range all {
		keys := make([]string, len(dimensions))
		object := map[string]cty.Value{}
		rest := i
		for n, d := range slices.Backward(dimensions) {
			keys[n], object[d.name] = d.keys[rest%len(d.keys)], d.values[rest%len(d.keys)]
			rest /= len(d.keys)
		}
		object["key"] = cty.StringVal(strings.Join(keys, "/"))
		all[i] = cty.ObjectVal(object)
	}
	return cty.TupleVal(all), nil
}

// dimensionsOf evaluates the dimensions. It returns nil without an error if a value is unknown.
func dimensionsOf(c *customdecode.ExpressionClosure) ([]dimension, error) {
	val, diags := c.Value()
	if diags.HasErrors() {
		return nil, diags
	}
	switch {
	case !val.IsWhollyKnown():
		return nil, nil
	case val.IsNull() || !isMap(val.Type()) || val.LengthInt() == 0:
		return nil, function.NewArgErrorf(0, "want an object with a list or map for each dimension, got %s", describe(val))
	}
	var dimensions []dimension
	for name, values := range val.AsValueMap() {
		d := dimension{name: name}
		switch {
		case name == "key":
			return nil, function.NewArgErrorf(0, "a dimension cannot have the name key, which each combination has")
		case values.IsNull() || !isList(values.Type()) && !isMap(values.Type()) || values.LengthInt() == 0:
			return nil, function.NewArgErrorf(0, "dimension %s must be a list or map with elements, got %s", name,
				describe(values))
		}
		seen := map[string]bool{}
		for it := values.ElementIterator(); it.Next(); {
			k, v := it.Element()
			key, ok := text(k), isMap(values.Type())
			if !ok {
				key, ok = elementKey(v)
			}
			switch {
			case !ok:
				return nil, function.NewArgErrorf(0, "dimension %s contains %s; write a map from keys to such values", name,
					describe(v))
			case seen[key]:
				return nil, function.NewArgErrorf(0, "dimension %s contains %q twice", name, key)
			}
			seen[key] = true
			d.keys, d.values = append(d.keys, key), append(d.values, v)
		}
		dimensions = append(dimensions, d)
	}
	order := literalKeys(c.Expression)
	slices.SortFunc(dimensions, func(a, b dimension) int {
		if i, j := slices.Index(order, a.name), slices.Index(order, b.name); i != j {
			return i - j
		}
		return strings.Compare(a.name, b.name)
	})
	return dimensions, nil
}

// literalKeys returns the keys of a literal object in the order of the file.
func literalKeys(expr hcl.Expression) (keys []string) {
	object, ok := hcl.UnwrapExpressionUntil(expr, func(e hcl.Expression) bool {
		_, ok := e.(*hclsyntax.ObjectConsExpr)
		return ok
	}).(*hclsyntax.ObjectConsExpr)
	if !ok {
		return nil
	}
	for _, item := range object.Items {
		if k, diags := item.KeyExpr.Value(nil); !diags.HasErrors() {
			keys = append(keys, text(k))
		}
	}
	return keys
}
