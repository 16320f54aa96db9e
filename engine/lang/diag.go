package lang

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// nearest returns the candidate closest to a misspelt name, or "". It allows one edit per three letters; a swap of
// neighbours is one edit. Otherwise it accepts a candidate with a common prefix of two thirds of the shorter word
// (retries for retry, gpu_mem for gpu_memory).
func nearest(name string, candidates []string) string {
	best, bestDistance := "", 1+max(1, len(name)/3)
	for _, c := range candidates {
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

// Plural returns "1 stage" or "2 stages".
func Plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
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
