package lang

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"rcgrpo/engine/artifact"
)

// decoder fills settings structs from blocks. It collects all errors. After an error a field keeps its default. A
// value that depends on an earlier error is unknown and reported only once.
type decoder struct {
	reporter
	eval   func(hclsyntax.Expression) (cty.Value, hcl.Diagnostics)
	ranges map[string]hcl.Range // range of each setting in the file, by path ("clip.low")
	seeds  []int64              // seeds of each reference, for kinds across seeds; nil: references have no seed
	also   []string             // names decoded elsewhere, for suggestions
	refs   []*refValue          // references found
	doubt  bool                 // some value depends on an earlier error
}

// body is the content of a block without the names that are decoded elsewhere.
type body struct {
	attrs  []*hclsyntax.Attribute // in the order of the file
	blocks []*hclsyntax.Block
	owner  string    // `stage "sft" "warm"`, for diagnostics
	def    hcl.Range // header of the block
}

// newBody returns the attributes and blocks of b that keep accepts; nil accepts all.
func newBody(b *hclsyntax.Body, owner string, def hcl.Range, keep func(name string) bool) body {
	out := body{owner: owner, def: def}
	for name, a := range b.Attributes {
		if keep == nil || keep(name) {
			out.attrs = append(out.attrs, a)
		}
	}
	slices.SortFunc(out.attrs, func(x, y *hclsyntax.Attribute) int {
		return cmp.Compare(x.SrcRange.Start.Byte, y.SrcRange.Start.Byte)
	})
	for _, bl := range b.Blocks {
		if keep == nil || keep(bl.Type) {
			out.blocks = append(out.blocks, bl)
		}
	}
	return out
}

// structure decodes b into the struct v, which contains the defaults. Paths of settings begin with prefix.
func (d *decoder) structure(b body, v reflect.Value, prefix string) {
	fields := fieldsOf(v.Type())
	given := map[string]bool{}
	for _, a := range presetFirst(b.attrs, fields) {
		f := findField(fields, a.Name, roleSetting)
		if f == nil {
			d.unknownSetting(a, b, fields)
			given[nearest(a.Name, fieldNames(fields))] = true // do not report it as missing too
			continue
		}
		given[f.name] = true
		d.ranges[prefix+f.name] = a.SrcRange
		val, diags := d.eval(a.Expr)
		d.diags = append(d.diags, diags...)
		switch {
		case diags.HasErrors() || !val.IsKnown():
			d.doubt = true
			continue
		case val.IsNull(): // null means absent, so that a conditional can keep a default
			given[f.name] = f.optional
			continue
		}
		d.assign(v.FieldByIndex(f.index), val, f, a.Expr, prefix+f.name)
		if name := v.FieldByIndex(f.index); f.preset && name.String() != "" {
			v.Addr().Interface().(Preset).UsePreset(name.String())
		}
	}
	d.blocks(b, v, fields, prefix)
	for i := range fields {
		f := &fields[i]
		switch f.role {
		case roleSetting:
			if !f.optional && !given[f.name] {
				d.errorf(b.def, "Missing setting", "%s needs the setting %s%s.", upperFirst(b.owner), f.name, meaning(f))
			}
		case roleAttrRange:
			v.FieldByIndex(f.index).Set(reflect.ValueOf(cmp.Or(d.ranges[prefix+f.name], b.def)))
		case roleDefRange:
			v.FieldByIndex(f.index).Set(reflect.ValueOf(b.def))
		}
	}
}

// presetFirst moves the attribute with a preset to the front, because the other attributes override it.
func presetFirst(attrs []*hclsyntax.Attribute, fields []field) []*hclsyntax.Attribute {
	isPreset := func(a *hclsyntax.Attribute) bool {
		f := findField(fields, a.Name, roleSetting)
		return f != nil && f.preset
	}
	i := slices.IndexFunc(attrs, isPreset)
	if i < 0 {
		return attrs
	}
	return slices.Concat(attrs[i:i+1], attrs[:i], attrs[i+1:])
}

