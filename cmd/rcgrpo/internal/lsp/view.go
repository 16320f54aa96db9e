package lsp

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"rcgrpo/engine/lang"
)

// view is what a request sees: the files of one experiment at one moment, parsed or not.
type view struct {
	doc    *document
	files  []*document // of the experiment, with doc
	site   bool        // doc is a site file
	kinds  lang.Registry
	found  map[string]stageInfo          // by kind and name, from the last Load without errors
	module func(path string) []*document // files of another experiment

	described map[string]lang.KindDoc // kinds described before
	snippets  bool                    // the client's completions may have placeholders
}

// stageInfo is what only Load knows about a stage.
type stageInfo struct {
	outputs map[string]string // port -> artifact type
	keys    []string          // of for_each
}

// declared is a block or local with the document that contains it.
type declared struct {
	*item
	doc *document
}

// blocks returns the blocks of a type at the top level of documents.
func blocks(docs []*document, typ string) (found []declared) {
	for _, d := range docs {
		for _, it := range d.outline().root.items {
			if it.name.text == typ {
				found = append(found, declared{it, d})
			}
		}
	}
	return found
}

func locals(docs []*document) (found []declared) {
	for _, b := range blocks(docs, "locals") {
		for _, it := range b.items {
			found = append(found, declared{it, b.doc})
		}
	}
	return found
}

// definition returns the declaration that a traversal in an item names; ok is false if there is none.
func (v *view) definition(steps []string, in *item) (d declared, ok bool) {
	step := append(slices.Clone(steps), "", "", "")
	var all []declared
	switch step[0] {
	case "var":
		all = blocks(v.files, "variable")
	case "local":
		all = locals(v.files)
	case "stage":
		all = blocks(v.files, "stage")
	case "module":
		all = blocks(v.files, "module")
	case "each":
		if each := in.top().find("for_each"); each != nil {
			return declared{each, v.doc}, true
		}
	}
	i := slices.IndexFunc(all, func(d declared) bool {
		if !d.block {
			return d.name.text == step[1]
		}
		return d.label(0) == step[1] && (len(d.labels) == 1 || d.label(1) == step[2])
	})
	if i < 0 {
		return declared{}, false
	}
	if inside := slices.Index(step, "stage"); step[0] == "module" && inside > 0 {
		inner := *v
		inner.files = v.moduleFiles(all[i])
		if d, ok := inner.definition(step[inside:], in); ok {
			return d, true
		}
	}
	return all[i], true
}

// moduleFiles returns the documents of a module.
func (v *view) moduleFiles(d declared) []*document {
	source := d.find("source")
	if source == nil || v.module == nil {
		return nil
	}
	path := strings.Trim(d.doc.outline().textOf(source), `"`)
	return v.module(filepath.Join(filepath.Dir(d.doc.path), path))
}

// settings returns the settings of the outermost block around an item; of a site file all of them.
func (v *view) settings(in *item) []lang.SettingDoc {
	top := in.top()
	if v.site {
		return lang.SiteSettings()
	}
	var settings []lang.SettingDoc
	for _, b := range lang.FileBlocks {
		if b.Name == top.name.text {
			settings = b.Settings
		}
	}
	switch top.name.text {
	case "stage":
		settings = slices.Concat(v.kind(top.label(0)).Settings, lang.StageSettings())
	case "defaults":
		names := map[string]bool{}
		for _, k := range v.kinds {
			if len(top.labels) > 0 && !slices.ContainsFunc(top.labels, func(l word) bool { return l.text == k.Name }) {
				continue
			}
			for _, s := range slices.Concat(v.kind(k.Name).Settings, lang.StageSettings()) {
				if !names[s.Name] {
					names[s.Name], s.Required = true, false
					settings = append(settings, s)
				}
			}
		}
	case "module":
		for _, variable := range blocks(v.moduleFiles(declared{top, v.doc}), "variable") {
			settings = append(settings, variableDoc(variable))
		}
	}
	return settings
}

// kind describes a kind; without settings and ports if there is none with that name.
func (v *view) kind(name string) lang.KindDoc {
	d, known := v.described[name]
	if k := v.kinds.Lookup(name); !known && k != nil {
		d = k.Describe()
		v.described[name] = d
	}
	return d
}

// variableDoc describes a variable as an argument of its module.
func variableDoc(d declared) lang.SettingDoc {
	text := func(name string) string {
		if it := d.find(name); it != nil {
			return d.doc.outline().textOf(it)
		}
		return ""
	}
	return lang.SettingDoc{Name: d.label(0), Type: text("type"), Default: text("default"), Keyed: true,
		Required: d.find("default") == nil, Doc: strings.Trim(text("description"), `"`)}
}

