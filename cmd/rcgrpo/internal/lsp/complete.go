package lsp

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"rcgrpo/engine/lang"
)

// maxItems is the number of proposals of one answer. If there are more, the client asks again after the next letter.
const maxItems = 300

// proposals collects completion items for one place.
type proposals struct {
	view  *view
	at    cursor
	edit  textRange
	typed string // in lower case
	quote bool   // the place is not in quotes yet
	list  completionList
}

func (v *view) complete(p position) completionList {
	d := v.doc
	offset := d.offset(p)
	c := d.outline().cursorAt(offset)
	list := proposals{view: v, at: c, edit: d.rangeOf(c.from, c.to),
		typed: strings.ToLower(string(d.text[c.from:offset])), quote: c.from == 0 || d.text[c.from-1] != '"',
		list: completionList{Items: []completionItem{}}}
	switch c.syntax {
	case statement, key:
		list.names()
	case label:
		list.labels()
	case value:
		list.values()
	case quoted:
		list.texts()
	case index:
		if stage, ok := v.definition(c.steps, c.block); ok {
			for _, k := range v.keys(stage) {
				list.add(completionItem{Label: k, Kind: itemValue}, k)
			}
		}
	}
	return list.list
}

// add adds an item unless it lacks the typed letters. Snippets have placeholders such as $0.
func (l *proposals) add(it completionItem, insert string) {
	switch {
	case !strings.Contains(strings.ToLower(it.Label), l.typed):
		return
	case len(l.list.Items) == maxItems:
		l.list.Incomplete = true
		return
	}
	it.SortText, it.FilterText = fmt.Sprintf("%05d", len(l.list.Items)), it.Label
	it.Format = 1
	if snippet := strings.Contains(insert, "$"); snippet && l.view.snippets {
		it.Format = 2
	} else if snippet {
		insert = it.Label
	}
	it.TextEdit = textEdit{l.edit, insert}
	l.list.Items = append(l.list.Items, it)
}

// names proposes blocks, settings of the block and keys of an object that is the value of a block.
func (l *proposals) names() {
	if l.at.block.parent == nil && !l.view.site {
		for _, b := range lang.FileBlocks {
			form := b.Name
			for i, name := range b.Labels {
				form += fmt.Sprintf(` "${%d:%s}"`, i+1, name)
			}
			l.add(completionItem{Label: b.Name, Kind: itemKeyword, Detail: b.Doc}, form+" {\n  $0\n}")
		}
		return
	}
	of := l.at.block
	path := of.path()
	if l.at.syntax == key {
		path = l.at.path
	}
	settings := l.view.settings(of)
	path = l.view.path(of, path)
	if l.at.syntax == key {
		if s, ok := setting(settings, path); !ok || s.Name != path || !strings.HasPrefix(s.Type, "block") {
			l.values() // the keys of this object are free; a for may begin here
			return
		}
	}
	candidates := children(settings, path)
	isOptional := func(s lang.SettingDoc) bool { return !s.Required }
	required := slices.DeleteFunc(slices.Clone(candidates), isOptional)
	optional := slices.DeleteFunc(candidates, func(s lang.SettingDoc) bool { return s.Required })
	for _, s := range append(required, optional...) {
		given := of.find(s.Name)
		if given != nil && given != l.at.item && s.Type != "block, repeated" && l.at.syntax == statement {
			continue
		}
		name := strings.TrimPrefix(path+"."+s.Name, ".")
		l.add(completionItem{Label: s.Name, Kind: itemField, Detail: typeText(s), Doc: markdown(settingText(s))},
			l.form(s, name, settings))
	}
}

// form returns the text of a new setting or block.
func (l *proposals) form(s lang.SettingDoc, name string, settings []lang.SettingDoc) string {
	given := l.at.item != nil && (l.at.item.block || l.at.item.setting)
	switch {
	case l.at.syntax == statement && given:
		return s.Name // the rest is there already
	case !strings.HasPrefix(s.Type, "block"):
		return s.Name + " = "
	case l.at.syntax == key:
		return s.Name + " = { $0 }"
	}
	form := s.Name
	for _, inner := range settings {
		if below, ok := strings.CutPrefix(inner.Name, name+"."); ok && inner.Type == "label" {
			form += ` "${1:` + below + `}"`
		}
	}
	return form + " {\n  $0\n}"
}

func (l *proposals) labels() {
	switch typ := l.at.item.name.text; {
	case l.view.site && typ == "executor":
		l.strings(lang.ExecutorTypes)
	case typ == "stage" && l.at.label == 0, typ == "defaults":
		for _, k := range l.view.kinds {
			l.add(completionItem{Label: k.Name, Kind: itemModule, Detail: k.Summary}, l.quoted(k.Name))
		}
	}
}

