package lang

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
	"github.com/zclconf/go-cty/cty/gocty"

	"rcgrpo/engine/artifact"
)

// pureFunctions are available in every expression. None reads the clock, the environment, the network or a disk.
var pureFunctions = sync.OnceValue(func() map[string]function.Function {
	all := map[string]function.Function{
		"abs": stdlib.AbsoluteFunc, "ceil": stdlib.CeilFunc, "floor": stdlib.FloorFunc, "int": stdlib.IntFunc,
		"log": stdlib.LogFunc, "max": stdlib.MaxFunc, "min": stdlib.MinFunc, "parseint": stdlib.ParseIntFunc,
		"pow": stdlib.PowFunc, "signum": stdlib.SignumFunc,

		"chomp": stdlib.ChompFunc, "format": withoutData(stdlib.FormatFunc),
		"formatlist": withoutData(stdlib.FormatListFunc), "indent": stdlib.IndentFunc, "join": stdlib.JoinFunc,
		"lower": stdlib.LowerFunc, "regex": stdlib.RegexFunc, "regexall": stdlib.RegexAllFunc,
		"replace": stdlib.ReplaceFunc, "split": stdlib.SplitFunc, "strlen": stdlib.StrlenFunc,
		"strrev": stdlib.ReverseFunc, "substr": stdlib.SubstrFunc, "title": stdlib.TitleFunc,
		"trim": stdlib.TrimFunc, "trimprefix": stdlib.TrimPrefixFunc, "trimspace": stdlib.TrimSpaceFunc,
		"trimsuffix": stdlib.TrimSuffixFunc, "upper": stdlib.UpperFunc,

		"chunklist": stdlib.ChunklistFunc, "coalesce": stdlib.CoalesceFunc,
		"coalescelist": stdlib.CoalesceListFunc, "compact": stdlib.CompactFunc, "concat": stdlib.ConcatFunc,
		"contains": ofLists(stdlib.ContainsFunc, "strcontains"), "distinct": stdlib.DistinctFunc,
		"element": stdlib.ElementFunc, "flatten": stdlib.FlattenFunc, "index": stdlib.IndexFunc,
		"keys": stdlib.KeysFunc, "length": ofLists(stdlib.LengthFunc, "strlen"), "lookup": stdlib.LookupFunc,
		"merge": stdlib.MergeFunc, "range": stdlib.RangeFunc,
		"reverse": ofLists(stdlib.ReverseListFunc, "strrev"), "setintersection": stdlib.SetIntersectionFunc,
		"setproduct": stdlib.SetProductFunc, "setsubtract": stdlib.SetSubtractFunc,
		"setsymmetricdifference": stdlib.SetSymmetricDifferenceFunc, "setunion": stdlib.SetUnionFunc,
		"slice": stdlib.SliceFunc, "sort": stdlib.SortFunc, "values": stdlib.ValuesFunc,
		"zipmap": stdlib.ZipmapFunc,

		"csvdecode": stdlib.CSVDecodeFunc, "jsondecode": stdlib.JSONDecodeFunc,
		"jsonencode": withoutData(stdlib.JSONEncodeFunc),

		"tobool": stdlib.MakeToFunc(cty.Bool), "tolist": stdlib.MakeToFunc(cty.List(cty.DynamicPseudoType)),
		"tomap": stdlib.MakeToFunc(cty.Map(cty.DynamicPseudoType)), "tonumber": stdlib.MakeToFunc(cty.Number),
		"toset": stdlib.MakeToFunc(cty.Set(cty.DynamicPseudoType)), "tostring": stdlib.MakeToFunc(cty.String),

		// The standard library lacks these, but HCL users expect them.
		"alltrue": truths(true), "anytrue": truths(false), "sum": sumFunction,
		"one": oneFunction, "startswith": textTest(strings.HasPrefix), "endswith": textTest(strings.HasSuffix),
		"strcontains": textTest(strings.Contains),

		"can": tryfunc.CanFunc, "matrix": matrixFunction, "try": tryfunc.TryFunc,
	}
	return all
})

// withoutData rejects references and files as arguments of a function that converts them to text, because the
// result would be neither an edge nor content in the key.
func withoutData(f function.Function) function.Function {
	return guarded(f, func(args []cty.Value) error {
		for i, arg := range args {
			if data, ok := findData(arg); ok {
				return function.NewArgErrorf(i,
					"%s cannot be converted to a string; assign it to a setting without a function", describe(data))
			}
		}
		return nil
	})
}

// findData returns a reference or a file in a value.
func findData(val cty.Value) (found cty.Value, ok bool) {
	_ = cty.Walk(val, func(_ cty.Path, v cty.Value) (bool, error) {
		if v.Type() == refType || v.Type() == fileType {
			found, ok = v, true
		}
		return !ok, nil
	})
	return found, ok
}

// ofLists adds the name of the string function to the error of a list function that is called with a string.
func ofLists(f function.Function, forTexts string) function.Function {
	return guarded(f, func(args []cty.Value) error {
		if args[0].Type() == cty.String {
			return function.NewArgErrorf(0, "want a list, set or map, got %s; the function for strings is %s",
				describe(args[0]), forTexts)
		}
		return nil
	})
}

