package lsp

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"rcgrpo/engine/lang"
)

func (v *view) hover(p position) *hover {
	c := v.doc.outline().cursorAt(v.doc.offset(p))
	text := ""
	switch {
	case c.item == nil:
	case c.syntax == statement && c.block.parent == nil && !v.site:
		for _, b := range lang.FileBlocks {
			if b.Name == c.item.name.text {
				text = fmt.Sprintf("`%s`: %s", strings.Join(append([]string{b.Name}, b.Labels...), " "), b.Doc)
			}
		}
	case c.syntax == statement || c.syntax == key:
		path := v.path(c.item, c.item.path())
		if c.syntax == key {
			path = v.path(c.item, c.path) + "." + string(v.doc.text[c.from:c.to])
		}
		if s, ok := setting(v.settings(c.item), path); ok && s.Name == path {
			text = settingText(s)
		}
	case c.syntax == value && len(c.steps) > 0:
		text = v.nameText(c)
	case c.syntax == label && c.label == 0 && (c.item.name.text == "stage" || c.item.name.text == "defaults"):
		text = v.kindText(c.item.label(0))
	}
	if text == "" {
		return nil
	}
	return &hover{markdown(text), v.doc.rangeOf(c.from, c.to)}
}

// nameText describes the reference or function at a cursor.
func (v *view) nameText(c cursor) string {
	if len(c.steps) == 1 && bytes.HasPrefix(v.doc.text[c.to:], []byte("(")) {
		call, doc := lang.FunctionDoc(c.steps[0])
		return strings.TrimSpace("`" + call + "`\n\n" + doc)
	}
	d, ok := v.definition(c.steps, c.item)
	if !ok {
		return ""
	}
	switch c.steps[0] {
	case "var":
		s := variableDoc(d)
		s.Name, s.Required = "var."+s.Name, false
		return settingText(s)
	case "local", "each":
		return fmt.Sprintf("```hcl\n%s = %s\n```", d.name.text, d.doc.outline().textOf(d.item))
	}
	text := fmt.Sprintf("`stage.%s.%s`; ports: %s", d.label(0), d.label(1), lang.MarkdownPorts(v.outputs(d)))
	if about := d.find("description"); about != nil {
		text += "\n\n" + strings.Trim(d.doc.outline().textOf(about), `"`)
	}
	if keys := v.keys(d); len(keys) > 0 {
		text += "\n\nKeys: " + strings.Join(keys, ", ")
	}
	return text
}

func (v *view) kindText(name string) string {
	d := v.kind(name)
	if d.Name == "" {
		return ""
	}
	return fmt.Sprintf("**%s** (version %d): %s\n\nPorts: %s. Uses randomness: %s.", d.Name, d.Version, d.Summary,
		lang.MarkdownPorts(d.Ports), d.Draws)
}

// typeText returns type, unit and default on one line.
func typeText(s lang.SettingDoc) string {
	text := s.TypeText()
	switch {
	case s.Required:
		text += "; required"
	case s.Default != "":
		text += "; default " + s.Default
	}
	return text
}

func settingText(s lang.SettingDoc) string {
	text := fmt.Sprintf("**%s**: %s\n\n%s", s.Name, typeText(s), s.Doc)
	if len(s.Choices) > 0 {
		text += "\n\nOne of `" + strings.Join(s.Choices, "`, `") + "`"
	}
	return strings.TrimSpace(text)
}

// definitions returns where the name at a position is declared: a stage, variable, local or module; for a path in
// file(), dir() or source, that file.
func (v *view) definitions(p position) []location {
	c := v.doc.outline().cursorAt(v.doc.offset(p))
	if d, ok := v.definition(c.steps, cmp.Or(c.item, c.block)); ok {
		name := d.name
		if n := len(d.labels); n > 0 {
			name = d.labels[n-1]
		}
		return []location{{d.doc.uri, d.doc.rangeOf(name.start, name.end)}}
	}
	before := string(v.doc.text[:max(0, c.from-1)])
	isPath := strings.HasSuffix(before, "file(") || strings.HasSuffix(before, "dir(") ||
		c.item != nil && c.item.top().name.text == "module" && c.path == "source"
	if c.syntax != quoted || !isPath || v.doc.path == "" {
		return []location{}
	}
	path := string(v.doc.text[c.from:c.to])
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(v.doc.path), path)
	}
	return []location{{URI: uriOf(path)}}
}