func (l *proposals) quoted(s string) string {
	if l.quote {
		return `"` + s + `"`
	}
	return s
}

func (l *proposals) strings(names []string) {
	for _, n := range names {
		l.add(completionItem{Label: n, Kind: itemValue}, l.quoted(n))
	}
}

// texts proposes the strings that the setting accepts.
func (l *proposals) texts() {
	path := l.view.path(l.at.item, l.at.path)
	switch s, _ := setting(l.view.settings(l.at.item), path); {
	case s.Name == "executor" || s.Name == "default_executor":
		l.strings(lang.ExecutorTypes)
	case s.Name == "retry.on":
		l.strings(lang.FailureCauses)
	default:
		l.strings(s.Choices)
	}
}

// values proposes literals, references, names and functions.
func (l *proposals) values() {
	v, c := l.view, l.at
	path := v.path(c.item, c.path)
	s, _ := setting(v.settings(c.item), path)
	top := c.item.top()
	if len(c.steps) < 2 {
		l.texts()
		switch s.Type {
		case "bool":
			l.keywords("true", "false")
		case "type":
			l.keywords(lang.TypeWords...)
		}
	}
	if top.find("for_each") != nil {
		l.add(completionItem{Label: "each.value", Kind: itemVariable, Detail: "element of for_each"}, "each.value")
		l.add(completionItem{Label: "each.key", Kind: itemVariable, Detail: "key of the element"}, "each.key")
	}
	if types, several, ok := v.accepts(c.item, path); ok {
		l.references("", v.files, types, several)
		modules := blocks(v.files, "module")
		for _, m := range modules[:min(len(modules), maxItems)] {
			for _, name := range l.instances("module."+m.label(0), m) {
				l.references(name+".", v.moduleFiles(m), types, several)
			}
		}
	}
	if inVariable := top.name.text == "variable"; !v.site && (!inVariable || c.block != top) {
		for _, d := range blocks(v.files, "variable") {
			l.add(completionItem{Label: "var." + d.label(0), Kind: itemVariable, Detail: variableDoc(d).Doc}, "var."+d.label(0))
		}
		for _, d := range locals(v.files) {
			if !inVariable && d.item != c.item {
				name := "local." + d.name.text
				l.add(completionItem{Label: name, Kind: itemVariable, Detail: d.doc.outline().textOf(d.item)}, name)
			}
		}
	}
	if len(c.steps) < 2 {
		for _, name := range lang.Functions() {
			call, doc := lang.FunctionDoc(name)
			l.add(completionItem{Label: name, Kind: itemFunction, Detail: call, Doc: markdown(doc)}, name+"($0)")
		}
	}
}

func (l *proposals) keywords(words ...string) {
	for _, w := range words {
		l.add(completionItem{Label: w, Kind: itemKeyword}, w)
	}
}

// instances returns the references to the instances of a stage or module.
func (l *proposals) instances(name string, of declared) (all []string) {
	if of.find("for_each") == nil {
		return []string{name}
	}
	if l.at.item.top().find("for_each") != nil {
		all = append(all, name+"[each.key]")
	}
	for _, k := range l.view.keys(of) {
		if len(k) <= maxPath {
			all = append(all, fmt.Sprintf("%s[%q]", name, k))
		}
	}
	return all
}

// references proposes the ports of all other stages with a fitting type, and with several also whole stages. It leaves
// out names longer than maxPath, which would be repeated for each port and key.
func (l *proposals) references(prefix string, files []*document, types []string, several bool) {
	top := l.at.item.top()
	if len(prefix) > maxPath {
		return
	}
	for _, stage := range blocks(files, "stage") {
		name := prefix + "stage." + stage.label(0) + "." + stage.label(1)
		// Most stages are rejected by the letters typed so far, before their ports are computed.
		other := strings.Contains(l.typed, ".") && !strings.HasPrefix(strings.ToLower(name),
			l.typed[:min(len(l.typed), len(name))])
		if l.list.Incomplete {
			return
		}
		if stage.item == top || other || len(name) > maxPath {
			continue
		}
		outputs := l.view.outputs(stage)
		var ports []string
		for _, port := range slices.Sorted(maps.Keys(outputs)) {
			if len(port) <= maxPath && (len(types) == 0 || slices.Contains(types, outputs[port])) {
				ports = append(ports, port)
			}
		}
		if several && len(ports) > 0 {
			l.add(completionItem{Label: name, Kind: itemRef, Detail: "all instances, port by type"}, name)
		}
		for _, in := range l.instances(name, stage) {
			for _, port := range ports {
				l.add(completionItem{Label: in + "." + port, Kind: itemRef, Detail: outputs[port]}, in+"."+port)
			}
		}
	}
}
