package lang

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
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
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"rcgrpo/engine/artifact"
)

// decoder fills settings structs from bodies: those of one block, or the layers of a stage. It collects all errors.
// After an error a field keeps its value. A value that depends on an earlier error is unknown and reported only once.
type decoder struct {
	reporter
	eval    func(expr hclsyntax.Expression, each bool) (cty.Value, hcl.Diagnostics)
	layer   *layer            // of the body that is being decoded
	origins map[string]origin // of each setting in the files, by path ("clip.low")
	given   map[string]bool   // paths of settings with a value
	drop    map[string]bool   // paths that optional layers do not set
	seeds   []int64           // seeds of each reference, for kinds across seeds; nil: references have no seed
	also    []string          // names decoded elsewhere, for suggestions
	doubt   bool              // some value depends on an earlier error
}

// origin is where a setting got its value.
type origin struct {
	at    hcl.Range
	layer *layer
}

// body is the content of a block, or the object that is its value.
type body struct {
	entries []entry
	blocks  []*hclsyntax.Block
	owner   string    // `stage "sft"`, for diagnostics
	def     hcl.Range // header of the block
}

// entry is one setting of a body.
type entry struct {
	name  string
	at    hcl.Range // of the name
	whole hcl.Range // of name and value
	expr  hclsyntax.Expression
	value cty.Value // of an element of an object; cty.NilVal: the value of expr

	// Of an override (--set): the settings of a block; the value as it was typed, for settings of type string.
	inside *body
	typed  string
}

// attributes returns the attributes that keep accepts, in the order of the file; nil accepts all.
func attributes(b *hclsyntax.Body, keep func(name string) bool) (attrs []*hclsyntax.Attribute) {
	for name, a := range b.Attributes {
		if keep == nil || keep(name) {
			attrs = append(attrs, a)
		}
	}
	slices.SortFunc(attrs, func(x, y *hclsyntax.Attribute) int {
		return cmp.Compare(x.SrcRange.Start.Byte, y.SrcRange.Start.Byte)
	})
	return attrs
}

// newBody returns the attributes and blocks of b that keep accepts; nil accepts all.
func newBody(b *hclsyntax.Body, owner string, def hcl.Range, keep func(name string) bool) body {
	out := body{owner: owner, def: def}
	for _, a := range attributes(b, keep) {
		out.entries = append(out.entries, entry{name: a.Name, at: a.NameRange, whole: a.SrcRange, expr: a.Expr})
	}
	for _, bl := range b.Blocks {
		if keep == nil || keep(bl.Type) {
			out.blocks = append(out.blocks, bl)
		}
	}
	return out
}

// objectBody returns the elements of an object that is the value of a block.
func objectBody(val cty.Value, expr hclsyntax.Expression, owner string, def hcl.Range) body {
	out := body{owner: owner, def: def}
	for e := range elements(val, expr, "") {
		out.entries = append(out.entries,
			entry{name: e.key, at: e.keyRange, whole: e.expr.Range(), expr: e.expr, value: e.value})
	}
	return out
}

// decode decodes b into the struct v, which contains the defaults.
func (d *decoder) decode(b body, v reflect.Value) {
	d.fill(b, v, "")
	d.finish(b.owner, b.def, v, "")
}

// fill decodes one body. Settings that it does not contain keep their values. Paths of settings begin with prefix.
func (d *decoder) fill(b body, v reflect.Value, prefix string) {
	fields := fieldsOf(v.Type())
	for _, e := range b.entries {
		f := findField(fields, e.name)
		path := prefix + e.name
		switch {
		case d.drop[path] && d.layer.optional:
			continue
		case f == nil:
			d.unknownField(e.at, "setting", path, b, fields)
			continue
		case e.inside != nil:
			d.inside(e, v.FieldByIndex(f.index), f, path)
			continue
		}
		val, ok := d.valueOf(e, f)
		switch {
		case !ok:
			d.setValueOrigin(path, e.whole)
			d.given[path] = true
			d.doubt = true
		case val.IsNull(): // null means absent, so that a conditional can keep a default
			d.given[path] = d.given[path] || f.optional
		case f.role == roleBlock:
			d.objects(v.FieldByIndex(f.index), val, f, e, path)
		default:
			d.setValueOrigin(path, e.whole)
			d.given[path] = true
			d.decodeValue(v.FieldByIndex(f.index), val, f, e.expr, path)
		}
	}
	d.blocks(b, v, fields, prefix)
}