func (d *decoder) blocks(b body, v reflect.Value, fields []field, prefix string) {
	seen := map[string]int{}
	for _, bl := range b.blocks {
		f := findField(fields, bl.Type, roleBlock)
		if f == nil {
			d.unknownBlock(bl, b, fields)
			continue
		}
		dst := v.FieldByIndex(f.index)
		repeated := dst.Kind() == reflect.Slice
		n := seen[f.name]
		seen[f.name]++
		path := prefix + f.name
		target := dst
		switch {
		case !repeated && n > 0:
			d.errorf(bl.DefRange(), "Duplicate block", "%s may have only one block %s; remove this one.",
				upperFirst(b.owner), f.name)
			continue
		case repeated:
			if n == 0 {
				dst.SetZero()
			}
			path += "[" + strconv.Itoa(n) + "]"
			dst.Set(reflect.Append(dst, reflect.Zero(dst.Type().Elem())))
			target = dst.Index(n)
		}
		if target.Kind() == reflect.Pointer {
			if target.IsNil() {
				target.Set(reflect.New(target.Type().Elem()))
			}
			target = target.Elem()
		}
		d.ranges[path] = bl.DefRange()
		d.labels(bl, target, path)
		d.structure(newBody(bl.Body, "block "+bl.Type, bl.DefRange(), nil), target, path+".")
	}
}

func (d *decoder) labels(bl *hclsyntax.Block, v reflect.Value, path string) {
	var names []string
	for _, f := range fieldsOf(v.Type()) {
		if f.role != roleLabel {
			continue
		}
		if len(names) < len(bl.Labels) {
			v.FieldByIndex(f.index).SetString(bl.Labels[len(names)])
			d.ranges[path+"."+f.name] = bl.LabelRanges[len(names)]
		}
		names = append(names, f.name)
	}
	switch {
	case len(bl.Labels) < len(names):
		d.errorf(bl.DefRange(), "Missing label", "Write %s %q { … }: the block needs a label, its %s.", bl.Type,
			names[len(bl.Labels)], names[len(bl.Labels)])
	case len(bl.Labels) > len(names):
		d.errorf(bl.LabelRanges[len(names)], "Unexpected label", "Block %s takes %s.", bl.Type,
			Plural(len(names), "label"))
	}
}

func (d *decoder) unknownSetting(a *hclsyntax.Attribute, b body, fields []field) {
	if findField(fields, a.Name, roleBlock) != nil {
		d.errorf(a.NameRange, "Block expected", "In %s, %s is a block: write %s { … } without an equals sign.",
			b.owner, a.Name, a.Name)
		return
	}
	d.unknown(a.NameRange, "setting", a.Name, b, fields)
}

func (d *decoder) unknownBlock(bl *hclsyntax.Block, b body, fields []field) {
	if findField(fields, bl.Type, roleSetting) != nil {
		d.errorf(bl.TypeRange, "Setting expected", "In %s, %s is a setting: write %s = ….", b.owner, bl.Type, bl.Type)
		return
	}
	d.unknown(bl.TypeRange, "block", bl.Type, b, fields)
}

func (d *decoder) unknown(at hcl.Range, noun, name string, b body, fields []field) {
	d.errorf(at, "Unknown "+noun, "%s has no %s %s%s%s", upperFirst(b.owner), noun, name,
		didYouMean(name, append(fieldNames(fields), d.also...)), known(fields))
}

func findField(fields []field, name string, role fieldRole) *field {
	if i := slices.IndexFunc(fields, func(f field) bool { return f.name == name && f.role == role }); i >= 0 {
		return &fields[i]
	}
	return nil
}

func fieldNames(fields []field) []string {
	var names []string
	for _, f := range fields {
		if f.role == roleSetting || f.role == roleBlock {
			names = append(names, f.name)
		}
	}
	return names
}

