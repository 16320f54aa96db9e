package lang

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// nearest returns the candidate closest to a misspelt name, or "". It allows one edit per three letters; a swap of
// neighbours is one edit. Otherwise it accepts a candidate with a common prefix of two thirds of the shorter word
// (retries for retry, gpu_mem for gpu_memory).
func nearest(name string, candidates []string) string {
	best, bestDistance := "", 1+max(1, len(name)/3)
	for _, c := range candidates[:min(len(candidates), mostCandidates)] {
		if len(name)+len(c) > longestHint {
			continue
		}
		if d := editDistance(name, c); d < bestDistance && d < len(c) {
			best, bestDistance = c, d
		}
	}
	if best != "" {
		return best
	}
	longest := 2
	for _, c := range candidates {
		if n := CommonPrefix(name, c); n > longest && 3*n >= 2*min(len(name), len(c)) {
			best, longest = c, n
		}
	}
	return best
}

// Distances are computed for few and short names, because the file of a stranger may have many long ones.
const longestHint, mostCandidates = 200, 1000 // bytes of both names; names

// CommonPrefix returns the length of the common prefix in bytes.
func CommonPrefix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// didYouMean ends a sentence about an unknown name with the nearest candidate or a full stop.
func didYouMean(name string, candidates []string) string {
	return cmp.Or(NearHint(name, candidates), ".")
}

// NearHint returns "; did you mean NAME?", or "" if no candidate is near.
func NearHint(name string, candidates []string) string {
	if n := nearest(name, candidates); n != "" {
		return fmt.Sprintf("; did you mean %s?", n)
	}
	return ""
}

// editDistance counts insertions, deletions, replacements and swaps of neighbours between a and b.
func editDistance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := last[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			row[j] = min(replace, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

type reporter struct{ diags hcl.Diagnostics }

// errorf adds an error. A zero range means no position. The caller may add to the returned diagnostic.
func (r *reporter) errorf(at hcl.Range, summary, format string, args ...any) *hcl.Diagnostic {
	d := mistake(at, summary, format, args...)
	r.diags = append(r.diags, d)
	return d
}

func mistake(at hcl.Range, summary, format string, args ...any) *hcl.Diagnostic {
	d := &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, args...)}
	if at != (hcl.Range{}) {
		d.Subject = &at
	}
	return d
}

// related are further ranges of a diagnostic, in its Extra.
type related []relatedRange

type relatedRange struct {
	Text  string
	Range hcl.Range
}

// relate adds a range with its meaning to a diagnostic.
func relate(d *hcl.Diagnostic, text string, at hcl.Range) *hcl.Diagnostic {
	before, _ := d.Extra.(related)
	d.Extra = append(before, relatedRange{text, at})
	return d
}

// LongestShown is the length of a printed value, in characters.
const LongestShown = 48

// FormatValue formats the canonical value of a key part for people: 1e-5 rather than 0.00001, long texts truncated.
func FormatValue(value string, known bool) string {
	if !known {
		return "(none)"
	}
	if x, err := strconv.ParseFloat(value, 64); err == nil && x != 0 && (x < 1e-3 && x > -1e-3) {
		mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(x, 'e', -1, 64), "e-")
		return mantissa + "e-" + strings.TrimLeft(exponent, "0")
	}
	if text := []rune(value); len(text) > LongestShown {
		return string(text[:LongestShown-1]) + "…"
	}
	return value
}

// WriteDiagnostics prints each diagnostic: the summary, the line of the file with the range underlined, the values
// of the variables in the expression, and the detail. files are those of the experiment.
func WriteDiagnostics(w io.Writer, diags hcl.Diagnostics, files map[string]*hcl.File, color bool) {
	p := painter{color}
	for i, d := range diags {
		if i > 0 {
			fmt.Fprintln(w)
		}
		severity := p.paint("31;1", "Error")
		if d.Severity == hcl.DiagWarning {
			severity = p.paint("33;1", "Warning")
		}
		fmt.Fprintf(w, "%s: %s\n", severity, p.paint("1", d.Summary))
		if d.Subject != nil {
			writeSnippet(w, *d.Subject, files, p, "")
		}
		also, _ := d.Extra.(related)
		for _, r := range also {
			writeSnippet(w, r.Range, files, p, r.Text)
		}
		for _, v := range usedValues(d) {
			fmt.Fprintf(w, "  %s\n", v)
		}
		if d.Detail != "" {
			fmt.Fprintf(w, "  %s\n", strings.ReplaceAll(shortened(d.Detail), "\n", "\n  "))
		}
	}
}

type painter struct{ on bool }