// valueOf evaluates an entry. It returns false if the value is unknown after an error.
func (d *decoder) valueOf(e entry, f *field) (cty.Value, bool) {
	if e.value != cty.NilVal {
		return e.value, e.value.IsKnown()
	}
	if e.typed != "" && f.role == roleSetting && isTyped(f.typ) {
		return typedString(e), true
	}
	val, diags := d.eval(e.expr, d.layer.each)
	d.diags = append(d.diags, diags...)
	return val, !diags.HasErrors() && val.IsKnown()
}

// setValueOrigin is setOrigin for a value. It reports a value of another layer with the same strength.
func (d *decoder) setValueOrigin(path string, at hcl.Range) {
	if had, ok := d.origins[path]; ok && had.layer != d.layer && had.layer.strength == d.layer.strength {
		relate(d.errorf(at, "Conflicting defaults", "%s is set by %s and by %s, and neither is stronger; remove one.", path,
			had.layer.name, d.layer.name), "the other one", had.at)
	}
	d.setOrigin(path, at)
}

// setOrigin records where a setting or block is.
func (d *decoder) setOrigin(path string, at hcl.Range) {
	d.origins[path] = origin{at, d.layer}
	if d.layer.defaults != nil {
		d.layer.defaults.fits[path] = true
	}
}

// finish reports missing settings and sets the maps of ranges.
func (d *decoder) finish(owner string, def hcl.Range, v reflect.Value, prefix string) {
	ranges := map[string]hcl.Range{"": def}
	for _, f := range fieldsOf(v.Type()) {
		value, path := v.FieldByIndex(f.index), prefix+f.name
		ranges[f.name] = cmp.Or(d.origins[path].at, def)
		switch f.role {
		case roleSetting:
			if !f.optional && !d.given[path] {
				d.errorf(def, "Missing setting", "%s needs the setting %s%s.", upperFirst(owner), f.name, meaning(&f))
			}
		case roleRanges:
			value.Set(reflect.ValueOf(ranges))
		case roleBlock:
			if value.Kind() != reflect.Slice {
				d.finishBlock(f.name, value, path)
				continue
			}
			for i := range value.Len() {
				d.finishBlock(f.name, value.Index(i), fmt.Sprintf("%s[%d]", path, i))
			}
		}
	}
}

// finishBlock finishes a block that the files have; others keep their defaults.
func (d *decoder) finishBlock(name string, v reflect.Value, path string) {
	if o, ok := d.origins[path]; ok {
		d.finish("block "+name, o.at, reflect.Indirect(v), path+".")
	}
}

// blocks decodes the blocks of a body. It reports a block that is there twice, or beside a value of its name.
func (d *decoder) blocks(b body, v reflect.Value, fields []field, prefix string) {
	seen := map[string]hcl.Range{}
	for _, e := range b.entries {
		seen[e.name] = e.whole
	}
	count := map[string]int{}
	for _, bl := range b.blocks {
		f := findField(fields, bl.Type)
		if f == nil || f.role != roleBlock {
			d.unknownBlock(bl, b, fields, prefix)
			continue
		}
		dst, path := v.FieldByIndex(f.index), prefix+f.name
		count[f.name]++
		if before, twice := seen[f.name]; twice {
			relate(d.errorf(bl.DefRange(), "Duplicate block", "Write %s once, as a block or as a value; remove one.",
				f.name), "the other one", before)
			continue
		}
		target := dst
		if dst.Kind() == reflect.Slice {
			target, path = d.appendBlock(dst, path, count[f.name] == 1)
		} else {
			seen[f.name] = bl.DefRange()
		}
		d.setOrigin(path, bl.DefRange())
		target = allocated(target)
		d.labels(bl, target, path)
		d.fill(newBody(bl.Body, "block "+bl.Type, bl.DefRange(), nil), target, path+".")
	}
}

// inside decodes the settings of an override in a block.
func (d *decoder) inside(e entry, dst reflect.Value, f *field, path string) {
	if f.role != roleBlock || dst.Kind() == reflect.Slice {
		d.errorf(e.at, "Unknown setting", "%s is not a block with settings, so %s.%s cannot be set; set %s.", path, path,
			e.inside.entries[0].name, path)
		return
	}
	if _, ok := d.origins[path]; !ok {
		d.setOrigin(path, e.at)
	}
	d.fill(*e.inside, allocated(dst), path+".")
}