// known returns a sentence with the valid names, or "" if there are too many to help.
func known(fields []field) string {
	names := fieldNames(fields)
	switch {
	case len(names) == 0:
		return " It takes none."
	case len(names) > 12:
		return ""
	}
	return " It takes " + strings.Join(names, ", ") + "."
}

func meaning(f *field) string {
	switch {
	case f.doc != "":
		return " (" + f.doc + ")"
	case len(f.ports) > 0:
		return " (a reference to " + f.artifact() + ")"
	}
	return ""
}

// assign stores a known value that is not null in dst. Errors have the range of the element of expr where possible.
func (d *decoder) assign(dst reflect.Value, val cty.Value, f *field, expr hclsyntax.Expression, path string) {
	switch dst.Type() {
	case refGoType, fileGoType, dataGoType:
		d.data(dst, val, f, expr, path)
		return
	case durationGoType, bytesGoType:
		d.quantity(dst, val, expr, path)
		return
	case anyGoType:
		dst.Set(reflect.ValueOf(d.dynamic(val, expr, path)))
		return
	}
	switch dst.Kind() {
	case reflect.Pointer:
		target := reflect.New(dst.Type().Elem())
		d.assign(target.Elem(), val, f, expr, path)
		dst.Set(target)
	case reflect.Bool:
		if val.Type() != cty.Bool {
			d.wrongType(val, expr, path, "true or false")
			return
		}
		dst.SetBool(val.True())
	case reflect.String:
		d.text(dst, val, f, expr, path)
	case reflect.Slice:
		d.slice(dst, val, f, expr, path)
	case reflect.Map:
		d.mapping(dst, val, f, expr, path)
	default:
		d.number(dst, val, expr, path)
	}
}

// data stores file(), dir() or a reference in an artifact.Ref, File or Data.
func (d *decoder) data(dst reflect.Value, val cty.Value, f *field, expr hclsyntax.Expression, path string) {
	t := dst.Type()
	switch {
	case t != refGoType && val.Type() == fileType:
		file := *val.EncapsulatedValue().(*artifact.File)
		if t == fileGoType {
			dst.Set(reflect.ValueOf(file))
		} else {
			dst.Set(reflect.ValueOf(artifact.Data{File: file}))
		}
	case t == fileGoType:
		d.wrongType(val, expr, path, `a file or folder: write file("name") or dir("name")`)
	case t == dataGoType && val.Type() != refType && instanceOf(val) == nil:
		d.wrongType(val, expr, path, `file("name"), dir("name") or a reference such as stage.KIND.NAME.PORT`)
	default:
		if refs := d.references(val, f, expr, path, false); len(refs) == 1 && t == refGoType {
			dst.Set(reflect.ValueOf(refs[0]))
		} else if len(refs) == 1 {
			dst.Set(reflect.ValueOf(artifact.Data{Ref: refs[0]}))
		}
	}
}

func (d *decoder) wrongType(val cty.Value, expr hclsyntax.Expression, path, want string) {
	d.errorf(expr.Range(), "Wrong type", "%s must be %s; got %s.", path, want, describe(val))
}

func (d *decoder) text(dst reflect.Value, val cty.Value, f *field, expr hclsyntax.Expression, path string) {
	if _, quoted := expr.(*hclsyntax.TemplateWrapExpr); quoted { // HCL gives "${n}" the type of n
		if s, err := convert.Convert(val, cty.String); err == nil {
			val = s
		}
	}
	if val.Type() != cty.String {
		d.wrongType(val, expr, path, "a string")
		return
	}
	s := val.AsString()
	if len(f.choices) > 0 && !slices.Contains(f.choices, s) {
		d.errorf(expr.Range(), "Unknown choice", "%s must be one of %s; got %s%s", path, quoteAll(f.choices),
			quoted(s), didYouMean(s, f.choices))
		return
	}
	dst.SetString(s)
}

