package lsp

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"rcgrpo/engine/lang"
)

// convert returns the diagnostics of an experiment by the path of their file. Those without a place are at the
// beginning of main. Messages name files relative to dir, as rcgrpo check does there.
func convert(diags []lang.DiagnosticJSON, main, dir string, read func(path string) *document) map[string][]diagnostic {
	shorten := func(text string) string { return strings.ReplaceAll(text, dir+string(filepath.Separator), "") }
	at := func(file string, start, end int) (string, textRange) {
		path, err := filepath.Abs(file)
		if err != nil {
			path = file
		}
		return path, read(path).rangeOf(start, max(start, end))
	}
	byPath := map[string][]diagnostic{}
	for _, d := range diags {
		out := diagnostic{Severity: 1, Source: "rcgrpo", Message: d.Summary}
		if d.Severity == "warning" {
			out.Severity = 2
		}
		if d.Detail != "" {
			out.Message += "\n" + shorten(d.Detail)
		}
		for _, v := range d.Values {
			out.Message += "\n" + v
		}
		path := main
		if d.Place != nil {
			path, out.Range = at(d.Place.File, d.Place.Start.Byte, d.Place.End.Byte)
		}
		for _, r := range d.Related {
			other, rng := at(r.File, r.Start.Byte, r.End.Byte)
			out.Related = append(out.Related, relatedDiagnostic{location{uriOf(other), rng}, shorten(r.Text)})
		}
		byPath[path] = append(byPath[path], out)
	}
	return byPath
}

// suggestion matches the wrong and the proposed name in a message of lang: "has no setting epoch; did you mean
// epochs?". alternatives matches whole references: "Did you mean stage.tasks.a.train or stage.tasks.a.test?".
var suggestion = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(\S+); did you mean (\S+)\?`)
})

var alternatives = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`Did you mean (stage\..+)\?`) })

// fixes returns an action for each name that a diagnostic suggests.
func (v *view) fixes(diags []diagnostic) []codeAction {
	actions := []codeAction{}
	for _, d := range diags {
		add := func(title string, at textRange, text string) {
			a := codeAction{Title: title, Kind: "quickfix", Diagnostics: []diagnostic{d}, Preferred: len(actions) == 0}
			a.Edit.Changes = map[string][]textEdit{v.doc.uri: {{at, text}}}
			actions = append(actions, a)
		}
		if m := alternatives().FindStringSubmatch(d.Message); m != nil {
			for _, ref := range strings.Split(m[1], " or ") {
				add("Use "+ref, d.Range, ref)
			}
			continue
		}
		m := suggestion().FindStringSubmatch(d.Message)
		if m == nil {
			continue
		}
		wrong, right := lastName(m[1]), lastName(m[2])
		start, end := v.doc.offset(d.Range.Start), v.doc.offset(d.Range.End)
		word := regexp.MustCompile(`(^|[^\w-])(` + regexp.QuoteMeta(wrong) + `)($|[^\w-])`)
		found := word.FindSubmatchIndex(v.doc.text[start:max(start, end)])
		if found == nil || wrong == "" || wrong == right {
			continue
		}
		add(fmt.Sprintf("Replace %s with %s", wrong, right), v.doc.rangeOf(start+found[4], start+found[5]), right)
	}
	return actions
}

// lastName returns the name that differs in a suggestion: warm of stage.sft.warm, without quotes and punctuation.
func lastName(text string) string {
	text = strings.Trim(text, `"'.,;:`)
	return text[strings.LastIndexByte(text, '.')+1:]
}