// path returns the path of a place among the settings of v.settings.
func (v *view) path(in *item, path string) string {
	if v.site && in.top().parent != nil && in.top().block {
		return strings.TrimSuffix(in.top().name.text+"."+path, ".")
	}
	return path
}

// children returns the settings of the block at a path, "" for the outermost.
func children(settings []lang.SettingDoc, path string) (found []lang.SettingDoc) {
	for _, s := range settings {
		name, below := s.Name, path == ""
		if !below {
			name, below = strings.CutPrefix(s.Name, path+".")
		}
		if below && name != "" && !strings.Contains(name, ".") && s.Type != "label" {
			s.Name = name
			found = append(found, s)
		}
	}
	return found
}

// setting returns the setting at a path, or the nearest one around it: "inputs" for "inputs.src".
func setting(settings []lang.SettingDoc, path string) (lang.SettingDoc, bool) {
	for ok := true; ok; {
		if i := slices.IndexFunc(settings, func(s lang.SettingDoc) bool { return s.Name == path }); i >= 0 {
			return settings[i], true
		}
		i := strings.LastIndexByte(path, '.')
		if ok = i >= 0; ok {
			path = path[:i]
		}
	}
	return lang.SettingDoc{}, false
}

// accepts returns the artifact types of the references that fit a place (none: all), and whether several fit.
func (v *view) accepts(in *item, path string) (types []string, several, ok bool) {
	top := in.top()
	first, _, _ := strings.Cut(path, ".")
	switch {
	case v.site || top.name.text == "experiment" || top.name.text == "variable":
		return nil, false, false
	case top.name.text == "locals" || top.name.text == "module" || first == "for_each" || first == "depends_on":
		return nil, true, true
	case top.name.text == "defaults":
		for _, k := range v.kinds {
			if t, many, fits := k.Accepts(path); fits {
				types, several, ok = append(types, t...), several || many, true
			}
		}
		return types, several, ok
	}
	if k := v.kinds.Lookup(top.label(0)); k != nil {
		return k.Accepts(path)
	}
	return nil, true, top.name.text == "stage" // of an unknown kind
}

// outputs returns the ports of a stage with their types, as far as they are known.
func (v *view) outputs(stage declared) map[string]string {
	if info, ok := v.loaded(stage); ok {
		return info.outputs
	}
	ports := map[string]string{}
	maps.Copy(ports, v.kind(stage.label(0)).Ports)
	if declared := stage.find("outputs"); declared != nil && len(ports) == 0 { // exec
		for _, name := range stage.doc.outline().objectKeys(declared) {
			ports[name] = "files"
		}
	}
	return ports
}

// loaded returns what Load knows about a stage of the experiment, but not of a module.
func (v *view) loaded(stage declared) (info stageInfo, ok bool) {
	if slices.Contains(v.files, stage.doc) {
		info, ok = v.found[stage.label(0)+"."+stage.label(1)]
	}
	return info, ok
}

// keys returns the keys of a stage's for_each, as far as they are known.
func (v *view) keys(stage declared) []string {
	if info, ok := v.loaded(stage); ok {
		return info.keys
	}
	each := stage.find("for_each")
	if each == nil {
		return nil
	}
	for _, d := range locals(append([]*document{stage.doc}, v.files...)) {
		if stage.doc.outline().textOf(each) == "local."+d.name.text {
			return d.doc.outline().objectKeys(d.item)
		}
	}
	return stage.doc.outline().objectKeys(each)
}

// objectKeys returns the keys of a setting whose value is a literal object, or the strings of a literal list.
func (o *outline) objectKeys(it *item) (keys []string) {
	text := o.text[it.value:it.end]
	if len(it.tokens) > 1000 { // the parser is recursive
		return nil
	}
	var exprs []hclsyntax.Expression
	expr, _ := hclsyntax.ParseExpression(text, "", hcl.InitialPos)
	switch e := expr.(type) {
	case *hclsyntax.ObjectConsExpr:
		for _, it := range e.Items {
			if name := hcl.ExprAsKeyword(it.KeyExpr); name != "" {
				keys = append(keys, name)
			} else if key, ok := it.KeyExpr.(*hclsyntax.ObjectConsKeyExpr); ok {
				exprs = append(exprs, key.Wrapped)
			}
		}
	case *hclsyntax.TupleConsExpr:
		exprs = e.Exprs
	}
	for _, e := range exprs {
		if text, ok := e.(*hclsyntax.TemplateExpr); ok && text.IsStringLiteral() { // another one may be long work
			k, _ := text.Value(nil)
			keys = append(keys, k.AsString())
		}
	}
	return keys
}