func (d *decoder) number(dst reflect.Value, val cty.Value, expr hclsyntax.Expression, path string) {
	if val.Type() != cty.Number {
		want := "a number"
		if val.Type() == cty.String {
			if _, err := strconv.ParseFloat(val.AsString(), 64); err == nil {
				want += " without quotes"
			}
		}
		d.wrongType(val, expr, path, want)
		return
	}
	n := val.AsBigFloat()
	switch dst.Kind() {
	case reflect.Float32, reflect.Float64:
		x, _ := n.Float64()
		if math.IsInf(x, 0) {
			d.errorf(expr.Range(), "Bad number", "%s is too large: %s.", path, n.Text('g', 6))
			return
		}
		dst.SetFloat(x)
	case reflect.Uint, reflect.Uint32, reflect.Uint64:
		if x, exact := n.Uint64(); exact == big.Exact && !dst.OverflowUint(x) {
			dst.SetUint(x)
			return
		}
		d.errorf(expr.Range(), "Bad number", "%s must be a whole number that is not negative; got %s.", path, n.Text('g', 17))
	default:
		if x, exact := n.Int64(); exact == big.Exact && !dst.OverflowInt(x) {
			dst.SetInt(x)
			return
		}
		d.errorf(expr.Range(), "Bad number", "%s must be a whole number; got %s.", path, n.Text('g', 17))
	}
}

// quantity decodes a time or a size from a string.
func (d *decoder) quantity(dst reflect.Value, val cty.Value, expr hclsyntax.Expression, path string) {
	want := `a time such as "90m" or "1h30m"`
	parse := func(text string) (int64, error) {
		x, err := time.ParseDuration(text)
		return int64(x), err
	}
	if dst.Type() == bytesGoType {
		want, parse = `a size such as "16GB" or "512MiB"`, ParseBytes
	}
	if val.Type() == cty.String {
		if x, err := parse(val.AsString()); err == nil && x >= 0 {
			dst.SetInt(x)
			return
		}
	}
	d.wrongType(val, expr, path, want)
}

func (d *decoder) slice(dst reflect.Value, val cty.Value, f *field, expr hclsyntax.Expression, path string) {
	if dst.Type().Elem() == refGoType {
		dst.Set(reflect.ValueOf(d.references(val, f, expr, path, true)))
		return
	}
	if !isList(val.Type()) {
		d.wrongType(val, expr, path, "a list")
		return
	}
	dst.Set(reflect.MakeSlice(dst.Type(), 0, val.LengthInt()))
	for e := range elements(val, expr, path) {
		dst.Set(reflect.Append(dst, d.element(e, f, dst.Type().Elem())))
	}
}

func (d *decoder) mapping(dst reflect.Value, val cty.Value, f *field, expr hclsyntax.Expression, path string) {
	if !isMap(val.Type()) {
		d.wrongType(val, expr, path, "a map")
		return
	}
	dst.Set(reflect.MakeMap(dst.Type()))
	for e := range elements(val, expr, path) {
		dst.SetMapIndex(reflect.ValueOf(e.key).Convert(dst.Type().Key()), d.element(e, f, dst.Type().Elem()))
	}
}

// element returns an element as a Go value of type t; zero after an error.
func (d *decoder) element(e element, f *field, t reflect.Type) reflect.Value {
	dst := reflect.New(t).Elem()
	switch {
	case !e.value.IsKnown():
		d.doubt = true
	case e.value.IsNull():
		d.errorf(e.expr.Range(), "Missing value", "%s is null.", e.path)
	default:
		d.assign(dst, e.value, f, e.expr, e.path)
	}
	return dst
}