// objects decodes the value of a block: an object; for repeated blocks a list of objects, or a map whose keys are the
// labels.
func (d *decoder) objects(dst reflect.Value, val cty.Value, f *field, e entry, path string) {
	t := val.Type()
	label := labelOf(blockStruct(f.typ))
	switch repeated := dst.Kind() == reflect.Slice; {
	case !repeated && isMap(t) && instanceOf(val) == nil:
		d.setOrigin(path, e.whole)
		d.fill(objectBody(val, e.expr, path, e.whole), allocated(dst), path+".")
		return
	case !repeated:
		d.wrongType(val, e.expr, path, "a block or an object with its settings")
		return
	case label == nil && !isList(t):
		d.wrongType(val, e.expr, path, "a block or a list of objects")
		return
	case label != nil && !isMap(t):
		d.wrongType(val, e.expr, path, "a block or a map from labels to objects")
		return
	}
	d.setValueOrigin(path, e.whole)
	first := true
	for item := range elements(val, e.expr, path) {
		target, itemPath := d.appendBlock(dst, path, first)
		target = allocated(target)
		first = false
		if !isMap(item.value.Type()) || !item.value.IsKnown() || item.value.IsNull() {
			d.wrongType(item.value, item.expr, item.path, "an object with the settings of the block")
			continue
		}
		d.setOrigin(itemPath, item.expr.Range())
		if label != nil {
			target.FieldByIndex(label.index).SetString(item.key)
			d.setOrigin(itemPath+"."+label.name, item.keyRange)
		}
		d.fill(objectBody(item.value, item.expr, item.path, item.expr.Range()), target, itemPath+".")
	}
}

// appendBlock appends an element to a repeated block and returns it with its path. The first element of a layer
// removes those of weaker layers.
func (d *decoder) appendBlock(dst reflect.Value, path string, first bool) (reflect.Value, string) {
	if first {
		dst.SetZero()
		stale := func(name string) bool { return strings.HasPrefix(name, path+"[") }
		maps.DeleteFunc(d.origins, func(name string, _ origin) bool { return stale(name) })
		maps.DeleteFunc(d.given, func(name string, _ bool) bool { return stale(name) })
	}
	dst.Set(reflect.Append(dst, newBlock(dst.Type().Elem())))
	n := dst.Len() - 1
	return dst.Index(n), fmt.Sprintf("%s[%d]", path, n)
}

// defaulted is a repeated block with defaults. The list is empty before the file is decoded, so Kind.New and LoadSite
// cannot set them: the decoder calls setDefaults for each new element before it decodes the element's settings.
type defaulted interface{ setDefaults() }

// newBlock returns an element of a repeated block, with its defaults if the type has some.
func newBlock(t reflect.Type) reflect.Value {
	block := reflect.New(t)
	if b, ok := block.Interface().(defaulted); ok {
		b.setDefaults()
	}
	return block.Elem()
}

// allocated returns the struct of a block field.
func allocated(v reflect.Value) reflect.Value {
	if v.Kind() != reflect.Pointer {
		return v
	}
	if v.IsNil() {
		v.Set(reflect.New(v.Type().Elem()))
	}
	return v.Elem()
}

// labelOf returns the label of a block, or nil.
func labelOf(t reflect.Type) *field {
	for _, f := range fieldsOf(t) {
		if f.role == roleLabel {
			return &f
		}
	}
	return nil
}

// labels stores the label of a block in the struct v and reports a missing label and those that it does not take.
func (d *decoder) labels(bl *hclsyntax.Block, v reflect.Value, path string) {
	label := labelOf(v.Type())
	switch {
	case label == nil && len(bl.Labels) > 0:
		d.errorf(bl.LabelRanges[0], "Unexpected label", "Block %s takes no label.", bl.Type)
	case label != nil && len(bl.Labels) == 0:
		d.errorf(bl.DefRange(), "Missing label", "Write %s %q { … }: the block needs a label, its %s.", bl.Type,
			label.name, label.name)
	case label != nil:
		v.FieldByIndex(label.index).SetString(bl.Labels[0])
		d.setOrigin(path+"."+label.name, bl.LabelRanges[0])
		if len(bl.Labels) > 1 {
			d.errorf(bl.LabelRanges[1], "Unexpected label", "Block %s takes one label.", bl.Type)
		}
	}
}

func (d *decoder) unknownBlock(bl *hclsyntax.Block, b body, fields []field, prefix string) {
	if findField(fields, bl.Type) != nil {
		d.errorf(bl.TypeRange, "Setting expected", "In %s, %s is a setting: write %s = ….", b.owner, bl.Type, bl.Type)
		return
	}
	d.unknownField(bl.TypeRange, "block", prefix+bl.Type, b, fields)
}