func guarded(f function.Function, check func(args []cty.Value) error) function.Function {
	return function.New(&function.Spec{
		Params: f.Params(), VarParam: f.VarParam(),
		Type: func(args []cty.Value) (cty.Type, error) {
			if err := check(args); err != nil {
				return cty.NilType, err
			}
			return f.ReturnTypeForValues(args)
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return f.Call(args) },
	})
}

// ofElements returns a function of the elements of a list, set or tuple, converted to type from.
func ofElements(from, to cty.Type, f func(elements []cty.Value) (cty.Value, error)) function.Function {
	return function.New(&function.Spec{Type: function.StaticReturnType(to),
		Params: []function.Parameter{{Name: "list", Type: cty.DynamicPseudoType}},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if !isList(args[0].Type()) {
				return cty.NilVal, function.NewArgErrorf(0, "want a list or a set, got %s", describe(args[0]))
			}
			var all []cty.Value
			for it := args[0].ElementIterator(); it.Next(); {
				_, e := it.Element()
				e, err := convert.Convert(e, from)
				if err != nil || e.IsNull() {
					return cty.NilVal, function.NewArgErrorf(0, "want every element to be a %s", from.FriendlyName())
				}
				all = append(all, e)
			}
			return f(all)
		}})
}

// truths is alltrue or anytrue.
func truths(all bool) function.Function {
	return ofElements(cty.Bool, cty.Bool, func(elements []cty.Value) (cty.Value, error) {
		exception := slices.ContainsFunc(elements, func(e cty.Value) bool { return e.True() != all })
		return cty.BoolVal(exception != all), nil
	})
}

var sumFunction = ofElements(cty.Number, cty.Number, func(elements []cty.Value) (cty.Value, error) {
	total := cty.Zero
	for _, e := range elements {
		total = total.Add(e)
	}
	return total, nil
})

// oneFunction returns the only element of a list, or null for an empty list.
var oneFunction = ofElements(cty.DynamicPseudoType, cty.DynamicPseudoType, func(all []cty.Value) (cty.Value, error) {
	switch len(all) {
	case 0:
		return cty.NullVal(cty.DynamicPseudoType), nil
	case 1:
		return all[0], nil
	}
	return cty.NilVal, function.NewArgErrorf(0, "want one element or none, got %d", len(all))
})

func textTest(test func(text, part string) bool) function.Function {
	return function.New(&function.Spec{Type: function.StaticReturnType(cty.Bool),
		Params: []function.Parameter{{Name: "text", Type: cty.String}, {Name: "part", Type: cty.String}},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			return cty.BoolVal(test(args[0].AsString(), args[1].AsString())), nil
		}})
}

// functions returns the pure functions and file() and dir(), whose paths are relative to base.
func (l *loader) functions(base string) map[string]function.Function {
	all := maps.Clone(pureFunctions())
	l.effort.bounded(all)
	all["file"] = l.dataFunction(base, false)
	all["dir"] = l.dataFunction(base, true)
	return all
}

func (l *loader) dataFunction(base string, dir bool) function.Function {
	spec := &function.Spec{
		Params: []function.Parameter{{Name: "path", Type: cty.String}},
		Type:   function.StaticReturnType(fileType),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			written, left := args[0].AsString(), []string(nil)
			if len(args) > 2 {
				return cty.NilVal, function.NewArgErrorf(2, "want a path and a list of names to leave out")
			}
			for _, list := range args[1:] {
				if err := gocty.FromCtyValue(list, &left); err != nil {
					return cty.NilVal, function.NewArgError(1, err)
				}
			}
			path, err := l.resolve(base, written)
			digest := ""
			if err == nil {
				digest, err = l.digests.of(path, written, dir, left...)
			}
			if err != nil {
				return cty.NilVal, function.NewArgError(0, err)
			}
			l.x.Digests[digestName(path, left)] = digest
			return cty.CapsuleVal(fileType, &artifact.File{Path: path, Digest: digest, Dir: dir, Left: left,
				Since: l.x.Source.Since}), nil
		},
	}
	if dir {
		spec.VarParam = &function.Parameter{Name: "left", Type: cty.List(cty.String)}
	}
	return function.New(spec)
}

// resolve makes a path absolute: relative to base, with ~ for the home folder.
func (l *loader) resolve(base, path string) (string, error) {
	if path == "" {
		return "", fmt.Errorf("the path is empty")
	}
	if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || rest[0] == '/') {
		home := EnvValue(l.src.Env, "HOME")
		if home == "" {
			return "", fmt.Errorf("%s: HOME is not set", path)
		}
		path = home + rest
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(base, path)
	}
	return filepath.Abs(path)
}

// EnvValue returns the value of NAME in a list of NAME=VALUE.
func EnvValue(env []string, name string) string {
	value, _ := lookupEnv(env, name)
	return value
}

func lookupEnv(env []string, name string) (string, bool) {
	for i := len(env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(env[i], name+"="); ok {
			return v, true
		}
	}
	return "", false
}

func fileText(v cty.Value) string {
	f := v.EncapsulatedValue().(*artifact.File)
	if f.Dir && len(f.Left) > 0 {
		return fmt.Sprintf("dir(%q, %s)", f.Path, JSONText(f.Left))
	}
	if f.Dir {
		return fmt.Sprintf("dir(%q)", f.Path)
	}
	return fmt.Sprintf("file(%q)", f.Path)
}

// Functions returns the sorted names of all functions.
func Functions() []string {
	return slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(pureFunctions())), "file", "dir")))
}