func (p painter) paint(code, text string) string {
	if !p.on {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// writeSnippet prints the position and one line of a file with the range underlined.
func writeSnippet(w io.Writer, at hcl.Range, files map[string]*hcl.File, p painter, note string) {
	where := Place(at)
	if block := enclosingBlock(files[at.Filename], at); block != "" {
		where += ", in " + block
	}
	if note != "" {
		where += ": " + note
	}
	fmt.Fprintf(w, "  %s\n", where)
	file := files[at.Filename]
	if file == nil || at.Start.Line < 1 || at.Start.Byte > len(file.Bytes) {
		return
	}
	begin := 1 + bytes.LastIndexByte(file.Bytes[:at.Start.Byte], '\n')
	text, _, _ := bytes.Cut(file.Bytes[begin:], []byte("\n"))
	line := strings.TrimRight(string(text), "\r")
	number := fmt.Sprintf("%5d", at.Start.Line)
	from, to := at.Start.Column, at.End.Column
	if at.End.Line != at.Start.Line {
		to = utf8.RuneCountInString(line) + 1
	}
	line, from, to = window(line, from, to)
	fmt.Fprintf(w, "%s │ %s\n", p.paint("2", number), line)
	pad := []rune(line + strings.Repeat(" ", from))[:from-1]
	for i, r := range pad {
		if r != '\t' {
			pad[i] = ' '
		}
	}
	fmt.Fprintf(w, "      │ %s%s\n", string(pad), p.paint("31;1", strings.Repeat("^", max(1, to-from))))
}

// window truncates a long line around the columns from to to, and adjusts them.
func window(line string, from, to int) (string, int, int) {
	const widest, before = 200, 40
	runes := []rune(line)
	if len(runes) <= widest {
		return line, from, to
	}
	start := max(0, min(from-1-before, len(runes)-1))
	end := min(start+widest, len(runes))
	text := string(runes[start:end])
	if end < len(runes) {
		text += "…"
	}
	if start > 0 {
		text, start = "…"+text, start-1
	}
	return text, from - start, min(to, end+1) - start
}

// maxPrinted is the length of a printed detail or value, in bytes.
const maxPrinted = 2000

func shortened(text string) string {
	if len(text) <= maxPrinted {
		return text
	}
	return strings.ToValidUTF8(text[:maxPrinted], "") + "…"
}

// enclosingBlock returns the name of the outermost block around a range, or "".
func enclosingBlock(file *hcl.File, at hcl.Range) string {
	if file == nil {
		return ""
	}
	b, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return ""
	}
	for _, bl := range b.Blocks {
		if bl.OpenBraceRange.End.Byte <= at.Start.Byte && at.Start.Byte < bl.CloseBraceRange.Start.Byte {
			name := bl.Type
			for _, label := range bl.Labels {
				name += fmt.Sprintf(" %q", label)
			}
			return name
		}
	}
	return ""
}

// usedValues returns the plain values of the variables in the expression of a diagnostic: `var.updates is 5`.
func usedValues(d *hcl.Diagnostic) []string {
	if d.Expression == nil || d.EvalContext == nil {
		return nil
	}
	var out []string
	for _, t := range d.Expression.Variables() {
		val, diags := t.TraverseAbs(d.EvalContext)
		if diags.HasErrors() || !val.IsKnown() || val.IsNull() || !val.Type().IsPrimitiveType() {
			continue
		}
		if text := traversalText(t) + " is " + shortened(valueText(val)); !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// DiagnosticJSON is a diagnostic for programs. Lines and columns count from 1, bytes from 0.
type DiagnosticJSON struct {
	Severity string       `json:"severity"` // "error" or "warning"
	Summary  string       `json:"summary"`
	Detail   string       `json:"detail,omitempty"`
	Place    *placeJSON   `json:"place,omitempty"`
	Related  []*placeJSON `json:"related,omitempty"`
	Values   []string     `json:"values,omitempty"`
}

type placeJSON struct {
	File  string  `json:"file"`
	Start posJSON `json:"start"`
	End   posJSON `json:"end"`
	Text  string  `json:"text,omitempty"`
}

type posJSON struct {
	Line   int `json:"line"`
	Column int `json:"column"`
	Byte   int `json:"byte"`
}

// DiagnosticsJSON converts diagnostics to JSON structs. The list is never nil.
func DiagnosticsJSON(diags hcl.Diagnostics) []DiagnosticJSON {
	out := make([]DiagnosticJSON, 0, len(diags))
	for _, d := range diags {
		j := DiagnosticJSON{Severity: "error", Summary: d.Summary, Detail: shortened(d.Detail), Values: usedValues(d)}
		if d.Severity == hcl.DiagWarning {
			j.Severity = "warning"
		}
		if d.Subject != nil {
			j.Place = place(*d.Subject, "")
		}
		also, _ := d.Extra.(related)
		for _, r := range also {
			j.Related = append(j.Related, place(r.Range, r.Text))
		}
		out = append(out, j)
	}
	return out
}

func place(r hcl.Range, text string) *placeJSON {
	return &placeJSON{File: r.Filename, Start: posJSON(r.Start), End: posJSON(r.End), Text: text}
}