// unknownField reports a name that the struct does not have. In an optional layer another kind may have it.
func (d *decoder) unknownField(at hcl.Range, noun, path string, b body, fields []field) {
	name := path[strings.LastIndexByte(path, '.')+1:]
	candidates := append(fieldNames(fields), d.also...)
	if d.layer.optional {
		d.layer.defaults.misfit(at, path, candidates)
		return
	}
	d.given[strings.TrimSuffix(path, name)+nearest(name, fieldNames(fields))] = true // do not report it as missing too
	d.errorf(at, "Unknown "+noun, "%s has no %s %s%s%s", upperFirst(b.owner), noun, name, didYouMean(name, candidates),
		known(fields))
}

// findField returns the setting or block with that name, or nil.
func findField(fields []field, name string) *field {
	for i := range fields {
		if f := &fields[i]; f.name == name && (f.role == roleSetting || f.role == roleBlock) {
			return f
		}
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
		return " (a reference to " + f.artifactText() + ")"
	}
	return ""
}

// decodeValue stores a known value that is not null in dst. Errors have the range of the element of expr if possible.
func (d *decoder) decodeValue(dst reflect.Value, val cty.Value, f *field, expr hclsyntax.Expression, path string) {
	switch dst.Type() {
	case refGoType, fileGoType, dataGoType:
		d.data(dst, val, f, expr, path)
		return
	case durationGoType, bytesGoType:
		d.quantity(dst, val, expr, path)
		return
	case jsonGoType:
		d.json(dst, val, expr, path)
		return
	}
	switch dst.Kind() {
	case reflect.Pointer:
		target := reflect.New(dst.Type().Elem())
		d.decodeValue(target.Elem(), val, f, expr, path)
		dst.Set(target)
	case reflect.Bool:
		if val.Type() != cty.Bool {
			d.wrongType(val, expr, path, "true or false")
			return
		}
		dst.SetBool(val.True())
	case reflect.String:
		d.stringValue(dst, val, f, expr, path)
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

func (d *decoder) stringValue(dst reflect.Value, val cty.Value, f *field, expr hclsyntax.Expression, path string) {
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
	if huge(val) {
		d.errorf(expr.Range(), "Bad number", "%s is too large: %v.", path, errHuge)
		return
	}
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
		d.decodeValue(dst, e.value, f, e.expr, e.path)
	}
	return dst
}

// json stores the JSON of a value.
func (d *decoder) json(dst reflect.Value, val cty.Value, expr hclsyntax.Expression, path string) {
	if !val.IsWhollyKnown() {
		d.doubt = true
		return
	}
	text, err := ctyjson.Marshal(val, val.Type())
	if _, hasData := findData(val); hasData || err != nil {
		d.wrongType(val, expr, path, "a plain value, without files and references")
		return
	}
	dst.SetBytes(text)
}

type element struct {
	key      string // of a map
	value    cty.Value
	expr     hclsyntax.Expression // of the element if the list or map is a literal, else of the whole
	keyRange hcl.Range            // of the key if the map is a literal, else of the whole
	path     string               // of the setting: "outputs.model", "seeds[2]"
}

// elements returns the elements of a list or map, maps in the order of their keys.
func elements(val cty.Value, expr hclsyntax.Expression, path string) iter.Seq[element] {
	return func(yield func(element) bool) {
		items := literalItems(expr)
		i := 0
		for it := val.ElementIterator(); it.Next(); i++ {
			key, v := it.Element()
			e := element{value: v, expr: expr, keyRange: expr.Range(), path: fmt.Sprintf("%s[%d]", path, i)}
			if list, ok := expr.(*hclsyntax.TupleConsExpr); ok && i < len(list.Exprs) {
				e.expr = list.Exprs[i]
			}
			if isMap(val.Type()) {
				e.key = key.AsString()
				e.path = path + "." + e.key
				if item := items[e.key]; item != nil {
					e.expr, e.keyRange = item.ValueExpr, item.KeyExpr.Range()
				}
			}
			if !yield(e) {
				return
			}
		}
	}
}

// literalItems returns the items of a literal map by key, the first of equal keys; nil for another expression.
func literalItems(expr hclsyntax.Expression) map[string]*hclsyntax.ObjectConsItem {
	object, ok := expr.(*hclsyntax.ObjectConsExpr)
	if !ok {
		return nil
	}
	items := make(map[string]*hclsyntax.ObjectConsItem, len(object.Items))
	for i, item := range object.Items {
		k, diags := item.KeyExpr.Value(nil)
		if diags.HasErrors() || k.Type() != cty.String || items[text(k)] != nil {
			continue
		}
		items[text(k)] = &object.Items[i]
	}
	return items
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
	const most = 100
	quoted := make([]string, min(len(names), most))
	for i := range quoted {
		quoted[i] = strconv.Quote(names[i])
	}
	if len(names) > most {
		quoted = append(quoted, "…")
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