// dynamic converts a value of any type to Go: bool, string, float64 or int64, []any, map[string]any, artifact.Ref
// and artifact.File.
func (d *decoder) dynamic(val cty.Value, expr hclsyntax.Expression, path string) any {
	t := val.Type()
	switch {
	case !val.IsKnown() || val.IsNull():
		d.doubt = d.doubt || !val.IsKnown()
		return nil
	case t == cty.Bool:
		return val.True()
	case t == cty.String:
		return val.AsString()
	case t == cty.Number:
		if n, exact := val.AsBigFloat().Int64(); exact == big.Exact {
			return n
		}
		x, _ := val.AsBigFloat().Float64()
		return x
	case t == fileType:
		return *val.EncapsulatedValue().(*artifact.File)
	case t == refType || instanceOf(val) != nil:
		if refs := d.references(val, &field{}, expr, path, false); len(refs) == 1 {
			return refs[0]
		}
		return nil
	case isList(t):
		out := []any{}
		for e := range elements(val, expr, path) {
			out = append(out, d.dynamic(e.value, e.expr, e.path))
		}
		return out
	case isMap(t):
		out := map[string]any{}
		for e := range elements(val, expr, path) {
			out[e.key] = d.dynamic(e.value, e.expr, e.path)
		}
		return out
	}
	d.wrongType(val, expr, path, "a plain value, a file or a reference")
	return nil
}

type element struct {
	key   string // of a map
	value cty.Value
	expr  hclsyntax.Expression // of the element if the list or map is a literal, else of the whole
	path  string               // of the setting: "outputs.model", "seeds[2]"
}

// elements returns the elements of a list or map, maps in the order of their keys.
func elements(val cty.Value, expr hclsyntax.Expression, path string) iter.Seq[element] {
	return func(yield func(element) bool) {
		i := 0
		for it := val.ElementIterator(); it.Next(); i++ {
			key, v := it.Element()
			e := element{value: v, expr: expr, path: fmt.Sprintf("%s[%d]", path, i)}
			if list, ok := expr.(*hclsyntax.TupleConsExpr); ok && i < len(list.Exprs) {
				e.expr = list.Exprs[i]
			}
			if isMap(val.Type()) {
				e.key = key.AsString()
				e.expr, e.path = itemExpr(expr, e.key), path+"."+e.key
			}
			if !yield(e) {
				return
			}
		}
	}
}

// itemExpr returns the expression of key if expr is a literal map, else expr.
func itemExpr(expr hclsyntax.Expression, key string) hclsyntax.Expression {
	if object, ok := expr.(*hclsyntax.ObjectConsExpr); ok {
		for _, item := range object.Items {
			if k, diags := item.KeyExpr.Value(nil); !diags.HasErrors() && text(k) == key && k.Type() == cty.String {
				return item.ValueExpr
			}
		}
	}
	return expr
}

func isList(t cty.Type) bool { return t.IsTupleType() || t.IsListType() || t.IsSetType() }

func isMap(t cty.Type) bool { return t.IsObjectType() || t.IsMapType() }

func describe(val cty.Value) string {
	t := val.Type()
	switch {
	case !val.IsKnown():
		return "a value not yet known"
	case val.IsNull():
		return "null"
	case t == cty.String:
		return "the string " + quoted(val.AsString())
	case t == cty.Number:
		return "the number " + val.AsBigFloat().Text('g', 17)
	case t == cty.Bool:
		return strconv.FormatBool(val.True())
	case t == refType:
		return "a reference to " + val.EncapsulatedValue().(*refValue).String()
	case t == fileType:
		return "a file"
	case instanceOf(val) != nil:
		return instanceOf(val).address()
	case isList(t):
		return "a list of " + strconv.Itoa(val.LengthInt())
	case isMap(t):
		var keys []string
		for it := val.ElementIterator(); it.Next() && len(keys) < 6; {
			k, _ := it.Element()
			keys = append(keys, k.AsString())
		}
		return "a map with " + cmp.Or(strings.Join(keys, ", "), "no keys")
	}
	return "a " + t.FriendlyName()
}

// quoted returns a string in quotes, truncated if it is long.
func quoted(s string) string {
	if r := []rune(s); len(r) > 40 {
		s = string(r[:40]) + "…"
	}
	return strconv.Quote(s)
}

func quoteAll(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = strconv.Quote(n)
	}
	return strings.Join(quoted, ", ")
}

// upperFirst capitalises a sentence, unless it begins with a setting (`lr must be …`).
func upperFirst(s string) string {
	if !strings.Contains(s, " ") {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func article(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}
